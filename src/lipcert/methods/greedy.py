"""Greedy methods: each layer's multipliers from what lies before it and the next weight.

ClosedForm, Scalar and Diagonal are the paper's CF, Fast and Acc.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from lipcert.methods.coupled import coupled_multipliers
from lipcert.methods.method import Greedy, Stage, smaller, symmetric
from lipcert.methods.semidefinite import Inequality, SolverFailed, solve
from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.suggest.hints import View

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


_SMALL = 64
"""Up to this size all eigenvalues of a stack of matrices take less time than the largest of each by itself."""
_ENOUGH, _CLOSE = 1e-2, 2e-2
"""Relative tolerance of eigenvectors of large matrices: eigenvalues change by its square, and near the best t the bound
by the square of that. If t is within the second of s, s is computed to more digits."""


@dataclass(frozen=True)
class ClosedForm(Greedy):
    """The t that minimises an upper bound of λmax(W⁺ P(t) W⁺ᵀ).

    With R = D_r S D_r on the active neurons, s = λmax(R), σ = λmax(W⁺ D_m S D_m W⁺ᵀ) and e = λmax(W⁺_A W⁺_Aᵀ):

        λmax(W⁺ P(t) W⁺ᵀ) ≤ σ + σ s/(t - s) + t e,   least at t = s + sqrt(s σ / e).

    The middle term holds because S^½ D_r (t - R)⁻¹ D_r S^½ ≼ s/(t - s)·I.
    """

    def choose(self, stage: Stage) -> Array:
        return closed_form(stage)

    def choose_all(self, view: View) -> Array:
        if view.form is not None:
            return coupled_multipliers(view, 0)
        return _stacked(view) if view.S.shape[-1] <= _SMALL else super().choose_all(view)


def closed_form(stage: Stage) -> Array:
    """The multipliers of :class:`ClosedForm` for one layer."""
    T = np.zeros(stage.alpha.shape)
    active = stage.active
    if not active.size:
        return T
    ahead = stage.ahead if min(stage.ahead.shape) > ITERATIVE else stage.target
    s, sigma, e = _spread(stage), _sigma(stage, ahead), _gain(ahead, active)
    t = _best(s, sigma, e)
    T[active] = t if t > (1.0 + _CLOSE) * s else _best(_spread(stage, 1e-10), sigma, e)
    return T


def _spread(stage: Stage, tolerance: float = _ENOUGH) -> Array:
    """λmax(D_r S D_r)."""
    active, r = stage.active, stage.r
    block = stage.S[np.ix_(active, active)]
    block *= r[active, None]
    block *= r[active]
    return largest(block, tolerance)


def _sigma(stage: Stage, ahead: Weight) -> Array:
    """λmax(W⁺ D_m S D_m W⁺ᵀ)."""
    S, m = stage.S, stage.m
    if ahead.shape[0] <= ITERATIVE or not np.isfinite(S.sum()):
        return largest(times(times(m[:, None] * S * m, ahead.T).T, ahead.T))
    back = ahead.T

    def forth(u: Array) -> Array:
        inner: Array = S @ (m * (back @ u))  # as one expression this takes mypy minutes
        return ahead @ (m * inner)

    return largest_of(ahead.shape[0], forth, _ENOUGH)


def _gain(ahead: Weight, active: Array) -> Array:
    """λmax(W⁺_A W⁺_Aᵀ)."""
    if min(ahead.shape[0], active.size) > ITERATIVE:
        back, on = ahead.T, np.zeros(ahead.shape[1])
        on[active] = 1.0
        return largest_of(ahead.shape[0], lambda u: ahead @ (on * (back @ u)), _ENOUGH)
    head = ahead[:, active]
    gram = head.T @ head if head.shape[0] > head.shape[1] else head @ head.T  # the smaller of the two
    return largest(dense(gram), _ENOUGH)


def _stacked(view: View) -> Array:
    """The same for a stack of regions; blocks have as many neurons as are open in one of the regions."""
    r, m = 0.5 * (view.beta - view.alpha), 0.5 * (view.alpha + view.beta)
    most = int((r > 0).sum(axis=-1).max(initial=0))
    if not most:
        return np.zeros(r.shape)
    active = np.argsort(r <= 0, axis=-1, kind="stable")[:, :most]
    on = np.take_along_axis(r, active, -1)
    ahead = dense(view.ahead) if view.ahead.ndim == 2 else view.ahead
    gram, target = np.swapaxes(ahead, -1, -2) @ ahead, smaller(ahead)
    s = largest(_block(view.S, active, on))
    e = largest(_block(np.broadcast_to(gram, view.S.shape), active, np.where(on > 0, 1.0, 0.0)))
    sigma = largest(symmetric(target @ (m[:, :, None] * view.S * m[:, None, :]) @ np.swapaxes(target, -1, -2)))
    return np.where(r > 0, _best(s, sigma, e)[:, None], 0.0)


def _block(stack: Array, active: Array, scale: Array) -> Array:
    """The rows and columns of the active neurons, scaled."""
    rows = np.take_along_axis(stack, active[:, :, None], -2)
    return scale[:, :, None] * np.take_along_axis(rows, active[:, None, :], -1) * scale[:, None, :]


def _best(s: Array, sigma: Array, e: Array) -> Array:
    """S + sqrt(sσ/e), at least a little above s; zero where the active neurons do not move at all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(e > 0, s + np.sqrt(s * np.maximum(sigma, 0.0) / e), 2.0 * s)
    return np.where(s > 0, np.maximum(t, s * (1.0 + 1e-6)), 0.0)


_TRIALS = 40
"""Most trials; about five are usual."""
_GRID, _ZOOMS = np.linspace(0.0, 1.0, 32), 7
"""The minimiser of the model is found to 41·(2/31)⁷ ≈ 2e-7 in log(t - s)."""
_CLEAR = 1e-8
"""Relative tolerance of s, which is enlarged by it: smaller t are not feasible."""


@dataclass(frozen=True)
class Scalar(Greedy):
    """The t > s = λmax(R) that minimises λmax(W⁺ P(t) W⁺ᵀ), a convex function of t.

    With B = W⁺ D_m S D_m W⁺ᵀ, G = W⁺ D_m S D_r and E = W⁺_A W⁺_Aᵀ the objective is λmax(B + G (t - R)⁻¹ Gᵀ + tE). For a
    fixed unit vector u, uᵀG (t - R)⁻¹ Gᵀu is a sum of g/(t - ρ) over the eigenvalues ρ of R, and at least the c/(t - p)
    that has its value and slope at a trial. The eigenvectors u met so far thus give a lower model, whose minimiser is
    the next trial; the gap between trial and model says when to stop.

    Parameters
    ----------
    tolerance
        Relative gap to the best t at which the search stops.
    """

    tolerance: float = 1e-6

    def choose(self, stage: Stage) -> Array:
        T = np.zeros(stage.alpha.shape)
        if stage.active.size:
            T[stage.active] = best_scalar(stage, self.tolerance)
        return T

    def choose_all(self, view: View) -> Array:
        return coupled_multipliers(view, 1) if view.form is not None else super().choose_all(view)


def best_scalar(stage: Stage, tolerance: float) -> float:
    """The minimising t, within the tolerance in the objective."""
    B, G, H, R = stage.blocks()
    s = float(largest(R, _CLEAR)) * (1.0 + _CLEAR)
    if s <= 0.0:
        return 0.0
    E, right, diagonal = H @ H.T, np.asfortranarray(G.T), np.arange(len(R))
    t, best, least, before = 2.0 * s, 2.0 * s, np.inf, (0.0, 0.0)
    cuts: list[tuple[float, float, float, float, float]] = []
    for _ in range(_TRIALS):
        core = -R
        core[diagonal, diagonal] += t
        factor = np.linalg.cholesky(core)
        half = linalg.blas.dtrsm(1.0, factor.T, right, lower=0, trans_a=1)  # L⁻¹Gᵀ
        value, u = top(half.T @ half + B + t * E, 1e-8)
        z = half @ u
        y = linalg.blas.dtrsv(factor.T, z)  # (t - R)⁻¹Gᵀu
        cuts.append((float(u @ (B @ u)), float(z @ z), float(y @ y), t, float(u @ (E @ u))))
        best, least = (t, value) if value < least else (best, least)
        here = np.log(t - s), (cuts[-1][-1] - cuts[-1][2]) * (t - s)  # log(t - s) and the slope in it
        t, floor = _model(cuts, s)
        if least - floor <= tolerance * least:
            break
        if here[1] * before[1] < 0.0:  # the minimum is between the two: where is the slope zero?
            t = s + float(np.exp(before[0] - before[1] * (here[0] - before[0]) / (here[1] - before[1])))
        before = here
    return best


def _model(cuts: list[tuple[float, float, float, float, float]], s: float) -> tuple[float, float]:
    """Minimiser and minimum over t = s + s·exp(x) of the largest b + c/(t - p) + e t of the cuts.

    Many points are tried at once, then many between the neighbours of the best.
    """
    b, value, fall, at, e = (np.array(part)[:, None] for part in zip(*cuts, strict=True))
    rate = np.divide(fall, value, out=np.zeros(value.shape), where=value > 0.0)  # 1/(at - p)
    before, low, high = 1.0 - at * rate, np.log(1e-9), np.log(1e9)
    for _ in range(_ZOOMS):
        x = low + (high - low) * _GRID
        t = s + s * np.exp(x)
        heights = (b + value / (before + rate * t) + e * t).max(axis=0)
        least = int(heights.argmin())
        low, high = x[max(least - 1, 0)], x[min(least + 1, len(x) - 1)]
    return float(t[least]), float(heights[least])


_NOISE = 1e-14
"""Directions of S with less than this share of its largest eigenvalue are rounding."""


_ROUNDING = 1e-10
"""Slopes that are open by less, relatively, are so by rounding: the program would be about noise."""


@dataclass(frozen=True)
class Diagonal(Greedy):
    """The diagonal T that minimises λmax(W⁺ P(T) W⁺ᵀ), layer by layer, started from Scalar's.

    With S = LLᵀ, Δv = Lu and Λ = 1/T the bound is 1/c for the largest c with

        ‖u‖² + Σ Λ_k (Δz - αΔv)_k (Δz - βΔv)_k - c‖W⁺Δz‖² ≥ 0    for all u and Δz,

    one small semidefinite program per layer.

    Parameters
    ----------
    tolerance
        Relative gap to the optimum at which the search stops.
    """

    tolerance: float = 1e-6

    def choose(self, stage: Stage) -> Array:
        T = np.zeros(stage.alpha.shape)
        active = stage.active
        T[active] = t = best_scalar(stage, 1e-3) if active.size else 0.0
        if t > 0.0 and float(stage.r.max()) > _ROUNDING * float(np.abs(stage.m).max()):
            with suppress(SolverFailed):
                T[active] = 1.0 / solve(_inequality(stage, 0.8 / t), self.tolerance).x
        return T

    def choose_all(self, view: View) -> Array:
        return coupled_multipliers(view, 4) if view.form is not None else super().choose_all(view)


def _inequality(stage: Stage, start: float) -> Inequality:
    """The inequality of :class:`Diagonal` in the coordinates (Δz of the active neurons, u); others have Δz = mΔv."""
    values, vectors = np.linalg.eigh(stage.S)
    seen = values > _NOISE * values[-1]
    L, ahead, on = vectors[:, seen] * np.sqrt(values[seen]), dense(stage.target), stage.active
    constant = np.diag(np.repeat([0.0, 1.0], [on.size, L.shape[1]]))
    slopes = (slope[on, None] for slope in (stage.alpha, stage.beta))
    left, right = (sparse.csc_array(np.vstack([np.eye(on.size), -(slope * L[on]).T])) for slope in slopes)
    affine = np.where(stage.r > 0.0, 0.0, stage.m)
    output = np.vstack([ahead[:, on].T, (affine[:, None] * L).T @ ahead.T])
    scale = 1.0 / (float(np.abs(output).max()) or 1.0)  # the size of W⁺ does not change the best T
    return Inequality(constant, left, right, scale * output, np.arange(on.size), np.full(on.size, start))
