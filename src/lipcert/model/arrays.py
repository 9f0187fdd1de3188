"""Array types that signatures speak of, and products with dense or sparse ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lipcert.errors import InvalidInput

Array: TypeAlias = NDArray[Any]
"""A numpy array; of float64 unless the docstring says otherwise."""

Floats: TypeAlias = NDArray[np.float64]
Parameter: TypeAlias = float | Array
Weight: TypeAlias = "NDArray[np.float64] | sparse.csr_array"
"""A weight matrix (outputs, inputs), dense or sparse."""


_WORK, _COLUMNS = 10_000_000, 64
"""Products of entries, and columns, from which looking for blocks pays."""
_ROWS = 4
"""Rows from which a block pays."""


def times(rows: Array, weight: Weight) -> Array:
    """Rows · weight for dense rows (..., k, n) and a dense or sparse weight (n, m)."""
    if isinstance(weight, np.ndarray):
        return np.asarray(rows @ weight)
    flat = np.reshape(rows, (-1, rows.shape[-1]))
    flat = product(weight.T, flat.T).T if _many(weight, len(flat)) else flat @ weight
    return np.reshape(flat, (*rows.shape[:-1], weight.shape[1]))


def product(weight: Any, columns: Array) -> Array:
    """Weight · columns for a sparse weight (m, n) and dense columns (n, k), by dense products where rows allow it.

    The channels of a convolution at one place see the same inputs: their rows have entries in the same columns, and
    are a dense block. Each number of the result is a sum of the same products, in some order.
    """
    matrix = sparse.csr_array(weight)
    columns = np.ascontiguousarray(columns)
    if not _many(matrix, columns.shape[1]) or not matrix.has_canonical_format:
        return np.asarray(matrix @ columns)
    out = np.zeros((matrix.shape[0], columns.shape[1]))
    left = np.ones(len(out), dtype=bool)
    for rows, seen, block in same_columns(matrix):
        out[rows] = block @ columns[seen]
        left[rows] = False
    if left.any():
        out[left] = matrix[np.flatnonzero(left)] @ columns
    return out


def _many(weight: Any, columns: int) -> bool:
    return bool(columns >= _COLUMNS and weight.nnz * columns >= _WORK)


def same_columns(matrix: sparse.csr_array) -> Iterator[tuple[Array, Array, Array]]:
    """Rows with entries in the same columns, those columns, and the entries, (rows, columns).

    Rows are sorted by a number made of their columns; that these are the same is looked up.
    """
    counts = np.diff(matrix.indptr)
    some = np.flatnonzero(counts)
    if not some.size:
        return
    marks = np.random.default_rng(0).integers(1, 2**62, matrix.shape[1], dtype=np.uint64)
    sums = np.add.reduceat(marks[matrix.indices], matrix.indptr[some])
    order = np.argsort(sums, kind="stable")
    for group in np.split(some[order], np.flatnonzero(np.diff(sums[order])) + 1):
        count = counts[group[0]]
        if len(group) < _ROWS or (counts[group] != count).any():
            continue
        where = matrix.indptr[group][:, None] + np.arange(count)
        seen = matrix.indices[where]
        if (seen == seen[0]).all():
            yield group, seen[0], matrix.data[where]


def indices(name: str, value: Iterable[int] | None, size: int) -> Array:
    """Distinct positions in range(size), or an error that names the argument; None is all of them."""
    if value is None:
        return np.arange(size)
    try:
        picked = np.atleast_1d(np.asarray(value if np.isscalar(value) or np.ma.is_masked(value) else list(value)))
    except (TypeError, ValueError):
        picked = np.zeros(0)
    whole = picked.ndim == 1 and picked.size > 0 and picked.dtype.kind in "iu" and not np.ma.is_masked(value)
    if not whole or picked.min() < 0 or picked.max() >= size:
        raise InvalidInput(f"{name} must be indices from 0 to {size - 1}, at least one; got {value!r}")
    if len(set(picked.tolist())) != picked.size:
        raise InvalidInput(f"{name} must not repeat an index; got {value!r}")
    return picked


def dense(matrix: Any) -> Array:
    """A dense copy of a sparse matrix, or the dense matrix itself."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


def frozen(array: Array) -> Array:
    """The array itself, which can be read only from now on."""
    array.flags.writeable = False
    return array
