"""Slopes, values and bounding lines of activations, outward-rounded, and how far they are from polynomials.

Elementary functions are trusted to WIDEN, 32 units u = 2⁻⁵³; measured against ball arithmetic the rows of the table
lose at most 4 of them (tests/kernel/test_neuron_bounds.py), apart from three kinds of exception that are charged for
what they are: rows whose formula cancels lose that much of the size of its terms; where an exponent is itself rounded,
a value in the tail loses that much for each power of e that it is below one; and hardsigmoid cancels against its shift.
The ``loss`` of a row says which of them it is.

The polynomials are parabolas for φ' and cubics for φ. The interval is cut into cells. On a cell φ' is at most
(b - a)·width/4 from its chord where a ≤ φ'' ≤ b, and on one side of it where φ'' is monotone; a polynomial is a known
distance from its own chord. Where φ' jumps, or nothing is known of φ'', the range of φ' on the cell serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import TINY, UP, Near, U, down, gamma, inflate, rounded_off, up
from lipcert.model.activations import CONCAVE, STRAIGHT, Activation
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Neurons
from lipcert.suggest.lines import slope_parabola, touching

WIDEN: Final = 2.0**-48
"""32 units u, relative: what elementary functions are trusted to; see above."""
_DEEP: Final = -4.0
"""Left of this no terms of a slope cancel, unless it is periodic: one of them is more than twice the other."""


def slope_bounds(neurons: Neurons, lower: Array, upper: Array, center: Array | None = None) -> Interval:
    """α ≤ every slope of φ on [lower, upper] ≤ β, in real arithmetic; the center is for an error that may be raised."""
    low, high = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)  # nothing is known
    check_domain(neurons, low, center)
    alpha, beta = neurons.gather(_slope_bounds, low, high)
    return alpha, beta


def check_domain(neurons: Neurons, low: Array, center: Array | None = None) -> None:
    """An error unless every φ is defined from ``low`` on; it says how far to shrink a region with that center."""
    for row, index in neurons.groups:
        least, hard = low[..., index], row.row.above
        if hard > -np.inf and not (least > hard).all():
            share = 0.0 if center is None else np.min((center[..., index] - hard) / (center[..., index] - least))
            by = f"shrink the region to about {0.9 * share:.2g} of its size"
            raise ProofFailed(
                f"{row.name} takes positive numbers only, and its argument is only known to be above"
                f" {float(least.min()):.3g}; {by if 0.0 < share < 1.0 else 'a smaller region may do'}"
            )


def all_slopes(neurons: Neurons) -> tuple[Array, Array]:
    """α ≤ every slope of φ ≤ β, wherever it is, (neurons,)."""
    infinite = np.full(neurons.size, np.inf)
    return slope_bounds(neurons, -infinite, infinite)


def _slope_bounds(row: Activation, low: Array, high: Array) -> tuple[Array, Array]:
    alpha, beta = row.slope_range(low, high)
    return alpha - _slope_error(row, alpha, low, high), beta + _slope_error(row, beta, low, high)


def _slope_error(row: Activation, slope: Array, low: Array, high: Array) -> Array:
    """At least the error of a slope computed somewhere in [low, high], and of adding that error."""
    error = _formula_error(row, slope, high)
    if row.row.loss.slope_terms is None or not row.row.exact:
        return error
    return np.where(_straight(row, low, high), 0.0, error)


def _formula_error(row: Activation, slope: Array, high: Array) -> Array:
    """At least the error of a slope computed at or below ``high``, and of adding that error."""
    loss = row.row.loss
    if loss.slope_terms is None:
        return np.zeros(np.shape(slope))
    size = np.abs(slope)
    if loss.slope_terms:
        size = size + loss.slope_terms * ((high > _DEEP) | np.isfinite(row.row.period))
    if loss.slope_tail:
        size = size + _tail(slope)
    return WIDEN * size + TINY


def _straight(row: Activation, low: Array, high: Array) -> Array:
    """Whether [low, high] lies in a piece of one slope, which is then a number of the table."""
    marks = [-np.inf, *row.knots(low), np.inf]
    inside = np.zeros(np.shape(low), dtype=bool)
    for start, stop, shape in zip(marks[:-1], marks[1:], row.shape, strict=True):
        within = (low < high) & (start <= low) & (high <= stop) | (start < low) & (high < stop)
        inside |= (shape == STRAIGHT) & within
    return inside


def _value_error(row: Activation, value: Array) -> Array:
    """At least the error of a computed value."""
    loss = row.row.loss
    size = np.abs(value) + loss.value_terms(*row.parameters)
    if loss.value_tail:
        size = size + _tail(value)
    return WIDEN * size + TINY


def _tail(x: Array) -> Array:
    """|x|·log(1/|x|) for |x| < 1: what an error of one unit relative to the exponent makes of x."""
    size = np.minimum(np.abs(x), 1.0)
    return np.asarray(-special.xlogy(size, size))


def value_error(neurons: Neurons, values: Array) -> Array:
    """At least the error of computed values φ(v)."""
    return neurons.gather(lambda row, part: (_value_error(row, part),), values)[0]


def shares(low: Array, high: Array) -> tuple[Array, Array]:
    """Where softmax values p_l = 1/Σ_j exp(s_j - s_l) lie if s_j - s_l is in [low, high], (..., l, j)."""
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    lost = WIDEN + gamma(low.shape[-1] + 8)
    with np.errstate(over="ignore"):
        least = np.maximum(np.exp(np.minimum(low, 700.0)).sum(axis=-1) * (1.0 - lost) - TINY, 0.0)
        most = np.exp(high).sum(axis=-1) * (1.0 + lost) + TINY
    with np.errstate(divide="ignore"):
        return down(1.0 / most), np.minimum(up(1.0 / least), 1.0)


def relax(neurons: Neurons, lower: Array, upper: Array, lower_slope: Array, upper_slope: Array) -> tuple[Array, ...]:
    """Lines around φ on [lower, upper], and bounds of its values, for any slopes.

    In the order lower_slope, lower_offset, upper_slope, upper_offset, floor, roof:
    lower_slope·v + lower_offset ≤ φ(v) ≤ upper_slope·v + upper_offset and floor ≤ φ(v) ≤ roof.
    """
    check_domain(neurons, lower)

    def rule(row: Activation, low: Array, high: Array, below: Array, above: Array) -> tuple[Array, ...]:
        level = np.zeros(below.shape)
        sign = np.reshape([-1.0, -1.0, 1.0, 1.0], (4, *[1] * low.ndim))
        least, bottom, most, top = _highest(row, sign, low, high, np.stack([-below, level, above, level]))
        return -least, most, -bottom, top

    lower_offset, upper_offset, floor, roof = neurons.gather(rule, lower, upper, lower_slope, upper_slope)
    return lower_slope, lower_offset, upper_slope, upper_offset, floor, roof


def kinked(neurons: Neurons, low: Array, high: Array, alpha: Array, beta: Array) -> Array:
    """Neurons that are alpha·v on [low, 0] and beta·v on [0, high] with exact alpha < beta."""
    zero = np.zeros(len(low))
    left = slope_bounds(neurons, np.minimum(low, 0.0), zero)
    right = slope_bounds(neurons, zero, np.maximum(high, 0.0))
    straight = (left[0] == alpha) & (left[1] == alpha) & (right[0] == beta) & (right[1] == beta)
    at_zero = np.abs(neurons.value(zero)) + value_error(neurons, zero)
    return np.asarray((low < 0.0) & (high > 0.0) & straight & (alpha < beta) & (at_zero <= 4.0 * TINY))


def _highest(row: Activation, sign: Array, lower: Array, upper: Array, slope: Array) -> Array:
    """At least max of sign·φ(v) - slope·v over finite intervals [lower, upper], for several signs and slopes at once.

    On a piece where sign·φ is convex the maximum is at an end. Where it is concave every tangent lies above it, and the
    largest value of tangent minus line is at an end again; the tangent of the line's own slope makes that sharp.
    """
    inner = [np.minimum(np.maximum(knot, lower), upper) for knot in row.knots(lower)]
    marks = [lower, *inner, upper]
    ends = [_at_end(row, sign, mark, slope) for mark in marks]
    best = np.maximum(ends[0], ends[-1])
    for k, shape in enumerate(row.shape):
        start, stop, highest = marks[k], marks[k + 1], np.maximum(ends[k], ends[k + 1])
        some = np.ravel(sign * shape == CONCAVE)
        if some.any():
            highest[some] = np.maximum(highest[some], _tangent(row, sign[some], start, stop, slope[some]))
        if not row.row.exact:  # a rounded knot may lie a little off the true one: the piece borrows what slopes allow
            borrowed = 8.0 * (_steepest(row, lower) + np.abs(slope))
            highest = highest + borrowed * np.spacing(row.row.unit(np.maximum(np.abs(start), np.abs(stop))))
        best = np.where((start < stop) | (lower == upper), np.maximum(best, highest), best)
    if np.isfinite(row.row.period):
        # sign·φ - slope·v = (sign·drift - slope)·v + sign·(φ - drift·v), and the last term is within the swing
        tilt = np.abs(sign * row.row.drift - slope)
        flat = tilt * np.maximum(np.abs(lower), np.abs(upper)) * UP + row.row.swing * (1.0 + WIDEN)
        best = np.where(upper - lower >= row.row.period, flat, best)
    return np.where(np.isnan(lower) | np.isnan(upper), np.inf, best)


def _at_end(row: Activation, sign: Array, end: Array, slope: Array) -> Array:
    """At least sign·φ - slope·v at a point: three roundings of these sizes, and the sums with the error and more."""
    value, line = row.value(end), slope * end
    return sign * value - line + (_value_error(row, value) + 8.0 * U * (np.abs(value) + np.abs(line)))


def _tangent(row: Activation, sign: Array, start: Array, stop: Array, slope: Array) -> Array:
    """At least sign·φ - slope·v on a piece where it is concave, by a tangent.

    The drift over the piece loses 3u of at most (|tangent| + |slope|)·2·reach, the rest of the sum 5u of its own parts.
    """
    touch = touching(row, sign, start, stop, slope)
    touch = np.where(touch >= start, np.minimum(touch, stop), start)  # any point of the piece will do
    value = sign * row.value(touch)
    tangent = sign * np.where(touch >= stop, row.slope(touch, -1), row.slope(touch, 1))
    worst = np.maximum((tangent - slope) * (start - touch), (tangent - slope) * (stop - touch))
    above = value - slope * touch + worst
    reach = np.maximum(np.abs(start), np.abs(stop))
    error = _value_error(row, value) + _slope_error(row, tangent, start, stop) * (stop - start)
    return above + (error + 16.0 * U * ((np.abs(tangent) + np.abs(slope)) * reach + np.abs(above)))


def _steepest(row: Activation, like: Array) -> Array:
    """At least |φ'| anywhere."""
    ends = row.slope_range(np.full(like.shape, -np.inf), np.full(like.shape, np.inf))
    return np.maximum(np.abs(ends[0]), np.abs(ends[1])) * UP


_MARKS: Final = np.linspace(-1.0, 1.0, 11)
"""Ends of the ten cells that an interval is cut into."""
_BEND: Final = 2.0**-40
"""Far more than the error of a second derivative, relative to the largest there is."""
_FINE: Final = np.linspace(-1.0, 1.0, 1025)[:, None]
"""Ends of the cells where a parabola is given."""
_SHORT: Final = 2.0**-900
"""Shorter intervals than this are taken to be as long."""


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
    whole = Near.between(*interval)
    middle, reach = whole.value, np.maximum(whole.error, _SHORT)
    v = middle + reach * _MARKS.reshape(-1, *[1] * middle.ndim)  # ascending, as rounding is monotone
    v[0], v[-1] = np.minimum(v[0], interval[0]), np.maximum(v[-1], interval[1])
    cells = _Cells(neurons, v, center)
    kinked = np.asarray(cells.jumps.any(axis=0))
    suggested = slope_parabola(cells.slopes, cells.s, middle - center, reach, kinked, cost)
    t, c = (np.where(np.isfinite(part), part, 0.0) for part in suggested)
    found, far = Near.between(*cells.rest(t, c)), cells.far
    slope, error = found.value, found.error
    alpha, beta = slope_bounds(neurons, v[0], v[-1])
    apart = up(np.maximum(beta - slope, slope - alpha))
    values, start = neurons.value(v), neurons.value(center)
    gap = values - start - ((c / 6.0 * cells.s + 0.5 * t) * cells.s + slope) * cells.s
    shift = 0.5 * gap.max(axis=0) + 0.5 * gap.min(axis=0)  # the error of a parabola is odd, its integral on one side
    start, gap = start + shift, np.abs(gap - shift)
    size = np.abs(values).max(axis=0) + np.abs(start) + 2.0 * np.abs(shift)
    size = size + (np.abs(slope) + (np.abs(t) + np.abs(c) * far) * far) * far
    room = value_error(neurons, values).max(axis=0) + rounded_off(size, 32)
    rest = 0.5 * (gap[1:] + gap[:-1]).max(axis=0) + 0.5 * error * cells.width + room
    return Fit(start, slope, t, c, error, apart, inflate(rest, 8))


class _Cells:
    """Points v, (points, ...), and what φ' does between them.

    ``s`` is v - center as computed and ``far`` the largest; of each cell, how far φ' is ``above`` and ``below`` its
    chord, and whether it may jump; the largest |φ''| and ``width``.
    """

    def __init__(self, neurons: Neurons, v: Array, center: Array) -> None:
        self.neurons, self.v, self.s, self.width = neurons, v, v - center, up((v[1:] - v[:-1]).max(axis=0))
        self.far, self.slopes = np.maximum(np.abs(self.s[0]), np.abs(self.s[-1])), neurons.slope(v)
        self.above, self.below, self.bent, self.jumps = neurons.gather(_between, v, self.width[None])

    def rest(self, t: Array, c: Array) -> tuple[Array, Array]:
        """At most and at least φ' - t·s - c·s²/2 between the points."""
        poly = (0.5 * c * self.s + t) * self.s
        bulge = c * self.width
        bulge = 0.125 * bulge * self.width
        size = np.abs(self.slopes).max(axis=0) + (np.abs(t) + np.abs(c) * self.far) * self.far + np.abs(bulge)
        lost = self.neurons.gather(lambda row, slope, v: (_formula_error(row, slope, v),), self.slopes, self.v)[0]
        lost = lost.max(axis=0) + _BEND * self.bent * self.width
        wide = lost + rounded_off(size, 16)
        ends = self.slopes - poly
        roof = np.maximum(ends[1:], ends[:-1]) + self.above
        floor = np.minimum(ends[1:], ends[:-1]) - self.below
        some = self.jumps.reshape(len(self.jumps), -1).any(axis=1)
        if some.any():  # there the range of φ' serves
            left, right, jumps = poly[:-1][some], poly[1:][some], self.jumps[some]
            least, most = slope_bounds(self.neurons, self.v[:-1][some], self.v[1:][some])
            more = np.abs(bulge) + rounded_off(np.maximum(np.abs(least), np.abs(most)), 8)
            roof[some] = np.where(jumps, most - np.minimum(left, right) + more, roof[some])
            floor[some] = np.where(jumps, least - np.maximum(left, right) - more, floor[some])
        top = roof.max(axis=0) + np.maximum(bulge, 0.0) + wide
        return floor.min(axis=0) + np.minimum(bulge, 0.0) - wide, top


def _between(row: Activation, points: Array, cells: Array) -> tuple[Array, ...]:
    """Of each cell, how far φ' is above and below its chord; the largest |φ''| anywhere; whether φ' may jump."""
    left, right, bends = points[:-1], points[1:], row.bend(points)
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
    jumps = (right - left >= 0.5 * row.row.period) | row.whole_period(points[:1], points[-1:]) | (not row.row.smooth)
    for _, inside in row.knots_inside(down(left), up(right)) if row.row.kinks else ():
        jumps |= inside
    return above, below, largest, jumps


def fit_error(neurons: Neurons, center: Array, error: Array, reach: Array, slopes: Array) -> Array:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ reach and |c - center| ≤ error, (neurons,); σ, τ, ψ = slopes.

    With s = c + Δ - center the parabola at Δ is at most (|τ| + |ψ||s| + |ψ|error)·error from that at s.
    """
    sigma, tau, psi = slopes
    extent = up(reach + error)
    v = center + _FINE * extent
    v[0], v[-1] = down(center - extent), up(center + extent)
    cells = _Cells(neurons, v, center)
    bottom, top = cells.rest(tau, psi)
    away = np.maximum(top - sigma, sigma - bottom)
    return inflate(np.maximum(away, 0.0) + (np.abs(tau) + np.abs(psi) * (cells.far + error)) * error, 8)
