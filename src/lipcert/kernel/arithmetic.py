"""Numbers that carry their errors, in plain float64. Only these rules know about rounding.

:class:`Near` holds arrays, :class:`Approx` matrices, :class:`Size` upper bounds. A rule written with them needs no word
about rounding: every sum and product carries what it loses along. Overflow gives infinite or NaN errors, which prove
nothing.

Every function states the inequality it guarantees in real arithmetic. All of them rest on one fact: a sum of n products
computed in floating point, in any order, with or without fused operations, differs from the exact one by at most

    γ_n Σ|a_i b_i| + n·η,   γ_n = nu/(1 - nu),  u = 2⁻⁵³,  η = 2⁻¹⁰⁷⁴

(Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). The fact holds for every order of
summation and so for every blocking and number of threads; it does not hold for Strassen-like fast products, which no
BLAS uses for float64 by default. Rounding is to nearest; no other mode is ever asked for. Bounds of sums of
non-negative terms are themselves computed in floating point and then enlarged by the factor UP, which exceeds 1 + γ_n
for every n below ten million; no sum here is longer. Numbers too large for a float become infinite or NaN, and a bound
that is either proves nothing: callers compare so that NaN fails.

Two rules keep underflow harmless, and a test looks after them. Squares are formed in this module only: of numbers that
were brought near one, or with what underflow may lose added before the root is taken. And a loss that is multiplied by
a number later on is charged with that number.

Weights and biases stand for every real number within ULPS·u of them, relatively. So a product with a weight loses
γ_(n + ULPS) of its terms, not γ_n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.suggest.multipliers import cholesky

U: Final = 2.0**-53
"""The unit of roundoff of float64."""
ETA: Final = 2.0**-1074
"""The smallest float: at least what one product loses when it underflows."""
ULPS: Final = 11
"""Units u, relative, up to which proofs take weights and biases to be known: 2⁻⁵⁰ is promised, and a weight may be
multiplied three times on its way to a proof, with one rounding each: by the units of inputs, by those of outputs, by a
start."""
UP: Final = 1.0 + 2.0**-28
"""More than 1 + γ_n for every n below ten million."""
TINY: Final = 2.0**-940
"""More than underflow can contribute to a sum of products of numbers of size one; far less than anything that matters.

One underflow loses at most η, and a loss that is multiplied by a number later on is charged with that number.
"""


def gamma(n: int) -> float:
    """At least γ_n = nu/(1 - nu), for n below ten million."""
    return n * U * UP


def up(x: Array) -> Array:
    """A float above every real number that rounds to x."""
    return np.nextafter(x, np.inf)


def down(x: Array) -> Array:
    """A float below every real number that rounds to x."""
    return np.nextafter(x, -np.inf)


def root_above(x: Array) -> Array:
    """At least √y for every y ≥ 0 that rounds to x."""
    return up(np.sqrt(up(x)))


def inflate(x: Array, n: int) -> Array:
    """At least x(1 + γ_n) for x ≥ 0: above the exact value of a quantity whose n roundings each lost a factor 1 ± u.

    1 + γ_n rounds to an even multiple of u, so it falls short by less than u/4 where it falls short at all; ``up``
    gains at least u/2.
    """
    return np.asarray(up(x * (1.0 + gamma(n))) + TINY)


def matvec(weight: Weight, vector: Array) -> Array:
    """weight·vector for vectors (..., n), rounded as it comes; the weight is (m, n), dense or sparse, or a stack."""
    return np.asarray((weight @ vector[..., None])[..., 0] if weight.ndim > 2 else times(vector, weight.T))


def transpose(weight: Weight) -> Weight:
    """Wᵀ, for a matrix or a stack."""
    return weight.T if weight.ndim == 2 else weight.swapaxes(-1, -2)


def fan_in(weight: Weight) -> int:
    """Most terms in a row of a product with this weight."""
    if sparse.issparse(weight):
        return int(np.diff(sparse.csr_array(weight).indptr).max(initial=0))
    return int(weight.shape[-1])


def norm_above(rows: Array) -> Array:
    """At least the Euclidean norm of each row.

    A power of two brings the largest entry near one, so that no square that counts over- or underflows. The n squares
    lose a factor 1 ± γ_n, of which the root keeps half.
    """
    length, power = _length(rows)
    return inflate(np.ldexp(length, power), rows.shape[-1] // 2 + 4)


def norm_below(rows: Array) -> Array:
    """At most the Euclidean norm of each row, which is finite; scaled like :func:`norm_above`."""
    length, power = _length(rows)
    length = np.maximum(length * (1.0 - gamma(rows.shape[-1] + 8)), 0.0)
    return np.maximum(down(np.ldexp(length, power)), 0.0)


def _length(rows: Array) -> tuple[Array, Array]:
    """The norm of each row as computed, over a power of two that brings the largest entry near one, and the power.

    Rows that are near one as they are, are left so: with an entry above 2⁻¹⁰⁰ nothing that underflows counts.
    """
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    if rows.ndim == 2 and ((largest > 2.0**-100) & (largest < 2.0**100)).all():
        return np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.zeros(len(rows), dtype=int)
    _, power = np.frexp(largest)
    scaled = np.ldexp(rows, -power[..., None])
    return np.sqrt((scaled * scaled).sum(axis=-1)), power


def spectral_above(matrix: Array, squarings: int = 6) -> Array:
    """At least the spectral norm ‖Y‖ of each matrix of a stack (..., m, n), n^(2^-squarings/4) times it at most.

    With G = YYᵀ of the shorter side, ‖Y‖² = ‖G‖ and ‖G‖² = ‖G²‖ ≤ ‖G²‖_F, again and again, each power over its size:
    with P̂ = P/f, f = ‖P‖_F, and S = fl(P̂P̂), ‖P‖ ≤ f(‖S‖ + γ)^½ up to a few u. The product G loses at most γ|Y||Y|ᵀ,
    whose norm is at most γ times the trace of G.
    """
    rows = matrix if matrix.shape[-2] <= matrix.shape[-1] else np.swapaxes(matrix, -1, -2)
    m, n = rows.shape[-2:]
    _, power = np.frexp(np.abs(rows).max(axis=(-2, -1), initial=0.0))
    rows = np.ldexp(rows, -power[..., None, None])
    P = rows @ np.swapaxes(rows, -1, -2)
    lost = gamma(n + 8) * np.trace(P, axis1=-2, axis2=-1) * UP + TINY
    sizes = []
    for _ in range(squarings if m > 1 else 0):
        P = 0.5 * (P + np.swapaxes(P, -1, -2))
        sizes.append(np.sqrt((P * P).sum(axis=(-2, -1))) + TINY)
        P = P / sizes[-1][..., None, None]
        P = P @ P
    top = np.sqrt((P * P).sum(axis=(-2, -1)))
    for size in reversed(sizes):
        top = size * np.sqrt(top + gamma(2 * m + 16))
    return np.asarray(up(np.ldexp(np.sqrt(top + lost) * UP, power)) + TINY)


def square_above(x: Array) -> Array:
    """At least x², and never less than TINY, which is more than the square of a number whose square underflows."""
    return np.asarray(up(x * x) + TINY)


def twice_above(x: Array, y: Array) -> Array:
    """At least x²y for x, y ≥ 0, without forming x²; what underflows in xy is multiplied by x."""
    return np.asarray(inflate(x * (x * y), 3) + TINY * x)


_LARGE, _BLOCK = 2**20, 2**15
"""Entries from which a matrix is gone through in blocks of so many: what stays in a cache costs an eighth."""


def _slices(matrix: Weight) -> list[slice]:
    """The rows of a matrix or a stack, a few at a time if it is large and dense."""
    m, n = matrix.shape[-2:]
    some = m if sparse.issparse(matrix) or m * n < _LARGE else max(1, _BLOCK // n)
    return [slice(k, k + some) for k in range(0, m, max(some, 1))] or [slice(0, 0)]


def symmetrised(stack: Array) -> Array:
    """(A + Aᵀ)/2 of each matrix of a stack, one rounding per entry."""
    found = stack + np.swapaxes(stack, -1, -2)
    found *= 0.5
    return np.asarray(found)


def through_sizes(matrix: Weight, x: Array | None = None) -> Array:
    """|A|x as computed, for vectors (..., n); without x, the row sums of |A|."""
    parts = (abs(matrix if sparse.issparse(matrix) else matrix[..., rows, :]) for rows in _slices(matrix))
    found = [np.asarray(part.sum(axis=-1)) if x is None else matvec(part, x) for part in parts]
    return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)


_FILLED = 0.06
"""Share of the entries from which a sparse matrix times a dense one takes more time than two dense ones: 56 to 3.4
billion operations a second."""


@dataclass(frozen=True, eq=False, slots=True)
class Near:
    """Real numbers x with |x - value| ≤ error, entry by entry; the error is an array that fits the value.

    One operation on floats loses at most u of its result, or η where that underflows; a sum of n products in any order
    γ_n of their sizes and nη. Errors are sums of products that are not negative: UP makes up for their own rounding,
    and a few η for their own underflow. Products of matrices lose no more than γ of an error, which may be an interval.
    """

    __array_ufunc__ = None  # so that float·Near is this class's business

    value: Array
    error: Array

    @staticmethod
    def of(x: Number) -> Near:
        """The number itself; a float is exact."""
        return x if isinstance(x, Near) else Near(np.asarray(x, dtype=float), np.zeros(()))

    @staticmethod
    def summed(value: Array, error: Array) -> Near:
        """Sums, of which nothing is known where they overflow: a part of a sum may do so alone."""
        return Near(value, np.where(np.isfinite(value), error, np.inf))

    @staticmethod
    def weights(weight: Array, units: int = ULPS) -> Near:
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
        return Near.summed(self.value @ other.value, error * (1.0 + gamma(n + 8)) + 8.0 * n * ETA)

    def __rmatmul__(self, other: Array) -> Near:
        return Near.of(other) @ self

    def through(self, weight: Weight) -> Near:
        """W x for rows x (..., n) and a weight that is known to ULPS·u, dense or sparse."""
        size, n = abs(weight), fan_in(weight)
        inner = gamma(n + ULPS + 2) * np.abs(self.value) + self.error + ETA
        value, error = matvec(weight, self.value), matvec(size, np.broadcast_to(inner, self.shape)) * UP + 8.0 * n * ETA
        return Near.summed(value, error)

    def sum(self, axis: int | tuple[int, ...] = -1) -> Near:
        """Sums along some axes."""
        n = int(np.prod([self.shape[one] for one in ((axis,) if isinstance(axis, int) else axis)]))
        lost = gamma(n) * np.abs(self.value).sum(axis=axis) + np.broadcast_to(self.error, self.shape).sum(axis=axis)
        return Near.summed(self.value.sum(axis=axis), lost * UP)

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

    def shifted(self, power: int | Array) -> Near:
        """x·2^power, exact but for underflow, half a unit of the value and half a unit of the error."""
        value = np.ldexp(self.value, power)
        return Near.summed(value, up(np.ldexp(self.error, power)))


Number: TypeAlias = "Near | Array | float"
Operator: TypeAlias = "Callable[[Array | None], Array]"
"""A bound on vectors that are not negative, (..., n); None stands for ones."""


class Approx:
    """A real matrix A, or a stack of them, near a float matrix: |A - value|x ≤ err(x) for vectors x ≥ 0, (..., n).

    The same is known of Aᵀ. An error costs products of matrices with vectors, however long a formula is:

        A B:      γ|A||B|x + |A| err_B(x) + err_A(|B|x + err_B(x))
        A ± B:    err_A(x) + err_B(x) + u|A ± B|x
        D A D':   3u|D A D'|x + |D| err_A(|D'|x)

    ``units`` says how many units u of every entry are lost besides what ``inner`` and ``inner_turned`` tell; a matrix
    that has lost nothing is exact. What is lost of a ``symmetric`` one is taken to be symmetric too: the floats of
    entries that mirror each other may differ by what they lost, u of which is less than what UP adds to errors.
    """

    def __init__(
        self,
        value: Weight,
        units: float = 0.0,
        inner: Operator | None = None,
        inner_turned: Operator | None = None,
        symmetric: bool = False,
    ) -> None:
        self.value, self._units, self._inner, self._inner_turned = value, units, inner, inner_turned
        self.symmetric = symmetric
        self._floor: Any = 1.0

    @staticmethod
    def weight(weight: Weight, radius: Weight | None = None) -> Approx:
        """A weight that is known to ULPS·u, or also to a radius, entry by entry."""
        sides = (None, None) if radius is None else (Approx(radius).reach, Approx(transpose(radius)).reach)
        return Approx(weight, ULPS, *sides)

    @staticmethod
    def diagonal(entries: Array) -> Approx:
        """The diagonal matrices with given entries (..., n)."""
        return Approx(entries[..., None] * np.eye(entries.shape[-1]), symmetric=True)

    @cached_property
    def T(self) -> Approx:
        """Aᵀ, which does not know A, so that large matrices are gone when they are no longer in use."""
        if self.symmetric:
            return self
        turned = Approx(transpose(self.value), self._units, self._inner_turned, self._inner)
        turned._floor = self._floor
        return turned

    @cached_property
    def _sums(self) -> Array:
        return through_sizes(self.value) * UP + TINY

    @cached_property
    def _size(self) -> Weight:
        return abs(self.value)

    def reach(self, x: Array | None = None) -> Array:
        """At least |value|x for x ≥ 0; without x, the row sums of |value|."""
        if x is None:
            return self._sums
        large = math.prod(self.value.shape[-2:]) >= _LARGE  # then sizes are not kept
        return np.asarray((through_sizes(self.value, x) if large else matvec(self._size, x)) * UP + TINY)

    def err(self, x: Array | None = None) -> Array:
        """At least |A - value|x for x ≥ 0; without x, the row sums of |A - value|."""
        if self._units == 0.0 and self._inner is None:
            return np.zeros(())
        found = gamma(1) * self._units * self.reach(x)
        if self._inner is not None:
            found = found + self._inner(x)
        most = 1.0 if x is None else x.max(axis=-1, keepdims=True, initial=0.0)
        return np.asarray(found * UP + TINY * self._floor * (1.0 + most))

    def rows(self) -> Array:
        """At least the row sums of |A|."""
        return (self.reach() + self.err()) * UP

    def __matmul__(self, other: Approx) -> Approx:
        return self.times_as(other, product(self.value, other.value))

    def times_as(self, other: Approx, value: Weight) -> Approx:
        """A B, whose floats are computed as sums of products in any order."""
        return Approx(value, 0.0, _through(self, other), _through(other.T, self.T))

    def __add__(self, other: Approx) -> Approx:
        sides = _both(self, other), _both(self.T, other.T)
        return Approx(self.value + other.value, 1.0, *sides, symmetric=self.symmetric and other.symmetric)

    def __sub__(self, other: Approx) -> Approx:
        sides = _both(self, other), _both(self.T, other.T)
        return Approx(self.value - other.value, 1.0, *sides, symmetric=self.symmetric and other.symmetric)

    def scaled(self, rows: Array, columns: Array) -> Approx:
        """D_rows A D_columns, for exact diagonals (..., n); what underflows in D_rows A is multiplied by a column."""
        left = np.abs(rows)
        right = left if rows is columns else np.abs(columns)
        inner: Operator | None = None
        inner_turned: Operator | None = None
        if self._units or self._inner is not None:
            inner = lambda x: left * self.err(right if x is None else right * x + ETA)  # noqa: E731
            inner_turned = lambda y: right * self.T.err(left if y is None else left * y + ETA)  # noqa: E731
        symmetric = self.symmetric and rows is columns
        found = Approx(_scaled(self.value, rows, columns), 3.0, inner, inner_turned, symmetric)
        found._floor = 1.0 + max(self.value.shape[-2:]) * right.max(axis=-1, keepdims=True, initial=0.0)
        return found

    def above(self, extra: Array | float = 0.0) -> Array:
        """A symmetric float matrix Ŝ with A + D_extra ≼ Ŝ, for A symmetric.

        A symmetric matrix is at most the diagonal matrix of its absolute row sums (Gershgorin).
        """
        both = (self,) if self.symmetric else (self, self.T)
        lost = total(*((one.err() + gamma(2) * one.reach()) / len(both) for one in both))
        return raised(symmetrised(dense(self.value)), up(lost + extra))

    def gram(self) -> Approx:
        """A Aᵀ."""
        side = _through(self, self.T)
        return Approx(gram(self.value), 0.0, side, side, symmetric=True)

    def sum_above(self, delta: Array) -> Array:
        """A symmetric float matrix Ŝ with (e + d)(e + d)ᵀ ≼ Ŝ for all e with eeᵀ ≼ A and all |d| ≤ δ, (..., n).

        d dᵀ ≼ n·D_δ², and (e + d)(e + d)ᵀ ≼ (1 + t)eeᵀ + (1 + 1/t)ddᵀ for any t > 0.
        """
        n = delta.shape[-1]
        box = n * square_above(delta)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            t = np.sqrt(box.sum(axis=-1) / np.trace(self.value, axis1=-2, axis2=-1))[..., None]
        t = np.clip(t, 2.0**-60, 2.0**60)
        root = np.broadcast_to(up(np.sqrt(up(1.0 + t))), delta.shape)
        return self.scaled(root, root).above((1.0 + 1.0 / t) * box * UP)

    @staticmethod
    def entrywise(A: Array, B: Array) -> Approx:
        """A∘B, the products of the entries of exact matrices."""
        return Approx(A * B, 1.0)

    def times(self, factor: float) -> Approx:
        """A multiple by an exact number."""
        m, n = self.value.shape[-2:]
        return self.scaled(np.full(m, factor), np.ones(n))


def raised(S: Array, amount: Array) -> Array:
    """The matrices S, written over, with at least ``amount`` (..., n) added to their diagonals."""
    diagonal = np.einsum("...ii->...i", S)
    diagonal[...] = up(diagonal + amount)
    return S


def underflow(size: Any) -> Any:
    """More than underflow can add up to in sums of numbers of a size."""
    return TINY * size


def total(*terms: Array) -> Array:
    """At least the sum of numbers that are not negative."""
    return np.asarray(sum(terms) * UP + TINY)


def factor_rows(C: Approx, L: Array) -> Array:
    """At least the row sums of |C - L Lᵀ| for a symmetric C and any lower triangle L of floats, (..., n).

    The lemma behind every factorisation: B = F Fᵀ + Δ is at least -D with D the absolute row sums of Δ, whatever F is.
    """
    factor = Approx(L)
    rounding = gamma(L.shape[-1] + 4) * (factor.reach(factor.T.reach()) + C.reach())
    return total(through_sizes(C.value - L @ np.swapaxes(L, -1, -2)), rounding, C.err())


def factor_above(S: Array) -> Array:
    """A lower triangle L with S ≼ L Lᵀ, for a symmetric float matrix S that is about positive semidefinite.

    S + eI = L Lᵀ + Δ, and Δ ≼ eI if the absolute row sums of Δ are at most e; e is larger with every attempt.
    """
    e = 2.0**-40 * np.diagonal(S).max(initial=0.0) + underflow(len(S))  # more than rounding makes of most
    for _ in range(8):
        lifted = raised(np.array(S), e)
        (L,), (good,) = cholesky(lifted[None])
        if good and (factor_rows(Approx(lifted, symmetric=True), L) <= e).all():
            return np.asarray(L)
        e *= 16.0
    raise ProofFailed("a matrix of the proof could not be factored; numbers may be too large for floating point")


def largest_eigenvalue_above(matrix: Array, guess: Array | None = None) -> Array:
    """At least λmax of each symmetric matrix of a stack.

    For t a little above the computed λmax, tI - A = L Lᵀ + Δ with any L, so A ≼ tI + ‖Δ‖I. A ``guess`` of λmax saves
    its computation; one that is no number is not used.
    """
    if not np.isfinite(matrix).all():
        raise ProofFailed("a matrix has entries too large for floating point; weights may be too large")
    n = matrix.shape[-1]
    scale = np.abs(matrix).sum(axis=-1).max(axis=-1)
    if guess is None or not np.isfinite(guess).all():
        top = np.linalg.eigvalsh(matrix)[..., -1]
    else:
        top = np.asarray(guess, dtype=float)
    slack = 4e-15 * n  # about what eigvalsh is wrong by, relative to the norm; eight times more with every attempt
    for _ in range(12):
        t = top + slack * scale + TINY
        shifted = Approx.diagonal(np.broadcast_to(t[..., None], matrix.shape[:-1])) - Approx(matrix, symmetric=True)
        try:
            return np.asarray(up(t + factor_rows(shifted, np.linalg.cholesky(shifted.value)).max(axis=-1)))
        except np.linalg.LinAlgError:
            slack *= 8.0
    raise ProofFailed("the largest eigenvalue of a matrix could not be bounded")


def inverse_above(A: Array) -> Array:
    """A symmetric matrix Y with A⁻¹ ≼ Y, for a symmetric positive definite float matrix A; an error if it is not one.

    A⁻¹ - Y₀ = A⁻¹(I - A Y₀), whose norm is at most ‖I - A Y₀‖ over the least eigenvalue of A.
    """
    least = float(-largest_eigenvalue_above(-A))
    if not least > 0.0:
        raise ProofFailed("a matrix is not positive definite")
    inverse = symmetrised(np.linalg.inv(A))
    residual = np.eye(len(A)) - Near.of(A) @ inverse
    return raised(inverse, up(norm_above(residual.size.ravel()) / least))


def congruence(P: Array | None, weight: Weight, half: Array | None = None, radius: Weight | None = None) -> Array:
    """A symmetric float matrix Ŝ with W P Wᵀ ≼ Ŝ; P symmetric, (..., n, n), or None for the identity.

    For every W that the weight stands for, also within a radius. ``half`` is W P as computed, if it is there already.
    :class:`Approx` would do without this formula, in twice the time on small matrices: with H = fl(W P) the product
    loses at most γ(|H| + |W||P|)|Wᵀ|, the tolerance of weights included, and |H| ≤ (1 + γ)|W||P|; what underflows in H
    is multiplied by W.
    """
    if radius is not None:
        W = Approx.weight(weight, radius)
        return (W.gram() if P is None else W @ Approx(P) @ W.T).above()
    size = abs(weight)
    across = np.asarray(size.sum(axis=-2))
    if P is None:  # then H is W itself
        S, sums = gram(weight), 2.0 * matvec(size, across)
    else:
        half = product(weight, P) if half is None else half
        S, sums = product(half, transpose(weight)), 4.0 * matvec(size, through_sizes(P, across))
    S = symmetrised(S)
    g = gamma(max(weight.shape[-1], 1) + 2 * ULPS + 4)
    error = g * (0.5 * sums + through_sizes(S)) * UP + TINY * (1.0 + across.sum())
    return raised(S, error)


def gram(weight: Weight) -> Array:
    """fl(W Wᵀ), of a matrix or a stack; a sparse product where few entries are filled, else a dense one."""
    weight = _fuller(weight)
    return dense(weight @ transpose(weight))


def diagonal_above(P: Array | None, weight: Weight, half: Array | None = None) -> Array:
    """At least the diagonal of W P Wᵀ, (..., m), for P ≽ 0, or None, the identity; zero for rows of zeros.

    With d_i² = P_ii we have |P_ij| ≤ d_i d_j. So with H = fl(W P) the sum of the H_ij W_ij loses at most 3γ·(|W|d)_i²
    of the true diagonal.
    """
    size = abs(weight)
    still = np.asarray(size.sum(axis=-1)) == 0.0
    if P is None:
        d, sums = np.ones(weight.shape[-1]), np.asarray((weight * weight).sum(axis=-1))
        reach = sums
    else:
        sums = np.einsum("...ij,...ij->...i", product(weight, P) if half is None else half, dense(weight))
        d = np.sqrt(np.maximum(np.diagonal(P, axis1=-2, axis2=-1), TINY))
        along = matvec(size, d) * UP
        reach = along * along
    error = 3.0 * gamma(weight.shape[-1] + 2 * ULPS + 8) * reach
    lost = TINY * (2.0 + d.sum(axis=-1, keepdims=True)) * (1.0 + float(size.max()))
    return np.where(still, 0.0, up(np.maximum(sums, 0.0) + error * (UP * UP)) + lost)


def product(one: Weight, two: Weight) -> Array:
    """The product as computed, of matrices or stacks, dense; at most one of them is a stack where one is sparse."""
    one, two = _fuller(one), _fuller(two)
    if not sparse.issparse(one):
        return times(one, two)
    if sparse.issparse(two) or two.ndim == 2:
        return np.asarray(one @ dense(two))
    found = [np.asarray(one @ single) for single in two]
    return found[0][None] if len(found) == 1 else np.stack(found)  # a copy only where it must be


def _fuller(matrix: Weight) -> Weight:
    """The matrix, dense where a sparse one would take more time."""
    filled = not isinstance(matrix, np.ndarray) and matrix.nnz > _FILLED * math.prod(matrix.shape)
    return dense(matrix) if filled else matrix


def _scaled(matrix: Weight, rows: Array, columns: Array) -> Weight:
    """(D_rows A) D_columns as computed."""
    if sparse.issparse(matrix):
        return sparse.csr_array(sparse.diags_array(rows) @ matrix @ sparse.diags_array(columns))
    found = rows[..., :, None] * matrix
    found *= columns[..., None, :]
    return np.asarray(found)


def _through(one: Approx, two: Approx) -> Operator:
    """What a product loses, on vectors."""
    g = gamma(one.value.shape[-1] + 2)

    def inner(x: Array | None) -> Array:
        across, missed = two.reach(x), two.err(x)
        found = g * one.reach(across) + one.err(across + missed)
        return found + one.reach(missed) if missed.ndim else found

    return inner


def _both(one: Approx, two: Approx) -> Operator:
    return lambda x: one.err(x) + two.err(x)


def rounded_off(size: Array, count: int) -> Array:
    """At least what ``count`` roundings lose of numbers up to ``size``: for loops that cannot carry every error."""
    return np.asarray(gamma(count) * size * UP + TINY)


def weighed_off(size: Array, count: int) -> Array:
    """The same for products with weights: what they lose, and what the weights are known to."""
    return rounded_off(size, count + ULPS)


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

        Each term has one weight at most, which is known to ULPS·u, and at most so many ``roundings``. Whatever
        underflows in the formula meets the same factors as TINY does here, and u·TINY is far more than it.
        """
        return self * gamma(roundings + ULPS)

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

    def least(self, other: Size) -> Size:
        """The smaller of bounds for the same numbers; one that is NaN says nothing."""
        return Size(np.fmin(self.value, other.value), max(self.units, other.units))

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
