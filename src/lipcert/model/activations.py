"""Activation functions: the facts about each, one row of a table, and what follows from them.

A row states the value, the one-sided derivatives, and the *knots*: the points where the derivative stops being
monotone (kinks, and zeros of the second derivative). Between two knots the function is convex, concave or straight.
The comment above a row says why its numbers hold. Slope ranges over an interval, and whatever else is asked of an
:class:`Activation`, a row with its parameters, follow from the row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import cycle
from typing import Any, Final

import numpy as np
from scipy import special

from lipcert.arguments.numbers import activation as named
from lipcert.errors import InvalidInput
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

    slope_terms: float | None = 0.0
    slope_tail: bool = False
    value_tail: bool = False
    value_terms: Callable[..., Parameter] = lambda *_: 0.0


USUAL: Final = Loss()
"""Products and quotients of elementary functions, in which nothing cancels."""


@dataclass(frozen=True)
class Pieces:
    """Where φ' and φ'' are monotone.

    Attributes
    ----------
    knots : ascending points where φ' is not monotone, or a function of the parameters that gives them; of a periodic
        row those of one period.
    shape : curvature of each piece between the knots, one more than there are knots; of a periodic row that of the
        piece that begins at each knot.
    turns : ascending points between which φ'' is monotone, among them all where it jumps; like knots where periodic.
    """

    knots: Sequence[Parameter] | Callable[..., Sequence[Parameter]]
    shape: Sequence[int]
    turns: Sequence[float] = ()


@dataclass(frozen=True)
class Row:
    """The facts about one activation φ; every callable takes the parameters after its first arguments.

    Attributes
    ----------
    value : φ(v).
    slope : the derivative from the given side (-1 left, +1 right); the side matters at kinks only. At ±FAR it is the
        limit, infinite where slopes grow without end.
    bend : the second derivative from the given side, with an error far below 2⁻⁴⁰ of the largest it takes; the side
        matters at turns only. Zero is the bend of straight pieces.
    pieces : where φ' and φ'' are monotone.
    loss : what the formulas of value and slope lose to rounding; measured against ball arithmetic by the tests.
    kinks : whether φ' may jump at the knots.
    exact : whether the knots are exact floating-point numbers.
    period : of φ', if it is periodic; an interval that long has all slopes.
    drift : the mean slope of a periodic row: φ(v) - drift·v is periodic.
    swing : of a periodic row a bound of |φ(v) - drift·v|.
    parameters : names and defaults, in the order the callables take them.
    legal : predicate the parameters must satisfy, with its description; for all others the numbers are not proved.
    smooth : whether bend and turns are known; where they are not, nothing is said of φ''.
    above : φ is defined for v above this only.
    declared : what of the facts rests on somebody's word, in words; empty for the rows of the table.
    title, origin : of a declared row: what users call it, and a function with its argument that makes the row known.
    """

    value: Callable[..., Array]
    slope: Callable[..., Array]
    bend: Callable[..., Array]
    pieces: Pieces
    loss: Loss = USUAL
    kinks: bool = False
    exact: bool = True
    period: float = np.inf
    drift: float = 0.0
    swing: float = np.inf
    parameters: Mapping[str, float] = field(default_factory=dict)
    legal: tuple[Callable[..., bool], str] = (lambda *_: True, "")
    smooth: bool = True
    above: float = -np.inf
    declared: str = ""
    title: str = ""
    origin: tuple[Callable[[Any], Any], Any] | None = None

    def unit(self, v: Array) -> Array:
        """The size whose roundings rounded knots near v carry; periodic ones were moved by periods."""
        return np.maximum(np.abs(v), self.period if np.isfinite(self.period) else 0.0)


FAR: Final = 1e301
"""So far out every slope of the table is at its limit in floating point, and no product with a parameter overflows."""
LIMIT: Final = 1e6
"""Positive parameters lie between the inverse of this and this. So what an exponential loses to underflow stays far
below the floor of its error, powers of e are rounded by few units, and two knots never fall on one float."""


def _moderate(parameter: Parameter) -> bool:
    return bool(np.all((np.asarray(parameter) >= 1.0 / LIMIT) & (np.asarray(parameter) <= LIMIT)))


def _positive(name: str, default: float = 1.0) -> dict[str, Any]:
    """One parameter, within that."""
    return {"parameters": {name: default}, "legal": (_moderate, f"1e-6 <= {name} <= 1e6")}


def beyond(v: Array, threshold: Parameter, side: int) -> Array:
    """Whether a point just off v, on the given side, exceeds the threshold."""
    return np.asarray(v >= threshold if side > 0 else v > threshold)


def _straight(
    value: Callable[..., Array],
    knots: Callable[..., Sequence[Parameter]],
    slopes: Callable[..., Sequence[Parameter]],
    parameters: Mapping[str, float] | None = None,
    **facts: Any,
) -> Row:
    """Straight pieces, with kinks between them; knots and slopes are numbers of the table or of the parameters."""
    defaults = parameters or {}

    def slope(v: Array, side: int, *parameters: Parameter) -> Array:
        rates = slopes(*parameters)
        found = rates[0] if len(rates) > 1 else np.full_like(v, rates[0])
        for knot, rate in zip(knots(*parameters), rates[1:], strict=True):
            found = np.where(beyond(v, knot, side), rate, found)
        return np.asarray(found)

    pieces = Pieces(knots, (STRAIGHT,) * len(slopes(*defaults.values())))
    facts = {"kinks": True, "loss": Loss(slope_terms=None), "parameters": defaults, **facts}
    return Row(value, slope, lambda v, *_: np.zeros_like(v), pieces, **facts)


def _exponential(right: float, left: Callable[..., tuple[Parameter, Parameter]], **facts: Any) -> Row:
    """right·v for v ≥ 0, and gain·(exp(v/unit) - 1) for v < 0, with gain and unit from the parameters."""

    def value(v: Array, *parameters: Parameter) -> Array:
        gain, unit = left(*parameters)
        return np.where(v >= 0.0, right * v, gain * np.expm1(np.minimum(v, 0.0) / unit))

    def slope(v: Array, side: int, *parameters: Parameter) -> Array:
        gain, unit = left(*parameters)
        return np.where(beyond(v, 0.0, side), right, gain / unit * np.exp(np.minimum(v, 0.0) / unit))

    def bend(v: Array, side: int, *parameters: Parameter) -> Array:
        gain, unit = left(*parameters)
        return np.where(beyond(v, 0.0, side), 0.0, gain / unit / unit * np.exp(np.minimum(v, 0.0) / unit))

    return Row(value, slope, bend, Pieces((0.0,), (CONVEX, STRAIGHT), (0.0,)), **facts)


def _sigmoidal(turn: float) -> Pieces:
    """φ' rises to its value at 0, and falls; φ'' turns at ± a rounded point."""
    return Pieces((0.0,), (CONVEX, CONCAVE), (-turn, turn))


def _bump(knots: tuple[float, float], turns: tuple[float, float, float], cancels: float = 1.0) -> dict[str, Any]:
    """φ' falls from 0, rises, and falls to 1, so φ'' falls, rises, falls and rises; the points are rounded."""
    pieces = Pieces(knots, (CONCAVE, CONVEX, CONCAVE), turns)
    return {"pieces": pieces, "loss": Loss(cancels, slope_tail=True, value_tail=True), "exact": False}


def _wave(period: float, pieces: Pieces) -> dict[str, Any]:
    """φ' comes again with a period; knots and turns are multiples of π, rounded."""
    loss = Loss(1.0, value_terms=lambda: 1.0)
    return {"pieces": pieces, "period": period, "swing": 1.0, "loss": loss, "exact": False}


def _swish(rate: float) -> Row:
    """v·σ(rate·v): φ'' has the sign of 2 - w·tanh(w/2), w = rate·v; where it is 0 φ' is -0.0998 and 1.0998."""

    def slope(v: Array, side: int) -> Array:
        w = rate * v
        return special.expit(w) * (1.0 + w * special.expit(-w))

    def bend(v: Array, side: int) -> Array:
        w = np.clip(rate * v, -700.0, 700.0)
        return rate * _bell(w) * (2.0 - w * np.tanh(0.5 * w))

    knot, turn = 2.3993572805154677 / rate, 3.435840993535111 / rate
    return Row(lambda v: v * special.expit(rate * v), slope, bend, **_bump((-knot, knot), (-turn, 0.0, turn)))


def _tanh_bend(y: Array) -> Array:
    return -2.0 * y * ((1.0 - y) * (1.0 + y))


def _bell(v: Array) -> Array:
    """Slope of the logistic function, e/(1 + e)² with e = exp(-|v|)."""
    e = np.exp(-np.abs(v))
    rest = 1.0 + e
    return np.asarray(e / (rest * rest))


def _normal_density(v: Array) -> Array:
    return _gauss(_ROOT_HALF * v) / np.sqrt(2.0 * np.pi)


_ROOT_HALF = 0.7071067811865476
"""√½, rounded."""
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772
"""The constants of SELU, by its definition."""
_GELU_SCALE = np.sqrt(2.0 / np.pi)
_GELU_CUBIC = 0.044715
"""The constants of the GELU by tanh, by its definition."""


def _gelu_tanh(v: Array) -> tuple[Array, Array, Array]:
    """v, the exponent of its gate, and the slope of that, where the gate is not yet 0 or 1 in floating point."""
    w = np.clip(v, -100.0, 100.0)
    return w, 2.0 * _GELU_SCALE * (w + _GELU_CUBIC * w**3), 2.0 * _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBIC * w * w)


def _gelu_tanh_slope(v: Array, side: int) -> Array:
    w, inner, rate = _gelu_tanh(v)
    return special.expit(inner) * (1.0 + w * special.expit(-inner) * rate)


def _gelu_tanh_bend(v: Array, side: int) -> Array:
    w, inner, rate = _gelu_tanh(v)
    rise = 12.0 * _GELU_SCALE * _GELU_CUBIC * w
    return special.expit(inner) * special.expit(-inner) * (2.0 * rate + w * (rise - np.tanh(0.5 * inner) * rate * rate))


def _softplus(v: Array, beta: Parameter = 1.0) -> Array:
    x = beta * v
    return (np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))) / beta


def _mish_slope(v: Array, side: int) -> Array:
    gate = np.tanh(_softplus(v))
    return gate + v * special.expit(v) * (1.0 - gate) * (1.0 + gate)


def _mish_bend(v: Array, side: int) -> Array:
    w = np.clip(v, -700.0, 700.0)
    gate, step = np.tanh(_softplus(w)), special.expit(w)
    return (1.0 - gate) * (1.0 + gate) * (2.0 * step + w * (_bell(w) - 2.0 * gate * step * step))


def _gauss(v: Array, power: int = 0) -> Array:
    """exp(-v²) times a power of v, without squares that overflow; beyond 40 it is zero in floating point."""
    w = np.clip(v, -40.0, 40.0)
    return w**power * np.exp(-w * w)


def _power(v: Array, exponent: int) -> Array:
    """The product of so many v; infinite where it overflows, without a warning."""
    w = np.clip(v, -1e100, 1e100)
    found = w * w if exponent == 2 else w * w * w
    return np.where(np.abs(v) <= 1e100, found, np.copysign(np.inf, found))


TABLE: Final[Mapping[str, Row]] = {
    "identity": _straight(lambda v: v, knots=lambda: (), slopes=lambda: (1.0,), kinks=False),
    "relu": _straight(lambda v: np.maximum(v, 0.0), knots=lambda: (0.0,), slopes=lambda: (0.0, 1.0)),
    # Slope γ left of 0 and 1 right of it; any real γ, so |v| is γ = -1.
    "leaky_relu": _straight(
        lambda v, gamma: np.where(v >= 0.0, v, gamma * v),
        knots=lambda _: (0.0,),
        slopes=lambda gamma: (gamma, 1.0),
        parameters={"negative_slope": 0.01},
    ),
    "relu6": _straight(lambda v: np.clip(v, 0.0, 6.0), knots=lambda: (0.0, 6.0), slopes=lambda: (0.0, 1.0, 0.0)),
    "hardtanh": _straight(
        lambda v, low, high: np.clip(v, low, high),
        knots=lambda low, high: (low, high),
        slopes=lambda *_: (0.0, 1.0, 0.0),
        parameters={"min_val": -1.0, "max_val": 1.0},
        legal=(lambda low, high: bool(np.all(np.less(low, high))), "min_val < max_val"),
    ),
    # The kinks are where gain·v + shift is 0 and 1.
    "hardsigmoid": _straight(
        lambda v, gain, shift: np.clip(gain * v + shift, 0.0, 1.0),
        knots=lambda gain, shift: (-shift / gain, (1.0 - shift) / gain),
        slopes=lambda gain, _: (0.0, gain, 0.0),
        loss=Loss(None, value_terms=lambda gain, shift: 1.0 + np.abs(shift)),
        exact=False,
        parameters={"alpha": 1.0 / 6.0, "beta": 0.5},
        legal=(
            lambda gain, shift: _moderate(gain) and bool(np.all(np.abs(shift) <= LIMIT)),
            "1e-6 <= alpha <= 1e6 and -1e6 <= beta <= 1e6",
        ),
    ),
    # 0, then the parabola v(v+3)/6 with slope -1/2 … 3/2, then v.
    "hardswish": Row(
        value=lambda v: v * (np.clip(v + 3.0, 0.0, 6.0) / 6.0),
        slope=lambda v, side: np.where(beyond(v, 3.0, side), 1.0, np.where(beyond(v, -3.0, side), v / 3.0 + 0.5, 0.0)),
        bend=lambda v, side: np.where(beyond(v, -3.0, side) & ~beyond(v, 3.0, side), 1.0 / 3.0, 0.0),
        pieces=Pieces((-3.0, 3.0), (STRAIGHT, CONVEX, STRAIGHT), (-3.0, 3.0)),
        loss=Loss(1.0),
        kinks=True,
    ),
    # φ' = α·exp(v) rises to α on the left, then jumps to 1.
    "elu": _exponential(1.0, lambda alpha: (alpha, 1.0), kinks=True, **_positive("alpha")),
    # φ' = exp(v/α) rises to 1 at 0 and stays there.
    "celu": _exponential(1.0, lambda alpha: (alpha, alpha), loss=Loss(slope_tail=True), **_positive("alpha")),
    # ELU with α = 1.673… times 1.0507…; φ' falls from 1.758 to 1.0507 at 0.
    "selu": _exponential(_SELU_SCALE, lambda: (_SELU_SCALE * _SELU_ALPHA, 1.0), kinks=True),
    # φ' = φ(1-φ) rises to 1/4 at 0 and falls.
    "sigmoid": Row(
        value=lambda v: special.expit(v),
        slope=lambda v, side: _bell(v),
        bend=lambda v, side: 0.125 * _tanh_bend(np.tanh(0.5 * v)),
        pieces=_sigmoidal(1.3169578969248168),
    ),
    # φ' = 1 - tanh² = 4σ(2v)σ(-2v), largest at 0.
    "tanh": Row(
        value=lambda v: np.tanh(v),
        slope=lambda v, side: 4.0 * _bell(2.0 * v),
        bend=lambda v, side: _tanh_bend(np.tanh(v)),
        pieces=_sigmoidal(0.6584789484624084),
    ),
    # φ' = 1/(1+v²), largest at 0.
    "arctan": Row(
        value=lambda v: np.arctan(v),
        slope=lambda v, side: (1.0 / np.hypot(1.0, v)) ** 2,
        bend=lambda v, side: -2.0 * v / np.hypot(1.0, v) / np.hypot(1.0, v) ** 3,
        pieces=_sigmoidal(0.5773502691896257),
    ),
    # φ' = 1/(1+|v|)², largest at 0.
    "softsign": Row(
        value=lambda v: v / (1.0 + np.abs(v)),
        slope=lambda v, side: (1.0 / (1.0 + np.abs(v))) ** 2,
        bend=lambda v, side: np.where(beyond(v, 0.0, side), -2.0, 2.0) / (1.0 + np.abs(v)) ** 3,
        pieces=Pieces((0.0,), (CONVEX, CONCAVE), (0.0,)),
    ),
    # φ' = σ(βv) is increasing.
    "softplus": Row(
        value=_softplus,
        slope=lambda v, side, beta: special.expit(beta * v),
        bend=lambda v, side, beta: beta * _bell(beta * v),
        pieces=Pieces((), (CONVEX,), (0.0,)),
        loss=Loss(slope_tail=True, value_tail=True),
        **_positive("beta"),
    ),
    "silu": _swish(1.0),
    # φ'' = (2 - v²)·density(v), so φ' turns at ±√2, with values -0.1290 and 1.1290.
    "gelu": Row(
        value=lambda v: v * special.ndtr(v),
        slope=lambda v, side: special.ndtr(v) + v * _normal_density(v),
        bend=lambda v, side: (2.0 - v * v) * _normal_density(v),
        **_bump((-1.4142135623730951, 1.4142135623730951), (-2.0, 0.0, 2.0)),
    ),
    # φ'' has the two zeros ±1.41850…; φ' there is -0.1290 and 1.1290.
    "gelu_tanh": Row(
        value=lambda v: v * special.expit(_gelu_tanh(v)[1]),
        slope=_gelu_tanh_slope,
        bend=_gelu_tanh_bend,
        **_bump((-1.4185040087908283, 1.4185040087908283), (-2.013480724624258, 0.0, 2.013480724624258)),
    ),
    # φ'' has the two zeros -2.25638… and 1.49057…; φ' there is -0.1125 and 1.0885. 1 - tanh loses u, times up to 2·19.
    "mish": Row(
        value=lambda v: v * np.tanh(_softplus(v)),
        slope=_mish_slope,
        bend=_mish_bend,
        **_bump(
            (-2.256376396360793, 1.4905711794854285),
            turns=(-3.2673378465204044, -0.08793443131491421, 2.114842563020877),
            cancels=8.0,
        ),
    ),
    # φ' = cos turns at the multiples of π.
    "sin": Row(
        value=lambda v: np.sin(v),
        slope=lambda v, side: np.cos(v),
        bend=lambda v, side: -np.sin(v),
        **_wave(2.0 * np.pi, Pieces((0.0, np.pi), (CONCAVE, CONVEX), (0.5 * np.pi, 1.5 * np.pi))),
    ),
    # φ' = -sin turns at the odd multiples of π/2.
    "cos": Row(
        value=lambda v: np.cos(v),
        slope=lambda v, side: -np.sin(v),
        bend=lambda v, side: -np.cos(v),
        **_wave(2.0 * np.pi, Pieces((0.5 * np.pi, 1.5 * np.pi), (CONVEX, CONCAVE), (0.0, np.pi))),
    ),
    # φ' = 1 + sin(2v) turns where cos(2v) = 0, at odd multiples of π/4; φ - v is sin², between 0 and 1.
    "snake": Row(
        value=lambda v: v + np.sin(v) ** 2,
        slope=lambda v, side: 1.0 + np.sin(2.0 * v),
        bend=lambda v, side: 2.0 * np.cos(2.0 * v),
        drift=1.0,
        **_wave(np.pi, Pieces((0.25 * np.pi, 0.75 * np.pi), (CONCAVE, CONVEX), (0.0, 0.5 * np.pi))),
    ),
    # φ' = 2/√π·exp(-v²), largest at 0.
    "erf": Row(
        value=lambda v: special.erf(v),
        slope=lambda v, side: _gauss(v) * (2.0 / np.sqrt(np.pi)),
        bend=lambda v, side: -4.0 / np.sqrt(np.pi) * _gauss(v, 1),
        pieces=_sigmoidal(_ROOT_HALF),
        loss=Loss(slope_tail=True),
    ),
    # φ' = σ(-v) is decreasing.
    "logsigmoid": Row(
        value=lambda v: -_softplus(-v),
        slope=lambda v, side: special.expit(-v),
        bend=lambda v, side: -_bell(v),
        pieces=Pieces((), (CONCAVE,), (0.0,)),
    ),
    # φ' = tanh² falls to 0 at 0 and rises.
    "tanhshrink": Row(
        value=lambda v: v - np.tanh(v),
        slope=lambda v, side: np.tanh(v) ** 2,
        bend=lambda v, side: -_tanh_bend(np.tanh(v)),
        pieces=Pieces((0.0,), (CONCAVE, CONVEX), (-0.6584789484624084, 0.6584789484624084)),
        loss=Loss(value_terms=lambda: 1.0),
    ),
    "softshrink": _straight(
        lambda v, limit: np.where(v > limit, v - limit, np.where(v < -np.asarray(limit), v + limit, 0.0)),
        knots=lambda limit: (-np.asarray(limit), limit),
        slopes=lambda _: (1.0, 0.0, 1.0),
        **_positive("lambd", 0.5),
    ),
    "threshold": _straight(
        lambda v, limit: np.maximum(v, limit),
        knots=lambda limit: (limit,),
        slopes=lambda _: (0.0, 1.0),
        parameters={"threshold": 0.0},
    ),
    "quick_gelu": _swish(1.702),
    # φ' = 2v is increasing, without end: there is a bound on bounded regions only.
    "square": Row(
        value=lambda v: _power(v, 2),
        slope=lambda v, side: np.where(np.abs(v) <= 1e300, 2.0 * np.clip(v, -1e300, 1e300), np.copysign(np.inf, v)),
        bend=lambda v, side: np.full_like(v, 2.0),
        pieces=Pieces((), (CONVEX,), (0.0,)),
    ),
    # φ' = 3v² falls to 0 at 0 and rises without end: there is a bound on bounded regions only.
    "cube": Row(
        value=lambda v: _power(v, 3),
        slope=lambda v, side: 3.0 * _power(v, 2),
        bend=lambda v, side: 6.0 * np.clip(v, -1e300, 1e300),
        pieces=Pieces((0.0,), (CONCAVE, CONVEX), (0.0,)),
    ),
}


# Activations whose slopes grow without end: exp, and those that are defined for positive numbers only. There are bounds
# on bounded intervals only, of the latter on positive ones. Each is convex or concave, so its slopes are between those
# at the ends. Outside of the domain values and slopes are NaN, which proves nothing.

_LEAST: Final = 1e-290
"""Smaller φ'' may have lost digits."""
_LARGEST: Final = 709.0
"""The exponential of this is a float; of larger numbers it is taken to be infinite."""


def _exp(v: Array) -> Array:
    return np.where(v > _LARGEST, np.inf, np.exp(np.minimum(v, _LARGEST)))


def _unbounded(*rules: Callable[[Array], Array], shape: int, above: float = 0.0) -> Row:
    """From φ, φ' and a φ'' that is monotone; nothing is said of a φ'' that may underflow."""

    def inside(v: Array) -> Array:
        return np.where((v > above) | (above == -np.inf), v, np.nan)

    def bend(v: Array, side: int) -> Array:
        found = rules[2](inside(v))
        return np.where(np.abs(found) > _LEAST, found, np.nan)

    value, slope = rules[:2]
    return Row(lambda v: value(inside(v)), lambda v, side: slope(inside(v)), bend, Pieces((), (shape,)), above=above)


POSITIVE: Final[Mapping[str, Row]] = {
    # φ' = exp is increasing.
    "exp": _unbounded(_exp, _exp, _exp, shape=CONVEX, above=-np.inf),
    # φ' = -1/v² is increasing.
    "reciprocal": _unbounded(lambda v: 1.0 / v, lambda v: -1.0 / v / v, lambda v: 2.0 / v / v / v, shape=CONVEX),
    # φ' = -½ v^(-3/2) is increasing.
    "rsqrt": _unbounded(
        lambda v: 1.0 / np.sqrt(v), lambda v: -0.5 / v / np.sqrt(v), lambda v: 0.75 / v / v / np.sqrt(v), shape=CONVEX
    ),
    # φ' = ½ v^(-½) is decreasing.
    "sqrt": _unbounded(np.sqrt, lambda v: 0.5 / np.sqrt(v), lambda v: -0.25 / v / np.sqrt(v), shape=CONCAVE),
    # φ' = 1/v is decreasing.
    "log": _unbounded(np.log, lambda v: 1.0 / v, lambda v: -1.0 / v / v, shape=CONCAVE),
}


PIECES: Final = "piecewise_linear_"
"""Beginning of the names of piecewise linear rows; the number of kinks follows."""
MOST_KINKS: Final = 64
"""Kinks of a piecewise linear row at most: each is looked at for every neuron."""


def _heights(count: int, *parameters: float) -> tuple[Array, float]:
    """Values at the knots, as computed, and four times the size of what is added up."""
    steps = np.array([parameters[-1], *(np.diff(parameters[:count]) * parameters[count + 1 : -2])])
    return steps.cumsum(), 4.0 * float(np.abs(steps).sum())


@cache
def piecewise_linear(name: str) -> Row | None:
    """The row with slopes s_0 … s_n between the kinks k_1 < … < k_n, and the value at k_1; n stands in the name."""
    digits = name.removeprefix(PIECES)
    if digits == name or digits not in map(str, range(1, MOST_KINKS + 1)):
        return None
    count = int(digits)

    def legal(*parameters: Parameter) -> bool:
        if any(np.ndim(p) for p in parameters):
            return False
        knots = np.array(parameters[:count])
        ascend = bool((knots[1:] > knots[:-1]).all())
        return ascend and bool(np.isfinite(_heights(count, *map(float, parameters))[1]))

    def value(v: Array, *parameters: Parameter) -> Array:
        knots, slopes = np.array(parameters[:count]), np.array(parameters[count:-1])
        piece = np.searchsorted(knots, v, side="right")
        left = np.maximum(piece - 1, 0)
        return _heights(count, *map(float, parameters))[0][left] + slopes[piece] * (v - knots[left])

    names = [*(f"knot{k}" for k in range(1, count + 1)), *(f"slope{k}" for k in range(count + 1)), "value"]
    return _straight(
        value,
        knots=lambda *parameters: parameters[:count],
        slopes=lambda *parameters: parameters[count:-1],
        loss=Loss(None, value_terms=lambda *p: _heights(count, *map(float, p))[1]),
        parameters=dict(zip(names, [*range(count), *([0.0] * count), 1.0, 0.0], strict=True)),
        legal=(legal, "ascending knots and finite values at them, each a single number"),
    )


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
        known = self.row.loss.slope_terms is None  # straight pieces need no limits
        return self.row.slope(v if known else _finite(v), side, *self.parameters)

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
