"""An ellipsoid after an affine map, for a stack of regions: W P Wᵀ, its diagonal first, then only what is needed."""

from __future__ import annotations

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight
from lipcert.proof.across import Across
from lipcert.proof.blocks import apply_size
from lipcert.proof.folding import Near
from lipcert.proof.rounding import (
    TINY,
    UP,
    congruence,
    diagonal_above,
    half_image,
    magnitude,
    raise_diagonal,
    spread,
    stretched,
    up,
)
from lipcert.proof.step import Step

_FAR = 2.0**200
"""Weights beyond this, or below its inverse, are brought near one before they are squared."""


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
