"""Largest eigenvalues and inverses of symmetric matrices, in floating point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from lipcert.model.arrays import Array


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
