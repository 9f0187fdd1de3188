"""Enclosures in floating point: rules that bound every pre-activation over the region, layer by layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Region
from lipcert.proof.hints import Enclosure, Interval, Linear, Lipschitz
from lipcert.proof.suggest.lines import Lines, bounding_lines
from lipcert.search.folding import Image

_ENTRIES = 40_000_000
"""Entries of the rows that are traced together; more would take too much memory."""


class Pass(ABC):
    """One run of an enclosure through a network; it remembers what the earlier layers taught it."""

    @abstractmethod
    def tighten(self, layer: int, S: Image, known: Interval) -> Interval:
        """An interval for the pre-activations of a layer (counted from 0), inside the known one.

        S is the ellipsoid of the layer's pre-activation differences.
        """

    @abstractmethod
    def settle(self, layer: int, interval: Interval) -> None:
        """The interval that was finally agreed on for the layer."""

    @abstractmethod
    def line_slopes(self) -> list[tuple[Array, Array]]:
        """Slopes of the lower and upper lines of each layer so far, where the run draws lines."""


def start(enclosure: Enclosure, network: Network, region: Region) -> Pass:
    """Begin a run of an enclosure."""
    if isinstance(enclosure, Lipschitz):
        return _Lipschitz(network.preactivations(region.center), region.radius)
    if isinstance(enclosure, Linear):
        return _Linear(network, region, enclosure.depth, enclosure.tilt)
    raise InvalidInput(f"enclosures must be Lipschitz() or Linear(), got {enclosure!r}")


@dataclass(frozen=True, eq=False)
class _Lipschitz(Pass):
    centers: list[Array]
    radius: Array

    def tighten(self, layer: int, S: Image, known: Interval) -> Interval:
        reach = self.radius[..., None] * S.axes()
        center = self.centers[layer]
        return np.maximum(known[0], center - reach), np.minimum(known[1], center + reach)

    def settle(self, layer: int, interval: Interval) -> None:
        """Nothing to remember: the ellipsoid carries it all."""

    def line_slopes(self) -> list[tuple[Array, Array]]:
        return []


@dataclass(frozen=True, eq=False)
class _Linear(Pass):
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
