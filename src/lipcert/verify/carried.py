"""Fewer neurons to carry, proved: those with one slope are affine functions of the values before their layer.

A layer over values u is determined by its neurons with open slopes together with u itself; the next layer's weight in
those terms is a product of matrices. Its rounding errors are kept entry by entry: a real matrix W is held as a float
matrix and a radius, |W - middle| ≤ radius.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lipcert.network import dense
from lipcert.typing import Array, Weight
from lipcert.verify.rounding import (
    LOOSE,
    TINY,
    UP,
    apply,
    congruence,
    fan_in,
    gamma,
    magnitude,
    raise_diagonal,
    spread,
    up,
)

_WORTH = 0.7
"""Share of the neurons that must not be exceeded for the change to pay."""
_BLURRED = 1e-11
"""Relative radius from which a product of weights is no longer worth the neurons it saves."""
_TAME = 2.0**300
"""The product of three entries between this and its inverse neither over- nor underflows, rounded up or not."""


@dataclass(frozen=True, eq=False)
class Near:
    """A real matrix W with |W - middle| ≤ radius entrywise; no radius is an exact matrix."""

    middle: Weight
    radius: Weight | None = None

    @property
    def may_pay(self) -> bool:
        """Whether there are so many neurons that keeping only some of them could pay."""
        return bool(self.middle.shape[1] <= _WORTH * self.middle.shape[0])

    def shifted(self, power: int) -> Near:
        """2**power·W, exact but for underflow."""
        factors = 2.0 ** (power // 2), 2.0 ** (power - power // 2)
        return Near(*(None if part is None else part * factors[0] * factors[1] for part in (self.middle, self.radius)))

    def image(self, P: Array | None) -> Array:
        """Ŝ with W P Wᵀ ≼ Ŝ.

        With W = middle + Δ the difference to middle·P·middleᵀ is at most R|P||M|ᵀ + (|M| + R)|P|Rᵀ entrywise, R the
        radius; a symmetric matrix is at most the diagonal matrix of its absolute row sums.
        """
        S = congruence(P, self.middle)
        if self.radius is None:
            return S
        size, radius, ones = magnitude(self.middle), self.radius, np.ones(self.middle.shape[0])
        inner, slack = (spread(matrix.T, ones) for matrix in (size, radius))
        if P is not None:
            inner, slack = (apply(np.abs(P), vector) for vector in (inner, slack))
        charge = spread(radius, inner) + spread(size, slack) + spread(radius, slack)
        return raise_diagonal(S, up(charge * UP * UP) + TINY * (1.0 + inner.sum() + slack.sum()))

    def squares(self, P: Array | None) -> Array:
        """At least the diagonal of W P Wᵀ, (n,); exactly zero for rows that are zero.

        The computed diagonal loses at most γ|M||P||M|ᵀ, and the radius R contributes at most 2R|P|(|M| + R)ᵀ.
        """
        size = magnitude(self.middle)
        reach = size if self.radius is None else size + self.radius
        if P is None:
            half, whole = self.middle, reach
        else:
            half, whole = self.middle @ P, reach @ np.abs(P)
        total = _row_dots(half, self.middle)
        error = gamma(2 * self.middle.shape[1] + 2 * LOOSE + 8) * _row_dots(whole, reach)
        if self.radius is not None:
            error = error + 2.0 * _row_dots(whole, self.radius)
        still = (
            np.asarray(abs(reach).max(axis=1).toarray() if sparse.issparse(reach) else reach.max(axis=1)).ravel() == 0
        )
        sums = (1.0 if P is None else 1.0 + float(np.abs(P).sum())) * (1.0 + float(reach.max()))
        return np.where(still, 0.0, up(np.maximum(total, 0.0) + error * UP * UP) + TINY * sums)


@dataclass(frozen=True, eq=False)
class Carried:
    """What is kept of a layer: the ``neurons`` with open slopes, then the values before the layer, slope 1."""

    rows: Near
    alpha: Array
    beta: Array
    neurons: Array
    ahead: Near

    def narrow(self, values: Array) -> Array:
        """Values of the layer's neurons, as values of what is kept; zero for carried ones."""
        kept = np.zeros(self.alpha.shape)
        kept[: self.neurons.size] = values[self.neurons]
        return kept


def carried(weight: Near, alpha: Array, beta: Array, still: Array, ahead: Weight) -> Carried | None:
    """What to keep of a layer, or None where all of it is as good.

    ``still`` marks neurons that do not move at all: their rows are zero. The next weight over what is kept is
    [ahead_open, Σ ahead_l α_l W_l], the sum over neurons with one slope α. Its terms are products of three floats, of
    which two are known to LOOSE·u, and fan_in bounds how many of them an entry adds up; the radius of W is multiplied
    by |ahead||α|.
    """
    n, before = weight.middle.shape
    neurons = np.flatnonzero((alpha < beta) & ~still)
    if neurons.size + before > _WORTH * n:
        return None
    settled = np.flatnonzero((alpha >= beta) & ~still & (alpha != 0.0))
    slope = sparse.diags_array(alpha[settled], format="csr")
    scaled, part = slope @ weight.middle[settled], ahead[:, settled]
    edges = [] if weight.radius is None else [weight.radius[settled]]
    if not all(_tame(matrix) for matrix in (part, alpha[settled], weight.middle[settled], *edges)):
        return None
    product, size = part @ scaled, magnitude(part) @ magnitude(scaled)
    radius = gamma(fan_in(part) + 2 * LOOSE + 4) * size
    for edge in edges:
        radius = radius + magnitude(part) @ (abs(slope) @ edge)
    if abs(radius).max() > _BLURRED * abs(product).max():  # errors of long products grow with |W|, not with W
        return None
    eye = sparse.eye_array(before, format="csr")
    none = sparse.csr_array((before, before))
    return Carried(
        rows=Near(
            _beside([weight.middle[neurons], eye], 0),
            None if weight.radius is None else _beside([weight.radius[neurons], none], 0),
        ),
        alpha=np.concatenate([alpha[neurons], np.ones(before)]),
        beta=np.concatenate([beta[neurons], np.ones(before)]),
        neurons=neurons,
        ahead=Near(
            _beside([ahead[:, neurons], product], 1),
            _beside([sparse.csr_array((ahead.shape[0], neurons.size)), radius * (UP * UP)], 1),
        ),
    )


def _tame(matrix: Weight) -> bool:
    """Whether no product of three such matrices over- or underflows."""
    entries = np.abs(matrix.data if sparse.issparse(matrix) else np.ravel(matrix))
    entries = entries[entries > 0]
    return not entries.size or bool(entries.min() > 1.0 / _TAME and entries.max() < _TAME)


def _row_dots(one: Weight, two: Weight) -> Array:
    """Row by row, the sum of the products of the entries."""
    if sparse.issparse(one) or sparse.issparse(two):
        first, second = (two, one) if not sparse.issparse(one) else (one, two)
        return np.asarray((sparse.csr_array(first) * second).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", one, two)


def _beside(parts: list[Weight], axis: int) -> Weight:
    """Matrices below (axis 0) or beside (axis 1) each other, dense where that is no larger."""
    if all(sparse.issparse(part) for part in parts):
        joined = sparse.csr_array((sparse.vstack if axis == 0 else sparse.hstack)(parts, format="csr"))
        joined.sum_duplicates()
        return joined if 4 * joined.nnz < joined.shape[0] * joined.shape[1] else np.asarray(joined.toarray())
    return np.concatenate([dense(part) for part in parts], axis=axis)
