"""Convolution and pooling as index arithmetic.

A tensor is an array of positions; padding it pads the positions (-1 where zeros are added), and sliding a
window over it says which positions each output looks at. Whatever the padding mode, stride or dilation, the
rest is a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.arrays import Array

Pads = Sequence[tuple[int, int]]
Sizes = Sequence[int]
"""One number an axis."""


def positions(shape: Sizes) -> Array:
    """0, 1, 2, … in the given shape."""
    return np.arange(int(np.prod(shape, dtype=int))).reshape(tuple(shape))


def padded(index: Array, pads: Pads) -> Array:
    """Positions after padding the last axes; -1 where zeros come in. Negative pads crop."""
    grow = [(0, 0)] * (index.ndim - len(pads)) + [(max(low, 0), max(high, 0)) for low, high in pads]
    index = np.pad(index, grow, constant_values=-1)
    for axis, (low, high) in enumerate(pads, index.ndim - len(pads)):
        size = index.shape[axis]
        index = np.take(index, np.arange(max(-low, 0), size - max(-high, 0)), axis=axis)
    return index


def outputs(size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int, ceil: bool = False) -> int:
    """How many places a window takes along one axis; with ``ceil`` a last, incomplete one may count.

    An incomplete window must still begin inside the input or the padding before it.
    """
    room = size + sum(pads) - dilation * (kernel - 1) - 1
    if room < 0 and not ceil:
        return 0
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + pads[0]:
        count -= 1
    return max(count, 0)


def slide(index: Array, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """(…, *places, *kernel): what each window sees, over the last axes of the positions."""
    span = [dilation[a] * (kernel[a] - 1) + 1 for a in range(len(kernel))]
    axes = tuple(range(index.ndim - len(kernel), index.ndim))
    views = np.lib.stride_tricks.sliding_window_view(index, span, axis=axes)
    step = (slice(None),) * axes[0] + tuple(slice(None, None, s) for s in stride)
    return views[(*step, *(slice(None, None, d) for d in dilation))]


def convolution(
    shape: Sizes, weight: Array, stride: Sizes, pads: Pads, dilation: Sizes, groups: int = 1
) -> tuple[PreciseMatrix, tuple[int, ...]]:
    """The matrix of a convolution of a tensor (batch, channels, …), and the shape of its result.

    ``weight`` is (outputs, channels / groups, *kernel), as PyTorch and ONNX store it.
    """
    kernel = weight.shape[2:]
    index = padded(positions(shape), pads)
    seen = slide(index, kernel, stride, dilation)  # (batch, channels, *places, *kernel)
    batch, places = shape[0], seen.shape[2 : 2 + len(kernel)]
    count = int(np.prod(places, dtype=int))
    seen = seen.reshape(batch, groups, weight.shape[1], count, -1)
    seen = np.moveaxis(seen, 2, 3).reshape(batch, groups, count, -1)  # (batch, groups, places, taps)
    taps = weight.reshape(groups, weight.shape[0] // groups, -1)
    full = (batch, groups, taps.shape[1], count, taps.shape[2])
    result = (batch, weight.shape[0], *places)
    rows = np.broadcast_to(positions(full[:-1])[..., None], full)
    columns = np.broadcast_to(seen[:, :, None], full)
    values = np.broadcast_to(taps[None, :, :, None, :], full)
    kept = columns >= 0
    size = int(np.prod(result, dtype=int)), int(np.prod(shape, dtype=int))
    return PreciseMatrix.of_entries(size, rows[kept], columns[kept], Precise.of(values[kept])), result


def pool_windows(
    shape: Sizes, kernel: Sizes, stride: Sizes, pads: Pads, dilation: Sizes, ceil: bool = False
) -> tuple[Array, tuple[int, ...]]:
    """(outputs, taps): the positions under each pooling window, -1 outside, and the shape of the result."""
    spatial = shape[len(shape) - len(kernel) :]
    axes = range(len(kernel))
    places = [outputs(spatial[a], kernel[a], stride[a], pads[a], dilation[a], ceil) for a in axes]
    reach = [(places[a] - 1) * stride[a] + dilation[a] * (kernel[a] - 1) + 1 for a in axes]
    fitted = [(pads[a][0], max(pads[a][1], reach[a] - spatial[a] - pads[a][0])) for a in axes]
    seen = slide(padded(positions(shape), fitted), kernel, stride, dilation)
    lead = (slice(None),) * (len(shape) - len(kernel))
    seen = seen[lead + tuple(slice(0, p) for p in places)]
    result = seen.shape[: seen.ndim - len(kernel)]
    return seen.reshape(int(np.prod(result, dtype=int)), -1), result


def over_axes(shape: Sizes, axes: Sizes, keep: bool) -> tuple[Array, tuple[int, ...]]:
    """(outputs, taps): the positions along some axes, and the shape without them, or with 1 in their place."""
    rank = len(shape)
    chosen = [range(rank)[axis] for axis in axes]
    count = int(np.prod([shape[a] for a in chosen], dtype=int))
    seen = np.moveaxis(positions(shape), chosen, range(rank - len(chosen), rank)).reshape(-1, count)
    return seen, tuple(1 if a in chosen else s for a, s in enumerate(shape) if keep or a not in chosen)


def adaptive_windows(shape: Sizes, result: Sizes) -> tuple[Array, tuple[int, ...]]:
    """Positions under the windows that divide the last axes into ``result`` parts, ⌊iL/n⌋ to ⌈(i+1)L/n⌉."""
    index = positions(shape)
    spatial = shape[len(shape) - len(result) :]
    for offset, (size, count) in enumerate(zip(spatial, result, strict=True)):
        axis = len(shape) - len(result) + offset
        starts = np.arange(count) * size // count
        stops = -(-(np.arange(1, count + 1) * size) // count)
        width = int((stops - starts).max())
        taps = starts[:, None] + np.arange(width)
        inside = taps < stops[:, None]
        picked = np.take(index, np.minimum(taps, size - 1), axis=axis)  # axis becomes (count, width)
        keep = inside.reshape((1,) * axis + (count, width) + (1,) * (index.ndim - axis - 1))
        index = np.moveaxis(np.where(keep, picked, -1), axis + 1, -1)
    final = (*shape[: len(shape) - len(result)], *result)
    return index.reshape(int(np.prod(final, dtype=int)), -1), final


def interpolation(before: int, factor: int, corners: bool) -> Precise:
    """The matrix (before, after) of linear interpolation to ``factor`` times as many places.

    Output p lies at (p + ½)/factor - ½ of the input, or with ``corners`` where first and last places coincide.
    """
    after = factor * before
    place = np.arange(after)
    top, bottom = np.clip(2 * place + 1 - factor, 0, 2 * factor * (before - 1)), 2 * factor
    if corners:
        top, bottom = place * (before - 1), max(after - 1, 1)
    left, rest = np.divmod(top, bottom)  # the input is at left + rest/bottom
    shares = np.zeros((before, after))
    np.add.at(shares, (left, place), bottom - rest)
    np.add.at(shares, (np.minimum(left + 1, before - 1), place), rest)
    return Precise.of(shares) * Precise.of(bottom).reciprocal()
