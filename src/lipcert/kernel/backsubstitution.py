"""Back-substitution, proved: every rounding error is charged to the offset.

A row·z of the values before a layer is bounded over a region by replacing each activation, last layer first, by the
line that is on the safe side. Many rows, of many regions of a stack, go back together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lipcert.kernel.domain import Domain, Pick
from lipcert.kernel.hints import Interval
from lipcert.kernel.near import rounded_off, total, underflow, weighed_off
from lipcert.kernel.neuron_bounds import relax, value_error
from lipcert.kernel.rounding import matvec, up
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Network, Neurons

_ENTRIES = 2_000_000
"""Entries of the rows that are traced together; more would take memory that is fresh each time."""


@dataclass(frozen=True, eq=False)
class _Sizes:
    """Bounds of (count, n) sizes that need no copy per row: size[k, n] ≤ region[k]·neuron[n]."""

    region: Array
    neuron: Array

    @staticmethod
    def of(sizes: Array) -> _Sizes:
        """With region the largest size of each region; one that is not finite leaves the others alone."""
        region = sizes.max(axis=-1, initial=0.0)
        usable = np.isfinite(region) & (region > 0.0)
        share = np.where(usable[:, None], sizes / np.where(usable, region, 1.0)[:, None], 0.0)
        return _Sizes(region, up(share.max(axis=0)))

    def times(self, pick: Pick, rows: Array) -> Array:
        """At least Σ rows·size of each row's region, for rows ≥ 0, up to the rounding of sums and products."""
        return np.asarray(pick(self.region) * (rows @ self.neuron))


@dataclass(frozen=True, eq=False)
class _Lines:
    """What holds for the activations of a layer over every region of the stack, (count, neurons).

    lower_slope·v + lower_offset ≤ φ(v) ≤ upper_slope·v + upper_offset, floor ≤ φ(v) ≤ roof, |φ(v)| ≤ z_size. What is
    rounded in a row multiplies ``passed`` = |W||z| + |b| + |v| or an offset; ``lost`` is what underflow loses.
    """

    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array
    floor: Array
    roof: Array
    z_size: Array
    offsets: _Sizes
    passed: _Sizes
    lost: Array


@dataclass(eq=False)
class BackSubstitution:
    """One run through the layers of a network, for a stack of regions.

    ``depth`` says how many layers a trace goes back at most; None is all the way to the input. Where ``pieces`` may be
    empty, neurons whose interval ends at a kink are traced too.
    """

    network: Network
    domain: Domain
    depth: int | None
    pieces: bool = False
    settled: list[tuple[Interval, Interval, Interval]] = field(default_factory=list)
    drawn: list[_Lines] = field(default_factory=list)

    def tightened(self, index: int, lower: Array, upper: Array, still: Array | None = None) -> Interval:
        """The intervals of a layer, (count, neurons), smaller where a slope is open or nothing is known yet.

        Neurons known to be still are left as they are.
        """
        layer = self.network.layers[index]
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(lower, upper)
        # where a later trace will close with this layer's values, all of them count
        closing = self.depth is not None and index + self.depth < self.network.depth - 1
        loose = np.ones(lower.shape, dtype=bool) if closing else alpha < beta
        if self.pieces:
            loose |= at_kink(layer.neurons, lower, upper)
        loose = (loose if still is None else loose & ~still) | ~np.isfinite(lower) | ~np.isfinite(upper)
        where, neuron = np.nonzero(loose)
        lower, upper = np.array(lower), np.array(upper)
        widest = max(before.weight.shape[1] for before in self.network.layers[: index + 1])
        for part in np.array_split(np.arange(where.size), -(-where.size * widest // _ENTRIES) or 1):
            if part.size:
                self._tighten(index, where[part], neuron[part], lower, upper)
        return lower, upper

    def _tighten(self, index: int, where: Array, neuron: Array, lower: Array, upper: Array) -> None:
        """The same for some neurons, in place."""
        layer = self.network.layers[index]
        weight, bias = dense(layer.weight[neuron]), layer.bias[neuron]
        above = self.above(index, np.tile(where, 2), np.concatenate([weight, -weight]))
        # what the weights and biases themselves are known to
        sizes = Pick(len(self.domain), where).dots(np.abs(weight), self._below(index))
        loose = weighed_off(sizes + np.abs(bias), 0)
        # an overflow gives NaN, which fmin and fmax ignore
        upper[where, neuron] = np.fmin(upper[where, neuron], up(up(above[: where.size] + loose) + bias))
        lower[where, neuron] = np.fmax(lower[where, neuron], -up(up(above[where.size :] + loose) - bias))

    def settle(self, interval: Interval, slopes: Interval, told: Interval) -> Interval:
        """The final intervals of the next layer, and its slopes; the slopes of its lines are returned.

        Those of neurons with an open slope are ``told``, in a row: any will do that are finite.
        """
        lines, open_ = (np.array(slopes[0]), np.array(slopes[0])), slopes[0] < slopes[1]
        for line, slope in zip(lines, told, strict=True):
            line[open_] = np.where(np.isfinite(slope), slope, 0.0)
        self.settled.append((interval, slopes, lines))
        return lines

    def lines(self, index: int) -> _Lines:
        """The lines of a layer, drawn when the first trace comes by."""
        while len(self.drawn) <= index:
            self._draw(*self.settled[len(self.drawn)])
        return self.drawn[index]

    def _draw(self, interval: Interval, slopes: Interval, suggested: Interval) -> None:
        """Draw the lines of the next layer on its intervals.

        Where the slope is a single number the line is the function itself, else it has a suggested slope.
        """
        index = len(self.drawn)
        layer, (low, high), (alpha, beta) = self.network.layers[index], interval, slopes
        assert layer.neurons is not None
        ends = [layer.neurons.value(end) for end in interval]
        errors = [value_error(layer.neurons, end) for end in ends]
        slack = up(errors[0] + rounded_off(np.abs(ends[0]) + np.abs(alpha * low), 8))
        offset = ends[0] - alpha * low
        floor = np.minimum(ends[0] - errors[0], ends[1] - errors[1])
        roof = np.maximum(ends[0] + errors[0], ends[1] + errors[1])
        columns = (np.array(alpha), offset - slack, np.array(alpha), offset + slack, floor, roof)
        open_ = np.nonzero(alpha < beta)
        if open_[0].size:
            drawn = relax(layer.neurons.take(open_[1]), *(x[open_] for x in (low, high, *suggested)))
            for column, found in zip(columns, drawn, strict=True):
                column[open_] = found
        below = self._below(index)
        z_size = up(np.maximum(np.abs(floor), np.abs(roof)))
        passed = matvec(abs(layer.weight), below) + np.abs(layer.bias) + np.maximum(np.abs(low), np.abs(high))
        sizes = np.maximum(np.abs(columns[1]), np.abs(columns[3]))
        # what underflows in a row multiplies values below and above the affine map, whatever the slopes are
        lost = underflow(1.0 + passed.sum(axis=-1) + below.sum(axis=-1) + sizes.sum(axis=-1))
        self.drawn.append(_Lines(*columns, z_size, _Sizes.of(sizes), _Sizes.of(passed), lost))

    def above(self, index: int, where: Array, rows: Array, extra: Sequence[Array] | None = None) -> Array:
        """At least max of row·z over the region of each row, z the activations before layer ``index``, (k,).

        ``where`` (k,) numbers the regions of rows (k, n). Replacing z by its lines turns rows into
        rows' = rows⁺·upper_slope + rows⁻·lower_slope, one rounding per entry; going through the affine map turns them
        into rows'·W, with error at most γ|rows'||W|. Both errors multiply values that are bounded; so they are charged
        to the offset at the cost of a matrix-vector product. The three sums that make up the offset lose γ of their
        terms and 3u of what they add to. ``extra`` adds multiples of the pre-activations of every layer on the way.
        """
        stop = 0 if self.depth is None else max(0, index - self.depth)
        pick = Pick(len(self.domain), where)
        offset, charge = np.zeros(len(rows)), np.zeros(len(rows))
        for back in range(index - 1, stop - 1, -1):
            layer, lines = self.network.layers[back], self.lines(back)
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + pick.dots(positive, lines.upper_offset) + pick.dots(negative, lines.lower_offset)
            sizes = lines.offsets.times(pick, np.abs(rows))
            rows = positive * pick(lines.upper_slope) + negative * pick(lines.lower_slope)
            if extra is not None:
                rows = rows + extra[back]
            offset = offset + rows @ layer.bias
            passed = lines.passed.times(pick, np.abs(rows))
            if extra is not None:  # the sum above is rounded too, also where it cancels
                passed = passed + lines.passed.times(pick, np.abs(extra[back]))
            lost = weighed_off(sizes + passed + np.abs(offset), max(layer.weight.shape) + 12)
            charge = charge + lost + pick(lines.lost)
            rows = times(rows, layer.weight)
        if stop == 0:
            value, error = self.domain.support(where, rows)
        else:
            lines = self.lines(stop - 1)
            value = pick.dots(np.maximum(rows, 0.0), lines.roof) + pick.dots(np.minimum(rows, 0.0), lines.floor)
            error = rounded_off(pick.dots(np.abs(rows), lines.z_size), rows.shape[-1] + 3)
        charge = total(charge, rounded_off(np.abs(offset) + np.abs(value) + np.abs(error), 4))
        return np.asarray(up(offset + value + (error + charge)))

    def above_outputs(self, rows: Array, which: Sequence[int] | None = None) -> Array:
        """At least max of rows·v_N over some regions, all by default, (count, k); NaN proves nothing."""
        regions = np.arange(len(self.domain)) if which is None else np.array(which)
        layer, last = self.network.layers[-1], self.network.depth - 1
        through, shift = times(rows, layer.weight), rows @ layer.bias
        # the rounding of these two products multiplies activations that are bounded
        below = self._below(last)[regions]
        missed = (matvec(abs(layer.weight), below) + np.abs(layer.bias)) @ np.abs(rows).T
        value = self.above(last, np.repeat(regions, len(rows)), np.tile(through, (len(regions), 1)))
        value = value.reshape(missed.shape)
        charge = weighed_off(missed, rows.shape[-1] + 4) + underflow(1.0 + below.sum(axis=-1, keepdims=True))
        charge = total(charge, rounded_off(np.abs(value) + np.abs(shift) + charge, 4))
        return np.asarray(up(value + (shift + charge)))

    def _below(self, index: int) -> Array:
        """At least |z| for the values that enter layer ``index``, (count, n)."""
        return self.lines(index - 1).z_size if index else self.domain.sizes()


def at_kink(neurons: Neurons, lower: Array, upper: Array) -> Array:
    """Neurons whose interval ends at a kink: perhaps confined to a side that a part of the piece cannot reach."""

    def rule(row: Activation, low: Array, high: Array) -> tuple[Array]:
        ends = np.zeros(low.shape)
        if row.row.kinks:
            for knot in row.row.knots(low, *row.parameters):
                ends = np.maximum(ends, ((low == knot) | (high == knot)) & (low < high))
        return (ends,)

    return np.asarray(neurons.gather(rule, lower, upper)[0] > 0)
