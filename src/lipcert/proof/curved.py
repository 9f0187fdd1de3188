"""How large the Jacobian of a network can be over a ball, to second order: slopes that move together.

Let x = c + δ with ‖δ‖ ≤ r, and u a direction. Vectors run over all hidden neurons, layer after layer; ∘ is the product
entry by entry. With constant slopes σ the derivative of the pre-activations along u is p = Bu, that of the output J0 u.
With the slopes D at x it is

    V = p + X,   X = K f,   f = (D - σ)∘V,   and the Jacobian's J u = J0 u + G f,

where B, K, G, J0 are products of weights and σ, and K passes from a layer to later ones only. Each slope is near a
parabola of its pre-activation's change Δ = v(x) - v(c),

    D - σ = h + e,   h = τ∘Δ + ½ψ∘Δ∘Δ,   |e| ≤ ē,   Δ = Bδ + q,   q = ∫₀¹ X(c + tδ)[δ] dt.

There are two rules. If xxᵀ ≼ A and yyᵀ ≼ C then (x∘y)(x∘y)ᵀ ≼ A∘C: the difference is (A - xxᵀ)∘C + xxᵀ∘(C - yyᵀ), and
products entry by entry of positive semidefinite matrices are positive semidefinite (Schur). So neurons that look in
different directions cannot all have extreme slopes at once. And if x_i x_iᵀ ≼ θ_i A_i then
(Σx_i)(Σx_i)ᵀ ≼ (Σθ_i)(ΣA_i), by Cauchy and Schwarz. From them, with any Ψ ≻ 0, t > 0, a > 0 and positive shares
c1 + c2 < 1, a1 + a2 + a3 ≤ 1:

    S = BBᵀ,   S_Ψ = BΨBᵀ,   Y = K F Kᵀ,   Q = r²μ·K(⅓F + ⅔E)Kᵀ,   M = (1 + a)r²S + (1 + 1/a)Q
    H = D_τ(r²S/a1 + Q/a2)D_τ + D_ψ(M∘M)D_ψ/(4a3)
    F = H∘(S_Ψ + Y/c1) + E,   E = (1 + λ/c2)D_(tē),   λ = λmax(D_√(ē/t) Y D_√(ē/t))
    Θ = (Ψ⁻¹ + Bᵀ D_(ē/t) B)/(1 - c1 - c2),   μ = λmax(Θ)

    qqᵀ ≼ Q,   ΔΔᵀ ≼ M,   hhᵀ ≼ H,   XXᵀ ≼ (uᵀΘu) Y,   f fᵀ ≼ (uᵀΘu) F.

Layer after layer: Y and Q of a layer take F of earlier ones. Of the four parts h∘p, h∘X, e∘p, e∘X of f the squares are
at most uᵀΨ⁻¹u, c1·uᵀΘu, uᵀBᵀD_(ē/t)Bu and c2·uᵀΘu times the terms of F, and these four add up to uᵀΘu. At c + tδ the
matrix H, and so F - E, has at least a factor t²; the mean of t² is ⅓. Last, for 0 < s < 1/μ and a unit vector u,

    ‖J‖² ≤ λmax(J0 (I - sΘ)⁻¹ J0ᵀ + G F Gᵀ/s).

All hints are multipliers: whatever they are, the bound holds. A neuron without curvature (ReLU) has τ = ψ = 0 and half
the width of its slopes as ē.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Region
from lipcert.proof.hints import Curved
from lipcert.proof.near import congruence, largest_eigenvalue_above
from lipcert.proof.point import trajectory
from lipcert.proof.projection import projection
from lipcert.proof.rounding import LOOSE, UP, gamma, raise_diagonal, size_above, stretched, up
from lipcert.proof.slope_fits import fit_error

_FLOOR: Final = 2.0**-500
"""More than underflow can lose in what is computed here: no number is above _TALLEST."""
_TALLEST: Final = 2.0**100
"""Entries of matrices are refused beyond this, so that products of nine still do not overflow."""
_SMALLEST_SHARE: Final = 2.0**-20
"""Shares of a sum are at least this: smaller ones would multiply rounding errors."""


def prove_curved(network: Network, region: Region, hints: Curved) -> float:
    """At least the Lipschitz constant of the network over a ball, rounded up."""
    if not isinstance(region, Ball) or not region.plain or network.depth < 2:
        raise ProofFailed("bounds to second order are about ℓ2 balls, and networks with a hidden layer")
    fewer = projection(network)
    if fewer is None:
        return _Curved(network, region.center, float(region.radius), hints).bound()
    ball = fewer.image(region)
    bound = _Curved(fewer.network, ball.center, float(ball.radius), hints).bound()
    return float(up(np.asarray(bound * fewer.stretch)))


class _Curved:
    """The quantities of this module's equations, as floats that are at least the real ones."""

    def __init__(self, network: Network, center: Array, radius: float, hints: Curved) -> None:
        self.weights = [dense(layer.weight) for layer in network.layers]
        self.neurons = [layer.neurons for layer in network.layers[:-1]]
        self.values = trajectory(network, center[None])
        self.r = radius
        self.ends = np.cumsum([0, *(len(weight) for weight in self.weights[:-1])])
        count, outputs = int(self.ends[-1]), network.outputs
        shapes = (hints.slopes.shape, hints.balance.shape, hints.mix.shape, hints.weights.shape)
        if shapes != ((3, count), (count,), (outputs, outputs), (6,)):
            raise ProofFailed(f"the hints to second order are not for this network: their shapes are {shapes}")
        if not all(np.isfinite(part).all() for part in (hints.slopes, hints.balance, hints.mix, hints.weights)):
            raise ProofFailed("the hints to second order are not finite")
        self.slopes, mix = _tame(hints.slopes), _tame(hints.mix)
        self.t = np.clip(hints.balance, 1.0 / 2.0**40, 2.0**40)
        self.c1, self.c2, self.a2, self.a3, self.a, share = np.clip(hints.weights, _SMALLEST_SHARE, 2.0**20).tolist()
        self.rest, self.a1 = 1.0 - self.c1 - self.c2 - 2.0**-50, 1.0 - self.a2 - self.a3 - 2.0**-50
        self.share = min(share, 1.0 - 2.0**-20)
        if not min(self.rest, self.a1) >= _SMALLEST_SHARE:
            raise ProofFailed("shares of the hints to second order do not leave anything for the other terms")
        self._maps()
        self.Psi, self.inverse = self._metric(mix)

    def _maps(self) -> None:
        """[B | K], and [J0 | G] as the last row block, with radii: what Bu + Kf and J0 u + Gf are made of."""
        d = self.weights[0].shape[1]
        middle = np.hstack([self.weights[0], np.zeros((int(self.ends[1]), int(self.ends[-1])))])
        radius = gamma(LOOSE) * np.abs(middle)
        middles, radii = [_tame(middle)], [radius]
        for k, weight in enumerate(self.weights[1:]):
            sigma, size = self.slopes[0, self.ends[k] : self.ends[k + 1], None], np.abs(weight)
            blur = np.abs(sigma) * (gamma(weight.shape[1] + LOOSE + 4) * np.abs(middle) + radius)
            middle, own = weight @ (sigma * middle), slice(d + self.ends[k], d + self.ends[k + 1])
            radius = size @ blur * UP + _FLOOR
            middle[:, own] += weight
            radius[:, own] += gamma(LOOSE + 4) * (size + np.abs(middle[:, own]))
            middles.append(_tame(middle))
            radii.append(radius)
        self.middle, self.radius, self.d = np.vstack(middles), np.vstack(radii), d

    def _metric(self, mix: Array) -> tuple[Array, Array]:
        """Ψ = I + NᵀN about, for N = mix·J0, and a matrix that is at least its inverse."""
        N = mix @ self.middle[self.ends[-1] :, : self.d]
        Psi = np.eye(self.d) + N.T @ N
        Psi = _tame(0.5 * (Psi + Psi.T))
        return Psi, inverse_above(Psi)

    def bound(self) -> float:
        """At least the norm of the Jacobian anywhere in the ball."""
        F, E, mu = np.zeros((0, 0)), np.zeros(0), 0.0
        fits = np.zeros(0)
        for k, (neurons, (value, error)) in enumerate(zip(self.neurons, self.values, strict=True)):
            assert neurons is not None
            start, end = self.ends[k], self.ends[k + 1]
            B, blur = self.middle[:end, : self.d], self.radius[:end, : self.d]
            S, S_Psi = congruence(None, B, radius=blur), congruence(self.Psi, B, radius=blur)
            Y, Q = np.zeros((end, end)), np.zeros((end, end))
            if k:
                K, edge = self.middle[:end, self.d : self.d + start], self.radius[:end, self.d : self.d + start]
                Y = congruence(F, K, radius=edge)
                mean = raise_diagonal(_raised(F / 3.0, np.abs(F)), up(2.0 / 3.0 * E))
                mean = _raised(mean * (self.r * (self.r * mu)), np.abs(mean) * (self.r * (self.r * mu)))
                Q = congruence(mean, K, radius=edge)
            far = stretched(self.r * np.sqrt(np.diagonal(S)) + np.sqrt(np.diagonal(Q)), 4)[start:]
            fits = np.append(fits, fit_error(neurons, value[0], error[0], far, self.slopes[:, start:end]))
            if not (fits < _TALLEST).all():
                raise ProofFailed(f"the slopes of layer {k + 1} have no finite bounds")
            H, size = self._slope_deviations(S, Q)
            across = _raised(S_Psi + Y / self.c1, np.abs(S_Psi) + np.abs(Y) / self.c1)
            E = self._uncertain(fits, Y)
            F = _tame(raise_diagonal(_raised(H * across, size * np.abs(across)), E))
            Theta = self._budget(B, blur, fits)
            mu = float(largest_eigenvalue_above(Theta))
        return self._norm(F, Theta, mu)

    def _slope_deviations(self, S: Array, Q: Array) -> tuple[Array, Array]:
        """H ≽ hhᵀ, and its entries' sizes."""
        _, tau, psi = self.slopes[:, : len(S)]
        rr = self.r * self.r
        moved = (1.0 + self.a) * rr * S + (1.0 + 1.0 / self.a) * Q
        moved = _raised(moved, (1.0 + self.a) * rr * np.abs(S) + (1.0 + 1.0 / self.a) * np.abs(Q))
        first = tau[:, None] * (rr / self.a1 * S + Q / self.a2) * tau
        size = np.abs(tau)[:, None] * (rr / self.a1 * np.abs(S) + np.abs(Q) / self.a2) * np.abs(tau)
        second = (psi[:, None] * (moved * moved) * psi) / (4.0 * self.a3)
        size = size + np.abs(second)
        H = _raised(first + second, size)
        return H, np.abs(H)

    def _uncertain(self, fits: Array, Y: Array) -> Array:
        """The diagonal matrix E."""
        t = self.t[: len(fits)]
        g = np.sqrt(fits / t)
        scaled = g[:, None] * Y * g
        top = float(largest_eigenvalue_above(_raised(scaled, np.abs(scaled)))) if Y.any() else 0.0
        return np.asarray(up((1.0 + top / self.c2) * (t * fits) * UP))

    def _budget(self, B: Array, blur: Array, fits: Array) -> Array:
        """Θ of the layers so far."""
        omega = np.diag(up(fits / self.t[: len(fits)]))
        total = self.inverse + congruence(omega, np.ascontiguousarray(B.T), radius=np.ascontiguousarray(blur.T))
        return _tame(_raised(total / self.rest, np.abs(total) / self.rest))

    def _norm(self, F: Array, Theta: Array, mu: float) -> float:
        s = self.share / mu
        left = np.eye(self.d) - s * Theta
        away = 8.0 * gamma(1) * (1.0 + np.abs(left)).sum(axis=-1) * UP
        left = left - np.diag(up(away))
        last, blur = self.middle[self.ends[-1] :], self.radius[self.ends[-1] :]
        still = congruence(inverse_above(0.5 * (left + left.T)), last[:, : self.d], radius=blur[:, : self.d])
        moved = congruence(F, last[:, self.d :], radius=blur[:, self.d :])
        total = _raised(still + moved / s, np.abs(still) + np.abs(moved) / s)
        return float(stretched(np.sqrt(largest_eigenvalue_above(total)), 4))


def inverse_above(A: Array) -> Array:
    """A symmetric matrix Y with A⁻¹ ≼ Y, for a symmetric positive definite float matrix A.

    A⁻¹ - Y₀ = A⁻¹(I - A Y₀), whose norm is at most ‖I - A Y₀‖ over the least eigenvalue of A.
    """
    least = float(-largest_eigenvalue_above(-A))
    if not least > 0.0:
        raise ProofFailed("a matrix of the bound to second order is not positive definite")
    inverse = np.linalg.inv(A)
    inverse = 0.5 * (inverse + inverse.T)
    residual = np.abs(np.eye(len(A)) - A @ inverse)
    residual += gamma(len(A) + 4) * (np.abs(A) @ np.abs(inverse) + 1.0)
    off = (size_above(residual, (0, 1)) + _FLOOR) * UP / least
    return raise_diagonal(inverse, np.asarray(off * UP))


def _raised(matrix: Array, size: Array) -> Array:
    """At least the real matrix of which ``matrix`` is the rounded value, after at most 30 roundings of ``size``."""
    matrix = 0.5 * (matrix + matrix.T)
    return raise_diagonal(matrix, gamma(32) * size.sum(axis=-1) * UP + _FLOOR)


def _tame(matrix: Array) -> Array:
    """The matrix, if no entry of it is too large."""
    if not (np.abs(matrix) <= _TALLEST).all():
        raise ProofFailed("a matrix of the bound to second order has entries that are too large")
    return matrix
