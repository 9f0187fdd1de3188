"""T = tI from three eigenvalues (the paper's CF, without its slope adjustment)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.ellipsoid import largest
from lipcert.multipliers.base import Greedy, Stage
from lipcert.network import dense, times
from lipcert.typing import Array, Weight


@dataclass(frozen=True)
class ClosedForm(Greedy):
    """The t that minimises an upper bound of λmax(W⁺ P(t) W⁺ᵀ).

    With R = D_r S D_r on the active neurons, s = λmax(R), σ = λmax(W⁺ D_m S D_m W⁺ᵀ) and e = λmax(W⁺_A W⁺_Aᵀ):

        λmax(W⁺ P(t) W⁺ᵀ) ≤ σ + σ s/(t - s) + t e,   least at t = s + sqrt(s σ / e).

    The middle term holds because S^½ D_r (t - R)⁻¹ D_r S^½ ≼ s/(t - s)·I.
    """

    def choose(self, stage: Stage) -> Array:
        return closed_form(stage)


def closed_form(stage: Stage) -> Array:
    """The multipliers of :class:`ClosedForm` for one layer."""
    T = np.zeros(stage.alpha.shape)
    active = stage.active
    if not active.size:
        return T
    r, m = stage.r[active], stage.m
    R = r[:, None] * stage.S[np.ix_(active, active)] * r
    s = float(largest(R))
    if s <= 0.0:  # the active neurons do not move at all
        return T
    head = stage.ahead[:, active]
    e = gram_norm(head)
    sigma = float(largest(times(times(m[:, None] * stage.S * m, stage.ahead.T).T, stage.ahead.T)))
    T[active] = s + np.sqrt(s * max(sigma, 0.0) / e) if e > 0 else 2.0 * s
    T[active] = np.maximum(T[active], s * (1.0 + 1e-6))
    return T


def gram_norm(weight: Weight) -> float:
    """λmax(W Wᵀ), from the smaller of the two Gram matrices."""
    tall = weight.shape[0] > weight.shape[1]
    gram = weight.T @ weight if tall else weight @ weight.T
    return float(largest(dense(gram)))
