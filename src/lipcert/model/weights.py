"""The weights and biases of a network: what users hand in, what is stored, and what tells one from another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput
from lipcert.model.arguments import numbers
from lipcert.model.arrays import Array, Weight
from lipcert.model.convolution import MOST_ENTRIES, Convolution


def listed(name: str, value: Any) -> list[Any]:
    """A list, or an error that names the argument."""
    try:
        return list(value)
    except TypeError:
        raise InvalidInput(f"{name} must be a list, one entry per layer; got {type(value).__name__}") from None


def identity(linear: Weight | Convolution) -> Iterator[bytes]:
    """What tells one linear map from another."""
    if isinstance(linear, Convolution) and linear.entries > MOST_ENTRIES:
        facts = linear.kernel.shape, linear.image, linear.stride, linear.padding, linear.dilation
        yield f"convolution {facts} {linear.groups} {linear.circular}".encode()
        yield (np.asarray(linear.kernel, dtype="<f8") + 0.0).tobytes()
        return
    stored = linear.sparse() if isinstance(linear, Convolution) else linear
    entries = sparse.csr_array(stored, copy=True)  # the stored arrays are read-only
    entries.sum_duplicates()
    entries.eliminate_zeros()
    yield repr(linear.shape).encode()
    for part in (entries.indptr, entries.indices):
        yield np.asarray(part, dtype="<i8").tobytes()
    yield np.asarray(entries.data, dtype="<f8").tobytes()


def weight_of(value: Any, layer: int) -> Weight | Convolution:
    """A matrix (outputs, inputs) of float64 or a convolution, or an error that names the layer."""
    if isinstance(value, Convolution):
        return value
    if sparse.issparse(value):
        _inside(value, layer)
        numbers(f"weight of layer {layer}", value.data)
        matrix = sparse.csr_array(value, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        numbers(f"weight of layer {layer}", matrix.data)
    else:
        matrix = numbers(f"weight of layer {layer}", value)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInput(f"weight of layer {layer} must be a matrix (outputs, inputs), got shape {matrix.shape}")
    return matrix


def _inside(matrix: Any, layer: int) -> None:
    """Refuse indices outside the matrix before anything is written through them."""
    if not hasattr(matrix, "check_format"):
        return
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidInput(f"weight of layer {layer} is not a sound sparse matrix: {error}") from None


def bias_of(value: Any, size: int, layer: int) -> Array:
    """A vector of that many numbers; zeros for None."""
    if value is None:
        return np.zeros(size)
    bias = numbers(f"bias of layer {layer}", value)
    if bias.size != size or bias.ndim > 2 or (bias.ndim == 2 and 1 not in bias.shape):
        raise InvalidInput(
            f"bias of layer {layer} must have {size} numbers, as the weight has rows; got shape {bias.shape}"
        )
    return bias.reshape(size)


def entries(linear: Weight | Convolution) -> int:
    """How many numbers are stored."""
    if isinstance(linear, Convolution):
        return int(linear.kernel.size)
    return int(linear.size if isinstance(linear, np.ndarray) else linear.nnz)


def transposed_hint(matrices: Sequence[Weight | Convolution]) -> str:
    """A word where matrices would fit if they were transposed."""
    fits = all(one.shape[1] == two.shape[0] for one, two in itertools.pairwise(matrices))
    return " (they fit when transposed: pass W.T)" if fits else ""
