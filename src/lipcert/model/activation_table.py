"""The facts about each activation function, one row each.

A row states the value, the one-sided derivatives, and the *knots*: the points where the derivative stops being
monotone (kinks, and zeros of the second derivative). Between two knots the function is convex, concave or straight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from scipy import special

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


NO_ROUNDING: Final = Loss(slope_terms=None)
"""Straight pieces, whose slopes are stored."""
USUAL: Final = Loss()
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
    ends : slopes at -∞ and +∞, infinite where they grow without end; for periodic rows the least and the largest slope.
    extent : infimum and supremum of φ(v) - drift·v on the whole line.
    why : the reason the numbers hold.
    loss : what the formulas of value and slope lose to rounding; measured against ball arithmetic by the tests.
    kinks : whether φ' may jump at the knots.
    exact : whether the knots are exact floating-point numbers.
    period : of φ', if it is periodic; an interval that long has all slopes and touches the extent.
    drift : the mean slope of a periodic row: φ(v) - drift·v is periodic.
    parameters : names and defaults, in the order the callables take them.
    legal : predicate the parameters must satisfy, with its description; for all others the numbers are not proved.
    bend : the second derivative from the given side, with an error far below 2⁻⁴⁰ of the largest it takes; the side
        matters at turns only. Zero is the bend of straight pieces.
    turns : ascending points between which φ'' is monotone, among them all where it jumps; like knots where periodic.
    smooth : whether bend and turns are known; where they are not, nothing is said of φ''.
    declared : what of the facts rests on somebody's word, in words; empty for the rows of the table.
    """

    value: Callable[..., Array]
    slope: Callable[..., Array]
    knots: Callable[..., Sequence[Parameter]]
    shape: Callable[..., Sequence[Parameter]]
    ends: Callable[..., tuple[Parameter, Parameter]]
    extent: Callable[..., tuple[Parameter, Parameter]]
    why: str
    loss: Loss = USUAL
    kinks: bool = False
    exact: bool = True
    period: float = np.inf
    drift: float = 0.0
    parameters: Mapping[str, float] = field(default_factory=dict)
    legal: tuple[Callable[..., bool], str] = (lambda *_: True, "")
    bend: Callable[..., Array] = lambda v, *_: np.zeros_like(v)
    turns: Callable[..., Sequence[Parameter]] = lambda *_: ()
    smooth: bool = True
    declared: str = ""

    def unit(self, v: Array) -> Array:
        """The size whose roundings rounded knots near v carry; periodic ones were moved by periods."""
        return np.maximum(np.abs(v), self.period if np.isfinite(self.period) else 0.0)


def always(**facts: Sequence[Parameter]) -> dict[str, Any]:
    """Facts that depend on no parameter and no point, as the callables that a row has for them."""
    return {name: lambda *_, fact=fact: fact for name, fact in facts.items()}


def beyond(v: Array, threshold: Parameter, side: int) -> Array:
    """Whether a point just off v, on the given side, exceeds the threshold."""
    return np.asarray(v >= threshold if side > 0 else v > threshold)


def recurring(points: Sequence[float], period: float) -> Callable[..., Sequence[Parameter]]:
    """Ascending points that come again with a period, as a function of a start: all up to a period beyond it.

    Some may lie before the start, which does no harm.
    """

    def found(start: Array, *_: Parameter) -> Sequence[Parameter]:
        turn = np.floor((np.where(np.isfinite(start), start, 0.0) - points[0]) / period)
        return [point + (turn + k) * period for k, point in [*((k, p) for k in (0, 1) for p in points), (2, points[0])]]

    return found


def recurring_shape(shapes: Sequence[int]) -> Callable[..., Sequence[Parameter]]:
    """The shape of the pieces that begin at recurring points, of which the first belongs to the last point before."""
    found = (shapes[-1], *shapes, *shapes, shapes[0])
    return lambda *_: found


LIMIT: Final = 1e6
"""Positive parameters lie between the inverse of this and this. So what an exponential loses to underflow stays far
below the floor of its error, powers of e are rounded by few units, and two knots never fall on one float."""


def moderate(*parameters: Parameter) -> bool:
    """Whether all parameters are within that."""
    return all(bool(np.all((np.asarray(p) >= 1.0 / LIMIT) & (np.asarray(p) <= LIMIT))) for p in parameters)


def _straight(pieces: int, **facts: Sequence[Parameter]) -> dict[str, Any]:
    """So many straight pieces, whose slopes are numbers of the table or parameters."""
    return always(shape=(STRAIGHT,) * pieces, **facts) | {"loss": NO_ROUNDING, "kinks": True}


def _bump(knots: tuple[float, float], least: float, turns: tuple[float, float, float]) -> dict[str, Any]:
    """φ' falls from 0, rises, and falls to 1, so φ'' falls, rises, falls and rises; the points are rounded."""
    facts = always(knots=knots, shape=(CONCAVE, CONVEX, CONCAVE), ends=(0.0, 1.0), extent=(least, np.inf), turns=turns)
    return facts | {"exact": False}


def _even_bump(knot: float, least: float, turn: float) -> dict[str, Any]:
    """The same where φ' - ½ is odd."""
    return _bump((-knot, knot), least, (-turn, 0.0, turn))


def _sigmoidal(low: float, high: float, turn: float) -> dict[str, Any]:
    """φ rises from one limit to another, φ' to its value at 0; φ'' turns at ± a rounded point."""
    return always(knots=(0.0,), shape=(CONVEX, CONCAVE), ends=(0.0, 0.0), extent=(low, high), turns=(-turn, turn))


def _wave(
    period: float, shape: tuple[int, int], knots: tuple[float, float], turns: tuple[float, float], **facts: Any
) -> dict[str, Any]:
    """φ' comes again with a period; its points are multiples of π, rounded."""
    loss = Loss(1.0, value_terms=lambda: 1.0)
    recur = {"knots": recurring(knots, period), "turns": recurring(turns, period), "shape": recurring_shape(shape)}
    return always(**facts) | recur | {"loss": loss, "exact": False, "period": period}


def _clamp_slope(v: Array, side: int, low: Parameter, high: Parameter, gain: Parameter = 1.0) -> Array:
    return np.where(beyond(v, low, side) & ~beyond(v, high, side), gain, 0.0)


def _tanh_bend(y: Array) -> Array:
    return -2.0 * y * ((1.0 - y) * (1.0 + y))


def _bell(v: Array) -> Array:
    """Slope of the logistic function, e/(1 + e)² with e = exp(-|v|)."""
    e = np.exp(-np.abs(v))
    rest = 1.0 + e
    return np.asarray(e / (rest * rest))


def _gate_slope(gate: Array) -> Array:
    """Slope of the logistic function where it has the value ``gate``."""
    return gate * (1.0 - gate)


def _silu_bend(v: Array, gate: Array) -> Array:
    w = np.clip(v, -700.0, 700.0)
    return _gate_slope(gate) * (2.0 - w * (2.0 * gate - 1.0))


def _left_bend(v: Array, side: int, rate: Parameter, gain: Parameter) -> Array:
    """Second derivative of gain·(exp(rate·v) - 1)/rate left of 0, and of a straight line right of it."""
    return np.where(beyond(v, 0.0, side), 0.0, gain * rate * _exp_left(rate * v))


def _normal_density(v: Array) -> Array:
    w = np.clip(v, -50.0, 50.0)  # where the density is zero in floating point
    return np.exp(-0.5 * w * w) / np.sqrt(2.0 * np.pi)


_ROOT_HALF = 0.7071067811865476
_ONE, _TWO, _AROUND = (0.0, 1.0), (0.0, 2.0), (-1.0, 1.0)
"""√½, rounded, and ranges of slopes and of values."""
_GELU_SCALE = np.sqrt(2.0 / np.pi)
_GELU_CUBIC = 0.044715
"""The constants of the GELU by tanh, by its definition."""
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772
_SELU_LEAST = -_SELU_SCALE * _SELU_ALPHA * (1 + 1e-15)
"""The constants of SELU, by its definition, and a number below all its values."""


def _gelu_tanh_inner(v: Array) -> Array:
    w = np.clip(v, -100.0, 100.0)  # where the gate is 0 or 1 in floating point
    return 2.0 * _GELU_SCALE * (w + _GELU_CUBIC * w**3)


def _gelu_tanh_slope(v: Array) -> Array:
    inner, w = _gelu_tanh_inner(v), np.clip(v, -100.0, 100.0)
    rate = 2.0 * _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBIC * w * w)
    return special.expit(inner) * (1.0 + w * special.expit(-inner) * rate)


def _gelu_tanh_bend(v: Array) -> Array:
    inner, w = _gelu_tanh_inner(v), np.clip(v, -100.0, 100.0)
    rate, rise = 2.0 * _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBIC * w * w), 12.0 * _GELU_SCALE * _GELU_CUBIC * w
    return special.expit(inner) * special.expit(-inner) * (2.0 * rate + w * (rise - np.tanh(0.5 * inner) * rate * rate))


def _softplus(v: Array, beta: Parameter = 1.0) -> Array:
    x = beta * v
    return (np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))) / beta


def _mish_slope(v: Array) -> Array:
    gate = np.tanh(_softplus(v))
    return gate + v * special.expit(v) * (1.0 - gate) * (1.0 + gate)


def _mish_bend(v: Array) -> Array:
    w = np.clip(v, -700.0, 700.0)
    gate, step = np.tanh(_softplus(w)), special.expit(w)
    return (1.0 - gate) * (1.0 + gate) * (2.0 * step + w * (_gate_slope(step) - 2.0 * gate * step * step))


def _expm1_left(v: Array) -> Array:
    return np.expm1(np.minimum(v, 0.0))


def _exp_left(v: Array) -> Array:
    return np.exp(np.minimum(v, 0.0))


_QUICK: Final = 1.702
"""The constant of the quick GELU, v·σ(1.702v)."""


def _quick_slope(v: Array) -> Array:
    w = _QUICK * v
    return special.expit(w) * (1.0 + w * special.expit(-w))


def _gauss(v: Array) -> Array:
    """exp(-v²), without squares that overflow; beyond 40 it is zero in floating point."""
    w = np.clip(v, -40.0, 40.0)
    return np.exp(-w * w)


def _gauss_times(v: Array, power: int) -> Array:
    return np.clip(v, -40.0, 40.0) ** power * _gauss(v)


def _root(v: Array, b: Parameter) -> Array:
    """√(v² + b)."""
    return np.hypot(v, np.sqrt(b))


def _squareplus(v: Array, b: Parameter) -> Array:
    """(v + √(v² + b))/2; left of 0 as b/2 over √(v² + b) - v, in which nothing cancels."""
    root = _root(v, b)
    return np.where(v >= 0.0, 0.5 * v + 0.5 * root, 0.5 * b / (root + np.abs(v)))


def _squareplus_slope(v: Array, b: Parameter) -> Array:
    root = _root(v, b)
    small = 0.5 * (b / (root + np.abs(v))) / root
    return np.where(v >= 0.0, 1.0 - small, small)


def _power(v: Array, exponent: int) -> Array:
    """The product of so many v; infinite where it overflows, without a warning."""
    w = np.clip(v, -1e100, 1e100)
    result = w * w if exponent == 2 else w * w * w
    return np.where(np.abs(v) <= 1e100, result, np.where((v < 0.0) & (exponent == 3), -np.inf, np.inf))


def _tanhshrink(v: Array) -> Array:
    """Same as v - tanh(v), up to 1 as v·q/(1 + q): tanh(v) = v/(1 + q) with a continued fraction q."""
    w = np.clip(v, -1.0, 1.0)
    square, q = w * w, np.zeros_like(w)
    for odd in range(19, 1, -2):
        q = square / (odd + q)
    return np.where(np.abs(v) <= 1.0, w * (q / (1.0 + q)), v - np.tanh(v))


def _softshrink(v: Array, limit: Parameter) -> Array:
    return np.where(v > limit, v - limit, np.where(v < -np.asarray(limit), v + limit, 0.0))


def _softshrink_slope(v: Array, side: int, limit: Parameter) -> Array:
    return np.where(beyond(v, -np.asarray(limit), side) & ~beyond(v, limit, side), 0.0, 1.0)


TABLE: Final[Mapping[str, Row]] = {
    "identity": Row(
        value=lambda v: v,
        slope=lambda v, side: np.ones_like(v),
        **always(knots=(), shape=(STRAIGHT,), ends=(1.0, 1.0), extent=(-np.inf, np.inf)),
        why="φ' = 1.",
        loss=NO_ROUNDING,
    ),
    "relu": Row(
        value=lambda v: np.maximum(v, 0.0),
        slope=lambda v, side: np.where(beyond(v, 0.0, side), 1.0, 0.0),
        **_straight(2, knots=(0.0,), ends=(0.0, 1.0), extent=(0.0, np.inf)),
        why="Slope 0 left of 0 and 1 right of it.",
    ),
    "leaky_relu": Row(
        value=lambda v, gamma: np.where(v >= 0.0, v, gamma * v),
        slope=lambda v, side, gamma: np.where(beyond(v, 0.0, side), 1.0, gamma),
        **_straight(2, knots=(0.0,)),
        ends=lambda gamma: (gamma, 1.0),
        extent=lambda gamma: (np.where(np.asarray(gamma) > 0, -np.inf, 0.0), np.inf),
        why="Slope γ left of 0 and 1 right of it; any real γ, so |v| is γ = -1.",
        parameters={"negative_slope": 0.01},
    ),
    "relu6": Row(
        value=lambda v: np.clip(v, 0.0, 6.0),
        slope=lambda v, side: _clamp_slope(v, side, 0.0, 6.0),
        **_straight(3, knots=(0.0, 6.0), ends=(0.0, 0.0), extent=(0.0, 6.0)),
        why="Straight pieces of slope 0, 1, 0.",
    ),
    "hardtanh": Row(
        value=lambda v, low, high: np.clip(v, low, high),
        slope=_clamp_slope,
        **_straight(3, ends=(0.0, 0.0)),
        knots=lambda _start, low, high: (low, high),
        extent=lambda low, high: (low, high),
        why="Straight pieces of slope 0, 1, 0, kinks at the two limits.",
        parameters={"min_val": -1.0, "max_val": 1.0},
        legal=(lambda low, high: bool(np.all(np.less(low, high))), "min_val < max_val"),
    ),
    "hardsigmoid": Row(
        value=lambda v, gain, shift: np.clip(gain * v + shift, 0.0, 1.0),
        slope=lambda v, side, gain, shift: _clamp_slope(v, side, -shift / gain, (1.0 - shift) / gain, gain),
        **always(shape=(STRAIGHT, STRAIGHT, STRAIGHT), ends=(0.0, 0.0), extent=(0.0, 1.0)),
        knots=lambda _start, gain, shift: (-shift / gain, (1.0 - shift) / gain),
        why="Straight pieces of slope 0, gain, 0; the kinks are where gain·v + shift is 0 and 1.",
        loss=Loss(None, value_terms=lambda gain, shift: 1.0 + np.abs(shift)),
        kinks=True,
        exact=False,
        parameters={"alpha": 1.0 / 6.0, "beta": 0.5},
        legal=(
            lambda gain, shift: moderate(gain) and bool(np.all(np.abs(shift) <= LIMIT)),
            "1e-6 <= alpha <= 1e6 and -1e6 <= beta <= 1e6",
        ),
    ),
    "hardswish": Row(
        value=lambda v: v * (np.clip(v + 3.0, 0.0, 6.0) / 6.0),
        slope=lambda v, side: np.where(beyond(v, 3.0, side), 1.0, np.where(beyond(v, -3.0, side), v / 3.0 + 0.5, 0.0)),
        **always(knots=(-3.0, 3.0), shape=(STRAIGHT, CONVEX, STRAIGHT), ends=(0.0, 1.0), extent=(-0.375, np.inf)),
        why="0, then the parabola v(v+3)/6 with slope -1/2 … 3/2 and minimum -3/8, then v.",
        loss=Loss(1.0),
        kinks=True,
        bend=lambda v, side: np.where(beyond(v, -3.0, side) & ~beyond(v, 3.0, side), 1.0 / 3.0, 0.0),
        turns=lambda _: (-3.0, 3.0),
    ),
    "elu": Row(
        value=lambda v, alpha: np.where(v >= 0.0, v, alpha * _expm1_left(v)),
        slope=lambda v, side, alpha: np.where(beyond(v, 0.0, side), 1.0, alpha * _exp_left(v)),
        **always(knots=(0.0,), shape=(CONVEX, STRAIGHT), ends=(0.0, 1.0)),
        extent=lambda alpha: (-np.asarray(alpha), np.inf),
        why="φ' = α·exp(v) rises to α on the left, then jumps to 1.",
        kinks=True,
        parameters={"alpha": 1.0},
        legal=(moderate, "1e-6 <= alpha <= 1e6"),
        bend=lambda v, side, alpha: _left_bend(v, side, 1.0, alpha),
        turns=lambda *_: (0.0,),
    ),
    "celu": Row(
        value=lambda v, alpha: np.where(v >= 0.0, v, alpha * _expm1_left(v / alpha)),
        slope=lambda v, side, alpha: np.where(beyond(v, 0.0, side), 1.0, _exp_left(v / alpha)),
        **always(knots=(0.0,), shape=(CONVEX, STRAIGHT), ends=(0.0, 1.0)),
        extent=lambda alpha: (-np.asarray(alpha), np.inf),
        why="φ' = exp(v/α) rises to 1 at 0 and stays there.",
        loss=Loss(slope_tail=True),
        parameters={"alpha": 1.0},
        legal=(moderate, "1e-6 <= alpha <= 1e6"),
        bend=lambda v, side, alpha: _left_bend(v, side, 1.0 / alpha, 1.0),
        turns=lambda *_: (0.0,),
    ),
    "selu": Row(
        value=lambda v: _SELU_SCALE * np.where(v >= 0.0, v, _SELU_ALPHA * _expm1_left(v)),
        slope=lambda v, side: _SELU_SCALE * np.where(beyond(v, 0.0, side), 1.0, _SELU_ALPHA * _exp_left(v)),
        **always(knots=(0.0,), shape=(CONVEX, STRAIGHT), ends=(0.0, _SELU_SCALE), extent=(_SELU_LEAST, np.inf)),
        why="ELU with α = 1.673… times 1.0507…; φ' falls from 1.758 to 1.0507 at 0.",
        kinks=True,
        bend=lambda v, side: _left_bend(v, side, 1.0, _SELU_SCALE * _SELU_ALPHA),
        turns=lambda _: (0.0,),
    ),
    "sigmoid": Row(
        value=lambda v: special.expit(v),
        slope=lambda v, side: _bell(v),
        bend=lambda v, side: 0.25 * _tanh_bend(np.tanh(0.5 * v)) / 2.0,
        **_sigmoidal(0.0, 1.0, turn=1.3169578969248168),
        why="φ' = φ(1-φ) rises to 1/4 at 0 and falls.",
    ),
    "tanh": Row(
        value=lambda v: np.tanh(v),
        slope=lambda v, side: 4.0 * _bell(2.0 * v),
        bend=lambda v, side: _tanh_bend(np.tanh(v)),
        **_sigmoidal(-1.0, 1.0, turn=0.6584789484624084),
        why="φ' = 1 - tanh² = 4σ(2v)σ(-2v), largest at 0.",
    ),
    "arctan": Row(
        value=lambda v: np.arctan(v),
        slope=lambda v, side: (1.0 / np.hypot(1.0, v)) ** 2,
        bend=lambda v, side: -2.0 * v / np.hypot(1.0, v) / np.hypot(1.0, v) ** 3,
        **_sigmoidal(-1.5707963267948968, 1.5707963267948968, turn=0.5773502691896257),
        why="φ' = 1/(1+v²), largest at 0.",
    ),
    "softsign": Row(
        value=lambda v: v / (1.0 + np.abs(v)),
        slope=lambda v, side: (1.0 / (1.0 + np.abs(v))) ** 2,
        **always(knots=(0.0,), shape=(CONVEX, CONCAVE), ends=(0.0, 0.0), extent=(-1.0, 1.0)),
        why="φ' = 1/(1+|v|)², largest at 0.",
        bend=lambda v, side: np.where(beyond(v, 0.0, side), -2.0, 2.0) / (1.0 + np.abs(v)) ** 3,
        turns=lambda _: (0.0,),
    ),
    "softplus": Row(
        value=_softplus,
        slope=lambda v, side, beta: special.expit(beta * v),
        **always(knots=(), shape=(CONVEX,), ends=(0.0, 1.0), extent=(0.0, np.inf)),
        why="φ' = σ(βv) is increasing.",
        loss=Loss(slope_tail=True, value_tail=True),
        parameters={"beta": 1.0},
        legal=(moderate, "1e-6 <= beta <= 1e6"),
        bend=lambda v, side, beta: beta * _gate_slope(special.expit(beta * v)),
        turns=lambda *_: (0.0,),
    ),
    "silu": Row(
        value=lambda v: v * special.expit(v),
        slope=lambda v, side: special.expit(v) * (1.0 + v * special.expit(-v)),
        **_even_bump(2.3993572805154677, -0.2784645427610738, 3.435840993535111),
        why="φ'' = σ(1-σ)(2 - v·tanh(v/2)) vanishes where v·tanh(v/2) = 2; φ' there is -0.0998 and 1.0998.",
        loss=Loss(1.0, slope_tail=True),
        bend=lambda v, side: _silu_bend(v, special.expit(v)),
    ),
    "gelu": Row(
        value=lambda v: v * special.ndtr(v),
        slope=lambda v, side: special.ndtr(v) + v * _normal_density(v),
        **_even_bump(1.4142135623730951, -0.16997120747990369, 2.0),
        why="φ'' = (2 - v²)·density(v), so φ' turns at ±√2, with values -0.1290 and 1.1290.",
        loss=Loss(1.0, slope_tail=True, value_tail=True),
        bend=lambda v, side: (2.0 - v * v) * _normal_density(v),
    ),
    "gelu_tanh": Row(
        value=lambda v: v * special.expit(_gelu_tanh_inner(v)),
        slope=lambda v, side: _gelu_tanh_slope(v),
        **_even_bump(1.4185040087908283, -0.17004075057125407, 2.013480724624258),
        why="φ'' has the two zeros ±1.41850…; φ' there is -0.1290 and 1.1290.",
        loss=Loss(1.0, slope_tail=True, value_tail=True),
        bend=lambda v, side: _gelu_tanh_bend(v),
    ),
    "mish": Row(
        value=lambda v: v * np.tanh(_softplus(v)),
        slope=lambda v, side: _mish_slope(v),
        **_bump(
            knots=(-2.256376396360793, 1.4905711794854285),
            least=-0.30884341301725043,
            turns=(-3.2673378465204044, -0.08793443131491421, 2.114842563020877),
        ),
        why="φ'' has the two zeros -2.25638… and 1.49057…; φ' there is -0.1125 and 1.0885.",
        loss=Loss(8.0, slope_tail=True),  # 1 - tanh loses u, times up to 2·19
        bend=lambda v, side: _mish_bend(v),
    ),
    "sin": Row(
        value=lambda v: np.sin(v),
        slope=lambda v, side: np.cos(v),
        bend=lambda v, side: -np.sin(v),
        **_wave(2.0 * np.pi, (CONCAVE, CONVEX), (0.0, np.pi), (0.5 * np.pi, 1.5 * np.pi), ends=_AROUND, extent=_AROUND),
        why="φ' = cos turns at the multiples of π; an interval of length 2π or more sees all of [-1, 1].",
    ),
    "cos": Row(
        value=lambda v: np.cos(v),
        slope=lambda v, side: -np.sin(v),
        bend=lambda v, side: -np.cos(v),
        **_wave(2.0 * np.pi, (CONVEX, CONCAVE), (0.5 * np.pi, 1.5 * np.pi), (0.0, np.pi), ends=_AROUND, extent=_AROUND),
        why="φ' = -sin turns at the odd multiples of π/2; an interval of length 2π or more sees all of [-1, 1].",
    ),
    "snake": Row(
        value=lambda v: v + np.sin(v) ** 2,
        slope=lambda v, side: 1.0 + np.sin(2.0 * v),
        bend=lambda v, side: 2.0 * np.cos(2.0 * v),
        **_wave(np.pi, (CONCAVE, CONVEX), (0.25 * np.pi, 0.75 * np.pi), (0.0, 0.5 * np.pi), ends=_TWO, extent=_ONE),
        why="φ' = 1 + sin(2v) turns where cos(2v) = 0, at odd multiples of π/4; φ - v is sin², between 0 and 1.",
        drift=1.0,
    ),
    "erf": Row(
        value=lambda v: special.erf(v),
        slope=lambda v, side: _gauss(v) * (2.0 / np.sqrt(np.pi)),
        bend=lambda v, side: -4.0 / np.sqrt(np.pi) * _gauss_times(v, 1),
        **_sigmoidal(-1.0, 1.0, turn=_ROOT_HALF),
        why="φ' = 2/√π·exp(-v²), largest at 0.",
        loss=Loss(slope_tail=True),
    ),
    "gaussian": Row(
        value=lambda v: _gauss(v),
        slope=lambda v, side: -2.0 * _gauss_times(v, 1),
        **always(knots=(-_ROOT_HALF, _ROOT_HALF), shape=(CONVEX, CONCAVE, CONVEX), ends=(0.0, 0.0), extent=(0.0, 1.0)),
        why="exp(-v²): φ'' = (4v² - 2)exp(-v²) vanishes at ±1/√2, where φ' is ±√(2/e).",
        loss=Loss(slope_tail=True, value_tail=True),
        exact=False,
        bend=lambda v, side: 4.0 * _gauss_times(v, 2) - 2.0 * _gauss(v),
        turns=lambda _: (-1.224744871391589, 0.0, 1.224744871391589),
    ),
    "logsigmoid": Row(
        value=lambda v: -np.logaddexp(0.0, -v),
        slope=lambda v, side: special.expit(-v),
        **always(knots=(), shape=(CONCAVE,), ends=(1.0, 0.0), extent=(-np.inf, 0.0)),
        why="φ' = σ(-v) is decreasing.",
        bend=lambda v, side: -special.expit(v) * special.expit(-v),
        turns=lambda _: (0.0,),
    ),
    "tanhshrink": Row(
        value=_tanhshrink,
        slope=lambda v, side: np.tanh(v) ** 2,
        **always(knots=(0.0,), shape=(CONCAVE, CONVEX), ends=(1.0, 1.0), extent=(-np.inf, np.inf)),
        why="φ' = tanh² falls to 0 at 0 and rises.",
        bend=lambda v, side: 2.0 * np.tanh(v) * ((1.0 - np.tanh(v)) * (1.0 + np.tanh(v))),
        turns=lambda _: (-0.6584789484624084, 0.6584789484624084),
    ),
    "softshrink": Row(
        value=_softshrink,
        slope=_softshrink_slope,
        **_straight(3, ends=(1.0, 1.0), extent=(-np.inf, np.inf)),
        knots=lambda _start, limit: (-np.asarray(limit), limit),
        why="Straight pieces of slope 1, 0, 1, kinks at ±λ.",
        parameters={"lambd": 0.5},
        legal=(moderate, "1e-6 <= lambd <= 1e6"),
    ),
    "threshold": Row(
        value=lambda v, limit: np.maximum(v, limit),
        slope=lambda v, side, limit: np.where(beyond(v, limit, side), 1.0, 0.0),
        **_straight(2, ends=(0.0, 1.0)),
        knots=lambda _start, limit: (limit,),
        extent=lambda limit: (limit, np.inf),
        why="max(v, t): slope 0 left of t and 1 right of it.",
        parameters={"threshold": 0.0},
    ),
    "squareplus": Row(
        value=_squareplus,
        slope=lambda v, side, b: _squareplus_slope(v, b),
        **always(knots=(), shape=(CONVEX,), ends=(0.0, 1.0), extent=(0.0, np.inf)),
        why="φ' = (1 + v/√(v² + b))/2 is increasing.",
        parameters={"b": 4.0},
        legal=(moderate, "1e-6 <= b <= 1e6"),
        bend=lambda v, side, b: 0.5 * (b / _root(v, b)) / _root(v, b) / _root(v, b),
        turns=lambda *_: (0.0,),
    ),
    "quick_gelu": Row(
        value=lambda v: v * special.expit(_QUICK * v),
        slope=lambda v, side: _quick_slope(v),
        **_even_bump(1.4097281319127308, -0.16361018963635362, 2.0187079868008877),
        why="silu(1.702v)/1.702; φ' turns where 1.702v·tanh(0.851v) = 2, with the values -0.0998 and 1.0998.",
        loss=Loss(1.0, slope_tail=True, value_tail=True),
        bend=lambda v, side: _QUICK * _silu_bend(_QUICK * v, special.expit(_QUICK * v)),
    ),
    "square": Row(
        value=lambda v: _power(v, 2),
        slope=lambda v, side: np.where(np.abs(v) <= 1e300, 2.0 * np.clip(v, -1e300, 1e300), np.copysign(np.inf, v)),
        **always(knots=(), shape=(CONVEX,), ends=(-np.inf, np.inf), extent=(0.0, np.inf), turns=(0.0,)),
        why="φ' = 2v is increasing, without end: there is a bound on bounded regions only.",
        bend=lambda v, side: np.full_like(v, 2.0),
    ),
    "cube": Row(
        value=lambda v: _power(v, 3),
        slope=lambda v, side: 3.0 * _power(v, 2),
        **always(knots=(0.0,), shape=(CONCAVE, CONVEX), ends=(np.inf, np.inf), extent=(-np.inf, np.inf), turns=(0.0,)),
        why="φ' = 3v² falls to 0 at 0 and rises without end: there is a bound on bounded regions only.",
        bend=lambda v, side: 6.0 * np.clip(v, -1e300, 1e300),
    ),
}
