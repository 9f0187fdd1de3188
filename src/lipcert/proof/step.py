"""One activation step, proved: an ellipsoid that contains what neurons with given slopes make of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight
from lipcert.proof.blocks import apply_size, column_sizes, factor_sizes, row_sizes, symmetrised
from lipcert.proof.rounding import (
    TINY,
    UP,
    apply,
    congruence,
    gamma,
    magnitude,
    raise_diagonal,
    spread,
    stretched,
    tame,
    up,
)
from lipcert.suggest.multipliers import dominating

LEAST, MOST = 2.0**-800, 2.0**800
"""Multipliers beyond these are not used: their squares' roundings would not be relative."""
SPARE = 2.0**-42
"""What a step that is proved apart adds to ``lifted``, for rounding errors of the map after it."""
_WIDENED, _MARGIN = 2.0**-43, 2.0**37
"""The slopes here are wider than those that the hints were made for, by about the first. (D_r + D_e) S (D_r + D_e) is
at most (1 + θ) D_r S D_r + (1 + 1/θ) D_e S D_e: hints with a margin θ above the inverse of the second stay feasible."""
_WIDE = 512
"""Open neurons from which a step of the size of the inputs is tried."""
_TAME = 2.0**200
"""Entries of weights between this and its inverse: products of several neither over- nor underflow."""


@dataclass(frozen=True, eq=False)
class Step:
    """P̂ with P ≼ P̂ after neurons with slopes in [α, β], and the floats for which it was proved; all for a stack.

    With D_x the diagonal matrix of x, and blocks over the active neurons and over all neurons,

        [ D_lifted - D_h S D_h      D_h S D_m                          ]
        [ D_m S D_h                 P̂ - D_(lifted/g²) - D_m S D_m      ]  ≽ 0,     m - h/g ≤ α ≤ β ≤ m + h/g,

    (h = 0 on neurons that are not active), which is the condition for P̂ with multipliers T = lifted/g².

    Attributes
    ----------
    P : (count, n, n).
    active : neurons with an open slope, (count, a); where a region has fewer, others follow, with h = 0.
    m : middles of the slopes, (count, n).
    h, g, lifted : of the active neurons, (count, a).
    L, X : about the Cholesky factor of C = I - D_h S D_h, and L⁻¹ D_h S D_m.

    A step ``apart`` has the condition left to what comes after. Its P̂ ≽ D_m S D_m + D_(lifted/g²), its X is D_h S D_m
    itself but for two roundings per entry, and C + D_(lifted - 1 - SPARE) ≽ L Lᵀ.
    """

    P: Array
    active: Array
    m: Array
    h: Array
    g: Array
    lifted: Array
    L: Array
    X: Array

    @property
    def multipliers(self) -> Array:
        """About the T that the step was proved with, (count, n); zero where none is needed."""
        return _placed(self.m, self.active, np.where(self.h > 0.0, self.lifted / (self.g * self.g), 0.0))


def activate(S: Array, alpha: Array, beta: Array, hint: Array, signed: bool = False, apart: bool = False) -> Step:
    """The step for multipliers near the hint, or safer ones; S (count, n, n) is symmetric and at least the true one.

    Only the choice of active neurons needs S to be positive semidefinite; ``signed`` says that it may not be.

    Let C = I - D_h S D_h and M = D_h S D_m, and let L and X be any floats with L Lᵀ ≈ C and L X ≈ M. Then the matrix
    [C M; Mᵀ XᵀX] is [L Xᵀ][L Xᵀ]ᵀ + Δ, and raising its diagonal by the absolute row sums of Δ makes it positive
    semidefinite. On the rows of C that raises T, so P too. Δ consists of residuals that are computed, and of rounding
    errors of products that are bounded. Rows with h = 0 are rows of the identity, and have no part in it.
    """
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)
    diagonal = np.diagonal(S, axis1=-2, axis2=-1)
    moving = (r > 0) & (signed | (diagonal > 0))  # a neuron with S_ll = 0 does not move
    active = np.argsort(~moving, axis=-1, kind="stable")[:, : int(moving.sum(axis=-1).max(initial=0))]
    on = _picked(moving, active)
    ends = S.max(axis=(-2, -1), initial=0.0), -S.min(axis=(-2, -1), initial=0.0)
    most = np.maximum(*ends)[:, None]  # what underflows in products of slopes is multiplied by entries of S
    tiny = TINY * (1.0 + most + np.abs(m).sum(axis=-1, keepdims=True))
    P = m[:, :, None] * m[:, None, :]  # symmetric, as S is
    P *= S
    error = 4.0 * gamma(1) * row_sizes(P)
    if not active.shape[-1]:
        none = np.zeros(active.shape)
        P = raise_diagonal(P, up(2.0 * error * UP + tiny), fresh=True)
        return Step(P, active, m, none, none, none, S[:, :0, :0], S[:, :0])
    columns, part = _open_block(S, active, moving)
    L, C, h, g = _factor(S, part, m, r, active, on, hint)
    columns *= h[:, None, :]
    columns *= m[:, :, None]
    M = _turned(columns)
    u, rounding, left_L = 4.0 * gamma(1), gamma(active.shape[-1] + 6), column_sizes(L)
    down_C = row_sizes(C)  # D_h S D_h and C differ by the identity
    residual_C = factor_sizes(C, L) + rounding * (apply_size(L, left_L) + down_C)
    residual_C = residual_C + u * (down_C + 1.0) + TINY * (1.0 + h.sum(axis=-1, keepdims=True))
    if apart:
        X, across, along = M, SPARE, 0.0
    else:
        X = _solved(L, M)
        abs_X, abs_M, residual = np.abs(X), np.abs(M), np.abs(M - L @ X)
        across_X, across_M, down_M = abs_X.sum(axis=-1), abs_M.sum(axis=-1), abs_M.sum(axis=-2)
        across = residual.sum(axis=-1) + rounding * apply_size(L, across_X) + (rounding + u) * across_M
        along = residual.sum(axis=-2) + rounding * apply(_turned(abs_X), left_L + across_X) + (rounding + u) * down_M
        P += _turned(X) @ X
        P = symmetrised(P)
    lifted = up(1.0 + (residual_C + across + tiny) * UP)
    raised = _placed(m, active, np.where(on, stretched(lifted / (g * g), 3), 0.0))
    error = (error + along + (0.0 if apart else u * row_sizes(P))) * UP + tiny
    return Step(raise_diagonal(P, up(raised + error), fresh=True), active, m, h, g, lifted, L, X)


def _open_block(S: Array, active: Array, moving: Array) -> tuple[Array, Array]:
    """The columns of the active neurons, which may be written to, and their rows of those."""
    if moving.all():
        return np.array(S), S
    if len(active) == 1:
        columns = np.take(S, active[0], axis=2)
        return columns, columns[:, active[0]]
    columns = np.take_along_axis(S, active[:, None, :], -1)
    return columns, np.take_along_axis(columns, active[:, :, None], -2)


def _picked(values: Array, which: Array) -> Array:
    """Some of the values (count, n) of each region, (count, k)."""
    return values[:, which[0]] if len(which) == 1 else np.take_along_axis(values, which, -1)


def _placed(like: Array, which: Array, values: Array) -> Array:
    """Values at their places in an array of zeros."""
    full = np.zeros(like.shape)
    if len(which) == 1:
        full[:, which[0]] = values
    else:
        np.put_along_axis(full, which, values, -1)
    return full


def _turned(stack: Array) -> Array:
    return np.swapaxes(stack, -1, -2)


def _solved(L: Array, M: Array) -> Array:
    """About L⁻¹M, for stacks; whatever comes is checked."""
    return np.stack([linalg.lapack.dtrtrs(one.T, two, lower=0, trans=1)[0] for one, two in zip(L, M, strict=True)])


def _factor(
    S: Array, part: Array, m: Array, r: Array, active: Array, on: Array, hint: Array
) -> tuple[Array, Array, Array, Array]:
    """L, C, h, g of the step; of regions where C is not positive definite, the multipliers are enlarged until it is.

    What happens to a region does not depend on the others of its stack.
    """
    width, given = _picked(r, active), _picked(hint, active)
    width = np.where(on, width, 0.0)
    safe = _picked(dominating(S, r, m), active)
    T = np.where((given > 0) & (given < np.inf), given, safe)
    L, C, h, g = np.zeros(part.shape), np.zeros(part.shape), np.zeros(T.shape), np.ones(T.shape)
    growth, left, diagonal = 2.0**-40, np.arange(len(T)), np.arange(part.shape[-1])
    for attempt in range(84):
        if attempt == 1:
            edge = dominating(S[left], np.minimum(r[left], _WIDENED * (1.0 + np.abs(m[left]) + r[left])))
            T[left] += _MARGIN * _picked(edge, active[left])
        elif attempt == 82:  # not near the hints, then; of two tries the second is for rounding
            T[left] = safe[left]
        elif attempt > 1:
            T[left], growth = (1.0 + growth) * T[left], min(4.0 * growth, 0.5)
        T[left] = np.clip(T[left], LEAST, MOST)
        g[left] = 1.0 / np.sqrt(T[left])
        h[left] = np.where(on[left], up(g[left] * width[left]), 0.0)
        core = -h[left, :, None] * part[left]
        core *= h[left, None, :]
        core[:, diagonal, diagonal] += 1.0
        factor, good = cholesky(core)
        if len(T) == 1:
            C, L = core, factor
        else:
            C[left], L[left] = core, factor
        left = left[~good]
        if not left.size:
            return L, C, h, g
    raise ProofFailed("no multipliers near the hints make the step of a layer valid")


def cholesky(stack: Array) -> tuple[Array, Array]:
    """Cholesky factors of a stack, and which of the matrices have one."""
    try:
        return np.linalg.cholesky(stack), np.ones(len(stack), dtype=bool)
    except np.linalg.LinAlgError:
        if len(stack) == 1:
            return np.zeros(stack.shape), np.zeros(1, dtype=bool)
    factors, good = zip(*(cholesky(one[None]) for one in stack), strict=True)
    return np.concatenate(factors), np.concatenate(good)


def thin_step(weight: Weight, power: int, alpha: Array, beta: Array, hint: Array) -> Step | None:
    """The step from ΔvΔvᵀ ≼ ‖d‖² W Wᵀ with multipliers as hinted, slopes (1, n); None where the usual way is as good.

    With many neurons that see few inputs, W (n, d), n > d, and N = Wᵀ D_h² W the matrices have the size of the inputs:

        D_m S D_m + D_m S D_h (I - D_h S D_h)⁻¹ D_h S D_m + T = D_m W (I - N)⁻¹ Wᵀ D_m + T,    h = r T^-½,

    since Bᵀ(I - BBᵀ)⁻¹B = (I - BᵀB)⁻¹ - I for B = D_h W.

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
    if given.size < max(_WIDE, weight.shape[1]) or not tame(weight, _TAME) or abs(power) > 400:
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
