"""User-defined activations: functions that are traced to formulas, facts about them, and piecewise linear ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from lipcert.arguments.numbers import ALIASES, PRESETS, numbers
from lipcert.errors import InvalidInput
from lipcert.model.activations import MOST_KINKS, PIECES, POSITIVE, TABLE, Activation
from lipcert.model.arrays import Array

Function = Callable[[Any], Any]


def define_activation(
    name: str,
    value: Function,
    slope: Function,
    turning_points: Sequence[float],
    limits: Sequence[float],
    *,
    kinks: bool = False,
    rounding: float = 1.0,
) -> Activation:
    """Define an activation by formulas, for ``Network.from_weights``.

    What you declare is checked as far as possible, by python-flint (``pip install "lipcert[exact]"``). The turning
    points are proved to be complete up to 64 or four times the farthest of them. Beyond that, and for the rounding of
    the formulas, your word counts. So every answer about such a network says *declared*: the digest begins so, and
    ``certificate.declared`` is true. ``verify`` needs a network with the same declaration.

    Parameters
    ----------
    name
        A new name.
    value, slope
        φ and φ', as functions of a numpy array, written with numpy's functions (and expit, erf, erfc, ndtr of
        ``scipy.special``). They are called once, to record the formula.
    turning_points
        All points where φ' stops rising or falling, and all kinks.
    limits
        The slopes at -∞ and +∞; infinite if unbounded.
    kinks
        Whether φ' jumps at turning points. They must then be exact, and ``slope`` must be right on both sides.
    rounding
        Size of the terms that cancel in the formulas; 32 units of roundoff of it are charged.

    Raises
    ------
    InvalidInput
        If a declared fact is wrong; the message says where.
    LipcertError
        If python-flint is not installed.

    Examples
    --------
    >>> import lipcert as lc
    >>> gauss = lc.define_activation("gauss", lambda v: np.exp(-v * v), lambda v: -2 * v * np.exp(-v * v),
    ...                              [-np.sqrt(0.5), np.sqrt(0.5)], limits=(0, 0))
    >>> lc.certify(lc.Network.from_weights([[[2.0]], [[1.0]]], activation=gauss), method=lc.ClosedForm()).declared
    True
    """
    from lipcert.definitions.declarations import Definition, checked, define
    from lipcert.definitions.formulas import recorded

    known = {*TABLE, *POSITIVE, *PRESETS, *ALIASES}
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", name) or name.lower() in known:
        raise InvalidInput(f"name must be a name of your own, of letters, digits and underscores, got {name!r}")
    knots = _points("turning_points", turning_points)
    formula, rate = recorded("value", value), recorded("slope", slope)
    ends, cancelling = _pair("limits", limits), abs(_number("rounding", rounding))
    definition = Definition(name, formula, rate, knots, ends, bool(kinks), cancelling)
    return Activation(define(checked(definition)))


def _number(name: str, value: Any) -> float:
    number = numbers(name, value)
    if number.ndim:
        raise InvalidInput(f"{name} must be a number, got {value!r}")
    return float(number)


def _pair(name: str, value: Any) -> tuple[float, float]:
    with suppress(TypeError, ValueError):
        low, high = (float(end) for end in value)
        if not np.isnan([low, high]).any():
            return low, high
    raise InvalidInput(f"{name} must be two numbers, got {value!r}")


def _points(name: str, values: Any) -> tuple[float, ...]:
    points = numbers(name, values) if np.size(values) else np.zeros(0)
    if points.ndim != 1 or (np.diff(points) <= 0.0).any():
        raise InvalidInput(f"{name} must be ascending numbers, got {values!r}")
    return tuple(points.tolist())


def piecewise_linear(knots: Sequence[float] | Array, slopes: Sequence[float] | Array, value: float = 0.0) -> Activation:
    """The continuous piecewise linear activation with given kinks and slopes; exact.

    Parameters
    ----------
    knots
        Where the slope changes, ascending.
    slopes
        One more than there are knots: left of the first, between them, right of the last.
    value
        φ at the first knot.

    Examples
    --------
    >>> hat = piecewise_linear([-1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 0.0])
    >>> hat.value(np.array([-2.0, 0.0, 0.25])).tolist()
    [0.0, 1.0, 0.75]
    """
    points, rates, start = numbers("knots", knots), numbers("slopes", slopes), _number("value", value)
    if points.ndim != 1 or not 1 <= points.size <= MOST_KINKS:
        raise InvalidInput(f"knots must be 1 to {MOST_KINKS} numbers, got shape {points.shape}")
    if rates.shape != (points.size + 1,):
        raise InvalidInput(f"slopes must be {points.size + 1} numbers for {points.size} knots, got shape {rates.shape}")
    return Activation(f"{PIECES}{points.size}", (*points.tolist(), *rates.tolist(), start))
