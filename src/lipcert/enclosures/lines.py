"""Two straight lines around an activation on an interval.

The upper line is the one of least area: it supports the concave envelope of φ at the interval's midpoint,
because the area under a line is its value there times the length. For a convex φ that is the chord, for a
concave one the tangent at the midpoint, for ReLU from below the slope of the longer side; one rule for all.
The intercept is then computed piece by piece: where φ is convex the ends decide, where it is concave any
tangent lies above it. A poor slope therefore costs tightness, never validity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.activations import CONCAVE, CONVEX, Activation
from lipcert.network import Neurons
from lipcert.typing import Array

_GRID = 33
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Lines:
    """lower_slope·v + lower_offset ≤ φ(v) ≤ upper_slope·v + upper_offset on each neuron's interval."""

    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array


def bounding_lines(neurons: Neurons, lower: Array, upper: Array) -> Lines:
    """The two lines of every neuron of a layer; where an interval is infinite they are level, or at infinity."""
    return Lines(*neurons.gather(_both, lower, upper))


def _both(row: Activation, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
    shape = lower.shape
    lower, upper = np.ravel(lower), np.ravel(upper)
    if shape[:-1]:
        row = row.take(np.tile(np.arange(shape[-1]), int(np.prod(shape[:-1]))))
    finite = np.isfinite(lower) & np.isfinite(upper)
    least, most = (np.broadcast_to(np.asarray(e, dtype=float), lower.shape) for e in row.row.extent(*row.parameters))
    results = []
    for sign, extreme in ((-1, least), (1, most)):
        slope, offset = np.zeros(lower.shape), np.array(extreme)
        inside = np.flatnonzero(finite)
        if inside.size:
            part = row if inside.size == lower.size else row.take(inside)
            a, c = _upper(_Signed(part, sign), lower[inside], upper[inside])
            slope[inside], offset[inside] = sign * a, sign * c
        results += [slope.reshape(shape), offset.reshape(shape)]
    return results[0], results[1], results[2], results[3]


@dataclass(frozen=True, eq=False)
class _Signed:
    """φ or -φ, so that one routine draws both lines."""

    row: Activation
    sign: int

    def value(self, v: Array) -> Array:
        return self.sign * self.row.value(v)

    def slope(self, v: Array, side: int) -> Array:
        return self.sign * self.row.slope(v, side)

    def take(self, neurons: Array) -> _Signed:
        return _Signed(self.row.take(neurons), self.sign)

    def pieces(self, lower: Array, upper: Array) -> list[tuple[Array, Array, Array]]:
        """Start, end and curvature of the pieces of [lower, upper]; empty ones have start = end."""
        row, parameters = self.row.row, self.row.parameters
        inner = [np.clip(knot, lower, upper) for knot in row.knots(lower, *parameters)]
        marks = [lower, *inner, upper]
        shapes = row.shape(lower, *parameters)
        return [
            (start, stop, self.sign * np.broadcast_to(shape, lower.shape))
            for start, stop, shape in zip(marks[:-1], marks[1:], shapes, strict=True)
        ]

    def bends(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Whether the function is convex, and whether it is concave, on all of [lower, upper]."""
        convex, concave = np.ones(lower.shape, dtype=bool), np.ones(lower.shape, dtype=bool)
        for start, stop, shape in self.pieces(lower, upper):
            convex &= (start >= stop) | (shape != CONCAVE)
            concave &= (start >= stop) | (shape != CONVEX)
        if self.row.row.kinks:
            for knot, inside in self.row.knots_inside(lower, upper):
                jump = self.slope(knot, 1) - self.slope(knot, -1)
                convex &= ~inside | (jump >= 0)
                concave &= ~inside | (jump <= 0)
        return convex, concave


def _upper(phi: _Signed, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Slope and offset of the upper line."""
    middle = 0.5 * lower + 0.5 * upper
    width = upper - lower
    convex, concave = phi.bends(lower, upper)
    tangent = phi.slope(middle, 1)
    at_lower, at_upper = phi.value(lower), phi.value(upper)
    chord = np.divide(at_upper - at_lower, width, out=np.array(tangent, dtype=float), where=width > 0)
    slope = np.where(concave, tangent, chord)
    if np.isfinite(phi.row.row.period):
        whole = width >= phi.row.row.period
        slope = np.where(whole, 0.0, slope)
        convex, concave = convex & ~whole, concave & ~whole
    else:
        whole = np.zeros(lower.shape, dtype=bool)
    mixed = np.flatnonzero(~convex & ~concave & ~whole)
    if mixed.size:
        slope[mixed] = _envelope_slope(phi.take(mixed), lower[mixed], upper[mixed])
    offset = np.where(
        concave,
        phi.value(middle) - slope * middle,
        np.maximum(at_lower - slope * lower, at_upper - slope * upper),
    )
    if mixed.size:
        offset[mixed] = _offset(phi.take(mixed), lower[mixed], upper[mixed], slope[mixed])
    return slope, np.where(whole, 1.0, offset)


def _envelope_slope(phi: _Signed, lower: Array, upper: Array) -> Array:
    """The a that minimises max_v φ(v) - a(v - middle): where the maximiser changes sides, by bisection on a grid."""
    middle = 0.5 * lower + 0.5 * upper
    share = np.linspace(0.0, 1.0, _GRID)
    grid = lower[:, None] * (1.0 - share) + upper[:, None] * share
    knots = [np.clip(knot, lower, upper)[:, None] for knot in phi.row.row.knots(lower, *phi.row.parameters)]
    grid = np.concatenate([grid, *knots], axis=1)
    height = np.stack([phi.value(column) for column in grid.T], axis=1)
    offset = grid - middle[:, None]
    rise = phi.row.slope_range(lower, upper)
    low, high = np.minimum(phi.sign * rise[0], phi.sign * rise[1]), np.maximum(phi.sign * rise[0], phi.sign * rise[1])
    rows = np.arange(lower.size)
    for _ in range(_HALVINGS):
        slope = 0.5 * (low + high)
        best = np.argmax(height - slope[:, None] * offset, axis=1)
        right = offset[rows, best] > 0
        low, high = np.where(right, slope, low), np.where(right, high, slope)
    return 0.5 * (low + high)


def _offset(phi: _Signed, lower: Array, upper: Array, slope: Array) -> Array:
    """At least max of φ(v) - slope·v on [lower, upper]."""
    best = np.full(lower.shape, -np.inf)
    for start, stop, shape in phi.pieces(lower, upper):
        ends = np.maximum(phi.value(start) - slope * start, phi.value(stop) - slope * stop)
        touch = _touch(phi, start, stop, slope)
        tangent = phi.slope(touch, 1)
        tangent = np.where(touch >= stop, phi.slope(stop, -1), tangent)
        base = phi.value(touch) - tangent * touch
        above = base + np.maximum((tangent - slope) * start, (tangent - slope) * stop)
        highest = np.where(shape == CONCAVE, np.maximum(above, ends), ends)
        best = np.where(start < stop, np.maximum(best, highest), best)
    return best


def _touch(phi: _Signed, start: Array, stop: Array, slope: Array) -> Array:
    """The point of a concave piece whose tangent has the given slope, or the end nearest to it."""
    low, high = np.array(start), np.array(stop)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        steep = phi.slope(middle, 1) > slope
        low, high = np.where(steep, middle, low), np.where(steep, high, middle)
    return 0.5 * (low + high)
