"""Numbers kept as the sum of two floats with a bound of what is missing, and sparse matrices of them.

A certificate allows each stored coefficient to be off by 2⁻⁵⁰ of itself. Coefficients of composed maps are computed far
better than that, by two facts (Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 2.6 and 4.3):
a + b = s + e with floats s = fl(a + b) and e, unless s overflows, and a·b = p + e with floats p = fl(a·b) and e, unless
something overflows or |p| < 2⁻⁹⁰⁰. Each operation adds what does not fit into two floats to ``error``; error 0 means
that the number is exact. Errors are sums and products of a few non-negative floats, which lose less than 2⁻⁴⁰ of
themselves; ``_UP`` makes up for it. Underflow loses less than 2⁻¹⁰⁰⁰ in an operation, which is added wherever it can
occur. Overflow leaves an infinity or NaN behind, which :attr:`Precise.good` refuses, as it does lost digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight

_U: Final = 2.0**-53
_UP: Final = 1.0 + 2.0**-20
_SLACK: Final = 2.0**-1000
_MOST_TERMS: Final = 2**22
"""Terms of a product of matrices, half a gigabyte; beyond it maps stay apart."""
TOLERANCE: Final = 7.5
"""Units of 2⁻⁵³ by which a coefficient may be off, relatively; the theorem allows 8, the rest is for the comparison."""


@dataclass(frozen=True, eq=False)
class Precise:
    """An array of real numbers, each within ``error`` ≥ 0 of ``high + low``; high is that sum rounded to nearest."""

    high: Array
    low: Array
    error: Array
    __array_ufunc__ = None  # array * Precise is for Precise to answer

    @staticmethod
    def of(value: Any) -> Precise:
        """Floats, which are exact; Precise numbers as they come."""
        if isinstance(value, Precise):
            return value
        floats = np.asarray(value, dtype=float)
        nothing = np.broadcast_to(0.0, floats.shape)
        return Precise(floats, nothing, nothing)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.high.shape

    @property
    def size(self) -> Array:
        """At least the absolute value of the number."""
        return np.asarray((np.abs(self.high) + np.abs(self.low) + self.error) * _UP)

    @property
    def nothing(self) -> Array:
        """Where the number is certainly 0."""
        return np.asarray((self.high == 0.0) & (self.error == 0.0))

    @property
    def good(self) -> Array:
        """Where ``high`` may stand for the number: |high - number| ≤ 2⁻⁵⁰·|high|, so 0 only for 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            off = (np.abs(self.low) + self.error) / _U  # divided, so that nothing underflows
            return np.asarray(np.isfinite(self.high) & (off <= TOLERANCE * np.abs(self.high)))

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        return self.high, self.low, self.error

    def each(self, change: Callable[[Array], Array]) -> Precise:
        """The numbers after a change of their arrangement only."""
        return Precise(*map(change, self.parts))

    def take(self, index: Any) -> Precise:
        """Some of the numbers, chosen as numpy does."""
        if self.low is self.error:  # plain floats, as ``of`` makes them
            return Precise.of(self.high[index])
        return self.each(lambda part: np.asarray(part[index]))

    def reshape(self, *shape: int) -> Precise:
        return self.each(lambda part: part.reshape(shape))

    def broadcast(self, shape: tuple[int, ...]) -> Precise:
        return self.each(lambda part: np.broadcast_to(part, shape))

    def __neg__(self) -> Precise:
        return Precise(-self.high, -self.low, self.error)

    def __add__(self, other: Any) -> Precise:
        two = Precise.of(other)
        with np.errstate(over="ignore", invalid="ignore"):
            s, e = two_sum(self.high, two.high)
            t, lost = two_sum(self.low, two.low)
            t, more = two_sum(e, t)
            error = (self.error + two.error + np.abs(lost) + np.abs(more)) * _UP
            return Precise(*two_sum(s, t), error)

    def __sub__(self, other: Any) -> Precise:
        return self + (-Precise.of(other))

    def __mul__(self, other: Any) -> Precise:
        """(x + x')(y + y') = xy + (xy' + x'y) + x'y'; the middle is rounded, the last is part of the error."""
        two = Precise.of(other)
        with np.errstate(all="ignore"):
            p, e, lost = two_product(self.high, two.high)
            one, other_one = self.high * two.low, self.low * two.high
            t, missed = two_sum(one, other_one)
            t, more = two_sum(e, t)
            rounded = 2.0 * _U * (np.abs(one) + np.abs(other_one)) + np.abs(self.low * two.low)
            carried = self.error * two.size + two.error * self.size
            exact = (self.low == 0.0) & (two.low == 0.0) & (self.error == 0.0) & (two.error == 0.0)
            exact = exact | self.nothing | two.nothing
            error = np.where(exact, lost, (np.abs(missed) + np.abs(more) + rounded + carried) * _UP + lost + _SLACK)
            return Precise(*two_sum(p, t), error)

    def reciprocal(self) -> Precise:
        """1/y. Whatever q is, |1/y - q| = |1 - qy|/|y|; one correction makes it small."""
        with np.errstate(all="ignore"):
            near = self.high
            guess = Precise.of(1.0 / near)
            guess = Precise(*two_sum(guess.high, (1.0 - guess * self).high / near), guess.error)
            off, least = (1.0 - guess * self).size, np.abs(near) * (1.0 - 2.0**-50) - self.error * _UP
            error = np.where(off == 0.0, 0.0, off / least * _UP + _SLACK)
            return Precise(guess.high, guess.low, np.where(least > 0.0, error, np.inf))

    def inverse_root(self) -> Precise:
        """1/√v for v > 0. Whatever z > 0 is, with ρ = 1 - z²v: 1/√v = z/√(1 - ρ), off by at most |ρ|z if |ρ| ≤ 1/2."""
        with np.errstate(all="ignore"):
            near = 1.0 / np.sqrt(self.high)
            rest = (1.0 - Precise.of(near) * near * self).high
            guess = Precise(*two_sum(near, 0.5 * rest * near), np.zeros_like(near))
            off = (1.0 - guess * guess * self).size
            error = np.where(off == 0.0, 0.0, guess.size * off * _UP + _SLACK)
            return Precise(guess.high, guess.low, np.where(off <= 0.5, error, np.inf))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Precise:
        return Precise.of(other) - self


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Floats s, e with s + e = a + b exactly and s = fl(a + b)."""
    s = a + b
    other = s - a
    return s, (a - (s - other)) + (b - other)


def two_product(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Floats p, e and a bound of |a·b - p - e|, which is 0 unless something underflows. Beyond 2⁹⁹⁰ e is NaN."""
    p = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    e = a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)
    plain = (a == 0.0) | (b == 0.0) | (np.abs(a) == 1.0) | (np.abs(b) == 1.0)
    return p, np.where(plain, 0.0, e), np.where(~plain & (np.abs(p) < 2.0**-900), _SLACK, 0.0)


def _halves(a: Array) -> tuple[Array, Array]:
    """The upper 26 bits, and the rest."""
    wide = a * (2.0**27 + 1.0)
    high = wide - (wide - a)
    return high, a - high


@dataclass(frozen=True, eq=False)
class PreciseMatrix:
    """A sparse matrix: number k of ``values`` stands at (rows[k], columns[k]); places ascend, row after row."""

    shape: tuple[int, int]
    rows: Array
    columns: Array
    values: Precise

    @staticmethod
    def of(matrix: Weight | PreciseMatrix) -> PreciseMatrix:
        """The entries of a matrix of floats, dense or sparse."""
        if isinstance(matrix, PreciseMatrix):
            return matrix
        found = sparse.coo_array(sparse.csr_array(matrix))
        return PreciseMatrix.of_entries(found.shape, found.row, found.col, Precise.of(found.data))

    @staticmethod
    def of_entries(shape: Sequence[int], rows: Array, columns: Array, values: Precise) -> PreciseMatrix:
        """Entries in any order; those of one place are added, and those that are 0 left out."""
        height, width = int(shape[0]), int(shape[1])
        key = rows.astype(np.int64) * max(width, 1) + columns
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key, values = key[order], values.take(order)
        while (key[1:] == key[:-1]).any():  # each round adds up pairs of neighbours of one place
            starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
            odd = (np.arange(key.size) - np.repeat(starts, np.diff(np.r_[starts, key.size]))) % 2 == 1
            even = np.flatnonzero(~odd)
            after = np.minimum(even + 1, key.size - 1)
            values = values.take(even) + values.take(after).each(lambda part: np.where(odd[after], part, 0.0))  # noqa: B023
            key = key[even]
        if not values.high.all():
            kept = np.flatnonzero(~values.nothing)
            key, values = key[kept], values.take(kept)
        return PreciseMatrix((height, width), key // max(width, 1), key % max(width, 1), values)

    @staticmethod
    def choosing(index: Array, size: int) -> PreciseMatrix:
        """The matrix that takes those elements of a vector of some size; -1 stands for 0."""
        rows = np.flatnonzero(index >= 0)
        return PreciseMatrix((index.size, int(size)), rows, index[rows], Precise.of(np.ones(rows.size)))

    @staticmethod
    def column(values: Precise) -> PreciseMatrix:
        """A vector as a matrix."""
        rows = np.arange(values.shape[0])
        return PreciseMatrix.of_entries((rows.size, 1), rows, np.zeros_like(rows), values)

    @staticmethod
    def total(matrices: Sequence[PreciseMatrix], shape: tuple[int, int]) -> PreciseMatrix:
        """The sum of matrices of one shape."""
        some = [one for one in matrices if one.rows.size] or [PreciseMatrix.choosing(np.full(shape[0], -1), shape[1])]
        if len(some) == 1:
            return some[0]
        joined = PreciseMatrix.stacked(some)
        return PreciseMatrix.of_entries(shape, joined.rows % shape[0], joined.columns, joined.values)

    @staticmethod
    def stacked(matrices: Sequence[PreciseMatrix]) -> PreciseMatrix:
        """Matrices of one width, one above the other."""
        starts = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)]).tolist()
        rows = np.concatenate([matrix.rows + start for matrix, start in zip(matrices, starts, strict=False)])
        values = Precise(*map(np.concatenate, zip(*(matrix.values.parts for matrix in matrices), strict=True)))
        columns = np.concatenate([matrix.columns for matrix in matrices])
        return PreciseMatrix((starts[-1], matrices[0].shape[1]), rows, columns, values)

    @cached_property
    def diagonal(self) -> bool:
        """Whether it is square and each place of the diagonal has a number, but no other place."""
        place = np.arange(self.shape[0])
        return self.shape[0] == self.shape[1] and all(np.array_equal(k, place) for k in (self.rows, self.columns))

    @property
    def nearest(self) -> sparse.csr_array:
        """The entries as floats; :attr:`Precise.good` says whether they may stand for the numbers."""
        indptr = np.r_[0, np.cumsum(np.bincount(self.rows, minlength=self.shape[0]))]
        return sparse.csr_array((self.values.high, self.columns, indptr), shape=self.shape)

    @property
    def ones(self) -> bool:
        """Whether it only chooses and adds."""
        return bool((self.values.high == 1.0).all() and not self.values.low.any() and not self.values.error.any())

    def __matmul__(self, other: PreciseMatrix) -> PreciseMatrix:
        """self·other, term by term; an infinity alone where that would take too many terms."""
        shape = (self.shape[0], other.shape[1])
        if (self.diagonal and self.ones) or (other.diagonal and other.ones):
            return other if self.diagonal and self.ones else self
        counts = np.bincount(other.rows, minlength=other.shape[0])
        each = counts[self.columns]  # terms with each entry
        terms = int(each.sum())
        if terms > max(_MOST_TERMS, 4 * (self.rows.size + other.rows.size)):
            return PreciseMatrix(shape, np.zeros(1, dtype=int), np.zeros(1, dtype=int), Precise.of([np.inf]))
        left = np.repeat(np.arange(each.size), each)
        right = np.cumsum(counts)[self.columns] - each  # where each entry meets the first
        right = np.repeat(right - np.cumsum(each) + each, each) + np.arange(terms)
        one, two = self.values.take(left), other.values.take(right)
        values = two if self.ones else one if other.ones else one * two
        return PreciseMatrix.of_entries(shape, self.rows[left], other.columns[right], values)
