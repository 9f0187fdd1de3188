"""What a greedy method knows when it chooses the multipliers of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lipcert.kernel.guide import View
from lipcert.methods.eigenvalues import symmetric
from lipcert.model.arrays import Array, Weight, dense, times

_LEAST = 1e-60
"""Slope ranges of saturated neurons are widened to this, so that their squares and inverses stay floats."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer, before its multipliers T are chosen.

    S (n, n) is the ellipsoid of Δv divided by 4**exponent; the slopes lie in [α, β]; ``ahead`` is the next
    weight W⁺, so that the objective is λmax(W⁺ P(T) W⁺ᵀ). T is relative to the same scale as S.
    """

    index: int
    S: Array
    exponent: int
    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array | None = None
    """Numbers of the first of these neurons in the layer, unless all are here; any others carry values unchanged."""

    @staticmethod
    def of(view: View, which: int) -> Stage:
        """The stage of one region of a stack."""
        ahead = view.ahead if view.ahead.ndim == 2 else view.ahead[which]
        alpha, beta = view.alpha[which], view.beta[which]
        beta = np.where(beta > alpha, np.maximum(beta, alpha + _LEAST), beta)
        neurons = None if view.neurons is None else view.neurons[which]
        return Stage(view.index, view.S[which], int(view.exponent[which]), alpha, beta, ahead, neurons)

    @cached_property
    def target(self) -> Weight:
        """The next weight W⁺, or a dense C with fewer rows and CᵀC = W⁺ᵀW⁺, which gives the same objective."""
        return self.ahead if self.neurons is None else smaller(self.ahead)

    def narrow(self, values: Array) -> Array:
        """Values of the layer's neurons for the rows of S; zero for values that are carried unchanged."""
        if self.neurons is None:
            return values
        kept = np.zeros(self.alpha.shape)
        kept[: self.neurons.size] = values[self.neurons]
        return kept

    @property
    def m(self) -> Array:
        return 0.5 * (self.alpha + self.beta)

    @property
    def r(self) -> Array:
        return 0.5 * (self.beta - self.alpha)

    def blocks(self) -> tuple[Array, Array, Array, Array]:
        """B = W⁺ D_m S D_m W⁺ᵀ, G = W⁺ D_m S D_r, H = W⁺_A and R = D_r S D_r, on the active neurons A.

        With them λmax(W⁺ P(T) W⁺ᵀ) = λmax(B + G (T - R)⁻¹ Gᵀ + H T Hᵀ).
        """
        active = self.active
        r, m = self.r[active], self.m
        scaled = times((m[:, None] * self.S).T, self.target.T).T  # W⁺ D_m S
        R = symmetric(r[:, None] * self.S[np.ix_(active, active)] * r)
        return symmetric(times(scaled * m, self.target.T)), scaled[:, active] * r, dense(self.target[:, active]), R

    @property
    def active(self) -> Array:
        """The neurons whose slope is not a single number."""
        return np.flatnonzero(self.beta > self.alpha)


def smaller(ahead: Weight) -> Weight:
    """C with as few rows as possible and CᵀC = W⁺ᵀW⁺, nearly, for one weight or a stack: λmax(C P Cᵀ) is the same."""
    rows, columns = ahead.shape[-2:]
    if rows <= columns:
        return ahead
    gram = dense(ahead.T @ ahead) if ahead.ndim == 2 else np.swapaxes(ahead, -1, -2) @ ahead
    jitter = 1e-13 * np.trace(gram, axis1=-2, axis2=-1)[..., None, None] / columns + np.finfo(float).tiny
    try:
        return np.swapaxes(np.linalg.cholesky(gram + jitter * np.eye(columns)), -1, -2)
    except np.linalg.LinAlgError:
        return ahead
