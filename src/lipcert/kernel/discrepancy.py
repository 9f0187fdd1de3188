"""How far two evaluations can be apart: two networks of one architecture, or a network and a program that computes it.

Let the second evaluation be v'_i = W'_i z'_{i-1} + b'_i + ρ_i and z'_i = φ(v'_i) + a_i, with roundings ρ and a, and

    ℓ_i = (W'_i - W_i) z_{i-1} + (b'_i - b_i) + ρ_i,    e_i = v'_i - v_i = W'_i (z'_{i-1} - z_{i-1}) + ℓ_i.

By the mean value theorem z'_i - z_i = D_i e_i + a_i with slopes D_i of φ between v_i and v'_i. So e_N = ℓ_N + Σ A_i
(D_i ℓ_i + a_i) with A_{N-1} = W'_N and A_{i-1} = A_i D_i W'_i: products of matrices of intervals from the outputs
back. With the middles C_i of A_i D_i the sum of C_i (W'_i - W_i) z_{i-1} is one linear function of the first
network's values, and its lines bound it at once; only the rest is bounded layer by layer. So is each e_i on the way,
which says where v'_i and so D_i can be; the difference of the intervals of z'_i and z_i counts where it is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, down, inflate, up
from lipcert.kernel.domain import Domain, check_region, corners
from lipcert.kernel.enclosures import activated
from lipcert.kernel.facts import DiscrepancyFact
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.sweep import Sweep, proving
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Layer, Network
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
        W = Near.weights(dense(two.weight)) - Near.weights(dense(one.weight))
        lost = _around(program.sum_error(two, second.below, second.above))
        shift = Near.weights(two.bias) - Near.weights(one.bias) + lost
        change = (W @ _column(z))[..., 0]
        direct = (Near.weights(dense(two.weight)) @ _column(gap))[..., 0] + change + shift
        moved = _common(direct, _traced(sweep, ends, passed, two, W, shift))
        if one.neurons is None:
            break
        low, high = sweep.intervals[index]
        there = down(low + moved.below), up(high + moved.above)
        slopes = slope_bounds(one.neurons, np.minimum(low, there[0]), np.maximum(high, there[1]))
        z, second = (Near.between(*activated(one.neurons, sides)) for sides in ((low, high), there))
        lost = _around(one.neurons.gather(lambda row, size: (program.value_error(row, size),), second.size)[0])
        gap, second = _common(_times(moved, slopes), second - z) + lost, second + lost
        passed.append((two, W, change.size, shift, slopes, lost))
    return moved


def _traced(sweep: Sweep, ends: Interval, passed: list[Any], layer: Layer, W: Near, shift: Near) -> Near:
    """e_i of a layer; with A_j D_j = C_j ± R_j the sum of C_j (W'_j - W_j) z_{j-1} is bounded by lines."""
    A, total, rows = Near.weights(dense(layer.weight)[None]), shift, [W[None]]
    for two, change, sizes, shift, slopes, lost in passed[::-1]:
        steep = _times(A, [slope[:, None, :] for slope in slopes])
        off = _around(steep.error) @ _column(_around(sizes))
        total = total + (off + steep @ _column(shift) + A @ _column(lost))[..., 0]
        rows.append(Near.of(steep.value) @ change)
        A = steep.through(two.weight.T)
    below, above = (_above(sweep, ends, [sign * row for row in rows]) for sign in (-1.0, 1.0))
    return total + Near.between(-below, above)


def _above(sweep: Sweep, ends: Interval, rows: Sequence[Near]) -> Array:
    """At least Σ rows_i·z_i, the last layer first and z_0 the inputs, by the lines of the pass."""
    coming, total = rows[0], Near.of(0.0)
    for back, row in zip(range(len(rows) - 2, -1, -1), rows[1:], strict=True):
        lines, bias = sweep.traces[0].at(back), Near.weights(sweep.network.layers[back].bias)
        positive, negative = (Near.of(part(coming.value, 0.0)) for part in (np.maximum, np.minimum))
        offset = positive @ lines.upper_offset[..., None] + negative @ lines.lower_offset[..., None]
        off = _around(np.broadcast_to(coming.error, coming.shape)) @ _column(_around(lines.z_size))
        slopes = positive * lines.upper_slope[:, None, :] + negative * lines.lower_slope[:, None, :]
        total = total + (offset + off + slopes @ _column(bias))[..., 0]
        coming = slopes.through(sweep.network.layers[back].weight.T) + row
    return (total + (coming @ _column(Near.between(*ends)))[..., 0]).above


def _times(x: Near, slopes: Sequence[Array]) -> Near:
    sides = [end * slope for end in (x.below, x.above) for slope in slopes]
    return Near.between(down(np.minimum.reduce(sides)), up(np.maximum.reduce(sides)))


def _common(x: Near, y: Near) -> Near:
    return Near.between(np.fmax(x.below, y.below), np.fmin(x.above, y.above))


def _around(error: Array) -> Near:
    return Near(np.zeros_like(error), error)


def discrepancy_fact(
    network: Network, other: Network | None, region: Region, cuts: Sequence[int], precision: str, ulps: float
) -> DiscrepancyFact:
    """Proved on each box of a grid that covers the region, with so many intervals along each axis."""
    check_region(region, network.inputs)
    if not isinstance(region, (Ball, Box)) or len(cuts) != network.inputs or min(cuts) < 1 or not ulps >= 0.0:
        raise ProofFailed("a difference is proved on a grid that covers a ball or a box")
    if other is not None and not alike(network, other):
        raise ProofFailed("the networks differ in the sizes of their layers, or in activations")
    program = _NONE if other else replace(PROGRAMS[precision], ulps=ulps)
    marks = [_marks(*side, count) for side, count in zip(zip(*corners(region), strict=True), cuts, strict=True)]
    grid = np.stack(np.unravel_index(np.arange(int(np.prod(cuts))), tuple(cuts)), axis=-1)
    ends = [np.stack([mark[grid[:, k] + side] for k, mark in enumerate(marks)], axis=1) for side in (0, 1)]
    found: list[Near] = []
    most = max(1, _ENTRIES // max(network.sizes) ** 2)
    with proving():
        others = [program.weights(layer) for layer in (other or network).layers]
        for low, high in zip(*(np.array_split(end, -(-len(grid) // most)) for end in ends), strict=True):
            domain = Domain(0.5 * low + 0.5 * high, None, low, high)
            sweep = Sweep(network, domain, Hinted.absolute(None, *BOTH)).run(needs_bound=False)
            found.append(second_minus_first(sweep, others, (low, high), program))
    lower = np.min([one.below.min(axis=0) for one in found], axis=0)
    upper = np.max([one.above.max(axis=0) for one in found], axis=0)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("no finite bound of the difference was proved; try a smaller region, or another precision")
    names = (other.digest, "") if other else ("", precision)
    rules = frozenset({"step", "back-substitution", "discrepancy"})
    return DiscrepancyFact(network.digest, region, rules, *names, ulps, lower, upper)


def _marks(low: float, high: float, count: int) -> Array:
    """The ends of intervals that cover [low, high], each where the one before ends."""
    inner = np.sort(np.clip(np.linspace(low, high, count + 1)[1:-1], low, high))
    return np.array([low, *inner, high])


def alike(network: Network, other: Network) -> bool:
    """Whether two networks differ in nothing but weights and biases."""
    layers = zip(network.layers, other.layers, strict=False)
    same = (replace(two, plain=one.plain, coupling=one.coupling) for one, two in layers)
    return network.sizes == other.sizes and Network(tuple(same)).digest == other.digest


def _column(x: Near) -> Near:
    return Near(x.value[..., None], np.broadcast_to(x.error, x.shape)[..., None])
