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
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    inverse_above,
    largest_eigenvalue_above,
    root_above,
    twice_above,
    up,
)
from lipcert.kernel.enclosures import trajectory
from lipcert.kernel.neuron_bounds import fit_error
from lipcert.kernel.quadratic_form import first_factor
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Region
from lipcert.suggest.hints import Curved

_SMALLEST_SHARE: Final = 2.0**-20
"""Shares of a sum are at least this: smaller ones would multiply rounding errors."""


def prove_second_order_jacobian(network: Network, region: Region, hints: Curved) -> float:
    """At least the Lipschitz constant of the network over a ball, rounded up."""
    if not isinstance(region, Ball) or not region.plain or network.depth < 2:
        raise ProofFailed("bounds to second order are about ℓ2 balls, and networks with a hidden layer")
    return _Curved(network, region.center, float(region.radius), hints).bound()


class _Curved:
    """The quantities of this module's equations, as floats that are at least the real ones."""

    def __init__(self, network: Network, center: Array, radius: float, hints: Curved) -> None:
        # ‖F W_1‖ ≤ ‖F R‖ for every F, and the pre-activations of the ball are within those of R
        self.weights = [first_factor(network.layers[0].weight), *(dense(layer.weight) for layer in network.layers[1:])]
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
        self.slopes = hints.slopes
        self.t = np.clip(hints.balance, 1.0 / 2.0**40, 2.0**40)
        self.c1, self.c2, self.a2, self.a3, self.a, share = np.clip(hints.weights, _SMALLEST_SHARE, 2.0**20).tolist()
        self.rest, self.a1 = 1.0 - self.c1 - self.c2 - 2.0**-50, 1.0 - self.a2 - self.a3 - 2.0**-50
        self.share = min(share, 1.0 - 2.0**-20)
        if not min(self.rest, self.a1) >= _SMALLEST_SHARE:
            raise ProofFailed("shares of the hints to second order do not leave anything for the other terms")
        self.maps, self.d = self._maps(), self.weights[0].shape[1]
        N = hints.mix @ self.maps.value[self.ends[-1] :, : self.d]
        Psi = np.eye(self.d) + N.T @ N
        self.Psi = 0.5 * (Psi + Psi.T)
        self.inverse = inverse_above(self.Psi)

    def _maps(self) -> Near:
        """[B | K], and [J0 | G] as the last row block: what Bu + Kf and J0 u + Gf are made of."""
        first, d = self.weights[0], self.weights[0].shape[1]
        blocks = [Near.weights(np.hstack([first, np.zeros((len(first), int(self.ends[-1])))]))]
        for start, end, weight in zip(self.ends[:-1], self.ends[1:], self.weights[1:], strict=True):
            inner, own = self.slopes[0, start:end, None] * blocks[-1], slice(d + start, d + end)
            inner.value[:, own], inner.error[:, own] = np.eye(end - start), 0.0  # the layer's own f
            blocks.append(inner.T.through(weight).T)
        return Near(np.vstack([one.value for one in blocks]), np.vstack([one.error for one in blocks]))

    def bound(self) -> float:
        """At least the norm of the Jacobian anywhere in the ball."""
        F, E, mu = np.zeros((0, 0)), np.zeros(0), 0.0
        fits = np.zeros(0)
        for k, (neurons, (value, error)) in enumerate(zip(self.neurons, self.values, strict=True)):
            assert neurons is not None
            start, end = self.ends[k], self.ends[k + 1]
            B = self.maps[:end, : self.d]
            S, S_Psi = _image(None, B), _image(self.Psi, B)
            Y, Q = np.zeros((end, end)), np.zeros((end, end))
            if k:
                K, rate = self.maps[:end, self.d : self.d + start], twice_above(np.asarray(self.r), np.asarray(mu))
                Y = _image(F, K)
                Q = _image(Approx(F).times(float(up(rate / 3.0))).above(up(up(2.0 / 3.0 * rate) * E)), K)
            far = up(up(self.r * root_above(np.diagonal(S))) + root_above(np.diagonal(Q)))[start:]
            fits = np.append(fits, fit_error(neurons, value[0], error[0], far, self.slopes[:, start:end]))
            if not np.isfinite(fits).all():
                raise ProofFailed(f"the slopes of layer {k + 1} have no finite bounds")
            across = (Approx(S_Psi) + Approx(Y).times(_over(self.c1))).above()
            E = self._uncertain(fits, Y)
            F = Approx.entrywise(self._slope_deviations(S, Q), across).above(E)
            Theta = self._budget(B, fits)
            mu = float(largest_eigenvalue_above(Theta))
        return self._norm(F, Theta, mu)

    def _slope_deviations(self, S: Array, Q: Array) -> Array:
        """H ≽ hhᵀ."""
        _, tau, psi = self.slopes[:, : len(S)]
        still, moved = Approx(S), Approx(Q)

        def both(share: float, other: float) -> Approx:
            """r²S·share + Q·other."""
            return still.times(float(twice_above(np.asarray(self.r), np.asarray(share)))) + moved.times(other)

        M = both(*(float(up(np.asarray(1.0 + one))) for one in (self.a, _over(self.a)))).above()
        first = both(_over(self.a1), _over(self.a2)).scaled(tau, tau)
        second = Approx.entrywise(M, M).times(_over(4.0 * self.a3)).scaled(psi, psi)
        return (first + second).above()

    def _uncertain(self, fits: Array, Y: Array) -> Array:
        """The diagonal matrix E."""
        t = self.t[: len(fits)]
        root = root_above(up(fits / t))
        top = largest_eigenvalue_above(Approx(Y).scaled(root, root).above()) if Y.any() else np.zeros(())
        return up(up(1.0 + up(top * _over(self.c2))) * up(t * fits))

    def _budget(self, B: Near, fits: Array) -> Array:
        """Θ of the layers so far."""
        omega = np.diag(up(fits / self.t[: len(fits)]))
        return (Approx(self.inverse) + Approx(_image(omega, B.T))).times(_over(self.rest)).above()

    def _norm(self, F: Array, Theta: Array, mu: float) -> float:
        s = self.share / mu
        left = -(Approx(Theta).times(s) - Approx(np.eye(self.d))).above()  # at most I - sΘ
        last = self.maps[self.ends[-1] :]
        still, moved = _image(inverse_above(left), last[:, : self.d]), _image(F, last[:, self.d :])
        return float(root_above(largest_eigenvalue_above((Approx(still) + Approx(moved).times(_over(s))).above())))


def _image(P: Array | None, maps: Near) -> Array:
    """At least A P Aᵀ for every A of the maps."""
    return congruence(P, np.ascontiguousarray(maps.value), radius=np.ascontiguousarray(maps.error))


def _over(x: float) -> float:
    """At least 1/x; a larger multiple of a matrix that is positive semidefinite is larger."""
    return float(up(np.asarray(1.0 / x)))
