"""Fewer neurons to carry, proved: those with one slope are affine functions of the values before their layer.

A layer over values u is determined by its neurons with open slopes together with u itself; the next layer's weight in
those terms is a product of matrices. Its rounding errors are kept entry by entry: a real matrix W is held as a float
matrix and a radius, |W - middle| ≤ radius.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight, dense, frozen, times
from lipcert.proof.rounding import LOOSE, UP, fan_in, gamma, magnitude, tame

_WIDE = 600
"""Neurons of a layer from which folding is tried; narrower ones go through in stacks."""
_WORTH = 0.7
"""Share of the neurons that must not be exceeded for folding to pay."""
_BLURRED = 1e-11
"""Relative radius from which a product of weights is no longer worth the neurons it saves."""
_TAME = 2.0**300
"""The product of three entries between this and its inverse neither over- nor underflows, rounded up or not."""


@dataclass(frozen=True, eq=False)
class Near:
    """A real matrix W with |W - middle| ≤ radius entrywise; no radius is an exact matrix.

    With ``kept`` (count, k) a stack of matrices: those columns of W, for each region.
    """

    middle: Weight
    radius: Weight | None = None
    kept: Array | None = None

    @staticmethod
    def columns(weight: Weight, kept: Array | None) -> Near:
        """The columns of a weight that belong to what is kept of the layer before; None is all."""
        if kept is None:
            return Near(weight)
        return Near(_frozen(weight[:, kept[0]])) if len(kept) == 1 else Near(dense(weight), None, frozen(kept))

    @cached_property
    def full(self) -> Weight:
        """The middle with all rows, (n, k) or (count, n, k)."""
        return self.middle if self.kept is None else frozen(np.swapaxes(self.middle.T[self.kept], -1, -2))

    @cached_property
    def still(self) -> Array:
        """Rows of a single matrix that are zero, whatever W is within the radius, (n,)."""
        parts = [magnitude(self.middle)] if self.radius is None else [magnitude(self.middle), self.radius]
        return np.logical_and.reduce([np.asarray(part.sum(axis=1)).ravel() == 0.0 for part in parts])

    def rows(self, which: Array) -> Weight:
        """Some rows of the middle, (k', k), or for several regions (count, k', k)."""
        if self.kept is not None:
            return np.asarray(self.middle[which[:, :, None], self.kept[:, None, :]])
        return dense(self.middle)[which] if len(which) > 1 else self.middle[which[0]]

    def pull(self, directions: Array) -> Array:
        """directions·W for directions (count, d, n)."""
        back = times(directions, self.middle)
        return back if self.kept is None else np.take_along_axis(back, self.kept[:, None, :], -1)

    @property
    def may_fold(self) -> bool:
        """Whether there are so many neurons that keeping only some of them could pay."""
        rows, columns = self.middle.shape
        return bool(self.kept is None and rows >= _WIDE and columns <= _WORTH * rows)

    def shifted(self, power: int) -> Near:
        """2**power·W, exact but for underflow."""
        factors = 2.0 ** (power // 2), 2.0 ** (power - power // 2)
        middle, radius = (None if x is None else x * factors[0] * factors[1] for x in (self.middle, self.radius))
        assert middle is not None
        return Near(middle, radius, self.kept)


@dataclass(frozen=True, eq=False)
class Folded:
    """What is kept of a layer: the ``neurons`` with open slopes, then the values before the layer, slope 1."""

    rows: Near
    alpha: Array
    beta: Array
    neurons: Array
    ahead: Near


def folded(weight: Near, alpha: Array, beta: Array, still: Array, ahead: Weight) -> Folded | None:
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
    if not all(tame(matrix, _TAME) for matrix in (part, alpha[settled], weight.middle[settled], *edges)):
        return None
    product, size = part @ scaled, magnitude(part) @ magnitude(scaled)
    radius = gamma(fan_in(part) + 2 * LOOSE + 4) * size
    for edge in edges:
        radius = radius + magnitude(part) @ (abs(slope) @ edge)
    if abs(radius).max() > _BLURRED * abs(product).max():  # errors of long products grow with |W|, not with W
        return None
    eye = sparse.eye_array(before, format="csr")
    none = sparse.csr_array((before, before))
    return Folded(
        rows=Near(
            _beside([weight.middle[neurons], eye], 0),
            None if weight.radius is None else _beside([weight.radius[neurons], none], 0),
        ),
        alpha=np.concatenate([alpha[neurons], np.ones(before)]),
        beta=np.concatenate([beta[neurons], np.ones(before)]),
        neurons=neurons,
        ahead=Near(
            _frozen(_beside([ahead[:, neurons], product], 1)),
            _beside([sparse.csr_array((ahead.shape[0], neurons.size)), radius * (UP * UP)], 1),
        ),
    )


def _frozen(weight: Weight) -> Weight:
    """The weight itself, to be read only."""
    frozen(weight if isinstance(weight, np.ndarray) else weight.data)
    return weight


def _beside(parts: list[Weight], axis: int) -> Weight:
    """Matrices below (axis 0) or beside (axis 1) each other, dense where that is no larger."""
    if all(sparse.issparse(part) for part in parts):
        joined = sparse.csr_array((sparse.vstack if axis == 0 else sparse.hstack)(parts, format="csr"))
        joined.sum_duplicates()
        return joined if 4 * joined.nnz < joined.shape[0] * joined.shape[1] else np.asarray(joined.toarray())
    return np.concatenate([dense(part) for part in parts], axis=axis)
