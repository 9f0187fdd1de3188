"""The network and the region as balls, and one pass through the layers: intervals, slopes, lines, ellipsoids.

Differences: Δz Δzᵀ ≼ ‖Δz_0‖² P, and P goes from layer to layer (:func:`advance`). Values: each neuron lies in an
interval, by the trajectory of the centre and the ellipsoid, or by back-substitution (:class:`Trace`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit import balls as ba
from lipcert.audit import couplings
from lipcert.audit.balls import Balls, Interval
from lipcert.definitions.functions import Function, View, ball
from lipcert.definitions.rows import function
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import PLAIN, Ball, Box, Everywhere, Norm, Norms, Region
from lipcert.suggest.chain import Chain
from lipcert.suggest.hints import Hints
from lipcert.suggest.lines import suggested_lines as suggested
from lipcert.suggest.multipliers import split_rate, triangular_factor

SPREAD = 2.0**-50
"""Weights and biases may differ from the stored numbers by this much, relative to their size; zeros stay zeros."""
_HALVINGS = 24


@dataclass(frozen=True, eq=False)
class Layer:
    """v = weight·z + bias as balls, then z = φ(v), a function a neuron; the last layer of a model has none.

    ``neurons`` are the same functions in floating point, for suggestions. With a coupling the functions are those of
    the first values only.
    """

    weight: Balls
    bias: Balls
    plain: tuple[Function, ...]
    neurons: Neurons | None
    coupling: Coupling | None = None

    @property
    def size(self) -> int:
        return len(self.bias)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of all neurons, for those who know no couplings."""
        ba.require(self.coupling is None, "there is no rule for what was asked of a network with products or softmax")
        return self.plain

    @cached_property
    def near(self) -> tuple[list[Array], list[Array]]:
        """Floats near the weight and the bias, and at least how far off they are."""
        parts = self.weight, self.bias
        return [ba.floats(x) for x in parts], [ba.floats_above(ba.size(x - ba.balls(ba.floats(x)))) for x in parts]

    def views(self, interval: Interval) -> list[View]:
        """Each elementwise function on its interval."""
        return [f.on(low, high) for f, low, high in zip(self.plain, *self.first(interval), strict=True)]

    def first(self, interval: Interval) -> Interval:
        """The part of an interval that elementwise functions are of."""
        return interval[0][: len(self.plain)], interval[1][: len(self.plain)]

    def ends(self, interval: Interval, views: Sequence[View]) -> Interval:
        """Between which numbers the results lie."""
        low, high = np.array([(-v.top(-1, arb(0)), v.top(1, arb(0))) for v in views], dtype=object).reshape(-1, 2).T
        return (low, high) if self.coupling is None else couplings.ranges(self.coupling, interval, (low, high))

    def interval(self, ends: Interval) -> Interval:
        """Between which numbers the pre-activations lie for what enters between two ends."""
        W, lost = ba.mid(self.weight), ba.dot(ba.rad(self.weight), ba.sizes_within(ends))
        up, down = (np.where(W > 0, W * a, W * b).sum(axis=1) for a, b in (ends[::-1], ends))
        return ba.lower(down + self.bias - lost), ba.upper(up + self.bias + lost)

    def slopes(self, interval: Interval) -> Interval:
        """The slope range of each neuron on its interval."""
        return slopes_of(self.views(interval))


Model = tuple[Layer, ...]


def read(network: Network, spread: float = SPREAD) -> Model:
    """The layers of a network, every weight and bias w as the ball w·(1 ± spread)."""
    near_one, layers = arb(1, spread), []
    for number, layer in enumerate(network.layers, 1):
        stored = layer.weight
        if not isinstance(stored, np.ndarray) and not stored.has_canonical_format:
            raise ProofFailed(f"the weight of layer {number} repeats entries; build it with Network.from_weights")
        weight, bias = dense(stored), np.asarray(layer.bias)
        if {weight.dtype, bias.dtype} != {np.dtype(np.float64)} or not (
            np.isfinite(weight).all() and np.isfinite(bias).all()
        ):
            raise ProofFailed(f"layer {number} must have finite weights and biases of float64")
        count = layer.plain.size if layer.plain else 0
        functions: list[Function | None] = [None] * count
        for row, index in layer.plain.groups if layer.plain else ():
            columns = [np.broadcast_to(np.asarray(p, dtype=float), np.shape(index)) for p in row.parameters]
            for place, neuron in enumerate(index):
                functions[int(neuron)] = function(row.name, tuple(float(values[place]) for values in columns))
        known = tuple(f for f in functions if f is not None)
        coupling = layer.coupling
        expected = 0 if number == network.depth else len(bias) if coupling is None else coupling.plain
        ba.require(
            len(known) == expected == count, f"layer {number} has {expected} neurons and {len(known)} activations"
        )
        layers.append(Layer(ba.balls(weight) * near_one, ba.balls(bias) * near_one, known, layer.plain, coupling))
    return tuple(layers)


def check_distinct(chosen: Sequence[int], count: int) -> None:
    """ProofFailed unless some coordinates of so many are named, each once."""
    distinct = len(chosen) == len(set(chosen)) > 0 and set(chosen) <= set(range(count))
    ba.require(distinct, f"{tuple(chosen)[:5]} are not distinct coordinates of {count}")


def check_elementwise(model: Model) -> None:
    """ProofFailed if there are softmax rows or products, of which slopes alone say little."""
    ba.require(not any(layer.coupling for layer in model), "there is no rule for slopes of products or softmax alone")


def part_of(
    model: Model, start: int, stop: int, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None
) -> Model:
    """From z_start to v_stop, some coordinates at each end."""
    ba.require(0 <= start < stop <= len(model), f"the network has {len(model)} layers, no part from {start} to {stop}")
    layers = list(model[start:stop])
    layers[-1] = replace(layers[-1], plain=(), neurons=None, coupling=None)
    for place, picked, axis in ((0, inputs, 1), (-1, outputs, 0)):
        if picked is None:
            continue
        layer, count = layers[place], layers[place].weight.shape[axis]
        check_distinct(picked, count)
        bias = layer.bias if axis else layer.bias[list(picked)]
        layers[place] = replace(layer, weight=layer.weight.take(list(picked), axis), bias=bias)
    return tuple(layers)


def in_units(model: Model, into: Norm, out: Norm) -> Model:
    """The model as a map of u to w, for inputs Mu and outputs M'w: M and M' are the units of the norms."""
    layers = list(model)
    unit = into.units(layers[0].weight.shape[1])
    if unit is not None:
        layers[0] = replace(layers[0], weight=layers[0].weight * ba.balls(unit))
    unit = out.units(layers[-1].size)
    if unit is not None:
        last = layers[-1]
        layers[-1] = replace(last, weight=last.weight / ba.balls(unit)[:, None], bias=last.bias / ba.balls(unit))
    return tuple(layers)


@dataclass(frozen=True, eq=False)
class Inputs:
    """The points of a box, lower ≤ x ≤ upper, that are within ``radius`` of ``center``, where there is a radius.

    The norm is ℓ2, or ℓ1 if ``diamond``, of differences over ``units``.
    """

    center: Balls
    lower: Balls
    upper: Balls
    radius: Any = None
    units: Any = ba.ONE
    diamond: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is a ball of the ℓ2 norm, perhaps clipped."""
        return self.radius is not None and isinstance(self.units, arb) and not self.diamond

    @property
    def sides(self) -> Balls:
        """At least how far any point is from the centre, along each axis."""
        return ba.larger(ba.size(self.upper - self.center), ba.size(self.center - self.lower))

    def extent(self, start: Any = ba.ONE) -> arb:
        """At least ‖(x - center)/start‖₂ of any point."""
        corner = ba.norm(self.sides / start)
        return (
            corner
            if self.radius is None
            else ba.smaller(corner, (self.radius * ba.largest(self.units / start)).upper())
        )

    def _gaps(self) -> Balls:
        """At most how far the box is from the centre along each axis, in units."""
        gaps = ba.positive(ba.larger(ba.lower(self.lower - self.center), ba.lower(self.center - self.upper)))
        return ba.lower(gaps / self.units)

    def empty(self) -> bool:
        """Whether the box is proved to miss the ball."""
        if self.radius is None:
            return bool((self.lower > self.upper).any())
        gaps = self._gaps()
        return bool(gaps.sum() > self.radius if self.diamond else (gaps * gaps).sum() > self.radius * self.radius)

    def snug(self) -> Inputs:
        """The same in the smallest box: along axis i a point is at most √(radius² - ‖gaps of the others‖²) away."""
        if not self.plain:
            return self
        gaps = self._gaps()
        rest = (gaps * gaps).sum() - gaps * gaps
        reach = ba.upper(ba.root(ba.positive(ba.upper(self.radius * self.radius - rest))))
        low, high = (
            ba.larger(self.lower, ba.lower(self.center - reach)),
            ba.smaller(self.upper, ba.upper(self.center + reach)),
        )
        return self if (low > high).any() else replace(self, lower=low, upper=high)

    def halves(self, axis: int, at: arb) -> tuple[Inputs, Inputs]:
        """Below and above a value of an axis, which both contain; a value outside the box counts as its nearer side."""
        at = ba.smaller(ba.larger(at, self.lower[axis]), self.upper[axis])
        sides = self.upper.copy(), self.lower.copy()
        sides[0][axis] = sides[1][axis] = at
        return replace(self, upper=sides[0]), replace(self, lower=sides[1])

    def support(self, rows: Balls) -> Balls:
        """At least max of a·x for each row a of numbers: by the box, by the ball, or by both.

        For any q it is at most a·c + δ‖q‖* + max of (a - q)·(x - c) over the box.
        """
        found = ba.upper(np.where(rows > 0, rows * self.upper, rows * self.lower).sum(axis=1))
        if self.radius is None:
            return found
        middle = ba.dot(rows, self.center)
        dual = ba.largest(ba.size(rows * self.units), axis=1) if self.diamond else ba.norm(rows * self.units)
        found = ba.known_smaller(found, ba.upper(middle + self.radius * dual))
        if self.diamond:
            return found
        q = self.shared(rows)
        return ba.known_smaller(
            found, ba.upper(middle + self.radius * ba.norm(q * self.units) + self.over_box(rows - q))
        )

    def over_box(self, rows: Balls) -> Balls:
        """At least max of a·(x - c) over the box for each row a."""
        rows, lost = ba.mid(rows), ba.rad(rows)
        ends = np.where(rows > 0, rows * (self.upper - self.center), rows * (self.lower - self.center))
        return ba.upper(ends.sum(axis=1) + (lost * self.sides).sum(axis=1))

    def shared(self, rows: Balls) -> Balls:
        """The part of each row that had better be bounded by the ball, the rest by the box; only a suggestion."""
        units, center = ba.floats(self.units), ba.floats(self.center)
        a, radius = ba.floats(rows) * units, float(self.radius)
        below, above = (np.broadcast_to((ba.floats(end) - center) / units, a.shape) for end in (self.lower, self.upper))
        with np.errstate(all="ignore"):
            rate = split_rate(a, np.full(len(a), radius), below, above, _HALVINGS)[:, None]
            rate = np.where((rate > 0.0) & (rate < np.inf), rate, 0.0)
            y = np.where(rate > 0, np.clip(a / np.where(rate > 0, rate, 1.0), below, above), 0.0)
            q = rate * y / units
        return ba.balls(np.where(np.isfinite(q), q, 0.0))


def inputs_of(region: Region, count: int, units: Array | None = None) -> Inputs | None:
    """A region as numbers, in units; None is everywhere."""
    if isinstance(region, Everywhere):
        return None
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed(f"there is no rule for a region of type {type(region).__name__}")
    box = region if isinstance(region, Box) else region.clip
    arrays = [region.center] if box is None else [region.center, box.lower, box.upper]
    fits = not np.ndim(region.radius) and all(np.shape(a) == (count,) and np.isfinite(a).all() for a in arrays)
    ba.require(fits, f"the region must be a single one, of {count} finite coordinates")
    inside = box is None or ((box.lower <= region.center) & (region.center <= box.upper)).all()
    ba.require(inside, "the centre of the region lies outside it")
    unit = ba.balls(np.ones(count) if units is None else units)
    center, low, high = (
        ba.balls(region.center) / unit,
        *(ba.balls(end) / unit for end in (arrays[1:] or [arrays[0]] * 2)),
    )
    if isinstance(region, Box):
        return Inputs(center, ba.lower(low), ba.upper(high))
    radius: Any = ball(float(region.radius))
    scale = ba.balls(np.broadcast_to(region.units, (count,))) / unit
    ba.require(radius.is_finite() and radius >= 0, f"a radius must be finite and at least 0, got {region.radius}")
    ends = ba.lower(center - radius * scale), ba.upper(center + radius * scale)
    if box is not None:
        ends = ba.larger(ends[0], ba.lower(low)), ba.smaller(ends[1], ba.upper(high))
    if region.norm.name == "linf":
        return Inputs(center, *ends)
    if region.plain and units is None:
        return Inputs(center, *ends, radius)
    return Inputs(center, *ends, radius, ba.upper(scale), region.norm.name == "l1")


def fewer(model: Model, inputs: Inputs) -> tuple[Model, Inputs, arb]:
    """A model and its inputs, and a number, with f(x) = model(Q x), Q x among these inputs, and ‖Q‖ at most the number.

    It is on fewer inputs where the first layer W has more inputs than neurons: a square matrix R, any that has an
    inverse, takes its place, and Q is R⁻¹W, W in its balls. The ball counts, not the box that cuts it.
    """
    W = ba.floats(model[0].weight)
    factors = triangular_factor(W) if inputs.plain and W.shape[1] > len(W) else None
    if factors is None:
        return model, inputs, arb(1)
    R = ba.balls(factors[0])
    Q = ba.solve(R, model[0].weight)
    stretch = ba.largest_eigenvalue(ba.image(Q, None)).sqrt().upper()
    center = ba.dot(Q, inputs.center)
    radius = (stretch * inputs.radius + ba.norm(ba.rad(center))).upper()
    middle = ba.mid(center)
    moved = Inputs(middle, ba.lower(middle - radius), ba.upper(middle + radius), radius)
    return (replace(model[0], weight=R), *model[1:]), moved, stretch


_TRIES = 24
ROUNDS = 16
"""Of the search for multipliers that suit given slopes."""


def slopes_of(views: Sequence[View]) -> Interval:
    """The slope range of each neuron."""
    low, high = np.array([view.slopes() for view in views], dtype=object).reshape(-1, 2).T
    return low, high


def halved(slopes: Interval) -> tuple[Balls, Balls]:
    """The middle of each range of slopes, and at least how far its ends are."""
    m = ba.mid((slopes[0] + slopes[1]) / 2)
    r = ba.larger(ba.upper(slopes[1] - m), ba.upper(m - slopes[0]))
    ba.require(ba.is_finite(r).all(), "a slope has no bound")
    return m, r


def advance(S: Balls, slopes: Interval, hint: Balls | None = None, signed: bool = False) -> Balls:
    """P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T for multipliers T near the hint, or safer ones.

    It is at least D Δv Δvᵀ D for every D with entries in the slope ranges and every Δv Δvᵀ ≼ S, because
    T - D_r S D_r is proved positive definite. A neuron with S_ll = 0 does not move.

    A ``signed`` S need not be positive semidefinite. Then (Dx)ᵀ S (Dx) ≤ xᵀPx for every x and every such D: Dx is
    D_m x + D_r y with |y_l| ≤ |x_l|, and the form is at most its maximum less yᵀTy over all y, plus xᵀTx.
    """
    m, r = halved(slopes)
    on = np.flatnonzero((r > 0) & (signed | (np.diagonal(S) > 0)))
    inner = r[on, None] * S[np.ix_(on, on)] * r[on]
    if signed:
        floor = ba.largest(ba.size(S)) * arb(2) ** -30 + arb(2) ** -300
        safe = ba.mid(2 * np.abs(inner).sum(axis=1) + r[on] * r[on] * floor)
    else:  # |S_ij| ≤ a_i a_j, a = sqrt(diag S), so T_j > r_j a_j Σ r_i a_i suffices
        axes = ba.root(np.diagonal(S))
        safe = ba.mid(r[on] * axes[on] * (2 * (r[on] * axes[on]).sum() + ba.norm(np.abs(m) * axes)))
    T = feasible(inner, safe, None if hint is None else hint[on])
    P, side = m[:, None] * S * m, r[on, None] * S[on] * m
    if on.size:
        P = P + ba.dot(side.T, ba.solve(ba.diagonal(T) - inner, side))
    P[on, on] += T
    return ba.at_least(P)


def carry(model: Model, slopes: Sequence[Interval], chain: Chain, multipliers: Sequence[Array] | None) -> Balls:
    """The ellipsoid of the outputs, from the unit ball of the inputs, for slopes in their ranges."""
    check_elementwise(model)
    S = ba.image(model[0].weight, None)
    for index, (layer, ends) in enumerate(zip(model[1:], slopes, strict=True)):
        scale = arb(4) ** int(sum(chain.powers[: index + 1]))
        S = ba.image(
            layer.weight, advance(S, ends, None if multipliers is None else ba.balls(multipliers[index]) * scale)
        )
    return S


def carry_alone(model: Model, slopes: Sequence[Interval]) -> Balls:
    """The same with multipliers that suit these slopes."""
    chain = Chain.of([ba.floats(layer.weight) for layer in model])
    about = [(ba.floats(a), ba.floats(b)) for a, b in slopes]
    return carry(model, slopes, chain, chain.suggest(about, None, ROUNDS, 0.0)[1])


def feasible(inner: Balls, safe: Balls, hint: Balls | None) -> Balls:
    """Multipliers T with T - inner positive definite: the hint, a little more, a lot more, or the safe ones."""
    if hint is not None:
        start = np.where(hint > 0, hint, safe)
        for attempt in range(_TRIES):
            T = start if not attempt else start * (1 + arb(2) ** (2 * attempt - 44))
            if ba.positive_definite(ba.diagonal(T) - inner):
                return T
    if ba.positive_definite(ba.diagonal(safe) - inner):
        return safe
    raise ProofFailed("no multipliers make the step of a layer valid")


class Lines:
    """A layer between lines: down·v + low ≤ φ(v) ≤ up·v + high on each neuron's interval, and floor ≤ φ ≤ roof."""

    def __init__(self, views: Sequence[View], slopes: Interval, down: Balls, up: Balls) -> None:
        bounded = all(view.low.is_finite() and view.high.is_finite() for view in views)
        ba.require(bounded, "a line needs a bounded interval: a layer before has none")
        self.slopes, self.down, self.up = slopes, down, up
        found = np.empty((4, len(views)), dtype=object)
        for k, (view, alpha, beta) in enumerate(zip(views, *slopes, strict=True)):
            if alpha == beta:  # a straight line
                ends = view.arcs[0].first[0], view.arcs[-1].last[0]
                self.down[k] = self.up[k] = alpha
                offset = ends[0] - alpha * view.low
                found[:, k] = offset, offset, ba.smaller(*map(ba.lower, ends)), ba.larger(*map(ba.upper, ends))
            else:
                found[:, k] = (-view.top(-1, -down[k]), view.top(1, up[k]), -view.top(-1, arb(0)), view.top(1, arb(0)))
        self.low, self.high, self.floor, self.roof = found
        self.mixed: Balls | None = None

    def couple(self, coupling: Coupling, interval: Interval, ends: Interval) -> None:
        """Add softmax rows and products, mixed·v + low ≤ z ≤ mixed·v + high, and where all results lie."""
        self.mixed, more = couplings.lines(coupling, interval)
        self.low, self.high = np.concatenate([self.low, more[0]]), np.concatenate([self.high, more[1]])
        self.floor, self.roof = ends


def suggested_lines(layer: Layer, interval: Interval, slopes: Interval) -> Interval:
    """Slopes for the lower and the upper lines of a layer, for neurons with an open slope; any would do.

    Those of least area take long to find for smooth neurons, for which chords are hardly worse.
    """
    assert layer.neurons is not None
    found, some = (slopes[0].copy(), slopes[0].copy()), np.flatnonzero(slopes[0] < slopes[1])
    (low, high), neurons = (ba.floats(end[some]) for end in interval), layer.neurons.take(some)
    with np.errstate(all="ignore"):
        told = ((neurons.value(high) - neurons.value(low)) / (high - low),) * 2
        if any(row.row.kinks or np.isfinite(row.row.period) for row, _ in neurons.groups):
            told = suggested(neurons, (low, high))
    for line, slope in zip(found, told, strict=True):
        line[some] = ba.balls(np.where(np.isfinite(slope), slope, 0.0))
    return found


@dataclass(eq=False)
class Trace:
    """Back-substitution: each activation, last first, is replaced by the line on the safe side.

    ``depth`` says how many layers to go back at most; None is all the way.
    """

    model: Model
    inputs: Inputs
    depth: int | None = None
    lines: list[Lines] = field(default_factory=list)

    @property
    def slopes(self) -> list[Interval]:
        """The slope ranges of the layers so far."""
        return [lines.slopes for lines in self.lines]

    def interval(self, index: int, known: Interval, rows: Array | None = None) -> Interval:
        """The known interval of a layer, made smaller for all neurons or some."""
        layer = self.model[index]
        some = np.arange(layer.size) if rows is None else rows
        if not some.size:
            return known
        weight, bias = layer.weight[some], layer.bias[some]
        found = self.above(index, np.vstack([weight, -weight]))
        low, high = known[0].copy(), known[1].copy()
        new = ba.lower(bias - found[len(some) :]), ba.upper(bias + found[: len(some)])
        low[some], high[some] = ba.both((low[some], high[some]), new)
        return low, high

    def boxed(self, index: int) -> Interval:
        """Where a layer's pre-activations lie by interval arithmetic on what enters it."""
        return self.model[index].interval(self._ends(index))

    def _ends(self, index: int) -> Interval:
        if not index:
            return self.inputs.lower, self.inputs.upper
        return self.lines[index - 1].floor, self.lines[index - 1].roof

    def seen(self, index: int) -> Balls:
        """At least the size of what enters a layer."""
        return ba.sizes_within(self._ends(index))

    def above(self, index: int, rows: Balls, extra: Sequence[Balls] = ()) -> Balls:
        """At least max of rows·z, z what enters the layer ``index``; ``extra`` adds multiples of earlier v.

        Rows are cut to their midpoints at every layer; the rest, a multiple of what enters there, goes to the offset.
        """
        stop = 0 if self.depth is None else max(0, index - self.depth)
        offset = ba.dot(ba.rad(rows), self.seen(index))
        rows = ba.mid(rows)
        for back in range(index - 1, stop - 1, -1):
            layer, lines = self.model[back], self.lines[back]
            up = rows > 0
            offset = offset + (rows * np.where(up, lines.high, lines.low)).sum(axis=1)
            rest, some = rows, (..., slice(len(lines.up)))
            rows = rows[some] * np.where(up[some], lines.up, lines.down)
            if lines.mixed is not None:
                through = ba.dot(rest[:, len(lines.up) :], lines.mixed)
                through[some] += rows
                rows = through
            if extra:
                rows = rows + extra[back]
            offset = offset + ba.dot(rows, layer.bias)
            rows = ba.dot(rows, layer.weight)
            offset = offset + ba.dot(ba.rad(rows), self.seen(back))
            rows = ba.mid(rows)
        if not stop:
            return ba.upper(offset + self.inputs.support(rows))
        last = self.lines[stop - 1]
        return ba.upper(offset + np.where(rows > 0, rows * last.roof, rows * last.floor).sum(axis=1))

    def ends(self) -> Interval:
        """Between which numbers the outputs lie."""
        last = len(self.model) - 1
        return self.interval(last, self.boxed(last))

    def entries(self) -> Balls:
        """At least the size of each entry of the Jacobian, (outputs, inputs)."""
        return ba.sizes_within(jacobian(self.model, self.slopes))

    def outputs(self, rows: Balls) -> Balls:
        """At least max of rows·v_N."""
        last = self.model[-1]
        return ba.upper(self.above(len(self.model) - 1, ba.dot(rows, last.weight)) + ba.dot(rows, last.bias))


def relaxed(model: Model, inputs: Inputs, intervals: list[Interval]) -> Trace | None:
    """Lines of all hidden layers, whose intervals become smaller, in place; None if there is no input.

    It is asked about neurons whose slope is open, or that may have no value left: whose interval ends at a mark.
    """
    trace = Trace(model, inputs)
    for index, layer in enumerate(model[:-1]):
        low, high = ba.both(intervals[index], trace.boxed(index))
        views = layer.views((low, high))
        some = [k for k, view in enumerate(views) if _undecided(layer.plain[k], view)]
        low, high = trace.interval(index, (low, high), np.array([*some, *range(len(views), layer.size)], dtype=int))
        intervals[index] = low, high
        if (low > high).any():
            return None
        for k in some:
            views[k] = layer.plain[k].on(low[k], high[k])
        slopes = slopes_of(views)
        told = suggested_lines(layer, layer.first((low, high)), slopes)
        trace.lines.append(Lines(views, slopes, *told))
        if layer.coupling is not None:
            trace.lines[-1].couple(layer.coupling, (low, high), layer.ends((low, high), views))
    return trace


def _undecided(f: Function, view: View) -> bool:
    alpha, beta = view.slopes()
    if alpha < beta or not (view.low.is_finite() and view.high.is_finite()):
        return True
    return any(not (mark < view.low or mark > view.high) for mark in f.marks)


def centre_values(model: Model, point: Balls) -> list[tuple[Balls, Balls]]:
    """The pre-activations of each layer at a point: numbers v̂ near them, and at least |v - v̂|.

    An ellipsoid holds the difference: a ball a neuron would grow with every layer, by the norm of |W|.
    """
    found: list[tuple[Balls, Balls]] = []
    z, error = point, None
    for layer in model:
        v = ba.dot(layer.weight, z) + layer.bias
        fresh, middle = ba.rad(v), ba.mid(v)
        S = None if error is None else ba.image(layer.weight, error)
        total = fresh if S is None else ba.upper(ba.root(np.diagonal(S)) + fresh)
        found.append((middle, total))
        if layer.plain or layer.coupling:
            pairs = zip(layer.plain, middle[: len(layer.plain)], strict=True)
            values = np.array([f.value(x) for f, x in pairs], dtype=object)
            S = ba.added(S, fresh)
            slopes = slopes_of(layer.views(ba.around(middle, total)))
            if layer.coupling is not None:  # a difference of values is a mean Jacobian times that of what enters
                values = couplings.values(layer.coupling, middle, values)
                J = couplings.derivative(layer.coupling, ba.hull(*ba.around(middle, total)), ba.hull(*slopes))
                P = None if S is None else ba.image(J, S)
            else:
                P = None if S is None else advance(S, slopes)
            z, error = ba.mid(values), ba.added(P, ba.rad(values))
    return found


class Pass:
    """One sweep: ``intervals``, ``slopes`` and ``traces`` of the hidden layers, and the ellipsoid ``S`` of the outputs.

    ``spreads`` are the ellipsoids of the hidden layers. The ellipsoid begins with P_0 = D_h², h the start of the hints.
    """

    def __init__(
        self, model: Model, inputs: Inputs | None, hints: Hints, known: Sequence[Interval] = (), carry: bool = True
    ) -> None:
        self.model, self.inputs, self.hints = model, inputs, hints
        self.intervals: list[Interval] = []
        self.slopes: list[Interval] = []
        self.spreads: list[Balls] = []
        names = [type(enclosure).__name__ for enclosure in hints.enclosures]
        ba.require(not set(names) - {"Linear", "Lipschitz"}, f"there is no rule for the enclosures {', '.join(names)}")
        depths = [getattr(e, "depth", None) for e, name in zip(hints.enclosures, names) if name == "Linear"]
        ba.require(all(depth is None or depth >= 0 for depth in depths), "a linear enclosure has a depth of at least 0")
        self.traces = [] if inputs is None else [Trace(model, inputs, depth) for depth in depths]
        start, count = hints.start, model[0].weight.shape[1]
        self.start = ba.ONE if start is None else ba.hinted(start, count)
        ba.require(np.all(self.start > 0) and np.all(ba.is_finite(self.start)), "a sweep must start with finite axes")
        local = "Lipschitz" in names and inputs is not None
        centers = centre_values(model[:-1], inputs.center) if local and inputs else []
        first = model[0].weight * self.start
        P: Balls | None = None
        self.S = ba.zeros(0, 0)
        coupled = any(layer.coupling is not None for layer in model)
        ends = (inputs.lower, inputs.upper) if inputs is not None and coupled else None
        for index, layer in enumerate(model[:-1]):
            interval = known[index] if known else ba.unbounded(layer.size)
            if local or carry:
                self.S = ba.image(layer.weight if index else first, P)
                self.spreads.append(self.S)
            if local and inputs:
                value, error = centers[index]
                reach = inputs.extent(self.start) * ba.root(np.diagonal(self.S)) + error
                interval = ba.both(interval, ba.around(value, reach))
            interval = interval if ends is None else ba.both(interval, layer.interval(ends))
            for trace in self.traces:
                interval = trace.interval(index, interval)
            empty = (interval[0] > interval[1]).any()
            ba.require(not empty, f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
            views = layer.views(interval)
            self.intervals.append(interval)
            self.slopes.append(slopes_of(views))
            for number, trace in enumerate(self.traces):
                told = (ba.hinted(line, len(views)) for line in hints.lines[number * (len(model) - 1) + index])
                trace.lines.append(Lines(views, self.slopes[-1], *told))
            ends = layer.ends(interval, views) if coupled else None
            if local or carry:
                P, ends = self.step(index, interval, ends, centers)
            if layer.coupling is not None and ends is not None:
                for trace in self.traces:
                    trace.lines[-1].couple(layer.coupling, interval, ends)
        if carry:
            self.S = ba.image(model[-1].weight if len(model) > 1 else first, P)

    def step(
        self, index: int, interval: Interval, ends: Interval | None, centers: Sequence[Interval]
    ) -> tuple[Balls, Interval | None]:
        """P after a layer, and where its results lie."""
        layer, hint = self.model[index], self.multipliers(index)
        if layer.coupling is None or ends is None:
            return advance(self.S, self.slopes[index], hint), ends
        reach = self.inputs.extent(self.start) if centers and self.inputs else None
        middle, error = centers[index] if centers else (ba.mid((interval[0] + interval[1]) / 2), ba.zeros(layer.size))
        where = couplings.Around(self.S, interval, middle, error, reach)
        M, units, ends = couplings.form(layer.coupling, where, *halved(self.slopes[index]), ends)
        return couplings.advance(self.S, M, units, hint), ends

    def multipliers(self, index: int) -> Balls:
        """Those of the hints; any would do."""
        layer = self.model[index]
        told, count = self.hints.multipliers[index], layer.size if layer.coupling is None else layer.coupling.width
        if 0 < np.size(told) < count and count % np.size(told) == 0:  # one for each channel of a convolution
            told = np.repeat(told, count // np.size(told))
        return ba.hinted(told, count) * arb(4) ** int(self.hints.exponents[index])

    def bounds(self, norms: Norms = PLAIN) -> Sequence[Callable[[], arb]]:
        """Ways to bound the Lipschitz constant between norms without units, the cheapest first.

        By the ellipsoid; by an interval for each entry of the Jacobian; for ℓ1 inputs by ellipsoids of its columns.
        """
        ways: list[Callable[[], arb]] = [lambda: self.by_ellipsoid(norms)]
        if not norms.plain:
            ways.append(lambda: ba.induced_norm(jacobian(self.model, self.slopes), norms))
        if norms.input.name == "l1":
            ways.append(lambda: self.by_columns(norms, [None]))
            if norms.output.name == "linf":
                ways.append(lambda: self.by_columns(norms, [[row] for row in range(self.model[-1].size)]))
        return ways

    def by_columns(self, norms: Norms, rows: Sequence[Sequence[int] | None]) -> arb:
        """The largest norm of a column of the Jacobian, or of some of its rows."""
        pairs = itertools.product(range(self.model[0].weight.shape[1]), rows)
        parts = [part_of(self.model, 0, len(self.model), [column], row) for column, row in pairs]
        return ba.largest(np.array([ba.ellipsoid_norm(carry_alone(one, self.slopes), norms.output) for one in parts]))

    def by_ellipsoid(self, norms: Norms = PLAIN) -> arb:
        """√max zᵀSz, times what the start has to be enlarged by to hold the unit ball of the inputs."""
        found = ba.ellipsoid_norm(self.S, norms.output)
        return (found * gain(norms, self.start, self.model[0].weight.shape[1])).upper()


def gain(norms: Norms, start: Any, count: int) -> arb:
    """At least the largest ‖x/h‖₂ for ‖x‖ ≤ 1, h the start."""
    inverse = ba.balls(np.ones(count)) / start
    return ba.norm(inverse) if norms.input.name == "linf" else ba.largest(ba.upper(inverse))


def jacobian(model: Model, slopes: Sequence[Interval]) -> Interval:
    """Ends of every entry of W_N D_{N-1} … D_1 W_1, a row per output, by interval arithmetic from both ends."""
    check_elementwise(model)
    weights = [layer.weight for layer in model]
    forth, back = _multiplied(weights, slopes), _multiplied([weight.T for weight in weights[::-1]], slopes[::-1])
    return ba.both(forth, (back[0].T, back[1].T))


def _multiplied(weights: Sequence[Balls], slopes: Sequence[Interval]) -> Interval:
    """Each entry is within [low, high]; a slope multiplies a row, a weight adds up rows by its signs."""
    low, high = ba.lower(weights[0]), ba.upper(weights[0])
    for weight, (alpha, beta) in zip(weights[1:], slopes, strict=True):
        ends = [x * s[:, None] for x in (low, high) for s in (alpha, beta)]
        low, high = ba.smaller.reduce([ba.lower(x) for x in ends]), ba.larger.reduce([ba.upper(x) for x in ends])
        middle = ba.mid(weight)
        up, down, lost = (
            ba.positive(middle),
            -ba.positive(-middle),
            ba.dot(ba.rad(weight), ba.sizes_within((low, high))),
        )
        low, high = (
            ba.lower(ba.dot(up, low) + ba.dot(down, high) - lost),
            ba.upper(ba.dot(up, high) + ba.dot(down, low) + lost),
        )
    return low, high


def norm_product(model: Model) -> arb:
    """The norms of all layers, times their steepest slopes: layer by layer, skips and max pools not seen as such."""
    bound = arb(1)
    for layer in model:
        bound = bound * ba.spectral(layer.weight)
        if layer.functions:
            bound = bound * ba.largest(ba.size(np.concatenate(layer.slopes(ba.unbounded(layer.size)))))
    return bound.upper()


def least_of(ways: Sequence[Callable[[], arb]], claim: arb) -> arb:
    """The first of several bounds that is at most a claim, or else the least of them."""
    found = arb.pos_inf()
    for way in ways:
        found = ba.known_smaller(found, way())
        if found <= claim:
            break
    return found
