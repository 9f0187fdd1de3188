"""T = tI from three eigenvalues (the paper's CF, without its slope adjustment)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.kernel.guide import View
from lipcert.methods.eigenvalues import ITERATIVE, largest, largest_of, symmetric
from lipcert.methods.method import Greedy, Stage, smaller
from lipcert.model.arrays import Array, Weight, dense, times

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
    return largest(r[active, None] * stage.S[np.ix_(active, active)] * r[active], tolerance)


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
