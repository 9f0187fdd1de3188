"""An ellipsoid after an affine map, for a stack of regions: W P Wᵀ, its diagonal first, then only what is needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.kernel.near import Approx, congruence, diagonal_above, half_image, raised, underflow
from lipcert.kernel.rounding import inflate, norm_above, square_above, up
from lipcert.kernel.step import SPARE, Step
from lipcert.model.arrays import Array, Weight, dense, frozen, times

_FAR = 2.0**200
"""Weights beyond this, or below its inverse, are extreme: their squares might over- or underflow."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a weight, those of the neurons kept (count, k) of each region; None is all of them."""

    weight: Weight
    kept: Array | None = None

    @staticmethod
    def of(weight: Weight, kept: Array | None) -> Columns:
        """The columns that belong to what is kept of the layer before; those of a single region are picked at once."""
        if kept is None:
            return Columns(weight)
        if len(kept) > 1:
            return Columns(dense(weight), frozen(kept))
        picked = weight[:, kept[0]]
        frozen(picked if isinstance(picked, np.ndarray) else picked.data)
        return Columns(picked)

    @cached_property
    def full(self) -> Weight:
        """All rows, (n, k) or (count, n, k)."""
        return self.weight if self.kept is None else frozen(np.swapaxes(self.weight.T[self.kept], -1, -2))

    def rows(self, which: Array) -> Weight:
        """Some rows, (k', k), or for several regions (count, k', k)."""
        if self.kept is not None:
            return np.asarray(self.weight[which[:, :, None], self.kept[:, None, :]])
        return dense(self.weight)[which] if len(which) > 1 else self.weight[which[0]]

    def pull(self, directions: Array) -> Array:
        """directions·W for directions (count, d, n)."""
        back = times(directions, self.weight)
        return back if self.kept is None else np.take_along_axis(back, self.kept[:, None, :], -1)

    def shifted(self, power: int) -> Columns:
        """2**power·W, exact but for underflow."""
        return Columns(self.weight * 2.0 ** (power // 2) * 2.0 ** (power - power // 2), self.kept)


class Image:
    """4**exponent·W P Wᵀ for a stack P (count, n, n) and exponents (count,); P None is the identity for all.

    Of a step that was proved ``apart``, P lacks a term, which is added here. ``whole``, (n, n), is that of the
    unit ball where it is known.

    Extreme weights are brought near one by a power of two, exact but for underflow, which moves an entry by at most η,
    so the product by at most 2nη|W||P| with |W| ≤ 1 there. That is ``lost``, and charged to the diagonal.
    """

    def __init__(
        self, P: Array | None, exponent: Array, weight: Columns, whole: Array | None = None, apart: Step | None = None
    ) -> None:
        largest = float(abs(weight.weight).max())
        power = int(np.frexp(largest)[1]) if largest > 0.0 and not 1.0 / _FAR < largest < _FAR else 0
        self.P, self.exponent, self._whole = P, exponent + power, whole
        self.weight = weight.shifted(-power) if power else weight
        self.lost = underflow(1.0 if P is None else float(np.abs(P).max())) if power else 0.0
        self._half: Array | None = None
        self._rest = None if apart is None else Fused.of(apart, self.weight.weight)

    def axes(self) -> Array:
        """At least the Lipschitz constant of each neuron, sqrt(S_ll), (count, neurons); zero where that is known."""
        self._half = None if self.P is None else half_image(self.P, self.weight.full)
        squares = diagonal_above(self.P, self.weight.full, self._half) + self.lost
        if self._rest is not None:
            still = np.asarray(abs(self.weight.weight).sum(axis=1)).ravel() == 0.0
            squares = np.where(still, 0.0, inflate(squares + self._rest.squares(), 3))
        squares = np.broadcast_to(squares, (len(self.exponent), squares.shape[-1]))
        size = up(np.ldexp(inflate(np.sqrt(squares), 1), self.exponent[:, None]))
        # a row that the shift by a power made zero may move; NaN stays NaN
        return size if self.lost else np.where(squares == 0.0, 0.0, size)

    def block(self, kept: Array | None = None) -> tuple[Array, Array]:
        """Ŝ with 4**exponent·W P Wᵀ ≼ 4**e·Ŝ, its mean diagonal near one, and e, (count,).

        Only the rows and columns of the neurons ``kept`` (count, k), of all without. Powers of two are exact but for
        underflow, by at most η per entry, which is charged to the diagonal.
        """
        S = self._unscaled(kept)
        S = raised(np.array(S), np.asarray(self.lost)) if self.lost else S
        S = S if self._rest is None else self._rest.added(S, kept)
        mean = np.trace(S, axis1=-2, axis2=-1) / S.shape[-1]
        if not np.isfinite(S).all() or not np.isfinite(mean).all():
            raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
        shift = np.where(mean > 0, np.round(0.5 * np.log2(np.where(mean > 0, mean, 1.0))), 0.0).astype(int)
        own = S if S.flags.writeable else None  # what others have is read-only
        if (np.abs(shift) < 256).all():  # then the powers of two are floats
            scaled = np.multiply(S, 4.0 ** -shift[:, None, None].astype(float), out=own)
        else:
            scaled = np.ldexp(S, -2 * shift[:, None, None])
        return raised(scaled, np.asarray(underflow(S.shape[-1]))), self.exponent + shift

    @property
    def whole(self) -> Array:
        """Ŝ of all neurons for the unit ball, (n, n), before any scaling."""
        if self._whole is None:
            self._whole = congruence(None, self.weight.weight)
        return self._whole

    def _unscaled(self, kept: Array | None) -> Array:
        if self.P is not None:
            half, self._half = self._half, None  # it is large, and not needed again
            if kept is not None and half is not None:
                half = np.take_along_axis(half, kept[..., None], -2) if len(half) > 1 else half[:, kept[0]]
            return congruence(self.P, self.weight.full if kept is None else self.weight.rows(kept), half)
        if kept is None:
            return np.broadcast_to(self.whole, (len(self.exponent), *self.whole.shape))
        if len(kept) == 1 and self._whole is None:
            return congruence(None, self.weight.weight[kept[0]])[None]
        return np.asarray(self.whole[kept[:, :, None], kept[:, None, :]])


@dataclass(frozen=True, eq=False)
class Fused:
    """A step that was proved ``apart``, fused with the affine map after it: matrices have the size of the next layer.

    With M = D_h S D_m and C = I - D_h S D_h the step leads to P = D_m S D_m + T + Mᵀ C⁻¹ M, and the next layer needs
    W P Wᵀ only. Where it is narrower, M Wᵀ is smaller than M, and the last term is never formed without W.

    Z (a, n) are any floats, and ``charge`` (n,) numbers, with W Mᵀ (D_lifted - D_h S D_h)⁻¹ M Wᵀ ≼ ZᵀZ + D_charge in
    reals.
    """

    Z: Array
    charge: Array

    @staticmethod
    def of(step: Step, weight: Weight) -> Fused:
        """For every real W that the weight stands for.

        With L from the step and Z ≈ L⁻¹ M Wᵀ, the matrix [C MWᵀ; WMᵀ ZᵀZ] is [L Zᵀ][L Zᵀ]ᵀ + Δ. For an off-diagonal
        block E of Δ, 2|xᵀE y| ≤ Σ|E_ij|(ω x_i² + y_j²/ω) for any ω > 0. So the rows of C need to be raised by ω times
        the row sums of |E|, for which the step has SPARE in reserve, and the others by 1/ω of the column sums.
        """
        assert step.rest is not None
        right = step.rest @ Approx.weight(weight).T
        Z = linalg.blas.dtrsm(1.0, step.L[0].T, right.value[0], lower=0, trans_a=1)
        off = right - Approx(step.L) @ Approx(Z[None])
        rows, (columns,) = off.rows(), off.T.rows()
        share = max(1.0, float(inflate(rows.max(initial=0.0) / SPARE, 2)))
        return Fused(Z, inflate(columns * share, 3))

    def squares(self) -> Array:
        """At least the diagonal of ZᵀZ + D_charge, (n,)."""
        return up(square_above(norm_above(self.Z.T)) + self.charge)

    def added(self, S: Array, kept: Array | None) -> Array:
        """At least S + ZᵀZ + D_charge for a symmetric matrix (1, k, k) of the neurons kept, (1, k)."""
        Z, charge = (self.Z, self.charge) if kept is None else (self.Z[:, kept[0]], self.charge[kept[0]])
        return (Approx(S[0], symmetric=True) + Approx(Z.T).gram()).above(charge)[None]
