"""Activations that users define: straight pieces, which are exact, and formulas with facts that are declared.

What somebody declares is not proved, so the activation's name has a digest of all of it, and so has the digest of a
network. A certificate holds for a network with the same declaration only, and says that there is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from lipcert.model.activation_row import STRAIGHT, Loss, Row, always, recurring, recurring_shape
from lipcert.model.arrays import Array, Parameter
from lipcert.model.formulas import Tree, evaluated, written

PIECES: Final = "piecewise_linear_"
"""Beginning of the names of rows of straight pieces; the number of kinks follows."""
MOST_KINKS: Final = 64
"""Kinks of straight pieces at most: each is looked at for every neuron."""
_DEFINED: dict[str, Definition] = {}
_ROWS: dict[str, Row] = {}


@dataclass(frozen=True)
class Definition:
    """All that was declared of an activation.

    ``shape`` are the curvatures of the pieces between the turning points; for a periodic one each belongs to the point
    it begins at. ``note`` says what of this was checked, and how.
    """

    title: str
    value: Tree
    slope: Tree
    knots: tuple[float, ...]
    shape: tuple[int, ...]
    ends: tuple[float, float]
    extent: tuple[float, float]
    period: float
    drift: float
    kinks: bool
    bend: Tree | None
    turns: tuple[float, ...]
    rounding: float
    tails: bool
    note: str = ""

    @property
    def name(self) -> str:
        """Title and digest; the note is left out, since it depends on what is installed."""
        facts = (self.ends, self.extent, (self.period, self.drift, self.rounding), self.knots, self.turns)
        numbers = [float(x).hex() for part in facts for x in part]
        formulas = [written(tree) for tree in (self.value, self.slope, self.bend)]
        flags = repr((self.shape, self.kinks, self.tails, len(self.knots)))
        text = "|".join([self.title, *formulas, *numbers, flags])
        return f"{self.title} (declared {hashlib.sha256(text.encode()).hexdigest()[:32]})"

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
            declared=self.note or "declared",
            **facts,
        )

    def _slope(self, v: Array, side: int) -> Array:
        """At a kink the slope of the next number on that side."""
        v = np.asarray(v, dtype=float)
        at_kink = np.isin(v, self.knots) & self.kinks
        return evaluated(self.slope, np.where(at_kink, np.nextafter(v, side * np.inf), v))


def define(definition: Definition) -> str:
    """Make a definition known, and return its name."""
    name = definition.name
    _DEFINED.pop(name, None)  # the latest comes last
    _DEFINED[name], _ROWS[name] = definition, definition.row()
    return name


def defined_as(title: str) -> str | None:
    """The name of the latest definition with that title."""
    return next((name for name, one in reversed(_DEFINED.items()) if one.title == title), None)


def definition_of(name: str) -> Definition | None:
    """What was declared under a name."""
    return _DEFINED.get(name)


def further_row(name: str) -> Row | None:
    """The row of a name that is none of the table: straight pieces, or a definition."""
    if name in _ROWS:
        return _ROWS[name]
    count = name.removeprefix(PIECES)
    if name.startswith(PIECES) and count.isdecimal() and 1 <= int(count) <= MOST_KINKS and count == str(int(count)):
        return _straight_pieces(int(count))
    return None


def _ascending(count: int, parameters: Sequence[Parameter]) -> bool:
    """Whether the parameters are single numbers, the knots ascend, and the values at them are finite."""
    if any(np.ndim(p) for p in parameters):
        return False
    numbers = [float(p) for p in parameters]
    rises = all(one < two for one, two in pairwise(numbers[:count]))
    return rises and bool(np.isfinite(_heights(count, tuple(numbers))).all())


@lru_cache(maxsize=4096)
def _heights(count: int, parameters: tuple[float, ...]) -> tuple[float, ...]:
    """Values at the knots, each rounded once."""
    knots, slopes = parameters[:count], parameters[count:-1]
    height, found = Fraction(parameters[-1]), [parameters[-1]]
    for left, right, slope in zip(knots[:-1], knots[1:], slopes[1:-1], strict=True):
        height += Fraction(slope) * (Fraction(right) - Fraction(left))
        found.append(float(height) if abs(height) < 2**1000 else np.inf)
    return tuple(found)


@cache
def _straight_pieces(count: int) -> Row:
    """Slopes s_0 … s_n between the kinks k_1 < … < k_n, and the value at k_1."""

    def parts(parameters: Sequence[Parameter]) -> tuple[Array, Array, Array]:
        numbers = tuple(float(p) for p in parameters)
        heights = np.array(_heights(count, numbers))
        return np.array(numbers[:count]), np.array(numbers[count:-1]), heights

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

    def ends(*parameters: Parameter) -> tuple[Parameter, Parameter]:
        return parameters[count], parameters[-2]

    def knots(_start: Array, *parameters: Parameter) -> Sequence[Parameter]:
        return parameters[:count]

    def terms(*parameters: Parameter) -> Parameter:
        return 2.0 * float(np.abs(parts(parameters)[2]).max())

    names = [*(f"knot{k}" for k in range(1, count + 1)), *(f"slope{k}" for k in range(count + 1)), "value"]
    legal: Callable[..., bool] = lambda *parameters: _ascending(count, parameters)  # noqa: E731
    return Row(
        value=value,
        slope=slope,
        knots=knots,
        **always(shape=(STRAIGHT,) * (count + 1)),
        ends=ends,
        extent=extent,
        why="Straight pieces; the values at the kinks are exact sums, rounded once.",
        loss=Loss(None, slope_tail=False, value_tail=False, value_terms=terms),
        kinks=True,
        parameters=dict(zip(names, [*range(count), *([0.0] * count), 1.0, 0.0], strict=True)),
        legal=(legal, "ascending knots and finite values at them, each a single number"),
    )
