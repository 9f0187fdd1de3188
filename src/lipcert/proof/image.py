"""An ellipsoid after an affine map, for a stack of regions: W P Wᵀ, its diagonal first, then only what is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight, times
from lipcert.proof.blocks import apply_size, column_sizes, row_blocks, row_sizes, symmetrised
from lipcert.proof.folding import Near
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    column_squares,
    congruence,
    diagonal_above,
    gamma,
    half_image,
    magnitude,
    raise_diagonal,
    spread,
    stretched,
    up,
)
from lipcert.proof.step import SPARE, Step

_FAR = 2.0**200
"""Weights beyond this, or below its inverse, are brought near one before they are squared."""
_PANEL = 256
"""Columns that are solved for together."""


class Image:
    """4**exponent·W P Wᵀ for a stack P (count, n, n) and exponents (count,); P None is the identity for all.

    Powers of two are exact but for underflow. In W that moves an entry by at most η, so the product by at most
    2nη|W||P| with |W| ≤ 1 there; in S by at most η per entry. Both are charged to the diagonal.

    Of a step that was proved ``apart``, P lacks a term, which is added here.
    """

    def __init__(
        self, P: Array | None, exponent: Array, weight: Near, whole: Array | None = None, apart: Step | None = None
    ) -> None:
        largest = float(abs(weight.middle).max())
        power = int(np.frexp(largest)[1]) if largest > 0.0 and not 1.0 / _FAR < largest < _FAR else 0
        self.P, self.weight, self.exponent = P, weight.shifted(-power) if power else weight, exponent + power
        self.lost = TINY * (1.0 if P is None else float(np.abs(P).max())) if power else 0.0
        self._whole = whole
        self._half: Array | None = None
        self._rest = None if apart is None else Across.of(apart, self.weight)

    def axes(self) -> Array:
        """At least the Lipschitz constant of each neuron, sqrt(S_ll), (count, neurons); zero where that is known."""
        self._half = None if self.P is None else half_image(self.P, self.weight.full)
        squares = diagonal_above(self.P, self.weight.full, self.weight.radius, self._half) + self.lost
        if self._rest is not None:
            squares = np.where(self.weight.still, 0.0, stretched(squares + self._rest.squares(), 3))
        squares = np.broadcast_to(squares, (len(self.exponent), squares.shape[-1]))
        size = up(np.ldexp(stretched(np.sqrt(squares), 1), self.exponent[:, None]))
        # a row that the shift by a power made zero may move
        return size if self.lost else np.where(squares == 0.0, 0.0, size)  # NaN stays NaN

    def block(self, kept: Array | None = None) -> tuple[Array, Array]:
        """Ŝ with 4**exponent·W P Wᵀ ≼ 4**e·Ŝ, its mean diagonal near one, and e, (count,).

        Only the rows and columns of the neurons ``kept`` (count, k), of all without.
        """
        S = self._first(kept) if self.P is None else self._later(self.P, kept)
        S = S if self._rest is None else self._rest.added(S, kept)
        mean = np.trace(S, axis1=-2, axis2=-1) / S.shape[-1]
        if not np.isfinite(S).all() or not np.isfinite(mean).all():
            raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
        shift = np.where(mean > 0, np.round(0.5 * np.log2(np.where(mean > 0, mean, 1.0))), 0.0).astype(int)
        scaled = S if S.flags.writeable else np.array(S)  # what others have is read-only
        if (np.abs(shift) < 256).all():  # then the powers of two are floats
            scaled *= 4.0 ** -shift[:, None, None].astype(float)
        else:
            scaled = np.ldexp(scaled, -2 * shift[:, None, None])
        return raise_diagonal(scaled, np.asarray(S.shape[-1] * TINY), fresh=True), self.exponent + shift

    def _first(self, kept: Array | None) -> Array:
        """Of the unit ball: one matrix for all regions."""
        count = len(self.exponent)
        if kept is not None and count == 1 and self._whole is None:
            return self._raised(None, self.weight.middle[kept[0]], self._radius(kept), None)[None]
        whole = self.whole
        return np.broadcast_to(whole, (count, *whole.shape)) if kept is None else _square(whole, kept)

    @property
    def whole(self) -> Array:
        """Ŝ of all neurons for the unit ball, (n, n), before any scaling."""
        if self._whole is None:
            self._whole = self._raised(None, self.weight.middle, self.weight.radius, None)
        return self._whole

    def _later(self, P: Array, kept: Array | None) -> Array:
        half, self._half = self._half, None  # it is large, and not needed again
        if kept is None:
            return self._raised(P, self.weight.full, self.weight.radius, half)
        if half is not None:
            half = np.take_along_axis(half, kept[..., None], -2) if len(half) > 1 else half[:, kept[0]]
        return self._raised(P, self.weight.rows(kept), self._radius(kept), half)

    def _radius(self, kept: Array) -> Weight | None:
        return None if self.weight.radius is None else self.weight.radius[kept[0]]

    def _raised(self, P: Array | None, weight: Weight, radius: Weight | None, half: Array | None) -> Array:
        """Ŝ with W P Wᵀ ≼ Ŝ for every W within the radius of the weight, and of what the shift lost."""
        S = image_above(P, weight, radius, half)
        return raise_diagonal(S, np.asarray(self.lost)) if self.lost else S


def image_above(P: Array | None, weight: Weight, radius: Weight | None = None, half: Array | None = None) -> Array:
    """Ŝ with W P Wᵀ ≼ Ŝ for every W within the radius of the weight.

    With W = M + Δ the difference to M P Mᵀ is at most R|P||M|ᵀ + (|M| + R)|P|Rᵀ entrywise, R the radius; a symmetric
    matrix is at most the diagonal matrix of its absolute row sums.
    """
    S = congruence(P, weight, half)
    if radius is None:
        return S
    size = magnitude(weight)
    inner, slack = (np.asarray(matrix.sum(axis=-2)) for matrix in (size, radius))
    if P is not None:
        inner, slack = (apply_size(P, v) for v in (inner, slack))
    charge = spread(radius, inner) + spread(size, slack) + spread(radius, slack)
    return raise_diagonal(S, up(charge * UP * UP) + TINY * (1.0 + inner.sum() + slack.sum()))


def _square(matrix: Array, kept: Array) -> Array:
    """The rows and columns ``kept`` (count, k) of one matrix, (count, k, k)."""
    return np.asarray(matrix[kept[:, :, None], kept[:, None, :]])


@dataclass(frozen=True, eq=False)
class Across:
    """A step that was proved ``apart`` and the affine map after it: matrices have the size of the next layer.

    With M = D_h S D_m and C = I - D_h S D_h the step leads to P = D_m S D_m + T + Mᵀ C⁻¹ M, and the next layer needs
    W P Wᵀ only. Where it is narrower, M Wᵀ is smaller than M, and the last term is never formed without W.

    Z (a, n) are any floats, and ``charge`` (n,) numbers, with W Mᵀ (D_lifted - D_h S D_h)⁻¹ M Wᵀ ≼ ZᵀZ + D_charge in
    reals.
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
