"""Array types that signatures speak of, and products with dense or sparse ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lipcert.errors import InvalidInput

Array: TypeAlias = NDArray[Any]
"""A numpy array; of float64 unless the docstring says otherwise."""

Parameter: TypeAlias = float | Array
Weight: TypeAlias = "NDArray[np.float64] | sparse.csr_array"
"""A weight matrix (outputs, inputs), dense or sparse."""
Interval: TypeAlias = tuple[Array, Array]
"""Lower and upper ends, (..., neurons)."""


def times(rows: Array, weight: Weight) -> Array:
    """Rows · weight for dense rows (..., k, n) and a dense or sparse weight (n, m)."""
    if isinstance(weight, np.ndarray):
        return np.asarray(rows @ weight)
    flat = np.reshape(rows, (-1, rows.shape[-1]))
    return np.reshape(flat @ weight, (*rows.shape[:-1], weight.shape[1]))


def dense(matrix: Any) -> Array:
    """A dense copy of a sparse matrix, or the dense matrix itself."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


def frozen(matrix: Any) -> Any:
    """The dense or sparse array itself, which can be read only from now on."""
    for part in (matrix,) if isinstance(matrix, np.ndarray) else (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


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
