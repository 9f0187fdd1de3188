"""Numbers known beyond double precision: sums of a few floats that nobody has rounded, and a bound of what is missing.

The coefficients of a composed affine map are sums of products, and the theorem of a certificate allows each of them to
be rounded once. So they are kept as :class:`Precise` numbers until the last moment. Two facts carry the arithmetic
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 2.6 and 4.3; rounding to nearest):

* a + b = s + e with floats s = fl(a + b) and e, both found by six additions, unless s overflows;
* a·b = p + e with floats p = fl(a·b) and e, both found by seventeen operations, unless something over- or underflows.

So sums and products of floats lose nothing. What does not fit into ``DEPTH`` floats is added to the error, as is
underflow. Errors are rounded upwards, and an error of zero says that the number is exact. Overflow leaves an infinity
or NaN behind, which :meth:`Precise.rounded` refuses.

Matrices of such numbers are sparse, and their products lose nothing or say what they lose. A product is cut into
products of slices (Ozaki, Ogita, Oishi, Rump, Error-free transformations of matrix multiplication, 2012). In a slice of
the left matrix each row has a unit, a power of two, and its entries are at most 2^b units in size; in a slice of the
right matrix each column has one. If n·2^(2b) ≤ 2^53, every partial sum of the n terms of an entry is a whole number of
at most 2^53 times a power of two. So the product of two slices is exact in whatever order it is summed, by dense and
sparse routines alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight

DEPTH: Final = 3
"""How many floats a number is kept in: 159 bits, more where bits between them are zero."""

U: Final = 2.0**-53

SLACK: Final = 2.0**-20
"""A rounded number is within u·(1 + SLACK) of the exact one, relative to the rounded one."""

_SMALL: Final = 2.0**-960
"""A product of this size or more has an error term that does not underflow."""

_LOST: Final = 2.0**-1073
"""At least what two roundings in the range of subnormal numbers lose."""


@dataclass(frozen=True, eq=False)
class Precise:
    """An array of real numbers, each within ``error`` of the sum of its parts.

    Attributes
    ----------
    parts : floats (k, …), the largest first, 1 ≤ k ≤ DEPTH.
    error : floats (…), not negative.
    """

    parts: Array
    error: Array
    __array_ufunc__ = None  # array * Precise is for Precise to answer

    @staticmethod
    def of(value: Any) -> Precise:
        """Floats, which are what they are; Precise numbers as they come."""
        if isinstance(value, Precise):
            return value
        floats = np.asarray(value, dtype=float)
        return Precise(floats[None], np.broadcast_to(0.0, floats.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.error.shape

    @property
    def nearest(self) -> Array:
        """The first part: a float near the number, with no promise."""
        return np.asarray(self.parts[0])

    @property
    def above(self) -> Array:
        """At least the absolute value of the number."""
        return plus(_sizes(self.parts), self.error)

    @property
    def nothing(self) -> Array:
        """Where the number is certainly 0."""
        return np.asarray(~self.parts.any(axis=0) & (self.error == 0.0))

    def rounded(self) -> tuple[Array, Array]:
        """Floats, and where they are good: |float - number| ≤ u·(1 + SLACK)·|float|; 0 only for 0.

        The comparison is made in units of u times the float, so that nothing underflows; its own rounding makes the
        factor at most 1 + 2·SLACK. Infinities and NaN are never good.
        """
        first = self.nearest
        with np.errstate(over="ignore", invalid="ignore"):
            off = plus(_sizes(self.parts[1:], self.shape), self.error) / U
            good = np.isfinite(first) & (off <= np.abs(first) * (1.0 + SLACK))
        return first, good

    def take(self, index: Any) -> Precise:
        """Some of the numbers, chosen as numpy does."""
        return Precise(self.parts[(slice(None), *(index if isinstance(index, tuple) else (index,)))], self.error[index])

    def reshape(self, *shape: int) -> Precise:
        """The same numbers in another shape."""
        return Precise(self.parts.reshape(len(self.parts), *shape), self.error.reshape(shape))

    def broadcast(self, shape: tuple[int, ...]) -> Precise:
        """The numbers repeated to fill a shape."""
        missing = (1,) * (len(shape) - len(self.shape))
        parts = self.parts.reshape(len(self.parts), *missing, *self.shape)
        return Precise(np.broadcast_to(parts, (len(parts), *shape)), np.broadcast_to(self.error, shape))

    def __neg__(self) -> Precise:
        return Precise(-self.parts, self.error)

    def __add__(self, other: Any) -> Precise:
        two = Precise.of(other)
        return distilled([*self.parts, *two.parts], plus(self.error, two.error))

    def __sub__(self, other: Any) -> Precise:
        return self + (-Precise.of(other))

    def __mul__(self, other: Any) -> Precise:
        """|xy - x̃ỹ| ≤ |x̃|·δy + δx·(|ỹ| + δy), besides underflow."""
        two = Precise.of(other)
        error = plus(product_above(_sizes(self.parts), two.error), product_above(self.error, two.above))
        terms: list[Array] = []
        for one in self.parts:
            for factor in two.parts:
                high, low, lost = two_product(one, factor)
                terms += [high, low]
                error = plus(error, lost)
        return distilled(terms, error)

    def reciprocal(self) -> Precise:
        """1/y. Whatever q is, |1/y - q| = |1 - qy|/|y|; two corrections make it small."""
        with np.errstate(all="ignore"):
            near = self.nearest
            inverse = Precise.of(1.0 / near)
            for _ in range(DEPTH - 1):
                inverse = (inverse + (1.0 - inverse * self).nearest / near)._bare()
            least = np.abs(near) * (1.0 - 2.0**-50) - plus(_sizes(self.parts[1:], self.shape), self.error)
            return Precise(inverse.parts, quotient_above((1.0 - inverse * self).above, least))

    def inverse_root(self) -> Precise:
        """1/√v for v > 0. Whatever z > 0 is, with ρ = 1 - z²v: 1/√v = z/√(1 - ρ), off by at most |ρ|z if |ρ| ≤ 1/2."""
        with np.errstate(all="ignore"):
            root = Precise.of(1.0 / np.sqrt(self.nearest))
            for _ in range(DEPTH - 1):
                rest = 1.0 - root * root * self
                root = (root + root * (0.5 * rest.nearest))._bare()
            off = (1.0 - root * root * self).above
            return Precise(root.parts, np.where(off <= 0.5, product_above(root.above, off), np.inf))

    def _bare(self) -> Precise:
        """The sum of the parts itself, for a guess whose error is found afterwards."""
        return Precise(self.parts, np.broadcast_to(0.0, self.shape))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Precise:
        return Precise.of(other) - self


def distilled(terms: Iterable[Array], error: Array) -> Precise:
    """The sum of arrays of floats of one shape, given an error to add to."""
    held: list[Array] = [np.zeros(())] * DEPTH
    with np.errstate(over="ignore", invalid="ignore"):
        for term in terms:
            left = term
            for j in range(DEPTH):
                held[j], left = two_sum(held[j], left)
                if not left.any():
                    break
            error = plus(error, np.abs(left))
        for _ in range(2):
            for j in range(DEPTH - 2, -1, -1):
                held[j], held[j + 1] = two_sum(held[j], held[j + 1])
    used = max((j for j in range(DEPTH) if held[j].any()), default=0) + 1
    shape = np.broadcast_shapes(np.shape(error), *(part.shape for part in held))
    return Precise(np.stack([np.broadcast_to(part, shape) for part in held[:used]]), np.broadcast_to(error, shape))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Floats s, e with s + e = a + b exactly and s = fl(a + b)."""
    s = a + b
    other = s - a
    return s, (a - (s - other)) + (b - other)


def two_product(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Floats p, e and a bound of |a·b - p - e|, which is 0 unless something underflows.

    Mantissas are multiplied, so that splitting them cannot overflow, and powers of two are put back in the end.
    """
    (m, i), (n, j) = np.frexp(a), np.frexp(b)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        p = m * n
        m_high, n_high = _half(m), _half(n)
        m_low, n_low = m - m_high, n - n_high
        e = m_low * n_low - (((p - m_high * n_high) - m_low * n_high) - m_high * n_low)
        high, low = np.ldexp(p, i + j), np.ldexp(e, i + j)
    return high, low, np.where((p != 0.0) & (np.abs(high) < _SMALL), _LOST, 0.0)


def _half(m: Array) -> Array:
    """The upper 26 bits of numbers of size at most one."""
    wide = m * (2.0**27 + 1.0)
    return np.asarray(wide - (wide - m))


def plus(a: Array, b: Array) -> Array:
    """At least a + b for a, b ≥ 0; 0 if both are."""
    with np.errstate(over="ignore"):
        return _raised(a + b, (a > 0.0) | (b > 0.0) | np.isnan(a) | np.isnan(b))


def product_above(a: Array, b: Array) -> Array:
    """At least a·b for a, b ≥ 0; 0 if either is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _raised(a * b, (a != 0.0) & (b != 0.0))


def quotient_above(a: Array, b: Array) -> Array:
    """At least a/b for a ≥ 0; infinite unless b > 0."""
    with np.errstate(all="ignore"):
        return np.where(b > 0.0, _raised(a / b, a != 0.0), np.inf)


def _raised(value: Array, where: Array) -> Array:
    return np.where(where, np.nextafter(value, np.inf), 0.0)


def _sizes(parts: Array | Sequence[Array], shape: tuple[int, ...] = ()) -> Array:
    """At least the sum of the absolute values of the parts."""
    total: Array = np.zeros(shape)
    for part in parts:
        total = plus(total, np.abs(part))
    return total


# matrices --------------------------------------------------------------------------------------------------------

SLICES: Final = 8
"""Most slices of one part; what is left over is charged to the error."""

_DENSE: Final = 0.1
"""Density from which products are formed by dense routines."""

_TINIEST: Final = 2.0**-480
"""Entries this much smaller than the largest of their row or column count as errors, so that units do not underflow."""

_FLOOR: Final = 2.0**-300
"""Errors, relative to the largest entry, are rounded up to this, so that their products do not underflow."""

_UP: Final = 1.0 + 2.0**-20
"""More than sums of non-negative products with fewer than 2^30 terms lose, twice."""


@dataclass(frozen=True, eq=False)
class PreciseMatrix:
    """A sparse matrix by rows: entries indptr[i] … indptr[i + 1] - 1 are those of row i; columns ascend and differ.

    Entry k is number which[k] of the table, or number k without ``which``. A convolution has few numbers in many
    places, and arithmetic is done once for each number.
    """

    shape: tuple[int, int]
    indptr: Array
    indices: Array
    table: Precise
    which: Array | None = None

    @cached_property
    def values(self) -> Precise:
        """All entries."""
        return self.table if self.which is None else self.table.take(self.which)

    @staticmethod
    def of(matrix: Weight | PreciseMatrix) -> PreciseMatrix:
        """The entries of a matrix of floats, dense or sparse; duplicates are added without loss."""
        if isinstance(matrix, PreciseMatrix):
            return matrix
        if sparse.issparse(matrix):
            entries = sparse.coo_array(matrix)
            return PreciseMatrix.of_entries(matrix.shape, entries.row, entries.col, Precise.of(entries.data))
        floats = np.asarray(matrix, dtype=float)
        rows, columns = np.nonzero(floats)
        return PreciseMatrix.of_entries(floats.shape, rows, columns, Precise.of(floats[rows, columns]))

    @staticmethod
    def of_entries(
        shape: Sequence[int], rows: Array, columns: Array, table: Precise, which: Array | None = None
    ) -> PreciseMatrix:
        """Entries in any order; those of one place are added, and those that are 0 left out."""
        if which is not None and table.shape[0] >= which.size:  # most numbers stand nowhere, or once
            table, which = table.take(which), None
        nothing = table.nothing if which is None else table.nothing[which]
        if nothing.any():
            kept = np.flatnonzero(~nothing)
            rows, columns, table, which = rows[kept], columns[kept], *_chosen(table, which, kept)
        key = rows.astype(np.int64) * shape[1] + columns
        if (key[1:] <= key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key, (table, which) = key[order], _chosen(table, which, order)
            if (key[1:] == key[:-1]).any():
                (key, table), which = _added(key, table if which is None else table.take(which)), None
        indptr = np.searchsorted(key, np.arange(shape[0] + 1) * shape[1])
        return PreciseMatrix((int(shape[0]), int(shape[1])), indptr, key % max(shape[1], 1), table, which)

    @staticmethod
    def eye(size: int) -> PreciseMatrix:
        """The identity."""
        return PreciseMatrix((size, size), np.arange(size + 1), np.arange(size), Precise.of(np.ones(size)))

    @staticmethod
    def column(values: Precise) -> PreciseMatrix:
        """A vector as a matrix of one column."""
        size = values.shape[0]
        return PreciseMatrix.of_entries((size, 1), np.arange(size), np.zeros(size, dtype=int), values)

    @staticmethod
    def total(matrices: Sequence[PreciseMatrix]) -> PreciseMatrix:
        """The sum of matrices of one shape."""
        if len(matrices) == 1:
            return matrices[0]
        depth = max(len(m.values.parts) for m in matrices)
        parts = [np.pad(m.values.parts, ((0, depth - len(m.values.parts)), (0, 0))) for m in matrices]
        values = Precise(np.concatenate(parts, axis=1), np.concatenate([m.values.error for m in matrices]))
        rows, columns = (np.concatenate(list(part)) for part in zip(*((m.rows, m.indices) for m in matrices)))
        return PreciseMatrix.of_entries(matrices[0].shape, rows, columns, values)

    @cached_property
    def rows(self) -> Array:
        """The row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def nearest(self) -> sparse.csr_array:
        """Floats near the entries, with no promise."""
        return self._csr(self.values.nearest)

    def rounded(self) -> sparse.csr_array | None:
        """Each entry rounded once, as :meth:`Precise.rounded` promises; None where that cannot be shown for all."""
        floats, good = self.table.rounded()
        if self.which is not None:
            floats, good = floats[self.which], good[self.which]
        return self._csr(floats) if good.all() else None

    def moved(self, rows: int, start: int) -> PreciseMatrix:
        """The matrix as rows ``start`` … of a taller one that is 0 elsewhere."""
        before, after = np.zeros(start, dtype=int), np.full(rows - start - self.shape[0], self.indptr[-1])
        indptr = np.concatenate([before, self.indptr, after])
        return PreciseMatrix((rows, self.shape[1]), indptr, self.indices, self.table, self.which)

    def picked(self, index: Array) -> PreciseMatrix:
        """Rows in a new order; -1 stands for a row of zeros."""
        lengths = np.where(index >= 0, np.diff(self.indptr)[index], 0)
        entries = _ranges(self.indptr[:-1][index], lengths)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        chosen = _chosen(self.table, self.which, entries)
        return PreciseMatrix((len(index), self.shape[1]), indptr, self.indices[entries], *chosen)

    def scaled(self, factor: Precise) -> PreciseMatrix:
        """Row i times factor i."""
        if _ones(factor):
            return self
        table, which, row = self.values, None, self.rows
        if self.which is not None:
            of_number = np.zeros(self.table.shape[0], dtype=int)  # a row that each number stands in
            of_number[self.which] = self.rows
            alike = np.unique(np.concatenate([factor.parts, factor.error[None]]), axis=1, return_inverse=True)[1]
            if np.array_equal(alike[of_number[self.which]], alike[self.rows]):
                table, which, row = self.table, self.which, of_number
        table = factor.take(row) * table
        if table.nothing.any():
            return PreciseMatrix.of_entries(self.shape, self.rows, self.indices, table, which)
        return PreciseMatrix(self.shape, self.indptr, self.indices, table, which)

    def __matmul__(self, other: PreciseMatrix) -> PreciseMatrix:
        if other._is_identity:
            return self
        count = np.diff(self.indptr)
        if (count <= 1).all():  # a scaled choice of rows
            index, factor = np.full(self.shape[0], -1), np.zeros(self.shape[0], dtype=int)
            index[count == 1], factor[count == 1] = self.indices, np.arange(self.indices.size)
            chosen = other.picked(index)
            return chosen if self._all_ones else chosen.scaled(self.values.take(factor))
        if (np.diff(other.indptr) <= 1).all() and np.unique(other.indices).size == other.indices.size:
            return self._renamed(other)
        return _product(self, other)

    def _renamed(self, other: PreciseMatrix) -> PreciseMatrix:
        """self·other if other has at most one entry in each row and in each column: columns change place and size."""
        kept = np.flatnonzero(np.diff(other.indptr)[self.indices])
        entry = other.indptr[self.indices[kept]]
        values = self.values.take(kept)
        values = values if other._all_ones else values * other.values.take(entry)
        shape = (self.shape[0], other.shape[1])
        return PreciseMatrix.of_entries(shape, self.rows[kept], other.indices[entry], values)

    @property
    def _all_ones(self) -> bool:
        """Whether every entry is 1."""
        return self.which is None and _ones(self.table)

    @property
    def _is_identity(self) -> bool:
        size = self.shape[0]
        diagonal = (self.indptr == np.arange(size + 1)).all() and np.array_equal(self.indices, np.arange(size))
        return bool(self.shape[1] == size and diagonal and self._all_ones)

    def _csr(self, data: Array) -> sparse.csr_array:
        return sparse.csr_array((data, self.indices, self.indptr), shape=self.shape)


def _chosen(table: Precise, which: Array | None, entries: Array) -> tuple[Precise, Array | None]:
    """Table and ``which`` of some entries."""
    return (table.take(entries), None) if which is None else (table, which[entries])


def _ones(values: Precise) -> bool:
    """Whether every number is 1."""
    return bool((values.nearest == 1.0).all() and not values.parts[1:].any() and not values.error.any())


def _ranges(starts: Array, lengths: Array) -> Array:
    """The ranges starts[i] … starts[i] + lengths[i] - 1, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if ends.size else 0) + np.repeat(starts - ends + lengths, lengths)


def _added(key: Array, values: Precise) -> tuple[Array, Precise]:
    """Entries in the order of their places, those of one place added."""
    places, first, group = np.unique(key, return_index=True, return_inverse=True)
    turn = np.arange(key.size) - first[group]
    total = values.take(first)
    for t in range(1, int(turn.max()) + 1):
        here = np.flatnonzero(turn == t)
        into = group[here]
        sums = total.take(into) + values.take(here)
        depth = max(len(total.parts), len(sums.parts))
        parts = np.pad(total.parts, ((0, depth - len(total.parts)), (0, 0)))
        parts[:, into] = np.pad(sums.parts, ((0, depth - len(sums.parts)), (0, 0)))
        error = np.array(total.error)
        error[into] = sums.error
        total = Precise(parts, error)
    kept = np.flatnonzero(~total.nothing)
    return places[kept], total.take(kept)


# products ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sliced:
    """A matrix as 2^power times a sum of slices, up to ``error``; the powers belong to its rows or its columns.

    Every entry of ``size`` is at least that of the scaled matrix, error included.
    """

    slices: tuple[Any, ...]
    size: Any
    error: Any
    pattern: Any
    power: Array
    exact: bool


def _sliced(matrix: PreciseMatrix, axis: int, bits: int) -> _Sliced:
    """Slices of at most ``bits`` bits along the rows (axis 0) or columns (axis 1)."""
    groups, count = (matrix.rows, matrix.indices)[axis], matrix.shape[axis]
    values = matrix.values
    top = np.zeros(count)
    np.maximum.at(top, groups, values.above)
    power = np.frexp(top)[1]
    shift = -power[groups]
    error = np.ldexp(values.error, shift)
    error = np.where(values.error > 0.0, np.maximum(error * _UP, _FLOOR), 0.0)
    slices = []
    for part in values.parts:
        rest = np.ldexp(part, shift)
        small = (part != 0.0) & (np.abs(rest) < _TINIEST)
        error = np.where(small, plus(error, np.full_like(error, _FLOOR)), error)
        rest = np.where(small, 0.0, rest)
        for _ in range(SLICES):
            if not rest.any():
                break
            largest = np.zeros(count)
            np.maximum.at(largest, groups, np.abs(rest))
            unit = np.ldexp(1.0, np.frexp(largest)[1] - bits)[groups]  # |rest| ≤ 2^bits · unit
            head = (rest + 1.5 * 2.0**52 * unit) - 1.5 * 2.0**52 * unit
            slices.append(head)
            rest = rest - head
        error = np.where(rest != 0.0, plus(error, np.maximum(np.abs(rest), _FLOOR)), error)
    size = np.where(values.above > 0.0, np.maximum(np.ldexp(values.above, shift) * _UP, _FLOOR), 0.0)
    heavy = matrix.indices.size >= _DENSE * matrix.shape[0] * matrix.shape[1]

    def stored(data: Array) -> Any:
        entries = matrix._csr(data)
        return entries.toarray() if heavy else entries

    return _Sliced(
        tuple(stored(data) for data in slices),
        stored(plus(size, error)),
        stored(error),
        stored(np.ones(matrix.indices.size)),
        power,
        not error.any(),
    )


def _product(left: PreciseMatrix, right: PreciseMatrix) -> PreciseMatrix:
    """left·right, from products of slices that are exact."""
    if not (np.isfinite(left.values.above).all() and np.isfinite(right.values.above).all()):
        return _hopeless(left, right)
    terms = int(np.diff(left.indptr).max(initial=1))
    bits = (53 - (terms - 1).bit_length()) // 2  # terms · 2^(2·bits) ≤ 2^53
    one, two = _sliced(left, 0, bits), _sliced(right, 1, bits)
    shape = (left.shape[0], right.shape[1])
    reached = sparse.csr_array(one.pattern @ two.pattern)
    reached.sort_indices()
    rows, columns = np.repeat(np.arange(shape[0]), np.diff(reached.indptr)), reached.indices
    key = rows.astype(np.int64) * shape[1] + columns

    def read(product: Any) -> Array:
        """A product's entries where the two patterns lead."""
        if not sparse.issparse(product):
            return np.asarray(product[rows, columns])
        entries = sparse.csr_array(product)
        entries.sort_indices()
        if entries.nnz == key.size:
            return entries.data
        where = np.repeat(np.arange(shape[0]), np.diff(entries.indptr)).astype(np.int64) * shape[1] + entries.indices
        data = np.zeros(key.size)
        data[np.searchsorted(key, where)] = entries.data
        return data

    error: Array = np.zeros(key.size)
    if not (one.exact and two.exact):
        error = read(one.size @ two.error + one.error @ two.size) * _UP
    pairs = sorted(((i, j) for i in range(len(one.slices)) for j in range(len(two.slices))), key=sum)
    sums = distilled((read(one.slices[i] @ two.slices[j]) for i, j in pairs), error)
    power = one.power[rows] + two.power[columns]
    return PreciseMatrix.of_entries(shape, rows, columns, _lifted(sums, power))


def _hopeless(left: PreciseMatrix, right: PreciseMatrix) -> PreciseMatrix:
    """A product with factors that overflowed: every entry is NaN, which no rounding accepts."""
    rows, columns = np.indices((left.shape[0], right.shape[1])).reshape(2, -1)
    return PreciseMatrix.of_entries(
        (left.shape[0], right.shape[1]), rows, columns, Precise.of(np.full(rows.size, np.nan))
    )


def _lifted(values: Precise, power: Array) -> Precise:
    """The numbers times 2^power; what is rounded on the way is charged."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        parts = np.ldexp(values.parts, power)
        error = np.where(values.error > 0.0, np.nextafter(np.ldexp(values.error, power), np.inf), 0.0)
        for part, before in zip(parts, values.parts, strict=True):
            moved = np.ldexp(part, -power) != before
            error = plus(error, np.where(moved, 2.0**-1074, 0.0))
    return Precise(parts, error)
