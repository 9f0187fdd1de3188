"""PyTorch's functions and methods that only move elements about, or average them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from lipcert.importers import windows as win
from lipcert.importers.builder import Builder, Tensor, Unsupported
from lipcert.importers.torch_layers import PADDING

IDENTITIES: Final = (
    "Identity",
    *(f"Dropout{d}" for d in ("", "1d", "2d", "3d")),
    "AlphaDropout",
    "FeatureAlphaDropout",
)
"""Modules that do nothing in evaluation mode."""


def _same(b: Builder, input: Tensor, *_: Any, **__: Any) -> Tensor:
    return input


def _cast(b: Builder, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A change of device or of type; that a run loses no precision by it is seen when the module runs."""
    for kind in (*args, *kwargs.values()):
        if isinstance(kind, torch.dtype) and kind not in (torch.float32, torch.float64):
            raise Unsupported(f"it rounds to numbers of type {kind}")
    return input


def _sizes(size: tuple[Any, ...]) -> Sequence[int]:
    """Sizes given one by one or as one sequence."""
    return size[0] if len(size) == 1 and not isinstance(size[0], int) else size


def _reshape(b: Builder, input: Tensor, *size: Any, shape: Any = None) -> Tensor:
    chosen = _sizes(size) if shape is None else shape
    if isinstance(chosen, torch.dtype):
        raise Unsupported("it reinterprets the bits of numbers")
    return b.reshape(input, chosen)


def _unflatten(b: Builder, input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    axis = dim % len(input.shape)
    return b.reshape(input, (*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))


def _flatten(b: Builder, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    return b.flatten(input, start_dim, end_dim)


def _permute(b: Builder, input: Tensor, *dims: Any) -> Tensor:
    return b.view(input, lambda index: index.transpose(tuple(_sizes(dims))))


def _transpose(b: Builder, input: Tensor, dim0: int, dim1: int) -> Tensor:
    return b.view(input, lambda index: index.swapaxes(dim0, dim1))


def _squeeze(b: Builder, input: Tensor, dim: Any = None) -> Tensor:
    axes = range(len(input.shape)) if dim is None else [int(a) % len(input.shape) for a in np.atleast_1d(dim)]
    return b.reshape(input, [s for a, s in enumerate(input.shape) if s != 1 or a not in axes])


def _unsqueeze(b: Builder, input: Tensor, dim: int) -> Tensor:
    return b.view(input, lambda index: np.expand_dims(index, dim))


def _cat(b: Builder, tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Tensor:
    return b.concat(tensors, dim if axis is None else axis)


def _stack(b: Builder, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    rank = len(tensors[0].shape) + 1
    return b.concat([_unsqueeze(b, b.tensor(t), dim % rank) for t in tensors], dim % rank)


def _mean(
    sum: bool, b: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, dtype: Any = None
) -> Tensor:
    _cast(b, input, dtype)
    chosen = dim if axis is None else axis
    axes = None if chosen is None or np.size(chosen) == 0 else [int(a) for a in np.atleast_1d(chosen)]
    return b.mean(input, axes, keepdim, sum)


def _pad(b: Builder, input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    flat = [int(p) for p in np.atleast_1d(pad)]
    pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return b.pad(input, pairs[::-1], PADDING[mode], 0.0 if value is None else float(value))


def _getitem(b: Builder, input: Tensor, index: Any) -> Tensor:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, Tensor):
            raise Unsupported("the index depends on the input")
    return b.view(input, lambda positions: positions[index])


def _getattr(b: Builder, input: Tensor, name: str) -> Any:
    match name:
        case "shape":
            return torch.Size(input.shape)
        case "ndim":
            return len(input.shape)
        case "T" | "mT":
            return b.view(input, lambda index: index.T if name == "T" else index.swapaxes(-1, -2))
        case "dtype":
            return torch.float64
        case "device":
            return torch.device("cpu")
    raise Unsupported(f"the attribute {name} is not known")


def _size(b: Builder, input: Tensor, dim: int | None = None) -> Any:
    return torch.Size(input.shape) if dim is None else input.shape[dim]


def _split(b: Builder, tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    length, sizes = tensor.shape[dim], split_size_or_sections
    cuts = np.arange(sizes, length, sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return tuple(b.pick(tensor, part) for part in np.split(win.positions(tensor.shape), cuts, axis=dim))


def _chunk(b: Builder, input: Tensor, chunks: int, dim: int = 0) -> Any:
    return _split(b, input, -(-input.shape[dim] // chunks), dim)


def _unbind(b: Builder, input: Tensor, dim: int = 0) -> Any:
    return tuple(b.pick(input, part) for part in np.moveaxis(win.positions(input.shape), dim, 0))


def _expand(b: Builder, input: Tensor, *size: Any) -> Tensor:
    chosen = list(_sizes(size))
    lead = len(chosen) - len(input.shape)
    full = [input.shape[a - lead] if s == -1 else int(s) for a, s in enumerate(chosen)]
    return b.spread(input, tuple(full))


def _flip(b: Builder, input: Tensor, *dims: Any) -> Tensor:
    return b.view(input, lambda index: np.flip(index, tuple(_sizes(dims))))


ARRANGE: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("contiguous", "clone", "detach", "type_as", "cpu"), _same),
    **dict.fromkeys(("float", "double", "to"), _cast),
    **dict.fromkeys(("reshape", "view"), _reshape),
    **dict.fromkeys(("view_as", "reshape_as"), lambda b, input, other: b.reshape(input, other.shape)),
    "unflatten": _unflatten,
    "flatten": _flatten,
    "ravel": lambda b, input: b.flatten(input, 0),
    "permute": _permute,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _transpose),
    "t": lambda b, input: b.view(input, lambda index: index.T),
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    "mean": partial(_mean, False),
    "sum": partial(_mean, True),
    "pad": _pad,
    "getitem": _getitem,
    "getattr": _getattr,
    "size": _size,
    **dict.fromkeys(("dim", "ndimension"), lambda b, input: len(input.shape)),
    **dict.fromkeys(("numel", "nelement"), lambda b, input: input.size),
    "split": _split,
    "chunk": _chunk,
    "unbind": _unbind,
    "expand": _expand,
    "expand_as": lambda b, input, other: b.spread(input, other.shape),
    "flip": _flip,
}
