"""An ellipsoid through one layer, proved: its image under the affine map, and what the activations make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    diagonal_above,
    factor_rows,
    inflate,
    product,
    raised,
    total,
    transpose,
    underflow,
    up,
)
from lipcert.model.arrays import Array, Weight, dense, frozen
from lipcert.suggest.multipliers import cholesky, factored


class Image:
    """4**exponent·W P Wᵀ for a stack P (count, n, n) and exponents (count,); P None is the identity for all.

    W is (m, n), or dense (count, m, n).
    """

    def __init__(self, P: Array | None, exponent: Array, weight: Weight) -> None:
        self.P, self.exponent, self.weight = P, exponent, weight
        self.half = None if P is None else product(weight, P)

    def axes(self) -> Array:
        """At least the Lipschitz constant of each neuron, sqrt(S_ll), (count, neurons); zero where that is known."""
        squares = diagonal_above(self.P, self.weight, self.half)
        size = up(np.ldexp(inflate(np.sqrt(squares), 1), self.exponent[:, None]))
        return np.where(squares == 0.0, 0.0, size)  # NaN stays NaN

    def block(self, kept: Array | None = None) -> tuple[Array, Array]:
        """Ŝ with 4**exponent·W P Wᵀ ≼ 4**e·Ŝ, its mean diagonal near one, and e, (count,).

        Only the rows and columns of the neurons ``kept`` (count, k), of all without. Powers of two, which are floats as
        the mean is between TINY and the largest float, are exact but for underflow, by at most η per entry, which is
        charged to the diagonal.
        """
        half, weight = self.half, self.weight
        if kept is not None:
            half, weight = None if half is None else _rows(half, kept), _rows(weight, kept)
        P, self.P, self.half = self.P, None, None  # they are large, and not needed again
        S = congruence(P, weight, half)
        del P, half
        S = np.broadcast_to(S, (len(self.exponent), *S.shape[-2:]))
        mean = np.trace(S, axis1=-2, axis2=-1) / S.shape[-1]
        if not np.isfinite(mean).all():  # its diagonal has the row sums of |S| times something
            raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
        shift = np.round(0.5 * np.log2(np.where(mean > 0.0, mean, 1.0))).astype(int)
        return raised(S * np.ldexp(1.0, -2 * shift[:, None, None]), underflow(S.shape[-1])), self.exponent + shift


def _rows(matrix: Weight, kept: Array) -> Weight:
    """The rows of each region, of a matrix for all or of a stack; of a single region without a copy by region."""
    if len(kept) == 1:
        return matrix[kept[0]] if matrix.ndim == 2 else np.take(matrix, kept[0], axis=1)
    return dense(matrix)[kept] if matrix.ndim == 2 else np.take_along_axis(matrix, kept[:, :, None], 1)


def columns(weight: Weight, kept: Array | None) -> Weight:
    """The columns of a weight that belong to what is kept of the layer before, (m, k) or (count, m, k), read only."""
    if kept is None:
        return weight
    found = weight[:, kept[0]] if len(kept) == 1 else transpose(dense(weight).T[kept])
    frozen(found if isinstance(found, np.ndarray) else found.data)
    return found


LEAST, MOST = 2.0**-800, 2.0**800
"""Multipliers beyond these are not used: their squares' roundings would not be relative."""


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
    """

    P: Array
    active: Array
    m: Array
    h: Array
    g: Array
    lifted: Array
    L: Array
    X: Array

    @staticmethod
    def still(P: Array, m: Array) -> Step:
        """A step without active neurons."""
        none, blank = np.zeros((len(m), 0)), np.zeros((len(m), 0, P.shape[-1]))
        return Step(P, none.astype(int), m, none, none, none, blank[..., :0], blank)

    @property
    def multipliers(self) -> Array:
        """About the T that the step was proved with, (count, n); zero where none is needed."""
        return _placed(self.m, self.active, np.where(self.h > 0.0, self.lifted / (self.g * self.g), 0.0))


def activate(S: Array, alpha: Array, beta: Array, hint: Array, signed: bool = False) -> Step:
    """The step for multipliers near the hint, or safer ones; S (count, n, n) is symmetric and at least the true one.

    Only the choice of active neurons needs S to be positive semidefinite; ``signed`` says that it may not be.

    Let C = I - D_h S D_h and M = D_h S D_m, and let L and X be any floats with L Lᵀ ≈ C and L X ≈ M. Then the matrix
    [C M; Mᵀ XᵀX] is [L Xᵀ][L Xᵀ]ᵀ + Δ, and raising its diagonal by the absolute row sums of Δ makes it positive
    semidefinite. On the rows of C that raises T, so P too. Δ consists of residuals that are computed, and of rounding
    errors of products that are bounded. Rows with h = 0 are rows of the identity, and have no part in it.
    """
    m, r = middles(alpha, beta)
    moving = (r > 0) & (signed | (np.diagonal(S, axis1=-2, axis2=-1) > 0))  # a neuron with S_ll = 0 does not move
    active = np.argsort(~moving, axis=-1, kind="stable")[:, : int(moving.sum(axis=-1).max(initial=0))]
    on = picked(moving, active)
    P = Approx(S, symmetric=True)
    if not active.shape[-1]:
        return Step.still(P.scaled(m, m).above(), m)
    rows = S if moving.all() else _rows(S, active)
    part = S if moving.all() else transpose(_rows(transpose(rows), active))
    width = np.where(on, picked(r, active), 0.0)
    T, L = factored(hint, S, r, m, part, active, width)  # suggestions
    g = 1.0 / np.sqrt(np.clip(T, LEAST, MOST))
    h = np.where(on, up(g * width), 0.0)
    C = Approx.diagonal(np.ones(h.shape[-1])) - Approx(part, symmetric=True).scaled(h, h)
    M = Approx(rows).scaled(h, m)
    X = _each(linalg.blas.dtrsm, L, M.value)  # about L⁻¹M; whatever comes is checked
    off = M - Approx(L).times_as(Approx(X), _each(linalg.blas.dtrmm, L, X))
    lifted = up(1.0 + total(factor_rows(C, L), off.rows()))
    raised = up(_placed(m, active, np.where(on, (Near.of(lifted) / g / g).above, 0.0)) + off.T.rows())
    del rows, part, C, M, off  # they may be large
    return Step((P.scaled(m, m) + Approx(X).T.gram()).above(raised), active, m, h, g, lifted, L, X)


_WIDE = 512
"""Open neurons from which the low-rank step pays."""


def low_rank_step(W: Weight, alpha: Array, beta: Array, hint: Array) -> Step | None:
    """The step from S = W Wᵀ with multipliers T as hinted, slopes (1, n); None where the usual way is as good.

    With many neurons that see few inputs, W (n, d), n > d, and N = Wᵀ D_h² W, h = r T^-½, matrices are of the size of
    the inputs:

        D_m S D_m + D_m S D_h (I - D_h S D_h)⁻¹ D_h S D_m + T = D_m W (I - N)⁻¹ Wᵀ D_m + T,

    since Bᵀ(I - BBᵀ)⁻¹B = (I - BᵀB)⁻¹ - I for B = D_h W. Let L and Y be any floats with L Lᵀ ≈ C = I - N and L Y ≈ I.
    Then [C I; I YᵀY] is [Lᵀ Y]ᵀ[Lᵀ Y] + Δ with the blocks C - L Lᵀ, 0 and I - L Y, whose absolute row sums are at most
    ε on the rows of C and δ on the others. So

        C + εI ≻ 0,    (C + εI)⁻¹ ≼ K = YᵀY + D_δ,    C + εI = (1 + ε)(I - N/(1 + ε)),

    which is the step for multipliers (1 + ε)T: ``lifted`` is 1 + ε, and (I - N/(1 + ε))⁻¹ ≼ (1 + ε)K.
    """
    m, r = middles(alpha, beta)
    on = (r[0] > 0.0) & (np.asarray(abs(W).sum(axis=1)).ravel() > 0.0)  # others do not move
    given, d = hint[0][on], W.shape[1]
    if given.size < max(_WIDE, d) or not ((given > LEAST) & (given < MOST)).all():
        return None
    A, ones = Approx.weight(W), np.ones(d)
    g = np.where(on, 1.0 / np.sqrt(np.where(on, hint[0], 1.0)), 1.0)
    h = np.where(on, up(g * r[0]), 0.0)
    C = Approx.diagonal(ones) - Approx(A.scaled(h, ones).T.gram().above(), symmetric=True)
    (L,), (good,) = cholesky(C.value[None])  # a suggestion
    if not good:
        return None
    Y = Approx(linalg.solve_triangular(L, np.eye(d), lower=True, check_finite=False))
    off = Approx(np.eye(d)) - Approx(L) @ Y
    lifted = up(1.0 + total(factor_rows(C, L), off.rows()).max())
    root = up(np.sqrt(lifted)) * ones
    K = Approx(Y.T.gram().above(off.T.rows()), symmetric=True).scaled(root, root)
    P = (A @ K @ A.T).scaled(m[0], m[0])
    active, none = np.flatnonzero(on)[None], np.zeros((1, 0, 0))
    P_above = P.above(np.where(on, (Near.of(lifted) / g / g).above, 0.0))[None]
    return Step(P_above, active, m, h[active], g[active], np.full(active.shape, lifted), none, none)


def middles(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Middles m and radii r of slopes, m - r ≤ α ≤ β ≤ m + r."""
    m = 0.5 * (alpha + beta)
    return m, np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)


def picked(values: Array, which: Array) -> Array:
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


def _each(routine: Callable[..., Array], L: Array, M: Array) -> Array:
    """L⁻¹M or L M by a routine of BLAS, for stacks of lower triangles."""
    found = [routine(1.0, one.T, two.T, side=1).T for one, two in zip(L, M, strict=True)]
    return found[0][None] if len(found) == 1 else np.stack(found)
