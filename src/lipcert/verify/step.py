"""One activation step, proved: an ellipsoid that contains what neurons with given slopes make of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.typing import Array
from lipcert.verify.rounding import TINY, UP, apply, gamma, raise_diagonal, stretched, up

LEAST, MOST = 2.0**-800, 2.0**800
"""Multipliers beyond these are not used: their squares' roundings would not be relative."""
_WIDENED, _MARGIN = 2.0**-43, 2.0**37
"""The slopes here are wider than those that the hints were made for, by about the first. (D_r + D_e) S (D_r + D_e) is
at most (1 + θ) D_r S D_r + (1 + 1/θ) D_e S D_e: hints with a margin θ above the inverse of the second stay feasible."""


@dataclass(frozen=True, eq=False)
class Step:
    """P̂ with P ≼ P̂ after neurons with slopes in [α, β], and the floats for which it was proved.

    With D_x the diagonal matrix of x, and blocks over the active neurons and over all neurons,

        [ D_lifted - D_h S D_h      D_h S D_m                          ]
        [ D_m S D_h                 P̂ - D_(lifted/g²) - D_m S D_m      ]  ≽ 0,     m - h/g ≤ α ≤ β ≤ m + h/g,

    (h = 0 on neurons that are not active), which is the condition for P̂ with multipliers T = lifted/g².
    """

    P: Array
    active: Array
    m: Array
    h: Array
    g: Array
    lifted: Array


def activate(S: Array, alpha: Array, beta: Array, hint: Array, signed: bool = False) -> Step:
    """The step for multipliers near the hint, or safer ones; S (n, n) is symmetric and at least the true one.

    Only the choice of active neurons needs S to be positive semidefinite; ``signed`` says that it may not be.

    Let C = I - D_h S D_h and M = D_h S D_m, and let L and X be any floats with L Lᵀ ≈ C and L X ≈ M. Then the matrix
    [C M; Mᵀ XᵀX] is [L Xᵀ][L Xᵀ]ᵀ + Δ, and raising its diagonal by the absolute row sums of Δ makes it positive
    semidefinite. On the rows of C that raises T, so P too. Δ consists of residuals that are computed, and of rounding
    errors of products that are bounded.
    """
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)
    active = np.flatnonzero((r > 0) & (signed | (np.diagonal(S) > 0)))  # a neuron with S_ll = 0 does not move
    size, tiny = np.abs(S), TINY * (1.0 + np.abs(m).sum())
    PP = m[:, None] * S * m
    error = 4.0 * gamma(1) * (np.abs(m) * apply(size, np.abs(m)))
    raised = np.zeros(len(S))
    L, X, C, M, h, g = _factor(S, m, r, active, hint)
    lifted = np.ones(active.size)
    if active.size:
        abs_L, abs_X = np.abs(L), np.abs(X)
        rounding = gamma(active.size + 6)
        left_L = abs_L.sum(axis=0)
        residual_C = np.abs(C - L @ L.T).sum(axis=1) + rounding * (apply(abs_L, left_L) + np.abs(C).sum(axis=1))
        residual_C = residual_C + 4.0 * gamma(1) * h * apply(size[np.ix_(active, active)], h) + TINY * (1.0 + h.sum())
        residual = np.abs(M - L @ X) + 4.0 * gamma(1) * np.abs(M)
        rows = residual.sum(axis=1) + rounding * (apply(abs_L, abs_X.sum(axis=1)) + np.abs(M).sum(axis=1))
        columns = residual.sum(axis=0) + rounding * (apply(abs_X.T, left_L) + np.abs(M).sum(axis=0))
        PP = PP + X.T @ X
        error = error + columns + rounding * (apply(abs_X.T, abs_X.sum(axis=1)))
        lifted = up(1.0 + (residual_C + rows + tiny) * UP)
        raised[active] = stretched(lifted / (g * g), 3)
    error = (error + 4.0 * gamma(1) * np.abs(PP).sum(axis=1)) * UP + tiny
    return Step(raise_diagonal(0.5 * (PP + PP.T), up(raised + error)), active, m, h, g, lifted)


def _factor(
    S: Array, m: Array, r: Array, active: Array, hint: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """L, X, C, M, h, g of the step; multipliers are enlarged until C is positive definite."""
    part = S[np.ix_(active, active)]
    safe = _dominating(S, r, m)[active]
    T = np.where(hint[active] > 0, hint[active], safe)
    growth = 2.0**-40
    for attempt in range(84):
        if attempt == 1:
            T = T + _MARGIN * _dominating(S, np.minimum(r, _WIDENED * (1.0 + np.abs(m) + r)))[active]
        elif attempt == 82:  # not near the hints, then; of two tries the second is for rounding
            T = safe
        elif attempt > 1:
            T, growth = (1.0 + growth) * T, min(4.0 * growth, 0.5)
        T = np.clip(T, LEAST, MOST)
        g = 1.0 / np.sqrt(T)
        h = up(g * r[active])
        C = np.eye(active.size) - h[:, None] * part * h
        try:
            L = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            continue
        M = h[:, None] * S[active] * m
        X = linalg.solve_triangular(L, M, lower=True, check_finite=False) if active.size else M
        return L, X, C, M, h, g
    raise ProofFailed("no multipliers near the hints make the step of a layer valid")


def _dominating(S: Array, r: Array, m: Array | None = None) -> Array:
    """Multipliers that are feasible whatever S is, and small for neurons that hardly move or have almost one slope.

    Since |S_ij| ≤ sqrt(S_ii S_jj), T_j ≥ r_j sqrt(S_jj) Σ r_i sqrt(S_ii) dominates the rows of D_r S D_r. With m given
    they are enlarged to what neurons that have no hint should have, so that they do not cost more than their share.
    """
    axes = np.sqrt(np.maximum(np.diagonal(S), 0.0))
    share = r * axes
    return share * (2.0 * share.sum() + (0.0 if m is None else np.linalg.norm(m * axes)))
