"""An activation step and the affine map after it, proved together: matrices have the size of the next layer.

With M = D_h S D_m and C = I - D_h S D_h the step of :mod:`lipcert.proof.step` leads to P = D_m S D_m + T + Mᵀ C⁻¹ M,
and the next layer needs W P Wᵀ only. Where it is narrower, M Wᵀ is smaller than M, and the last term is never formed
without W.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.model.arrays import Array, times
from lipcert.proof.blocks import apply_size, column_sizes, row_blocks, row_sizes, symmetrised
from lipcert.proof.folding import Near
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    column_squares,
    gamma,
    magnitude,
    raise_diagonal,
    spread,
    up,
)
from lipcert.proof.step import SPARE, Step

_PANEL = 256
"""Columns that are solved for together."""


@dataclass(frozen=True, eq=False)
class Across:
    """Any floats Z (a, n), and ``charge`` (n,), with W Mᵀ (D_lifted - D_h S D_h)⁻¹ M Wᵀ ≼ ZᵀZ + D_charge in reals.

    ``lifted`` is that of a step that was proved ``apart``.
    """

    Z: Array
    charge: Array

    @staticmethod
    def of(step: Step, weight: Near) -> Across:
        """For every real W within the radius of the weight, and LOOSE·u of it.

        With L from the step and Z ≈ L⁻¹ M Wᵀ, the matrix [C MWᵀ; WMᵀ ZᵀZ] is [L Zᵀ][L Zᵀ]ᵀ + Δ. For an off-diagonal
        block E of Δ, 2|xᵀE y| ≤ Σ|E_ij|(ω x_i² + y_j²/ω) for any ω > 0. So the rows of C need to be raised by ω times
        the row sums of |E|, for which the step has SPARE in reserve, and the others by 1/ω of the column sums. E
        consists of the residual MWᵀ - LZ, which is computed, and of rounding errors that are bounded: products lose γ
        of their terms, M has two roundings, W what is said above.
        """
        L, M = step.L[0], step.X[0]
        u, rounding, loose = 4.0 * gamma(1), gamma(len(L) + 6), gamma(M.shape[1] + LOOSE + 8)
        Z = np.asfortranarray(times(M, weight.middle.T))  # M Wᵀ, and panel by panel L⁻¹M Wᵀ
        along, beside, reach = np.zeros(Z.shape[1]), np.zeros(len(Z)), np.zeros(len(Z))
        left = column_sizes(L)
        for start in range(0, Z.shape[1], _PANEL):
            some = slice(start, start + _PANEL)
            right = Z[:, some]
            solved = linalg.blas.dtrsm(1.0, L.T, right, lower=0, trans_a=1)
            residual = np.abs(linalg.blas.dtrmm(1.0, L.T, solved, lower=0, trans_a=1) - right)
            missed = residual + (rounding + u) * np.abs(right)
            right[...] = solved
            np.abs(solved, out=solved)
            along[some] = missed.sum(axis=0) + rounding * (left @ solved)
            beside, reach = beside + missed.sum(axis=1), reach + solved.sum(axis=1)
        above = magnitude(weight.middle)
        onto, down = np.asarray(above.sum(axis=0)), row_sizes(M.T)
        columns = along + loose * spread(above, down)
        rows = beside + rounding * apply_size(L, reach) + loose * _beside(M, onto)
        if weight.radius is not None:
            rows = rows + _beside(M, np.asarray(weight.radius.sum(axis=0)))
            columns = columns + spread(weight.radius, down)
        rows = rows * (UP * UP) + TINY * (1.0 + down.sum() + onto.sum())
        most = float(rows.max(initial=0.0))
        share = 1.0 if most <= SPARE else most / SPARE * UP
        charge = columns * share + rounding * apply_size(Z.T, reach)
        return Across(Z, up(charge * (UP * UP) + share * TINY * (1.0 + down.sum() + onto.sum())))

    def squares(self) -> Array:
        """At least the diagonal of ZᵀZ + D_charge, (n,), up to the rounding of two sums: the charge has γ|Z|ᵀ|Z|."""
        return np.asarray(column_squares(self.Z) + self.charge)

    def added(self, S: Array, kept: Array | None) -> Array:
        """At least S + ZᵀZ + D_charge for a symmetric matrix (1, k, k) of the neurons kept, (1, k)."""
        Z, charge = (self.Z, self.charge) if kept is None else (self.Z[:, kept[0]], self.charge[kept[0]])
        total = Z.T @ Z
        total += S[0]
        total = symmetrised(total)
        error = charge + 4.0 * gamma(1) * row_sizes(total)
        return raise_diagonal(total, error * UP + TINY, fresh=True)[None]


def _beside(M: Array, vector: Array) -> Array:
    """|M|·vector, rounded as it comes, for a matrix (a, n) that is stored by columns."""
    columns = M.T
    return np.asarray(sum(vector[some] @ np.abs(columns[some]) for some in row_blocks(columns)))
