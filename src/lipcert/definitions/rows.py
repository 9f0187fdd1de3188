"""The definition of every activation in ball arithmetic, as pieces of formulas."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from flint import arb, ctx, fmpq

from lipcert.definitions.functions import Formula, Function, Wave, ball, head, jet, rational
from lipcert.errors import ProofFailed


def zeros(h: Formula, low: int, high: int) -> list[arb]:
    """All zeros of h between two numbers as small balls: each is inside one, and h has one sign between them.

    A part is finished when h has no zero on it, or h' has none and so h at most one.
    """
    found, todo = [], [(arb(low), arb(high))]
    while todo:
        one, two = todo.pop()
        value, slope = jet(h, one.union(two))
        if not value.contains(0):
            continue
        if slope.contains(0):
            middle = ((one + two) / 2).mid()
            todo += [(middle, two), (one, middle)]
            continue
        start, stop = jet(h, one)[0], jet(h, two)[0]
        if start * stop > 0:
            continue
        for _ in range(ctx.prec):
            middle = ((one + two) / 2).mid()
            at = jet(h, middle)[0]
            if at.contains(0):
                break
            one, two = (middle, two) if at * start > 0 else (one, middle)
        found.append(one.union(two))
    return found


def _fading(x: Any) -> tuple[bool, Any]:
    """Whether x is positive, and exp(-|x|), which never overflows (exp(x) where x may be zero)."""
    positive = bool(head(x) > 0)
    return positive, (-x if positive else x).exp()


def gate(x: Any) -> Any:
    """1/(1 + exp(-x))."""
    positive, e = _fading(x)
    return (1 if positive else e) / (1 + e)


def _positive(x: Any) -> Any:
    """X if it is positive for certain; else no number."""
    return x if head(x) > 0 else x + arb.nan()


def _softplus(x: Any) -> Any:
    positive, e = _fading(x)
    return (1 + e).log() + (x if positive else 0)


def _mish(x: Any) -> Any:
    """With q = 1 + exp(x), tanh(log q) = (q² - 1)/(q² + 1)."""
    positive, e = _fading(x)
    return x * (1 + 2 * e) / (1 + 2 * e + 2 * e * e) if positive else x * e * (e + 2) / (e * e + 2 * e + 2)


def _mish_bend(x: Any) -> Any:
    """φ'' times (e² + 2e + 2)³/(4e), e = exp(x): for x < -4 below 4.2 - 8, for x > 4 below -6e³ - 6e² + 16e + 12."""
    e = x.exp()
    return 2 * e**3 + 6 * e**2 + 8 * e + 4 + x * (2 + 2 * e - 3 * e**2 - 2 * e**3)


def _silu_bend(x: Any) -> Any:
    """φ'' over the gate's slope. x·tanh(x/2) is even and rises with |x|; at 4 it is above 2."""
    return 2 - x * (2 * gate(x) - 1)


def _gelu_inner(x: Any) -> tuple[Any, Any, Any]:
    """The y of gelu's second form x·gate(y), y' and y''."""
    scale, cubic = 2 * (2 / arb.pi()).sqrt(), ball(0.044715)
    return scale * (x + cubic * x * x * x), scale * (1 + 3 * cubic * x * x), 6 * scale * cubic * x


def _gelu_tanh_bend(x: Any) -> Any:
    """φ'' over the gate's slope: 2y' + x·y'' - x·y'²·tanh(y/2).

    Even in x; at most y'(4 - x·y'·tanh(y/2)) as x·y'' ≤ 2y'. The product rises with x > 0 and is above 4 at x = 2.
    """
    y, first, second = _gelu_inner(x)
    return 2 * first + x * second - x * first * first * (2 * gate(y) - 1)


def _same(x: Any) -> Any:
    return x


def _level(height: arb) -> Formula:
    return lambda x: 0 * x + height


def _clamp(low: arb, high: arb, middle: Formula, marks: tuple[arb, arb]) -> Function:
    return Function((_level(low), middle, _level(high)), marks, (0, 0, 0), (0, 0))


def _straight_pieces(p: list[fmpq]) -> Function:
    """Kinks, the slopes between them, and the value at the first kink, as fractions."""
    count = len(p) // 2 - 1
    knots, slopes, height = p[:count], p[count:-1], p[-1]
    if any(one >= two for one, two in itertools.pairwise(knots)):
        raise ProofFailed("the kinks of straight pieces do not ascend")
    heights = [height]
    for one, two, slope in zip(knots[:-1], knots[1:], slopes[1:-1], strict=True):
        heights.append(heights[-1] + slope * (two - one))
    starts = zip(slopes, [knots[0], *knots], [height, *heights], strict=True)
    formulas = tuple((lambda x, s=s, k=k, h=h: arb(s) * (x - arb(k)) + arb(h)) for s, k, h in starts)
    return Function(formulas, tuple(map(arb, knots)), (0,) * (count + 1), (arb(slopes[0]), arb(slopes[-1])))


def function(name: str, parameters: tuple[float, ...]) -> Function:
    """The definition of an activation, with single numbers as parameters."""
    return _function(name, tuple(map(float, parameters)), ctx.prec)


@cache
def _function(name: str, parameters: tuple[float, ...], _precision: int) -> Function:
    p = [ball(x) for x in parameters]
    zero = (arb(0),)
    turn: dict[str, Formula] = {  # φ' rises to 0, then falls
        "sigmoid": gate,
        "tanh": lambda x: 2 * gate(2 * x) - 1,
        "arctan": lambda x: x.atan(),
        "erf": lambda x: x.erf(),
    }
    # φ' falls, rises, falls; then the sign of φ'', and how far it can change
    bump: dict[str, tuple[Formula, Formula, int]] = {
        "silu": (lambda x: x * gate(x), _silu_bend, 4),
        "gelu": (lambda x: x * (-x / arb(2).sqrt()).erfc() / 2, lambda x: 2 - x * x, 2),
        "gelu_tanh": (lambda x: x * gate(_gelu_inner(x)[0]), _gelu_tanh_bend, 2),
        "mish": (_mish, _mish_bend, 4),
        "quick_gelu": (lambda x: x * gate(ball(1.702) * x), lambda x: _silu_bend(ball(1.702) * x), 4),
    }
    if not p and name in turn:
        return Function((turn[name],) * 2, zero, (1, -1), (0, 0))
    if not p and name in bump:
        formula, bend, far = bump[name]
        left, right = zeros(bend, -far, far)
        return Function((formula,) * 3, (left, right), (-1, 1, -1))
    match name, p:
        case "identity", []:
            return Function((_same,), ends=(1, 1))
        case "relu", []:
            return Function((_level(arb(0)), _same), zero, (0, 0))
        case "leaky_relu", [gamma]:
            return Function((lambda x: gamma * x, _same), zero, (0, 0), (gamma, 1))
        case "relu6", []:
            return _clamp(arb(0), arb(6), _same, (arb(0), arb(6)))
        case "hardtanh", [low, high] if low < high:
            return _clamp(low, high, _same, (low, high))
        case "hardsigmoid", [gain, shift] if gain > 0:
            a, b = (rational(x) for x in parameters)
            marks = arb(-b / a), arb((1 - b) / a)
            return _clamp(arb(0), arb(1), lambda x: gain * x + shift, marks)
        case "hardswish", []:
            return Function((_level(arb(0)), lambda x: x * (x + 3) / 6, _same), (arb(-3), arb(3)), (0, 1, 0))
        case "elu", [alpha] if alpha > 0:
            return Function((lambda x: alpha * (x.exp() - 1), _same), zero, (1, 0))
        case "celu", [alpha] if alpha > 0:
            return Function((lambda x: alpha * ((x / alpha).exp() - 1), _same), zero, (1, 0))
        case "selu", []:
            scale, alpha = ball(1.0507009873554805), ball(1.6732632423543772)
            return Function((lambda x: scale * alpha * (x.exp() - 1), lambda x: scale * x), zero, (1, 0), (0, scale))
        case "softplus", [beta] if beta > 0:
            return Function((lambda x: _softplus(beta * x) / beta,), bends=(1,))
        case "softsign", []:
            return Function((lambda x: x / (1 - x), lambda x: x / (1 + x)), zero, (1, -1), (0, 0))
        case "sin", []:
            return Wave((lambda x: x.sin(),), bends=(-1, 1))
        case "cos", []:
            return Wave((lambda x: x.cos(),), bends=(1, -1), first=fmpq(1, 2))
        case "snake", []:
            return Wave((lambda x: x + x.sin() * x.sin(),), bends=(-1, 1), first=fmpq(1, 2), parts=2, drift=1)
        case "logsigmoid", []:
            return Function((lambda x: -_softplus(-x),), bends=(-1,), ends=(1, 0))
        case "tanhshrink", []:
            return Function((lambda x: x - (2 * gate(2 * x) - 1),) * 2, zero, (-1, 1), (1, 1))
        case "softshrink", [limit] if limit > 0:
            return Function(
                (lambda x: x + limit, _level(arb(0)), lambda x: x - limit), (-limit, limit), (0, 0, 0), (1, 1)
            )
        case "threshold", [limit]:
            return Function((_level(limit), _same), (limit,), (0, 0))
        case "exp", []:
            return Function((lambda x: x.exp(),), bends=(1,), ends=(0, arb("inf")))
        case "reciprocal", []:
            return Function((lambda x: 1 / _positive(x),), bends=(1,), ends=(arb("-inf"), 0))
        case "rsqrt", []:
            return Function((lambda x: 1 / _positive(x).sqrt(),), bends=(1,), ends=(arb("-inf"), 0))
        case "sqrt", []:
            return Function((lambda x: _positive(x).sqrt(),), bends=(-1,), ends=(arb("inf"), 0))
        case "log", []:
            return Function((lambda x: _positive(x).log(),), bends=(-1,), ends=(arb("inf"), 0))
        case "square", []:
            return Function((lambda x: x * x,), bends=(1,), ends=(arb("-inf"), arb("inf")))
        case "cube", []:
            return Function((lambda x: x * x * x,) * 2, zero, (-1, 1), (arb("inf"), arb("inf")))
    if name == f"piecewise_linear_{len(p) // 2 - 1}" and len(p) % 2 == 0:
        return _straight_pieces([rational(x) for x in parameters])
    raise ProofFailed(f"exact has no definition of the activation {name!r} with parameters {parameters}")
