"""Norms of matrices between ℓ1, ℓ2 and ℓ∞, and sizes of ellipsoids in them, rounded up.

The norm of M from p to q is the largest zᵀMx with ‖x‖_p ≤ 1 and ‖z‖_q* ≤ 1, q* the dual of q. Of ℓ1 balls the corners
are ± unit vectors, so columns (p = 1) or rows (q = ∞) tell the norm. Those of ℓ∞ balls are sign vectors: all are tried
where they are few; otherwise an ellipsoid around the cube helps, since for every h > 0

    |x_i| ≤ 1 for all i   implies   ‖x/h‖₂² ≤ Σ 1/h_i².
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import NORMS, Norm, Norms
from lipcert.proof.hints import Interval
from lipcert.proof.rounding import (
    TINY,
    UP,
    apply,
    gamma,
    largest_eigenvalue_above,
    norm_above,
    raise_diagonal,
    spectral_above,
    stretched,
    twice_above,
    up,
)

FEW: Final = 10
"""Coordinates of a cube up to which all of its corners are tried."""
_ROUNDS: Final = 12
"""Of the search for an ellipsoid around a cube."""
_SMALL: Final = 64
"""Sizes up to which all eigenvalues are found."""
_FLOOR: Final = 1e-9
"""Least share of a coordinate of the cube, relative to the mean."""

_ROOM: Final = 0.02
"""Share of the ellipsoid that a start spreads evenly: the Jacobian elsewhere has other small entries."""


def start_gain(norm: Norm, start: Array | None, size: int) -> float:
    """At least the largest ‖x/h‖₂ for ‖x‖ ≤ 1: what P_0 = D_h² multiplies a bound with; no start is h = 1."""
    h = np.ones(size) if start is None else start
    if norm.name == "linf":
        return float(norm_above(up(1.0 / h)))
    return float(up(np.asarray(1.0 / h.min()))) if start is not None else 1.0


def ellipsoid_above(S: Array, norm: Norm) -> Array:
    """At least the largest ‖y‖ with y yᵀ ≼ S, for each matrix of a stack (..., n, n) that is about semidefinite.

    That is the root of the largest zᵀSz over the ball of the dual norm.
    """
    if norm.name == "l2":
        square = largest_eigenvalue_above(S)
    elif norm.name == "linf":
        square = np.diagonal(S, axis1=-2, axis2=-1).max(axis=-1)
    else:
        square = _cube_above(S)
    return stretched(np.sqrt(np.maximum(square, 0.0)), 2)


def _cube_above(S: Array) -> Array:
    """At least the largest σᵀSσ over sign vectors σ: ‖y‖₁ is σᵀy for one of them."""
    n = S.shape[-1]
    total = stretched(np.abs(S).sum(axis=-1).sum(axis=-1), 2 * n + 2)
    if n <= FEW:
        signs = _signs(n)
        values = ((signs @ S) * signs).sum(axis=-1).max(axis=-1)
        return np.fmin(total, up(values + (gamma(2 * n + 8) * total * UP + TINY)))
    if not np.isfinite(S).all():
        return total
    h = 1.0 / np.sqrt(_around(S, gram=True))
    scaled = h[..., :, None] * S * h[..., None, :]
    charge = gamma(8) * np.abs(scaled).sum(axis=-1) * UP + TINY
    scaled = raise_diagonal(0.5 * (scaled + np.swapaxes(scaled, -1, -2)), charge)
    sides = norm_above(up(1.0 / h))
    return np.fmin(total, twice_above(sides, np.maximum(largest_eigenvalue_above(scaled), 0.0)))


def induced_above(middle: Array, radius: Array, norms: Norms) -> Array:
    """At least the norm of every matrix within the radius of the middle, entry by entry, for stacks (..., m, n).

    By the sizes of entries, and where signs matter by the middle itself; the smaller counts.
    """
    sizes = up(np.abs(middle) + radius)
    p, q = norms.pair
    if (q == "l1" and p == "l2") or (p == "linf" and q == "l1" and middle.shape[-2] < middle.shape[-1]):
        return induced_above(np.swapaxes(middle, -1, -2), np.swapaxes(radius, -1, -2), _turned(norms))
    if p == "l1":  # the largest column
        return _vectors(np.swapaxes(sizes, -1, -2), q).max(axis=-1)
    if q == "linf":  # the largest row, in the dual norm
        return _vectors(sizes, norms.input.dual).max(axis=-1)
    if p == "l2":
        return np.fmin(stretched(spectral_above(middle) + spectral_above(radius), 1), spectral_above(sizes))
    every = _vectors(_vectors(sizes, "l1"), q)
    rest = _vectors(_vectors(radius, "l1"), q)
    return np.fmin(every, stretched(_corners(middle, q) + rest, 1))


def spectral_factor(norms: Norms, rows: int, columns: int) -> float:
    """At least the norm from p to q of a matrix (rows, columns) whose spectral norm is one."""
    into = np.sqrt(float(columns)) if norms.pair[0] == "linf" else 1.0
    out = np.sqrt(float(rows)) if norms.pair[1] == "l1" else 1.0
    return float(into * out * UP)


def start_near(
    network: Network, points: Sequence[Array], norms: Norms, known: Sequence[Interval] = (), moving: int | None = None
) -> Array | None:
    """A start for regions around some points, by the Jacobians there; else by the middle of the slopes on intervals."""
    if norms.input.name != "linf":
        return None
    with np.errstate(all="ignore"):
        if len(points) and all(len(point) == network.inputs for point in points):
            matrix = np.concatenate([network.jacobian(point) for point in points])
        else:
            slopes = []
            for index, layer in enumerate(network.layers[:-1]):
                assert layer.neurons is not None
                low, high = known[index] if known else (-np.inf, np.inf)
                ends = (np.broadcast_to(end, (layer.size,)) for end in (low, high))
                alpha, beta = layer.neurons.slope_range(*ends)
                slopes.append(0.5 * (alpha + beta))
            matrix = network.jacobian_of(slopes)
        return suggested_start(matrix[:, :moving], norms)


def suggested_start(matrix: Array, norms: Norms) -> Array | None:
    """Axes h of a good ellipsoid P_0 = D_h² for a matrix (m, n) near the Jacobian; None where the norm needs none.

    A suggestion: any positive numbers are safe.
    """
    if norms.input.name != "linf":
        return None
    sizes = np.abs(np.nan_to_num(matrix, posinf=0.0, neginf=0.0))
    if not sizes.any():
        return np.ones(matrix.shape[-1])
    q = _row_by_row(sizes) if norms.output.name == "linf" else _around(matrix)
    q = q + _ROOM / matrix.shape[-1]
    return np.asarray(1.0 / np.sqrt(q / q.sum()))


def _turned(norms: Norms) -> Norms:
    """The norms between which the transposed matrix has the same norm."""
    return Norms(NORMS[norms.output.dual](), NORMS[norms.input.dual]())


def _vectors(vectors: Array, name: str) -> Array:
    """At least the norm of each vector of numbers that are not negative, (..., n)."""
    if name == "l2":
        return norm_above(vectors)
    if name == "linf":
        return np.asarray(vectors.max(axis=-1))
    return stretched(vectors.sum(axis=-1), vectors.shape[-1])


def _corners(middle: Array, q: str) -> Array:
    """At least the norm of a matrix (..., m, n) from ℓ∞ to ℓ1 or ℓ2."""
    m, n = middle.shape[-2:]
    if n <= FEW:
        values = np.abs(middle @ _signs(n).T)  # (..., m, corners)
        lost = gamma(n + 2) * np.abs(middle).sum(axis=-1) * UP + TINY
        values = np.swapaxes(values + lost[..., None], -1, -2)
        return _vectors(up(values), q).max(axis=-1)
    w, sides = np.ones((*middle.shape[:-2], m)), np.ones(middle.shape[:-2])
    h = 1.0 / np.sqrt(_around(middle))
    if q == "l1":  # the cube of signs of the outputs in an ellipsoid as well
        w = 1.0 / np.sqrt(_around(np.swapaxes(middle * h[..., None, :], -1, -2)))
        h = 1.0 / np.sqrt(_around(w[..., None] * middle))
        sides = norm_above(up(1.0 / w))
    norm = stretched(spectral_above(w[..., None] * middle * h[..., None, :]), 3) * norm_above(up(1.0 / h))
    return stretched(norm * sides, 4)


def _signs(n: int) -> Array:
    """The corners of a cube, one of each and its negative, (corners, n)."""
    return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n - 1)]).reshape(-1, n)


def _around(matrix: Array, gram: bool = False) -> Array:
    """Shares q > 0 with Σq = 1 that make the norm of M D_q^-½ small, (..., n), for matrices M (..., m, n), or MᵀM.

    With v the right singular vector of M D_q^-½, q = v² at the best q where it is unique. Rounds of q ← sqrt(q v²);
    of a single row the first is exact.
    """
    n = matrix.shape[-1]
    matrix = np.nan_to_num(matrix, posinf=0.0, neginf=0.0)
    matrix = matrix / np.maximum(np.abs(matrix).max(axis=(-2, -1), keepdims=True), 1e-300)
    wide = not gram and matrix.shape[-2] < n
    S = matrix if gram or wide else np.swapaxes(matrix, -1, -2) @ matrix
    q = best = np.full((*matrix.shape[:-2], n), 1.0 / n)
    least = np.full(matrix.shape[:-2], np.inf)
    for _ in range(_ROUNDS):
        h = 1.0 / np.sqrt(q)
        rows = matrix * h[..., None, :]
        value, v = _top(rows @ np.swapaxes(rows, -1, -2) if wide else h[..., :, None] * S * h[..., None, :])
        better = value < least
        best, least = np.where(better[..., None], q, best), np.where(better, value, least)
        v = apply(np.swapaxes(rows, -1, -2), v) if wide else v
        share = np.sqrt(q) * np.abs(v) + 1e-300
        share = share / share.sum(axis=-1, keepdims=True) + _FLOOR / n
        q = share / share.sum(axis=-1, keepdims=True)
    return best


def _row_by_row(sizes: Array) -> Array:
    """Shares q > 0 with Σq = 1 that make the largest Σ_j a_ij²/q_j of a row small, (n,), for sizes a (m, n).

    At the best q, q_j is the root of Σ_i λ_i a_ij² for weights λ of the rows; rows that count too much get more weight.
    """
    scaled = np.maximum(sizes / sizes.max(), _FLOOR)
    weights = np.ones(len(sizes))
    best, least = np.ones(sizes.shape[1]), np.inf
    for _ in range(2 * _ROUNDS):
        q = np.linalg.norm(np.sqrt(weights)[:, None] * scaled, axis=0)
        q = q / q.sum()
        rows = (scaled * (scaled / q)).sum(axis=1)
        if rows.max() < least:
            best, least = q, float(rows.max())
        weights = weights * rows / rows.max()
    return best


def _top(S: Array) -> tuple[Array, Array]:
    """About the largest eigenvalue of each matrix of a stack, and its vector; of large ones by a few powers."""
    if S.shape[-1] <= _SMALL:
        values, vectors = np.linalg.eigh(S)
        return values[..., -1], vectors[..., -1]
    v = 1.0 + 0.5 * np.cos(np.arange(S.shape[-1]) + 1.0) + np.zeros(S.shape[:-1])
    size = np.ones(S.shape[:-2])
    for _ in range(_ROUNDS):
        v = apply(S, v)
        size = np.linalg.norm(v, axis=-1)
        v = v / np.maximum(size, 1e-300)[..., None]
    return size, v
