"""Solutions of equations and eigenvalues, nearly; a proof bounds what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight

_ROUNDS: Final = 400
"""Steps of conjugate gradients at most."""
_ENOUGH: Final = 1e-13
"""What is left of the right-hand side, relatively, when conjugate gradients stop."""
_POWERS: Final = 60
"""Steps of the power method for a guess of an eigenvalue."""
_ABOVE: Final = 1e-3
"""How much above what the power method finds an eigenvalue is guessed: a guess below it would prove nothing."""
_TINY: Final = 1e-280
"""Keeps quotients finite."""


def solved(weight: Weight, B: Array, row: Array, mu: float) -> Array:
    """Nearly (μ - WᵀBW)⁻¹row, B a matrix or the diagonal of one, by conjugate gradients."""
    back = weight.T
    y, rest, way = np.zeros(len(row)), np.array(row), np.array(row)
    left = float(rest @ rest)
    goal = _ENOUGH * _ENOUGH * left
    for _ in range(_ROUNDS):
        inner = weight @ way
        image = mu * way - back @ (B * inner if B.ndim == 1 else B @ inner)
        curve = float(way @ image)
        if not (left > goal and curve > 0.0):
            break
        step = left / curve
        y, rest = y + step * way, rest - step * image
        now = float(rest @ rest)
        way, left = rest + (now / left) * way, now
    return np.where(np.isfinite(y), y, 0.0)


def largest_eigenvalue(S: Array) -> float:
    """A little above the largest eigenvalue of all matrices of a stack (count, n, n), by the power method."""
    x = np.random.default_rng(0).standard_normal((len(S), S.shape[-1]))
    for _ in range(_POWERS):
        x = matvec(S, x)
        x = x / np.maximum(np.abs(x).max(axis=-1), _TINY)[:, None]
    top = np.einsum("ki,ki->k", x, matvec(S, x)) / np.maximum(np.einsum("ki,ki->k", x, x), _TINY)
    return float(top.max()) * (1.0 + _ABOVE)


def matvec(matrices: Array, vectors: Array) -> Array:
    """Matrices (..., m, n) times vectors (..., n), stack by stack."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def powers(image: Callable[[Array], Array], x: Array, rounds: int) -> tuple[Array, Array]:
    """About the largest eigenvalue of a positive semidefinite map, (..., 1), and its vector, by powers from x."""
    value = np.zeros((*x.shape[:-1], 1))
    for _ in range(rounds):
        x = image(x)
        value = np.linalg.norm(x, axis=-1, keepdims=True)
        x = x / np.maximum(value, _TINY)
    return value, x


def lowest(M: Array) -> float:
    """About the t for which M + t·e_0e_0ᵀ is just semidefinite."""
    try:
        factor = linalg.cholesky(M[1:, 1:], lower=True, check_finite=False)
    except linalg.LinAlgError:
        raise ProofFailed("the multipliers make no definite form") from None
    y = linalg.solve_triangular(factor, M[1:, 0], lower=True, check_finite=False)
    return float(y @ y - M[0, 0])


def triangular_factor(weight: Array) -> tuple[Array, Array, Array] | None:
    """R, Q and R⁻¹, nearly, with weight = R·Q, R triangular and the rows of Q orthonormal; None if R is singular."""
    back, lower = linalg.qr(weight.T, mode="economic", check_finite=False)
    R, rows = np.ascontiguousarray(lower.T), np.ascontiguousarray(back.T)
    try:
        return R, rows, linalg.solve_triangular(R, np.eye(len(R)), lower=True, check_finite=False)
    except linalg.LinAlgError:
        return None
