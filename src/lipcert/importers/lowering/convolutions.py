"""Affine maps that are convolutions, recognised by their entries.

Whatever a layer was folded from (convolutions, batch norms, average pools, skips), its matrix over images is a
convolution if each entry depends only on the two channels and on where the input lies relative to the output. That is
looked up entry by entry, beyond double precision, so nothing is assumed of the operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.importers.precise import PreciseMatrix
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries of a matrix over images: channels and places at both ends, and all that is known of the numbers."""

    outputs: Array
    channels: Array
    places: tuple[Array, ...]  # an array an axis
    seen: tuple[Array, ...]
    facts: Array  # (3, entries): all that is known of each number


@dataclass(frozen=True)
class _Window:
    """How the windows lie along one axis."""

    stride: int
    first: int
    dilation: int
    count: int


def recognised(
    matrix: PreciseMatrix, shapes: Sequence[tuple[int, ...]], known: Sequence[tuple[int, ...]]
) -> Convolution | None:
    """The convolution that a matrix is, from tensors of the known shapes to others, one after the other; None if none.

    Periodic padding can be written as a kernel as wide as the image, too; the smaller kernel is taken.
    """
    before, after = _images(known), _images(shapes)
    if before is None or after is None or len(before[1]) != len(after[1]) or not matrix.rows.size:
        return None
    here, there = np.divmod(matrix.rows, math.prod(after[1])), np.divmod(matrix.columns, math.prod(before[1]))
    places, seen = (np.unravel_index(p, s) for p, s in ((here[1], after[1]), (there[1], before[1])))
    entries = _Entries(here[0], there[0], places, seen, np.stack(matrix.values.parts))
    plain = _convolution(entries, before, after, False)
    if plain is not None and _narrow(plain):
        return plain
    found = [plain, _convolution(entries, before, after, True)]
    return min((one for one in found if one is not None), key=lambda one: math.prod(one.window), default=None)


def _narrow(found: Convolution) -> bool:
    """Whether periodic padding would have the same window: it reaches less than half of the image either way."""
    reach = [d * (k - 1) for d, k in zip(found.dilation, found.window, strict=True)]
    halves = all(
        2 * max(span, before) < n for span, (before, _), n in zip(reach, found.padding, found.image, strict=True)
    )
    return halves and all(s * m == n for s, m, n in zip(found.stride, found.places, found.image, strict=True))


def _images(shapes: Sequence[tuple[int, ...]]) -> tuple[int, tuple[int, ...]] | None:
    """Channels together, and sizes, of tensors (1, channels, *sizes) that are images of the same sizes."""
    sizes = {shape[2:] for shape in shapes}
    if len(sizes) != 1 or any(len(shape) < 3 or shape[0] != 1 for shape in shapes):
        return None
    return sum(shape[1] for shape in shapes), sizes.pop()


def _convolution(
    entries: _Entries, before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]], circular: bool
) -> Convolution | None:
    """The convolution with these entries and no others, or None."""
    windows, taps = [], []
    for axis, (n, m) in enumerate(zip(before[1], after[1], strict=True)):
        if circular and n % m:
            return None
        stride = n // m if circular else _stride(entries.places[axis], entries.seen[axis])
        offset = entries.seen[axis] - stride * entries.places[axis]
        if circular:
            offset = (offset + (n - 1) // 2) % n - (n - 1) // 2
        first = min(int(offset.min()), 0)
        dilation = int(np.gcd.reduce(offset - first)) or 1
        windows.append(_Window(stride, first, dilation, (int(offset.max()) - first) // dilation + 1))
        taps.append((offset - first) // dilation)
    window = tuple(one.count for one in windows)
    if math.prod(window) * after[0] * before[0] > 16 * entries.facts.shape[1]:  # far from filled: no kernel
        return None
    where = np.ravel_multi_index((entries.outputs, entries.channels, *taps), (after[0], before[0], *window))
    kernel_facts = np.zeros((3, after[0] * before[0] * math.prod(window)))
    kernel_facts[:, where] = entries.facts
    if not np.array_equal(kernel_facts[:, where], entries.facts):
        return None
    kernel = kernel_facts[0].reshape(after[0], before[0], *window)
    ends = [
        (w.count - 1) * w.dilation + w.stride * (m - 1) + w.first + 1 for w, m in zip(windows, after[1], strict=True)
    ]
    pads = [(-w.first, max(end - n, 0)) for w, end, n in zip(windows, ends, before[1], strict=True)]
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    if circular and any(w.dilation * (w.count - 1) >= n for w, n in zip(windows, before[1], strict=True)):
        return None
    found = Convolution.of(kernel, before[1], strides, pads, dilations, circular=circular)
    if found.places != after[1] or _count(found) != entries.facts.shape[1]:
        return None
    groups = _groups((kernel != 0.0).any(axis=tuple(range(2, kernel.ndim))))
    if groups == 1:
        return found
    inner, outer = before[0] // groups, after[0] // groups
    blocks = [kernel[g * outer : (g + 1) * outer, g * inner : (g + 1) * inner] for g in range(groups)]
    return Convolution.of(np.concatenate(blocks), before[1], strides, pads, dilations, groups, circular)


def _stride(places: Array, seen: Array) -> int:
    """By how much the first or last place that is seen moves from one output to the next, away from the edges."""
    count = int(places.max()) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(first, places, seen)
    np.maximum.at(last, places, seen)
    full = np.flatnonzero(last >= 0)
    moves = [np.diff(end[full]) // np.maximum(np.diff(full), 1) for end in (first, last)]
    return max(1, int(np.concatenate(moves).max(initial=1)))


def _count(convolution: Convolution) -> int:
    """Entries of the matrix that are not zero."""
    used = convolution.kernel != 0.0
    counts = np.ones(())
    for axis in range(convolution.axes):
        taps = np.arange(convolution.window[axis]) * convolution.dilation[axis] - convolution.padding[axis][0]
        seen = np.arange(convolution.places[axis])[:, None] * convolution.stride[axis] + taps
        inside = np.ones(seen.shape) if convolution.circular else (seen >= 0) & (seen < convolution.image[axis])
        counts = np.multiply.outer(counts, inside.sum(axis=0))
    return int((used * counts).sum())


def _groups(used: Array) -> int:
    """The most groups in which no channel sees one of another group."""
    common = math.gcd(*used.shape)
    for groups in (g for g in range(common, 1, -1) if common % g == 0):
        blocks = np.kron(np.eye(groups, dtype=bool), np.ones((used.shape[0] // groups, used.shape[1] // groups), bool))
        if not (used & ~blocks).any():
            return groups
    return 1
