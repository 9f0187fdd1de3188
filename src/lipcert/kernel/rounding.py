"""Error-bounded linear algebra in plain float64.

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

from typing import Final

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight, times

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


def inflate(x: Array, n: int) -> Array:
    """At least x(1 + γ_n) for x ≥ 0: above the exact value of a quantity whose n roundings each lost a factor 1 ± u.

    1 + γ_n rounds to an even multiple of u, so it falls short by less than u/4 where it falls short at all; ``up``
    gains at least u/2.
    """
    return np.asarray(up(x * (1.0 + gamma(n))) + TINY)


def matvec(weight: Weight, vector: Array) -> Array:
    """weight·vector for vectors (..., n), rounded as it comes; the weight is (m, n), dense or sparse, or a stack."""
    if sparse.issparse(weight):
        return times(vector, weight.T)
    return np.asarray((weight @ vector[..., None])[..., 0] if weight.ndim > 2 else vector @ weight.T)


def transpose(weight: Weight) -> Weight:
    """Wᵀ, for a matrix or a stack."""
    return weight.T if sparse.issparse(weight) else np.swapaxes(weight, -1, -2)


def fan_in(weight: Weight) -> int:
    """Most terms in a row of a product with this weight."""
    if sparse.issparse(weight):
        return int(np.diff(sparse.csr_array(weight).indptr).max(initial=0))
    return int(weight.shape[-1])


def tame(weight: Weight, limit: float) -> bool:
    """Whether no entry but zeros is above a limit or below its inverse, so that a few multiply without underflow."""
    entries = np.abs(weight.data if sparse.issparse(weight) else np.ravel(weight))
    entries = entries[entries > 0.0]
    return not entries.size or bool(entries.min() > 1.0 / limit and entries.max() < limit)


def norm_above(rows: Array) -> Array:
    """At least the Euclidean norm of each row.

    A power of two brings the largest entry near one, so that no square that counts over- or underflows. The n squares
    lose a factor 1 ± γ_n, of which the root keeps half.
    """
    length, power = _length(rows)
    return inflate(np.ldexp(length, power), rows.shape[-1] // 2 + 4)


def size_above(x: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """At least the root of the sum of squares along some axes, and 2⁻⁴⁷⁰; TINY is more than all that underflows."""
    return np.asarray(np.sqrt((x * x).sum(axis=axis) + TINY) * UP)


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
    return np.asarray(up(np.ldexp(root_above(P, lost, squarings if m > 1 else 0), power)) + TINY)


def largest_norm_above(matrix: Array, squarings: int) -> Array:
    """At least the largest spectral norm of matrices (count, k, m, n), for each of the ``count``.

    By ‖YYᵀ‖_F ≥ ‖Y‖² ≥ ‖YYᵀ‖_F/√m those are found that cannot have it.
    """
    coarse = spectral_above(matrix, 0)
    root = min(matrix.shape[-2:]) ** 0.25
    some = ~(coarse * (root * UP) < coarse.max(axis=-1, keepdims=True))
    found = np.where(some, coarse, 0.0)
    found[some] = spectral_above(matrix[some], squarings)
    return np.asarray(found.max(axis=-1))


def root_above(P: Array, lost: Array, squarings: int) -> Array:
    """At least ‖M‖^½ for a symmetric matrix M at most ``lost`` from P in norm, (..., m, m), whose entries are near one.

    ‖P‖² = ‖P²‖ ≤ ‖P²‖_F, again and again, each power over its size: see :func:`spectral_above`.
    """
    m = P.shape[-1]
    sizes = []
    for _ in range(squarings):
        P = 0.5 * (P + np.swapaxes(P, -1, -2))
        sizes.append(np.sqrt((P * P).sum(axis=(-2, -1))) + TINY)
        P = P / sizes[-1][..., None, None]
        P = P @ P
    top = np.sqrt((P * P).sum(axis=(-2, -1)))
    for size in reversed(sizes):
        top = size * np.sqrt(top + gamma(2 * m + 16))
    return np.asarray(np.sqrt(top + lost) * UP)


def square_above(x: Array) -> Array:
    """At least x², and never less than TINY, which is more than the square of a number whose square underflows."""
    return np.asarray(up(x * x) + TINY)


def twice_above(x: Array, y: Array) -> Array:
    """At least x²y for x, y ≥ 0, without forming x²; what underflows in xy is multiplied by x."""
    return np.asarray(inflate(x * (x * y), 3) + TINY * x)
