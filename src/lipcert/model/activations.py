"""Activation functions: a row of the table with its parameters.

Slope ranges over an interval, and whatever else is asked of an activation, follow from its row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np

from lipcert.arguments.numbers import activation as named
from lipcert.errors import InvalidInput
from lipcert.model.activation_table import CONCAVE, CONVEX, FAR, STRAIGHT, TABLE, Row, piecewise_linear
from lipcert.model.arrays import Array, Parameter
from lipcert.model.positive_rows import POSITIVE

__all__ = ["CONCAVE", "CONVEX", "STRAIGHT", "TABLE", "Activation", "Row", "activation", "declare"]

_PERIODS_RESOLVED = 1e6
"""From so many periods on, a rounded knot is no longer where cos is ±1 to the last bit."""
_DECLARED: dict[str, Row] = {}
"""Rows that rest on somebody's word, by their names, the latest last."""


@dataclass(frozen=True)
class Activation:
    """One row of the table with its parameters; a parameter is a number or one number per neuron.

    Build it with :func:`activation`.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        """Refuse parameters for which the numbers of the row are not proved."""
        (legal, condition), names = self.row.legal, self.row.parameters
        if len(self.parameters) != len(names):
            raise InvalidInput(f"activation {self.name!r} has {len(names)} parameters, got {len(self.parameters)}")
        if not all(np.isfinite(parameter).all() for parameter in self.parameters):
            raise InvalidInput(f"activation {self.name!r} needs finite parameters, got {self.parameters}")
        if not legal(*self.parameters):
            raise InvalidInput(f"activation {self.name!r} needs {condition}, got {dict(zip(names, self.parameters))}")

    @cached_property
    def row(self) -> Row:
        return _row(self.name)

    def __reduce__(self) -> Any:
        """What another process needs to have the same, also where it was defined in this one."""
        return _again, (self.row.origin, self.name, self.parameters)

    def take(self, neurons: Array) -> Activation:
        """The same activation for some of the neurons."""
        picked = tuple(p if np.ndim(p) == 0 else np.asarray(p)[neurons] for p in self.parameters)
        return Activation(self.name, picked)

    def value(self, v: Array) -> Array:
        """φ(v); the limit where v is infinite and there is one."""
        near = _finite(v)
        found = self.row.value(near, *self.parameters)
        if near is v:
            return found
        rate = self.row.drift if np.isfinite(self.row.period) else self.slope(v)
        return np.where(np.isfinite(v) | np.equal(rate, 0.0), found, np.where(np.less(rate, 0.0), -v, v))

    def slope(self, v: Array, side: int = 1) -> Array:
        """φ'(v) from the right (side = 1) or the left (side = -1); the limit where v is infinite."""
        return self.row.slope(_finite(v), side, *self.parameters)

    def bend(self, v: Array, side: int = 1) -> Array:
        """φ''(v) from one side, for finite v; per neuron where parameters are."""
        return np.broadcast_arrays(self.row.bend(v, side, *self.parameters), v)[0]

    @cached_property
    def _knots(self) -> Sequence[Parameter]:
        knots = self.row.pieces.knots
        return knots(*self.parameters) if callable(knots) else knots

    @cached_property
    def _rates(self) -> list[tuple[Array, Array]]:
        """The smallest and the largest slope at each knot."""
        at = [np.asarray(knot, dtype=float) for knot in self._knots]
        sides = [[self.slope(knot, side) for side in ((-1, 1) if self.row.kinks else (1,))] for knot in at]
        return [(np.minimum.reduce(rates), np.maximum.reduce(rates)) for rates in sides]

    def knots(self, near: Array) -> Sequence[Parameter]:
        """Ascending points where φ' is not monotone; of a periodic φ' all from ``near`` up to a period beyond it."""
        return self._recurring(self._knots, near)

    def turns(self, near: Array) -> Sequence[Parameter]:
        """Ascending points between which φ'' is monotone, in the same way."""
        return self._recurring(self.row.pieces.turns, near)

    def _recurring(self, points: Sequence[Parameter], start: Array) -> Sequence[Parameter]:
        """The points themselves, or those that come again with the period; some may lie before the start."""
        period = self.row.period
        if not np.isfinite(period) or not points:
            return points
        turn = np.floor((np.where(np.isfinite(start), start, 0.0) - points[0]) / period)
        return [point + (turn + k) * period for k, point in [*((k, p) for k in (0, 1) for p in points), (2, points[0])]]

    @property
    def shape(self) -> Sequence[int]:
        """Curvature of each piece between the knots, one more than there are knots."""
        shape = self.row.pieces.shape
        return (shape[-1], *shape, *shape, shape[0]) if np.isfinite(self.row.period) else shape

    def slope_range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Smallest and largest slope of φ between any two points of [lower, upper].

        For an interval that is a single point at a kink, both one-sided derivatives count.
        """
        ends = self.slope(lower, 1), self.slope(upper, -1)
        least, most = np.minimum(*ends), np.maximum(*ends)
        for knot, (low, high) in zip(self.knots(lower), cycle(self._rates)):
            inside = self._between(knot, lower, upper)
            least = np.where(inside, np.minimum(least, low), least)
            most = np.where(inside, np.maximum(most, high), most)
        if np.isfinite(self.row.period):
            long = self.whole_period(lower, upper)
            low, high = np.min(self._rates), np.max(self._rates)
            least, most = np.where(long, low, least), np.where(long, high, most)
        return least, most

    def whole_period(self, lower: Array, upper: Array) -> Array:
        """Whether φ' may take all its values on the interval; so far out that knots are not resolved, it may."""
        if not np.isfinite(self.row.period):
            return np.zeros(lower.shape, dtype=bool)
        far = np.maximum(np.abs(lower), np.abs(upper)) > _PERIODS_RESOLVED * self.row.period
        return (0.5 * upper - 0.5 * lower >= 0.5 * self.row.period) | (far & (lower < upper))

    def knots_inside(self, lower: Array, upper: Array) -> list[tuple[Array, Array]]:
        """Each knot, and for which neurons it lies inside (lower, upper); rounded knots count generously."""
        return self._inside(self.knots(lower), lower, upper)

    def turns_inside(self, lower: Array, upper: Array) -> list[tuple[Array, Array]]:
        """Each turn of φ'', and for which neurons it lies in [lower, upper]; rounded ones count generously."""
        return self._inside(self.turns(lower), lower, upper, np.less_equal)

    def _inside(
        self, points: Sequence[Parameter], lower: Array, upper: Array, less: np.ufunc = np.less
    ) -> list[tuple[Array, Array]]:
        wide = (np.broadcast_to(np.asarray(point, dtype=float), lower.shape) for point in points)
        return [(point, self._between(point, lower, upper, less)) for point in wide]

    def _between(self, point: Parameter, lower: Array, upper: Array, less: np.ufunc = np.less) -> Array:
        slack = 0.0 if self.row.exact else 4.0 * np.spacing(self.row.unit(np.asarray(point, dtype=float)))
        return np.asarray(less(lower, point + slack) & less(point - slack, upper))


def _finite(v: Array) -> Array:
    """The same points, infinite ones as far out as rows are asked; the array itself if there are none."""
    infinite = np.isinf(v)
    return np.where(infinite, np.copysign(FAR, v), v) if infinite.any() else v


def declare(name: str, row: Row) -> str:
    """Make a row known that rests on somebody's word, and says so, and return its name."""
    if not row.declared:
        raise InvalidInput(f"the row of {name!r} must say what is declared")
    _DECLARED.pop(name, None)  # the latest comes last
    _DECLARED[name] = row
    return name


def _again(origin: Any, name: str, parameters: tuple[Parameter, ...]) -> Activation:
    if origin is not None:
        define, definition = origin
        define(definition)
    return Activation(name, parameters)


def activation(name: str | Activation, **parameters: Parameter | Sequence[float]) -> Activation:
    """An activation of the table by name, with its parameters where they differ from the defaults.

    Parameters
    ----------
    name
        A row of the tables or an alias; case, spaces, dashes and underscores do not matter. Parameters may stand in
        brackets, as in ``"leaky_relu(0.2)"``.
    **parameters
        Numbers, or arrays with one number per neuron: ``negative_slope`` (leaky_relu, prelu), ``alpha``
        (elu, celu, hardsigmoid), ``beta`` (softplus, hardsigmoid), ``min_val`` and ``max_val`` (hardtanh).

    Examples
    --------
    >>> activation("LeakyReLU", negative_slope=0.2)
    Activation(name='leaky_relu', parameters=(0.2,))
    """
    if isinstance(name, Activation):
        if parameters:
            raise InvalidInput(f"{name} has its parameters already; give the name to set {', '.join(parameters)}")
        return name
    latest = {row.title: key for key, row in _DECLARED.items()}
    return Activation(*named(name, parameters, {**TABLE, **POSITIVE}, latest.get, lambda key: _row(key).parameters))


def _row(name: str) -> Row:
    row = TABLE.get(name) or POSITIVE.get(name) or _DECLARED.get(name) or piecewise_linear(name)
    if row is None:
        raise InvalidInput(f"activation {name!r} is none of {', '.join(sorted(TABLE))}")
    return row
