"""Taylor models over a box c ± h: x = c + h∘δ with |δ_i| ≤ 1, and everything is a polynomial in δ.

What is cut off, and what is known of no polynomial, is bounded by ``rest``. On the interval of a pre-activation v its
φ and φ' are near polynomials (:func:`remainder`), and ∂z/∂δ_j = φ'(v)·∂v/∂δ_j.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from flint import arb

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
from lipcert.audit.engine import views_on
from lipcert.audit.model import Inputs, Layer, Model
from lipcert.audit.remainder import remainder
from lipcert.model.norms import Norms

MOST_INPUTS, _DEGREE, _CELLS = 8, 3, 4
"""Inputs of a box at most; the degree of polynomials; cells of an interval on which a fit is bounded."""


class Basis:
    """The monomials of d variables up to degree three, in the order of their degrees.

    Each is near a multiple of the product of ``odd`` ones of its variables, all different: δ² = ½ ± ½, δ³ = ¾δ ± ¼.
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.monomials = [
            one for n in range(_DEGREE + 1) for one in itertools.combinations_with_replacement(range(d), n)
        ]
        places = {one: k for k, one in enumerate(self.monomials)}
        pairs = itertools.product(enumerate(self.monomials), repeat=2)
        table = [(places[tuple(sorted(a + b))], i, k) for (i, a), (k, b) in pairs if len(a + b) <= _DEGREE]
        target, self.left, self.right = np.array(sorted(table)).T
        self.first = np.flatnonzero(np.diff(target, prepend=-1))
        degrees = np.array([len(one) for one in self.monomials])
        self.starts = np.searchsorted(degrees, np.arange(_DEGREE + 1))
        powers = [[one.count(i) for i in set(one)] for one in self.monomials]
        self.even = np.array([k > 0 and all(p % 2 == 0 for p in one) for k, one in enumerate(powers)])
        shares = {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.75}
        self.shares = np.array([shares[max(one, default=0)] for one in powers])
        every = np.concatenate([corners(d), -corners(d)])
        self.corners = np.array(
            [[np.prod(at[[i for i in set(one) if one.count(i) % 2]]) for one in self.monomials] for at in every]
        )


_basis = cache(Basis)


@dataclass(frozen=True, eq=False)
class Taylor:
    """Polynomials with coefficients (monomials, ...), up to ``rest`` (...)."""

    basis: Basis
    terms: Balls
    rest: Balls

    def __add__(self, other: Taylor) -> Taylor:
        return Taylor(self.basis, self.terms + other.terms, upper(self.rest + other.rest))

    def times(self, factor: Balls) -> Taylor:
        """Each polynomial times a number."""
        return Taylor(self.basis, self.terms * factor, upper(self.rest * size(factor)))

    def plus(self, constant: Balls) -> Taylor:
        terms = self.terms.copy()
        terms[0] = terms[0] + constant
        return Taylor(self.basis, terms, self.rest)

    @cached_property
    def sizes(self) -> Balls:
        """At least the sizes of the terms of each degree."""
        return upper(np.add.reduceat(size(self.terms), self.basis.starts))

    def __mul__(self, other: Taylor) -> Taylor:
        basis, one, two = self.basis, self.sizes, other.sizes
        terms = np.add.reduceat(self.terms[basis.left] * other.terms[basis.right], basis.first)
        cut = sum(one[n] * two[_DEGREE + 1 - n :].sum(axis=0) for n in range(1, _DEGREE + 1))
        rest = cut + one.sum(axis=0) * other.rest + self.rest * (two.sum(axis=0) + other.rest)
        return Taylor(basis, terms, upper(rest))

    def through(self, weight: Balls) -> Taylor:
        """What a matrix makes of them, along the last axis."""
        flat = dot(self.terms.reshape(-1, weight.shape[1]), weight.T)
        rest = dot(np.atleast_2d(self.rest), size(weight).T)
        shape = (*self.terms.shape[:-1], len(weight))
        return Taylor(self.basis, flat.reshape(shape), upper(rest.reshape(shape[1:])))

    def ends(self) -> Interval:
        """Between which numbers they lie: even monomials are between 0 and 1, the others between -1 and 1."""
        even = self.basis.even
        others = upper(size(self.terms[1:][~even[1:]]).sum(axis=0) + self.rest)
        own, none = self.terms[even], arb(0)
        low, high = (pick(end(own), none).sum(axis=0) for pick, end in ((smaller, lower), (larger, upper)))
        return lower(self.terms[0] + low - others), upper(self.terms[0] + high + others)


class Expansion:
    """The pre-activations ``v`` of the last layer over a box, and their derivatives ``J`` (inputs, outputs) by δ.

    ``known`` are intervals of the hidden layers; ``intervals`` are smaller ones. ``empty`` boxes have no input.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval]) -> None:
        d = len(inputs.center)
        self.basis = _basis(d)
        center = mid((inputs.lower + inputs.upper) / 2)
        self.half = larger(upper(inputs.upper - center), upper(center - inputs.lower))
        self.half = larger(self.half, largest(self.half) * arb(2) ** -40 + arb(2) ** -500)  # a larger box is no mistake
        count = len(self.basis.monomials)
        z = Taylor(self.basis, zeros(count, d), zeros(d))
        z.terms[0], z.terms[np.arange(d) + 1, np.arange(d)] = center, self.half
        slopes = Taylor(self.basis, zeros(count, d, d), zeros(d, d))
        slopes.terms[0, np.arange(d), np.arange(d)] = self.half
        self.intervals: list[Interval] = []
        self.empty, self.first = False, model[0].weight
        for layer, interval in zip(model, [*known, None]):
            v, self.J = z.through(layer.weight).plus(layer.bias), slopes.through(layer.weight)
            self.v = v
            if interval is None:
                return
            interval = both(interval, v.ends())
            self.intervals.append(interval)
            self.empty = self.empty or bool((interval[0] > interval[1]).any())
            if self.empty:
                return
            z, slope = _activated(layer, v, interval)
            slopes = Taylor(self.basis, slope.terms[:, None], slope.rest[None]) * self.J

    def bound(self, norms: Norms, limit: arb, moving: int | None = None) -> arb:
        """At least the norm of the Jacobian, or more than a limit: products of different δ are largest at a corner."""
        basis, terms = self.basis, self.J.terms / self.half[:, None]
        shares = basis.shares[:, None, None]
        rest = self.J.rest / self.half[:, None] + (size(terms) * (1.0 - shares)).sum(axis=0) + rad(terms).sum(axis=0)
        rest, middle = upper(rest)[:moving], (mid(terms) * shares)[:, :moving]
        values = dot(balls(basis.corners), middle.reshape(len(middle), -1))
        sizes = norm(values)
        if norms.plain and len(rest) > 1 < rest.shape[1]:  # those of small Frobenius norm need no look
            values, sizes = values[order := np.argsort(-floats(sizes))], sizes[order]
        more, worst = induced_norm(hull(-rest, rest).T, norms), arb(0)
        for there, length in zip(values, sizes, strict=True):
            if norms.plain and length <= worst:
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
        shares = [sum(x for x, one in zip(sizes, self.basis.monomials) if i in one) for i in range(self.basis.d)]
        return int(np.argmax(shares))

    def entries(self) -> Balls:
        """At least the size of each entry of the Jacobian, (outputs, inputs)."""
        low, high = self.J.ends()
        return upper(larger(size(low), size(high)) / self.half[:, None]).T


def _activated(layer: Layer, v: Taylor, interval: Interval) -> tuple[Taylor, Taylor]:
    """φ(v) and φ'(v), by polynomials in s = (v - m)/h on the interval m ± h; which ones is only a suggestion."""
    assert layer.neurons is not None
    low, high = interval
    middle = mid((low + high) / 2)
    half = larger(upper(high - middle), upper(middle - low)) + arb(2) ** -200  # a larger interval is no mistake
    count = _DEGREE + 1
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    at, fit = floats(middle) + np.multiply.outer(nodes, floats(half)), np.linalg.inv(np.vander(nodes, increasing=True))
    told = np.stack([fit @ layer.neurons.value(at), fit @ layer.neurons.slope(at)])
    found, rests = balls(np.where(np.isfinite(told), told, 0.0)), zeros(2, len(middle))
    ends = (lower(middle - half), upper(middle + half))
    for k, (f, m, h, view) in enumerate(
        zip(layer.functions, middle, half, views_on(layer.functions, ends), strict=True)
    ):
        alpha, beta = view.slopes()
        slope, value = ((alpha + beta) / 2).mid(), f.value(m)
        steep = larger(upper(beta - slope), upper(slope - alpha))
        wanted = [(order, arb(1), [x / h**n for n, x in enumerate(found[order, :, k])]) for order in (0, 1)]
        left = [larger(-low, high) for low, high in remainder(view, m, wanted, _CELLS)]
        crude = ([value.mid(), (slope * h).mid()], (steep * h + value.rad()).upper()), ([slope], steep)
        for order, (line, rest) in enumerate(crude):
            rests[order, k] = known_smaller(left[order], rest)
            if not left[order] < rest:
                found[order, :, k] = [*line, *[arb(0)] * (count - len(line))]
    s = v.plus(-middle).times(1 / half)
    power, results = s, [s.times(a[1]).plus(a[0]) for a in found]
    for n in range(2, count):
        power = power * s
        results = [one + power.times(a[n]) for one, a in zip(results, found, strict=True)]
    z, slopes = (replace(one, rest=upper(one.rest + rest)) for one, rest in zip(results, rests, strict=True))
    return z, slopes
