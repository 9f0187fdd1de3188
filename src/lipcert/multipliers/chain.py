"""The bound as one smooth function of all multipliers, with its gradient.

For fixed slopes the whole sweep is a function of T_1 … T_{N-1}. Its value takes one forward sweep and its
gradient one backward sweep, so both cost O(layers · width³) time and O(layers · width²) memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.condense import condensed
from lipcert.ellipsoid import symmetric
from lipcert.network import Network, dense, times
from lipcert.typing import Array

Slopes = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Value:
    """f(x), its gradient, and the logarithm of the bound at x (without the barrier)."""

    f: float
    gradient: Array
    log_bound: float


@dataclass(frozen=True, eq=False)
class _Step:
    """What the backward sweep needs of one layer; matrices are relative to the running scale."""

    T: Array
    s: Array  # r T^-½ on the active neurons
    scaled: Array  # D_s S, (active, n)
    factor: Array  # Cholesky factor of C = I - D_s S D_s
    K: Array  # S + S D_s C⁻¹ D_s S
    scale: float


class Chain:
    """f(x) = log τ + μ·barrier in x = log T (true scale, active neurons of all layers in a row).

    barrier = -Σ_i logdet(I - D_s S_i D_s) - logdet(I - S_N/τ),  s = r T^-½,

    with τ > λmax(S_N) at its minimising value, where μ·tr(S_N (τ - S_N)⁻¹) = 1. As μ → 0, f tends to log L².
    """

    def __init__(self, network: Network, slopes: list[Slopes]) -> None:
        kept = condensed(network.layers, slopes)
        self.weights = [*(part.weight for part in kept), kept[-1].ahead if kept else network.layers[0].weight]
        self.m = [0.5 * (part.alpha + part.beta) for part in kept]
        self.r = [0.5 * (part.beta - part.alpha) for part in kept]
        self.active = [np.flatnonzero(r > 0) for r in self.r]
        self.neurons = [part.neurons[active] for part, active in zip(kept, self.active, strict=True)]
        self.cuts = np.cumsum([0] + [len(active) for active in self.active])
        self.first = dense(self.weights[0] @ self.weights[0].T)

    @property
    def size(self) -> int:
        """Number of variables."""
        return int(self.cuts[-1])

    def split(self, x: Array) -> list[Array]:
        """The part of x that belongs to each layer."""
        return [x[a:b] for a, b in zip(self.cuts[:-1], self.cuts[1:], strict=True)]

    def __call__(self, x: Array, mu: float) -> Value | None:
        """The value f and its gradient, or None where some T - D_r S D_r is not positive definite."""
        tape: list[_Step] = []
        S, log_scale, barrier = self.first, 0.0, 0.0
        for m, r, active, part, weight in zip(
            self.m, self.r, self.active, self.split(x), self.weights[1:], strict=True
        ):
            scale = float(np.trace(S)) / len(S) or 1.0
            S, log_scale = S / scale, log_scale + np.log(scale)
            T = np.exp(part - log_scale)
            s = r[active] / np.sqrt(T)
            scaled = s[:, None] * S[active]
            core = -scaled[:, active] * s
            core.flat[:: active.size + 1] += 1.0
            factor, failed = linalg.lapack.dpotrf(core, lower=1, clean=1) if active.size else (core, 0)
            if failed:
                return None
            barrier -= 2.0 * np.log(np.diagonal(factor)).sum()
            X = linalg.solve_triangular(factor, scaled, lower=True, check_finite=False) if active.size else scaled
            K = S + X.T @ X
            P = m[:, None] * K * m
            P[active, active] += T
            tape.append(_Step(T, s, scaled, factor, K, scale))
            S = symmetric(times(times(P, weight.T).T, weight.T))
        values, vectors = np.linalg.eigh(S)
        top = float(values[-1])
        if not (np.isfinite(top) and top > 0.0):
            return None
        share = np.maximum(values / top, 0.0)
        tau = _level(share, mu)
        f = np.log(tau) + np.log(top) + log_scale + mu * (barrier - np.log1p(-share / tau).sum())
        adjoint = (vectors * (mu / (top * (tau - share)))) @ vectors.T
        return Value(float(f), self._backward(tape, adjoint, mu), 0.5 * float(np.log(top) + log_scale))

    def _backward(self, tape: list[_Step], adjoint: Array, mu: float) -> Array:
        """Gradient in x. With K̄ = D_m P̄ D_m and H = I + S D_s C⁻¹ D_s:

        S̄ = Hᵀ K̄ H + μ D_s C⁻¹ D_s,   ∂f/∂log T_j = T_j P̄_jj - s_j² (K K̄ K)_jj + μ(1 - (C⁻¹)_jj).
        """
        parts: list[Array] = []
        for step, m, active, weight in zip(
            tape[::-1], self.m[::-1], self.active[::-1], self.weights[:0:-1], strict=True
        ):
            P_bar = times(times(adjoint, weight).T, weight)
            K_bar = m[:, None] * P_bar * m
            adjoint = K_bar
            if active.size:
                inverse = linalg.lapack.dpotri(step.factor, lower=1)[0]
                inverse = np.tril(inverse) + np.tril(inverse, -1).T
                rows = step.K[active]
                curl = np.einsum("ij,ij->i", rows @ K_bar, rows)
                parts.append(step.T * np.diagonal(P_bar)[active] - step.s**2 * curl + mu * (1.0 - np.diagonal(inverse)))
                H = (step.scaled.T @ inverse) * step.s  # the active columns of H - I
                KH = K_bar @ H
                adjoint[:, active] += KH
                adjoint[active, :] += KH.T
                adjoint[np.ix_(active, active)] += H.T @ KH + mu * (step.s[:, None] * inverse * step.s)
            else:
                parts.append(np.zeros(0))
            adjoint = adjoint / step.scale
        return np.concatenate(parts[::-1]) if parts else np.zeros(0)


def _level(share: Array, mu: float) -> float:
    """The τ > 1 with μ Σ share/(τ - share) = 1, for eigenvalues relative to the largest."""
    low, high = 1.0 + mu, 1.0 + mu * share.size
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mu * (share / (middle - share)).sum() > 1.0 else (low, middle)
    return 0.5 * (low + high)
