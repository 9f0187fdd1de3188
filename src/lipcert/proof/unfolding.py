"""Remainders of values and of Jacobians over many layers, by products of layers at fixed slopes.

Sizes of layer after layer, |W||W|…|R|, grow where the network itself contracts. So one slope σ' per neuron is fixed for
all pieces, those at a point of the region, and with Φ_kj = W_k Σ' W_(k-1) Σ' … W_(j+1) the remainders of values and of
Γ unfold. R_k = N_k + W_k(ΣR_(k-1) + s_(k-1)), s what the activation adds and N what floats lose, is for every m < k

    R_k = N_k + Σ_(m<j<k) Φ_kj [(σ - σ')R_j + s_j + σ'N_j] + Φ_km [σR_m + s_m],

and E is, with F = Γ⁰(D - Σ - τ₁) + Γ¹(D - Σ) and N what floats lose of Γ⁰ + Γ¹, for every m > k

    E_k = N_k + Σ_(k<j<m) [E_j(D - Σ') + F_j + N_j Σ'] Φ_jk + [E_m D + F_m] Φ_mk.

Nothing is believed of σ': any numbers will do, and those near the slopes of a piece do best.

Names are those of :mod:`lipcert.proof.second_pieces`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.model.arrays import Array
from lipcert.proof.rounding import LOOSE, TINY, UP, gamma, spread


class Unfolding:
    """The products |Φ| of a network's weights for slopes σ', each over ``band`` layers at most."""

    def __init__(self, weights: Sequence[Array], slopes: Sequence[Array], band: int) -> None:
        self.weights, self.slopes = weights, slopes
        self.products = [self._products(k, band) for k in range(1, len(weights))]

    def _products(self, k: int, band: int) -> list[Array]:
        """At least |Φ_kj| for j = k - 1, k - 2, …, as many as are used.

        Φ_(k,j-1) = Φ_kj Σ'W_j; its error is that of Φ_kj times |Σ'||W_j|, and γ|Φ_kj||Σ'||W_j|.
        """
        weight = self.weights[k]
        exact, error = weight, gamma(LOOSE + 1) * np.abs(weight) + TINY
        found = [(np.abs(exact) + error) * UP]
        for j in range(k - 1, max(k - band, 0), -1):
            weight, slope = self.weights[j], self.slopes[j]
            size = np.abs(weight)
            error = (error + gamma(len(weight) + LOOSE + 4) * np.abs(exact)) * UP * np.abs(slope)
            error = (error + TINY) @ size * UP + TINY
            exact = (exact * slope) @ weight
            found.append((np.abs(exact) + error) * UP)
        return found

    def forwards(self, k: int, parts: list[Array], wholes: list[Array]) -> Array:
        """At least what layers up to k make of |R| of the layer after it."""
        reach = self.products[k]
        rest = spread(reach[0], wholes[k])
        if len(reach) == 1:
            return rest
        other = spread(reach[-1], wholes[k + 1 - len(reach)])
        for back, size in enumerate(reach[:-1]):
            other = other + spread(size, parts[k - back])
        return np.fmin(rest, other)

    def backwards(self, k: int, count: int, parts: dict[int, Array], wholes: dict[int, Array]) -> Array:
        """At least what layers after k make of |E_(k-1)|."""
        E = wholes[k] @ self.products[k - 1][0]
        end = min(k + len(self.products[count - 1]) - 1, count - 1)
        while end - k >= len(self.products[end - 1]):
            end -= 1
        if end == k:
            return E
        other = wholes[end] @ self.products[end - 1][end - k]
        for j in range(k, end):
            other = other + parts[j] @ self.products[j - 1][j - k]
        return np.fmin(E, other)
