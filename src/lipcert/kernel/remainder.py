"""How far the slope of an activation, and the activation itself, are from polynomials on an interval; proved.

The polynomials are parabolas for φ' and cubics for φ. The interval is cut into cells. On a cell φ' is at most
(b - a)·width/4 from its chord where a ≤ φ'' ≤ b, and on one side of it where φ'' is monotone; a polynomial is a known
distance from its own chord. Where φ' jumps, or nothing is known of φ'', the range of φ' on the cell serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lipcert.kernel.arithmetic import Near, down, inflate, rounded_off, up
from lipcert.kernel.neuron_bounds import slope_bounds, slope_error, value_error
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Neurons
from lipcert.suggest.lines import slope_parabola

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
        lost = slope_error(self.neurons, self.slopes, self.v).max(axis=0) + _BEND * self.bent * self.width
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
