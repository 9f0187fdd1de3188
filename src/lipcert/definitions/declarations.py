"""Declared facts about an activation, held against ball arithmetic.

The range is cut until every part shows that φ'' has the sign that its neighbours have, or the opposite one, which is an
error. What no part shows stays declared: what lies beyond the range, and how formulas round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from flint import arb, arb_series

from lipcert.definitions.functions import ball, jet, precision
from lipcert.definitions.rows import gate
from lipcert.errors import InvalidInput
from lipcert.model.declared import Definition, Formula, evaluated

_BITS: Final = 400
_FAR: Final = 64.0
"""The range is at least so wide to both sides."""
_FINEST: Final = 1e-7
"""Parts of this size, relative to where they are, are not cut further."""
_SAMPLES: Final = 4003
"""Points of a piece at which its formula is looked at before it is cut."""
_MOST: Final = 6000
"""Parts of a piece."""
_NOTHING: Final = 1e-16
"""Floats below this are not told apart when a jump is looked for."""
_JUMP: Final = 2.0**-46
"""A formula that changes by more, relatively, within four floats has a jump."""
_ROUNDED: Final = 2.0**-51
"""So far apart may a derivative and the formula for it be, relatively."""
_CHARGED: Final = 2.0**-48
"""32 units u of the size of results and of terms are charged for rounding; a quarter of them may be seen."""


def checked(definition: Definition) -> Definition:
    """The definition with its shape, and a note of what was checked; InvalidInput where a declared fact is wrong."""
    periodic, knots = np.isfinite(definition.period), definition.knots
    far = max([_FAR, *(4.0 * abs(knot) for knot in knots)])
    low, high = (knots[0], knots[0] + definition.period) if periodic else (-far, far)
    with precision(_BITS):
        rng = np.random.default_rng(5)
        near = [k + s * 10.0 ** rng.uniform(-9, 0.5) for k in (*knots, 0.0) for s in (-1, 1) for _ in range(12)]
        points = [*rng.uniform(low, high, 150), *rng.uniform(max(low, -8.0), min(high, 8.0), 150), *near]
        for x in points:
            if low < x < high and x not in knots:
                _at_a_point(definition, float(x))
        _continuous("value", definition.value, low, high, definition)
        _continuous("slope", definition.slope, low, high, definition)
        shape, doubts = _monotone(definition, definition.slope, knots, (low, high), "turning_points")
        if definition.bend is not None:
            doubts += _monotone(definition, definition.bend, definition.turns, (low, high), "bend_turning_points")[1]
        if not periodic:
            for side, limit, sense in ((-1, definition.ends[0], shape[0]), (1, definition.ends[1], shape[-1])):
                _towards_infinity(definition, side, limit, side * sense, far)
    where = "over a whole period" if periodic else f"from {low:g} to {high:g}"
    doubt = f", but not near {', '.join(f'{x:.6g}' for x in doubts[:3])}" if doubts else ""
    note = f"turning points checked by ball arithmetic {where}{doubt}; the rest declared, rounding measured"
    return replace(definition, shape=tuple(shape), note=note)


def _at_a_point(definition: Definition, x: float) -> None:
    """Raise if the formulas are not each other's derivatives at a point, leave the extent, or round too much."""
    here, (least, most) = ball(x), definition.extent
    value, rate = _jet(definition.value, here)
    slope, bend = _jet(definition.slope, here)
    if not abs(rate - slope) <= ball(_ROUNDED) * (abs(slope) + ball(definition.rounding)):  # constants may be rounded
        raise InvalidInput(
            f"slope is {float(slope):.17g} at {x:.17g}, where value has the derivative {float(rate):.17g}"
        )
    if definition.bend is not None:
        stated = _jet(definition.bend, here)[0]
        if not abs(bend - stated) <= ball(_ROUNDED) * (abs(stated) + 1):
            raise InvalidInput(f"bend is not the derivative of slope at {x:.17g}, where that is {float(bend):.17g}")
    rest = value - ball(definition.drift) * here
    if rest < ball(least) or rest > ball(most):
        raise InvalidInput(f"extent is ({least:g}, {most:g}), but at {x:.6g} there is {float(rest):.17g}")
    if np.isfinite(definition.period):
        moved = ball(x + definition.period)
        rise = _jet(definition.value, moved)[0] - ball(definition.drift) * moved - rest
        if not abs(rise) < ball(_CHARGED) * (abs(rate) + 1) * (1 + abs(moved)):
            raise InvalidInput(f"value - drift·x changes by {float(rise):.6g} over a period at {x:.6g}")
    for name, formula, true in (("value", definition.value, value), ("slope", definition.slope, slope)):
        number = float(evaluated(formula, np.array(x)))
        size = abs(number) + definition.rounding
        if definition.tails and 0.0 < abs(number) < 1.0:
            size -= abs(number) * float(np.log(abs(number)))
        if not abs(ball(number) - true) <= ball(0.25 * _CHARGED * size):
            raise InvalidInput(
                f"{name} is {number:.17g} at {x:.17g} in floating point, and {float(true):.17g} in truth: more than"
                f" rounding={definition.rounding:g} allows. Give the size of the terms that cancel, and tails=True"
                " where an exponent is rounded"
            )


def _continuous(name: str, formula: Formula, low: float, high: float, definition: Definition) -> None:
    """Raise where a formula jumps: parts on which it has no finite derivative are cut until a few floats are left.

    Only φ' may jump, at a declared kink; floats next to the kink must then have the slopes of their side.
    """
    settled = lambda one, two: _jet(formula, ball(one).union(ball(two)))[1].is_finite()  # noqa: E731
    for one, two in _unsettled(low, high, settled, lambda x: 4.0 * np.spacing(max(abs(x), _NOTHING))):
        pairs = [(one, two)]
        for knot in definition.knots:
            if one <= knot <= two and definition.kinks and name == "slope":
                pairs = [(one, float(np.nextafter(knot, -np.inf))), (float(np.nextafter(knot, np.inf)), two)]
        for left, right in ((_jet(formula, ball(a))[0], _jet(formula, ball(b))[0]) for a, b in pairs if a < b):
            if not abs(right - left) <= ball(_JUMP) * (abs(left) + ball(definition.rounding)):
                advice = "turning_points lacks its exact place, or kinks=True is missing"
                raise InvalidInput(f"{name} jumps near {one:.9g}{f'; {advice}' if name == 'slope' else ''}")


def _unsettled(
    low: float, high: float, settled: Callable[[float, float], bool], finest: Callable[[float], float]
) -> Iterator[tuple[float, float]]:
    """The parts of an interval that are not settled, however finely it is cut: to the finest size near a point."""
    todo, seen = [(low, high)], 0
    while todo:
        one, two = todo.pop()
        if settled(one, two):
            continue
        seen += 1
        if two - one > finest(max(one, two, key=abs)) and seen <= _MOST:
            middle = 0.5 * one + 0.5 * two
            todo += [(middle, two), (one, middle)]
        else:
            yield one, two


def _towards_infinity(definition: Definition, side: int, limit: float, sense: int, far: float) -> None:
    """Raise if φ' does not approach its limit from the side, and in the way, of the outer piece."""
    found = [_jet(definition.slope, ball(side * far * 4.0**k))[0] for k in range(29)]
    rates = [rate for rate in found if rate.is_finite()]
    if np.isfinite(limit):
        near = bool(rates) and bool(abs(rates[-1] - ball(limit)) <= ball(1e-3 * max(1.0, abs(limit))))
        room, path = ball(1e-9 * max(definition.rounding, abs(limit))), [*rates, ball(limit)]
    else:
        near, room, path = sense * limit > 0.0, ball(1e-9 * definition.rounding), rates
    steps = [two - one for one, two in pairwise(path)]
    if not near or any((-sense * step if sense else abs(step)) > room for step in steps):
        raise InvalidInput(
            f"limits or turning_points are wrong towards {'+∞' if side > 0 else '-∞'}: slopes there are"
            f" {', '.join(f'{float(rate):.6g}' for rate in (*rates[:1], *rates[-1:]))}, the limit is {limit:g}"
        )


def _monotone(
    definition: Definition, formula: Formula, points: tuple[float, ...], ends: tuple[float, float], name: str
) -> tuple[list[int], list[float]]:
    """Show that a formula is monotone between points; return how it goes there, and places where that is open."""
    turns = (-1, 0, 1) if np.isfinite(definition.period) else (0,)
    marks = [k + turn * definition.period if turn else k for turn in turns for k in points]
    marks = sorted({*ends, *(k for k in marks if ends[0] < k < ends[1])})
    senses, doubts = [], list[float]()
    for low, high in pairwise(marks):
        grid = np.linspace(low, high, _SAMPLES)[1:-1]
        rates = evaluated(formula, grid)
        room = 1e-12 * (definition.rounding + np.abs(rates).max())
        found = {sign: grid[:-1][sign * np.diff(rates) > room].tolist() for sign in (-1, 1)}
        if not (found[-1] and found[1]):
            signs, open_ = _signs(formula, low, high, marks)
            found, doubts = {sign: found[sign] + signs[sign] for sign in (-1, 1)}, doubts + open_
            if open_ and not (found[-1] or found[1]):
                raise InvalidInput(f"{name}: nothing shows how the formula goes between {low:.6g} and {high:.6g}")
        if found[-1] and found[1]:
            where = f"it rises near {found[1][0]:.6g} and falls near {found[-1][0]:.6g}"
            raise InvalidInput(f"{name} lacks a point between {low:.6g} and {high:.6g}: {where}")
        senses.append(bool(found[1]) - bool(found[-1]))
    return senses, doubts


def _signs(formula: Formula, low: float, high: float, marks: list[float]) -> tuple[dict[int, list[float]], list[float]]:
    """Where the derivative of a formula is shown to be negative or positive between two marks, and where it is open."""
    found: dict[int, list[float]] = {-1: [], 1: []}

    def settled(one: float, two: float) -> bool:
        rate = _jet(formula, ball(one).union(ball(two)))[1]
        shown = rate.is_finite() and (rate > 0 or rate < 0)
        if shown:
            found[1 if rate > 0 else -1].append(0.5 * one + 0.5 * two)
        return bool(shown or rate.is_zero() or (found[-1] and found[1]))

    def finest(x: float) -> float:
        return _FINEST * max(1.0, abs(x))

    middles = [0.5 * one + 0.5 * two for one, two in _unsettled(low, high, settled, finest)]
    return found, [x for x in middles if min(abs(x - mark) for mark in marks) > 4.0 * finest(x)]


def _jet(formula: Formula, v: arb) -> tuple[arb, arb]:
    """Value and derivative of a formula, at every point of a ball."""
    try:
        return jet(lambda x: _at(formula, x), v)
    except (ValueError, ZeroDivisionError):  # a ball that is too wide for a quotient
        return arb.nan(), arb.nan()


def _at(formula: Formula, x: Any) -> Any:
    if not isinstance(formula, tuple):
        return x if formula == "x" else arb_series([ball(formula) if isinstance(formula, float) else arb(formula)])
    name, *parts = formula
    if name == "power":
        found = one = _at(parts[0], x)
        for _ in range(parts[1] - 1):
            found = found * one
        return found
    return _RULES[name](*(_at(part, x) for part in parts))


def _head(x: Any) -> arb:
    return x[0] if isinstance(x, arb_series) else arb(x)


def _chosen(a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` where a > b, else ``no``; where it may be either, both values count, and no derivative is known."""
    one, two = _head(a), _head(b)
    if one > two or one < two:
        return yes if one > two else no
    return arb_series([_head(yes).union(_head(no)), arb.nan()])


def _larger(a: Any, b: Any) -> Any:
    return _chosen(a, b, a, b)


def _above(a: Any, b: Any) -> Any:
    """One where a comparison holds, else zero."""
    return _chosen(a, b, arb_series([1]), arb_series([0]))


_RULES: Final[dict[str, Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda a: -a,
    "square": lambda a: a * a,
    "sqrt": lambda a: a.sqrt(),
    "exp": lambda a: a.exp(),
    "expm1": lambda a: a.exp() - 1,
    "log": lambda a: a.log(),
    "log1p": lambda a: (1 + a).log(),
    "logaddexp": lambda a, b: (a.exp() + b.exp()).log(),
    "sin": lambda a: a.sin(),
    "cos": lambda a: a.cos(),
    "sinh": lambda a: (a.exp() - (-a).exp()) / 2,
    "cosh": lambda a: (a.exp() + (-a).exp()) / 2,
    "tanh": lambda a: 2 * gate(2 * a) - 1,
    "arctan": lambda a: a.atan(),
    "absolute": lambda a: _larger(a, -a),
    "maximum": _larger,
    "minimum": lambda a, b: -_larger(-a, -b),
    "greater": _above,
    "greater_equal": _above,
    "less": lambda a, b: _above(b, a),
    "less_equal": lambda a, b: _above(b, a),
    "where": lambda condition, a, b: _chosen(condition, 0.5, a, b),
    "expit": gate,
    "erf": lambda a: a.erf(),
    "erfc": lambda a: a.erfc(),
    "ndtr": lambda a: (-a / arb(2).sqrt()).erfc() / 2,
}
"""Each function of a formula, on power series of balls."""
