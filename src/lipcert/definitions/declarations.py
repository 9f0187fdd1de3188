"""Activations that users define by formulas, with facts that are declared, and held against ball arithmetic.

What somebody declares is not proved, so the activation's name has a digest of all of it, and so has the digest of a
network. A certificate holds for a network with the same declaration only, and says that there is one.

To check, the range is cut until every part shows that φ'' has the sign that its neighbours have, or the opposite one,
which is an error. What no part shows stays declared: what lies beyond the range, and how formulas round.
"""

from __future__ import annotations

import hashlib
import operator
from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import methodcaller
from typing import Any, Final

import numpy as np
from flint import arb, arb_series

from lipcert.definitions.formulas import Formula, evaluated
from lipcert.definitions.functions import ball, head, jet, precision
from lipcert.definitions.rows import gate
from lipcert.errors import InvalidInput
from lipcert.model.activations import FAR, Loss, Pieces, Row, declare
from lipcert.model.arrays import Array

_ZERO, _ONE = arb_series([0]), arb_series([1])
_BITS: Final = 400
_FAR: Final = 64.0
"""The range is at least so wide to both sides."""
_FINEST: Final = 1e-7
"""Parts of this size, relative to where they are, are not cut further."""
_MOST: Final = 6000
"""Parts of a piece."""
_JUMP: Final = 2.0**-46
"""A formula that changes by more, relatively, within four floats has a jump."""
_ROUNDED: Final = 2.0**-51
"""So far apart may a derivative and the formula for it be, relatively."""
_CHARGED: Final = 2.0**-48
"""32 units u of the size of results and of terms are charged for rounding; a quarter of them may be seen."""


@dataclass(frozen=True)
class Definition:
    """All that was declared of an activation, in the words of ``define_activation``; and what its check has found.

    ``shape`` are the curvatures of the pieces between the knots, the turning points; ``ends`` are the slopes at -∞ and
    +∞. ``note`` says what was checked, and how.
    """

    title: str
    value: Formula
    slope: Formula
    knots: tuple[float, ...]
    ends: tuple[float, float]
    kinks: bool
    rounding: float
    shape: tuple[int, ...] = ()
    note: str = "declared"

    @property
    def name(self) -> str:
        """Title and digest. The note is no part of it."""
        facts = repr(replace(self, note=""))  # Python writes every float so that it can be told from all others
        return f"{self.title} (declared {hashlib.sha256(facts.encode()).hexdigest()[:32]})"

    def row(self) -> Row:
        """The row that states it."""
        return Row(
            value=lambda v: evaluated(self.value, v),
            slope=self._slope,
            bend=lambda v, side: np.zeros_like(v),
            pieces=Pieces(self.knots, self.shape, ()),
            loss=Loss(self.rounding, True, True, value_terms=lambda: self.rounding),
            kinks=self.kinks,
            exact=False,
            smooth=False,
            declared=self.note,
            title=self.title,
            origin=(define, self),
        )

    def _slope(self, v: Array, side: int) -> Array:
        """At a kink the slope of the next number on that side; far out the limit."""
        v = np.asarray(v, dtype=float)
        at_kink = np.isin(v, self.knots) & self.kinks
        found = evaluated(self.slope, np.where(at_kink, np.nextafter(v, side * np.inf), v))
        return np.where(np.abs(v) >= FAR, np.where(v < 0.0, *self.ends), found)


def define(definition: Definition) -> str:
    """Make a definition known, and return its name."""
    return declare(definition.name, definition.row())


def checked(definition: Definition) -> Definition:
    """The definition with its shape, and a note of what was checked; InvalidInput where a declared fact is wrong."""
    knots, far = definition.knots, max([_FAR, *(4.0 * abs(knot) for knot in definition.knots)])
    with precision(_BITS):
        rng = np.random.default_rng(5)
        near = [k + s * 10.0 ** rng.uniform(-9, 0.5) for k in (*knots, 0.0) for s in (-1, 1) for _ in range(12)]
        for x in (*rng.uniform(-far, far, 150), *rng.uniform(-8.0, 8.0, 150), *near):
            if abs(x) < far and x not in knots:
                _at_a_point(definition, float(x))
        _along(definition, "value", (-far, far))
        shape, doubts = _along(definition, "slope", (-far, *knots, far))
        for side, limit, sense in ((-1, definition.ends[0], shape[0]), (1, definition.ends[1], shape[-1])):
            _towards_infinity(definition, side, limit, side * sense, far)
    doubt = f", but not near {', '.join(f'{x:.6g}' for x in doubts[:3])}" if doubts else ""
    checked = f"turning points checked by ball arithmetic from {-far:g} to {far:g}{doubt}"
    return replace(definition, shape=tuple(shape), note=f"{checked}; the rest declared, rounding measured")


def _at_a_point(definition: Definition, x: float) -> None:
    """Raise if the formulas are not each other's derivatives at a point, or round too much."""
    here = ball(x)
    value, rate = _jet(definition.value, here)
    slope = _jet(definition.slope, here)[0]
    if not abs(rate - slope) <= ball(_ROUNDED) * (abs(slope) + ball(definition.rounding)):  # constants may be rounded
        raise InvalidInput(
            f"slope is {float(slope):.17g} at {x:.17g}, where value has the derivative {float(rate):.17g}"
        )
    for name, formula, true in (("value", definition.value, value), ("slope", definition.slope, slope)):
        number = float(evaluated(formula, np.array(x)))
        size = abs(number) + definition.rounding
        if 0.0 < abs(number) < 1.0:  # an exponent may be rounded, so that small values lose more digits
            size -= abs(number) * float(np.log(abs(number)))
        if not abs(ball(number) - true) <= ball(0.25 * _CHARGED * size):
            raise InvalidInput(
                f"{name} is {number:.17g} at {x:.17g} in floating point, and {float(true):.17g} in truth: more than"
                f" rounding={definition.rounding:g} allows. Give the size of the terms that cancel"
            )


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


def _along(definition: Definition, name: str, marks: tuple[float, ...]) -> tuple[list[int], list[float]]:
    """Whether a formula rises (1), falls (-1) or stays (0) between marks; and places where that was not shown.

    Raises where it does both, or where value or slope jumps.
    """
    senses, doubts = [], list[float]()
    for low, high in pairwise(marks):
        signs, unknown = _walk(definition, name, low, high)
        if len(signs) > 1:
            where = f"it rises near {signs[1]:.6g} and falls near {signs[-1]:.6g}"
            raise InvalidInput(f"turning_points lacks a point between {low:.6g} and {high:.6g}: {where}")
        if unknown and not signs:
            raise InvalidInput(f"turning_points: nothing shows how the formula goes between {low:.6g} and {high:.6g}")
        senses.append(sum(signs))
        doubts += sorted(unknown)
    return senses, doubts


def _walk(definition: Definition, name: str, low: float, high: float) -> tuple[dict[int, float], list[float]]:
    """Cut an interval until the derivative has one sign on every part; of ``value``, until it is finite.

    Returns a place for each sign, and the places, not near the ends, where none was shown. Parts without a finite
    derivative come first; of value and slope they are cut until a few floats are left, to tell a jump. The others come
    by size, so that what is left after the most cuts is spread over the interval.
    """
    formula, signs, unknown = getattr(definition, name), dict[int, float](), list[float]()
    todo, cuts = deque([(low, high)]), 0
    while todo and len(signs) < 2:
        one, two = todo.popleft()
        middle, size = 0.5 * one + 0.5 * two, max(1.0, abs(one), abs(two))
        rate = _jet(formula, ball(one).union(ball(two)))[1]
        broken = not rate.is_finite()
        if rate.is_zero() or (name == "value" and not broken):
            continue
        if not (broken or rate.contains(0)):
            signs[1 if rate > 0 else -1] = middle
            continue
        cuts += 1
        if two - one > (4.0 * np.spacing(size) if broken else _FINEST * size) and cuts <= _MOST:
            halves = [(one, middle), (middle, two)]
            if broken:
                todo.extendleft(reversed(halves))
            else:
                todo.extend(halves)
            continue
        if broken:
            _joined(definition, name, one, two)
        if name != "value" and min(middle - low, high - middle) > 4.0 * _FINEST * size:
            unknown.append(middle)
            rate = _jet(formula, ball(middle))[1]
            if not rate.contains(0):
                signs[1 if rate > 0 else -1] = middle
    return signs, unknown


def _joined(definition: Definition, name: str, one: float, two: float) -> None:
    """Raise if a formula jumps between two floats.

    Only φ' may jump, at a declared kink; floats next to the kink must then have the slopes of their side.
    """
    pairs, formula = [(one, two)], getattr(definition, name)
    for knot in definition.knots:
        if one <= knot <= two and definition.kinks and name == "slope":
            pairs = [(one, float(np.nextafter(knot, -np.inf))), (float(np.nextafter(knot, np.inf)), two)]
    for left, right in ((_jet(formula, ball(a))[0], _jet(formula, ball(b))[0]) for a, b in pairs if a < b):
        if not abs(right - left) <= ball(_JUMP) * (abs(left) + ball(definition.rounding)):
            advice = "; turning_points lacks its exact place, or kinks=True is missing" if name == "slope" else ""
            raise InvalidInput(f"{name} jumps near {one:.9g}{advice}")


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
        return _at(parts[0], x) ** parts[1]
    return _RULES[name](*(_at(part, x) for part in parts))


def _chosen(a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` where a > b, else ``no``; where it may be either, both values count, and no derivative is known."""
    one, two = head(a), head(b)
    if one > two or one < two:
        return yes if one > two else no
    return arb_series([head(yes).union(head(no)), arb.nan()])


_RULES: Final[dict[str, Any]] = {
    **{name: methodcaller(name) for name in ("sqrt", "exp", "log", "sin", "cos", "erf", "erfc")},
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negative": operator.neg,
    "square": lambda a: a * a,
    "expm1": lambda a: a.exp() - 1,
    "log1p": lambda a: (1 + a).log(),
    "logaddexp": lambda a, b: (a.exp() + b.exp()).log(),
    "sinh": lambda a: (a.exp() - (-a).exp()) / 2,
    "cosh": lambda a: (a.exp() + (-a).exp()) / 2,
    "tanh": lambda a: 2 * gate(2 * a) - 1,
    "arctan": lambda a: a.atan(),
    "absolute": lambda a: _chosen(a, 0, a, -a),
    "maximum": lambda a, b: _chosen(a, b, a, b),
    "minimum": lambda a, b: _chosen(a, b, b, a),
    **dict.fromkeys(("greater", "greater_equal"), lambda a, b: _chosen(a, b, _ONE, _ZERO)),
    **dict.fromkeys(("less", "less_equal"), lambda a, b: _chosen(b, a, _ONE, _ZERO)),
    "where": lambda condition, a, b: _chosen(condition, 0.5, a, b),
    "expit": gate,
    "ndtr": lambda a: (-a / arb(2).sqrt()).erfc() / 2,
}
"""Each function of a formula, on power series of balls."""
