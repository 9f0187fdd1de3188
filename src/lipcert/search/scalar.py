"""T = tI with the best t (the paper's Fast, without an SDP)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.model.arrays import Array
from lipcert.search.ellipsoid import symmetric, top
from lipcert.search.method import Greedy
from lipcert.search.stage import Stage

_GRID, _ZOOMS = np.arange(32.0), 7
"""The minimiser of the model is found to 41·(2/31)⁷ ≈ 2e-7 in log(t - s)."""

_WIDE = 400
"""Open neurons from which half the work of a product counts."""


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
