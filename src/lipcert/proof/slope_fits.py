"""Parabolas near the slope of an activation on an interval, and how far the two are apart; proved.

The interval is cut into cells. On a cell φ' is at most (b - a)·width/4 from its chord where a ≤ φ'' ≤ b, and on one
side of it where φ'' is monotone; a polynomial is a known distance from its own chord. Where φ' jumps, or nothing is
known of φ'', the range of φ' on the cell serves.

Two parabolas around φ itself, and its secants, are seen from one point c of the interval. Between c and another point
v a smooth φ leaves its tangent at c with the square of Δ = v - c. How fast is found on cells that grow with their
distance from c: on each, φ lies between two lines through one end whose slopes are those of φ there, and a line over Δ²
or over Δ has its extremes at the ends of the cell or at one point that is known. Close to c nothing is asked of the
second derivative: what φ can do there, by its slopes, goes into a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.proof.hints import Interval
from lipcert.proof.neuron_bounds import slope_bounds, slope_error, value_error
from lipcert.proof.rounding import TINY, UP, U, down, twice_above, up
from lipcert.suggest.fits import slope_parabola

_MARKS: Final = np.linspace(-1.0, 1.0, 11)
"""Ends of the ten cells that an interval is cut into."""
_BEND: Final = 2.0**-40
"""Far more than the error of a second derivative, relative to the largest there is."""
_FINE: Final = 1024
"""Cells, on each of which φ' is only known to lie between its least and its largest value."""
_SHARES: Final = 0.95 ** np.arange(120.0)[::-1, None]
"""Ends of the cells, as shares of the way from c to the end of the interval; the first is 1/450."""
_RELATIVE: Final = 2.0**-40
"""Far more than the roundings of a quotient, a square or a product, relative."""
_RESOLVED: Final = 2.0**-30
"""Shorter ways than this, relative to c, are not cut into cells."""


@dataclass(frozen=True, eq=False)
class Fit:
    """For all s with v = center + s in the interval, (count, neurons) each:

    |φ'(v) - slope - rate·s - bow·s²/2| ≤ error,   |φ'(v) - slope| ≤ apart,
    |φ(v) - value - slope·s - rate·s²/2 - bow·s³/6| ≤ rest.
    """

    value: Array
    slope: Array
    rate: Array
    bow: Array
    error: Array
    apart: Array
    rest: Array


def fit(neurons: Neurons, center: Array, interval: Interval, cost: Array) -> Fit:
    """Fits on finite intervals, for a given point that need not lie inside.

    A parabola is taken where it is better than a line; ``cost`` is what half of |bow| costs beside the error.
    """
    low, high = interval
    middle, reach = 0.5 * low + 0.5 * high, (0.5 * high - 0.5 * low) * UP + TINY
    marks = _MARKS.reshape(-1, *[1] * low.ndim)
    v = middle + reach * marks  # ascending, as rounding is monotone
    v[0], v[-1] = np.minimum(v[0], low), np.maximum(v[-1], high)
    width, s = (v[1:] - v[:-1]).max(axis=0) * UP, v - center
    far = np.maximum(np.abs(s[0]), np.abs(s[-1]))
    slopes, values, start = neurons.slope(v), neurons.value(v), neurons.value(center)
    above, below, bent, jumps = _between(neurons, v, width[None])
    kinked = np.asarray(jumps.any(axis=0))
    suggested = slope_parabola(slopes, s, middle - center, reach, kinked, cost)
    t, c = (np.where(np.isfinite(part), part, 0.0) for part in suggested)
    poly = (0.5 * c * s + t) * s
    swing = (np.abs(t) + np.abs(c) * far) * far
    lost = slope_error(neurons, slopes, v).max(axis=0) + _BEND * bent * width
    bulge = c * width
    bulge = 0.125 * bulge * width
    wide = lost + 16.0 * U * (np.abs(slopes).max(axis=0) + swing) + 4.0 * U * np.abs(bulge)
    ends = slopes - poly
    roof = np.maximum(ends[1:], ends[:-1]) + above
    floor = np.minimum(ends[1:], ends[:-1]) - below
    if kinked.any():
        least, most = slope_bounds(neurons, v[:-1], v[1:])
        roof = np.where(jumps, most - np.minimum(poly[1:], poly[:-1]) + np.abs(bulge), roof)
        floor = np.where(jumps, least - np.maximum(poly[1:], poly[:-1]) - np.abs(bulge), floor)
    top = roof.max(axis=0) + np.maximum(bulge, 0.0) + wide
    bottom = floor.min(axis=0) + np.minimum(bulge, 0.0) - wide
    slope = 0.5 * top + 0.5 * bottom
    error = np.maximum(top - slope, slope - bottom) * UP + 4.0 * U * np.abs(slope) + TINY
    alpha, beta = slope_bounds(neurons, v[0], v[-1])
    apart = up(np.maximum(beta - slope, slope - alpha))
    gap = values - start - ((c / 6.0 * s + 0.5 * t) * s + slope) * s
    shift = 0.5 * gap.max(axis=0) + 0.5 * gap.min(axis=0)  # the error of a parabola is odd, its integral on one side
    start, gap = start + shift, np.abs(gap - shift)
    size = np.abs(values).max(axis=0) + np.abs(start) + 2.0 * np.abs(shift) + (np.abs(slope) + swing) * far
    room = value_error(neurons, values).max(axis=0) + 32.0 * U * size
    rest = (0.5 * (gap[1:] + gap[:-1]).max(axis=0) + 0.5 * error * width + room) * UP + TINY
    return Fit(start, slope, t, c, error, apart, rest)


def _between(neurons: Neurons, v: Array, width: Array) -> tuple[Array, ...]:
    """Of each cell, how far φ' is above and below its chord; the largest |φ''| anywhere; whether φ' may jump."""

    def rule(row: Activation, points: Array, cells: Array) -> tuple[Array, ...]:
        left, right = points[:-1], points[1:]
        bends = row.bend(points)
        first, last = bends[:-1], bends[1:]
        least, most = np.minimum(first, last), np.maximum(first, last)
        turned, largest = np.zeros(left.shape, dtype=bool), np.abs(bends).max(axis=0)
        for turn, inside in row.turns_inside(left, right):  # it jumps at some of them
            some = turn[tuple(slice(None if step else 1) for step in turn.strides)]  # one of equal ones
            before, after = row.bend(some, -1), row.bend(some, 1)
            for bend in (after,) if np.array_equal(before, after) else (before, after):
                # also of turns outside: errors are relative to the largest
                largest = np.maximum(largest, np.abs(bend).max(axis=0))
                np.minimum(least, bend, out=least, where=inside)
                np.maximum(most, bend, out=most, where=inside)
            turned |= inside
        lens = 0.25 * (most - least) * cells
        above, below = np.where(turned | (last < first), lens, 0.0), np.where(turned | (last > first), lens, 0.0)
        jumps = np.zeros(left.shape, dtype=bool)
        if np.isfinite(row.row.period):
            jumps |= (right - left >= 0.5 * row.row.period) | row.whole_period(points[:1], points[-1:])
        if row.row.kinks:
            for _, inside in row.knots_inside(down(left), up(right)):
                jumps |= inside
        jumps |= not row.row.smooth
        return above, below, largest, jumps

    if len(neurons.groups) == 1:
        return rule(neurons.groups[0][0], v, width)
    shape = v[1:].shape
    found = [np.zeros(shape), np.zeros(shape), np.zeros(shape[1:]), np.zeros(shape, dtype=bool)]
    for row, index in neurons.groups:
        for out, part in zip(found, rule(row, v[..., index], width[..., index]), strict=True):
            out[..., index] = part
    return tuple(found)


def fit_error(neurons: Neurons, center: Array, error: Array, reach: Array, slopes: Array) -> Array:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ reach and |c - center| ≤ error, (neurons,); σ, τ, ψ = slopes.

    A cell [low, high] has the middle m over ``center``, and every Δ with c + Δ in it is within w of m. So the parabola
    stays within |τ + ψm|w + ½|ψ|w² of its value at m, and φ' within its range on the cell.
    """
    sigma, tau, psi = slopes
    extent = up(reach + error)
    points = center + np.linspace(-1.0, 1.0, _FINE + 1)[:, None] * extent
    points[0], points[-1] = (
        down(down(points[0] - 4.0 * U * np.abs(center))),
        up(up(points[-1] + 4.0 * U * np.abs(center))),
    )
    low, high = points[:-1], points[1:]
    alpha, beta = slope_bounds(neurons, low, high)
    m = 0.5 * (low - center) + 0.5 * (high - center)
    w = 0.5 * (high - low) + error + 8.0 * U * (np.abs(center) + extent)
    bow, wide = psi * m, np.abs(psi) * w
    value = sigma + tau * m + 0.5 * bow * m
    size = np.abs(sigma) + np.abs(tau * m) + np.abs(bow * m) + np.maximum(np.abs(alpha), np.abs(beta))
    away = np.maximum(beta - value, value - alpha)
    bend = np.abs(tau + bow) * w + wide * w + 4.0 * U * (np.abs(tau) + np.abs(bow)) * w
    return np.asarray((away + bend + 16.0 * U * size).max(axis=0) * UP + TINY)


@dataclass(frozen=True, eq=False)
class Parabolas:
    """What holds for every v in a neuron's interval and Δ = v - c, c the point that the neuron is seen from.

    below·Δ²/2 - slack ≤ φ(v) - φ(c) - slope·Δ ≤ above·Δ²/2 + slack, alpha ≤ (φ(v) - φ(c))/Δ ≤ beta, |Δ| ≤ reach.
    """

    slope: Array
    below: Array
    above: Array
    slack: Array
    alpha: Array
    beta: Array
    reach: Array

    @property
    def moved(self) -> Array:
        """At least |φ(v) - φ(c)|."""
        return up(np.maximum(np.abs(self.alpha), np.abs(self.beta)) * self.reach)


def parabolas(neurons: Neurons, lower: Array, upper: Array, center: Array, error: Array) -> Parabolas:
    """The parabolas of each neuron on [lower, upper], for every c with |c - center| ≤ error; slopes are the centre's.

    With E(v) = φ(v) - φ(center) - slope·(v - center), and D at least |φ' - slope| between any two points that count,

        φ(v) - φ(c) - slope·Δ = E(v) - E(c),  |E(c)| ≤ D·error,  (v - center)² ≤ Δ² + 2·reach·error + error².
    """
    lower, upper = np.minimum(lower, center), np.maximum(upper, center)
    least, most = slope_bounds(neurons, np.minimum(lower, down(center - error)), np.maximum(upper, up(center + error)))
    slope = np.clip(neurons.slope(center), least, most)
    reach = up(up(np.maximum(upper - center, center - lower)) + error)
    with np.errstate(all="ignore"):  # a way of no length has no cells
        sides = [_side(neurons, center, end, error, slope, sign) for end, sign in ((upper, 1), (lower, -1))]
    above = np.maximum(*(side.above for side in sides))
    below = np.minimum(*(side.below for side in sides))
    # where both ways are too short for cells, the slack is all there is; NaN stays, and proves nothing
    above, below = np.where(above == -np.inf, 0.0, above), np.where(below == np.inf, 0.0, below)
    size = np.maximum(np.abs(above), np.abs(below))
    steep = np.maximum(most - slope, slope - least)
    slack = np.maximum(*(side.slack + twice_above(side.near, size) for side in sides))
    slack = slack + steep * error + (size * error) * (2.0 * reach + error)
    alpha = np.maximum(least, np.minimum(*(side.alpha for side in sides)))
    beta = np.minimum(most, np.maximum(*(side.beta for side in sides)))
    return Parabolas(slope, below, above, slack * UP + TINY, alpha, beta, reach)


@dataclass(frozen=True, eq=False)
class _Side:
    """What holds on one side of the centre: bends beyond the distance ``near``, the slack up to there; secants."""

    below: Array
    above: Array
    slack: Array
    near: Array
    alpha: Array
    beta: Array


def _side(neurons: Neurons, center: Array, end: Array, error: Array, slope: Array, sign: int) -> _Side:
    """From the centre up (sign 1) or down (-1) to the end; t is the distance from the centre."""
    whole = np.abs(end - center)
    fine = whole > _RESOLVED * np.abs(center) + 2.0**20 * error + TINY
    points = np.where(fine, center + sign * _SHARES * whole, end)
    points[-1] = end
    t = np.abs(points - center)
    near = up(t[0])
    least, most = slope_bounds(neurons, *_ordered(center - sign * error, points[0], sign))
    steep = np.maximum(most - slope, slope - least)
    value, start = neurons.value(points), neurons.value(center)
    rise = sign * (value - start)  # (φ(v) - φ(center))·sign, so that slopes are those of φ
    lost = value_error(neurons, value) + value_error(neurons, start)
    lost = (lost + 8.0 * U * (np.abs(value) + np.abs(start) + np.abs(slope) * t)) * UP
    alpha, beta = slope_bounds(neurons, *_ordered(points[:-1], points[1:], sign))
    left, right = t[:-1], t[1:]
    secants, bends = [], []
    for rate, pick, sense in ((alpha, np.minimum, -1), (beta, np.maximum, 1)):
        far = rise[:-1] + rate * (right - left)
        both = pick(rise[:-1] / left, far / right)
        # of c within error of the centre, a secant differs by at most 2·(its largest size)·error/(t - error)
        largest = np.maximum(np.abs(rate), np.abs(both))
        room = (lost[:-1] + 4.0 * (largest + np.maximum(np.abs(least), np.abs(most))) * error) / left
        secants.append(both + sense * (room * UP + _RELATIVE * largest))
        # twice what is lost goes into the slack: so noise does not pass for a bend
        height = rise[:-1] - slope * left - sense * lost[:-1]
        bends.append(_extreme(height, rate - slope, left, right, pick, sense))
    alpha = np.minimum(least, np.where(fine, secants[0].min(axis=0), np.inf))
    beta = np.maximum(most, np.where(fine, secants[1].max(axis=0), -np.inf))
    lower, upper = (bends[0], bends[1]) if sign > 0 else (-bends[1], -bends[0])
    slack = steep * near + np.where(fine, 2.0 * lost.max(axis=0), 0.0)
    below, above = np.where(fine, lower.min(axis=0), np.inf), np.where(fine, upper.max(axis=0), -np.inf)
    return _Side(below, above, slack, near, alpha, beta)


def _ordered(inner: Array, outer: Array, sign: int) -> tuple[Array, Array]:
    """An interval whose ends are given from the centre outwards, rounded outwards."""
    return (down(inner), up(outer)) if sign > 0 else (down(outer), up(inner))


def _extreme(height: Array, rate: Array, left: Array, right: Array, pick: np.ufunc, sense: int) -> Array:
    """The extreme of 2·(height + rate·(t - left))/t² for left ≤ t ≤ right, widened for its roundings.

    It is a quadratic in 1/t with its vertex at -rate/(2·base). A vertex that is a little off costs the square of that.
    """
    base = height - rate * left
    vertex = np.where(base != 0.0, -0.5 * rate / base, 0.0)
    found = []
    for w in (1.0 / right, 1.0 / left, np.clip(vertex, 1.0 / right, 1.0 / left)):
        value = 2.0 * (base * w + rate) * w
        size = 2.0 * ((np.abs(height) + 2.0 * np.abs(rate) * left) * w + np.abs(rate)) * w
        found.append(value + sense * _RELATIVE * size)
    return np.asarray(pick.reduce(found))
