"""User-defined activations: formulas, and facts about them that are checked as far as possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.importers.registry import register
from lipcert.model.activation_row import CONCAVE, CONVEX, STRAIGHT
from lipcert.model.activation_table import PRESETS
from lipcert.model.activations import ALIASES, TABLE, Activation
from lipcert.model.arguments import numbers
from lipcert.model.declared import Definition, define
from lipcert.model.formulas import Tree, evaluated
from lipcert.questions.formulas import formula

Function = Callable[[Any], Any]
_NEAR = 4.0 ** -np.arange(1.0, 15.0)
_SHARES = np.unique(np.concatenate([_NEAR, 1.0 - _NEAR, np.linspace(0.0, 1.0, 103)[1:-1]]))
"""Sample points of a piece: evenly spaced, and denser towards its ends."""


def define_activation(
    name: str,
    value: Function,
    slope: Function,
    turning_points: Sequence[float],
    *,
    limits: Sequence[float] | None = None,
    extent: Sequence[float] = (-np.inf, np.inf),
    period: float | None = None,
    drift: float = 0.0,
    kinks: bool = False,
    bend: Function | None = None,
    bend_turning_points: Sequence[float] = (),
    rounding: float = 1.0,
    tails: bool = False,
    torch: Any = None,
    onnx: str | None = None,
) -> Activation:
    """Define an activation by formulas, for ``Network.from_weights`` and for importers.

    What you declare is checked as far as possible. With python-flint (``pip install "lipcert[exact]"``) the turning
    points are proved to be complete up to 64 or four times the farthest of them, and over a whole period. Beyond that,
    and for the rounding of the formulas, your word counts. So every answer about such a network says *declared*: the
    digest begins so, and ``certificate.declared`` is true. ``verify`` needs a network with the same declaration.

    Parameters
    ----------
    name
        A new name.
    value, slope
        φ and φ', as functions of a numpy array, written with numpy's functions (and expit, erf, erfc, ndtr of
        ``scipy.special``). They are called once, to record the formula.
    turning_points
        All points where φ' stops rising or falling, and all kinks; of a periodic φ' those of one period.
    limits
        The slopes at -∞ and +∞; infinite if unbounded. Of a periodic φ' its minimum and maximum, by default those at
        the turning points.
    extent
        Bounds of φ, or of φ(v) - drift·v.
    period, drift
        Period and mean slope of a periodic φ'.
    kinks
        Whether φ' jumps at turning points. They must then be exact, and ``slope`` must be right on both sides. Not for
        a periodic φ'.
    bend, bend_turning_points
        φ'' and the points where it stops rising or falling, for bounds to second order; optional.
    rounding
        Size of the terms that cancel in the formulas; 32 units of roundoff of it are charged.
    tails
        Whether an exponent is rounded, as in exp(-x²), so that small values lose more digits.
    torch
        A class of PyTorch modules that compute φ, without parameters; importers read it as this activation.
    onnx
        The name of a function that ONNX models define for φ, as ``"domain:name"`` or ``"name"``.

    Raises
    ------
    InvalidInput
        If a declared fact is wrong; the message says where.

    Examples
    --------
    >>> import lipcert as lc
    >>> wave = lc.define_activation("wave", np.sin, np.cos, [0.0, np.pi], period=2 * np.pi, extent=(-1, 1))
    >>> lc.certify(lc.Network.from_weights([[[2.0]], [[1.0]]], activation=wave), method=lc.ClosedForm()).declared
    True
    """
    known = {*TABLE, *PRESETS, *ALIASES}
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", name) or name.lower() in known:
        raise InvalidInput(f"name must be a name of your own, of letters, digits and underscores, got {name!r}")
    knots, turns = _points("turning_points", turning_points), _points("bend_turning_points", bend_turning_points)
    trees = formula("value", value), formula("slope", slope)
    bent = None if bend is None else formula("bend", bend)
    length = np.inf if period is None else _number("period", period)
    if np.isfinite(length):
        _one_period(length, knots, "turning_points")
        _one_period(length, turns, "bend_turning_points" if bent is not None else "")
        if kinks:
            raise InvalidInput("kinks must be False where there is a period: where kinks come again is rounded")
    ends = _ends(trees[1], knots, length, limits)
    least, most = _pair("extent", extent)
    definition = Definition(
        name,
        *trees,
        knots,
        _shape(trees[1], knots, length),
        ends,
        (least, most),
        length,
        _number("drift", drift) if np.isfinite(length) else 0.0,
        bool(kinks),
        bent,
        turns,
        abs(_number("rounding", rounding)),
        bool(tails),
    )
    _by_samples(definition)
    found = Activation(define(replace(definition, note=_checked(definition))))
    if torch is not None or onnx is not None:
        register(found, torch, onnx)
    return found


def _checked(definition: Definition) -> str:
    if find_spec("flint") is None:
        return "declared, and not checked, since python-flint is not installed"
    from lipcert.exact.declarations import check

    return check(definition)


def _number(name: str, value: Any) -> float:
    number = numbers(name, value)
    if number.ndim:
        raise InvalidInput(f"{name} must be a number, got {value!r}")
    return float(number)


def _pair(name: str, value: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be two numbers, got {value!r}") from None
    if not low <= high and name == "extent":
        raise InvalidInput(f"{name} must be two numbers, the smaller one first, got {value!r}")
    return low, high


def _points(name: str, values: Any) -> tuple[float, ...]:
    points = numbers(name, values) if np.size(values) else np.zeros(0)
    if points.ndim != 1 or (np.diff(points) <= 0.0).any():
        raise InvalidInput(f"{name} must be ascending numbers, got {values!r}")
    return tuple(points.tolist())


def _one_period(period: float, points: tuple[float, ...], name: str) -> None:
    if period <= 0.0:
        raise InvalidInput(f"period must be positive, got {period!r}")
    if name and (len(points) < 2 or points[-1] - points[0] >= period):
        raise InvalidInput(f"{name} must be the points of one period, at least two, got {points}")


def _ends(slope: Tree, knots: tuple[float, ...], period: float, limits: Any) -> tuple[float, float]:
    periodic = np.isfinite(period)
    rates = evaluated(slope, np.array(knots)) if periodic else np.zeros(0)
    if limits is None and periodic:
        return float(rates.min()), float(rates.max())
    if limits is None:
        raise InvalidInput("limits must be given: the slopes at -∞ and +∞")
    left, right = _pair("limits", limits)
    if np.isnan([left, right]).any():
        raise InvalidInput(f"limits must be numbers, got {limits!r}")
    if periodic and not (left <= rates.min() and rates.max() <= right):
        raise InvalidInput(f"limits must hold the slopes of a period, {rates.min()} to {rates.max()}, got {limits}")
    return left, right


def _pieces(knots: tuple[float, ...], period: float) -> list[tuple[float, float]]:
    """The intervals between turning points; unbounded ones are cut far out."""
    if np.isfinite(period):
        marks = [*knots, knots[0] + period]
    else:
        far = 4.0 * max([16.0, *(abs(k) for k in knots)])
        marks = [-far, *knots, far]
    return list(pairwise(marks))


def _shape(slope: Tree, knots: tuple[float, ...], period: float) -> tuple[int, ...]:
    """Whether φ' rises, falls or is constant between turning points, by samples."""
    shapes = []
    for low, high in _pieces(knots, period):
        rates = evaluated(slope, low + _SHARES * (high - low))
        rise = float(rates[-1] - rates[0])
        level = float(np.ptp(rates)) <= 1e-13 * max(1.0, float(np.abs(rates).max()))
        shapes.append(STRAIGHT if level else CONVEX if rise > 0.0 else CONCAVE)
    return tuple(shapes)


def _by_samples(definition: Definition) -> None:
    """Raise if samples show that a fact is wrong; this needs no other package."""
    for (low, high), shape in zip(_pieces(definition.knots, definition.period), definition.shape, strict=True):
        grid = np.unique(low + np.union1d(_SHARES, np.linspace(0.0, 1.0, 4003)[1:-1]) * (high - low))
        rates, steps = evaluated(definition.slope, grid), np.diff(evaluated(definition.value, grid)) / np.diff(grid)
        if not (np.isfinite(rates).all() and np.isfinite(steps).all()):
            raise InvalidInput(f"value or slope is not finite between {low:.6g} and {high:.6g}")
        size = max(definition.rounding, float(np.abs(rates).max()))
        against = np.flatnonzero(shape * np.diff(rates) < -1e-12 * size)
        if against.size or (shape == STRAIGHT and float(np.ptp(rates)) > 1e-12 * size):
            where = float(grid[against[0]]) if against.size else 0.5 * (low + high)
            raise InvalidInput(f"turning_points lacks a point between {low:.6g} and {high:.6g}, near {where:.6g}")
        room = 1e-6 * size + 1e-12 * float(np.abs(evaluated(definition.value, grid)).max()) / np.diff(grid)
        bounds = np.minimum(rates[:-1], rates[1:]) - room, np.maximum(rates[:-1], rates[1:]) + room
        if ((steps < bounds[0]) | (steps > bounds[1])).any():
            where = float(grid[np.argmax((steps < bounds[0]) | (steps > bounds[1]))])
            raise InvalidInput(f"slope is not the derivative of value near {where:.6g}")
    for knot in definition.knots:
        _at_a_knot(definition, knot)
    if not np.isfinite(definition.period):
        _limits_by_samples(definition)


def _at_a_knot(definition: Definition, knot: float) -> None:
    """Raise if φ jumps at a turning point, or φ' does without a declared kink at that point."""
    beside = np.array([np.nextafter(knot, -np.inf), knot, np.nextafter(knot, np.inf)])
    values = evaluated(definition.value, beside)
    # φ' from the left and from the right
    rates = np.array([definition.row().slope(np.array([knot]), side)[0] for side in (-1, 1)])
    if not (np.isfinite(values).all() and np.isfinite(rates).all()):
        raise InvalidInput(f"value or slope is not finite beside the turning point {knot:.17g}")
    size = definition.rounding + float(np.abs(rates).max())
    room = 2.0**-46 * (definition.rounding + float(np.abs(values).max())) + 8.0 * size * float(np.spacing(abs(knot)))
    if float(np.ptp(values)) > room:
        raise InvalidInput(f"value jumps at the turning point {knot:.17g}, so that there is no Lipschitz bound")
    for share in (1e-12, 1e-9, 1e-6):
        step = share * max(1.0, abs(knot))
        for side, rate in zip((-1, 1), rates):
            near = float(evaluated(definition.slope, np.array([knot + side * step]))[0])
            if not abs(near - rate) <= 1e3 * share * size:
                advice = "give the exact place of the kink" if definition.kinks else "is kinks=True missing?"
                raise InvalidInput(
                    f"slope jumps by the turning point {knot:.17g}, from {rate:.6g} to {near:.6g} within {step:.1g};"
                    f" {advice}"
                )


def _limits_by_samples(definition: Definition) -> None:
    for side, limit, shape in (
        (-1, definition.ends[0], definition.shape[0]),
        (1, definition.ends[1], definition.shape[-1]),
    ):
        start = max([16.0, *(2.0 * abs(k) for k in definition.knots)])
        rates = evaluated(definition.slope, side * start * 2.0 ** np.arange(0.0, 60.0, 2.0))
        rates = rates[np.isfinite(rates)]
        room = 1e-9 * max(definition.rounding, abs(limit) if np.isfinite(limit) else 0.0)
        way = side * shape * np.diff(rates)  # outwards, φ' stays monotone as in the last piece
        beyond = np.isfinite(limit) and (side * shape * (limit - rates) < -room).any()
        near = not np.isfinite(limit) or (rates.size and abs(rates[-1] - limit) <= 1e-3 * max(1.0, abs(limit)))
        if (way < -room).any() or beyond or not near:
            end = "+∞" if side > 0 else "-∞"
            raise InvalidInput(
                f"limits or turning_points are wrong towards {end}: slopes there are {rates[0]:.6g} … {rates[-1]:.6g},"
                f" and the limit is given as {limit:g}"
            )
