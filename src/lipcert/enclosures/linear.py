"""Linear relaxation by back-substitution: each activation between two lines, traced back to the input."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.condense import Image
from lipcert.enclosures.base import Enclosure, Interval, Pass
from lipcert.enclosures.lines import Lines, bounding_lines
from lipcert.errors import InvalidInput
from lipcert.network import Network, Neurons, dense, times
from lipcert.regions import Region
from lipcert.typing import Array

_ENTRIES = 40_000_000
"""Entries of the rows that are traced together; more would take too much memory."""


@dataclass(frozen=True)
class Linear(Enclosure):
    """v ≤ A z_0 + c with A and c found by replacing each activation, last first, by the line that is on the safe side.

    Parameters
    ----------
    depth
        How many layers to go back at most; None goes back to the input. When the trace ends early it is
        closed with the intervals of the layer it has reached, so cost per layer stays constant.
    tilt
        Where on its interval a line touches the activation, 0 to 1; in the middle the area is least.
    """

    depth: int | None = 24
    tilt: float = 0.5

    def check(self) -> None:
        if self.depth is not None and (not isinstance(self.depth, (int, np.integer)) or self.depth < 0):
            raise InvalidInput(f"depth must be a whole number of at least 0 or None, got {self.depth!r}")
        if not isinstance(self.tilt, (int, float, np.floating)) or not 0.0 <= self.tilt <= 1.0:
            raise InvalidInput(f"tilt must be from 0 to 1, got {self.tilt!r}")

    def start(self, network: Network, region: Region) -> Pass:
        return _Run(network, region, self.depth, self.tilt)


@dataclass(frozen=True, eq=False)
class _Run(Pass):
    network: Network
    region: Region
    depth: int | None
    tilt: float
    lines: list[Lines] = field(default_factory=list)
    boxes: list[Interval] = field(default_factory=list)

    def tighten(self, layer: int, S: Image, known: Interval) -> Interval:
        lower, upper = known
        rows = self.undecided(layer, known)
        if not rows.size:
            return known
        here = self.network.layers[layer]
        batch = lower.shape[:-1]
        lower, upper = np.array(lower), np.array(upper)
        entries = 2 * rows.size * max(self.network.sizes[: layer + 1]) * int(np.prod(batch))
        for part in np.array_split(rows, max(1, -(-entries // _ENTRIES))):
            weight = dense(here.weight[part])
            sides = np.concatenate([weight, -weight])
            above = self.trace(layer, np.broadcast_to(sides, (*batch, *sides.shape)))
            bias = here.bias[part]
            upper[..., part] = np.minimum(upper[..., part], above[..., : part.size] + bias)
            lower[..., part] = np.maximum(lower[..., part], bias - above[..., part.size :])
        return lower, upper

    def undecided(self, layer: int, known: Interval) -> Array:
        """Neurons whose slope depends on where in the interval they are; all, where a later trace closes here."""
        neurons = self.network.layers[layer].neurons
        closing = self.depth is not None and layer + self.depth < self.network.depth - 1
        if neurons is None or closing:
            return np.arange(self.network.layers[layer].size)
        alpha, beta = neurons.slope_range(*known)
        loose = (alpha < beta) & (known[0] < known[1])  # nothing tightens a point
        loose |= np.isinf(known[0]) | np.isinf(known[1])  # lines need ends, straight neurons or not
        return np.flatnonzero(loose.reshape(-1, neurons.size).any(axis=0))

    def trace(self, layer: int, rows: Array) -> Array:
        """At least max over the region of rows·z for z the activations before ``layer``."""
        stop = 0 if self.depth is None else max(0, layer - self.depth)
        offset = np.zeros(rows.shape[:-1])
        for index in range(layer - 1, stop - 1, -1):
            lines, bias = self.lines[index], self.network.layers[index].bias
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + _apply(positive, lines.upper_offset) + _apply(negative, lines.lower_offset)
            rows = positive * lines.upper_slope[..., None, :] + negative * lines.lower_slope[..., None, :]
            offset = offset + _apply(rows, bias)
            rows = times(rows, self.network.layers[index].weight)
        if stop == 0:
            return offset + _apply(rows, self.region.center) + self.region.support(rows)
        low, high = self.boxes[stop - 1]
        return offset + _apply(np.maximum(rows, 0.0), high) + _apply(np.minimum(rows, 0.0), low)

    def settle(self, layer: int, interval: Interval) -> None:
        neurons = self.network.layers[layer].neurons
        assert neurons is not None
        lines = bounding_lines(neurons, *interval, self.tilt)
        self.lines.append(lines)
        self.boxes.append(_value_range(neurons, lines, interval))

    def line_slopes(self) -> list[tuple[Array, Array]]:
        return [(lines.lower_slope, lines.upper_slope) for lines in self.lines]


def _value_range(neurons: Neurons, lines: Lines, interval: Interval) -> Interval:
    """Bounds of φ on the interval: its ends where φ is monotone, else the ends of the bounding lines."""
    alpha, beta = neurons.slope_range(*interval)
    steady = (alpha >= 0) | (beta <= 0)
    ends = [neurons.value(end) for end in interval]
    floor = [_along(lines.lower_slope, end) + lines.lower_offset for end in interval]
    roof = [_along(lines.upper_slope, end) + lines.upper_offset for end in interval]
    return np.minimum(*np.where(steady, ends, floor)), np.maximum(*np.where(steady, ends, roof))


def _along(slope: Array, end: Array) -> Array:
    """slope·end, where a level line stays level at infinity."""
    return slope * np.where(slope == 0.0, 0.0, end)


def _apply(rows: Array, vector: Array) -> Array:
    """rows·vector for rows (..., k, n) and a vector (..., n)."""
    return np.einsum("...kn,...n->...k", rows, vector)
