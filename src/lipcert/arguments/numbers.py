"""What users hand in, as arrays, or errors that name the argument and what came."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lipcert.errors import InvalidInput

Array: TypeAlias = NDArray[Any]


def numbers(name: str, value: Any) -> Array:
    """A finite float64 array, or an error that names the argument and what came."""
    if _masked(value):
        raise InvalidInput(f"{name} has masked entries; fill them, as in {name}.filled(0.0), or leave them out")
    try:
        array = np.asarray(_without_grad(value))
        with np.errstate(over="ignore"):  # what overflows is refused as not finite
            array = array.astype(np.float64) if array.dtype.kind in "fiubO" else array
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:  # of a list, an int, a tensor
        raise InvalidInput(f"{name} must be numbers, got {type(value).__name__}: {error}") from None
    if array.dtype.kind != "f":
        got = f"{type(value).__name__} of {array.dtype.name}" if array.ndim else f"{array.item()!r:.60}"
        raise InvalidInput(f"{name} must be real numbers, got {got}")
    if not np.isfinite(array).all():
        odd = f"{np.count_nonzero(~np.isfinite(array))} NaN or infinite entries" if array.ndim else array.item()
        raise InvalidInput(f"{name} must be finite, got {odd}")
    return array


def scaled(name: str, value: Any) -> Array:
    """The same for points; bytes, as images have them, get a word about their scale."""
    kind = getattr(value, "dtype", None)
    if kind == np.uint8 if isinstance(value, np.ndarray) else str(kind).endswith("uint8"):
        warn(
            f"{name} is uint8 and is taken as it is, from 0 to 255; if the network was trained on numbers from 0 to 1,"
            f" give {name} / 255.0, or give floats to say that it was not",
            stacklevel=3,
        )
    return numbers(name, value)


def _without_grad(value: Any) -> Any:
    """A tensor of PyTorch, or those in a list, as an array; its numbers are the same, its history is left behind."""
    if isinstance(value, (list, tuple)):
        return [_without_grad(item) for item in value] if any(hasattr(item, "detach") for item in value) else value
    if not hasattr(value, "detach"):
        return value
    bare = value.detach().cpu()
    return (bare.double() if bare.is_floating_point() else bare).numpy()  # NumPy has no bfloat16


def _masked(value: Any) -> bool:
    """Whether an array, or one in a list, has entries that its mask hides; numpy would use what is behind the mask."""
    if isinstance(value, (list, tuple)):
        return any(_masked(item) for item in value)
    return bool(np.ma.is_masked(value)) if isinstance(value, np.ma.MaskedArray) else False


def indices(name: str, value: Iterable[int] | None, size: int) -> Array:
    """Distinct positions in range(size); None is all of them."""
    if value is None:
        return np.arange(size)
    if _masked(value):
        raise InvalidInput(f"{name} must be indices from 0 to {size - 1}; some are masked")
    try:
        picked = np.atleast_1d(np.asarray(list(value) if not np.isscalar(value) else value))
    except (TypeError, ValueError):
        picked = np.zeros(0)
    whole = picked.ndim == 1 and picked.size > 0 and picked.dtype.kind in "iu"
    if not whole or picked.min() < 0 or picked.max() >= size:
        raise InvalidInput(f"{name} must be indices from 0 to {size - 1}, at least one; got {value!r}")
    if len(set(picked.tolist())) != picked.size:
        raise InvalidInput(f"{name} must not repeat an index; got {value!r}")
    return picked


def listed(name: str, value: Any) -> list[Any]:
    """A list, or an error that names the argument."""
    try:
        return list(value)
    except TypeError:
        raise InvalidInput(f"{name} must be a list, one entry per layer; got {type(value).__name__}") from None


def matrix(name: str, value: Any) -> Any:
    """A matrix (outputs, inputs) of float64, dense or sparse, or an error that names it."""
    if sparse.issparse(value):
        try:  # refuse indices outside the matrix before anything is written through them
            getattr(value, "check_format", lambda **_: None)(full_check=True)
        except ValueError as error:
            raise InvalidInput(f"{name} is not a sound sparse matrix: {error}") from None
        numbers(name, value.data)
        found = sparse.csr_array(value, dtype=np.float64, copy=True)
        found.sum_duplicates()
        numbers(name, found.data)
    else:
        found = numbers(name, value)
    if found.ndim != 2 or 0 in found.shape:
        raise InvalidInput(f"{name} must be a matrix (outputs, inputs), got shape {found.shape}")
    return found


def vector(name: str, value: Any, size: int) -> Array:
    """A vector of that many numbers; zeros for None."""
    if value is None:
        return np.zeros(size)
    found = numbers(name, value)
    if found.size != size or found.ndim > 2 or (found.ndim == 2 and 1 not in found.shape):
        raise InvalidInput(f"{name} must have {size} numbers, as the weight has rows; got shape {found.shape}")
    return found.reshape(size)


def check_chain(shapes: Sequence[tuple[int, int]]) -> None:
    """An error unless matrices of these shapes can follow each other."""
    if not shapes:
        raise InvalidInput("weights is empty: a network needs at least one layer")
    fits = all(one[1] == two[0] for one, two in itertools.pairwise(shapes))
    hint = " (they fit when transposed: pass W.T)" if fits else ""
    for i, ((outputs, _), (_, inputs)) in enumerate(itertools.pairwise(shapes), 1):
        if inputs != outputs:
            raise InvalidInput(
                f"weights of layers {i} and {i + 1} do not fit: layer {i} has {outputs} outputs, layer {i + 1}"
                f" takes {inputs} inputs; each weight must be (outputs, inputs){hint}"
            )


def flattened(name: str, point: Array, inputs: int, shape: tuple[int, ...] | None) -> Array:
    """A point, or several, of shape (..., inputs).

    Inputs may have the ``shape`` that a model was read with. Where no shape is known, one point may have any shape; its
    coordinates are taken in C order.
    """
    if point.ndim and point.shape[-1] == inputs:
        return point
    shape = shape if shape and len(shape) > 1 else None
    if shape is not None and point.shape[-len(shape) :] == shape:
        return point.reshape(*point.shape[: -len(shape)], inputs)
    if point.size == inputs and (point.ndim > 1 if shape is None else _bare(point.shape) == _bare(shape)):
        return point.reshape(inputs)
    wanted = f", in the shape {shape} or flat" if shape else ""
    raise InvalidInput(f"{name} must have {inputs} numbers, as the network has inputs{wanted}; got shape {point.shape}")


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones: a batch of one, or a single channel."""
    return tuple(itertools.dropwhile(lambda size: size == 1, shape))
