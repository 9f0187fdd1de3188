"""Induced norms of matrices between ℓ1, ℓ2 and ℓ∞, and the directions that attain them, in floating point."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.norms import PLAIN, Norms

_FEW, _ROUNDS = 8, 10
"""Up to so many coordinates all sign vectors are tried, at most 128; beyond, so many rounds of ascent."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """How far Jacobians stretch inputs, in norms with units."""

    norms: Norms = PLAIN

    def most(self, jacobians: Array) -> tuple[Array, Array, Array]:
        """The norm of each matrix (count, m, n), or a little less, and u, v with norm = uᵀJv where it is attained."""
        jacobians = np.nan_to_num(jacobians, posinf=0.0, neginf=0.0)  # LAPACK may never return from an infinite entry
        into, out = self.norms.input.units(jacobians.shape[-1]), self.norms.output.units(jacobians.shape[-2])
        scaled = jacobians if into is None else jacobians * into
        scaled = scaled if out is None else scaled / out[:, None]
        size, u, v = stretched_most(scaled, self.norms)
        return size, u if out is None else u / out, v if into is None else v * into


PLAINLY = Stretch()
"""In ℓ2 norms."""


def stretched_most(jacobians: Array, norms: Norms = PLAIN) -> tuple[Array, Array, Array]:
    """The norm of each matrix (count, m, n), or a little less, and u, v with norm = uᵀJv.

    v (count, n) has norm one, and u (count, m) has norm one in the dual of the output norm. Norms from ℓ∞, or to ℓ1,
    are found by trying all corners if they are few, else by ascent from several of them, which may miss the largest.
    """
    p, q = norms.pair
    if (p, q) == ("l2", "l2"):
        left, size, right = np.linalg.svd(jacobians, full_matrices=False)
        return size[:, 0], left[..., 0], right[:, 0]
    if q == "l1" and (p != "linf" or jacobians.shape[1] < jacobians.shape[2]):
        tries = _corners(jacobians.shape[1])
        if tries is not None:  # u first
            pulled = np.einsum("km,cmn->ckn", tries, jacobians)
            v = np.stack([_aligned(pulled[:, k], norms.input.dual) for k in range(len(tries))], axis=1)
            return _best(jacobians, v, norms)
    if p == "l1":
        eye = np.broadcast_to(np.eye(jacobians.shape[2]), (len(jacobians), *[jacobians.shape[2]] * 2))
        return _best(jacobians, eye, norms)
    if q == "linf":
        return _best(jacobians, _aligned(jacobians, norms.input.dual), norms)
    tries = _corners(jacobians.shape[2]) if p == "linf" else None
    if tries is not None:
        return _best(jacobians, np.broadcast_to(tries, (len(jacobians), *tries.shape)), norms)
    v = _aligned(
        np.concatenate([jacobians, np.linalg.svd(jacobians, full_matrices=False)[2][:, :1]], 1), norms.input.dual
    )
    for _ in range(_ROUNDS):
        u = _aligned(v @ np.swapaxes(jacobians, 1, 2), q)
        v = _aligned(u @ jacobians, norms.input.dual)
    return _best(jacobians, v, norms)


def _corners(n: int) -> Array | None:
    """Sign vectors, one of each and its negative; None where they are many."""
    if n > _FEW:
        return None
    return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n - 1)]).reshape(-1, n)


def _aligned(vectors: Array, name: str) -> Array:
    """For each vector w, the z with z·w = ‖w‖ in the norm of that name, itself of size one in its dual."""
    if name == "l1":
        return np.where(vectors < 0.0, -1.0, 1.0)
    if name == "l2":
        length = np.linalg.norm(vectors, axis=-1, keepdims=True)
        even = np.full(vectors.shape, 1.0 / np.sqrt(vectors.shape[-1]))
        return np.divide(vectors, length, out=even, where=length > 0.0)
    largest = np.argmax(np.abs(vectors), axis=-1)[..., None]
    found = np.zeros(vectors.shape)
    sign = np.where(np.take_along_axis(vectors, largest, -1) < 0.0, -1.0, 1.0)
    np.put_along_axis(found, largest, sign, -1)
    return found


def _best(jacobians: Array, tries: Array, norms: Norms) -> tuple[Array, Array, Array]:
    """The best of some directions v (count, k, n)."""
    moved = tries @ np.swapaxes(jacobians, 1, 2)
    u = _aligned(moved, norms.output.name)
    sizes = np.einsum("ckm,ckm->ck", u, moved)
    best = np.argmax(sizes, axis=1)
    at = np.arange(len(jacobians)), best
    return sizes[at], u[at], tries[at]
