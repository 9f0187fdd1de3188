"""One layer of the algorithm: an ellipsoid of differences through an affine map and an activation.

A pair of inputs Δz_0 apart stays inside Δz Δzᵀ ≼ ‖Δz_0‖² P. Matrices are kept near unit scale; their true
size is a power of four beside them, so that nothing over- or underflows however deep the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.norms import L2, Norm
from lipcert.proof.induced import ellipsoid_above


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """The matrix 4^exponent · matrix; ``matrix`` None is the identity, P_0 = I.

    A step that was done ``apart`` leaves out the term XᵀX, X = L⁻¹M, which is added after the next affine map: there it
    may be smaller. ``rest`` is the pair L, M, relative to the same scale.
    """

    matrix: Array | None = None
    exponent: int | Array = 0
    rest: tuple[Array, Array] | None = None

    @staticmethod
    def of(matrix: Array, exponent: int | Array) -> Ellipsoid:
        """Bring the mean diagonal of a matrix near one and note the power of four taken out."""
        mean = float(np.trace(matrix)) / len(matrix)
        power = round(0.5 * math.log2(mean)) if 0.0 < mean < math.inf else 0
        scaled = matrix * 4.0**-power if abs(power) < 256 else np.ldexp(matrix, -2 * power)
        return Ellipsoid(scaled, exponent + power)

    def through(self, weight: Weight) -> Ellipsoid:
        """S = W P Wᵀ, the ellipsoid after an affine map."""
        return Image(self, weight).block()

    def axes(self) -> Array:
        """Sqrt of the true diagonal, (n,): neuron l is that Lipschitz."""
        assert self.matrix is not None, "the unit ball has no size of its own"
        return _ldexp(np.sqrt(np.maximum(np.diagonal(self.matrix), 0.0)), self.exponent)

    def norm(self, norm: Norm = L2()) -> float:  # noqa: B008 - a frozen value
        """Sqrt λmax, or the largest ‖y‖ with yyᵀ ≼ this: the Lipschitz bound of the map that led here."""
        if norm.name != "l2" and self.matrix is not None:
            return float(_ldexp(ellipsoid_above(self.matrix, norm), self.exponent))
        square = 1.0 if self.matrix is None else top(self.matrix)[0]
        return float(_ldexp(np.sqrt(max(square, 0.0)), self.exponent))


class Image:
    """W P Wᵀ: its diagonal first, then all of it or a block."""

    def __init__(self, P: Ellipsoid, weight: Weight) -> None:
        self.P = P
        self.weight, power = _tamed(weight)
        self.exponent = P.exponent + power

    @cached_property
    def _half(self) -> Array:
        """W P without the rest, (rows of W, n)."""
        assert self.P.matrix is not None
        return times(self.P.matrix, self.weight.T).T

    @cached_property
    def _rest(self) -> Array | None:
        """L⁻¹M Wᵀ, (a, rows of W)."""
        if self.P.rest is None:
            return None
        factor, cross = self.P.rest
        right = np.asfortranarray(times(cross, self.weight.T))
        return np.asarray(linalg.blas.dtrsm(1.0, factor.T, right, lower=0, trans_a=1, overwrite_b=1))

    def axes(self) -> Array:
        """Sqrt of the true diagonal, (n,): how far each neuron moves at most when the input moves by one."""
        half = self.weight if self.P.matrix is None else self._half
        squares = np.asarray((self.weight * half).sum(axis=1))
        if self._rest is not None:
            squares = squares + np.einsum("ij,ij->j", self._rest, self._rest)
        return _ldexp(np.sqrt(np.maximum(squares, 0.0)), self.exponent)

    def block(self, rows: Array | None = None) -> Ellipsoid:
        """The ellipsoid itself, or that of some rows of W."""
        weight = self.weight if rows is None else self.weight[rows]
        if self.P.matrix is None:
            return Ellipsoid.of(dense(weight @ weight.T), self.exponent)
        S = times(self._half if rows is None else self._half[rows], weight.T)
        if self._rest is not None:
            Z = self._rest if rows is None else self._rest[:, rows]
            S = S + Z.T @ Z
        return Ellipsoid.of(symmetric(S), self.exponent)


def _ldexp(mantissa: Array, exponent: int | Array) -> Array:
    """Mantissa · 2^exponent; infinite where that is too large for a float."""
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(mantissa, exponent))


def _tamed(weight: Weight) -> tuple[Weight, int]:
    """A weight whose squares are floats, and the power of two that was taken out of it."""
    size = abs(weight).max()
    if size <= 0 or 2.0**-200 < size < 2.0**200:
        return weight, 0
    power = int(np.frexp(size)[1])
    half = power // 2  # in two steps, since 2**power may itself be too large for a float
    return weight / 2.0**half / 2.0 ** (power - half), power


def activate(S: Ellipsoid, alpha: Array, beta: Array, multiplier: Array, apart: bool = False) -> Ellipsoid:
    """The ellipsoid after neurons with slopes in [alpha, beta], for multipliers T relative to S's scale.

    P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T,   m = (α+β)/2, r = (β-α)/2.

    Any T with T - D_r S D_r ≻ 0 on the neurons with r > 0 gives a valid bound; the others take T = 0. ``apart`` leaves
    the middle term to the next map.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where T - D_r S D_r is not positive definite.
    """
    assert S.matrix is not None
    m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)
    if ((r > 0) & (multiplier <= 0) & (np.diagonal(S.matrix) > 0)).any():
        raise np.linalg.LinAlgError("a neuron that moves and has no single slope needs a positive multiplier")
    P = m[:, None] * S.matrix * m
    active = np.flatnonzero((r > 0) & (multiplier > 0))
    if active.size:
        s = r[active] / np.sqrt(multiplier[active])
        scaled = s[:, None] * S.matrix[active]
        core = -scaled[:, active] * s
        core.flat[:: active.size + 1] += 1.0
        factor = np.linalg.cholesky(core)
        if apart:
            P.flat[:: len(P) + 1] += multiplier
            return Ellipsoid(P, S.exponent, (factor, scaled * m))
        X = linalg.solve_triangular(factor, scaled, lower=True, check_finite=False) * m
        P = P + X.T @ X
    P.flat[:: len(P) + 1] += multiplier
    return Ellipsoid.of(P, S.exponent)


def inverse_of(factor: Array) -> Array:
    """(L Lᵀ)⁻¹ from the lower triangle L."""
    inverse = linalg.lapack.dpotri(factor, lower=1)[0]
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def symmetric(matrix: Array) -> Array:
    """(M + Mᵀ)/2."""
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


ITERATIVE = 300
"""Above this size Lanczos beats the tridiagonal reduction."""
_ROUGH, _SHORT = 1e-4, 10
"""From this tolerance on, as few as the second products are made between looks at the residual."""


def largest(matrix: Array, tolerance: float = 1e-10) -> Array:
    """λmax of a symmetric matrix, or of each of a stack; of a large one to a relative tolerance."""
    if matrix.ndim > 2:
        return np.asarray(np.linalg.eigvalsh(matrix)[..., -1])
    return np.asarray(top(matrix, tolerance)[0])


def largest_of(n: int, multiply: Callable[[Array], Array], tolerance: float = 1e-10) -> Array:
    """λmax of a symmetric operator on n numbers, more than a few; it is not formed."""
    return np.asarray(_lanczos(LinearOperator((n, n), matvec=multiply, dtype=float), tolerance)[0])


def top(matrix: Array, tolerance: float = 1e-10) -> tuple[float, Array]:
    """λmax of a symmetric matrix, of a large one to a relative tolerance, and a unit eigenvector."""
    n = matrix.shape[-1]
    if not np.isfinite(matrix).all():
        raise np.linalg.LinAlgError("a matrix has entries too large for floating point")
    if n <= ITERATIVE:
        value, vector = linalg.eigh(matrix, subset_by_index=[n - 1, n - 1], check_finite=False)
        if not value.size:  # LAPACK may lose the one it was asked for, where entries differ in size by 1e100
            value, vector = (found[..., -1:] for found in np.linalg.eigh(matrix))
        return float(value[0]), vector[:, 0]
    return _lanczos(matrix, tolerance)


def _lanczos(operator: Any, tolerance: float) -> tuple[float, Array]:
    between = _SHORT if tolerance >= _ROUGH else None
    try:
        value, vector = eigsh(operator, k=1, which="LA", v0=np.ones(operator.shape[0]), tol=tolerance, ncv=between)
    except ArpackError as error:
        raise np.linalg.LinAlgError(str(error)) from error
    return float(value[0]), vector[:, 0]
