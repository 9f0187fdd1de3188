"""What is known when multipliers are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.proof.guide import View
from lipcert.search.ellipsoid import Ellipsoid, symmetric
from lipcert.search.merged_maps import Kept, smaller

LEAST = 1e-60
"""Slope ranges of saturated neurons are widened to this, so that their squares and inverses stay floats."""


def widened(alpha: Array, beta: Array) -> Array:
    """The upper ends of slope ranges, those that are apart by LEAST at least."""
    return np.where(beta > alpha, np.maximum(beta, alpha + LEAST), beta)


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
    kept: Kept | None = None
    """Which neurons of the layer these are, where not all; the others are affine functions of what is kept."""
    fewer: bool = False
    """Whether some of the layer's neurons are left out, so that ``ahead`` may have rows that are not needed."""

    @staticmethod
    def of(index: int, S: Ellipsoid, kept: Kept) -> Stage:
        """The stage of a layer of which some neurons are kept."""
        assert S.matrix is not None
        return Stage(index, S.matrix, int(S.exponent), kept.alpha, kept.beta, kept.ahead, kept, kept.fewer)

    @staticmethod
    def single(view: View, which: int) -> Stage:
        """The stage of one region of a stack."""
        ahead = view.ahead if view.ahead.ndim == 2 else view.ahead[which]
        alpha, beta = view.alpha[which], view.beta[which]
        stage = view.index, view.S[which], int(view.exponent[which]), alpha, widened(alpha, beta)
        return Stage(*stage, ahead, fewer=view.neurons is not None)

    @cached_property
    def target(self) -> Weight:
        """The next weight, or a dense one with fewer rows that serves as well."""
        return smaller(self.ahead) if self.fewer else self.ahead

    @property
    def size(self) -> int:
        """Neurons of the layer."""
        return len(self.alpha) if self.kept is None else self.kept.size

    def narrow(self, multipliers: Array) -> Array:
        """Multipliers of the layer's neurons, as multipliers of what is kept."""
        return multipliers if self.kept is None else self.kept.narrow(multipliers)

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
