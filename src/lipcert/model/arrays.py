"""Array types that signatures speak of, and products with dense or sparse ones."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array: TypeAlias = NDArray[Any]
"""A numpy array; of float64 unless the docstring says otherwise."""

Floats: TypeAlias = NDArray[np.float64]
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


def frozen(array: Array) -> Array:
    """The array itself, which can be read only from now on."""
    array.flags.writeable = False
    return array
