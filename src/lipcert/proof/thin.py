"""One activation step, proved, where many neurons see few inputs: the matrices have the size of the inputs.

With S = W Wᵀ for a weight W (n, d), n > d, and N = Wᵀ D_h² W the step of :mod:`lipcert.proof.step` is

    D_m S D_m + D_m S D_h (I - D_h S D_h)⁻¹ D_h S D_m + T = D_m W (I - N)⁻¹ Wᵀ D_m + T,    h = r T^-½,

since Bᵀ(I - BBᵀ)⁻¹B = (I - BᵀB)⁻¹ - I for B = D_h W.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import linalg, sparse

from lipcert.model.arrays import Array, Weight
from lipcert.proof.rounding import TINY, UP, apply, congruence, gamma, magnitude, raise_diagonal, spread, stretched, up
from lipcert.proof.step import LEAST, MOST, Step

_WIDE: Final = 512
"""Open neurons from which this is tried."""
_TAME: Final = 2.0**200


def thin_step(weight: Weight, power: int, alpha: Array, beta: Array, hint: Array) -> Step | None:
    """The step from ΔvΔvᵀ ≼ ‖d‖² W Wᵀ with multipliers as hinted, slopes (1, n); None where the usual way is as good.

    W is the weight times 2**power, without underflow where entries are tame, and stands for every real matrix within
    LOOSE·u of that. The condition of :class:`Step` is proved with ``lifted`` = 1, T = 1/g² and real S = W Wᵀ:

    * N̂ ≽ N is a float matrix, by :func:`congruence`; that h·W is rounded moves N by at most 4u|B|ᵀ|B| entrywise.
    * (I - N̂)⁻¹ ≼ κ YᵀY by :func:`_inverse`.
    * Ŝ ≽ W YᵀY Wᵀ by congruences again, and P̂ ≽ κ D_m Ŝ D_m + T; products of four floats, made symmetric, lose at
      most 5γ_1.
    """
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)[0]
    on = (r > 0.0) & (np.asarray(magnitude(weight).sum(axis=1)).ravel() > 0.0)  # others do not move
    given = hint[0][on]
    if given.size < max(_WIDE, weight.shape[1]) or not _tame(weight) or abs(power) > 400:
        return None
    if not (np.isfinite(given) & (given > 0.0)).all():
        return None
    weight, T = weight * 2.0**power, np.clip(hint[0], LEAST, MOST)
    g = np.where(on, 1.0 / np.sqrt(T), 1.0)
    h = np.where(on, up(g * r), 0.0)
    B = _scaled(h, weight).T
    size = magnitude(B)
    N = congruence(None, B)
    charge = 4.0 * gamma(1) * spread(size, np.asarray(size.sum(axis=0)).ravel()) * UP
    found = _inverse(raise_diagonal(N, charge + TINY * (1.0 + float(h.sum()))))
    if found is None:
        return None
    Y, kappa = found
    S = congruence(congruence(None, Y.T), weight)
    P = kappa * (m[0][:, None] * S * m[0])
    P = 0.5 * (P + P.T)
    error = (8.0 * gamma(1) * np.abs(P).sum(axis=-1)) * UP + TINY * (1.0 + np.abs(m).sum() * (1.0 + kappa))
    raised = np.where(on, stretched(1.0 / (g * g), 3), 0.0)
    active = np.flatnonzero(on)[None]
    ends = h[active], g[active], np.ones(active.shape), np.zeros((1, 0, 0)), np.zeros((1, 0, 0))
    return Step(raise_diagonal(P, up(raised + error))[None], active, m, *ends)


def _inverse(N: Array) -> tuple[Array, float] | None:
    """Y and κ with I - N ≻ 0 and (I - N)⁻¹ ≼ κ YᵀY for a symmetric float matrix N; None where that is not shown.

    Let L and Y be any floats with L Lᵀ ≈ I - N and Y L ≈ I, F = Y L - I and R = I - N - L Lᵀ. If ‖F‖ ≤ f < 1 then
    L⁻¹ = (I + F)⁻¹Y, so ‖L⁻¹‖ ≤ ‖Y‖/(1 - f) = λ. If τ = λ²‖R‖ < 1 then I - N = L(I + L⁻¹RL⁻ᵀ)Lᵀ ≽ (1 - τ)LLᵀ ≻ 0,
    and its inverse is at most L⁻ᵀL⁻¹/(1 - τ) ≼ YᵀY/((1 - τ)(1 - f)²). A norm is at most the root of the product of the
    largest absolute row sum and column sum; these have the rounding errors of the products added.
    """
    eye = np.eye(len(N))
    C = eye - N  # one rounding per entry of the diagonal, charged below
    try:
        L = np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        return None
    Y = np.tril(linalg.solve_triangular(L, eye, lower=True, check_finite=False))
    rounding, abs_L, abs_Y = gamma(len(N) + 6), np.abs(L), np.abs(Y)
    residual = np.abs(C - L @ L.T).sum(axis=-1) + rounding * (apply(abs_L, abs_L.sum(axis=0)) + np.abs(C).sum(axis=-1))
    off = np.abs(Y @ L - eye)
    rows = off.sum(axis=1) + rounding * (apply(abs_Y, abs_L.sum(axis=1)) + 1.0)
    columns = off.sum(axis=0) + rounding * (apply(abs_L.T, abs_Y.sum(axis=0)) + 1.0)
    f = float(np.sqrt(rows.max() * columns.max()) * UP + TINY)
    length = abs_Y.sum(axis=1).max() * abs_Y.sum(axis=0).max() * UP
    tau = float(length * (residual.max() + TINY) * UP * UP)
    if not f < 0.5:
        return None
    tau = tau / (1.0 - f) ** 2 * UP
    return (Y, float(stretched(np.asarray(1.0 / ((1.0 - tau) * (1.0 - f) ** 2)), 16))) if tau < 0.5 else None


def _scaled(h: Array, weight: Weight) -> Weight:
    """D_h W."""
    if sparse.issparse(weight):
        return sparse.csr_array(sparse.diags_array(h) @ weight)
    return h[:, None] * weight


def _tame(weight: Weight) -> bool:
    """Whether no entry is so large or small that a product of several could over- or underflow."""
    entries = np.abs(weight.data if sparse.issparse(weight) else weight)
    entries = entries[entries > 0.0]
    return bool(entries.size and entries.min() > 1.0 / _TAME and entries.max() < _TAME)
