"""How far two evaluations can be apart: two networks of one architecture, or a network and a program that computes it.

Let the second evaluation be v'_i = W'_i z'_{i-1} + b'_i + ρ_i and z'_i = φ(v'_i) + a_i, with roundings ρ and a, and

    ℓ_i = (W'_i - W_i) z_{i-1} + (b'_i - b_i) + ρ_i,    e_i = v'_i - v_i = W'_i (z'_{i-1} - z_{i-1}) + ℓ_i.

By the mean value theorem z'_i - z_i = D_i e_i + a_i with slopes D_i of φ between v_i and v'_i. So
e_N = ℓ_N + Σ A_i (D_i ℓ_i + a_i) with A_{N-1} = W'_N and A_{i-1} = A_i D_i W'_i: products of matrices of intervals from
the outputs back. Sizes of e_i, which say where v'_i and so D_i can be, are propagated forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, down, up
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

    A sum of n products and a bias, in any order, fused or not, loses γ_(n + 2) of the sizes of its terms, for the unit
    ``sums``. Storing a value loses ``stored`` of its size. What is below ``tiny`` may be lost. An activation is within
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

    def sum_error(self, layer: Layer, sizes: Array) -> Array:
        """At least |ρ| for what enters of some sizes; infinite where a sum may overflow."""
        W, n = np.abs(dense(layer.weight)), layer.linear.shape[1] + 2
        total = (Near.of(W) @ _column(Near.of(sizes)))[..., 0] + np.abs(layer.bias)
        lost = total * (Near.of(n * self.sums) / max(1.0 - n * self.sums, 0.0) + self.stored)
        lost = lost + 3.0 * n * self.tiny * (2.0 + sizes.max(axis=-1, keepdims=True) + W.max())
        return np.where(total.above < 0.5 * float(np.finfo(self.dtype).max), lost.above, np.inf)

    def value_error(self, row: Activation, sizes: Array) -> Array:
        """At least |a| for values of some sizes."""
        if row.name in _EXACT:
            return np.zeros_like(sizes)
        terms = row.row.loss.value_terms(*row.parameters)
        return (self.ulps * max(self.stored, self.sums) * (Near.of(sizes) + terms) + self.tiny).above


PROGRAMS: Final = {
    "float64": Program("float64", 2.0**-53, 0.0, 2.0**-1022),
    "float32": Program("float32", 2.0**-24, 0.0, 2.0**-126),
    "float16": Program("float16", 2.0**-24, 2.0**-11, 2.0**-24),  # halves are stored, sums are float32
}
"""By name, without the error of their activations."""


def second_minus_first(
    network: Network, others: Sequence[Layer], ends: Interval, hidden: Sequence[Interval], program: Program | None
) -> Near:
    """e_N for inputs between ends (count, inputs); ``hidden`` are intervals of the v_i, the others have W' and b'."""
    z, error = Near.between(*ends), np.zeros_like(ends[0])  # of z'_i, at least |z'_i - z_i|
    local: list[Near] = []
    passed: list[tuple[Interval, Array]] = []
    for index, (one, two) in enumerate(zip(network.layers, others, strict=True)):
        W = Near.weights(dense(two.weight)) - Near.weights(dense(one.weight))
        b = Near.weights(two.bias) - Near.weights(one.bias)
        found = (W @ _column(z))[..., 0] + b
        if program is not None:
            found = Near(found.value, up(found.error + program.sum_error(two, up(z.size + error))))
        local.append(found)
        if one.neurons is None:
            break
        moved = ((Near.weights(np.abs(dense(two.weight))) @ _column(Near.of(error)))[..., 0] + found.size).above
        low, high = down(hidden[index][0] - moved), up(hidden[index][1] + moved)
        alpha, beta = slope_bounds(one.neurons, low, high)
        z, lost = Near.between(*activated(one.neurons, (low, high))), np.zeros_like(moved)
        if program is not None:
            (lost,) = one.neurons.gather(lambda row, size: (program.value_error(row, size),), z.size)
        passed.append(((alpha, beta), lost))
        error = (Near.of(np.maximum(np.abs(alpha), np.abs(beta))) * moved + lost).above
    A, total = Near.weights(dense(others[-1].weight)[None]), local[-1]
    for two, found, (slopes, lost) in zip(others[-2::-1], local[-2::-1], passed[::-1], strict=True):
        sides = [end * slope[:, None, :] for end in (A.below, A.above) for slope in slopes]
        steep = Near.between(down(np.minimum.reduce(sides)), up(np.maximum.reduce(sides)))
        total = total + (steep @ _column(found) + A @ _column(Near(np.zeros_like(lost), lost)))[..., 0]
        A = steep.through(two.weight.T)
    return total


def discrepancy_fact(
    network: Network, other: Network | None, region: Region, cuts: Sequence[int], precision: str, ulps: float
) -> DiscrepancyFact:
    """Proved on each box of a grid that covers the region, with so many intervals along each axis."""
    check_region(region, network.inputs)
    if not isinstance(region, (Ball, Box)) or len(cuts) != network.inputs or min(cuts) < 1 or not ulps >= 0.0:
        raise ProofFailed("a difference is proved on a grid that covers a ball or a box")
    if other is not None and not alike(network, other):
        raise ProofFailed("the networks differ in the sizes of their layers, or in activations")
    program = None if other else replace(PROGRAMS[precision], ulps=ulps)
    marks = [_marks(*side, count) for side, count in zip(zip(*corners(region), strict=True), cuts, strict=True)]
    grid = np.stack(np.unravel_index(np.arange(int(np.prod(cuts))), tuple(cuts)), axis=-1)
    ends = [np.stack([mark[grid[:, k] + side] for k, mark in enumerate(marks)], axis=1) for side in (0, 1)]
    found: list[Near] = []
    most = max(1, _ENTRIES // max(network.sizes) ** 2)
    with proving():
        others = other.layers if other else [program.weights(layer) for layer in network.layers]  # type: ignore[union-attr]
        for low, high in zip(*(np.array_split(end, -(-len(grid) // most)) for end in ends), strict=True):
            sweep = Sweep(network, Domain(0.5 * low + 0.5 * high, None, low, high), Hinted.absolute(None, *BOTH))
            hidden = sweep.run(needs_bound=False).intervals
            found.append(second_minus_first(network, others, (low, high), hidden, program))
    lower = np.min([one.below.min(axis=0) for one in found], axis=0)
    upper = np.max([one.above.max(axis=0) for one in found], axis=0)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("no finite bound of the difference was proved; try a smaller region, or another precision")
    digest, name = (other.digest, "") if other else ("", precision)
    rules = frozenset({"step", "back-substitution", "discrepancy"})
    return DiscrepancyFact(network.digest, region, rules, digest, name, ulps, lower, upper)


def _marks(low: float, high: float, count: int) -> Array:
    """The ends of intervals that cover [low, high], each where the one before ends."""
    inner = np.sort(np.clip(np.linspace(low, high, count + 1)[1:-1], low, high))
    return np.array([low, *inner, high])


def alike(network: Network, other: Network) -> bool:
    """Whether two networks differ in nothing but weights and biases."""
    if network.sizes != other.sizes:
        return False
    layers = zip(network.layers, other.layers, strict=True)
    return (
        Network(tuple(replace(two, plain=one.plain, coupling=one.coupling) for one, two in layers)).digest
        == other.digest
    )


def _column(x: Near) -> Near:
    return Near(x.value[..., None], np.broadcast_to(x.error, x.shape)[..., None])
