"""Parabolas and lines near the slope of an activation; the proof finds out how near they are."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from lipcert.model.arrays import Array

_BETTER: Final = 0.8
"""A parabola must make the error so much smaller than a line, or the line serves."""
_RESOLVED: Final = 2.0**-30
"""Shorter intervals than this, relative to their distance from the point, have no parabola that means anything."""


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
