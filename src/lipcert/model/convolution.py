"""Convolutions as linear maps that know their kernel: the matrix is made only where somebody asks for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lipcert.arguments.values import ConvolutionValues
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, Weight, frozen

MOST_ENTRIES = 2**28
"""Entries of a matrix that is still made."""


@dataclass(frozen=True, eq=False)
class Convolution(ConvolutionValues):
    """The linear map v[o, y] = Σ kernel[o, i, t] · z[g·channels/groups + i, stride·y + dilation·t - before].

    Build it with :meth:`of`. Images are flat, channel after channel, each in C order. Outside of the image z is zero
    or, if ``circular``, periodic; then no window is wider than the image, so that it sees each place once. g is the
    group that o belongs to.

    Attributes
    ----------
    kernel : (outputs, channels / groups, \\*window).
    image : sizes of the image, one per axis.
    stride, dilation : one number per axis.
    padding : (before, after) per axis, at least 0.
    groups : how many groups the channels are in, in order.
    circular : whether the padding is periodic; otherwise it is zero.
    """

    kernel: Array
    image: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    circular: bool = False

    @property
    def axes(self) -> int:
        return len(self.image)

    @property
    def window(self) -> tuple[int, ...]:
        """Taps per axis."""
        return self.kernel.shape[2:]

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return int(self.kernel.shape[1]) * self.groups

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return int(self.kernel.shape[0])

    @property
    def places(self) -> tuple[int, ...]:
        """Sizes of the result, one per axis."""
        parts = zip(self.image, self.padding, self.dilation, self.window, self.stride, strict=True)
        return tuple((n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, pad, d, k, s in parts)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix, (outputs, inputs)."""
        return self.outputs * math.prod(self.places), self.channels * math.prod(self.image)

    @property
    def fan_in(self) -> int:
        """Most terms in the sum of one output."""
        return math.prod(self.kernel.shape[1:])

    @property
    def entries(self) -> int:
        """Most entries that the matrix can have."""
        return self.shape[0] * self.fan_in

    def sparse(self) -> sparse.csr_array:
        """The matrix W, rows in the order of the outputs, columns ascending, without the zeros of the kernel."""
        if self.entries > MOST_ENTRIES:
            raise InvalidInput(
                f"the matrix of a convolution would have {self.entries:.3g} entries; only what works on kernels can be"
                " asked of this network: its global bound"
            )
        positions = np.arange(self.shape[1], dtype=np.int64).reshape(1, *self.pictures)
        seen = np.swapaxes(self.windows(positions + 1)[0, :, None], -1, -2)  # 0 where zeros are added
        full = (self.groups, self.outputs // self.groups, *seen.shape[2:])
        columns = np.broadcast_to(seen, full)
        values = np.broadcast_to(self.taps[:, :, None, :], full)
        kept = (columns > 0) & (values != 0.0)
        indptr = np.concatenate([[0], np.cumsum(kept.reshape(self.shape[0], -1).sum(axis=1))])
        matrix = sparse.csr_array((values[kept], columns[kept] - 1, indptr), shape=self.shape)
        matrix.sort_indices()
        return matrix

    def matrix(self) -> Weight:
        """The matrix W, to be read only; dense where a quarter of it is filled."""
        found = self.sparse()
        return frozen(found.toarray() if 4 * found.nnz >= found.shape[0] * found.shape[1] else found)

    @property
    def pictures(self) -> tuple[int, ...]:
        """(groups, channels of each, *image)."""
        return self.groups, int(self.kernel.shape[1]), *self.image

    @property
    def taps(self) -> Array:
        """(groups, outputs of each, fan_in)."""
        return self.kernel.reshape(self.groups, self.outputs // self.groups, self.fan_in)

    def windows(self, pictures: Array) -> Array:
        """What each output sees of pictures (k, groups, inputs, *image): (k, groups, fan_in, places)."""
        last, pads = tuple(range(-self.axes, 0)), [(0, 0)] * 3 + list(self.padding)
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.window, strict=True)]
        padded = np.pad(pictures, pads, mode="wrap" if self.circular else "constant")
        windows: Array = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=last)
        reach = (slice(0, (p - 1) * s + 1, s) for p, s in zip(self.places, self.stride, strict=True))
        seen = windows[(slice(None),) * 3 + (*reach, *(slice(None, None, d) for d in self.dilation))]
        order = [0, 1, 2, *range(3 + self.axes, 3 + 2 * self.axes), *range(3, 3 + self.axes)]
        return seen.transpose(order).reshape(len(pictures), self.groups, self.fan_in, math.prod(self.places))
