"""Numbers known beyond double precision: sums of a few floats that nobody has rounded, and a bound of what is missing.

The coefficients of a composed affine map are sums of products, and the theorem of a certificate allows each of them to
be rounded once. So they are kept as :class:`Precise` numbers until the last moment. Two facts carry the arithmetic
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 2.6 and 4.3; rounding to nearest):

* a + b = s + e with floats s = fl(a + b) and e, both found by six additions, unless s overflows;
* a·b = p + e with floats p = fl(a·b) and e, both found by seventeen operations, unless something over- or underflows.

So sums and products of floats lose nothing. What does not fit into ``DEPTH`` floats is added to the error, as is
underflow. Errors are rounded upwards, and an error of zero says that the number is exact. Overflow leaves an infinity
or NaN behind, which :meth:`Precise.rounded` refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lipcert.model.arrays import Array

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
