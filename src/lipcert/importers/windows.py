"""Padding and pooling as index arithmetic.

A tensor is an array of positions; padding it pads the positions (-1 where zeros are added), and a window is a row of
them. The rest is a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.model.arrays import Array

Pads = Sequence[tuple[int, int]]
Sizes = Sequence[int]
"""One number an axis."""


def positions(shape: Sizes) -> Array:
    """0, 1, 2, … in the given shape."""
    return np.arange(int(np.prod(shape, dtype=int))).reshape(tuple(shape))


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


def along(size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int, places: int) -> Array:
    """(places, taps): the positions of an axis that a window sees in each of its places, -1 outside."""
    seen = np.arange(places)[:, None] * stride - pads[0] + dilation * np.arange(kernel)
    return np.where((seen >= 0) & (seen < size), seen, -1)


def divided(size: int, parts: int) -> Array:
    """(parts, taps): the same for windows that divide an axis into parts, ⌊iL/n⌋ to ⌈(i+1)L/n⌉."""
    starts, stops = np.arange(parts) * size // parts, -(-(np.arange(1, parts + 1) * size) // parts)
    seen = starts[:, None] + np.arange((stops - starts).max(initial=0))
    return np.where(seen < stops[:, None], seen, -1)


def windows(shape: Sizes, last: Sequence[Array]) -> tuple[Array, tuple[int, ...]]:
    """The positions under each window over the last axes, (outputs, taps), -1 where none is; the result's shape."""
    index, rank = positions(shape), len(shape)
    for axis, seen in enumerate(last, rank - len(last)):
        outside = (seen < 0).reshape(*seen.shape, *(1 for _ in index.shape[axis + 1 :]))
        index = np.moveaxis(np.where(outside, -1, np.take(index, seen, axis)), axis + 1, -1)
    return index.reshape(-1, int(np.prod(index.shape[rank:], dtype=int))), index.shape[:rank]


def over_axes(shape: Sizes, axes: Sizes, keep: bool) -> tuple[Array, tuple[int, ...]]:
    """The positions along some axes, and the shape without them, or with 1 in their place."""
    chosen = {range(len(shape))[axis] for axis in axes}
    each = [np.arange(n).reshape((1, n) if a in chosen else (n, 1)) for a, n in enumerate(shape)]
    seen, result = windows(shape, each)
    return seen, tuple(n for a, n in enumerate(result) if keep or a not in chosen)


def are_pairs(seen: Array) -> bool:
    """Whether each window has two different elements, and no window is there twice."""
    return (
        seen.shape[1] == 2
        and bool((seen >= 0).all() and (seen[:, 0] != seen[:, 1]).all())
        and len(np.unique(np.sort(seen, axis=1), axis=0)) == len(seen)
    )


def paired(seen: Array) -> tuple[Array, Array, Array]:
    """What plays in a round of a tournament: pairs of elements, each once, those alone, and windows of the results."""
    seen = np.take_along_axis(seen, np.argsort(seen < 0, axis=1, kind="stable"), axis=1)
    if seen.shape[1] % 2:
        seen = np.concatenate([seen, np.full((len(seen), 1), -1)], axis=1)
    one, two = seen[:, 0::2], seen[:, 1::2]  # present entries come first: if two is there, so is one
    low, high = np.minimum(one, two), np.maximum(one, two)
    both = (two >= 0) & (low != high)
    pairs, place = np.unique(np.stack([low[both], high[both]], axis=1), axis=0, return_inverse=True)
    alone = (one >= 0) & ~both
    singles, seat = np.unique(one[alone], return_inverse=True)
    result = np.full(one.shape, -1)
    result[both], result[alone] = place.ravel(), len(pairs) + seat.ravel()
    return pairs.astype(int), singles.astype(int), result
