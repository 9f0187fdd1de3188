"""Polynomials of degree four at most over a box |δ_i| ≤ 1, as coefficients of monomials δ_i δ_j … with i ≤ j ≤ ….

Without squares a polynomial is affine in each δ_i, and then a convex function of it is largest at a corner. So

    δ_i² = ½ ± ½,     δ_i² δ_j = ½ δ_j ± ½,     δ_i³ = ¾ δ_i ± ¼

make a polynomial of degree three one without squares, up to something of known size.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, pairwise, product

import numpy as np

from lipcert.kernel.near import Size, Sized
from lipcert.kernel.rounding import root_above
from lipcert.model.arrays import Array

_POWERS = {1: (1.0, True, 0.0), 2: (0.5, False, 0.5), 3: (0.75, True, 0.25)}
"""What stands for a power of δ_i: a factor, whether δ_i is kept, and how far off that is at most."""


class Monomials:
    """Products, gradients and corners of polynomials in ``d`` variables.

    Attributes
    ----------
    count : numbers of monomials of degree 0, 1, 2, 3, 4.
    values : the monomials of degree three at most, without squares, at the corners, (monomials, corners).
    slack : how far each is from that at most, (monomials,).
    sides, slacks : per degree 1, 2 and 3 the same at half of the corners, those with δ_1 = 1, (corners, monomials).
    turns : per degree 2 and 3, what makes ∂p/∂δ_j at these corners of a polynomial, (corners, d, monomials).
    curls : how far squares in ∂w/∂δ_j are from that at most, per monomial of degree three, (d, monomials).
    touched : per degree 2 and 3, how often a variable is in a monomial, (d, monomials).
    """

    def __init__(self, d: int) -> None:
        lists = [list(combinations_with_replacement(range(d), degree)) for degree in range(5)]
        place = [{monomial: number for number, monomial in enumerate(part)} for part in lists]
        self.d, self.count = d, [len(part) for part in lists]
        pairs = np.array(lists[2])
        self.first, self.second = pairs[:, 0], pairs[:, 1]
        self.both = np.where(self.first == self.second, 1.0, 2.0)[:, None]
        self.third = np.array([[place[3][_sorted(i, *pair)] for pair in lists[2]] for i in range(d)])
        self.by_line = _groups([place[4][_sorted(i, *other)] for i, other in product(range(d), lists[3])])
        self.by_square = _groups([place[4][_sorted(*one, *other)] for one, other in product(lists[2], lists[2])])
        self.touched = [np.array([[part.count(i) for part in lists[m]] for i in range(d)], dtype=float) for m in (2, 3)]
        self.gradients = []
        for degree in range(1, 5):
            source = np.array([[place[degree][_sorted(j, *part)] for part in lists[degree - 1]] for j in range(d)])
            times = np.array([[part.count(j) + 1.0 for part in lists[degree - 1]] for j in range(d)])
            self.gradients.append((source, times))
        signs = np.array(list(product([-1.0, 1.0], repeat=d)))
        values, slack = [], []
        for monomial in (part for degree in range(4) for part in lists[degree]):
            value, off = np.ones(len(signs)), 0.0
            for i, power in Counter(monomial).items():
                factor, kept, least = _POWERS[power]
                value = value * factor * (signs[:, i] if kept else 1.0)
                off = max(off, least)
            values.append(value)
            slack.append(off)
        self.values, self.slack = np.array(values), np.array(slack)
        ends = np.cumsum(self.count)
        some = np.ascontiguousarray(self.values[:, len(signs) // 2 :].T)
        self.sides = [np.ascontiguousarray(some[:, a:b]) for a, b in pairwise(ends[:4])]
        self.turns, self.curls = [], np.zeros((d, self.count[3]))
        for degree in (2, 3):
            source, times = self.gradients[degree - 1]
            turns = np.zeros((len(some), d, self.count[degree]))
            for j, i in product(range(d), range(self.count[degree - 1])):
                turns[:, j, source[j, i]] += times[j, i] * self.sides[degree - 2][:, i]
                if degree == 3:
                    self.curls[j, source[j, i]] += times[j, i] * self.slack[ends[1] + i]
            self.turns.append(turns)
        self.slacks = [self.slack[a:b] for a, b in pairwise(ends[:4])]

    def doubled(self, B: Array) -> Array:
        """L² for L = Bδ, (count, d, n) → (count, pairs, n)."""
        return np.asarray(B[:, self.first] * B[:, self.second] * self.both)

    def add_product(self, out: Array, B: Array, s: Array) -> None:
        """Add L·s, s of degree two, to a polynomial ``out`` of degree three."""
        for i, where in enumerate(self.third):
            out[:, where] += B[:, i : i + 1] * s

    def split(self, Z: Array) -> tuple[Array, Array, Array]:
        """The parts of degree 1, 2 and 3 of coefficients (count, monomials, n)."""
        _, d, pairs, *_ = self.count
        return Z[:, :d], Z[:, d : d + pairs], Z[:, d + pairs :]

    def gradient_above(self, degree: int, part: Array, size: Sized, scale: Array) -> Size:
        """The largest ‖∇p(δ)·diag(scale)‖ over δ for p of degree 2 or 3 without squares in its gradient, scale ≤ 1.

        Coefficients are ``part`` (count, monomials, n), and ``size`` (count, d, n) is at least |∂p/∂δ_j|. The norm is
        convex in each δ_i, so largest at a corner, and its square is that of T(ppᵀ)Tᵀ there, T small numbers. In ppᵀ
        floats lose at most γ|p||p|ᵀ, which T makes γ·size·sizeᵀ of.
        """
        (count, monomials, n), size = part.shape, Size.of(size)
        _, power = np.frexp(size.value.max(axis=(1, 2), initial=0.0))
        part, near_one = (np.ldexp(some, -power[:, None, None]) for some in (part, size.value))
        T = (self.turns[degree - 2] * scale[:, None, :, None]).reshape(count, -1, monomials)
        half = (T @ (part @ np.swapaxes(part, 1, 2))).reshape(-1, self.d, monomials)
        P = (half @ np.swapaxes(T.reshape(half.shape), 1, 2)).reshape(count, -1, self.d, self.d)
        lost = Size(near_one, size.units).length((1, 2)).squared().lost(n + 4 * monomials + 16).above
        return 1.0 * Size(np.ldexp(root_above(P, lost[:, None], 2).max(axis=1), power), 1)

    def gradient(self, parts: list[Array]) -> Array:
        """The gradient of polynomials, given by degree (..., monomials); (..., d, monomials of degree ≤ 3)."""
        found = [part[..., source] * times for part, (source, times) in zip(parts, self.gradients, strict=False)]
        return np.concatenate(found, axis=-1)


def _sorted(*monomial: int) -> tuple[int, ...]:
    return tuple(sorted(monomial))


def _groups(numbers: list[int]) -> tuple[Array, Array]:
    """An order that brings equal numbers together, and where each group begins; all numbers occur."""
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(np.array(numbers)[order], np.arange(max(numbers) + 1))


def collect(terms: Array, groups: tuple[Array, Array]) -> Array:
    """Terms (..., products) with equal monomials added up."""
    order, starts = groups
    return np.asarray(np.add.reduceat(terms[..., order], starts, axis=-1))
