"""What a row of the activation table states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lipcert.model.arrays import Array, Parameter

CONVEX: Final = 1
STRAIGHT: Final = 0
CONCAVE: Final = -1
"""The sign of φ'' on a piece."""


@dataclass(frozen=True)
class Loss:
    """What the formulas of a row lose to rounding, beyond 32 units u = 2⁻⁵³ of the size of their result.

    Attributes
    ----------
    slope_terms : size of the terms that cancel in a slope: 32 units of it may be lost as well. None if slopes are
        numbers of the table or parameters, computed without rounding.
    slope_tail, value_tail : whether an exponent is itself rounded, so that a slope or value below one loses that much
        for each power of e that it is below one.
    value_terms : size of the terms that cancel in a value, for given parameters.
    """

    slope_terms: float | None
    slope_tail: bool
    value_tail: bool
    value_terms: Callable[..., Parameter]


def no_terms(*_: Parameter) -> Parameter:
    """Nothing cancels."""
    return 0.0


NO_ROUNDING: Final = Loss(slope_terms=None, slope_tail=False, value_tail=False, value_terms=no_terms)
"""Straight pieces, whose slopes are stored."""
USUAL: Final = Loss(slope_terms=0.0, slope_tail=False, value_tail=False, value_terms=no_terms)
"""Products and quotients of elementary functions, in which nothing cancels."""


@dataclass(frozen=True)
class Row:
    """The facts about one activation φ; every callable takes the parameters after its first arguments.

    Attributes
    ----------
    value : φ(v).
    slope : the derivative from the given side (-1 left, +1 right); the side matters at kinks only.
    knots : ascending points where φ' is not monotone; for periodic rows those from the given point on.
    shape : curvature of each piece between the knots, one more than there are knots.
    ends : slopes at -∞ and +∞, infinite where they grow without end; for periodic rows the least and the largest slope.
    extent : infimum and supremum of φ(v) - drift·v on the whole line.
    why : the reason the numbers hold.
    loss : what the formulas of value and slope lose to rounding; measured against ball arithmetic by the tests.
    kinks : whether φ' may jump at the knots.
    exact : whether the knots are exact floating-point numbers.
    period : of φ', if it is periodic; an interval that long has all slopes and touches the extent.
    drift : the mean slope of a periodic row: φ(v) - drift·v is periodic.
    parameters : names and defaults, in the order the callables take them.
    legal : predicate the parameters must satisfy, with its description; for all others the numbers are not proved.
    bend : the second derivative from the given side, with an error far below 2⁻⁴⁰ of the largest it takes; the side
        matters at turns only. Zero is the bend of straight pieces.
    turns : ascending points between which φ'' is monotone, among them all where it jumps; like knots where periodic.
    smooth : whether bend and turns are known; where they are not, nothing is said of φ''.
    declared : what of the facts rests on somebody's word, in words; empty for the rows of the table.
    """

    value: Callable[..., Array]
    slope: Callable[..., Array]
    knots: Callable[..., Sequence[Parameter]]
    shape: Callable[..., Sequence[Parameter]]
    ends: Callable[..., tuple[Parameter, Parameter]]
    extent: Callable[..., tuple[Parameter, Parameter]]
    why: str
    loss: Loss
    kinks: bool = False
    exact: bool = True
    period: float = np.inf
    drift: float = 0.0
    parameters: Mapping[str, float] = field(default_factory=dict)
    legal: tuple[Callable[..., bool], str] = (lambda *_: True, "")
    bend: Callable[..., Array] = lambda v, *_: np.zeros_like(v)
    turns: Callable[..., Sequence[Parameter]] = lambda *_: ()
    smooth: bool = True
    declared: str = ""

    def unit(self, v: Array) -> Array:
        """The size whose roundings rounded knots near v carry; periodic ones were moved by periods."""
        return np.maximum(np.abs(v), self.period if np.isfinite(self.period) else 0.0)


def always(**facts: Sequence[Parameter]) -> dict[str, Any]:
    """Facts that depend on no parameter and no point, as the callables that a row has for them."""
    return {name: lambda *_, fact=fact: fact for name, fact in facts.items()}


def beyond(v: Array, threshold: Parameter, side: int) -> Array:
    """Whether a point just off v, on the given side, exceeds the threshold."""
    return np.asarray(v >= threshold if side > 0 else v > threshold)


def recurring(points: Sequence[float], period: float) -> Callable[..., Sequence[Parameter]]:
    """Ascending points that come again with a period, as a function of a start: all up to a period beyond it.

    Some may lie before the start, which does no harm.
    """

    def found(start: Array, *_: Parameter) -> Sequence[Parameter]:
        turn = np.floor((np.where(np.isfinite(start), start, 0.0) - points[0]) / period)
        return [point + (turn + k) * period for k, point in [*((k, p) for k in (0, 1) for p in points), (2, points[0])]]

    return found


def recurring_shape(shapes: Sequence[int]) -> Callable[..., Sequence[Parameter]]:
    """The shape of the pieces that begin at recurring points, of which the first belongs to the last point before."""
    found = (shapes[-1], *shapes, *shapes, shapes[0])
    return lambda *_: found


LIMIT: Final = 1e6
"""Positive parameters lie between the inverse of this and this. So what an exponential loses to underflow stays far
below the floor of its error, powers of e are rounded by few units, and two knots never fall on one float."""


def moderate(*parameters: Parameter) -> bool:
    """Whether all parameters are within that."""
    return all(bool(np.all((np.asarray(p) >= 1.0 / LIMIT) & (np.asarray(p) <= LIMIT))) for p in parameters)
