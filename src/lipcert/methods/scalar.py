"""T = tI with the best t (the paper's Fast, without an SDP)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.methods.eigenvalues import largest, top
from lipcert.methods.method import Greedy, Stage
from lipcert.model.arrays import Array

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
