"""Affine maps that are convolutions, recognised by their entries.

Whatever a layer was folded from (convolutions, batch norms, average pools, skips), its matrix over images is a
convolution if each entry depends only on the two channels and on where the input lies relative to the output. The
kernel is read off the entries, and its own matrix must be that matrix, so nothing is assumed of the operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution


def recognised(
    matrix: sparse.csr_array, shapes: Sequence[tuple[int, ...]], known: Sequence[tuple[int, ...]]
) -> Convolution | None:
    """The convolution that a matrix is, from tensors of the known shapes to others, one after the other; None if none.

    Periodic padding can be written as a kernel as wide as the image, too; the smaller kernel is taken.
    """
    before, after = _images(known), _images(shapes)
    if before is None or after is None or len(before[1]) != len(after[1]) or not matrix.nnz:
        return None
    plain = _convolution(matrix, before, after, False)
    if plain is not None and all(
        2 * d * (k - 1) < n for d, k, n in zip(plain.dilation, plain.window, plain.image, strict=True)
    ):
        return plain
    found = [plain, _convolution(matrix, before, after, True)]
    return min((one for one in found if one is not None), key=lambda one: math.prod(one.window), default=None)


def _images(shapes: Sequence[tuple[int, ...]]) -> tuple[int, tuple[int, ...]] | None:
    """Channels together, and sizes, of tensors (1, channels, *sizes) that are images of the same sizes."""
    sizes = {shape[2:] for shape in shapes}
    if len(sizes) != 1 or any(len(shape) < 3 or shape[0] != 1 for shape in shapes):
        return None
    return sum(shape[1] for shape in shapes), sizes.pop()


def _convolution(
    matrix: sparse.csr_array, before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]], circular: bool
) -> Convolution | None:
    """The convolution with the entries of the matrix and no others, or None."""
    rows = _sample(after)
    entries = sparse.coo_array(matrix[rows])
    outputs, here = np.divmod(rows[entries.row], math.prod(after[1]))
    channels, there = np.divmod(entries.col, math.prod(before[1]))
    strides, dilations, window, pads, taps = [], [], [], [], []
    axes: Any = zip(
        np.unravel_index(here, after[1]), np.unravel_index(there, before[1]), before[1], after[1], strict=True
    )
    for places, seen, n, m in axes:
        if circular and n % m:
            return None
        stride = n // m if circular else _stride(places, seen)
        offset = seen - stride * places
        if circular:
            offset = (offset + (n - 1) // 2) % n - (n - 1) // 2
        first = min(int(offset.min()), 0)
        dilation = int(np.gcd.reduce(offset - first)) or 1
        reach = int(offset.max()) - first  # from the first to the last place of a window
        if circular and reach >= n:
            return None
        strides.append(stride)
        dilations.append(dilation)
        window.append(reach // dilation + 1)
        pads.append((-first, max(reach + stride * (m - 1) + first + 1 - n, 0)))
        taps.append((offset - first) // dilation)
    shape = (after[0], before[0], *window)
    if math.prod(shape) > 16 * matrix.nnz:  # far from filled: no kernel
        return None
    kernel = np.zeros(shape)
    kernel[outputs, channels, *taps] = entries.data
    found = Convolution.of(kernel, before[1], strides, pads, dilations, circular=circular)
    if found.shape != matrix.shape:
        return None
    own = found.sparse()
    if not all(np.array_equal(getattr(own, part), getattr(matrix, part)) for part in ("indptr", "indices", "data")):
        return None
    groups = _groups((kernel != 0.0).any(axis=tuple(range(2, kernel.ndim))))
    if groups == 1:
        return found
    inner, outer = before[0] // groups, after[0] // groups
    blocks = [kernel[g * outer : (g + 1) * outer, g * inner : (g + 1) * inner] for g in range(groups)]
    return Convolution.of(np.concatenate(blocks), before[1], strides, pads, dilations, groups, circular)


def _sample(after: tuple[int, tuple[int, ...]]) -> Array:
    """The rows of all channels at places near the edges and the middle, which see all of a kernel."""
    near = [np.unique(np.minimum([0, m // 2, m // 2 + 1, m - 1], m - 1)) for m in after[1]]
    places = np.ravel_multi_index(np.ix_(*near), after[1]).ravel()
    return np.add.outer(math.prod(after[1]) * np.arange(after[0]), places).ravel()


def _stride(places: Array, seen: Array) -> int:
    """By how much the first or last place that is seen moves from one output to the next, away from the edges."""
    count = int(places.max()) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(first, places, seen)
    np.maximum.at(last, places, seen)
    full = np.flatnonzero(last >= 0)
    moves = [np.diff(end[full]) // np.maximum(np.diff(full), 1) for end in (first, last)]
    return max(1, int(np.concatenate(moves).max(initial=1)))


def _groups(used: Array) -> int:
    """The most groups in which no channel sees one of another group."""
    common = math.gcd(*used.shape)
    for groups in (g for g in range(common, 1, -1) if common % g == 0):
        blocks = np.kron(np.eye(groups, dtype=bool), np.ones((used.shape[0] // groups, used.shape[1] // groups), bool))
        if not (used & ~blocks).any():
            return groups
    return 1
