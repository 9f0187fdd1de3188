"""Activations from their definitions, in ball arithmetic: the truths of the attack share no code with what they judge.

Formulas piece by piece, with the breaks between them as fractions; derivatives are power series of the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_series, fmpq

from exact import ball, rational
from lipcert.model.activations import Activation


@dataclass(frozen=True)
class Exact:
    """φ as smooth pieces between breaks; at a break the two sides may differ in slope, not in value."""

    pieces: tuple[Callable[[Any], Any], ...]
    breaks: Callable[[], tuple[Any, ...]] = tuple

    def piece(self, v: arb, side: int) -> Callable[[Any], Any]:
        """The formula that holds just off v, on the given side."""
        index = sum(1 for at in self.breaks() if (v >= at if side > 0 else v > at))
        return self.pieces[index]

    def series(self, v: arb, side: int = 1) -> list[arb]:
        """φ(v), φ'(v), φ''(v), the derivatives from one side."""
        found = self.piece(v, side)(arb_series([v, 1]))
        terms = found.coeffs() if isinstance(found, arb_series) else [arb(found)]
        terms = [*terms, arb(0), arb(0), arb(0)][:3]
        return [terms[0], terms[1], 2 * terms[2]]

    def value(self, v: arb) -> arb:
        return self.series(v)[0]

    def slope(self, v: arb, side: int = 1) -> arb:
        return self.series(v, side)[1]


def _gate(x: Any) -> Any:
    """1/(1 + exp(-x)), in a form in which the exponential does not overflow."""
    return 1 / (1 + (-x).exp()) if x[0] > 0 else (e := x.exp()) / (1 + e)


def _softplus(x: Any) -> Any:
    return x + _softplus(-x) if x[0] > 0 else (1 + x.exp()).log()


def _mish(x: Any) -> Any:
    """x·(q² - 1)/(q² + 1), q = 1 + exp(x); numerator and denominator times exp(-2x) for positive x."""
    if x[0] > 0:
        q = 1 + 2 * (-x).exp()
        return x * q / (q + 2 * (-2 * x).exp())
    q = x.exp() * (x.exp() + 2)
    return x * q / (q + 2)


def _nothing(x: Any) -> Any:
    return 0 * x


def _gelu_tanh(x: Any) -> Any:
    scale = 2 * (2 / arb.pi()).sqrt()
    return x * _gate(scale * (x + ball(0.044715) * x * x * x))


def _same(x: Any) -> Any:
    return x


_SELU = ball(1.0507009873554805), ball(1.6732632423543772)


def exact(row: Activation) -> Exact:
    """The definition of a row, with its parameters; they must be single numbers."""
    p = [rational(float(np.asarray(parameter))) for parameter in row.parameters]
    zero = (fmpq(0),)
    simple: dict[str, Callable[[Any], Any]] = {
        "identity": _same,
        "sigmoid": _gate,
        "tanh": lambda x: 2 * _gate(2 * x) - 1,
        "arctan": lambda x: x.atan(),
        "silu": lambda x: x * _gate(x),
        "gelu": lambda x: x * (-x / arb(2).sqrt()).erfc() / 2,
        "gelu_tanh": _gelu_tanh,
        "mish": _mish,
        "sin": lambda x: x.sin(),
        "cos": lambda x: x.cos(),
        "snake": lambda x: x + x.sin() * x.sin(),
        "erf": lambda x: x.erf(),
        "gaussian": lambda x: (-x * x).exp(),
        "logsigmoid": lambda x: -_softplus(-x),
        "tanhshrink": lambda x: x - 2 * _gate(2 * x) + 1,
        "quick_gelu": lambda x: x * _gate(ball(1.702) * x),
        "square": lambda x: x * x,
        "cube": lambda x: x * x * x,
    }
    if row.name in simple:
        return Exact((simple[row.name],))
    if row.name == "softplus":
        return Exact((lambda x: _softplus(arb(p[0]) * x) / arb(p[0]),))
    if row.name == "squareplus":
        return Exact((lambda x: (x + (x * x + arb(p[0])).sqrt()) / 2,))
    if row.name == "softshrink":
        (limit,) = p
        return Exact((lambda x: x + arb(limit), _nothing, lambda x: x - arb(limit)), lambda: (-limit, limit))
    if row.name == "threshold":
        return Exact((lambda x: 0 * x + arb(p[0]), _same), lambda: (p[0],))
    if row.name == "softsign":
        return Exact((lambda x: x / (1 - x), lambda x: x / (1 + x)), lambda: zero)
    if row.name == "relu":
        return Exact((_nothing, _same), lambda: zero)
    if row.name == "leaky_relu":
        return Exact((lambda x: arb(p[0]) * x, _same), lambda: zero)
    if row.name in ("relu6", "hardtanh"):
        low, high = p or (fmpq(0), fmpq(6))
        return Exact((lambda x: 0 * x + arb(low), _same, lambda x: 0 * x + arb(high)), lambda: (low, high))
    if row.name == "hardsigmoid":
        gain, shift = p
        middle = lambda x: arb(gain) * x + arb(shift)  # noqa: E731
        return Exact((_nothing, middle, lambda x: 0 * x + 1), lambda: (-shift / gain, (1 - shift) / gain))
    if row.name == "hardswish":
        return Exact((_nothing, lambda x: x * (x + 3) / 6, _same), lambda: (fmpq(-3), fmpq(3)))
    if row.name == "elu":
        return Exact((lambda x: arb(p[0]) * (x.exp() - 1), _same), lambda: zero)
    if row.name == "celu":
        return Exact((lambda x: arb(p[0]) * ((x / arb(p[0])).exp() - 1), _same), lambda: zero)
    if row.name == "selu":
        scale, alpha = _SELU
        return Exact((lambda x: scale * alpha * (x.exp() - 1), lambda x: scale * x), lambda: zero)
    raise AssertionError(f"no definition of {row.name}")
