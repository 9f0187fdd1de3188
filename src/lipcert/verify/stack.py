"""Proved bounds for many pieces of one region at once: stacked arrays, one sweep.

A piece is a part of the input region (its intersection with a box) on which some neurons may be confined to
intervals. The bound of a piece holds for ‖W_N D_{N-1} … D_1 W_1‖ with every slope matrix that its intervals allow,
hence for the Jacobian at every input of the piece. The largest over pieces that cover a convex region bounds the
Lipschitz constant there. Everything is rounded outwards, as in checker.py; multipliers and lines need no hints, they
come from closed formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lipcert.activations import Activation
from lipcert.enclosures.lines import bounding_lines
from lipcert.errors import ProofFailed
from lipcert.network import Network, Neurons, dense
from lipcert.regions import Ball, Region
from lipcert.typing import Array, Weight
from lipcert.verify.relaxation import Relaxation, relax, slope_bounds
from lipcert.verify.rounding import (
    TINY,
    UP,
    apply,
    congruence,
    down,
    gamma,
    largest_eigenvalue_above,
    magnitude,
    norm_above,
    raise_diagonal,
    spread,
    stretched,
    up,
)
from lipcert.verify.step import LEAST, MOST

Interval = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Boxes (count, inputs) and, per hidden layer, the intervals (count, neurons) that are known beforehand.

    A piece is part of another whose bound is ``ceiling`` (count,), so its own bound is never larger. ``hints``
    suggests multipliers, per hidden layer log2(T/r) (count, neurons) in true scale; -inf where there is no suggestion.
    """

    lower: Array
    upper: Array
    known: tuple[Interval, ...]
    hints: tuple[Array, ...]
    ceiling: Array

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, which: Array) -> Pieces:
        """Some of the pieces."""
        known = tuple((low[which], high[which]) for low, high in self.known)
        hints = tuple(hint[which] for hint in self.hints)
        return Pieces(self.lower[which], self.upper[which], known, hints, self.ceiling[which])


@dataclass(frozen=True, eq=False)
class Bounds:
    """What a sweep found for each piece: the bound (0 where the piece is empty), the intervals, and advice where to
    cut.

    ``hints`` are multipliers that should serve the piece's own parts better. ``open`` (count, neurons of all hidden
    layers in a row) estimates the share of the squared bound that each neuron's open slope is to blame for, 0 where
    its slope is a single number; ``axes`` (count, inputs) the same for the input axes that widen those neurons.
    """

    bound: Array
    intervals: tuple[Interval, ...]
    hints: tuple[Array, ...]
    axes: Array
    open: Array


def bound_pieces(network: Network, region: Region, pieces: Pieces) -> Bounds:
    """Prove a bound for each piece."""
    return _Stack(network, region, pieces).run()


@dataclass(eq=False)
class _Stack:
    network: Network
    region: Region
    pieces: Pieces

    def run(self) -> Bounds:
        count = len(self.pieces)
        self.relaxations: list[Relaxation] = []
        self.widened: list[tuple[Array, Array] | None] = []
        self.empty: Array = self._outside()
        intervals: list[Interval] = []
        steps: list[Step] = []
        P: Array | None = None
        exponent = np.zeros(count, dtype=int)
        for index, (layer, ahead) in enumerate(pairwise(self.network.layers)):
            assert layer.neurons is not None
            S, exponent = self._ellipsoid(P, layer.weight, exponent)
            lower, upper = self._tightened(index)
            hollow = np.asarray((lower > upper).any(axis=-1))  # no input of the piece obeys its confinements
            self.empty |= hollow
            lower, upper = np.where(hollow[:, None], 0.0, lower), np.where(hollow[:, None], 0.0, upper)
            intervals.append((lower, upper))
            lines = bounding_lines(layer.neurons, lower, upper)
            self.relaxations.append(relax(layer.neurons, lower, upper, lines.lower_slope, lines.upper_slope))
            alpha, beta = slope_bounds(layer.neurons, lower, upper)
            hint = np.exp2(self.pieces.hints[index] - 2.0 * exponent[:, None])
            hint = hint * 0.5 * (beta - alpha)
            P, step = activate_stack(S, alpha, beta, ahead.weight, hint, exponent)
            steps.append(step)
        S, exponent = self._ellipsoid(P, self.network.layers[-1].weight, exponent)
        bound = up(np.ldexp(stretched(np.sqrt(largest_eigenvalue_above(S)), 2), exponent))
        hints, shares = better_multipliers(self.network, steps, S, exponent)
        opened = np.concatenate([np.zeros((count, 0)), *shares], axis=-1)
        bound = np.where(self.empty, 0.0, np.minimum(bound, self.pieces.ceiling))
        return Bounds(bound, tuple(intervals), hints, self._axes(shares), opened)

    def _axes(self, shares: tuple[Array, ...]) -> Array:
        """How much of the bound each axis accounts for: a neuron's share, in proportion to what widens its interval."""
        axes = np.zeros((len(self.pieces), self.network.inputs))
        for share, widened in zip(shares, self.widened, strict=True):
            if widened is not None:
                rows, parts = widened
                axes += (np.take_along_axis(share, rows, -1)[..., None] * parts).sum(axis=1)
        return axes

    def _ellipsoid(self, P: Array | None, weight: Weight, exponent: Array) -> tuple[Array, Array]:
        """S of the next layer, near unit scale."""
        S = congruence(P, weight)
        return _rescaled(np.broadcast_to(S, (len(self.pieces), *S.shape[-2:])), exponent)

    def _outside(self) -> Array:
        """Pieces whose box does not meet the region's ball."""
        if not isinstance(self.region, Ball):
            return np.zeros(len(self.pieces), dtype=bool)
        gap = np.maximum(self.pieces.lower - self.region.center, self.region.center - self.pieces.upper)
        gap = np.maximum(down(gap), 0.0)
        return np.asarray(np.sqrt((gap * gap).sum(axis=-1)) * (1.0 - gamma(gap.shape[-1] + 8)) > self.region.radius)

    def _tightened(self, index: int) -> Interval:
        """The known intervals of a layer, tightened by back-substitution for the neurons whose slope is open."""
        layer = self.network.layers[index]
        assert layer.neurons is not None
        lower, upper = self.pieces.known[index]
        alpha, beta = layer.neurons.slope_range(lower, upper)
        undecided = (alpha < beta) | _confined(layer.neurons, lower, upper) | np.isinf(lower) | np.isinf(upper)
        most = int(undecided.sum(axis=-1).max(initial=0))
        if not most:
            self.widened.append(None)
            return lower, upper
        rows = np.argsort(~undecided, axis=-1, kind="stable")[:, :most]  # (count, most), the open ones first
        weight = dense(layer.weight)[rows]
        above, reach = self._above(index, np.concatenate([weight, -weight], axis=-2))
        bias = layer.bias[rows]
        low, high = np.take_along_axis(lower, rows, -1), np.take_along_axis(upper, rows, -1)
        asked = np.take_along_axis(undecided, rows, -1)  # the others fill up; what a piece gets is its own affair
        high = np.where(asked, np.minimum(high, up(above[:, :most] + bias)), high)
        low = np.where(asked, np.maximum(low, -up(above[:, most:] - bias)), low)
        lower, upper = np.array(lower), np.array(upper)
        np.put_along_axis(lower, rows, low, -1)
        np.put_along_axis(upper, rows, high, -1)
        counted = asked & (low < high)
        width = np.where(counted, 1.0 / np.maximum(high - low, TINY), 0.0)
        self.widened.append((rows, width[..., None] * reach[:, :most]))
        return lower, upper

    def _above(self, index: int, rows: Array) -> tuple[Array, Array]:
        """At least max of rows·z over each piece, z the values before the layer; and |rows at the input|·half-width."""
        offset, charge = np.zeros(rows.shape[:-1]), np.zeros(rows.shape[:-1])
        for back in range(index - 1, -1, -1):
            layer, lines = self.network.layers[back], self.relaxations[back]
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + apply(positive, lines.upper_offset) + apply(negative, lines.lower_offset)
            sizes = np.maximum(np.abs(lines.upper_offset), np.abs(lines.lower_offset))
            before = np.abs(rows)
            rows = positive * lines.upper_slope[:, None, :] + negative * lines.lower_slope[:, None, :]
            offset = offset + rows @ layer.bias
            below = self._below(back)
            passed = spread(magnitude(layer.weight), below) + np.abs(layer.bias) + lines.v_size
            g = gamma(max(layer.weight.shape) + 8)
            charge = charge + g * (apply(before, sizes) + apply(np.abs(rows), passed) + np.abs(offset))
            # what underflows in rows multiplies these
            charge = charge + TINY * (1.0 + passed.sum(axis=-1) + below.sum(axis=-1))[:, None]
            rows = _flat_product(rows, layer.weight)
        charge = charge * UP * (1.0 + gamma(2 * index + 2)) + TINY
        value, error, reach = self._support(rows)
        charge = charge + 4.0 * gamma(1) * (np.abs(offset) + np.abs(value) + error)
        return up(offset + value + (error + charge * UP)), reach

    def _below(self, index: int) -> Array:
        if index:
            return self.relaxations[index - 1].z_size
        return np.maximum(np.abs(self.pieces.lower), np.abs(self.pieces.upper))

    def _support(self, rows: Array) -> tuple[Array, Array, Array]:
        """The smaller of what the box and what the ball allow: value, error, and the box's share of each axis."""
        middle = 0.5 * self.pieces.lower + 0.5 * self.pieces.upper
        half = up(np.maximum(self.pieces.upper - middle, middle - self.pieces.lower))
        n = rows.shape[-1]
        g = gamma(n + 4)
        reach = np.abs(rows) * half[:, None, :]
        value = apply(rows, middle)
        error = stretched(reach.sum(axis=-1) + g * UP * apply(np.abs(rows), np.abs(middle)), n + 3)
        if isinstance(self.region, Ball):
            center = rows @ self.region.center
            slack = g * UP * (np.abs(rows) @ np.abs(self.region.center))
            other = stretched(stretched(self.region.radius * norm_above(rows), 2) + slack, 2)
            smaller = center + other < value + error
            value, error = np.where(smaller, center, value), np.where(smaller, other, error)
        return value, error, reach


def _confined(neurons: Neurons, lower: Array, upper: Array) -> Array:
    """Neurons whose interval ends at a kink: perhaps confined to a side that a part of the piece cannot reach."""

    def rule(row: Activation, low: Array, high: Array) -> tuple[Array]:
        ends = np.zeros(low.shape)
        if row.row.kinks:
            for knot in row.row.knots(low, *row.parameters):
                ends = np.maximum(ends, ((low == knot) | (high == knot)) & (low < high))
        return (ends,)

    return np.asarray(neurons.gather(rule, lower, upper)[0] > 0)


def _flat_product(rows: Array, weight: Weight) -> Array:
    """rows·weight for a stack of rows, as one product."""
    flat = np.reshape(rows, (-1, rows.shape[-1])) @ weight
    return np.reshape(np.asarray(flat), (*rows.shape[:-1], weight.shape[1]))


def _rescaled(S: Array, exponent: Array) -> tuple[Array, Array]:
    """Each matrix over a power of four that brings its mean diagonal near one."""
    mean = np.trace(S, axis1=-2, axis2=-1) / S.shape[-1]
    if not np.isfinite(mean).all():
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    power = np.round(0.5 * np.log2(np.where(mean > 0, mean, 1.0))).astype(int)
    scaled = S * np.ldexp(1.0, -2 * power)[..., None, None]  # exact but for underflow
    return raise_diagonal(scaled, np.asarray(S.shape[-1] * TINY)), exponent + power


@dataclass(frozen=True, eq=False)
class Step:
    """One activation step, as far as better multipliers need it: matrices relative to 4**exponent."""

    S: Array
    m: Array
    r: Array
    T: Array
    exponent: Array
    active: Array
    h: Array
    C: Array


def activate_stack(
    S: Array, alpha: Array, beta: Array, ahead: Weight, hint: Array, exponent: Array
) -> tuple[Array, Step]:
    """P̂ with P ≼ P̂ for a stack, as in checker.py; multipliers as hinted, else T = tI from a closed formula."""
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)
    size, tiny = np.abs(S), TINY * (1.0 + np.abs(m).sum(axis=-1, keepdims=True))
    PP = m[..., :, None] * S * m[..., None, :]
    error = 4.0 * gamma(1) * np.abs(m) * apply(size, np.abs(m))
    raised = np.zeros(m.shape)
    most = int((r > 0).sum(axis=-1).max(initial=0))
    active = np.argsort(r <= 0, axis=-1, kind="stable")[:, :most]  # (count, most); padding has r = 0
    h, C = np.zeros(active.shape), np.zeros((len(m), most, most))
    if most:
        hinted = np.isfinite(hint) & (hint > 0.0)
        T = hint
        if (~hinted & (r > 0)).any():
            # in proportion to r, so that slopes apart by rounding only add next to nothing
            share = r / np.maximum(r.max(axis=-1, keepdims=True), TINY)
            T = np.where(hinted, hint, closed_multiplier(S, m, r, ahead)[:, None] * share + TINY)
        L, X, C, M, h, g = _factor(S, m, r, active, np.take_along_axis(T, active, -1))
        abs_L, abs_X = np.abs(L), np.abs(X)
        rounding = gamma(most + 6)
        left_L = abs_L.sum(axis=-2)
        block = np.take_along_axis(np.take_along_axis(size, active[:, :, None], 1), active[:, None, :], 2)
        residual_C = np.abs(C - L @ np.swapaxes(L, -1, -2)).sum(axis=-1)
        residual_C = residual_C + rounding * (apply(abs_L, left_L) + np.abs(C).sum(axis=-1))
        residual_C = residual_C + 4.0 * gamma(1) * h * apply(block, h) + TINY * (1.0 + h.sum(axis=-1, keepdims=True))
        size_M = np.abs(M)
        residual = np.abs(M - L @ X) + 4.0 * gamma(1) * size_M
        spill = abs_X.sum(axis=-1)
        rows = residual.sum(axis=-1) + rounding * (apply(abs_L, spill) + size_M.sum(axis=-1))
        turned = np.swapaxes(abs_X, -1, -2)
        error = error + residual.sum(axis=-2) + rounding * (apply(turned, left_L) + size_M.sum(axis=-2))
        error = error + rounding * apply(turned, spill)
        PP = PP + np.swapaxes(X, -1, -2) @ X
        inflated = stretched((1.0 + (residual_C + rows + tiny) * UP) / (g * g), 6)
        np.put_along_axis(raised, active, np.where(np.take_along_axis(r, active, -1) > 0, inflated, 0.0), -1)
    error = (error + 4.0 * gamma(1) * np.abs(PP).sum(axis=-1)) * UP + tiny
    P = raise_diagonal(0.5 * (PP + np.swapaxes(PP, -1, -2)), up(raised + error))
    return P, Step(S, m, r, raised, exponent, active, h, C)


def _factor(S: Array, m: Array, r: Array, active: Array, T: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """L, X, C, M, h, g of the step; multipliers (count, active) are enlarged where C is not positive definite."""
    part = np.take_along_axis(np.take_along_axis(S, active[:, :, None], 1), active[:, None, :], 2)
    strip = np.take_along_axis(S, active[:, :, None], 1) * m[:, None, :]
    apart = np.take_along_axis(r, active, -1)
    eye = np.eye(active.shape[-1])
    for attempt in range(8):
        T = np.clip(T, LEAST, MOST)
        g = 1.0 / np.sqrt(np.where(apart > 0, T, 1.0))
        h = np.where(apart > 0, up(g * apart), 0.0)
        C = eye - h[..., :, None] * part * h[..., None, :]
        try:
            L = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            # T times c divides I - C by c; what happens to a piece must not depend on the others of its stack
            excess = 1.0 - np.linalg.eigvalsh(C)[:, 0]
            T = T * np.where(_definite(C), 1.0, (1.05 + attempt) * np.maximum(excess, 1.0))[:, None]
            continue
        M = h[..., None] * strip
        return L, np.linalg.solve(L, M), C, M, h, g
    raise ProofFailed("no multipliers make the step of a layer valid")


def _definite(matrices: Array) -> Array:
    """Which matrices of a stack have a Cholesky factor."""
    definite = np.ones(len(matrices), dtype=bool)
    for number, matrix in enumerate(matrices):
        try:
            np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            definite[number] = False
    return definite


def better_multipliers(
    network: Network, steps: list[Step], S: Array, exponent: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Multipliers nearer to the stationary ones, log2(T/r) in true scale, and the share T_j a_j²/λmax of each neuron.

    With a the top eigenvector of the output carried back to a layer, and x = D_m a, the derivative of log λmax by log
    T_j is proportional to T_j a_j² - r_j² (K x)_j²/T_j; it vanishes at T_j = r_j |(K x)_j|/|a_j|. A small step there
    in the logarithm is a suggestion only: any multipliers that pass the step give a valid bound.
    """
    values, vectors = np.linalg.eigh(S)
    back = vectors[..., -1]
    scale = 1.0 / np.maximum(values[..., -1:], TINY)  # of a² while ``back`` is kept at length one
    hints: list[Array] = []
    shares: list[Array] = []
    for step, layer in zip(steps[::-1], network.layers[:0:-1], strict=True):
        a = spread(layer.weight.T, back)
        x = step.m * a
        moved = apply(step.S, x)
        back = x
        if step.active.size:
            pushed = step.h * np.take_along_axis(moved, step.active, -1)
            pull = step.h * np.linalg.solve(step.C, pushed[..., None])[..., 0]
            scattered = np.zeros(a.shape)
            np.put_along_axis(scattered, step.active, pull, -1)
            moved = moved + apply(step.S, scattered)
            back = x + scattered
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # they are hints only
            wish = np.log2(np.abs(moved) / np.abs(a))
            now = np.log2(step.T / step.r)
            change = np.clip(0.1 * (wish - now), -0.15, 0.15)
            hints.append(np.where(np.isfinite(change), now + change, now) + 2.0 * step.exponent[:, None])
            share = scale * np.exp2(2.0 * (step.exponent - exponent))[:, None] * step.T * a * a
            shares.append(np.where(step.r > 0, np.nan_to_num(share, posinf=0.0) + TINY, 0.0))
        length = np.sqrt((back * back).sum(axis=-1, keepdims=True))
        scale = scale * np.where(length > 0, length, 1.0) ** 2
        back = back / np.where(length > 0, length, 1.0)
    return tuple(hints[::-1]), tuple(shares[::-1])


def closed_multiplier(S: Array, m: Array, r: Array, ahead: Weight) -> Array:
    """The t = s + sqrt(s σ / e) of each piece, (count,), from a few power iterations; any larger s would do as well."""
    turned = ahead.T
    open_ = (r > 0).astype(float)

    def power(step: object, start: Array) -> Array:
        x = start
        value = np.zeros(len(start))
        for _ in range(7):
            x = step(x)  # type: ignore[operator]
            value = np.sqrt((x * x).sum(axis=-1))
            x = x / np.maximum(value, TINY)[:, None]
        return value

    s = power(lambda x: r * apply(S, r * x), r + TINY)
    sigma = power(lambda x: spread(ahead, m * apply(S, m * spread(turned, x))), np.ones((len(S), ahead.shape[0])))
    e = power(lambda x: spread(ahead, open_ * spread(turned, x)), np.ones((len(S), ahead.shape[0])))
    s = 1.02 * s
    t = s + np.sqrt(s * sigma / np.where(e > 0, e, 1.0))
    return np.where((e > 0) & (t > s), t, 2.0 * s) + TINY
