"""Activations in ball arithmetic, from their definitions alone.

A ball is a midpoint and a radius that holds every rounding error. Each function is a list of formulas, one for each
piece of the line; derivatives are power series of the formulas. On each piece the derivative is monotone, so its range
there is that of the piece's ends.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flint import arb, arb_series, ctx, fmpq

from lipcert.errors import ProofFailed

Formula = Callable[[Any], Any]
"""Takes a power series (or a ball) to another."""
_WAVES = 40
"""An interval with more half periods than this counts as the whole line."""


@contextmanager
def precision(bits: int, terms: int = 2) -> Iterator[None]:
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
    """The float, exactly (to the working precision)."""
    return arb(float(x))


def head(x: Any) -> arb:
    """The value of a power series, or of a ball or number."""
    return x[0] if isinstance(x, arb_series) else arb(x)


def jet(formula: Formula, v: arb) -> tuple[arb, arb]:
    """Value and derivative at every point of the ball v."""
    found = formula(arb_series([v, 1]))
    terms = found.coeffs() if isinstance(found, arb_series) else [arb(found)]
    return (terms[0] if terms else arb(0)), (terms[1] if len(terms) > 1 else arb(0))


@dataclass(frozen=True)
class Arc:
    """One piece of φ: its formula, how φ' goes (1 rises, 0 constant, -1 falls), and value and slope at its ends."""

    start: arb
    stop: arb
    formula: Formula
    bend: int
    first: tuple[arb, arb]
    last: tuple[arb, arb]

    def top(self, sign: int, slope: arb) -> arb:
        """At least max of g = sign·φ(v) - slope·v on the piece, and hardly more.

        Where g is convex its ends decide. Where it is concave, let t < t' be such that g'(t) > 0 > g'(t'), or the ends
        of the piece. Left of t and right of t' it is smaller than there; between them it is below its tangent at any
        point of [t, t']. A search makes that sharp.
        """
        one, two = self.start, self.stop
        ends = most([(sign * x - slope * v).upper() for v, (x, _) in ((one, self.first), (two, self.last))])
        if sign * self.bend >= 0 or sign * self.first[1] <= slope or sign * self.last[1] >= slope:
            return ends
        found = [ends + abs(sign * self.first[1] - slope) * abs(two - one)]
        rise, fall, side = sign * self.first[1] - slope, sign * self.last[1] - slope, 0
        enough = (abs(found[0]) + abs(ends)) * arb(2) ** -64
        for _ in range(ctx.prec):
            touch = ((fall * one - rise * two) / (fall - rise)).mid()  # where the slope would be zero if it were linear
            if not (one < touch < two and rise > 0 > fall):
                touch = ((one + two) / 2).mid()
            value, rate = jet(self.formula, touch)
            g, rate = sign * value - slope * touch, sign * rate - slope
            found.append((g + abs(rate) * abs(two - one)).upper())
            if not abs(rate) * abs(two - one) > enough or rate.contains(0):
                break
            if rate > 0:
                one, rise, fall, side = touch, rate, fall / 2 if side > 0 else fall, 1
            else:
                two, fall, rise, side = touch, rate, rise / 2 if side < 0 else rise, -1
        return most([ends, least([x.upper() for x in found])])


@dataclass(frozen=True)
class View:
    """φ on an interval, as arcs."""

    low: arb
    high: arb
    arcs: tuple[Arc, ...]

    @property
    def marks(self) -> list[arb]:
        """The marks between the arcs."""
        return [arc.start for arc in self.arcs[1:]]

    def slopes(self) -> tuple[arb, arb]:
        """Numbers α ≤ φ' ≤ β; both sides of a kink count if it is inside."""
        found = [slope for arc in self.arcs for _, slope in (arc.first, arc.last)]
        return least([x.lower() for x in found]), most([x.upper() for x in found])

    def top(self, sign: int, slope: arb) -> arb:
        """At least max of sign·φ(v) - slope·v over the interval, which must be bounded."""
        return most([arc.top(sign, slope) for arc in self.arcs])


@dataclass(frozen=True)
class Waves(View):
    """Many waves: all that is known is that |φ' - drift| and |φ(v) - drift·v| are at most one."""

    drift: int = 0

    def slopes(self) -> tuple[arb, arb]:
        return arb(self.drift - 1), arb(self.drift + 1)

    def top(self, sign: int, slope: arb) -> arb:
        tilt = sign * self.drift - slope
        return (1 + most([(tilt * self.low).upper(), (tilt * self.high).upper()])).upper()


@dataclass(frozen=True)
class Function:
    """φ: formulas piece by piece, ``marks`` between them.

    ``bends`` says of each piece whether φ' rises (1), is constant (0) or falls (-1); ``ends`` are the limits of φ' at
    -∞ and +∞. A mark that is no number of the working precision is a small ball around it.
    """

    formulas: tuple[Formula, ...]
    marks: tuple[arb, ...] = ()
    bends: tuple[int, ...] = (0,)
    ends: tuple[int | arb, int | arb] = (0, 1)

    def on(self, low: arb, high: arb) -> View:
        """φ on [low, high], two numbers without radius. A mark that may lie inside counts as inside.

        For a single point at a mark, both sides of the mark count.
        """
        less = operator.le if low < high else operator.lt
        inside = [not (less(mark, low) or less(high, mark)) for mark in self.marks]
        first = sum(1 for mark, within in zip(self.marks, inside) if not within and mark <= low)
        stops = [low, *self.marks[first : first + sum(inside)], high]
        arcs = []
        for number, ends in enumerate(itertools.pairwise(stops), first):
            formula, limits = self.formulas[number], zip(ends, self.ends)
            jets = (jet(formula, v) if v.is_finite() else (arb.nan(), arb(limit)) for v, limit in limits)
            arcs.append(Arc(*ends, formula, self.bends[number], *jets))
        return View(low, high, tuple(arcs))

    def value(self, v: arb) -> arb:
        """φ at a number without radius; where it may lie on either side of a mark, a ball with both values."""
        left, right = sum(1 for mark in self.marks if mark <= v), sum(1 for mark in self.marks if not mark > v)
        found = arb(self.formulas[left](v))
        return found if left == right else found.union(arb(self.formulas[right](v)))

    def kink(self, low: arb, high: arb) -> tuple[arb, arb] | None:
        """The slopes left and right of 0, for a φ that is 0 there, straight on both sides and convex; else None."""
        zero = arb(0)
        if low < 0 < high and self.value(zero) == 0:
            left, right = self.on(low, zero).slopes(), self.on(zero, high).slopes()
            if left[0] == left[1] < right[0] == right[1]:
                return left[0], right[0]
        return None


@dataclass(frozen=True)
class Wave(Function):
    """drift·v and a wave of size one, whose pieces have their marks at (first + k)·π/parts, for all whole k.

    ``bends`` has two entries: from an even k on, and from an odd one on.
    """

    first: int | fmpq = 0
    parts: int = 1
    drift: int = 0

    def on(self, low: arb, high: arb) -> View:
        if not (low.is_finite() and high.is_finite() and abs(low) < 2**60 and high - low < 3 * _WAVES):
            return Waves(low, high, (), self.drift)
        step, shift = arb.pi() / self.parts, arb(self.first)
        one, two = _whole((low / step - shift).lower().floor()), _whole((high / step - shift).upper().ceil())
        marks = tuple((shift + k) * step for k in range(one, two + 1))
        bends = tuple(self.bends[k % 2] for k in range(one - 1, one + len(marks)))
        return Function((self.formulas[0],) * len(bends), marks, bends).on(low, high)

    def value(self, v: arb) -> arb:
        return arb(self.formulas[0](v))


def _whole(x: arb) -> int:
    found = x.unique_fmpz()
    if found is None:
        raise ProofFailed("a multiple of π needs more bits")
    return int(found)


def least(values: list[arb]) -> arb:
    """The smallest of numbers without radius; no number if one of them is none."""
    found = values[0]
    for x in values[1:]:
        found = x if x < found or x.is_nan() else found
    return found


def most(values: list[arb]) -> arb:
    """The largest of numbers without radius; no number if one of them is none."""
    return -least([-x for x in values])
