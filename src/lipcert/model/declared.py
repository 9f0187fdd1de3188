"""Activations that users define: piecewise linear ones, which are exact, and formulas with facts that are declared.

What somebody declares is not proved, so the activation's name has a digest of all of it, and so has the digest of a
network. A certificate holds for a network with the same declaration only, and says that there is one.

A formula is data. It is evaluated by the same numpy functions in the same order as the function that it was traced
from, so it gives the same digits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from scipy import special

from lipcert.model.activation_table import STRAIGHT, Loss, Row, always, recurring, recurring_shape
from lipcert.model.arrays import Array, Parameter

PIECES: Final = "piecewise_linear_"
"""Beginning of the names of piecewise linear rows; the number of kinks follows."""
MOST_KINKS: Final = 64
"""Kinks of a piecewise linear row at most: each is looked at for every neuron."""

Formula = Any
"""The variable ``"x"``, a number, or a tuple of a function's name and its arguments."""
_NUMPY = (
    *("add", "subtract", "multiply", "divide", "negative", "square", "sqrt", "absolute", "maximum", "minimum", "where"),
    *("exp", "expm1", "log", "log1p", "logaddexp", "sin", "cos", "sinh", "cosh", "tanh", "arctan"),
    *("greater", "greater_equal", "less", "less_equal"),
)
FUNCTIONS: Final = {
    **{name: getattr(np, name) for name in _NUMPY},
    **{name: getattr(special, name) for name in ("expit", "erf", "erfc", "ndtr")},
    "power": lambda base, exponent: base**exponent,  # as Python writes it: numpy squares where it can
}
"""What a formula may consist of."""


def evaluated(formula: Formula, v: Array) -> Array:
    """The formula at points, in floating point."""

    def at(part: Formula) -> Any:
        if isinstance(part, tuple):
            return FUNCTIONS[part[0]](*map(at, part[1:]))
        return v if part == "x" else part

    with np.errstate(all="ignore"):  # what is no number proves nothing
        return np.broadcast_to(np.asarray(at(formula), dtype=float), np.shape(v)).copy()


@dataclass(frozen=True)
class Definition:
    """All that was declared of an activation, in the words of ``define_activation``; and what its check has found.

    ``shape`` are the curvatures of the pieces between the turning points; for a periodic one each belongs to the point
    it begins at. ``note`` says what was checked, and how.
    """

    title: str
    value: Formula
    slope: Formula
    knots: tuple[float, ...]
    ends: tuple[float, float]
    extent: tuple[float, float]
    period: float
    drift: float
    kinks: bool
    bend: Formula | None
    turns: tuple[float, ...]
    rounding: float
    tails: bool
    shape: tuple[int, ...] = ()
    note: str = "declared"

    @property
    def name(self) -> str:
        """Title and digest. The note is no part of it."""
        facts = repr(replace(self, note=""))  # Python writes every float so that it can be told from all others
        return f"{self.title} (declared {hashlib.sha256(facts.encode()).hexdigest()[:32]})"

    def row(self) -> Row:
        """The row that states it."""
        periodic = np.isfinite(self.period)
        facts: dict[str, Any] = always(ends=self.ends, extent=self.extent)
        facts["knots"] = recurring(self.knots, self.period) if periodic else lambda *_: self.knots
        facts["shape"] = recurring_shape(self.shape) if periodic else lambda *_: self.shape
        if self.bend is not None:
            facts["bend"] = lambda v, side: evaluated(self.bend, v)
            facts["turns"] = recurring(self.turns, self.period) if periodic else lambda *_: self.turns
        return Row(
            value=lambda v: evaluated(self.value, v),
            slope=self._slope,
            why="Somebody's word.",
            loss=Loss(self.rounding, self.tails, self.tails, value_terms=lambda: self.rounding),
            kinks=self.kinks,
            exact=False,
            period=self.period,
            drift=self.drift,
            smooth=self.bend is not None,
            declared=self.note,
            **facts,
        )

    def _slope(self, v: Array, side: int) -> Array:
        """At a kink the slope of the next number on that side."""
        v = np.asarray(v, dtype=float)
        at_kink = np.isin(v, self.knots) & self.kinks
        return evaluated(self.slope, np.where(at_kink, np.nextafter(v, side * np.inf), v))


_DEFINED: dict[str, tuple[Definition, Row]] = {}


def define(definition: Definition) -> str:
    """Make a definition known, and return its name."""
    name = definition.name
    _DEFINED.pop(name, None)  # the latest comes last
    _DEFINED[name] = definition, definition.row()
    return name


def defined_as(title: str) -> str | None:
    """The name of the latest definition with that title."""
    return next((name for name, (one, _) in reversed(_DEFINED.items()) if one.title == title), None)


def definition_of(name: str) -> Definition | None:
    """What was declared under a name."""
    return _DEFINED[name][0] if name in _DEFINED else None


def further_row(name: str) -> Row | None:
    """The row of a name that is none of the table: piecewise linear, or a definition."""
    if name in _DEFINED:
        return _DEFINED[name][1]
    count = name.removeprefix(PIECES)
    if name.startswith(PIECES) and count.isdecimal() and 1 <= int(count) <= MOST_KINKS and count == str(int(count)):
        return _piecewise_linear(int(count))
    return None


@lru_cache(maxsize=4096)
def _pieces(count: int, *parameters: float) -> tuple[Array, Array, Array]:
    """Knots, slopes, and values at the knots, each rounded once."""
    knots, slopes = parameters[:count], parameters[count:-1]
    height, heights = Fraction(parameters[-1]), [parameters[-1]]
    for left, right, slope in zip(knots[:-1], knots[1:], slopes[1:-1], strict=True):
        height += Fraction(slope) * (Fraction(right) - Fraction(left))
        heights.append(float(height) if abs(height) < 2**1000 else np.inf)
    return np.array(knots), np.array(slopes), np.array(heights)


@cache
def _piecewise_linear(count: int) -> Row:
    """Slopes s_0 … s_n between the kinks k_1 < … < k_n, and the value at k_1."""

    def parts(parameters: Sequence[Parameter]) -> tuple[Array, Array, Array]:
        return _pieces(count, *map(float, parameters))

    def legal(*parameters: Parameter) -> bool:
        if any(np.ndim(p) for p in parameters):
            return False
        knots, _, heights = parts(parameters)
        return bool((knots[1:] > knots[:-1]).all() and np.isfinite(heights).all())

    def value(v: Array, *parameters: Parameter) -> Array:
        knots, slopes, heights = parts(parameters)
        piece = np.searchsorted(knots, v, side="right")
        left = np.maximum(piece - 1, 0)
        return heights[left] + slopes[piece] * (v - knots[left])

    def slope(v: Array, side: int, *parameters: Parameter) -> Array:
        knots, slopes, _ = parts(parameters)
        return np.asarray(slopes[np.searchsorted(knots, v, side="right" if side > 0 else "left")])

    def extent(*parameters: Parameter) -> tuple[Parameter, Parameter]:
        _, slopes, heights = parts(parameters)
        least = -np.inf if slopes[0] > 0 or slopes[-1] < 0 else np.nextafter(heights.min(), -np.inf)
        most = np.inf if slopes[0] < 0 or slopes[-1] > 0 else np.nextafter(heights.max(), np.inf)
        return least, most

    names = [*(f"knot{k}" for k in range(1, count + 1)), *(f"slope{k}" for k in range(count + 1)), "value"]
    return Row(
        value=value,
        slope=slope,
        knots=lambda _start, *parameters: parameters[:count],
        **always(shape=(STRAIGHT,) * (count + 1)),
        ends=lambda *parameters: (parameters[count], parameters[-2]),
        extent=extent,
        why="Straight pieces; the values at the kinks are exact sums, rounded once.",
        loss=Loss(None, False, False, value_terms=lambda *p: 2.0 * float(np.abs(parts(p)[2]).max())),
        kinks=True,
        parameters=dict(zip(names, [*range(count), *([0.0] * count), 1.0, 0.0], strict=True)),
        legal=(legal, "ascending knots and finite values at them, each a single number"),
    )
