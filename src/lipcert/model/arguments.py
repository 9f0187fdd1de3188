"""What users hand in, as arrays, or errors that name the argument and what came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from warnings import warn

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array


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
        raise InvalidInput(f"{name} must be real numbers, got {type(value).__name__} of {array.dtype.name}")
    if not np.isfinite(array).all():
        raise InvalidInput(
            f"{name} must be finite, got {np.count_nonzero(~np.isfinite(array))} NaN or infinite entries"
        )
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
