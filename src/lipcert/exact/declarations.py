"""Declared facts about an activation, held against ball arithmetic.

The range is cut until every part shows that φ'' has the sign that was declared, or the opposite one, which is an error.
What no part shows stays declared: what lies beyond the range, and how formulas round.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from flint import arb, arb_series, ctx

from lipcert.errors import InvalidInput
from lipcert.exact.check import precision
from lipcert.exact.definitions import gate
from lipcert.exact.functions import ball
from lipcert.model.declared import Definition
from lipcert.model.formulas import Tree, evaluated

_BITS: Final = 400
_FAR: Final = 64.0
"""The range is at least so wide to both sides."""
_FINEST: Final = 1e-7
"""Parts of this size, relative to where they are, are not cut further."""
_MOST: Final = 6000
"""Parts of a piece."""
_ROUNDED: Final = 2.0**-51
"""So far apart may a derivative and the formula for it be, relatively."""
_ROOM: Final = 0.25
"""Rounding may use this share of what is charged for it; 32 units u of the size of results and of terms."""


def check(definition: Definition) -> str:
    """What was checked, in words; raise InvalidInput where a declared fact is wrong."""
    with precision(_BITS):
        low, high = _range(definition)
        _slope_is_the_derivative(definition, low, high)
        doubts = _turning_points(definition)
        _extent(definition, low, high)
        _rounding(definition, low, high)
    where = "over a whole period" if np.isfinite(definition.period) else f"from {low:g} to {high:g}"
    doubt = f", but not near {', '.join(f'{x:.6g}' for x in doubts[:3])}" if doubts else ""
    return f"turning points checked by ball arithmetic {where}{doubt}; the rest declared, rounding measured"


def _range(definition: Definition) -> tuple[float, float]:
    if np.isfinite(definition.period):
        return definition.knots[0], definition.knots[0] + definition.period
    far = max(_FAR, 4.0 * max((abs(k) for k in definition.knots), default=0.0))
    return -far, far


def _grid(definition: Definition, low: float, high: float, count: int) -> list[float]:
    """Points all over the range, closer together near turning points and at their middle, none of them a kink."""
    rng = np.random.default_rng(5)
    near = [k + s * 10.0 ** rng.uniform(-9, 0.5) for k in (*definition.knots, 0.0) for s in (-1, 1) for _ in range(12)]
    points = np.concatenate([rng.uniform(low, high, count), rng.uniform(max(low, -8.0), min(high, 8.0), count), near])
    return [float(x) for x in points if low < x < high and x not in definition.knots]


def _slope_is_the_derivative(definition: Definition, low: float, high: float) -> None:
    for x in _grid(definition, low, high, 100):
        _, rate = _jet(definition.value, ball(x))
        given, bend = _jet(definition.slope, ball(x))
        room = ball(_ROUNDED) * (abs(given) + ball(definition.rounding))  # constants may be rounded
        if not abs(rate - given) <= room:
            told = f"slope is {float(given):.17g} at {x:.17g}"
            raise InvalidInput(f"{told}, where the derivative of value is {float(rate):.17g}")
        if definition.bend is not None:
            stated = _jet(definition.bend, ball(x))[0]
            if not abs(bend - stated) <= ball(_ROUNDED) * (abs(stated) + 1):
                raise InvalidInput(f"bend is not the derivative of slope at {x:.17g}, where that is {float(bend):.17g}")


def _turning_points(definition: Definition) -> list[float]:
    """Raise where φ' (and φ'', if bend is given) turns at a point that was not declared; return where that is open."""
    doubts = _monotone(definition, definition.slope, definition.knots, "turning_points")
    if definition.bend is not None:
        doubts += _monotone(definition, definition.bend, definition.turns, "bend_turning_points")
    return doubts


def _monotone(definition: Definition, tree: Tree, points: tuple[float, ...], name: str) -> list[float]:
    """Show that a formula is monotone between points; the slope must go as its shape says."""
    low, high = _range(definition)
    periodic = np.isfinite(definition.period)
    marks = [k + turn * definition.period for turn in (-1, 0, 1) for k in points] if periodic else list(points)
    marks = sorted({low, high, *(k for k in marks if low < k < high)})
    doubts: list[float] = []
    for number, (one, two) in enumerate(pairwise(marks)):
        sense = definition.shape[number] if tree is definition.slope else None
        doubts += _one_sign(tree, one, two, sense, marks, name)
    return doubts


def _one_sign(tree: Tree, low: float, high: float, sense: int | None, marks: list[float], name: str) -> list[float]:
    """Show that the formula's derivative has one sign between two marks, the given one; return where it is open."""
    todo, doubts, seen = [(low, high)], [], 0
    while todo:
        one, two = todo.pop()
        _, rate = _jet(tree, ball(one).union(ball(two)))
        seen += 1
        if rate.is_finite() and (rate > 0 or rate < 0):
            sign = 1 if rate > 0 else -1
            if sense is None:
                sense = sign
            if sense != sign:
                raise InvalidInput(
                    f"{name} lacks a point between {low:.6g} and {high:.6g}: near {0.5 * (one + two):.6g} it goes"
                    " another way than in the rest of that piece"
                )
            continue
        if rate == 0:
            continue
        middle = 0.5 * one + 0.5 * two
        size = _FINEST * max(1.0, abs(middle))
        if two - one <= size or seen > _MOST:
            if min(abs(middle - mark) for mark in marks) > 4.0 * size:
                _no_jump(tree, one, two, name)
                doubts.append(middle)
            if seen > 2 * _MOST:
                return [*doubts, *(0.5 * (a + b) for a, b in todo)]
            continue
        todo += [(middle, two), (one, middle)]
    return doubts


def _no_jump(tree: Tree, one: float, two: float, name: str) -> None:
    left, right = (_jet(tree, ball(end))[0] for end in (one, two))
    if abs(right - left) > ball(1e-3) * (1 + abs(left)):
        raise InvalidInput(f"{name} lacks a point near {0.5 * (one + two):.6g}, where there is a jump")


def _extent(definition: Definition, low: float, high: float) -> None:
    least, most = definition.extent
    for x in _grid(definition, low, high, 200):
        value = _jet(definition.value, ball(x))[0] - ball(definition.drift) * ball(x)
        if value < ball(least) or value > ball(most):
            raise InvalidInput(f"extent is ({least:g}, {most:g}), but at {x:.6g} there is {float(value):.17g}")
        if np.isfinite(definition.period):
            moved = x + definition.period
            after, rate = _jet(definition.value, ball(moved))
            rise = after - ball(definition.drift) * ball(moved) - value
            unit = ball(2.0**-48) * (abs(rate) + 1) * (1 + abs(ball(moved)))
            if not abs(rise) < unit:
                raise InvalidInput(f"value - drift·x changes by {float(rise):.6g} over a period at {x:.6g}")


def _rounding(definition: Definition, low: float, high: float) -> None:
    points = np.array(_grid(definition, low, high, 150))
    for name, tree in (("value", definition.value), ("slope", definition.slope)):
        found = evaluated(tree, points)
        for x, number in zip(points.tolist(), found.tolist()):
            true = _jet(tree, ball(x))[0]
            size = abs(number) + definition.rounding
            if definition.tails and 0.0 < abs(number) < 1.0:
                size -= abs(number) * float(np.log(abs(number)))
            if not abs(ball(number) - true) <= ball(_ROOM * 2.0**-48 * size):
                raise InvalidInput(
                    f"{name} is {number:.17g} at {x:.17g} in floating point, and {float(true):.17g} in truth: more than"
                    f" rounding={definition.rounding:g} allows. Give the size of the terms that cancel, and tails=True"
                    " where an exponent is rounded"
                )


def _jet(tree: Tree, v: arb) -> tuple[arb, arb]:
    """Value and derivative of a formula, at every point of a ball."""
    before = ctx.cap
    ctx.cap = 2
    try:
        found = _at(tree, arb_series([v, 1]))
    except (ValueError, ZeroDivisionError):  # a ball that is too wide for a quotient
        return arb.nan(), arb.nan()
    finally:
        ctx.cap = before
    terms = [*(found.coeffs() if isinstance(found, arb_series) else [arb(found)]), arb(0), arb(0)]
    return terms[0], terms[1]


def _at(tree: Tree, x: Any) -> Any:
    if not isinstance(tree, tuple):
        return x if tree == "x" else arb_series([ball(tree) if isinstance(tree, float) else arb(tree)])
    name, *parts = tree
    if name == "power":
        return _power(_at(parts[0], x), parts[1])
    if name == "where":
        return _chosen(_truth(parts[0], x), *(_at(part, x) for part in parts[1:]))
    return _RULES[name](*(_at(part, x) for part in parts))


def _power(x: Any, exponent: int) -> Any:
    found = x
    for _ in range(exponent - 1):
        found = found * x
    return found


def _truth(tree: Tree, x: Any) -> bool | None:
    """Whether a comparison holds on the whole ball; None if on a part of it."""
    name, left, right = tree
    one, two = (_head(_at(part, x)) for part in (left, right))
    if name in ("less", "less_equal"):
        one, two = two, one
    if one > two:
        return True
    return False if one < two else None


def _head(x: Any) -> arb:
    return x[0] if isinstance(x, arb_series) else arb(x)


def _chosen(truth: bool | None, yes: Any, no: Any) -> Any:
    """One of two series; where it may be either, both values count, and nothing is known of the derivative."""
    if truth is not None:
        return yes if truth else no
    return arb_series([_head(yes).union(_head(no)), arb.nan()])


def _larger(a: Any, b: Any) -> Any:
    return _chosen(True if _head(a) > _head(b) else False if _head(a) < _head(b) else None, a, b)


def _tanh(x: Any) -> Any:
    return 2 * gate(2 * x) - 1


_RULES: Final[dict[str, Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda a: -a,
    "positive": lambda a: a,
    "reciprocal": lambda a: 1 / a,
    "square": lambda a: a * a,
    "sqrt": lambda a: a.sqrt(),
    "hypot": lambda a, b: (a * a + b * b).sqrt(),
    "exp": lambda a: a.exp(),
    "expm1": lambda a: a.exp() - 1,
    "log": lambda a: a.log(),
    "log1p": lambda a: (1 + a).log(),
    "logaddexp": lambda a, b: (a.exp() + b.exp()).log(),
    "sin": lambda a: a.sin(),
    "cos": lambda a: a.cos(),
    "sinh": lambda a: (a.exp() - (-a).exp()) / 2,
    "cosh": lambda a: (a.exp() + (-a).exp()) / 2,
    "tanh": _tanh,
    "arctan": lambda a: a.atan(),
    "absolute": lambda a: _larger(a, -a),
    "maximum": _larger,
    "minimum": lambda a, b: -_larger(-a, -b),
    "expit": gate,
    "erf": lambda a: a.erf(),
    "erfc": lambda a: a.erfc(),
    "ndtr": lambda a: (-a / arb(2).sqrt()).erfc() / 2,
}
"""Each function of a formula, on power series of balls."""
