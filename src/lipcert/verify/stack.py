"""Proved bounds for many pieces of one region at once.

A piece is a part of the input region (its intersection with a box) on which some neurons may be confined to
intervals. The bound of a piece holds for ‖W_N D_{N-1} … D_1 W_1‖ with every slope matrix that its intervals allow,
hence for the Jacobian at every input of the piece. The largest over pieces that cover a convex region bounds the
Lipschitz constant there. Everything is rounded outwards; multipliers and lines need no proof, they come from hints and
closed formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from lipcert.activations import Activation
from lipcert.certificate import Sweep
from lipcert.enclosures.lines import bounding_lines
from lipcert.errors import ProofFailed
from lipcert.network import Network, Neurons, dense
from lipcert.regions import Ball, Box, Region
from lipcert.typing import Array
from lipcert.verify.backward import Interval
from lipcert.verify.factor import Chain, Slopes, advice, chain_norm, reaches, sweep
from lipcert.verify.pieces import Bounds, Pieces
from lipcert.verify.relaxation import relax, slope_bounds, value_error
from lipcert.verify.rounding import LOOSE, TINY, UP, U, down, gamma, norm_below, stretched, up
from lipcert.verify.support import clipped_above

_STUCK = 1.05
"""Hints that make a piece so much worse than the one it is part of were made for other slopes."""
_HALVINGS = 12
"""Of the search that makes a support function sharp; it is good to a thousandth then."""


class Stack:
    """Bounds pieces of one region, for one network.

    The chain of weights starts at its narrower end. What the rest of the chain makes of rounding errors is bounded
    once, for all slopes that the whole region allows. ``known`` are proved intervals of its hidden layers, and
    ``hints`` a sweep whose multipliers serve the whole region, where there are such.
    """

    def __init__(
        self, network: Network, region: Region, known: Sequence[Interval] = (), hints: Sweep | None = None
    ) -> None:
        self.network, self.region = network, region
        sizes = network.sizes[1:-1]
        self.starts = np.cumsum([0, *sizes])
        self.slices = [slice(start, stop) for start, stop in pairwise(self.starts)]
        self.weights = [dense(layer.weight) for layer in network.layers]
        self.turned = network.outputs < network.inputs
        self.forward = Chain.of(network)
        self.chain = self.forward.turned if self.turned else self.forward
        self.root = _whole(network, region, known)
        self.slopes: list[Slopes] = []
        enclosed = _Enclosing(self, self.root).run()
        self.slopes = enclosed.slopes
        self.rest, told = self._whole_chain(hints)
        self.root = replace(self.root, low=enclosed.low, high=enclosed.high, hints=told)

    def _whole_chain(self, hints: Sweep | None) -> tuple[list[Array], Array]:
        """At least the norm of the rest of the chain after each weight, over the whole region; and hints for it.

        Turned around, a chain has the same bound γ for the multipliers T' = γ² r²/T.
        """
        slopes, forward = self.slopes, self.forward
        ahead = [np.full((1, part.stop - part.start), -np.inf) for part in self.slices]
        if hints is not None:
            powers = np.cumsum(forward.powers)
            told = zip(slopes, hints.multipliers, hints.exponents, powers, strict=False)
            with np.errstate(divide="ignore", invalid="ignore"):
                for index, ((alpha, beta), T, exponent, power) in enumerate(told):
                    ahead[index] = _or_nothing(np.log2(T / (0.5 * (beta - alpha))) + 2.0 * (exponent - power))
        reach, norm = reaches(forward, slopes, ahead)
        back = [_or_nothing(2.0 * np.log2(norm[0]) - hint) for hint in ahead][::-1]
        if not self.turned:
            reach, _ = reaches(forward.turned, slopes[::-1], back)
        mine = sweep(self.chain, self._ordered(slopes), back if self.turned else ahead, scaled=False)
        scaled = self._ordered([step.placed(step.hint, -np.inf) for step in mine.steps])
        return [*reach[::-1], np.ones(1)], np.concatenate([np.zeros((1, 0)), *scaled], axis=-1)

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Prove that no input of one piece has its neurons inside their intervals, by weights λ (neurons,).

        The intervals ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        enclosed = _Enclosing(self, piece).run()
        if enclosed.empty[0]:
            return True
        asked = np.where(weights > 0.0, weights * piece.low[0], np.where(weights < 0.0, weights * piece.high[0], 0.0))
        least = asked.sum() - gamma(len(weights) + 2) * UP * np.abs(asked).sum() - TINY
        extra = [weights[None, part] for part in self.slices]
        above = enclosed.above(len(extra), np.zeros(1, dtype=int), np.zeros((1, self.network.sizes[-2])), extra)
        return bool(above[0] < least)

    def bound(self, pieces: Pieces) -> Bounds:
        """Prove a bound for each piece."""
        enclosed = _Enclosing(self, pieces).run()
        bound, hints, shares = self._norms(enclosed.slopes, pieces.hints)
        stuck = np.flatnonzero((bound > _STUCK * pieces.ceiling) & ~enclosed.empty)
        if stuck.size:  # hints that were made for other slopes: ask without them
            slopes = [(alpha[stuck], beta[stuck]) for alpha, beta in enclosed.slopes]
            again = self._norms(slopes, np.full(pieces.hints[stuck].shape, -np.inf))
            better = again[0] < bound[stuck]
            for old, new in zip((bound, hints, shares), again, strict=True):
                old[stuck[better]] = new[better]
        bound = np.minimum(bound, pieces.ceiling)
        return Bounds(np.where(enclosed.empty, 0.0, bound), enclosed.low, enclosed.high, hints, shares)

    def _norms(self, slopes: list[Slopes], hints: Array) -> tuple[Array, Array, Array]:
        """Bounds for slopes, better hints, and the shares of the neurons; infinity where there is no bound."""
        swept = sweep(self.chain, self._ordered(slopes), self._ordered([hints[:, part] for part in self.slices]))
        norm, directions = chain_norm(swept, self.rest)
        told = advice(self.chain, swept, directions, norm)
        blank = np.zeros((len(hints), 0))
        better, shares = (np.concatenate([blank, *self._ordered(layers)], axis=-1) for layers in told)
        bound = up(np.ldexp(norm, sum(self.chain.powers)))
        return np.where(np.isnan(bound), np.inf, bound), better, shares

    def _ordered(self, layers: list[Any]) -> list[Any]:
        """What belongs to the hidden layers, in the order of the chain (or back)."""
        return layers[::-1] if self.turned else layers


def _whole(network: Network, region: Region, known: Sequence[Interval]) -> Pieces:
    """The whole region as one piece."""
    if isinstance(region, Box):
        lower, upper = region.lower, region.upper
    elif isinstance(region, Ball):
        lower, upper = down(region.center - region.radius), up(region.center + region.radius)
        if region.clip is not None:
            lower, upper = np.maximum(lower, region.clip.lower), np.minimum(upper, region.clip.upper)
    else:
        raise ProofFailed(f"a region of type {type(region).__name__} cannot be cut into pieces")
    unknown = np.full((1, sum(network.sizes[1:-1])), np.inf)
    low, high = (np.concatenate([np.zeros(0), *ends])[None] for ends in zip(*known)) if known else (-unknown, unknown)
    return Pieces(lower[None].copy(), upper[None].copy(), low, high, -unknown, np.full(1, np.inf))


@dataclass(eq=False)
class _Lines:
    """A layer's bounding lines for every piece, and charges for unit rows: the largest of a piece, (count,).

    ``passed`` is what rounding may lose below the activation, of |W||z| + |b| + |v|; ``charged`` the same above it,
    with the error of the offsets at settled neurons; ``lost`` is what underflow loses in any row.
    """

    lower_slope: Array
    upper_slope: Array
    lower_offset: Array
    upper_offset: Array
    z_size: Array
    charged: Array
    passed: Array
    lost: Array


@dataclass(eq=False)
class _Enclosing:
    """The intervals of all hidden neurons of every piece, layer after layer.

    ``arriving`` is |W||z| + |b| of the layer at hand, (count, neurons).
    """

    stack: Stack
    pieces: Pieces
    lines: list[_Lines] = field(default_factory=list)
    slopes: list[Slopes] = field(default_factory=list)

    def run(self) -> _Enclosing:
        stack, pieces = self.stack, self.pieces
        self.low, self.high = np.maximum(pieces.low, stack.root.low), np.minimum(pieces.high, stack.root.high)
        self.empty: Array = _outside(stack.region, pieces)
        for index, part in enumerate(stack.slices):
            neurons = stack.network.layers[index].neurons
            assert neurons is not None
            low, high = self.low[:, part], self.high[:, part]
            self.arriving = self._below(index) @ np.abs(stack.weights[index]).T
            self.arriving += np.abs(stack.network.layers[index].bias)
            self._tighten(index, neurons, low, high)
            hollow = np.asarray((low > high).any(axis=-1))  # no input of the piece obeys its confinements
            self.empty |= hollow
            low[hollow] = high[hollow] = 0.0
            alpha, beta = slope_bounds(neurons, low, high)
            if stack.slopes:  # at a kink a point has more slopes than an interval that ends there
                alpha, beta = np.maximum(alpha, stack.slopes[index][0]), np.minimum(beta, stack.slopes[index][1])
            alpha[self.empty] = beta[self.empty] = 0.0  # no slopes at all: nothing to carry
            self.slopes.append((alpha, beta))
            self.lines.append(self._lines(index, neurons, low, high))
        return self

    def _tighten(self, index: int, neurons: Neurons, low: Array, high: Array) -> None:
        """Back-substitution, in place, for neurons whose slope is open or whose confinement may be void."""
        alpha, beta = neurons.slope_range(low, high)
        undecided = (alpha < beta) | at_kink(neurons, low, high) | np.isinf(low) | np.isinf(high)
        piece, neuron = np.nonzero(undecided)
        half = len(piece)
        rows = self.stack.weights[index][neuron]
        above = self.above(index, np.tile(piece, 2), np.concatenate([rows, -rows]))
        bias = self.stack.network.layers[index].bias[neuron]
        loose = gamma(LOOSE) * self.arriving[piece, neuron] * UP + TINY  # what the weights themselves are known to
        # an overflow gives NaN, which fmin and fmax ignore
        top = np.fmin(high[piece, neuron], up(up(above[:half] + loose) + bias))
        bottom = np.fmax(low[piece, neuron], -up(up(above[half:] + loose) - bias))
        low[piece, neuron], high[piece, neuron] = bottom, top

    def _lines(self, index: int, neurons: Neurons, low: Array, high: Array) -> _Lines:
        """Lines around the activations: the function itself where its slope is one number, else two lines."""
        alpha, beta = self.slopes[-1]
        ends = neurons.value(low), neurons.value(high)
        errors = [value_error(neurons, end) for end in ends]
        offset = ends[0] - alpha * low
        slack = (errors[0] + 8.0 * U * (np.abs(ends[0]) + np.abs(alpha * low))).max(axis=-1, initial=0.0)
        z_size = np.maximum(np.abs(ends[0]) + errors[0], np.abs(ends[1]) + errors[1])
        lines = _Lines(alpha.copy(), alpha.copy(), offset, offset.copy(), z_size, slack, slack, slack)
        piece, neuron = np.nonzero(alpha < beta)
        if piece.size:
            some = neurons.take(neuron)
            ends = low[piece, neuron], high[piece, neuron]
            drawn = bounding_lines(some, *ends)
            proved = relax(some, *ends, drawn.lower_slope, drawn.upper_slope)
            lines.lower_slope[piece, neuron], lines.upper_slope[piece, neuron] = proved.lower_slope, proved.upper_slope
            lines.lower_offset[piece, neuron] = proved.lower_offset
            lines.upper_offset[piece, neuron] = proved.upper_offset
            z_size[piece, neuron] = proved.z_size
        layer = self.stack.network.layers[index]
        passed = self.arriving + np.maximum(np.abs(low), np.abs(high))
        sizes = np.maximum(np.abs(lines.lower_offset), np.abs(lines.upper_offset)).max(axis=-1, initial=0.0)
        steepest = np.maximum(np.abs(lines.lower_slope), np.abs(lines.upper_slope)).max(axis=-1, initial=0.0)
        g = gamma(max(layer.weight.shape) + LOOSE + 8)
        # what underflows in a row multiplies values below and above the affine map, whatever the slopes are
        lines.lost = TINY * (1.0 + passed.sum(axis=-1) + self._below(index).sum(axis=-1))
        lines.passed = g * UP * passed.max(axis=-1, initial=0.0)
        lines.charged = (slack + g * sizes + steepest * lines.passed) * UP
        return lines

    def above(self, index: int, piece: Array, rows: Array, extra: Sequence[Array] | None = None) -> Array:
        """At least max of rows·z over the piece of each row, z the values before the layer.

        Offsets at settled neurons are the same for both lines; what rounding loses on the way is charged in proportion
        to |rows|, and to what enters and leaves the layer. ``extra`` adds multiples of the pre-activations of every
        layer on the way.
        """
        offset, charge = np.zeros(len(rows)), np.zeros(len(rows))
        for back in range(index - 1, -1, -1):
            layer, lines = self.stack.network.layers[back], self.lines[back]
            positive = rows > 0.0
            charge = charge + np.abs(rows).sum(axis=-1) * lines.charged[piece]
            offset = offset + np.einsum(
                "rn,rn->r", rows, np.where(positive, lines.upper_offset[piece], lines.lower_offset[piece])
            )
            rows = rows * np.where(positive, lines.upper_slope[piece], lines.lower_slope[piece])
            if extra is not None:
                rows = rows + extra[back]
                charge = charge + np.abs(extra[back]).sum(axis=-1) * lines.passed[piece]
            offset = offset + rows @ layer.bias
            charge = charge + gamma(8) * np.abs(offset) + lines.lost[piece]
            rows = rows @ self.stack.weights[back]
        charge = charge * UP * (1.0 + gamma(2 * index + 2)) + TINY
        value, error = self._support(piece, rows)
        charge = charge + 4.0 * gamma(1) * (np.abs(offset) + np.abs(value) + np.abs(error))
        return up(offset + value + (error + charge * UP))

    def _below(self, index: int) -> Array:
        """At least |z| before a layer."""
        if index:
            return self.lines[index - 1].z_size
        return np.maximum(np.abs(self.pieces.lower), np.abs(self.pieces.upper))

    def _support(self, piece: Array, rows: Array) -> tuple[Array, Array]:
        """At least max of rows·x over each row's piece, as value and error: by its box, or by box and ball together."""
        pieces, region = self.pieces, self.stack.region
        middle = 0.5 * pieces.lower + 0.5 * pieces.upper
        half = up(np.maximum(pieces.upper - middle, middle - pieces.lower))
        n = rows.shape[-1]
        g = gamma(n + 4)
        size = np.abs(rows)
        value = np.einsum("rn,rn->r", rows, middle[piece])
        spread = np.einsum("rn,rn->r", size, np.abs(middle)[piece])
        error = stretched(np.einsum("rn,rn->r", size, half[piece]) + g * UP * spread, n + 3)
        if isinstance(region, Ball):
            center = rows @ region.center
            slack = g * UP * (size @ np.abs(region.center))
            below, above = (side[piece] for side in (pieces.lower - region.center, pieces.upper - region.center))
            other = up(clipped_above(region.radius, below, above, rows, _HALVINGS) + slack)  # may be negative
            smaller = center + other < value + error
            value, error = np.where(smaller, center, value), np.where(smaller, other, error)
        return value, error


def _or_nothing(hint: Array) -> Array:
    """A hint, or none where it is no number."""
    return np.where(np.isfinite(hint), hint, -np.inf)


def _outside(region: Region, pieces: Pieces) -> Array:
    """Pieces whose box does not meet the region's ball."""
    if not isinstance(region, Ball):
        return np.zeros(len(pieces), dtype=bool)
    gap = np.maximum(pieces.lower - region.center, region.center - pieces.upper)
    return np.asarray(norm_below(np.maximum(down(gap), 0.0)) > region.radius)


def at_kink(neurons: Neurons, lower: Array, upper: Array) -> Array:
    """Neurons whose interval ends at a kink: perhaps confined to a side that a part of the piece cannot reach."""

    def rule(row: Activation, low: Array, high: Array) -> tuple[Array]:
        ends = np.zeros(low.shape)
        if row.row.kinks:
            for knot in row.row.knots(low, *row.parameters):
                ends = np.maximum(ends, ((low == knot) | (high == knot)) & (low < high))
        return (ends,)

    return np.asarray(neurons.gather(rule, lower, upper)[0] > 0)
