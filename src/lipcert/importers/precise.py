"""Numbers kept as the sum of two floats with a bound of what is missing, and sparse matrices of them.

A composed affine map has sums of products as coefficients. A certificate allows each stored coefficient to be off by
2⁻⁵⁰ of itself. Two facts let us compute the coefficients far better than that (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, sections 2.6 and 4.3; rounding to nearest):

* a + b = s + e with floats s = fl(a + b) and e, unless s overflows (:func:`two_sum`);
* a·b = p + e with floats p = fl(a·b) and e, unless something overflows or |p| < 2⁻⁹⁰⁰ (:func:`two_product`).

Each operation adds everything that does not fit into two floats to ``error``; error 0 means that the number is exact.
Errors are sums and products of a few non-negative floats, which lose less than 2⁻⁴⁰ of themselves; ``_UP`` makes up for
it. Underflow loses less than 2⁻¹⁰⁰⁰ in an operation, which is added wherever it can occur. Overflow leaves an infinity
or NaN behind. :attr:`Precise.good` compares ``error`` with the number itself, so it also refuses numbers that lost
their digits in cancellation, and infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight

_U: Final = 2.0**-53
_UP: Final = 1.0 + 2.0**-20
_SLACK: Final = 2.0**-1000
_FULL: Final = 0.1
"""Share of entries from which both matrices are multiplied as dense ones; with one of them a VGG took twice as long."""
_TINY: Final = 2.0**-450
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

    @staticmethod
    def joined(numbers: Sequence[Precise]) -> Precise:
        """Vectors one after the other."""
        return Precise(*map(np.concatenate, zip(*(one.parts for one in numbers), strict=True)))

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
    def ones(self) -> bool:
        """Whether every number is 1."""
        return bool((self.high == 1.0).all() and not self.low.any() and not self.error.any())

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
        """The same numbers in another shape."""
        return self.each(lambda part: part.reshape(shape))

    def broadcast(self, shape: tuple[int, ...]) -> Precise:
        """The numbers repeated to fill a shape."""
        return self.each(lambda part: np.broadcast_to(part, shape))

    def spread(self, index: Array, count: int) -> Precise:
        """The numbers at the given places of a vector of zeros."""
        return self.each(lambda part: np.bincount(index, part, count))

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
    a_high, b_high = _half(a), _half(b)
    a_low, b_low = a - a_high, b - b_high
    e = a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)
    plain = (a == 0.0) | (b == 0.0) | (np.abs(a) == 1.0) | (np.abs(b) == 1.0)
    lost = np.where(~plain & (np.abs(p) < 2.0**-900), _SLACK, 0.0)
    return p, np.where(plain, 0.0, e), lost


def _half(a: Array) -> Array:
    """The upper 26 bits."""
    wide = a * (2.0**27 + 1.0)
    return np.asarray(wide - (wide - a))


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
        found = sparse.coo_array(matrix if sparse.issparse(matrix) else np.asarray(matrix, dtype=float))
        return PreciseMatrix.of_entries(matrix.shape, found.row, found.col, Precise.of(found.data))

    @staticmethod
    def of_entries(shape: Sequence[int], rows: Array, columns: Array, values: Precise) -> PreciseMatrix:
        """Entries in any order; those of one place are added, and those that are 0 left out."""
        height, width = int(shape[0]), max(int(shape[1]), 1)
        key = rows.astype(np.int64) * width + columns
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key, values = key[order], values.take(order)
        again = np.flatnonzero(key[1:] == key[:-1]) + 1
        if again.size:
            rest = PreciseMatrix.of_entries(shape, key[again] // width, key[again] % width, values.take(again))
            first = np.delete(np.arange(key.size), again)
            key, values = key[first], values.take(first)
            values = values + rest.values.spread(np.searchsorted(key, rest.rows * width + rest.columns), key.size)
        if values.nothing.any():
            kept = np.flatnonzero(~values.nothing)
            key, values = key[kept], values.take(kept)
        return PreciseMatrix((height, int(shape[1])), key // width, key % width, values)

    @staticmethod
    def diagonal(values: Precise) -> PreciseMatrix:
        """A diagonal matrix."""
        size = values.shape[0]
        return PreciseMatrix.of_entries((size, size), np.arange(size), np.arange(size), values)

    @staticmethod
    def total(matrices: Sequence[PreciseMatrix]) -> PreciseMatrix:
        """The sum of matrices of one shape."""
        if len(matrices) == 1:
            return matrices[0]
        rows, columns = (np.concatenate([getattr(m, name) for m in matrices]) for name in ("rows", "columns"))
        return PreciseMatrix.of_entries(matrices[0].shape, rows, columns, Precise.joined([m.values for m in matrices]))

    @property
    def nearest(self) -> sparse.csr_array:
        """The entries as floats; :attr:`Precise.good` says whether they may stand for the numbers."""
        return self.filled(self.values.high, self.shape[0])

    def filled(self, data: Array, height: int) -> sparse.csr_array:
        """Other numbers in the places of the entries, in a matrix of at least as many rows."""
        indptr = np.searchsorted(self.rows, np.arange(height + 1))
        return sparse.csr_array((data, self.columns, indptr), shape=(height, self.shape[1]))

    def moved(self, rows: int, start: int) -> PreciseMatrix:
        """The matrix as rows ``start`` … of a taller one that is 0 elsewhere."""
        return PreciseMatrix((rows, self.shape[1]), self.rows + start, self.columns, self.values)

    def picked(self, index: Array) -> PreciseMatrix:
        """Rows in a new order; -1 stands for a row of zeros, which is added as the last one."""
        chosen = self.filled(np.arange(self.rows.size) + 1, self.shape[0] + 1)[index]
        rows = np.repeat(np.arange(len(index)), np.diff(chosen.indptr))
        return PreciseMatrix((len(index), self.shape[1]), rows, chosen.indices, self.values.take(chosen.data - 1))

    def scaled(self, factor: Precise) -> PreciseMatrix:
        """Row i times factor i."""
        if factor.ones:
            return self
        return PreciseMatrix.of_entries(self.shape, self.rows, self.columns, self.values * factor.take(self.rows))

    def times(self, vector: Precise) -> Precise:
        """The product with a vector."""
        size = vector.shape[0]
        column = PreciseMatrix.of_entries((size, 1), np.arange(size), np.zeros(size, dtype=int), vector)
        product = self @ column
        return product.values.spread(product.rows, self.shape[0])

    def __matmul__(self, other: PreciseMatrix) -> PreciseMatrix:
        """self·other, from products of slices (Ozaki, Ogita, Oishi, Rump, Error-free transformations, 2012).

        The entries of a slice are whole numbers of at most 2^b times a power of two. If n·2^(2b) ≤ 2^53, every partial
        sum of the n terms of an entry of the product of two slices is a whole number of at most 2^53 times a power of
        two. So the product is exact in whatever order it is summed, by dense and sparse routines alike.
        """
        shape = (self.shape[0], other.shape[1])
        if np.array_equal(other.rows, np.arange(other.shape[0])):  # one entry in each row: columns get other names
            values = self.values if other.values.ones else self.values * other.values.take(self.columns)
            return PreciseMatrix.of_entries(shape, self.rows, other.columns[self.columns], values)
        terms = int(np.bincount(self.rows, minlength=1).max())
        bits = (53 - max(terms - 1, 0).bit_length()) // 2
        full = all(m.rows.size >= _FULL * m.shape[0] * m.shape[1] for m in (self, other))
        left, right = (partial(m._fast, full) for m in (self, other))
        with np.errstate(all="ignore"):
            (one, off), (two, aside) = _slices(self.values, bits), _slices(other.values, bits)
            reached = sparse.csr_array(left(np.ones(self.rows.size)) @ right(np.ones(other.rows.size)))
            reached.sort_indices()
            rows, columns = np.repeat(np.arange(self.shape[0]), np.diff(reached.indptr)), reached.indices
            error = np.zeros(rows.size)
            if off.any() or aside.any():  # of tiny numbers, so that no product of a size and an error underflows
                size, width = (np.maximum(m.values.size, _TINY) for m in (self, other))
                error = _at(left(size) @ right(aside) + left(off) @ right(width), rows, columns)
            total = Precise(np.zeros(rows.size), np.zeros(rows.size), error * _UP)
            second = [right(part) for part in two]
            for part in one:
                first = left(part)
                for slice in second:
                    total = total + _at(first @ slice, rows, columns)
        return PreciseMatrix.of_entries(shape, rows, columns, total)

    def _fast(self, full: bool, data: Array) -> Any:
        """Other numbers in the places of the entries, as a dense or a sparse matrix."""
        matrix = self.filled(data, self.shape[0])
        return matrix.toarray() if full else matrix


def _slices(values: Precise, bits: int) -> tuple[list[Array], Array]:
    """Arrays of whole numbers of at most 2^bits times a power of two, and how far their sum is from the numbers."""
    slices, error = [], values.error
    for rest in (values.high, values.low):
        for _ in range(12):
            top = np.abs(rest).max(initial=0.0)
            if not _TINY <= top < np.inf:
                break
            large = 1.5 * 2.0**52 * np.ldexp(1.0, int(np.frexp(top)[1]) - bits)
            head = (rest + large) - large
            slices.append(head)
            rest = rest - head
        error = error + np.abs(rest)
    return slices, np.where(error == 0.0, 0.0, np.maximum(error * _UP, _TINY))


def _at(product: Any, rows: Array, columns: Array) -> Array:
    """The entries of a product in some places, in order, outside of which it is 0."""
    if not sparse.issparse(product):
        return np.asarray(product[rows, columns])
    entries, found = sparse.coo_array(product), np.zeros(rows.size)
    width = max(product.shape[1], 1)
    found[np.searchsorted(rows * width + columns, entries.row * np.int64(width) + entries.col)] = entries.data
    return found
