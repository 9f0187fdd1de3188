"""Sums and products of large matrices in float64, block by block, so that what lies between stays in caches.

Fresh memory for a matrix that is used once takes longer than the arithmetic. Sums are rounded as they come; whoever
needs a bound of their error charges for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import sparse

from lipcert.model.arrays import Array, Weight, times

_LARGE: Final = 2**17
"""Numbers of a block of rows."""
_PANEL: Final = 256
"""Rows of a block of a triangle."""


def row_blocks(matrix: Array) -> list[slice]:
    """The rows of a matrix, or of a stack, in blocks: what is made of one stays in the processor's caches."""
    if matrix.size <= _LARGE:
        return [slice(None)]
    rows = max(1, _LARGE * matrix.shape[-2] // matrix.size)
    return [slice(start, start + rows) for start in range(0, matrix.shape[-2], rows)]


def size_times(matrix: Weight, x: Array | None = None) -> Array:
    """|matrix|·x for x (..., n), or the row sums of |matrix|, rounded as it comes; one matrix, or as many as x."""
    if sparse.issparse(matrix):
        return np.asarray(abs(matrix).sum(axis=-1)) if x is None else times(x, abs(matrix).T)
    if x is not None and matrix.ndim == 2 and matrix.size <= _LARGE:
        return np.asarray(x @ np.abs(matrix).T)
    parts = []
    for rows in row_blocks(matrix):
        part = np.abs(matrix[..., rows, :])
        parts.append(part.sum(axis=-1) if x is None else (part @ x[..., None])[..., 0])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def factor_sizes(C: Array, L: Array) -> Array:
    """Σ_j |C - L Lᵀ|_ij of each row as computed, (..., n), for C symmetric and L a lower triangle.

    Of large matrices only the lower half is formed, from products without the zeros of L, and stands for both halves.
    """
    n = C.shape[-1]
    if n <= _PANEL:
        return np.abs(C - L @ np.swapaxes(L, -1, -2)).sum(axis=-1)
    found = np.zeros(C.shape[:-1])
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        rows = L[..., start:stop, :stop] @ np.swapaxes(L[..., :stop, :stop], -1, -2)
        rows -= C[..., start:stop, :stop]
        np.abs(rows, out=rows)
        found[..., start:stop] += rows.sum(axis=-1)
        found[..., :start] += rows[..., :start].sum(axis=-2)
    return found


def symmetrised(stack: Array) -> Array:
    """(A + Aᵀ)/2 of each matrix of a stack, one rounding per entry, written over it where it is large."""
    n = stack.shape[-1]
    if n <= _PANEL:
        twice = stack + np.swapaxes(stack, -1, -2)
        twice *= 0.5
        return np.asarray(twice)
    for start in range(0, n, _PANEL):
        rows, columns = stack[..., start : start + _PANEL, start:], stack[..., start:, start : start + _PANEL]
        rows = rows + np.swapaxes(columns, -1, -2)
        rows *= 0.5
        stack[..., start : start + _PANEL, start:], columns[...] = rows, np.swapaxes(rows, -1, -2)
    return stack
