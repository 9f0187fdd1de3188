"""T diagonal, the best for the next layer (the paper's Acc, by an interior-point method of our own)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from lipcert.methods.eigenvalues import inverse_of, symmetric, top
from lipcert.methods.method import Greedy, Stage
from lipcert.methods.scalar import best_scalar
from lipcert.model.arrays import Array


@dataclass(frozen=True)
class Diagonal(Greedy):
    """The diagonal T that minimises λmax(W⁺ P(T) W⁺ᵀ), layer by layer, started from Scalar's.

    By a Schur complement the problem is: minimise τ subject to

        F(τ, T) = [ τI - B - H T Hᵀ   G     ]
                  [ Gᵀ                T - R ]  ≽ 0,   H = W⁺_A, B = W⁺ D_m S D_m W⁺ᵀ, G = W⁺ D_m S D_r, R = D_r S D_r,

    linear in (τ, T). Newton's method follows the minimisers of κτ - logdet F for growing κ; a minimiser is within
    (order of F)/κ of the optimum, which tells when to stop.

    Parameters
    ----------
    tolerance
        Relative gap to the optimum at which the path ends.
    """

    tolerance: float = 1e-6

    def choose(self, stage: Stage) -> Array:
        T = np.zeros(stage.alpha.shape)
        active = stage.active
        if active.size:
            start = best_scalar(stage, 1e-3)
            T[active] = _follow(_Block.of(stage), start, self.tolerance) if start > 0 else 0.0
        return T


@dataclass(frozen=True, eq=False)
class _Block:
    """The data of F."""

    B: Array
    G: Array
    H: Array
    R: Array

    @staticmethod
    def of(stage: Stage) -> _Block:
        ahead = stage.ahead * (1.0 / (abs(stage.ahead).max() or 1.0))  # the size of W⁺ does not change the best T
        return _Block(*replace(stage, ahead=ahead).blocks())

    @property
    def order(self) -> int:
        return self.B.shape[0] + self.R.shape[0]

    def objective(self, T: Array) -> float:
        """λmax(W⁺ P(T) W⁺ᵀ), infinite outside the domain."""
        try:
            factor = np.linalg.cholesky(np.diag(T) - self.R)
        except np.linalg.LinAlgError:
            return np.inf
        X = linalg.solve_triangular(factor, self.G.T, lower=True, check_finite=False)
        return top(symmetric(self.B + X.T @ X + (self.H * T) @ self.H.T))[0]

    def factor(self, x: Array) -> Array | None:
        """Cholesky factor of F at x = (τ, T), or None where F is not positive definite."""
        p, tau, T = self.B.shape[0], x[0], x[1:]
        F = np.empty((self.order, self.order))
        F[:p, :p] = -self.B - (self.H * T) @ self.H.T
        F[:p, :p].flat[:: p + 1] += tau
        F[:p, p:], F[p:, :p] = self.G, self.G.T
        F[p:, p:] = np.diag(T) - self.R
        try:
            return np.linalg.cholesky(F)
        except np.linalg.LinAlgError:
            return None

    def newton(self, factor: Array, kappa: float) -> tuple[Array, float]:
        """Newton step in (τ, T) for κτ - logdet F, and its decrement."""
        p = self.B.shape[0]
        Y = inverse_of(factor)
        top_left, cross, corner = Y[:p, :p], Y[:p, p:], Y[p:, p:]
        YH = top_left @ self.H
        HYH, HYc = self.H.T @ YH, self.H.T @ cross
        size = 1 + self.R.shape[0]
        gradient = np.empty(size)
        gradient[0] = kappa - np.trace(top_left)
        gradient[1:] = np.diagonal(HYH) - np.diagonal(corner)
        hessian = np.empty((size, size))
        hessian[0, 0] = (top_left**2).sum()
        hessian[0, 1:] = hessian[1:, 0] = (cross**2).sum(axis=0) - (YH**2).sum(axis=0)
        hessian[1:, 1:] = HYH**2 + corner**2 - HYc**2 - HYc.T**2
        scale = 1.0 / np.sqrt(np.diagonal(hessian))
        scaled = scale[:, None] * hessian * scale
        scaled.flat[:: size + 1] += 1e-13
        lower = linalg.cho_factor(scaled, lower=True, check_finite=False)
        step = -scale * linalg.cho_solve(lower, scale * gradient, check_finite=False)
        return step, float(np.sqrt(max(-(gradient @ step), 0.0)))


def _follow(block: _Block, start: float, tolerance: float) -> Array:
    """The diagonal T at the end of the path, or Scalar's where that is better."""
    first = np.full(block.R.shape[0], start)
    worth = block.objective(first)
    if not (np.isfinite(worth) and worth > 0):
        return first
    x, kappa = np.append(1.2 * worth, first), block.order / (0.2 * worth)
    while True:
        x = _center(block, x, kappa)
        if block.order / kappa <= tolerance * worth:
            break
        kappa *= 12.0
    return x[1:] if block.objective(x[1:]) <= worth else first


def _center(block: _Block, x: Array, kappa: float) -> Array:
    """Newton's method to the minimiser for one κ."""
    factor, decrement = block.factor(x), np.inf
    for _ in range(25):
        if factor is None or decrement < 0.25:
            break
        try:
            step, decrement = block.newton(factor, kappa)
        except np.linalg.LinAlgError:
            break
        # the damped step is always feasible; try longer ones first
        for length in (1.0, 0.5, 1.0 if decrement < 0.25 else 1.0 / (1.0 + decrement)):
            ahead = block.factor(x + length * step)
            if ahead is not None:
                x, factor = x + length * step, ahead
                break
        else:
            break
    return x
