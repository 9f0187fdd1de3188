"""Two parabolas around an activation on an interval, and its secants, seen from one point of the interval; proved.

Between a point c and a point v of the interval, a smooth φ leaves its tangent at c with the square of Δ = v - c. How
fast is found on cells that grow with their distance from c: on each, φ lies between two lines through one end whose
slopes are those of φ there, and a line over Δ² or over Δ has its extremes at the ends of the cell or at one point that
is known. Close to c nothing is asked of the second derivative: what φ can do there, by its slopes, goes into a
constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.proof.neuron_bounds import slope_bounds, value_error
from lipcert.proof.rounding import TINY, UP, U, down, twice_above, up

_SHARES: Final = 0.95 ** np.arange(120.0)[::-1, None]
"""Ends of the cells, as shares of the way from c to the end of the interval; the first is 1/450."""
_RELATIVE: Final = 2.0**-40
"""Far more than the roundings of a quotient, a square or a product, relative."""
_RESOLVED: Final = 2.0**-30
"""Shorter ways than this, relative to c, are not cut into cells."""


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
