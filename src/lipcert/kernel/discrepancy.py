"""How far two evaluations can be apart: two networks of one architecture, or a network and a program that computes it.

Let the second evaluation be v'_i = W'_i z'_{i-1} + b'_i + ρ_i and z'_i = φ(v'_i) + a_i, with roundings ρ and a, and

    Δ_i = z'_i - z_i,    e_i = v'_i - v_i = W'_i Δ_{i-1} + (W'_i - W_i) z_{i-1} + (b'_i - b_i) + ρ_i.

Strips bound Δ_i - a_i = φ(v_i + e_i) - φ(v_i) by multiples of e_i and v_i and a range. A row of e_N goes back through
the layers as in back-substitution: a row of Δ_i becomes one of e_i and v_i by strips, a row of z_i one of v_i by the
lines of the first network's pass, and both become rows of Δ_{i-1} and z_{i-1}. At the inputs Δ is zero. So is each e_i
bounded on the way, which says where v'_i can be; what intervals of z'_i and z_i tell of Δ_i counts as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, down, inflate, square_above, up
from lipcert.kernel.domain import Domain, check_region, corners
from lipcert.kernel.enclosures import activated
from lipcert.kernel.facts import DiscrepancyFact
from lipcert.kernel.neuron_bounds import fit, relax, slope_bounds
from lipcert.kernel.sweep import Sweep, proving
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball, Box, Region
from lipcert.suggest.hints import BOTH
from lipcert.suggest.multipliers import Hinted

_ENTRIES: Final = 270_000
"""Numbers in a stack of matrices; more would leave the processor's caches."""
_EXACT: Final = ("relu", "identity", "abs")
"""Activations that a program computes without rounding."""


@dataclass(frozen=True)
class Program:
    """A program that evaluates a network; it stores weights, biases and values in ``dtype``.

    A sum of n products and a bias, in any order, fused or not, loses ``sums`` of each product and of each sum on its
    way. Storing a value loses ``stored`` of its size. What is below ``tiny`` may be lost. An activation is within
    ``ulps`` units of its size, or of the terms of its formula.
    """

    dtype: str
    sums: float
    stored: float
    tiny: float
    ulps: float = 0.0

    def weights(self, layer: Layer) -> Layer:
        """A layer as it is stored."""
        weight, bias = (part.astype(self.dtype).astype(float) for part in (dense(layer.weight), layer.bias))
        return Layer(weight, bias, layer.neurons)

    def sum_error(self, layer: Layer, low: Array, high: Array) -> Array:
        """At least |ρ| for what enters between two ends; infinite where a sum may overflow.

        Let T_m be the largest sum of m of the n + 1 terms t, in size. A sum of m of them is at most T_m, and at most
        |Σt| + T_(n + 1 - m). A program loses u of each product and of each sum on its way; in whatever order it adds,
        the sums on its way are together at most Σ_(m = 2 … n + 1) min(T_m, |Σt| + T_(n + 2 - m)): docs/soundness.md.
        """
        W, n, unit = dense(layer.weight), layer.linear.shape[1] + 2, self.sums
        whole = ((Near.of(W) @ _column(Near.between(low, high)))[..., 0] + layer.bias).size
        bias = np.broadcast_to(layer.bias[:, None], (len(low), len(W), 1))
        ends = [np.concatenate([W * z[:, None, :], bias], axis=-1) for z in (low, high)]
        sides = np.maximum(np.maximum(*ends), 0.0), np.maximum(-np.minimum(*ends), 0.0)
        tops = np.maximum(*(np.sort(side, axis=-1)[..., ::-1].cumsum(axis=-1) for side in sides))
        ways = np.minimum(tops[..., 1:], whole[..., None] + tops[..., -2::-1]).sum(axis=-1)
        total = inflate(np.maximum(*sides).sum(axis=-1), n)
        off = n * n * unit / max(1.0 - n * unit, 0.0)  # of sums on the way, which are themselves off
        lost = inflate(unit * (ways + total + off * total), 2 * n + 32)
        least = 4.0 * n * self.tiny * (2.0 + np.maximum(-low, high).max(axis=-1, keepdims=True) + np.abs(W).max())
        lost = inflate(lost + self.stored * (whole + lost) + least, 8)
        return np.where(total < 0.5 * float(np.finfo(self.dtype).max), lost, np.inf)

    def value_error(self, row: Activation, sizes: Array) -> Array:
        """At least |a| for values of some sizes."""
        terms = row.row.loss.value_terms(*row.parameters)
        lost = self.ulps * max(self.stored, self.sums) * (Near.of(sizes) + terms) + self.tiny
        return np.where(row.name in _EXACT, 0.0, lost.above)


PROGRAMS: Final = {
    "float64": Program("float64", 2.0**-53, 0.0, 2.0**-1022),
    "float32": Program("float32", 2.0**-24, 0.0, 2.0**-126),
    "float16": Program("float16", 2.0**-24, 2.0**-11, 2.0**-24),  # halves are stored, sums are float32
}
"""By name, without the error of their activations."""
_NONE: Final = Program("float64", 0.0, 0.0, 0.0)
"""What a second network is: it loses nothing."""


def second_minus_first(sweep: Sweep, others: Sequence[Layer], ends: Interval, program: Program) -> Near:
    """e_N for inputs between ends (count, inputs), which the first network passed; the others have W' and b'."""
    z = second = Near.between(*ends)  # z_{i-1} and z'_{i-1}
    gap = _around(np.zeros_like(ends[0]))  # z'_{i-1} - z_{i-1}
    passed: list[Any] = []
    for index, (one, two) in enumerate(zip(sweep.network.layers, others, strict=True)):
        W, lost = Near.weights(dense(two.weight)), _around(program.sum_error(two, second.below, second.above))
        change = W - Near.weights(dense(one.weight))
        shift = Near.weights(two.bias) - Near.weights(one.bias) + lost
        direct = (W @ _column(gap) + change @ _column(z))[..., 0] + shift
        starts = ((sign * W[None], sign * change[None], sign * shift) for sign in (-1.0, 1.0))
        below, above = (_above(sweep, ends, passed, *start) for start in starts)
        e = Near.between(np.fmax(direct.below, -below), np.fmin(direct.above, above))
        if one.neurons is None:
            break
        v = sweep.intervals[index]
        there = down(v[0] + e.below), up(v[1] + e.above)
        z, second = (Near.between(*activated(one.neurons, sides)) for sides in (v, there))
        lost = _around(one.neurons.gather(lambda row, size: (program.value_error(row, size),), second.size)[0])
        gap, second = second - z + lost, second + lost
        passed.append((two, change, shift, lost, _strip(one.neurons, v, there, e)))
    return e


def _strip(neurons: Neurons, v: Interval, there: Interval, e: Near) -> list[Near]:
    """σ, τ and the narrowest range of φ(v + e) - φ(v) - σe - τv, for v + e ``there``.

    The difference is De with a mean D of slopes. If φ'(v) is within s + t(v - c) ± ε, D is within s + t(v - c + e/2)
    ± ε, and De, with m the middle of e, within se + tm(v - c) ± (ε|e| + |t|(|v - c||e - m| + e²/2)): with t = 0 and the
    range of slopes, or with a line that fits φ'. Or else φ(v + e) and φ(v) are between lines of their own.
    """
    both, size = (np.minimum(v[0], there[0]), np.maximum(v[1], there[1])), Near.of(e.size)
    center, D = 0.5 * v[0] + 0.5 * v[1], Near.between(*slope_bounds(neurons, *both))
    line = fit(neurons, center, both, np.array(np.inf))  # a bow would cost infinitely much
    far, bent = Near.of(up(np.maximum(v[1] - center, center - v[0]))), np.abs(line.rate)
    off = _around((line.error * size + bent * (far * e.error + 0.5 * square_above(e.size))).above)
    rate = (Near.of(line.rate) * e.value).replace(line.bow != 0.0, np.nan)
    steep, ranges = [], []
    for ends in (there, v):
        chord = (neurons.value(ends[1]) - neurons.value(ends[0])) / (ends[1] - ends[0])
        steep.append(Near.of(np.where(np.isfinite(chord), chord, 0.0)))
        _, low, _, high, _, _ = relax(neurons, *ends, steep[-1].value, steep[-1].value)
        ranges.append(Near.between(low, high))
    best = [Near.of(D.value), Near.of(np.zeros_like(far.value)), _around((D.error * size).above)]
    for other in (
        [Near.of(line.slope), rate, off - rate * center],
        [steep[0], steep[0] - steep[1], ranges[0] - ranges[1]],
    ):
        use = np.isfinite(other[2].error) & (other[2].error < best[2].error)
        best = [x.replace(use, y) for x, y in zip(best, other, strict=True)]
    return best


def _above(sweep: Sweep, ends: Interval, passed: Sequence[Any], a: Near, c: Near, total: Near) -> Array:
    """At least aΔ + cz + total, Δ and z of the last layer that was passed."""
    for back, (two, change, shift, lost, (slope, rate, off)) in reversed(list(enumerate(passed))):
        lines, layer = sweep.traces[0].at(back), sweep.network.layers[back]
        more, less = (Near.of(part(c.value, 0.0)) for part in (np.maximum, np.minimum))
        off = a @ _column(off + lost) + Near.of(np.broadcast_to(c.error, c.shape)) @ _around(lines.z_size[..., None])
        off = off + more @ lines.upper_offset[..., None] + less @ lines.lower_offset[..., None]
        s, t = a * slope[:, None, :], a * rate[:, None, :]
        t = t + more * lines.upper_slope[:, None, :] + less * lines.lower_slope[:, None, :]
        total = total + (off + s @ _column(shift) + t @ _column(Near.weights(layer.bias)))[..., 0]
        a, c = s.through(two.weight.T), s @ change + t.through(layer.weight.T)
    return (total + (c @ _column(Near.between(*ends)))[..., 0]).above


def _around(error: Array) -> Near:
    return Near(np.zeros_like(error), error)


def boxes(region: Region, cuts: Sequence[int]) -> Interval:
    """Boxes (count, inputs) that cover a ball or a box: halves of it along axes, listed with the first half next.

    A box that is cut along input k has the number k + 1, others 0. Halves share the number between them.
    """
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed("a difference is proved on boxes that cover a ball or a box")
    left, found = [corners(region)], []
    for number in cuts:
        if not left or not 0 <= number <= len(left[-1][0]):
            raise ProofFailed("the cuts do not cover the region")
        low, high = left.pop()
        if not number:
            found.append((low, high))
            continue
        at = np.arange(len(low)) == number - 1
        middle = np.clip(0.5 * low + 0.5 * high, low, high)
        left += [(np.where(at, middle, low), high), (low, np.where(at, middle, high))]
    if left:
        raise ProofFailed("the cuts do not cover the region")
    return np.array([low for low, _ in found]), np.array([high for _, high in found])


def over_boxes(network: Network, other: Network | None, ends: Interval, precision: str, ulps: float) -> Interval:
    """Between which numbers the difference lies over each box, (count, outputs)."""
    program = _NONE if other else replace(PROGRAMS[precision], ulps=ulps)
    found: list[Near] = []
    parts = -(-len(ends[0]) * max(network.sizes) ** 2 // _ENTRIES)
    with proving():
        others = [program.weights(layer) for layer in (other or network).layers]
        for low, high in zip(*(np.array_split(end, min(parts, len(end))) for end in ends), strict=True):
            domain = Domain(0.5 * low + 0.5 * high, None, low, high)
            sweep = Sweep(network, domain, Hinted.absolute(None, *BOTH)).run(needs_bound=False)
            found.append(second_minus_first(sweep, others, (low, high), program))
    return np.concatenate([one.below for one in found]), np.concatenate([one.above for one in found])


def discrepancy_fact(
    network: Network, other: Network | None, region: Region, cuts: Sequence[int], precision: str, ulps: float
) -> DiscrepancyFact:
    """Proved on each of the :func:`boxes` that cover the region."""
    check_region(region, network.inputs)
    if not ulps >= 0.0:
        raise ProofFailed("an error of activations is a number from zero on")
    if other is not None and not alike(network, other):
        raise ProofFailed("the networks differ in the sizes of their layers, or in activations")
    low, high = over_boxes(network, other, boxes(region, cuts), precision, ulps)
    lower, upper = low.min(axis=0), high.max(axis=0)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("no finite bound of the difference was proved; try a smaller region, or another precision")
    names = (other.digest, "") if other else ("", precision)
    rules = frozenset({"step", "back-substitution", "discrepancy"})
    return DiscrepancyFact(network.digest, region, rules, *names, ulps, lower, upper)


def alike(network: Network, other: Network) -> bool:
    """Whether two networks differ in nothing but weights and biases."""
    layers = zip(network.layers, other.layers, strict=False)
    same = (replace(two, plain=one.plain, coupling=one.coupling) for one, two in layers)
    return network.sizes == other.sizes and Network(tuple(same)).digest == other.digest


def _column(x: Near) -> Near:
    return Near(x.value[..., None], np.broadcast_to(x.error, x.shape)[..., None])
