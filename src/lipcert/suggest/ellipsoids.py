"""Ellipsoids around cubes: what a proof in ℓ1 or ℓ∞ norms may begin with. Any positive axes are safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import Norms
from lipcert.suggest.algebra import matvec, powers

_ROUNDS: Final = 12
"""Of the search for an ellipsoid around a cube."""
_SMALL: Final = 64
"""Sizes up to which all eigenvalues are found."""
_FLOOR: Final = 1e-9
"""Least share of a coordinate of the cube, relative to the mean."""
_ROOM: Final = 0.02
"""Share of the ellipsoid that a start spreads evenly: the Jacobian elsewhere has other small entries."""


def start_near(
    network: Network,
    points: Sequence[Array],
    norms: Norms,
    known: Sequence[tuple[Array, Array]] = (),
    moving: int | None = None,
) -> Array | None:
    """Axes h of a good ellipsoid P_0 = D_h² for regions around some points; None where the norm needs none.

    It is good for the Jacobians at the points; without points, for that with the middle of the slopes on intervals.
    """
    if norms.input.name != "linf":
        return None
    with np.errstate(all="ignore"):
        if len(points) and all(len(point) == network.inputs for point in points):
            matrix = np.concatenate([network.jacobian(point) for point in points])
        else:
            ranges = []
            for index, layer in enumerate(network.layers[:-1]):
                assert layer.neurons is not None
                ends = known[index] if known else (-np.inf, np.inf)
                ranges.append(layer.neurons.slope_range(*(np.broadcast_to(end, (layer.size,)) for end in ends)))
            matrix = network.jacobian_of([0.5 * (alpha + beta) for alpha, beta in ranges])
        matrix = matrix[:, :moving]
        sizes = np.abs(np.nan_to_num(matrix, posinf=0.0, neginf=0.0))
        if not sizes.any():
            return np.ones(matrix.shape[-1])
        q = _row_by_row(sizes) if norms.output.name == "linf" else shares_around(matrix)
        q = q + _ROOM / matrix.shape[-1]
        return np.asarray(1.0 / np.sqrt(q / q.sum()))


def shares_around(matrix: Array, gram: bool = False) -> Array:
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
        v = matvec(np.swapaxes(rows, -1, -2), v) if wide else v
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
    start = 1.0 + 0.5 * np.cos(np.arange(S.shape[-1]) + 1.0) + np.zeros(S.shape[:-1])
    size, v = powers(lambda x: matvec(S, x), start, _ROUNDS)
    return size[..., 0], v
