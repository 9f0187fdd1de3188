"""Intervals of pre-activations in floating point, layer by layer: what is known, tightened by every enclosure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Ball, Region
from lipcert.proof.domain import Domain
from lipcert.proof.hints import Enclosure, Interval, Linear, Lipschitz
from lipcert.suggest.lines import Lines, bounding_lines
from lipcert.suggest.supports import support

_ENTRIES = 40_000_000
"""Entries of the rows that are traced together; more would take too much memory."""


class Enclosing:
    """One run of enclosures through a network; it remembers what the earlier layers taught it."""

    def __init__(
        self,
        network: Network,
        region: Region,
        enclosures: Sequence[Enclosure],
        known: Sequence[Interval] | None = None,
        start: Array | None = None,
    ) -> None:
        self.known = known or [(np.full(size, -np.inf), np.full(size, np.inf)) for size in network.sizes[1:]]
        self.runs: list[_Linear] = []
        self.radius: float | None = None
        self.centers: list[Array] = []
        if region.bounded and enclosures:
            self.centers = network.preactivations(region.center)
            self.runs = [_Linear(network, region, e) for e in enclosures if isinstance(e, Linear)]
            if any(isinstance(e, Lipschitz) for e in enclosures):
                self.radius = float(region.extent if start is None else Domain.of([region]).extent(start)[0])
        self.round = self.radius is not None and isinstance(region, Ball) and region.clip is None
        self.round = self.round and start is None and isinstance(region, Ball) and region.plain

    def interval(self, index: int, axes: Array) -> Interval:
        """Where the pre-activations of a layer lie; ``axes`` are the Lipschitz constants of its neurons."""
        lower, upper = self.known[index]
        if self.radius is not None:
            center, reach = self.centers[index], self.radius * axes
            lower, upper = np.maximum(lower, center - reach), np.minimum(upper, center + reach)
        # of the first layer over a ball, linear relaxation tells what its Lipschitz constants tell
        for run in () if index == 0 and self.round else self.runs:
            lower, upper = run.tighten(index, (lower, upper))
        if self.centers:  # the centre belongs to the region: rounding must not lose its value
            lower, upper = np.minimum(lower, self.centers[index]), np.maximum(upper, self.centers[index])
        for run in self.runs:
            run.settle(index, (lower, upper))
        return lower, upper

    def lines(self) -> tuple[tuple[Array, Array], ...]:
        """The slopes of the lines that the linear relaxations used, for the proof."""
        return tuple((lines.lower_slope, lines.upper_slope) for run in self.runs for lines in run.lines)


class _Linear:
    """Linear relaxation by back-substitution: each activation between two lines, traced back to the input."""

    def __init__(self, network: Network, region: Region, options: Linear) -> None:
        self.network, self.region, self.depth, self.tilt = network, region, options.depth, options.tilt
        self.lines: list[Lines] = []
        self.boxes: list[Interval] = []

    def tighten(self, layer: int, known: Interval) -> Interval:
        """An interval for the pre-activations of a layer (counted from 0), inside the known one."""
        rows, here = self.undecided(layer, known), self.network.layers[layer]
        lower, upper = np.array(known[0]), np.array(known[1])
        entries = 2 * rows.size * max(self.network.sizes[: layer + 1])
        for part in np.array_split(rows, max(1, -(-entries // _ENTRIES))):
            if not part.size:
                continue
            weight, bias = dense(here.weight[part]), here.bias[part]
            above = self.trace(layer, np.concatenate([weight, -weight]))
            upper[part] = np.minimum(upper[part], above[: part.size] + bias)
            lower[part] = np.maximum(lower[part], bias - above[part.size :])
        return lower, upper

    def undecided(self, layer: int, known: Interval) -> Array:
        """Neurons whose slope depends on where in the interval they are; all, where a later trace closes here."""
        neurons = self.network.layers[layer].neurons
        closing = self.depth is not None and layer + self.depth < self.network.depth - 1
        if neurons is None or closing:
            return np.arange(self.network.layers[layer].size)
        alpha, beta = neurons.slope_range(*known)
        loose = (alpha < beta) & (known[0] < known[1])  # nothing tightens a point
        return np.flatnonzero(loose | np.isinf(known[0]) | np.isinf(known[1]))  # lines need ends

    def trace(self, layer: int, rows: Array) -> Array:
        """At least max over the region of rows·z for z the activations before ``layer``."""
        stop = 0 if self.depth is None else max(0, layer - self.depth)
        offset = np.zeros(len(rows))
        for index in range(layer - 1, stop - 1, -1):
            lines, bias = self.lines[index], self.network.layers[index].bias
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + _dots(positive, lines.upper_offset) + _dots(negative, lines.lower_offset)
            rows = positive * lines.upper_slope + negative * lines.lower_slope
            offset = offset + _dots(rows, bias)
            rows = times(rows, self.network.layers[index].weight)
        if stop == 0:
            return offset + _dots(rows, self.region.center) + support(self.region, rows)
        low, high = self.boxes[stop - 1]
        return offset + _dots(np.maximum(rows, 0.0), high) + _dots(np.minimum(rows, 0.0), low)

    def settle(self, layer: int, interval: Interval) -> None:
        """Draw the lines of a layer on its final interval."""
        neurons = self.network.layers[layer].neurons
        assert neurons is not None
        lines = bounding_lines(neurons, *interval, self.tilt)
        self.lines.append(lines)
        self.boxes.append(_value_range(neurons, lines, interval))


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


def _dots(rows: Array, vector: Array) -> Array:
    """rows·vector; not by BLAS, whose rounding depends on the number of rows."""
    return np.einsum("kn,n->k", rows, vector)
