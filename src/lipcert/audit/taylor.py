"""Taylor models over a box c ± h: x = c + h∘δ with |δ_i| ≤ 1, and everything is a polynomial of degree two in δ.

What is cut off, and what is known of no polynomial, is bounded by ``rest``. With v̂ the constant term of a
pre-activation v and s = v - v̂, Taylor's theorem for φ and for φ', with derivatives enclosed on the neuron's interval,

    φ(v) = c_0 + c_1 s + c_2 s² + c_3(ξ) s³,     φ'(v) = c_1 + 2c_2 s + 3c_3 s² + 4c_4(ξ) s³,

and ∂z/∂δ_j = φ'(v)·∂v/∂δ_j. Where φ has no series on the interval, its range of slopes serves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import arb, arb_series, ctx

from lipcert.audit.balls import (
    Balls,
    Interval,
    balls,
    both,
    corners,
    dot,
    floats,
    hull,
    induced_norm,
    known_smaller,
    larger,
    largest,
    lower,
    mid,
    norm,
    rad,
    size,
    smaller,
    upper,
    zeros,
)
from lipcert.audit.model import Inputs, Model
from lipcert.definitions.functions import Function, View
from lipcert.model.norms import Norms

MOST_INPUTS, _TERMS, _CELLS = 8, 5, 4
"""Inputs of a box at most; terms of a series; cells of an interval on each of which derivatives are enclosed."""


@cache
def _monomials(d: int) -> tuple[list[tuple[int, ...]], list[tuple[int, int, int]]]:
    """The monomials 1, δ_i, δ_i δ_k in order, and which two of them have which product."""
    found: list[tuple[int, ...]] = [
        (),
        *((i,) for i in range(d)),
        *itertools.combinations_with_replacement(range(d), 2),
    ]
    places = {one: k for k, one in enumerate(found)}
    pairs = itertools.product(enumerate(found), repeat=2)
    table = [(i, k, places[tuple(sorted(a + b))]) for (i, a), (k, b) in pairs if len(a + b) <= 2]
    return found, table


@dataclass(frozen=True, eq=False)
class Taylor:
    """Polynomials in d variables with coefficients (monomials, ...), up to ``rest`` (...)."""

    d: int
    terms: Balls
    rest: Balls

    def __add__(self, other: Taylor) -> Taylor:
        return Taylor(self.d, self.terms + other.terms, upper(self.rest + other.rest))

    def times(self, factor: Balls) -> Taylor:
        """Each polynomial times a number."""
        return Taylor(self.d, self.terms * factor, upper(self.rest * size(factor)))

    def sizes(self) -> tuple[Balls, Balls, Balls]:
        """At least the sizes of the constant, the linear and the quadratic terms."""
        sizes = size(self.terms)
        return sizes[0], upper(sizes[1 : self.d + 1].sum(axis=0)), upper(sizes[self.d + 1 :].sum(axis=0))

    def __mul__(self, other: Taylor) -> Taylor:
        shape = np.broadcast_shapes(self.terms.shape[1:], other.terms.shape[1:])
        terms = zeros(len(self.terms), *shape)
        for i, k, place in _monomials(self.d)[1]:
            terms[place] = terms[place] + self.terms[i] * other.terms[k]
        (a, b), (p, q) = self.sizes()[1:], other.sizes()[1:]
        far = sum(other.sizes()) + other.rest
        return Taylor(self.d, terms, upper(a * q + b * (p + q) + sum(self.sizes()) * other.rest + self.rest * far))

    def through(self, weight: Balls) -> Taylor:
        """What a matrix makes of them, along the last axis."""
        flat = dot(self.terms.reshape(-1, weight.shape[1]), weight.T)
        rest = dot(np.atleast_2d(self.rest), size(weight).T)
        shape = (*self.terms.shape[:-1], len(weight))
        return Taylor(self.d, flat.reshape(shape), upper(rest.reshape(shape[1:])))

    def ends(self) -> Interval:
        """Between which numbers they lie: δ_i² is between 0 and 1, the other monomials between -1 and 1."""
        squares = np.array([len(one) == 2 and one[0] == one[-1] for one in _monomials(self.d)[0]])
        others = upper(size(self.terms[1:][~squares[1:]]).sum(axis=0) + self.rest)
        own, none = self.terms[squares], arb(0)
        low, high = (pick(end(own), none).sum(axis=0) for pick, end in ((smaller, lower), (larger, upper)))
        return lower(self.terms[0] + low - others), upper(self.terms[0] + high + others)


class Expansion:
    """The pre-activations ``v`` of the last layer over a box, and their derivatives ``J`` (inputs, outputs) by δ.

    ``known`` are intervals of the hidden layers; ``intervals`` are smaller ones. ``empty`` boxes have no input.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval]) -> None:
        self.d = d = len(inputs.center)
        center = mid((inputs.lower + inputs.upper) / 2)
        self.half = larger(upper(inputs.upper - center), upper(center - inputs.lower))
        self.half = larger(self.half, largest(self.half) * arb(2) ** -40 + arb(2) ** -500)  # a larger box is no mistake
        count = len(_monomials(d)[0])
        z = Taylor(d, zeros(count, d), zeros(d))
        z.terms[0], z.terms[np.arange(d) + 1, np.arange(d)] = center, self.half
        slopes = Taylor(d, zeros(count, d, d), zeros(d, d))
        slopes.terms[0, np.arange(d), np.arange(d)] = self.half
        self.intervals: list[Interval] = []
        self.empty, self.first = False, model[0].weight
        for layer, interval in zip(model, [*known, None]):
            v, self.J = z.through(layer.weight), slopes.through(layer.weight)
            v.terms[0] = v.terms[0] + layer.bias
            self.v = v
            if interval is None:
                return
            interval = both(interval, v.ends())
            self.intervals.append(interval)
            self.empty = self.empty or bool((interval[0] > interval[1]).any())
            if self.empty:
                return
            z, slope = _activated(layer.functions, v, interval)
            slopes = Taylor(d, slope.terms[:, None], slope.rest[None]) * self.J

    def bound(self, norms: Norms, limit: arb, moving: int | None = None) -> arb:
        """At least the norm of the Jacobian, or more than a limit: at a corner of the box, squares δ_i² being ½ ± ½."""
        monomials, signs = _monomials(self.d)[0], corners(self.d)
        terms, rest = self.J.terms / self.half[:, None], self.J.rest / self.half[:, None]
        square = np.array([len(one) == 2 and one[0] == one[1] for one in monomials])
        rest = upper(rest + size(terms[square]).sum(axis=0) / 2 + rad(terms).sum(axis=0))[:moving]
        middle = np.where(square[:, None, None], mid(terms) / 2, mid(terms))[:, :moving]
        products = [[np.prod(corner[list(one)]) for one in monomials] for corner in np.concatenate([signs, -signs])]
        values = dot(balls(np.where(square, 1.0, products)), middle.reshape(len(middle), -1))
        sizes = norm(values)
        if norms.plain and len(rest) > 1 < rest.shape[1]:  # those of small Frobenius norm need no look
            values = values[np.argsort(-floats(sizes))]
        more, worst = induced_norm(hull(-rest, rest).T, norms), arb(0)
        for there in values:
            if norms.plain and norm(there) <= worst:
                continue
            worst = larger(worst, induced_norm(there.reshape(rest.shape).T, norms))
            if not worst + more <= limit:
                break
        return (worst + more).upper()

    def axis(self) -> int:
        """The axis across which the Jacobian changes most, or where little is known of it, what enters the network."""
        sizes = np.abs(floats(self.J.terms / self.half[:, None])).sum(axis=(1, 2))
        if sizes[1:].sum() < floats(self.J.rest / self.half[:, None]).sum():
            return int(np.argmax(floats(self.half * size(self.first).sum(axis=0))))
        shares = [
            sum(x for x, one in zip(sizes, _monomials(self.d)[0], strict=True) if i in one) for i in range(self.d)
        ]
        return int(np.argmax(shares))

    def entries(self) -> Balls:
        """At least the size of each entry of the Jacobian, (outputs, inputs)."""
        low, high = self.J.ends()
        return upper(larger(size(low), size(high)) / self.half[:, None]).T


def _activated(functions: Sequence[Function], v: Taylor, interval: Interval) -> tuple[Taylor, Taylor]:
    """φ(v) and φ'(v)."""
    middle = mid(v.terms[0])
    s = Taylor(v.d, v.terms.copy(), v.rest)
    s.terms[0] = s.terms[0] - middle
    reach = known_smaller(
        upper(sum(s.sizes()) + s.rest), larger(upper(interval[1] - middle), upper(middle - interval[0]))
    )
    found = np.empty((7, len(functions)), dtype=object)
    for k, (f, low, high, at, far) in enumerate(zip(functions, *interval, middle, reach, strict=True)):
        found[:, k] = _series(f, f.on(low, high), at, far)
    value, first, second, third, last, other, whole = found
    square = s * s
    z = s.times(first) + square.times(second)
    z.terms[0] = z.terms[0] + value
    slope = s.times(2 * second) + square.times(3 * third)
    slope.terms[0] = slope.terms[0] + first
    return Taylor(v.d, z.terms, upper(z.rest + last)), Taylor(v.d, slope.terms, upper(slope.rest + other + whole))


def _series(f: Function, view: View, at: arb, far: arb) -> tuple[arb, ...]:
    """c_0, c_1, c_2, c_3, and at least what is left of φ, of φ', and of the slopes where there is no series."""
    low, high = smaller(view.low, at), larger(view.high, at)
    formulas = {arc.formula for arc in f.on(low, high).arcs}
    alpha, beta = f.on(low, high).slopes()
    slope = ((alpha + beta) / 2).mid()
    reach = larger(upper(beta - slope), upper(slope - alpha))
    crude = f.value(at), slope, arb(0), arb(0), (reach * far).upper(), arb(0), reach
    if len(formulas) != 1 or reach.is_zero():
        return crude
    (formula,) = formulas
    cap, ctx.cap = ctx.cap, _TERMS
    try:
        marks = [low + (high - low) * k / _CELLS for k in range(_CELLS + 1)]
        here, *there = (formula(arb_series([x, 1])) for x in (at, *(a.union(b) for a, b in itertools.pairwise(marks))))
    finally:
        ctx.cap = cap
    c, cubed = [here[k] for k in range(_TERMS)], far * far * far
    last, other = (larger.reduce([x[k].abs_upper() for x in there]) for k in (3, 4))
    if not all(x.is_finite() for x in (*c, last, other)):
        return crude
    left = (last * cubed).upper(), (4 * other * cubed).upper()
    if not left[1] < reach:
        return crude
    return c[0], c[1], c[2], c[3], *left, arb(0)
