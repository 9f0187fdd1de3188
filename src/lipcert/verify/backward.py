"""Back-substitution, proved: every rounding error is charged to the offset."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.network import Network, dense, times
from lipcert.regions import Region
from lipcert.typing import Array
from lipcert.verify.relaxation import Relaxation, relax
from lipcert.verify.rounding import LOOSE, TINY, UP, gamma, magnitude, spread, up
from lipcert.verify.support import sizes_above, support_above

Interval = tuple[Array, Array]
_ENTRIES = 20_000_000
"""Entries of the rows that are traced together; more would take too much memory."""


@dataclass(eq=False)
class Backward:
    """One run through the layers, last activation first, with lines of the given slopes, one pair a hidden layer.

    ``depth`` says how many layers a trace goes back at most; None is all the way to the input.
    """

    network: Network
    region: Region
    depth: int | None
    lines: tuple[tuple[Array, Array], ...]
    relaxations: list[Relaxation] = field(default_factory=list)
    settled: list[Interval] = field(default_factory=list)

    def tightened(self, index: int, lower: Array, upper: Array, still: Array | None = None) -> Interval:
        """The interval of a layer, made smaller where its slope is open or nothing is known yet.

        Neurons known to be still are left as they are.
        """
        layer = self.network.layers[index]
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(lower, upper)
        # where a later trace will close with this layer's values, all of them count
        closing = self.depth is not None and index + self.depth < self.network.depth - 1
        loose = np.ones(layer.size, dtype=bool) if closing else alpha < beta
        loose = (loose if still is None else loose & ~still) | ~np.isfinite(lower) | ~np.isfinite(upper)
        rows = np.flatnonzero(loose)
        lower, upper = np.array(lower), np.array(upper)
        widest = max(before.weight.shape[1] for before in self.network.layers[: index + 1])
        for part in np.array_split(rows, -(-rows.size * widest // _ENTRIES) or 1):
            if not part.size:
                continue
            weight, bias = dense(layer.weight[part]), layer.bias[part]
            above = self._above(index, np.concatenate([weight, -weight]))
            # what the weights and biases themselves are known to
            loose = gamma(LOOSE) * (spread(np.abs(weight), self._below(index)) + np.abs(bias)) * UP + TINY
            # an overflow gives NaN, which fmin and fmax ignore
            upper[part] = np.fmin(upper[part], up(up(above[: part.size] + loose) + bias))
            lower[part] = np.fmax(lower[part], -up(up(above[part.size :] + loose) - bias))
        return lower, upper

    def settle(self, index: int, lower: Array, upper: Array) -> None:
        """The interval that was finally agreed on for a layer."""
        assert index == len(self.settled)
        self.settled.append((lower, upper))

    def relaxation(self, index: int) -> Relaxation:
        """The lines of a layer, drawn when the first trace comes by."""
        while len(self.relaxations) <= index:
            k = len(self.relaxations)
            neurons = self.network.layers[k].neurons
            assert neurons is not None
            self.relaxations.append(relax(neurons, *self.settled[k], *self.lines[k]))
        return self.relaxations[index]

    def _above(self, index: int, rows: Array) -> Array:
        """At least max over the region of rows·z, z the activations before layer ``index``.

        Replacing z by its lines turns rows into rows' = rows⁺·upper_slope + rows⁻·lower_slope, one rounding an entry;
        going through the affine map turns them into rows'·W, with error at most γ|rows'||W|. Both errors multiply
        values that are bounded, by v_size and z_size; so they are charged to the offset at the cost of a
        matrix-vector product. The three sums that make up the offset lose γ of their terms and 3u of what they add to.
        """
        stop = 0 if self.depth is None else max(0, index - self.depth)
        offset, charge = np.zeros(rows.shape[:-1]), np.zeros(rows.shape[:-1])
        for back in range(index - 1, stop - 1, -1):
            layer, lines = self.network.layers[back], self.relaxation(back)
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + positive @ lines.upper_offset + negative @ lines.lower_offset
            sizes = np.maximum(np.abs(lines.upper_offset), np.abs(lines.lower_offset))
            before = np.abs(rows)
            rows = positive * lines.upper_slope + negative * lines.lower_slope
            offset = offset + rows @ layer.bias
            below = self._below(back)
            passed = spread(magnitude(layer.weight), below) + np.abs(layer.bias) + lines.v_size
            g = gamma(max(layer.weight.shape) + LOOSE + 8)
            charge = charge + g * (before @ sizes + np.abs(rows) @ passed + np.abs(offset))
            charge = charge + TINY * (1.0 + passed.sum() + below.sum())  # what underflows in rows multiplies these
            rows = times(rows, layer.weight)
        charge = charge * UP * (1.0 + gamma(2 * index + 2)) + TINY
        if stop == 0:
            value, error = support_above(self.region, rows)
        else:
            lines = self.relaxation(stop - 1)
            value = np.maximum(rows, 0.0) @ lines.roof + np.minimum(rows, 0.0) @ lines.floor
            error = gamma(rows.shape[-1] + 3) * (np.abs(rows) @ lines.z_size) * UP
        charge = charge + 4.0 * gamma(1) * (np.abs(offset) + np.abs(value) + error)
        return np.asarray(up(offset + value + (error + charge * UP)))

    def _below(self, index: int) -> Array:
        """At least |z| for the values that enter layer ``index``."""
        return self.relaxation(index - 1).z_size if index else sizes_above(self.region)
