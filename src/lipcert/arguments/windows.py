"""Convolutions as users hand them in: kernels, strides and paddings, or errors that name the argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lipcert.arguments.numbers import Array, numbers
from lipcert.errors import InvalidInput

Sizes: TypeAlias = tuple[int, ...]
Pads: TypeAlias = tuple[tuple[int, int], ...]


def read(
    kernel: Any, image: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> tuple[Array, Sizes, Sizes, Pads, Sizes]:
    """Kernel, sizes of the image, strides, paddings and dilations, per axis."""
    taps = np.array(numbers("kernel", kernel))
    axes = taps.ndim - 2
    if axes < 1 or 0 in taps.shape:
        raise InvalidInput(f"kernel must be (outputs, channels, *window), got shape {taps.shape}")
    if not isinstance(groups, (int, np.integer)) or groups < 1 or taps.shape[0] % groups:
        raise InvalidInput(f"groups must divide the {taps.shape[0]} outputs of the kernel, got {groups!r}")
    sizes, steps, gaps = (_whole(*one, axes) for one in (("image", image), ("stride", stride), ("dilation", dilation)))
    spans = _spans(gaps, taps.shape)
    pads = tuple((span // 2, span - span // 2) for span in spans) if padding is None else _sides(padding, axes)
    return taps, sizes, steps, pads, gaps


def check_circular(sizes: Sizes, shape: Sequence[int], pads: Pads, gaps: Sizes) -> None:
    """An error unless a window sees each place of a circular image once at most."""
    if any(span >= size for span, size in zip(_spans(gaps, shape), sizes, strict=True)):
        raise InvalidInput(f"the window of a circular convolution must fit into the image {sizes}, got {shape}")
    if any(max(pair) > size for pair, size in zip(pads, sizes, strict=True)):
        raise InvalidInput(f"circular padding must be at most the image {sizes}, got {pads}")


def _spans(gaps: Sizes, shape: Sequence[int]) -> list[int]:
    return [gap * (size - 1) for gap, size in zip(gaps, shape[2:], strict=True)]


def _whole(name: str, value: Any, axes: int) -> tuple[int, ...]:
    """Positive whole numbers, one per axis."""
    sizes = np.broadcast_to(numbers(name, value), (axes,)) if np.size(value) in (1, axes) else np.zeros(1)
    if (sizes < 1).any() or (sizes != np.round(sizes)).any():
        raise InvalidInput(f"{name} must be a positive whole number, or {axes} of them, one per axis; got {value!r}")
    return tuple(int(size) for size in sizes)


def _sides(value: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Padding as pairs (before, after) of whole numbers that are at least 0, one per axis."""
    pads = numbers("padding", value)
    if pads.shape not in ((), (axes,), (axes, 2)) or (pads < 0).any() or (pads != np.round(pads)).any():
        raise InvalidInput(f"padding must be whole numbers of at least 0, one or a pair per axis; got {value!r}")
    pairs = np.broadcast_to(pads if pads.ndim == 2 else np.reshape(pads, (-1, 1)), (axes, 2))
    return tuple((int(before), int(after)) for before, after in pairs)
