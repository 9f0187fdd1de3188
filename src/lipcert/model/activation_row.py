"""What a row of the activation table states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lipcert.model.arrays import Array, Parameter

CONVEX: Final = 1
STRAIGHT: Final = 0
CONCAVE: Final = -1


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
    ends : slopes at -∞ and +∞.
    extent : infimum and supremum of φ on the whole line.
    why : the reason the numbers hold.
    loss : what the formulas of value and slope lose to rounding; measured against ball arithmetic by the tests.
    kinks : whether φ' may jump at the knots.
    exact : whether the knots are exact floating-point numbers.
    period : of φ', if it is periodic; an interval that long has the slope range [-1, 1] and touches the extent.
    parameters : names and defaults, in the order the callables take them.
    legal : predicate the parameters must satisfy, with its description; for all others the numbers are not proved.
    bend : the second derivative from the given side, with an error far below 2⁻⁴⁰ of the largest it takes; the side
        matters at turns only. Zero is the bend of straight pieces.
    turns : ascending points between which φ'' is monotone, among them all where it jumps; like knots where periodic.
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
    parameters: Mapping[str, float] = field(default_factory=dict)
    legal: tuple[Callable[..., bool], str] = (lambda *_: True, "")
    bend: Callable[..., Array] = lambda v, *_: np.zeros_like(v)
    turns: Callable[..., Sequence[Parameter]] = lambda *_: ()
