"""Where the values of a network lie: at points, over boxes by intervals, over regions by back-substitution.

A row·z of the values before a layer is bounded over a region by replacing each activation, last layer first, by the
line that is on the safe side. Many rows, of many regions of a stack, go back together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    down,
    matvec,
    norm_below,
    rounded_off,
    total,
    transpose,
    underflow,
    up,
    weighed_off,
)
from lipcert.kernel.coupling import coupled_lines, coupled_ranges, coupled_values, derivative
from lipcert.kernel.domain import Domain, Pick
from lipcert.kernel.neuron_bounds import relax, slope_bounds, value_error
from lipcert.kernel.norms import length_above
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, Interval, Weight, dense, times
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import PLAIN, Norm, Norms

_BROAD = 3000
"""Entries from which an error is kept entry by entry: a matrix of that size takes more time than it saves."""
_SMALL = 2.0**-36
"""Errors entry by entry will do if they are this small, relative to the largest entry."""


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Vectors (count, n) near computed ones, entry by entry, and unless Q is None also e + d away, eeᵀ ≼ Q, |d| ≤ δ.

    An ellipsoid follows the contraction of the network where errors by entry would grow with every layer. In a few
    layers they hardly grow; where they do, an ellipsoid follows them from then on.
    """

    near: Near
    Q: Approx | None = None
    delta: Array = field(default_factory=lambda: np.zeros(1))

    def through(self, weight: Weight, bias: Near | float = 0.0) -> _Vectors:
        """W x + b for the vectors x."""
        near = self.near.through(weight) + bias
        small = (near.error.max(axis=-1) <= _SMALL * np.abs(near.value).max(axis=-1)).all()
        if max(weight.shape) >= _BROAD or not self.near.error.any() or (self.Q is None and small):
            return _Vectors(near)
        if self.Q is None:
            Q = Approx.diagonal(np.zeros(self.near.shape)).sum_above(self.near.error)
        else:
            Q = self.Q.sum_above(self.delta)
        computed = Near.of(self.near.value).through(weight) + bias
        return _Vectors.around(computed.value, congruence(Q, weight), computed.error)

    @staticmethod
    def around(value: Array, Q: Array, delta: Array) -> _Vectors:
        """Vectors e + d away from a value, eeᵀ ≼ Q, |d| ≤ δ."""
        error = up(up(np.sqrt(np.diagonal(Q, axis1=-2, axis2=-1))) + delta)
        return _Vectors(Near(value, error), Approx(Q, symmetric=True), delta)

    def moved(self, J: Near, computed: Near) -> _Vectors:
        """Vectors that are away from computed ones by J(e + d), J (count, m, n), and by what those lost."""
        assert self.Q is not None
        apart = total(matvec(J.error, self.near.error), computed.error)
        return _Vectors.around(computed.value, congruence(self.Q.sum_above(self.delta), J.value), apart)

    def scaled(self, slopes: Near, computed: Near) -> _Vectors:
        """Vectors that are away from computed ones by slopes·(e + d), and by what those lost."""
        near = Near(computed.value, up(up(slopes.size * self.near.error) + computed.error))
        if self.Q is None:
            return _Vectors(near)
        m, apart = slopes.value, up(slopes.error * self.near.error)
        delta = up(up(up(np.abs(m) * self.delta) + apart) + computed.error)
        return _Vectors(near, self.Q.scaled(m, m), delta)

    def coupled(self, layer: Layer) -> _Vectors:
        """What a coupling makes of values; an ellipsoid goes through the Jacobian, whose error counts by entry."""
        coupling, plain, v = layer.coupling, layer.plain, self.near
        assert coupling is not None
        assert plain is not None
        first = v[..., : plain.size]
        value = plain.value(first.value)
        slopes = _slopes(plain, first)
        reach = Near(value, up(up(slopes.size * first.error) + value_error(plain, value)))
        if self.Q is None:
            return _Vectors(coupled_values(coupling, v, reach))
        found = [derivative(coupling, v[k], slopes[k]) for k in range(len(v.value))]
        J = Near(np.stack([one.value for one in found]), np.stack([one.error for one in found]))
        return self.moved(J, coupled_values(coupling, Near.of(v.value), Near(value, value_error(plain, value))))


def held(network: Network) -> Network:
    """The same function, its output held by neurons of the identity."""
    last, size = network.layers[-1], network.outputs
    read = Layer(np.eye(size), np.zeros(size), None)
    same = Neurons(size, ((Activation("identity"), np.arange(size)),))
    return Network((*network.layers[:-1], Layer(last.weight, last.bias, same), read))


def trajectory(network: Network, points: Array) -> list[Interval]:
    """The pre-activations of the hidden layers at points (count, inputs) as computed, and bounds of their errors."""
    z, found = _Vectors(Near.of(points)), []
    for layer in network.layers[:-1]:
        assert layer.plain is not None
        v = z.through(layer.weight, Near.weights(layer.bias))
        found.append((v.near.value, np.where(np.isnan(v.near.error), np.inf, v.near.error)))
        if layer.coupling is not None:
            z = v.coupled(layer)
            continue
        value = layer.plain.value(v.near.value)
        z = v.scaled(_slopes(layer.plain, v.near), Near(value, value_error(layer.plain, value)))
    return found


def _slopes(neurons: Neurons, v: Near) -> Near:
    """The slopes of φ where v may be."""
    return Near.between(*slope_bounds(neurons, v.below, v.above))


def stretch_below(network: Network, point: Array, direction: Array, norms: Norms = PLAIN) -> float:
    """At most ‖J·direction‖/‖direction‖ for the Jacobian J at the point (at a kink: for every one-sided Jacobian).

    The norms may have units, no shapes: the direction, multiplied by units, is rounded once.
    """
    y, exponent = _Vectors(Near.of(direction[None])), 0
    for layer, v in zip(network.layers, trajectory(network, point[None]), strict=False):
        assert layer.plain is not None
        if layer.coupling is not None:
            y = _pushed(layer, Near(*v)[0], y.through(layer.weight))
            continue
        y, slopes = y.through(layer.weight), _slopes(layer.plain, Near(*v))
        moved = slopes * y.near.value
        top = float(np.abs(moved.value).max())
        power = int(np.frexp(top)[1]) if 0.0 < top < np.inf else 0  # keeps the vector near unit size
        y, exponent = y.scaled(slopes.shifted(-power), moved.shifted(-power)), exponent + power
    length = down(np.ldexp(_length_below(y.through(network.layers[-1].weight).near[0], norms.output), exponent))
    found = float(down(length / length_above(direction, norms.input)))
    return found if 0.0 < found < np.inf else 0.0


def _pushed(layer: Layer, v: Near, y: _Vectors) -> _Vectors:
    """The Jacobian of a coupling at a point v times vectors (1, size)."""
    assert layer.coupling is not None
    assert layer.plain is not None
    J = derivative(layer.coupling, v, _slopes(layer.plain, v[: layer.plain.size]))
    if y.Q is None:
        return _Vectors((J @ y.near.T).T)
    return y.moved(J[None], (J @ Near.of(y.near.value).T).T)


def _length_below(y: Near, norm: Norm) -> Array:
    """At most the norm of a vector."""
    sizes, units = np.maximum(down(np.abs(y.value) - y.error), 0.0), norm.units(len(y.value))
    sizes = sizes if units is None else np.maximum(down(sizes / units), 0.0)
    if norm.name == "l2":
        return norm_below(sizes)
    return np.asarray(sizes.max()) if norm.name == "linf" else Near.of(sizes).sum().below


_ENTRIES = 4_000_000
"""Entries of products up to which derivatives are formed from both ends."""


def affine(layer: Layer, ends: Interval) -> Interval:
    """Where W z + b lies for z between two ends (count, n); NaN where numbers overflow."""
    found = Near.between(*ends).through(layer.weight) + Near.weights(layer.bias)
    return found.below, found.above


def activated_ends(layer: Layer, interval: Interval) -> Interval:
    """Where z lies for v in intervals (count, size)."""
    assert layer.plain is not None
    if layer.coupling is None:
        return activated(layer.plain, interval)
    first = interval[0][..., : layer.plain.size], interval[1][..., : layer.plain.size]
    return coupled_ranges(layer.coupling, interval, activated(layer.plain, first))


def activated(neurons: Neurons, interval: Interval) -> Interval:
    """Where φ(v) lies for v in intervals (count, n); everywhere for those that are not finite."""
    finite = np.isfinite(interval[0]) & np.isfinite(interval[1])
    low, high = (np.where(finite, end, 0.0) for end in interval)
    level = np.zeros(low.shape)
    *_, floor, roof = relax(neurons, low, high, level, level)
    return np.where(finite, floor, -np.inf), np.where(finite, roof, np.inf)


def jacobian(network: Network, slopes: Sequence[Interval]) -> Near:
    """The entries of W_N D_{N-1} … D_1 W_1 for all slopes between ends (count, n) per layer, (count, outputs, inputs).

    The product is formed from its narrower end and, where that has at most so many entries, from the other too; the
    intersection counts. What overflows may be anything.
    """
    if network.coupled:
        raise ProofFailed("the Jacobian of a network with products or softmax is not enclosed entry by entry")
    weights, ends = [layer.weight for layer in network.layers], list(slopes)
    count, widest = max((len(alpha) for alpha, _ in ends), default=1), max(network.sizes)
    small = count * max(network.inputs, network.outputs) * widest <= _ENTRIES
    products = []
    if small or network.inputs < network.outputs:
        products.append(_product([transpose(weight) for weight in weights], ends).T)
    if small or network.inputs >= network.outputs:
        products.append(_product(weights[::-1], ends[::-1]))
    low, high = np.fmax.reduce([one.below for one in products]), np.fmin.reduce([one.above for one in products])
    found = Near.between(low, high)
    return found.replace(~np.isfinite(found.error), Near(np.zeros(()), np.array(np.inf)))


def _product(weights: Sequence[Weight], slopes: Sequence[Interval]) -> Near:
    """The entries of weights[0] D weights[1] D …; the first weight is taken row by row.

    An entry times a slope is between the least and the largest of four products.
    """
    first, *others = weights
    found = Near.weights(dense(first)[None])
    for weight, (alpha, beta) in zip(others, slopes, strict=True):
        corners = [end * slope[:, None, :] for end in (found.below, found.above) for slope in (alpha, beta)]
        found = Near.between(down(np.minimum.reduce(corners)), up(np.maximum.reduce(corners)))
        found = found.through(transpose(weight))
    return found


_TOGETHER = 2_000_000
"""Entries of the rows that are traced together; more would take memory that is fresh each time."""


def _largest(sizes: Array) -> Array:
    """The largest of sizes (count, n) over the regions where all are finite: only rounding errors are charged by it."""
    return np.asarray(sizes[np.isfinite(sizes).all(axis=-1)].max(axis=0, initial=0.0))


@dataclass(frozen=True, eq=False)
class _Lines:
    """What holds for the activations of a layer over every region of the stack, (count, neurons).

    lower_slope·v + lower_offset ≤ φ(v) ≤ upper_slope·v + upper_offset, floor ≤ φ(v) ≤ roof, |φ(v)| ≤ z_size. What is
    rounded in a row multiplies ``passed`` = |W||z| + |b| + |v| or an offset, the largest of all regions, (neurons,);
    ``lost`` is what underflow loses, infinite where these are not finite. With
    ``mixed`` the slopes are those of the elementwise activations; mixed·v takes the place of slope·v for the others.
    """

    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array
    floor: Array
    roof: Array
    z_size: Array
    offsets: Array
    passed: Array
    lost: Array
    mixed: Weight | None = None


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
    settled: list[tuple[Interval, Interval, Interval, Interval | None]] = field(default_factory=list)
    lines: list[_Lines] = field(default_factory=list)

    def tightened(self, index: int, lower: Array, upper: Array, still: Array | None = None) -> Interval:
        """The intervals of a layer, (count, neurons), smaller where a slope is open or nothing is known yet.

        Neurons known to be still are left as they are.
        """
        plain = self.network.layers[index].plain
        assert plain is not None
        first = lower[:, : plain.size], upper[:, : plain.size]
        alpha, beta = plain.slope_range(*first)
        # where a later trace will close with this layer's values, all of them count, as do factors and softmax rows
        loose = np.ones(lower.shape, dtype=bool)
        if self.depth is None or index + self.depth >= self.network.depth - 1:
            loose[:, : plain.size] = alpha < beta
            if self.pieces:
                loose[:, : plain.size] |= at_kink(plain, *first)
        loose = (loose if still is None else loose & ~still) | ~np.isfinite(lower) | ~np.isfinite(upper)
        where, neuron = np.nonzero(loose)
        lower, upper = np.array(lower), np.array(upper)
        widest = max(before.weight.shape[1] for before in self.network.layers[: index + 1])
        for part in np.array_split(np.arange(where.size), -(-where.size * widest // _TOGETHER) or 1):
            if part.size:
                self._tighten(index, where[part], neuron[part], lower, upper)
        return lower, upper

    def _tighten(self, index: int, where: Array, neuron: Array, lower: Array, upper: Array) -> None:
        """The same for some neurons, in place."""
        layer = self.network.layers[index]
        weight, bias, below = dense(layer.weight[neuron]), layer.bias[neuron], self._below(index)
        above = self.above(index, np.tile(where, 2), np.concatenate([weight, -weight]))
        # what the weights and biases themselves are known to
        sizes = Pick(len(self.domain), where).dots(np.abs(weight), below)
        loose = weighed_off(sizes + np.abs(bias), 0)
        # an overflow gives NaN, which fmin and fmax ignore
        upper[where, neuron] = np.fmin(upper[where, neuron], up(up(above[: where.size] + loose) + bias))
        lower[where, neuron] = np.fmax(lower[where, neuron], -up(up(above[where.size :] + loose) - bias))

    def settle(self, interval: Interval, slopes: Interval, told: Interval, ends: Interval | None = None) -> Interval:
        """Draw the lines of the next layer on its final intervals, for its slopes; the slopes of lines are returned.

        Where the slope is a single number the line is the function itself. Those of neurons with an open slope are
        ``told``, in a row: any will do that are finite. ``ends`` are those of the results of a coupling.
        """
        suggested, open_ = (np.array(slopes[0]), np.array(slopes[0])), np.nonzero(slopes[0] < slopes[1])
        for line, slope in zip(suggested, told, strict=True):
            line[open_] = np.where(np.isfinite(slope), slope, 0.0)
        self.settled.append((interval, slopes, suggested, ends))
        return suggested

    def at(self, index: int) -> _Lines:
        """The lines of a layer, made when a row first passes it."""
        while len(self.lines) <= index:
            self.lines.append(self._drawn(len(self.lines), *self.settled[len(self.lines)]))
        return self.lines[index]

    def _drawn(
        self, index: int, interval: Interval, slopes: Interval, suggested: Interval, ends: Interval | None
    ) -> _Lines:
        layer, alpha, open_ = self.network.layers[index], slopes[0], np.nonzero(slopes[0] < slopes[1])
        plain = layer.plain
        assert plain is not None
        low, high = (end[:, : plain.size] for end in interval)
        values = [plain.value(end) for end in (low, high)]
        errors = [value_error(plain, value) for value in values]
        slack = up(errors[0] + rounded_off(np.abs(values[0]) + np.abs(alpha * low), 8))
        offset = values[0] - alpha * low
        floor = np.minimum(values[0] - errors[0], values[1] - errors[1])
        roof = np.maximum(values[0] + errors[0], values[1] + errors[1])
        columns = np.array(alpha), offset - slack, np.array(alpha), offset + slack, floor, roof
        if open_[0].size:
            drawn = relax(plain.take(open_[1]), *(x[open_] for x in (low, high, *suggested)))
            for column, found in zip(columns, drawn, strict=True):
                column[open_] = found
        below, sides, mixed = self._below(index), np.maximum(*map(np.abs, interval)), None
        sizes = np.maximum(np.abs(columns[1]), np.abs(columns[3]))
        if layer.coupling is not None and ends is not None:
            mixed, rest = coupled_lines(layer.coupling, (interval[0][0], interval[1][0]))
            offsets = (np.hstack([columns[k], end[None]]) for k, end in ((1, rest.below), (3, rest.above)))
            columns = columns[0], next(offsets), columns[2], next(offsets), *ends
            sizes = np.hstack([sizes, rest.size[None] + matvec(abs(mixed), sides)])
        z_size = up(np.maximum(np.abs(columns[4]), np.abs(columns[5])))
        passed = matvec(abs(layer.weight), below) + np.abs(layer.bias) + sides
        # what underflows in a row multiplies values below and above the affine map, whatever the slopes are
        lost = underflow(1.0 + passed.sum(axis=-1) + below.sum(axis=-1) + sizes.sum(axis=-1))
        return _Lines(*columns, z_size, _largest(sizes), _largest(passed), lost, mixed)

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
            layer, lines = self.network.layers[back], self.at(back)
            positive, negative = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
            offset = offset + pick.dots(positive, lines.upper_offset) + pick.dots(negative, lines.lower_offset)
            sizes = np.abs(rows) @ lines.offsets
            rest, first = rows, (..., slice(lines.upper_slope.shape[-1]))
            rows = positive[first] * pick(lines.upper_slope) + negative[first] * pick(lines.lower_slope)
            if lines.mixed is not None:
                through = times(rest[:, rows.shape[1] :], lines.mixed)
                through[first] += rows
                rows = through
            if extra is not None:
                rows = rows + extra[back]
            offset = offset + rows @ layer.bias
            passed = np.abs(rows) @ lines.passed
            if extra is not None:  # the sum above is rounded too, also where it cancels
                passed = passed + np.abs(extra[back]) @ lines.passed
            lost = weighed_off(sizes + passed + np.abs(offset), max(layer.weight.shape) + layer.width + 12)
            charge = charge + lost + pick(lines.lost)
            rows = times(rows, layer.weight)
        if stop == 0:
            value, error = self.domain.support(where, rows)
        else:
            lines = self.at(stop - 1)
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
        return self.at(index - 1).z_size if index else self.domain.sizes()


def at_kink(neurons: Neurons, lower: Array, upper: Array) -> Array:
    """Neurons whose interval ends at a kink: perhaps confined to a side that a part of the piece cannot reach."""

    def rule(row: Activation, low: Array, high: Array) -> tuple[Array]:
        met = [(low == knot) | (high == knot) for knot in row.knots(low) if row.row.kinks]
        return (np.logical_or.reduce([np.zeros(low.shape, dtype=bool), *met]) & (low < high),)

    return neurons.gather(rule, lower, upper)[0]
