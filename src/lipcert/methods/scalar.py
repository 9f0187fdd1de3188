"""T = tI with the best t (the paper's Fast, without an SDP)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import linalg

from lipcert.methods.eigenvalues import largest, symmetric, top
from lipcert.methods.method import Greedy, Stage
from lipcert.model.arrays import Array, dense

_GRID, _ZOOMS = np.arange(32.0), 7
"""The minimiser of the model is found to 41·(2/31)⁷ ≈ 2e-7 in log(t - s)."""

_WIDE = 400
"""From so many open neurons a symmetric product, which is half the work, is faster."""
_LARGE, _TRIALS = 1000, 12
"""From so many open neurons a few Cholesky factors, one for each trial, take less time than all eigenvectors."""


@dataclass(frozen=True)
class Scalar(Greedy):
    """The t > s = λmax(R) that minimises λmax(W⁺ P(t) W⁺ᵀ), a convex function of t.

    One eigendecomposition R = Q diag(ρ) Qᵀ turns the objective into
    λmax(B + G diag(1/(t - ρ)) Gᵀ + tE) with B = W⁺ D_m S D_m W⁺ᵀ, G = W⁺ D_m S D_r Q, E = W⁺_A W⁺_Aᵀ. For a fixed unit
    vector u the quadratic form of that matrix lies below it, so the eigenvectors met so far give a lower model
    whose minimiser is the next trial; the gap between trial and model says when to stop.

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
    if stage.active.size >= _LARGE:
        return _by_factors(stage, tolerance)
    line = _Line.of(stage)
    s = float(line.rho[-1])
    if s <= 0.0:
        return 0.0
    low, high = np.log(1e-9), np.log(1e9)  # t = s + s·exp(x)
    best, best_x = np.inf, 0.0
    x = 0.0
    for _ in range(40):
        value = line.trial(s, x)
        if value < best:
            best, best_x = value, x
        x, floor = line.model(s, low, high)
        if best - floor <= tolerance * best:
            break
    return s + s * float(np.exp(best_x))


def _by_factors(stage: Stage, tolerance: float) -> float:
    """The same from a Cholesky factor L of t - R for each trial.

    For the top eigenvector u of a trial let φ(t) be the quadratic form of u, and y = (t - R)⁻¹Gᵀu. Then φ' = e - |y|²
    with e = uᵀEu, and φ'' = 2|L⁻¹y|². The function a + c/(t - p) + et with the same derivatives has its minimum at
    p + (t - p)|y|/√e, t - p = |y|²/|L⁻¹y|². From the second trial on, a secant of the slope in log(t - s) knows how u
    turns. What the objective will still fall tells when to stop.
    """
    B, G, _, R = stage.blocks()
    head, right, diagonal = stage.target[:, stage.active], np.asfortranarray(G.T), np.arange(len(R))
    E, s = dense(head @ head.T), float(largest(R, 1e-8))
    if s <= 0.0:
        return 0.0
    steep = float(largest(E, 1e-3))
    t = s + float(np.sqrt(s * max(float(largest(B, 1e-3)), 0.0) / steep)) if steep > 0.0 else 2.0 * s
    low, high, best, least = s, np.inf, max(t, s * (1.0 + 1e-6)), np.inf
    t, before = best, (0.0, 0.0)
    for _ in range(_TRIALS):
        core = -R
        core[diagonal, diagonal] += t
        factor = np.linalg.cholesky(core)
        half = linalg.blas.dtrsm(1.0, factor.T, right, lower=0, trans_a=1)  # L⁻¹Gᵀ
        matrix = half.T @ half
        matrix += B
        matrix += t * E
        value, u = top(matrix, 1e-8)
        y = linalg.solve_triangular(factor, half @ u, lower=True, trans=1, check_finite=False)
        curved = linalg.solve_triangular(factor, y, lower=True, check_finite=False)
        e, square, bend = float(u @ (E @ u)), float(y @ y), float(curved @ curved)
        best, least = (t, value) if value < least else (best, least)
        low, high = (t, high) if e < square else (low, t)
        if not (e > 0.0 and bend > 0.0):
            break
        x, slope = float(np.log(t - s)), (e - square) * (t - s)
        away = square / bend
        ahead = away * float(np.sqrt(square / e))
        falls, following = e * (away - ahead) + square * away * (1.0 - away / ahead), t - away + ahead
        steeper = (slope - before[1]) * (x - before[0])
        if before != (0.0, 0.0) and steeper > 0.0:
            way = -slope * (x - before[0]) ** 2 / steeper
            falls, following = 0.5 * abs(slope * way), s + float(np.exp(x + np.clip(way, -3.0, 3.0)))
        if falls <= tolerance * value:
            break
        t, before = following, (x, slope)
        if not low < t < high:
            t = s + float(np.sqrt(max(low - s, 1e-3 * (high - s)) * (high - s))) if high < np.inf else 2.0 * low
    return best


@dataclass(eq=False)
class _Line:
    """The objective on the line T = tI and the lower model built from its eigenvectors."""

    rho: Array
    B: Array
    G: Array
    E: Array
    cuts: list[tuple[float, Array, float]] = field(default_factory=list)

    @staticmethod
    def of(stage: Stage) -> _Line:
        B, G, H, R = stage.blocks()
        rho, Q = np.linalg.eigh(R)
        return _Line(rho, B, G @ Q, H @ H.T)

    def trial(self, s: float, x: float) -> float:
        """The objective at t = s + s·exp(x); its top eigenvector joins the model."""
        gap = (s - self.rho) + s * np.exp(x)
        half = self.G / (np.sqrt(gap) if len(gap) > _WIDE else gap)  # of wide layers, a symmetric product
        middle = half @ (half.T if len(gap) > _WIDE else self.G.T)
        value, u = top(symmetric(self.B + middle + (s + s * np.exp(x)) * self.E))
        self.cuts.append((float(u @ self.B @ u), (self.G.T @ u) ** 2, float(u @ self.E @ u)))
        return value

    def model(self, s: float, low: float, high: float) -> tuple[float, float]:
        """Minimiser and minimum of max over the cuts, each b + Σ g/(t - ρ) + t e, convex in t.

        Many points are tried at once, then many between the neighbours of the best.
        """
        constant, weights, slope = (np.array(part) for part in zip(*self.cuts, strict=True))
        for _ in range(_ZOOMS):
            x = _GRID * ((high - low) / _GRID[-1]) + low
            x[-1] = high
            more = s * np.exp(x)
            heights = weights @ (1.0 / ((s - self.rho)[:, None] + more)) + slope[:, None] * (s + more)
            values = (constant[:, None] + heights).max(axis=0)
            best = int(np.argmin(values))
            low, high = x[max(best - 1, 0)], x[min(best + 1, len(x) - 1)]
        return float(x[best]), float(values[best])
