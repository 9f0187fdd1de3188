"""How large the Jacobian can be over a ball: the equations of :mod:`lipcert.kernel.second_order_jacobian`.

The symbols are those of that module; here every one of them is an array of balls, or a matrix of numbers that is at
least the real one.
"""

from __future__ import annotations

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    at_least,
    balls,
    diagonal,
    dot,
    floats,
    image,
    larger,
    largest_eigenvalue,
    plus_diagonal,
    root,
    solve,
    upper,
    zeros,
)
from lipcert.audit.engine import centre_values
from lipcert.audit.model import Inputs, Model, fewer
from lipcert.audit.remainder import remainder
from lipcert.definitions.functions import Function, ball
from lipcert.errors import ProofFailed
from lipcert.kernel.hints import Curved

_CELLS = 64
_LEAST_SHARE = 2.0**-20


def prove_curved(model: Model, inputs: Inputs | None, hints: Curved) -> arb:
    """At least the Lipschitz constant over a ball."""
    if inputs is None or not inputs.plain or len(model) < 2:
        raise ProofFailed("bounds to second order are about ℓ2 balls, and networks with a hidden layer")
    model, inputs, stretch = fewer(model, inputs)
    return (_Curved(model, inputs, hints).bound() * stretch).upper()


class _Curved:
    def __init__(self, model: Model, inputs: Inputs, hints: Curved) -> None:
        sizes, outputs = [layer.size for layer in model[:-1]], model[-1].size
        count = sum(sizes)
        shapes = (hints.slopes.shape, hints.balance.shape, hints.mix.shape, hints.weights.shape)
        if shapes != ((3, count), (count,), (outputs, outputs), (6,)):
            raise ProofFailed(f"the hints to second order are not for this network: their shapes are {shapes}")
        self.model, self.inputs, self.ends = model, inputs, np.cumsum([0, *sizes])
        self.r = inputs.radius
        self.sigma, self.tau, self.psi = balls(hints.slopes)
        self.t = balls(np.clip(hints.balance, 2.0**-40, 2.0**40))
        *weights, share = np.clip(hints.weights, _LEAST_SHARE, 2.0**20).tolist()
        self.c1, self.c2, self.a2, self.a3, self.a = map(ball, weights)
        self.share = ball(min(share, 1.0 - _LEAST_SHARE))
        self.rest, self.a1 = 1 - self.c1 - self.c2, 1 - self.a2 - self.a3
        if not (self.rest > 0 and self.a1 > 0):
            raise ProofFailed("shares of the hints to second order do not leave anything for the other terms")
        # [B | K] for all hidden layers, and [J0 | G] below them: what Bu + Kf and J0 u + Gf are made of
        self.d = model[0].weight.shape[1]
        rows = np.hstack([model[0].weight, zeros(sizes[0], count)])
        blocks = [rows]
        for k, layer in enumerate(model[1:]):
            own = slice(self.ends[k], self.ends[k + 1])
            rows = dot(layer.weight, self.sigma[own, None] * rows)
            rows[:, self.d + own.start : self.d + own.stop] += layer.weight
            blocks.append(rows)
        self.maps = np.vstack(blocks)
        N = balls(hints.mix @ floats(blocks[-1][:, : self.d]))
        self.Psi = plus_diagonal(dot(N.T, N), arb(1))

    def bound(self) -> arb:
        """At least the norm of the Jacobian anywhere in the ball."""
        d, eye = self.d, diagonal(balls(np.ones(self.d)))
        F, E, fits, mu = zeros(0, 0), zeros(0), zeros(0), arb(0)
        inverse = solve(self.Psi, eye)
        for k, (value, error) in enumerate(centre_values(self.model[:-1], self.inputs.center)):
            start, end = self.ends[k], self.ends[k + 1]
            B, K = self.maps[:end, :d], self.maps[:end, d : d + start]
            S, S_Psi = image(B, None), image(B, at_least(self.Psi))
            Y, Q = image(K, F), image(K, at_least(plus_diagonal(F / 3, 2 * E / 3) * (self.r * self.r * mu)))
            far = upper(self.r * root(np.diagonal(S)) + root(np.diagonal(Q)))[start:]
            told = zip(
                self.model[k].functions, value, error, far, *(x[start:end] for x in (self.sigma, self.tau, self.psi))
            )
            fits = np.append(fits, [_fit_error(*one) for one in told])
            tau, psi, t = self.tau[:end], self.psi[:end], self.t[:end]
            moved = (1 + self.a) * self.r * self.r * S + (1 + 1 / self.a) * Q
            H = tau[:, None] * (self.r * self.r / self.a1 * S + Q / self.a2) * tau
            H = at_least(H + psi[:, None] * (moved * moved) * psi / (4 * self.a3))
            g = root(fits / t)
            top = largest_eigenvalue(at_least(g[:, None] * Y * g))
            E = upper((1 + top / self.c2) * t * fits)
            F = at_least(plus_diagonal(H * at_least(S_Psi + Y / self.c1), E))
            Theta = at_least((inverse + dot(B.T * (fits / t), B)) / self.rest)
            mu = largest_eigenvalue(Theta)
        s = (self.share / mu).mid()
        last = self.maps[self.ends[-1] :]
        still = dot(last[:, :d], solve(eye - s * Theta, last[:, :d].T))
        return largest_eigenvalue(at_least(still + dot(dot(last[:, d:], F), last[:, d:].T) / s)).sqrt().upper()


def _fit_error(f: Function, center: arb, error: arb, far: arb, sigma: arb, tau: arb, psi: arb) -> arb:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ far and |c - center| ≤ error."""
    extent = (far + error).upper()
    view = f.on((center - extent).lower(), (center + extent).upper())
    ((low, high),) = remainder(view, center, [(1, arb(1), [sigma, tau, psi / 2])], _CELLS)
    return (larger(-low, high) + (abs(tau) + abs(psi) * (extent + error)) * error).upper()
