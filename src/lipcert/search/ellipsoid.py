"""One layer of the algorithm: an ellipsoid of differences through an affine map and an activation.

A pair of inputs Δz_0 apart stays inside Δz Δzᵀ ≼ ‖Δz_0‖² P. Matrices are kept near unit scale; their true
size is a power of four beside them, so that nothing over- or underflows however deep the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, eigsh

from lipcert.model.arrays import Array, Weight, dense, times


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """The matrix 4^exponent · matrix; ``matrix`` None is the identity. Leading axes make a stack."""

    matrix: Array | None
    exponent: Array

    @staticmethod
    def ball(batch: tuple[int, ...] = ()) -> Ellipsoid:
        """P_0 = I."""
        return Ellipsoid(None, np.zeros(batch, dtype=int))

    @staticmethod
    def of(matrix: Array, exponent: Array) -> Ellipsoid:
        """Bring the mean diagonal of a matrix near one and note the power of four taken out."""
        mean = np.trace(matrix, axis1=-2, axis2=-1) / matrix.shape[-1]
        power = np.where(mean > 0, np.round(0.5 * np.log2(np.where(mean > 0, mean, 1.0))), 0.0).astype(int)
        return Ellipsoid(np.ldexp(matrix, -2 * power[..., None, None]), exponent + power)

    def through(self, weight: Weight) -> Ellipsoid:
        """S = W P Wᵀ, the ellipsoid after an affine map."""
        power = _power(weight)
        if power:
            return Ellipsoid(self.matrix, self.exponent + power).through(_shifted(weight, -power))
        if self.matrix is None:
            gram = dense(weight @ weight.T)
            return Ellipsoid.of(np.broadcast_to(gram, (*self.exponent.shape, *gram.shape)), self.exponent)
        half = times(np.swapaxes(times(self.matrix, weight.T), -1, -2), weight.T)
        return Ellipsoid.of(symmetric(half), self.exponent)

    def reach(self, weight: Weight) -> Array:
        """The axes of W P Wᵀ, without forming it; (n,)."""
        power = _power(weight)
        if power:
            return Ellipsoid(self.matrix, self.exponent + power).reach(_shifted(weight, -power))
        half = weight if self.matrix is None else weight @ self.matrix
        if sparse.issparse(weight):
            squares = np.asarray((sparse.csr_array(weight) * half).sum(axis=1))
        else:
            squares = np.asarray((half * weight).sum(axis=1))
        return _ldexp(np.sqrt(np.maximum(squares, 0.0)), self.exponent)

    def axes(self) -> Array:
        """Sqrt of the true diagonal: neuron l is that Lipschitz; (..., n)."""
        if self.matrix is None:
            raise ValueError("the unit ball has no size of its own")
        diagonal = np.diagonal(self.matrix, axis1=-2, axis2=-1)
        return _ldexp(np.sqrt(np.maximum(diagonal, 0.0)), self.exponent[..., None])

    def norm(self) -> Array:
        """Sqrt λmax: the Lipschitz bound of the map that led here."""
        if self.matrix is None:
            return _ldexp(np.ones(()), self.exponent)
        return _ldexp(np.sqrt(np.maximum(largest(self.matrix), 0.0)), self.exponent)


def _ldexp(mantissa: Array, exponent: Array) -> Array:
    """Mantissa · 2^exponent; infinite where that is too large for a float."""
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(mantissa, exponent))


def _power(weight: Weight) -> int:
    """Power of two to take out of a weight whose squares would leave the range of floats, else 0."""
    size = abs(weight).max()
    return int(np.frexp(size)[1]) if size > 0 and not 2.0**-200 < size < 2.0**200 else 0


def _shifted(weight: Weight, power: int) -> Weight:
    """2**power·weight; in two steps, since a power may itself be too large for a float."""
    return weight * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)


def activate(S: Ellipsoid, alpha: Array, beta: Array, multiplier: Array) -> Ellipsoid:
    """The ellipsoid after neurons with slopes in [alpha, beta], for multipliers T relative to S's scale.

    P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T,   m = (α+β)/2, r = (β-α)/2.

    Any T with T - D_r S D_r ≻ 0 on the neurons with r > 0 gives a valid bound; the others take T = 0.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where T - D_r S D_r is not positive definite.
    """
    assert S.matrix is not None
    m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)
    if ((r > 0) & (multiplier <= 0) & (np.diagonal(S.matrix, axis1=-2, axis2=-1) > 0)).any():
        raise np.linalg.LinAlgError("a neuron that moves and has no single slope needs a positive multiplier")
    P = m[..., :, None] * S.matrix * m[..., None, :]
    s = np.divide(r, np.sqrt(multiplier), out=np.zeros(np.shape(multiplier)), where=(r > 0) & (multiplier > 0))
    active = np.flatnonzero(s.reshape(-1, s.shape[-1]).any(axis=0))
    if active.size:
        X = half_gain(S.matrix, s, active) * m[..., None, :]
        P = P + np.swapaxes(X, -1, -2) @ X
    n = P.shape[-1]
    P[..., np.arange(n), np.arange(n)] += multiplier
    return Ellipsoid.of(P, S.exponent)


def half_gain(S: Array, s: Array, active: Array) -> Array:
    """X with XᵀX = S D_s (I - D_s S D_s)⁻¹ D_s S; rows are those of the active neurons."""
    scaled = s[..., active, None] * S[..., active, :]
    core = np.eye(active.size) - scaled[..., active] * s[..., None, active]
    factor = np.linalg.cholesky(core)
    if factor.ndim == 2:
        return np.asarray(linalg.solve_triangular(factor, scaled, lower=True, check_finite=False))
    return np.asarray(np.linalg.solve(factor, scaled))


def symmetric(matrix: Array) -> Array:
    """(M + Mᵀ)/2."""
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


_ITERATIVE = 300
"""Above this size Lanczos beats the tridiagonal reduction."""


def largest(matrix: Array) -> Array:
    """λmax of a symmetric matrix, or of each of a stack."""
    if matrix.ndim > 2:
        return np.asarray(np.linalg.eigvalsh(matrix)[..., -1])
    return np.asarray(top(matrix)[0])


def top(matrix: Array) -> tuple[float, Array]:
    """λmax of a symmetric matrix and a unit eigenvector."""
    n = matrix.shape[-1]
    if not np.isfinite(matrix).all():
        raise np.linalg.LinAlgError("a matrix has entries too large for floating point")
    if n <= _ITERATIVE:
        value, vector = linalg.eigh(matrix, subset_by_index=[n - 1, n - 1], check_finite=False)
        if not value.size:  # LAPACK may lose the one it was asked for, where entries differ in size by 1e100
            value, vector = (found[..., -1:] for found in np.linalg.eigh(matrix))
        return float(value[0]), vector[:, 0]
    try:
        value, vector = eigsh(matrix, k=1, which="LA", v0=np.ones(n), tol=1e-10)
    except ArpackError as error:
        raise np.linalg.LinAlgError(str(error)) from error
    return float(value[0]), vector[:, 0]
