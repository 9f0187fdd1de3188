"""Taylor models over a box c ± h: x = c + h∘δ with |δ_i| ≤ 1, and everything is a polynomial in δ.

What is cut off, and what is known of no polynomial, is bounded by ``rest``. On the interval of a pre-activation v its φ
and φ' are near polynomials (:func:`lipcert.audit.second_order.remainder`), and ∂z/∂δ_j = φ'(v)·∂v/∂δ_j.

Coefficients are floats and meant exactly, so the rounding of each operation is part of its ``rest``: a sum of at most a
thousand products of floats is off by at most ``_EPS`` times the sum of their sizes and by ``_TINY``, with room for the
rounding of this bound itself. This is the one place of the second opinion where balls would cost too much time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from flint import arb, arb_poly, arb_series

from lipcert.audit import balls as ba
from lipcert.audit.balls import Balls, Interval
from lipcert.audit.engine import Inputs, Layer, Model
from lipcert.definitions.functions import Formula, Function, ball, most, precision
from lipcert.model.arrays import Array
from lipcert.model.regions import Norms

MOST_INPUTS, MOST_NEURONS, _DEGREE = 8, 500, 3
"""Inputs of a box and neurons of a layer at most; the degree of polynomials."""
_EPS, _TINY = 2.0**-40, 2.0**-1000


def _up(x: Array) -> Array:
    """At least what sums and products of floats that are not negative would be without rounding."""
    return np.asarray(x * (1.0 + _EPS) + _TINY)


def norms_above(matrices: Array) -> Array:
    """At least the spectral norm of each matrix (k, m, n): λmax(A) of A = GGᵀ, by eigenvectors Q that may be wrong.

    λmax(A) ≤ λmax(QΛQᵀ) + ‖A - QΛQᵀ‖, and for Λ ≥ 0 the first is at most ‖Λ‖‖QᵀQ‖ ≤ ‖Λ‖(1 + ‖QᵀQ - I‖).
    """
    G = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.swapaxes(1, 2)
    top = np.abs(G).max(axis=(1, 2), initial=0.0)
    if not np.isfinite(top).all():
        return np.full(len(G), np.inf)
    powers = np.frexp(top)[1]
    G = np.ldexp(G, -powers[:, None, None])
    A = G @ G.swapaxes(1, 2)
    values, Q = np.linalg.eigh(A)
    values = np.maximum(values, 0.0)
    gram = np.linalg.norm(Q.swapaxes(1, 2) @ Q - np.eye(A.shape[1]), axis=(1, 2))
    rest = np.linalg.norm(A - (Q * values[:, None]) @ Q.swapaxes(1, 2), axis=(1, 2))
    lost = _EPS * ((G * G).sum(axis=(1, 2)) + (np.abs(Q) ** 2).sum(axis=(1, 2)) * (1.0 + values.max(axis=1)))
    return np.ldexp(_up(np.sqrt(_up(values.max(axis=1) * (1.0 + gram + lost) + rest + lost))), powers)


class Basis:
    """The monomials of d variables up to degree three, in the order of their degrees.

    Each is near a multiple of a product of different variables: δ² = ½ ± ½, δ³ = ¾δ ± ¼.
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
        every = np.concatenate([ba.corners(d), -ba.corners(d)])
        self.corners = np.array(
            [[np.prod(at[[i for i in set(one) if one.count(i) % 2]]) for one in self.monomials] for at in every]
        )


_basis = cache(Basis)


@dataclass(frozen=True, eq=False)
class Taylor:
    """Polynomials with coefficients (monomials, ...), up to ``rest`` (...)."""

    basis: Basis
    terms: Array
    rest: Array

    @cached_property
    def sizes(self) -> Array:
        """At least the sizes of the terms of each degree."""
        return _up(np.add.reduceat(np.abs(self.terms), self.basis.starts))

    def __add__(self, other: Taylor) -> Taylor:
        lost = _EPS * (self.sizes + other.sizes).sum(axis=0)
        return Taylor(self.basis, self.terms + other.terms, _up(self.rest + other.rest + lost))

    def times(self, factor: Array) -> Taylor:
        """Each polynomial times a number."""
        rest = np.abs(factor) * (self.rest + _EPS * self.sizes.sum(axis=0))
        return Taylor(self.basis, self.terms * factor, _up(rest))

    def plus(self, constant: Array) -> Taylor:
        terms = self.terms.copy()
        terms[0] += constant
        return Taylor(self.basis, terms, _up(self.rest + _EPS * (np.abs(self.terms[0]) + np.abs(constant))))

    def __mul__(self, other: Taylor) -> Taylor:
        basis, one, two = self.basis, self.sizes, other.sizes
        terms = np.add.reduceat(self.terms[basis.left] * other.terms[basis.right], basis.first)
        cut = sum(one[n] * two[_DEGREE + 1 - n :].sum(axis=0) for n in range(1, _DEGREE + 1))
        whole = one.sum(axis=0), two.sum(axis=0)
        rest = cut + whole[0] * other.rest + self.rest * (whole[1] + other.rest) + _EPS * whole[0] * whole[1]
        return Taylor(basis, terms, _up(rest))

    def through(self, middle: Array, lost: Array) -> Taylor:
        """What matrices within ``lost`` of a middle make of them, along the last axis."""
        whole = self.sizes.sum(axis=0)
        rest = (self.rest + _EPS * whole) @ np.abs(middle).T + (whole + self.rest) @ lost.T
        return Taylor(self.basis, self.terms @ middle.T, _up(rest))

    def ends(self) -> Interval:
        """Between which numbers they lie: even monomials are between 0 and 1, the others between -1 and 1."""
        even = self.basis.even
        others = _up(np.abs(self.terms[1:][~even[1:]]).sum(axis=0) + self.rest + _EPS * self.sizes.sum(axis=0))
        own, first = self.terms[even], ba.balls(self.terms[0])
        low, high = (ba.balls(pick(own, 0.0).sum(axis=0)) for pick in (np.minimum, np.maximum))
        return ba.lower(first + low - ba.balls(others)), ba.upper(first + high + ba.balls(others))


class Expansion:
    """The pre-activations ``v`` of the last layer over a box, and their derivatives ``J`` (inputs, outputs) by δ.

    ``known`` are intervals of the hidden layers; ``intervals`` are smaller ones. ``empty`` boxes have no input.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval]) -> None:
        d = len(inputs.center)
        self.basis = _basis(d)
        center = ba.floats((inputs.lower + inputs.upper) / 2)
        half = np.maximum(
            ba.floats_above(inputs.upper - ba.balls(center)), ba.floats_above(ba.balls(center) - inputs.lower)
        )
        self.half = np.maximum(half, half.max() * 2.0**-40 + 2.0**-500)  # a larger box is no mistake
        count, eye = len(self.basis.monomials), np.arange(d)
        z = Taylor(self.basis, np.zeros((count, d)), np.zeros(d))
        z.terms[0], z.terms[eye + 1, eye] = center, self.half
        slopes = Taylor(self.basis, np.zeros((count, d, d)), np.zeros((d, d)))
        slopes.terms[0, eye, eye] = self.half
        self.intervals: list[Interval] = []
        self.empty = False
        for layer, interval in zip(model, [*known, None]):
            (weight, bias), (lost, gone) = layer.near
            v, self.J = z.through(weight, lost).plus(bias), slopes.through(weight, lost)
            self.v = v = replace(v, rest=_up(v.rest + gone))
            if interval is None:
                return
            interval = ba.both(interval, v.ends())
            self.intervals.append(interval)
            self.empty = bool((interval[0] > interval[1]).any())
            if self.empty:
                return
            z, slope = _activated(layer, v, interval)
            slopes = Taylor(self.basis, slope.terms[:, None], slope.rest[None]) * self.J

    def bound(self, norms: Norms) -> arb:
        """At least the norm of the Jacobian: products of different δ are largest at a corner."""
        terms = self.J.terms / self.half[:, None]
        shares = self.basis.shares[:, None, None]
        sizes = np.abs(terms)
        rest = _up(self.J.rest / self.half[:, None] + (sizes * (1.0 - shares + _EPS)).sum(axis=0))
        values = np.tensordot(self.basis.corners, terms * shares, 1)
        rest = _up(rest + _EPS * sizes.sum(axis=0))
        if norms.plain:
            return ball(norms_above(values).max()) + ball(norms_above(rest[None])[0])
        every = [ba.induced_norm((ba.balls(one).T, ba.balls(one).T), norms) for one in (*values, rest)]
        return (ba.largest(np.array(every[:-1])) + every[-1]).upper()

    def ends(self) -> Interval:
        """Between which numbers the outputs lie."""
        return self.v.ends()

    def entries(self) -> Balls:
        """At least the size of each entry of the Jacobian, (outputs, inputs)."""
        return ba.upper(ba.sizes_within(self.J.ends()) / ba.balls(self.half)[:, None]).T


def _activated(layer: Layer, v: Taylor, interval: Interval) -> tuple[Taylor, Taylor]:
    """φ(v) and φ'(v), by polynomials in v - m on the interval m ± h; which ones is only a suggestion."""
    assert layer.neurons is not None
    low, high = interval
    middle = ba.floats((low + high) / 2)
    half = (
        np.maximum(ba.floats_above(high - ba.balls(middle)), ba.floats_above(ba.balls(middle) - low)) + 2.0**-200
    )  # larger is no mistake
    count = _DEGREE + 1
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    at, fit = middle + np.multiply.outer(nodes, half), np.linalg.inv(np.vander(nodes, increasing=True))
    found = np.stack([fit @ layer.neurons.value(at), fit @ layer.neurons.slope(at)])
    found = np.nan_to_num(found / half ** np.arange(count)[:, None], posinf=0.0, neginf=0.0)
    rests = np.zeros((2, len(middle)))
    for f in {id(f): f for f in layer.functions}.values():
        some = np.array([one is f for one in layer.functions])
        rests[:, some] = remainders(f, middle[some], half[some], found[:, :, some])
    for k in np.flatnonzero(~np.isfinite(rests).all(axis=0)):  # a line, by the range of slopes
        f, m, h = layer.functions[k], ball(middle[k]), ball(half[k])
        alpha, beta = f.on((m - h).lower(), (m + h).upper()).slopes()
        slope, value = float((alpha + beta) / 2), f.value(m)
        steep = most([(beta - slope).upper(), (slope - alpha).upper()])
        found[:, :, k] = (float(value), slope, 0.0, 0.0), (slope, 0.0, 0.0, 0.0)
        rests[:, k] = ba.floats_above(np.array([steep * h + abs(value - float(value)), steep]))
    power = step = v.plus(-middle)
    results = [step.times(a[1]).plus(a[0]) for a in found]
    for n in range(2, count):
        power = power * step
        results = [one + power.times(a[n]) for one, a in zip(results, found, strict=True)]
    z, slopes = (replace(one, rest=_up(one.rest + rest)) for one, rest in zip(results, rests, strict=True))
    return z, slopes


_WIDTH, _ORDER, _LEAST_CELLS, _MOST_CELLS = 0.125, 12, 8, 64
"""Series begin at the multiples of a width, and have so many terms. An interval is cut into so many cells."""
_BINOMIAL = np.array([[float(math.comb(j, k)) for j in range(_ORDER + 1)] for k in range(5)])


def remainders(f: Function, middle: Array, half: Array, polynomials: Array) -> Array:
    """At least |φ - p| and |φ' - q| on middle ± half for (p, q) in v - middle, (2, 4, n); nan where nothing is known.

    Formula by formula, on what is between its marks, in cells c ± w.
    """
    found, stops = np.zeros((2, len(middle))), [-np.inf, *(float(mark) for mark in f.marks), np.inf]
    for formula, start, stop in zip(f.formulas, stops, stops[1:]):
        low = np.maximum(middle - half, np.nextafter(start, -np.inf))
        high = np.minimum(middle + half, np.nextafter(stop, np.inf))
        some = np.flatnonzero(low <= high)
        if not some.size:
            continue
        low, high = low[some], high[some]
        count = int(np.clip(np.ceil((high - low).max() / _WIDTH), _LEAST_CELLS, _MOST_CELLS))
        c = 0.5 * (low + high) + 0.5 * (high - low) * ((2.0 * np.arange(count)[:, None] + 1.0) / count - 1.0)
        w = np.zeros(c.shape) + _up(0.5 * (high - low) / count) + 2.0**-50 * (np.abs(middle) + half)[some]
        every = np.broadcast_to(polynomials[:, :, None, some], (2, 4, *c.shape)).reshape(2, 4, -1)
        bound = _series(formula).largest(c.ravel(), w.ravel(), (c - middle[some]).ravel(), every)
        bound = np.where(2.0 * w > _WIDTH, np.nan, bound.reshape(2, *c.shape)).max(axis=1)
        found[:, some] = np.maximum(found[:, some], bound)
    return found


class Series:
    """A formula by its power series at the multiples of a width; each holds up to half of it away."""

    def __init__(self, formula: Formula) -> None:
        self.formula, self.rows = formula, dict[int, tuple[float, ...]]()

    def row(self, place: int) -> tuple[float, ...]:
        """Coefficients; at least their errors, and the size of the one of the first order cut off, and of the fifth."""
        if place not in self.rows:
            with precision(128, _ORDER + 1):
                center = ball(place * _WIDTH)
                at, on = (
                    arb_poly(self.formula(arb_series([x, 1])).coeffs()) for x in (center, arb(center, _WIDTH / 2))
                )
                terms = [float(at[k]) for k in range(_ORDER)]
                lost = sum((abs(at[k] - ball(x)) for k, x in enumerate(terms)), arb(0))
                self.rows[place] = (*terms, *ba.floats_above(np.array([lost, abs(on[_ORDER]), abs(on[5])])))
        return self.rows[place]

    def largest(self, c: Array, w: Array, away: Array, polynomials: Array) -> Array:
        """At least |φ(v) - p(v - c + away)| and |φ'(v) - q(v - c + away)| for |v - c| ≤ w and (p, q) (2, 4, n).

        For |t| ≤ w, t³ is within w³/4 of ¾w²t, and t⁴ within w⁴/8 of w²t² - w⁴/8.
        """
        place = np.rint(c / _WIDTH)
        places, where = np.unique(place, return_inverse=True)
        rows = [(*self.row(int(k)), *(self.row(int(k) + i)[-1] for i in (-1, 1))) for k in places]
        *terms, lost, tail, fifth, left, right = np.array(rows).T[:, where]
        fifth, s = np.maximum(fifth, np.maximum(left, right)), c - place * _WIDTH
        value, sizes = _moved(np.array(terms), s)
        errors = lost + _BINOMIAL[:, -1:] * tail * np.abs(s) ** (_ORDER - np.arange(5.0)[:, None])
        found, powers = [], w ** np.arange(6)[:, None]
        for order, p in enumerate(polynomials):
            own, more = _moved(p, away)
            if order:  # the coefficients of φ'
                turn = np.array([1.0, 2.0, 3.0, 4.0, 0.0])[:, None]
                value, sizes, errors = (np.roll(x, -1, axis=0) * turn for x in (value, sizes, errors))
            g = value - own
            rest = (1.0, 5.0)[order] * fifth * powers[5 - order] + np.abs(g[3]) * powers[3] / 4
            rest += np.abs(g[4]) * powers[4] / 8 + ((errors + _EPS * (sizes + more)) * powers[:5]).sum(axis=0)
            one, two, three = g[0] - g[4] * powers[4] / 8, g[1] + 0.75 * g[3] * powers[2], g[2] + g[4] * powers[2]
            ends = np.abs(one + three * powers[2]) + np.abs(two) * w
            inside = np.abs(two) < 2.0 * np.abs(three) * w
            vertex = np.abs(one - two * two / np.where(inside, 4.0 * three, 1.0))
            found.append(_up(np.maximum(ends, np.where(inside, vertex, 0.0)) + rest))
        return np.array(found)


def _moved(terms: Array, s: Array) -> tuple[Array, Array]:
    """The first coefficients of polynomials, (5, n), around s; and the sizes of what is added up."""
    powers, count = s ** np.arange(len(terms))[:, None], len(terms)
    parts = [_BINOMIAL[k, k:count, None] * terms[k:] * powers[: max(count - k, 0)] for k in range(5)]
    return np.array([x.sum(axis=0) for x in parts]), np.array([np.abs(x).sum(axis=0) for x in parts])


_series = cache(Series)
