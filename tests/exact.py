"""Activations in ball arithmetic, from their definitions alone: formulas piece by piece, derivatives by power series.

Nothing here comes from the table under test. A ball is a midpoint and a radius that holds every rounding error, so each
number below is exact to within a radius that can be read off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from flint import arb, arb_series, ctx, fmpq, fmpq_mat

from lipcert.activations import Activation

PRECISION = 200
NEGLIGIBLE = arb(2) ** -1200


@contextmanager
def precision(bits: int, terms: int = 3) -> Iterator[None]:
    """Work with that many bits, and power series of that many terms."""
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, terms
    try:
        yield
    finally:
        ctx.prec, ctx.cap = before


def rational(x: float) -> fmpq:
    """The float as a fraction, exactly."""
    return fmpq(*float(x).as_integer_ratio())


def ball(x: float) -> arb:
    """The float, exactly."""
    return arb(rational(x))


def below(x: arb) -> arb:
    """A number without radius that is not above the ball."""
    return x.lower()


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

    def at(self, v: float, side: int = 1) -> tuple[arb, arb]:
        """φ(v) and φ'(v) to 100 bits or to within 2⁻¹²⁰⁰, at whatever working precision that takes."""
        bits = PRECISION
        while True:
            with precision(bits):
                value, slope, _ = self.series(ball(v), side)
            if all(x.rel_accuracy_bits() > 100 or (x.is_finite() and x.rad() < NEGLIGIBLE) for x in (value, slope)):
                return value, slope
            bits *= 2


def _fading(x: Any) -> tuple[bool, Any]:
    """Whether x is positive, and exp(-|x|), which never overflows."""
    positive = bool(x[0] > 0)
    return positive, (-x if positive else x).exp()


def _gate(x: Any) -> Any:
    positive, e = _fading(x)
    return (1 if positive else e) / (1 + e)


def _softplus(x: Any) -> Any:
    positive, e = _fading(x)
    return (1 + e).log() + (x if positive else 0)


def _mish(x: Any) -> Any:
    """With q = 1 + exp(x), tanh(log q) = (q² - 1)/(q² + 1)."""
    positive, e = _fading(x)
    return x * (1 + 2 * e) / (1 + 2 * e + 2 * e * e) if positive else x * e * (e + 2) / (e * e + 2 * e + 2)


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
    }
    if row.name in simple:
        return Exact((simple[row.name],))
    if row.name == "softplus":
        return Exact((lambda x: _softplus(arb(p[0]) * x) / arb(p[0]),))
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


@cache
def turns(row: Activation) -> tuple[arb, ...]:
    """Where φ'' changes sign inside a smooth piece, found by looking; not for sin, which has infinitely many."""
    phi = exact(row)
    found = []
    with precision(PRECISION):
        grid = [arb(k) / 8 + arb(1) / 64 for k in range(-160, 160)]
        for one, two in itertools.pairwise(grid):
            if phi.piece(one, 1) is not phi.piece(two, 1):
                continue
            low, high = one, two
            rising = phi.series(low)[2] < 0
            if rising == (phi.series(high)[2] < 0):
                continue
            for _ in range(PRECISION - 20):
                middle = ((low + high) / 2).mid()
                low, high = (middle, high) if (phi.series(middle)[2] < 0) == rising else (low, middle)
            found.append(low)
    return tuple(found)


def matrix(array: Any) -> fmpq_mat:
    """A float matrix as fractions, exactly."""
    rows = np.atleast_2d(np.asarray(array, dtype=float))
    return fmpq_mat([[rational(x) for x in row] for row in rows])


def diagonal(entries: Any) -> fmpq_mat:
    """A diagonal matrix of fractions or floats, exactly."""
    values = [x if isinstance(x, fmpq) else rational(x) for x in entries]
    return fmpq_mat([[v if i == j else fmpq(0) for j in range(len(values))] for i, v in enumerate(values)])


def positive_semidefinite(symmetric: fmpq_mat) -> bool:
    """Whether a symmetric matrix of fractions has no negative eigenvalue: elimination without a single rounding."""
    rows = [list(row) for row in symmetric.table()]
    n = len(rows)
    assert all(rows[i][j] == rows[j][i] for i in range(n) for j in range(i))
    for k in range(n):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[k][j] != 0 for j in range(k + 1, n))):
            return False
        for i in range(k + 1, n) if pivot > 0 else ():
            factor = rows[i][k] / pivot
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


def turns_inside(row: Activation, low: arb, high: arb) -> list[arb]:
    """The points between low and high where φ' stops being monotone: breaks, and zeros of φ''.

    Of the many that sin may have, those near the ends: one more period only adds to, or takes from, what a line loses.
    """
    if row.name == "sin":
        first, last = int(float((low / arb.pi()).floor().mid())), int(float((high / arb.pi()).ceil().mid()))
        several = range(first, last + 1)
        points = [k * arb.pi() for k in ([*several[:5], *several[-5:]] if len(several) > 10 else several)]
    else:
        points = [*(arb(at) for at in exact(row).breaks()), *turns(row)]
    return sorted((p for p in points if low < p and p < high), key=lambda p: float(p.mid()))


def slope_range(row: Activation, low: arb, high: arb) -> tuple[arb, arb]:
    """Least and largest derivative on [low, high], both sides of a kink counting if it is inside."""
    phi = exact(row)
    found = [phi.slope(low, 1), phi.slope(high, -1)]
    if low == high:
        found = [phi.slope(low, -1), phi.slope(low, 1)]
    for point in turns_inside(row, low, high):
        found += [phi.slope(point, -1), phi.slope(point, 1)]
    return least(found), most(found)


def least(values: list[arb]) -> arb:
    """The smallest of some balls, by their midpoints; radii are negligible here."""
    return min(values, key=lambda x: x.mid())


def most(values: list[arb]) -> arb:
    """The largest of some balls."""
    return max(values, key=lambda x: x.mid())


def highest(row: Activation, sign: int, low: arb, high: arb, slope: arb) -> arb:
    """The largest sign·φ(v) - slope·v on [low, high], attained to within a rounding of PRECISION bits.

    Between turns the derivative is monotone, so the maximum is at an end or at its one zero.
    """
    phi = exact(row)

    def height(v: arb) -> arb:
        return sign * phi.value(v) - slope * v

    marks = [low, *turns_inside(row, low, high), high]
    found = [height(mark) for mark in marks]
    for one, two in itertools.pairwise(marks):
        if not (sign * phi.slope(one, 1) > slope and sign * phi.slope(two, -1) < slope):
            continue
        for _ in range(PRECISION // 3):  # an error of the place counts by its square only
            middle = ((one + two) / 2).mid()
            one, two = (middle, two) if sign * phi.slope(middle, 1) > slope else (one, middle)
        found.append(height(one))
    return most(found)
