"""Numbers that know what they have lost: floats with a bound of their error, entry by entry or as an operator.

:class:`Near` holds arrays, :class:`Approx` matrices. A rule written with them needs no word about rounding: every sum
and product carries what it loses along. Overflow gives infinite or NaN errors, which prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.proof.blocks import apply_size, symmetrised
from lipcert.proof.rounding import ETA, LOOSE, TINY, UP, U, down, gamma, spread, turned, up


@dataclass(frozen=True, eq=False, slots=True)
class Near:
    """Real numbers x with |x - value| ≤ error, entry by entry; the error is an array that fits the value.

    One operation on floats loses at most u of its result, or η where that underflows; a sum of n products in any order
    γ_n of their sizes and nη. Errors are sums of products that are not negative: UP makes up for their own rounding,
    and a few η for their own underflow.
    """

    __array_ufunc__ = None  # so that float·Near is this class's business

    value: Array
    error: Array

    @staticmethod
    def of(x: Number) -> Near:
        """The number itself; a float is exact."""
        return x if isinstance(x, Near) else Near(np.asarray(x, dtype=float), np.zeros(()))

    @staticmethod
    def weights(weight: Array, units: int = LOOSE) -> Near:
        """Weights, biases or others that are known to some units u, relatively."""
        return Near(weight, units * U * UP * np.abs(weight) + ETA)

    @staticmethod
    def between(low: Array, high: Array) -> Near:
        """All numbers from low to high."""
        middle = 0.5 * low + 0.5 * high
        return Near(middle, up(np.maximum(high - middle, middle - low)))

    @property
    def above(self) -> Array:
        """At least x."""
        return up(self.value + self.error)

    @property
    def below(self) -> Array:
        """At most x."""
        return down(self.value - self.error)

    @property
    def size(self) -> Array:
        """At least |x|."""
        return up(np.abs(self.value) + self.error)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def T(self) -> Near:
        """The last two axes exchanged."""
        error = self.error if self.error.ndim == 0 else np.swapaxes(np.broadcast_to(self.error, self.shape), -1, -2)
        return Near(np.swapaxes(self.value, -1, -2), error)

    def __getitem__(self, which: Any) -> Near:
        error = self.error if self.error.ndim == 0 else np.broadcast_to(self.error, self.shape)[which]
        return Near(self.value[which], error)

    def __neg__(self) -> Near:
        return Near(-self.value, self.error)

    def __add__(self, other: Number) -> Near:
        other = Near.of(other)
        value = self.value + other.value
        return Near(value, (self.error + other.error + U * np.abs(value)) * UP)

    def __sub__(self, other: Number) -> Near:
        return self + -Near.of(other)

    def __mul__(self, other: Number) -> Near:
        other = Near.of(other)
        value = self.value * other.value
        size = np.abs(other.value)
        error = np.abs(self.value) * other.error + self.error * (size + other.error)
        return Near(value, (error + U * np.abs(value)) * UP + 8.0 * ETA)

    def __truediv__(self, other: Number) -> Near:
        """The quotient; of a divisor that may be zero nothing is known.

        x/y - a/b = ((x - a) - (a/b)(y - b))/y, and |y| ≥ |b| - its error.
        """
        other = Near.of(other)
        value = self.value / other.value
        least = np.maximum(down(np.abs(other.value) - other.error), 0.0)
        error = (self.error + (np.abs(value) * UP + ETA) * other.error + 4.0 * ETA) / least * UP
        error = np.where(least > 0.0, error + U * np.abs(value) * UP + 4.0 * ETA, np.inf)
        return Near(value, error)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Number) -> Near:
        return Near.of(other) - self

    def __rtruediv__(self, other: Number) -> Near:
        return Near.of(other) / self

    def __matmul__(self, other: Number) -> Near:
        """Products of matrices, or of stacks of them."""
        other, n = Near.of(other), self.shape[-1]
        size, beside = np.abs(self.value), np.abs(other.value)
        error = gamma(n + 2) * (size @ beside)
        if other.error.any():
            error = error + size @ np.broadcast_to(other.error, other.shape)
        if self.error.any():
            error = error + np.broadcast_to(self.error, self.shape) @ (beside + other.error)
        return Near(self.value @ other.value, error * UP + 8.0 * n * ETA)

    def __rmatmul__(self, other: Array) -> Near:
        return Near.of(other) @ self

    def through(self, weight: Weight) -> Near:
        """W x for rows x (..., n) and a weight that is known to LOOSE·u, dense or sparse."""
        size, n = abs(weight), weight.shape[-1]
        inner = gamma(n + LOOSE + 2) * np.abs(self.value) + self.error * UP + ETA
        return Near(spread(weight, self.value), spread(size, np.broadcast_to(inner, self.shape)) * UP + 8.0 * n * ETA)

    def sum(self, axis: int | tuple[int, ...] = -1) -> Near:
        """Sums along some axes."""
        n = int(np.prod([self.shape[one] for one in ((axis,) if isinstance(axis, int) else axis)]))
        lost = gamma(n) * np.abs(self.value).sum(axis=axis) + np.broadcast_to(self.error, self.shape).sum(axis=axis)
        return Near(self.value.sum(axis=axis), lost * UP)

    def root(self) -> Near:
        """√x for x ≥ 0: |√x - √a| ≤ |x - a|/√a, and at most √|x - a|."""
        value = np.sqrt(np.maximum(self.value, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.where(value > 0.0, (self.error + ETA) / value, np.inf)
        far = np.sqrt(self.error + np.maximum(-self.value, 0.0) + ETA)
        return Near(value, np.fmin(near, far) * UP + 2.0 * U * value)

    def replace(self, which: Array, other: Number) -> Near:
        """Other numbers where a mask is true."""
        other = Near.of(other)
        return Near(np.where(which, other.value, self.value), np.where(which, other.error, self.error))


Number: TypeAlias = "Near | Array | float"
Operator: TypeAlias = Callable[[Array], Array]


class Approx:
    """A real matrix A, or a stack of them, near a float matrix: |A - value|x ≤ err(x), |A - value|ᵀy ≤ turned(y).

    x, y ≥ 0 are vectors (..., n). An error costs products of matrices with vectors, however long a formula is:

        A B:      γ|A||B|x + |A| err_B(x) + err_A(|B|x + err_B(x))
        A ± B:    err_A(x) + err_B(x) + u|A ± B|x
        D A D':   3u|D A D'|x + |D| err_A(|D'|x)
    """

    __slots__ = ("_err", "_turned", "value")

    def __init__(self, value: Weight, err: Operator | None = None, turned_err: Operator | None = None) -> None:
        """Exact without errors."""
        self.value, self._err, self._turned = value, err, turned_err

    @staticmethod
    def weight(weight: Weight, radius: Weight | None = None) -> Approx:
        """A weight that is known to LOOSE·u, or also to a radius, entry by entry."""
        sides = (None, None) if radius is None else (Approx(radius).reach, Approx(turned(radius)).reach)
        return Approx(weight)._lossy(LOOSE, *sides)

    @staticmethod
    def diagonal(entries: Array) -> Approx:
        """The diagonal matrices with given entries (..., n)."""
        return Approx(entries[..., None] * np.eye(entries.shape[-1]))

    @property
    def T(self) -> Approx:
        return Approx(turned(self.value), self._turned, self._err)

    def reach(self, x: Array) -> Array:
        """At least |value|x for x ≥ 0."""
        size = spread(abs(self.value), x) if sparse.issparse(self.value) else apply_size(self.value, x)
        return size * UP + TINY

    def err(self, x: Array) -> Array:
        """At least |A - value|x for x ≥ 0."""
        return np.zeros(()) if self._err is None else self._err(x)

    def rows(self) -> Array:
        """At least the row sums of |A|."""
        ones = np.ones(self.value.shape[-1])
        return (self.reach(ones) + self.err(ones)) * UP

    def _lossy(self, units: float, err: Operator | None, turned_err: Operator | None) -> Self:
        """With errors, and some units u of every entry."""

        def operator(matrix: Approx, inner: Operator | None) -> Operator:
            def total(x: Array) -> Array:
                own = gamma(1) * units * matrix.reach(x)
                found = own if inner is None else inner(x) + own
                return np.asarray(found * UP + TINY * (1.0 + x.max(axis=-1, keepdims=True, initial=0.0)))

            return total

        other = Approx(turned(self.value))
        self._err, self._turned = operator(Approx(self.value), err), operator(other, turned_err)
        return self

    def __matmul__(self, other: Approx) -> Approx:
        found = Approx(_product(self.value, other.value))
        return found._lossy(1.0, _through(self, other), _through(other.T, self.T))

    def __add__(self, other: Approx) -> Approx:
        return Approx(self.value + other.value)._lossy(1.0, _both(self, other), _both(self.T, other.T))

    def __sub__(self, other: Approx) -> Approx:
        return Approx(self.value - other.value)._lossy(1.0, _both(self, other), _both(self.T, other.T))

    def scaled(self, rows: Array, columns: Array) -> Approx:
        """D_rows A D_columns, for exact diagonals (..., n)."""
        left, right = np.abs(rows), np.abs(columns)
        found = Approx(rows[..., :, None] * self.value * columns[..., None, :])
        err = None if self._err is None else lambda x: left * self.err(right * x) * UP
        other = None if self._turned is None else lambda y: right * self.T.err(left * y) * UP
        return found._lossy(3.0, err, other)

    def above(self, extra: Array | float = 0.0) -> Array:
        """A symmetric float matrix Ŝ with A + D_extra ≼ Ŝ, for A symmetric.

        A symmetric matrix is at most the diagonal matrix of its absolute row sums (Gershgorin).
        """
        S, ones = symmetrised(np.array(dense(self.value))), np.ones(self.value.shape[-1])
        lost = 0.5 * (self.err(ones) + self.T.err(ones)) + gamma(2) * Approx(S).reach(ones)
        return raised(S, (lost + extra) * UP + TINY)


def raised(S: Array, amount: Array) -> Array:
    """The matrices S, written over, with at least ``amount`` (..., n) added to their diagonals."""
    at = np.arange(S.shape[-1])
    S[..., at, at] = up(S[..., at, at] + amount)
    return S


def _product(one: Weight, two: Weight) -> Weight:
    """The product as computed, dense."""
    if sparse.issparse(one):
        return times(dense(two).T, one.T).T if not sparse.issparse(two) else dense(one @ two)
    return times(one, two)


def _through(one: Approx, two: Approx) -> Operator:
    """What a product loses, on vectors; all but the last rounding of each entry."""
    g = gamma(one.value.shape[-1] + 2)

    def err(x: Array) -> Array:
        inner, missed = two.reach(x), two.err(x)
        found = g * one.reach(inner) + one.err(inner + missed)
        return found + one.reach(missed) if missed.ndim else found

    return err


def _both(one: Approx, two: Approx) -> Operator:
    return lambda x: one.err(x) + two.err(x)


def sum_above(stack: Array) -> Array:
    """A float matrix at least the sum of symmetric ones (count, ..., n, n) in the Loewner order."""
    total = Near.of(stack).sum(0)
    return raised(total.value, Size(total.error).sum(-1).above)


class Size:
    """Real numbers x ≥ 0 with x ≤ (1 + γ_units)·value, entry by entry: upper bounds that count their roundings.

    A rule that only needs sizes is written with them as with numbers; floats stand for their absolute values. Charges
    are made once, by :attr:`above`. Every product adds TINY for what underflows in it.
    """

    __array_ufunc__ = None  # so that float·Size is this class's business
    __slots__ = ("units", "value")

    def __init__(self, value: Array, units: int = 0) -> None:
        """At least ``value`` ≥ 0 itself; :meth:`of` takes absolute values."""
        self.value, self.units = value, units

    @staticmethod
    def of(x: Sized) -> Size:
        """The sizes |x|."""
        return x if isinstance(x, Size) else Size(np.abs(x))

    @property
    def above(self) -> Array:
        """Floats at least x; infinite, or no numbers, after more roundings than γ holds for."""
        factor = 1.0 + gamma(self.units + 4) if self.units < 2**23 else np.inf
        return np.asarray(self.value * factor + TINY)

    def lost(self, roundings: int) -> Size:
        """At least what floats lose of a formula, if x is its value for the sizes of all terms.

        Each term has one weight at most, which is known to LOOSE·u, and at most so many ``roundings``. Whatever
        underflows in the formula meets the same factors as TINY does here, and u·TINY is far more than it.
        """
        return self * gamma(roundings + LOOSE)

    @property
    def T(self) -> Size:
        """The last two axes exchanged."""
        return Size(np.swapaxes(self.value, -1, -2), self.units)

    def __getitem__(self, which: Any) -> Size:
        return Size(self.value[which], self.units)

    def __add__(self, other: Sized) -> Size:
        other = Size.of(other)
        return Size(self.value + other.value, max(self.units, other.units) + 1)

    def __mul__(self, other: Sized) -> Size:
        other = Size.of(other)
        value = self.value * other.value
        value += TINY
        return Size(value, self.units + other.units + 2)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, floats: Array | float) -> Size:
        """Over the sizes of floats."""
        return Size(self.value / np.abs(floats) + TINY, self.units + 2)

    def __matmul__(self, other: Sized) -> Size:
        """Products of matrices, or of stacks of them."""
        other = Size.of(other)
        value = self.value @ other.value
        value += TINY
        return Size(value, self.units + other.units + self.value.shape[-1] + 2)

    def __rmatmul__(self, other: Array) -> Size:
        return Size.of(other) @ self

    def sum(self, axis: int | tuple[int, ...]) -> Size:
        """Sums along some axes."""
        value = self.value.sum(axis=axis)
        return Size(value, self.units + self.value.size // max(value.size, 1))

    def max(self, axis: int | tuple[int, ...]) -> Size:
        """The largest along some axes."""
        return Size(self.value.max(axis=axis), self.units)

    def least(self, *others: Size) -> Size:
        """The smaller of bounds for the same numbers; one that is NaN says nothing."""
        found = self
        for one in others:
            found = Size(np.fmin(found.value, one.value), max(found.units, one.units))
        return found

    def squared(self) -> Size:
        """x²."""
        return self * self

    def root(self) -> Size:
        """√x."""
        return Size(np.sqrt(self.value), self.units + 1)

    def length(self, axis: int | tuple[int, ...]) -> Size:
        """The root of the sum of squares along some axes."""
        return self.squared().sum(axis).root()


Sized: TypeAlias = "Size | Array | float"
