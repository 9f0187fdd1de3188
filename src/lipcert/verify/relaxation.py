"""Slopes, values and bounding lines of activations, outward-rounded.

Elementary functions are trusted to WIDEN, far more than the few units in the last place that libraries lose. Rows whose
derivative is a difference of terms of size one are widened by that much absolutely as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lipcert.activations import CONCAVE, Activation
from lipcert.network import Neurons
from lipcert.typing import Array
from lipcert.verify.rounding import TINY, UP, U

WIDEN: Final = 2.0**-48
_EXACT: Final = {"identity", "relu", "leaky_relu", "relu6", "hardtanh", "hardsigmoid"}
"""Rows whose slopes are numbers of the table itself, computed without rounding."""
_CANCELLING: Final = {"silu", "gelu", "gelu_tanh", "mish", "sin", "hardswish"}
_HALVINGS: Final = 45


def slope_bounds(neurons: Neurons, lower: Array, upper: Array) -> tuple[Array, Array]:
    """α ≤ every slope of φ on [lower, upper] ≤ β, in real arithmetic."""

    def rule(row: Activation, low: Array, high: Array) -> tuple[Array, Array]:
        alpha, beta = row.slope_range(low, high)
        return alpha - _slope_error(row, alpha), beta + _slope_error(row, beta)

    alpha, beta = neurons.gather(rule, lower, upper)
    return alpha, beta


def _slope_error(row: Activation, slope: Array) -> Array:
    if row.name in _EXACT:
        return np.zeros(np.shape(slope))
    return WIDEN * (np.abs(slope) + (1.0 if row.name in _CANCELLING else 0.0)) + TINY


def _value_error(row: Activation, value: Array) -> Array:
    return WIDEN * (np.abs(value) + (1.0 if row.name == "sin" else 0.0)) + TINY


def value_error(neurons: Neurons, values: Array) -> Array:
    """At least the error of computed values φ(v)."""
    return neurons.gather(lambda row, part: (_value_error(row, part),), values)[0]


@dataclass(frozen=True, eq=False)
class Relaxation:
    """What one layer contributes to back-substitution, true for every value in its intervals.

    lower_slope·v + lower_offset ≤ φ(v) ≤ upper_slope·v + upper_offset, floor ≤ φ(v) ≤ roof, |v| ≤ v_size.
    """

    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array
    floor: Array
    roof: Array
    v_size: Array

    @property
    def z_size(self) -> Array:
        """At least |φ(v)|."""
        return np.maximum(np.abs(self.floor), np.abs(self.roof))


def relax(neurons: Neurons, lower: Array, upper: Array, lower_slope: Array, upper_slope: Array) -> Relaxation:
    """Offsets for lines of the given slopes, and bounds of the values."""

    def rule(row: Activation, low: Array, high: Array, below: Array, above: Array) -> tuple[Array, ...]:
        offsets = -_highest(row, -1, low, high, -below), _highest(row, 1, low, high, above)
        return (*offsets, -_highest(row, -1, low, high, 0.0 * below), _highest(row, 1, low, high, 0.0 * above))

    lower_offset, upper_offset, floor, roof = neurons.gather(rule, lower, upper, lower_slope, upper_slope)
    size = np.maximum(np.abs(lower), np.abs(upper))
    return Relaxation(lower_slope, lower_offset, upper_slope, upper_offset, floor, roof, size)


def _highest(row: Activation, sign: int, lower: Array, upper: Array, slope: Array) -> Array:
    """At least max of sign·φ(v) - slope·v over [lower, upper], for finite intervals.

    On a piece where sign·φ is convex the maximum is at an end. Where it is concave every tangent lies above it, and the
    largest value of tangent minus line is at an end again; the tangent of the line's own slope makes that sharp.
    """
    best = np.full(lower.shape, -np.inf)
    parameters = row.parameters
    inner = [np.clip(knot, lower, upper) for knot in row.row.knots(lower, *parameters)]
    marks = [lower, *inner, upper]
    for start, stop, shape in zip(marks[:-1], marks[1:], row.row.shape(lower, *parameters), strict=True):
        concave = np.broadcast_to(sign * np.asarray(shape) == CONCAVE, lower.shape)
        touch = _touching(row, sign, start, stop, slope) if concave.any() else start
        value = sign * row.value(touch)
        tangent = sign * np.where(touch >= stop, row.slope(touch, -1), row.slope(touch, 1))
        reach = np.maximum(np.abs(start), np.abs(stop))
        worst = np.maximum((tangent - slope) * (start - touch), (tangent - slope) * (stop - touch))
        above = value - slope * touch + worst
        above_error = _value_error(row, value) + _slope_error(row, tangent) * (stop - start)
        above_error = above_error + 8.0 * U * ((np.abs(tangent) + np.abs(slope)) * reach + np.abs(above))
        ends = [sign * row.value(end) - slope * end for end in (start, stop)]
        ends_error = [
            _value_error(row, row.value(end)) + 4.0 * U * (np.abs(slope * end) + np.abs(row.value(end)))
            for end in (start, stop)
        ]
        at_ends = np.maximum(ends[0] + ends_error[0], ends[1] + ends_error[1])
        highest = np.where(concave, np.maximum(above + above_error, at_ends), at_ends)
        # a rounded knot may lie a little off the true one: the piece then borrows what the slopes allow there
        off = 0.0 if row.row.exact else 8.0 * np.spacing(reach) * (1.5 + np.abs(slope))
        best = np.where((start < stop) | (lower == upper), np.maximum(best, highest + off), best)
    if np.isfinite(row.row.period):
        _, most = row.row.extent(*parameters)
        flat = np.abs(slope) * np.maximum(np.abs(lower), np.abs(upper)) * UP + np.asarray(most) * (1.0 + WIDEN)
        best = np.where(upper - lower >= row.row.period, flat, best)
    return best


def _touching(row: Activation, sign: int, start: Array, stop: Array, slope: Array) -> Array:
    """The point of a concave piece with the given slope, or the nearer end; only sharpness depends on it."""
    low, high = np.array(start), np.array(stop)
    for _ in range(_HALVINGS):
        middle = 0.5 * low + 0.5 * high
        steep = sign * row.slope(middle, 1) > slope
        low, high = np.where(steep, middle, low), np.where(steep, high, middle)
    return low
