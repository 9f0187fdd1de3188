"""How large a row of the outputs can get over a ball: multipliers times quadratic constraints; proved.

What is shared is in :class:`KnownLayer`: what holds of each neuron on its interval. There are two ways to go on.

**Value functions** (:class:`DualBound`). Let y hold 1, the input (x - centre)/radius =: u, and the values z of all
neurons whose slope is open, each over a power of two that is at least its size. With fewer neurons in the first layer
than inputs, W(x - centre) = radius·R u for a square R and some ‖u‖ ≤ 1. Every pre-activation is an affine function of
y. Every open neuron has to be α·v below 0 and β·v above. With p = z - αv and m = βv - z, one of which is zero,

    p((β - α)high - p) ≥ 0,   m((β - α)low - m) ≥ 0,   pm = 0,

three products q(y) = (left·y)(right·y). So for multipliers λ ≥ 0, of either sign for the last, and λ_0 ≥ 0

    row·v_N ≤ c·y + Σ λ q(y) + λ_0(1 - ‖x - centre‖²/radius²) =: -yᵀM y,

and if M + t·e_0e_0ᵀ ≽ -σI then row·v_N ≤ t + σ‖y‖², where ‖y‖² ≤ 2 + the number of open neurons. Eliminating the blocks
of M from the last layer to the first is Cholesky's algorithm, and the Schur complements are the value functions.
Affine functions are rows of y with an error for each entry; |y| ≤ 1, entry by entry.

**Parabolas** (:class:`QuadraticRelaxation`), for larger networks. A row·z of the values after a layer is replaced
neuron by neuron, the last layer first, by a line and a square,

    row·φ(v) ≤ slope·v + ½·bend·(v - center)² + height    for v in the neuron's interval,

where ``center`` is v at the middle of the ball. Slopes and bends are hints; the height is the least that makes it true.
Without bends this is linear relaxation, with slopes chosen for each row. The squares of a layer stay behind, as
½ΔvᵀDΔv with D = diag(bend) and Δ the difference from the middle of the ball. In a ball they cannot all be large. There
are two ways to bound them. By the layer's ellipsoid Δv Δvᵀ ≼ ‖Δx‖² S, for D ≥ 0:

    ΔvᵀDΔv ≤ ‖Δx‖² λmax(D^½ S D^½).

Or those of all layers together, for D of any sign. Neuron by neuron Δz = (m + rw)Δv with |w| ≤ 1, [m - r, m + r] the
range of its secants from the centre. Those are the slopes of an ellipsoid's step, here with the weights transposed:
with B_k = D_k for the last hidden layer and any multipliers

    A_k = W_{k+1}ᵀ B_{k+1} W_{k+1},    B_k = D_k + the step of A_k,    Σ_k Δv_kᵀ D_k Δv_k ≤ Δv_1ᵀ B_1 Δv_1.

In the first layer Δv = W Δx, so what is left is a form H = WᵀBW of Δx. For every μ > λmax(H)

    row·Δx + ½ΔxᵀHΔx ≤ ½(rowᵀ(μ - H)⁻¹row + μ·radius²).

Where the ball is clipped to a box, a part of what is left of the row is bounded by the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    down,
    factor_above,
    largest_eigenvalue_above,
    norm_above,
    raised,
    twice_above,
    up,
)
from lipcert.kernel.domain import form_over_ball, split_by_box
from lipcert.kernel.neuron_bounds import kinked, relax, slope_bounds, value_error
from lipcert.kernel.step import activate
from lipcert.model.arrays import Array, Interval, Weight, dense
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball, Region
from lipcert.suggest.hints import DualHints, QuadraticHints
from lipcert.suggest.lines import suggested_lines
from lipcert.suggest.multipliers import lowest, solved

_CELLS: Final = 32
"""Cells that an interval is cut into where neurons are curved."""
_MEANS: Final = 48
"""Cells on each side of the centre, for means of slopes; with 48 radii are within 0.3 % of those for exact secants."""
_CLOSE: Final = 1e-3
"""An end of an interval is moved out to this share of the other one."""
_LEAST: Final = 1e-280
"""Sizes are at least this, so that their powers of two are positive."""


NOWHERE: Final = Near(*np.zeros((2, 0)))
UNKNOWN: Final = np.zeros(0, dtype=int), np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class Cells:
    """Intervals of neurons cut into cells, (cells, neurons), and lines around φ on each."""

    start: Array
    stop: Array
    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array


@dataclass(frozen=True, eq=False)
class KnownLayer:
    """What holds for the neurons of one hidden layer, on their intervals.

    Neurons of a single slope are slope·v + offset; the others are ``open``, and in the order of these numbers their
    slopes are between ``alpha`` and ``beta``. At the middle of the ball v is ``center``. ``spread`` are some neurons,
    and an S of theirs with Δv Δvᵀ ≼ ‖Δx‖² S.
    """

    layer: Layer
    neurons: Neurons
    low: Array
    high: Array
    slope: Array
    offset: Near
    open: Array
    alpha: Array
    beta: Array
    center: Near
    spread: tuple[Array, Array]

    @staticmethod
    def of(
        layer: Layer, interval: Interval, center: Near = NOWHERE, spread: tuple[Array, Array] = UNKNOWN
    ) -> KnownLayer:
        neurons, (low, high) = layer.neurons, interval
        assert neurons is not None
        if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
            raise ProofFailed("a row is bounded by finite intervals of all neurons")
        alpha, beta = slope_bounds(neurons, low, high)
        closed, end = alpha == beta, neurons.value(low)
        slope, some = np.where(closed, alpha, 0.0), np.flatnonzero(~closed)
        offset = (Near(end, value_error(neurons, end)) - Near.of(slope) * low).replace(~closed, 0.0)
        return KnownLayer(layer, neurons, low, high, slope, offset, some, alpha[some], beta[some], center, spread)

    @cached_property
    def size(self) -> Array:
        """At least |z|."""
        floor, roof = relax(self.neurons, self.low, self.high, 0.0 * self.low, 0.0 * self.high)[4:]
        return np.maximum(-floor, roof)

    @cached_property
    def bent(self) -> Array:
        """Which of the open neurons are straight on both sides of 0."""
        at = self.open
        return kinked(self.neurons.take(at), self.low[at], self.high[at], self.alpha, self.beta)

    @cached_property
    def cells(self) -> Cells:
        """Two cells on both sides of 0 where all open neurons are straight there, else more; 0 is a mark if inside."""
        low, high = self.low[self.open], self.high[self.open]
        count = 1 if self.bent.all() else _CELLS
        along = np.clip(low + np.arange(count)[:, None] / count * (high - low), low, high)
        marks = np.sort(np.vstack([along, np.clip(0.0, low, high)[None], high[None]]), axis=0)
        start, stop = marks[:-1], marks[1:]
        neurons = self.neurons.take(self.open)
        lines = relax(neurons, start, stop, *suggested_lines(neurons, (start, stop)))[:4]
        if not all(np.isfinite(part).all() for part in lines):
            raise ProofFailed("the lines around a neuron are not finite")
        return Cells(start, stop, *lines)

    @cached_property
    @np.errstate(all="ignore")
    def secants(self) -> Interval:
        """Of each neuron, bounds of (φ(v) - φ(c))/(v - c) for v in its interval, c its value at the middle of the ball.

        Such a secant is the mean of φ' between c and v. Each side of c is cut into cells. With the largest slope of
        each cell in the place of φ' the mean is monotone on a cell, so the largest is at an end of one.
        """
        center, near = self.center.value, (down(self.center.below), up(self.center.above))
        ends = np.minimum(self.low, near[0]), np.maximum(self.high, near[1])
        whole, least, most = slope_bounds(self.neurons, *ends), [], []
        for end, behind in zip(ends, near[::-1], strict=True):
            share = np.arange(_MEANS + 1.0)[:, None] / _MEANS
            marks = np.clip(center + share * (end - center), np.minimum(center, end), np.maximum(center, end))
            marks[-1] = end
            points = Near(marks, np.where(share == 0.0, self.center.error, 0.0))
            widths, lengths = points[1:] - points[:-1], points[1:] - points[0]
            from_, to = np.concatenate([behind[None], marks[1:-1]]), marks[1:]
            slopes = slope_bounds(self.neurons, np.minimum(from_, to), np.maximum(from_, to))
            low, high = ((np.tri(_MEANS) @ (slope * widths)) / lengths for slope in slopes)
            # where c may lie beyond the first mark, its quotient is infinite or NaN, and the slopes of the whole serve
            least.append(np.fmax(whole[0], low.below.min(axis=0)))
            most.append(np.fmin(whole[1], high.above.max(axis=0)))
        return np.minimum(*least), np.maximum(*most)


def first_factor(weight: Weight) -> Array:
    """R with few columns and {W d : ‖d‖ ≤ 1} ⊂ {R u : ‖u‖ ≤ 1} for every W near the weight.

    A weight that is not wide is its own R. Else the inclusion is W Wᵀ ≼ R Rᵀ.
    """
    return dense(weight) if weight.shape[1] <= weight.shape[0] else factor_above(congruence(None, weight))


def plain_ball(region: Region) -> tuple[Ball, float]:
    """A single ball of the ℓ2 norm, perhaps clipped, and its radius, which is positive."""
    if not isinstance(region, Ball) or not region.plain or region.center.ndim != 1 or not 0.0 < region.radius < np.inf:
        raise ProofFailed("a row is bounded over single balls of the ℓ2 norm and of positive radius")
    return region, float(region.radius)


class DualBound:
    """The products of one network over one ball, from intervals of its pre-activations that are known.

    Attributes
    ----------
    layers : what is known of the hidden layers.
    left, right : rows of the two factors of each product, (products, size).
    free : products that are zero, so that their multipliers may have either sign.
    first : R, what the first layer does to the inputs of y.
    inputs, size : how many entries of y are inputs, and how many entries there are.
    output : v_N, (outputs, size).
    """

    def __init__(self, network: Network, region: Region, intervals: Sequence[Interval]) -> None:
        self.layers = [KnownLayer.of(layer, ends) for layer, ends in zip(network.layers[:-1], intervals, strict=True)]
        self.first = first_factor(network.layers[0].weight)
        self.inputs = self.first.shape[1]
        self.size = 1 + self.inputs + sum(stage.open.size for stage in self.layers)
        self.one = np.eye(1, self.size)
        v, at = self._preactivations(network.layers[0], region), 1 + self.inputs
        factors = [(Near(*np.zeros((2, 0, self.size))),) * 2]
        for stage, layer in zip(self.layers, network.layers[1:], strict=True):
            if not stage.bent.all():
                raise ProofFailed("the dual bound is about neurons that are straight on both sides of 0")
            z, some = v * stage.slope[:, None] + self._constants(stage.offset), stage.open
            z.value[some], z.error[some] = 0.0, 0.0
            # a power of two above the size of z
            z.value[some, at + np.arange(some.size)] = np.ldexp(1.0, np.frexp(np.maximum(stage.size[some], _LEAST))[1])
            factors += self._kink(stage, v[some], z[some])
            v, at = z.T.through(layer.weight).T + self._constants(Near.weights(layer.bias)), at + some.size
        self.output = v
        columns = (zip(*((one.value, one.error) for one in parts), strict=True) for parts in zip(*factors, strict=True))
        self.left, self.right = (Near(*map(np.concatenate, parts)) for parts in columns)
        self.free = np.concatenate([np.full(len(one.value), k % 3 == 0) for k, (one, _) in enumerate(factors)])

    def _constants(self, numbers: Near | Array) -> Near:
        """Functions that are constant; y begins with 1."""
        return Near.of(numbers)[:, None] * self.one

    def _preactivations(self, layer: Layer, region: Region) -> Near:
        """Those of the first layer, W·centre + bias + radius·R u."""
        ball, radius = plain_ball(region)
        moved = (Near.weights(self.first) * radius) @ np.eye(self.inputs, self.size, 1)
        return moved + self._constants(Near.of(ball.center).through(layer.weight) + Near.weights(layer.bias))

    def _kink(self, stage: KnownLayer, v: Near, z: Near) -> list[tuple[Near, Near]]:
        """Factors of products that are ≥ 0, ≥ 0 and = 0 for open neurons that are straight on both sides of 0.

        With p = z - a·v and m = b·v - z: p = 0 or m = 0, 0 ≤ p ≤ (b - a)·high, (b - a)·low ≤ m ≤ 0.
        """
        a, b, at = stage.alpha, stage.beta, stage.open
        top, bottom = up(up(b - a) * stage.high[at]), down(up(b - a) * stage.low[at])
        # a search is steadier where neither end is all too close
        top, bottom = np.maximum(top, -_CLOSE * bottom), np.minimum(bottom, -_CLOSE * top)
        p, m = z - a[:, None] * v, b[:, None] * v - z
        return [(p, self._constants(top) - p), (m, self._constants(bottom) - m), (p, m)]

    def objective(self, row: Array) -> Near:
        """C with row·v_N = c·y, (1, size)."""
        return Near.of(row[None]) @ self.output

    @np.errstate(all="ignore")
    def above(self, hints: DualHints) -> float:
        """At least max of row·v_N over the ball, for any multipliers; those of a wrong sign count as zero."""
        if np.shape(hints.multipliers) != self.free.shape:
            raise ProofFailed("the multipliers are not those of the products")
        weights = np.where(self.free, hints.multipliers, np.maximum(hints.multipliers, 0.0))
        squares = np.zeros(self.size)
        squares[0] = max(float(hints.ball), 0.0)
        squares[1 : 1 + self.inputs] = -squares[0]
        objective = self.objective(np.asarray(hints.row, dtype=float))
        G = (self.left.T * weights) @ self.right + self.one.T * objective + np.diag(squares)
        G = 0.5 * (G + G.T)  # yᵀGy = -yᵀM y
        if not np.isfinite(G.value).all():
            raise ProofFailed("the multipliers are too large")
        t = lowest(-G.value)
        G = G - t * (self.one.T * self.one)
        sigma = np.maximum(largest_eigenvalue_above(G.value), 0.0)
        length = 1.0 + self.size - self.inputs  # at least ‖y‖²
        return float((t + Near.of(sigma) * length + Near.of(G.error.ravel()).sum()).above)


class QuadraticRelaxation:
    """One network over one ball, from intervals and ellipsoids of its pre-activations that are known.

    Attributes
    ----------
    stages : what is known of the hidden layers.
    """

    def __init__(
        self,
        network: Network,
        region: Region,
        centers: Sequence[Near],
        intervals: Sequence[Interval],
        spreads: Sequence[tuple[Array, Array]],
    ) -> None:
        self.network, (self.ball, self.radius) = network, plain_ball(region)
        known = zip(network.layers[:-1], intervals, centers, spreads, strict=True)
        self.stages = [KnownLayer.of(*one) for one in known]
        self._sizes = [up(np.abs(self.ball.center) + self.radius), *(stage.size for stage in self.stages)]

    @cached_property
    def first(self) -> Array:
        """The first layer's weight, or another with few columns: see :func:`first_factor`."""
        return first_factor(self.network.layers[0].weight)

    @np.errstate(all="ignore")  # overflows give infinity or NaN, which prove nothing
    def above(self, hints: QuadraticHints) -> float:
        """At least max of row·v_N over the ball, for any hints."""
        row, bends, total = self.replaced(hints)
        if hints.multipliers is not None:
            B, most = self._together(bends, hints.multipliers)
        else:
            spreads = (stage.spread for stage in self.stages)
            B, (most, *tops) = bends[0], [_most(*one) for one in zip(spreads, bends, hints.tops, strict=True)]
            total = total + 0.5 * Near.of(twice_above(np.asarray(self.radius), np.array(tops))).sum()
        return float((total + self._over_ball(row, B, most, float(hints.mu))).above)

    @np.errstate(all="ignore")
    def replaced(self, hints: QuadraticHints) -> tuple[Array, list[Array], Near]:
        """Floats r, diagonals D_k and a number with row·v_N ≤ r·Δx + ½Σ_k Δv_kᵀ D_k Δv_k + number over the ball."""
        parts = len(hints.tops) if hints.multipliers is None else len(hints.multipliers) + 1
        if {len(hints.slopes), len(hints.bends), parts} != {len(self.stages)}:
            raise ProofFailed("the hints are for other layers")
        row, total = self._through(len(self.stages), np.asarray(hints.row, dtype=float))
        bends: list[Array] = []
        for index, stage in reversed(list(enumerate(self.stages))):
            g, bend, height = _replaced(stage, row, hints.slopes[index], hints.bends[index])
            row, constant = self._through(index, g)
            total = total + constant + Near.of(height).sum()
            bends.insert(0, bend)
        (rest,), (boxed,) = split_by_box(self.ball, row[None])
        return rest, bends, total + Near.of(row) @ self.ball.center + boxed

    def _through(self, index: int, row: Array) -> tuple[Array, Near]:
        """Floats r and a number with row·v ≤ r·z + number, v the pre-activations of a layer, z what enters it."""
        layer = self.network.layers[index]
        through = Approx(row[None]) @ Approx.weight(layer.weight)
        return through.value[0], Near.of(row) @ Near.weights(layer.bias) + through.err(self._sizes[index])[0]

    def _together(self, bends: list[Array], multipliers: Sequence[Array]) -> tuple[Array, float]:
        """B of the first layer, and at least λmax(WᵀBW) and 0."""
        B = np.diag(bends[-1])
        for index in reversed(range(len(multipliers))):
            T, (low, high) = np.asarray(multipliers[index], dtype=float), self.stages[index].secants
            if T.shape != low.shape:
                raise ProofFailed("the hints are for other layers")
            A = congruence(B, self.network.layers[index + 1].weight.T)
            B = raised(activate(A[None], low[None], high[None], T[None], signed=True).P[0], bends[index])
        return B, float(np.maximum(largest_eigenvalue_above(congruence(B, self.first.T)), 0.0))

    def _over_ball(self, row: Array, B: Array, most: float, mu: float) -> float:
        """At least max of row·d + ½(Wd)ᵀB(Wd) over ‖d‖ ≤ radius; ``most`` is at least λmax(WᵀBW)."""
        if not B.any():
            return float(up(self.radius * norm_above(row)))
        weight = self.network.layers[0].weight
        if B.ndim == 1:
            weight, B = weight[np.flatnonzero(B)], B[B != 0.0]
        return form_over_ball(row, weight, B, self.radius, most, mu, solved(weight, B, row, mu))


def _replaced(stage: KnownLayer, row: Array, slopes: Array, bends: Array) -> tuple[Array, Array, Array]:
    """g, bends and heights with row·z ≤ g·v + ½Σ bend·(v - center)² + Σ height."""
    if np.shape(slopes) != row.shape or np.shape(bends) != row.shape:
        raise ProofFailed("the hints are for other layers")
    g, bend, at = row * stage.slope, np.zeros(len(row)), stage.open
    g[at] = np.where(np.isfinite(slopes[at]), slopes[at], 0.0)
    bend[at] = np.where(np.isfinite(bends[at]), bends[at], 0.0)
    tilt = Near.of(row) * stage.slope - g  # of neurons with a single slope, the rounding of g
    height = (tilt * Near.between(stage.low, stage.high) + row * stage.offset).above
    height[at] = _heights(stage, row[at], g[at], bend[at])
    return g, bend, height


def _heights(stage: KnownLayer, row: Array, g: Array, bend: Array) -> Array:
    """At least max of row·φ(v) - g·v - ½bend·(v - c)² over the intervals of open neurons, c the middle's v.

    In a cell φ is replaced by the line on the safe side. For bend ≥ 0 what is left is concave: below the peak of its
    parabola, and below its tangents at both ends. Else it is convex, and largest at an end.
    """
    at, cells = stage.open, stage.cells
    c = stage.center[at]
    a = Near.of(row) * np.where(row > 0.0, cells.upper_slope, cells.lower_slope) - g
    ways, ends = [a * c + 0.5 * (a * (a / bend))], []
    for end, sign in ((cells.start, 1.0), (cells.stop, -1.0)):
        away = Near.of(end) - c
        pull = bend * away
        over = np.maximum((sign * (a - pull)).above, 0.0)
        ends.append(a * end - 0.5 * (pull * away))
        ways.append(ends[-1] + Near.of(over) * up(cells.stop - cells.start))
    concave = np.fmin.reduce([way.above for way in ways])  # without a bend there is no peak
    best = np.where(bend < 0.0, np.maximum(*(end.above for end in ends)), concave)
    shift = Near.of(row) * np.where(row > 0.0, cells.upper_offset, cells.lower_offset)
    return np.asarray((best + shift).above.max(axis=0))


def _most(spread: tuple[Array, Array], bend: Array, top: float) -> float:
    """At least λmax(B^½ S B^½) and 0, B the positive bends; ``top`` is a guess of it."""
    (neurons, S), some, place = spread, np.flatnonzero(bend > 0.0), np.full(len(bend), -1)
    if not some.size:
        return 0.0
    place[neurons] = np.arange(len(neurons))
    place = place[some]
    if (place < 0).any():
        raise ProofFailed("the hints bend neurons whose ellipsoid is not known")
    root = up(np.sqrt(bend[some]))  # more bend is more
    A = Approx(S[np.ix_(place, place)]).scaled(root, root).above()
    return float(np.maximum(largest_eigenvalue_above(A, np.asarray(top) if np.isfinite(top) else None), 0.0))
