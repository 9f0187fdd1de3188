"""Slopes of two straight lines around an activation on an interval, and parabolas near its slope.

The upper line is the one of least area: it supports the concave envelope of φ at the interval's midpoint,
because the area under a line is its value there times the length. For a convex φ that is the chord, for a
concave one the tangent at the midpoint, for ReLU from below the slope of the longer side; one rule for all.
A proof finds the intercepts, so a poor slope costs tightness, never validity.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from lipcert.model.activations import CONCAVE, CONVEX, Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons

_NEAR = 4.0 ** -np.arange(1.0, 13.0)
_SHARES = np.unique(np.concatenate([_NEAR, 1.0 - _NEAR, np.linspace(0.0, 1.0, 9)]))
"""Where the first look at a concave piece falls: evenly, and ever closer to its ends, however long it is."""

_STEPS = np.array([0.25, 0.5, 0.75, 1.0])
"""Shares of the way between two points of a grid, for a finer one."""
_ZOOMS = 4
"""Each makes the grid around the touching points four times finer."""
_HALVINGS = 45
"""Of the bisection for a point of given slope: then it is known to half the digits of a float and more."""
_BETTER = 0.8
"""A parabola must make the error so much smaller than a line, or the line serves."""
_RESOLVED = 2.0**-30
"""Shorter intervals than this, relative to their distance from the point, have no parabola that means anything."""


def suggested_lines(neurons: Neurons, interval: tuple[Array, Array], tilt: float = 0.5) -> tuple[Array, Array]:
    """Slopes of the lower and the upper line of every neuron; where an interval is infinite they are level.

    The lines touch φ, or its envelope, at the share ``tilt`` of the interval.
    """
    lower, upper = neurons.gather(lambda row, low, high: _both(row, low, high, tilt), *interval)
    return lower, upper


def touching(row: Activation, sign: int | Array, start: Array, stop: Array, slope: Array) -> Array:
    """The point of a piece where sign·φ is concave and has about the given slope, or the nearer end.

    Halved on the scale of arsinh, so that pieces may be as long as floats. Of the two ends that are left, the one that
    looks away from the longer side.
    """
    low, high = np.arcsinh(start), np.arcsinh(stop)
    with np.errstate(over="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            steep = sign * row.slope(np.clip(np.sinh(middle), start, stop), 1) > slope
            low, high = np.where(steep, middle, low), np.where(steep, high, middle)
        low, high = np.clip(np.sinh(low), start, stop), np.clip(np.sinh(high), start, stop)
    return np.where(stop - high > low - start, high, low)


def _both(row: Activation, lower: Array, upper: Array, tilt: float) -> tuple[Array, Array]:
    shape = lower.shape
    lower, upper = np.ravel(lower), np.ravel(upper)
    if shape[:-1]:
        row = row.take(np.tile(np.arange(shape[-1]), int(np.prod(shape[:-1]))))
    inside = np.flatnonzero(np.isfinite(lower) & np.isfinite(upper))
    part = row if inside.size == lower.size else row.take(inside)
    slopes = np.full((2, lower.size), row.row.drift, dtype=float)
    for which, sign in enumerate((-1, 1) if inside.size else ()):
        slopes[which, inside] = sign * _upper(part, sign, lower[inside], upper[inside], tilt)
    return slopes[0].reshape(shape), slopes[1].reshape(shape)


def _pieces(row: Activation, sign: int, lower: Array, upper: Array) -> list[tuple[Array, Array, Array]]:
    """Start, end and curvature of the pieces of sign·φ on [lower, upper]; empty ones have start = end."""
    inner = [np.clip(knot, lower, upper) for knot in row.knots(lower)]
    shapes = row.shape
    return [
        (start, stop, sign * np.broadcast_to(shape, lower.shape))
        for start, stop, shape in zip([lower, *inner], [*inner, upper], shapes, strict=True)
    ]


def _bends(row: Activation, sign: int, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Whether sign·φ is convex, and whether it is concave, on all of [lower, upper]."""
    convex, concave = np.ones(lower.shape, dtype=bool), np.ones(lower.shape, dtype=bool)
    for start, stop, shape in _pieces(row, sign, lower, upper):
        convex &= (start >= stop) | (shape != CONCAVE)
        concave &= (start >= stop) | (shape != CONVEX)
    for knot, inside in row.knots_inside(lower, upper) if row.row.kinks else ():
        jump = sign * (row.slope(knot, 1) - row.slope(knot, -1))
        convex &= ~inside | (jump >= 0)
        concave &= ~inside | (jump <= 0)
    return convex, concave


def _upper(row: Activation, sign: int, lower: Array, upper: Array, tilt: float) -> Array:
    """Slope of the upper line of sign·φ."""
    middle = np.clip((1.0 - tilt) * lower + tilt * upper, lower, upper)
    half = 0.5 * upper - 0.5 * lower
    convex, concave = _bends(row, sign, lower, upper)
    tangent = sign * np.where(middle < upper, row.slope(middle, 1), row.slope(middle, -1))  # from inside the interval
    rise = sign * (0.5 * row.value(upper) - 0.5 * row.value(lower))
    chord = np.divide(rise, half, out=np.array(tangent, dtype=float), where=half > 0)
    slope = np.where(concave, tangent, chord)
    whole = row.whole_period(lower, upper)
    mixed = np.flatnonzero(~convex & ~concave & ~whole)
    if mixed.size:
        slope[mixed] = _envelope_slope(row.take(mixed), sign, lower[mixed], upper[mixed], middle[mixed])
    return np.where(whole, sign * row.row.drift, slope)


def _envelope_slope(row: Activation, sign: int, lower: Array, upper: Array, middle: Array) -> Array:
    """The a that minimises max_v sign·φ(v) - a(v - middle).

    That maximum is the larger of one over the left part, which grows with a, and one over the right part, which
    falls; they meet at the slope of the line through the two maximisers. These are sought on a grid that zooms in.
    """
    pieces = _pieces(row, sign, lower, upper)
    ends = np.stack([lower, *(stop for _, stop, _ in pieces)], axis=1)
    marks = [ends]
    for start, stop, shape in pieces:
        if (shape == CONCAVE).any():
            marks.append(start[:, None] * (1.0 - _SHARES) + stop[:, None] * _SHARES)
    left = right = np.sort(np.concatenate(marks, axis=1), axis=1)
    rise = [sign * edge for edge in row.slope_range(lower, upper)]
    bracket = np.minimum(*rise), np.maximum(*rise)
    slope, i, j = _balance(row, sign, left, right, middle, 0.5 * bracket[0] + 0.5 * bracket[1], bracket, 16)
    ends = np.concatenate([ends, middle[:, None]], axis=1)
    for _ in range(_ZOOMS):
        left, right = _zoom(left, i, ends), _zoom(right, j, ends)
        slope, i, j = _balance(row, sign, left, right, middle, slope, bracket, 3)
    return slope


def _balance(
    row: Activation,
    sign: int,
    left: Array,
    right: Array,
    middle: Array,
    slope: Array,
    bracket: tuple[Array, Array],
    rounds: int,
) -> tuple[Array, Array, Array]:
    """The slope at which the maxima over the left and the right grid (n, k) agree, and where they are attained.

    The left grid counts up to the middle, the right one from there on. Newton's method: the next slope is that of
    the chord between the two maximisers.
    """
    n, k = left.shape
    rows = row.take(np.repeat(np.arange(n), k))
    away = [side - middle[:, None] for side in (left, right)]
    heights = [
        np.where(way * x >= 0.0, sign * rows.value(np.ravel(side)).reshape(n, k), -np.inf)
        for side, x, way in zip((left, right), away, (-1, 1), strict=True)
    ]
    low, high = bracket
    best, least = (slope, np.zeros(n, dtype=int), np.zeros(n, dtype=int)), np.full(n, np.inf)
    for _ in range(rounds):
        tilted = [h - slope[:, None] * x for h, x in zip(heights, away, strict=True)]
        i, j = (np.argmax(t, axis=1) for t in tilted)
        rise, fall = _at(tilted[0], i), _at(tilted[1], j)
        worst = np.maximum(rise, fall)
        better = worst < least
        least = np.where(better, worst, least)
        best = np.where(better, slope, best[0]), np.where(better, i, best[1]), np.where(better, j, best[2])
        low, high = np.where(rise < fall, slope, low), np.where(rise < fall, high, slope)
        gap = _at(right, j) - _at(left, i)
        chord = (_at(heights[1], j) - _at(heights[0], i)) / np.where(gap > 0, gap, 1.0)
        inside = (gap > 0) & (low <= chord) & (chord <= high)
        slope = np.where(inside, chord, np.where(gap > 0, 0.5 * (low + high), slope))
    return best


def _zoom(grid: Array, index: Array, ends: Array) -> Array:
    """A finer grid between the neighbours of one point a row; the ends of the pieces stay."""
    here, last = _at(grid, index)[:, None], grid.shape[1] - 1
    before, after = (_at(grid, np.clip(index + step, 0, last))[:, None] for step in (-1, 1))
    finer = [before * (1.0 - _STEPS) + here * _STEPS, here * _STEPS[::-1] + after * (1.0 - _STEPS[::-1])]
    return np.sort(np.concatenate([*finer, ends], axis=1), axis=1)


def _at(grid: Array, index: Array) -> Array:
    """One entry per row."""
    return np.asarray(grid[np.arange(index.size), index])


def slope_parabola(
    slopes: Array, s: Array, middle: Array, reach: Array, kinked: Array, cost: Array
) -> tuple[Array, Array]:
    """Rate and bow of slope + rate·s + bow·s²/2, the better of a parabola and a line, for slopes at marks s.

    The marks (marks, ...) are evenly spread from middle - reach to middle + reach. ``cost`` is what half of |bow| costs
    beside the error. Where slopes are ``kinked`` both are zero.
    """
    _, line, bow = np.tensordot(_least_squares(len(slopes)), slopes, axes=1)
    line, bow, chord = line / reach, 2.0 * bow / reach / reach, 0.5 * (slopes[-1] - slopes[0]) / reach
    bow = np.where(np.isfinite(bow) & ~kinked & (reach > _RESOLVED * np.abs(middle)), bow, 0.0)
    rate = line - bow * middle
    chord = np.where(kinked, 0.0, chord)
    bent = slopes - (rate + 0.5 * bow * s) * s
    straight = slopes - chord * s
    error, other = (0.5 * (ends.max(axis=0) - ends.min(axis=0)) for ends in (bent, straight))
    pick = error + 0.5 * np.abs(bow) * cost < _BETTER * other
    return np.where(pick, rate, chord), np.where(pick, bow, 0.0)


@cache
def _least_squares(marks: int) -> Array:
    """What makes the three coefficients of a parabola of values at marks from -1 to 1."""
    return np.linalg.pinv(np.vander(np.linspace(-1.0, 1.0, marks), 3, increasing=True))
