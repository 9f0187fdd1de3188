"""How large a row of the outputs can get over a ball, by a parabola at each neuron; proved.

A row·z of the values after a layer is replaced neuron by neuron, the last layer first, by a line and a square,

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
    dot,
    down,
    largest_eigenvalue_above,
    norm_above,
    raised,
    twice_above,
    up,
)
from lipcert.kernel.domain import form_over_ball, split_by_box
from lipcert.kernel.hints import Interval
from lipcert.kernel.neuron_bounds import kinked, relax, slope_bounds
from lipcert.kernel.row_bounds import first_factor, lines_around, pulled, radius_of, straight_parts
from lipcert.kernel.step import activate
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball
from lipcert.suggest.multipliers import solved

_CELLS: Final = 32
"""Cells that an interval is cut into where neurons are curved."""
_MEANS: Final = 48
"""Cells on each side of the centre, for means of slopes; with 48 radii are within 0.3 % of those for exact secants."""


@dataclass(frozen=True, eq=False)
class ParabolaHints:
    """What shows that a row of the outputs stays below zero; untrusted numbers.

    Attributes
    ----------
    row : of the outputs.
    slopes, bends : of all neurons of each hidden layer, in order; those of neurons with a single slope are ignored.
    tops : about the largest eigenvalue of each layer's form.
    mu : multiplier of the ball.
    """

    row: Array
    slopes: tuple[Array, ...]
    bends: tuple[Array, ...]
    tops: tuple[float, ...]
    mu: float


@dataclass(frozen=True, eq=False)
class SecondOrderHints:
    """The same where squares are bounded together, with ``multipliers`` of the hidden layers but the last."""

    row: Array
    slopes: tuple[Array, ...]
    bends: tuple[Array, ...]
    multipliers: tuple[Array, ...]
    mu: float


@dataclass(frozen=True, eq=False)
class Spread:
    """Δv Δvᵀ ≼ ‖Δx‖²·4**exponent·S for some neurons of a layer."""

    S: Array
    exponent: int
    neurons: Array


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
class Stage:
    """What is known of one hidden layer.

    Neurons of a single slope are slope·v + offset; the others are ``open``, and what follows about them is in the order
    of these numbers: slopes between ``alpha`` and ``beta``, and ``cells``. |z| ≤ size. At the middle of the ball v is
    within ``error`` of ``center``.
    """

    layer: Layer
    low: Array
    high: Array
    slope: Array
    offset: Near
    open: Array
    alpha: Array
    beta: Array
    cells: Cells
    size: Array
    spread: Spread
    center: Array
    error: Array

    @cached_property
    @np.errstate(all="ignore")
    def secants(self) -> Interval:
        """Of each neuron, bounds of (φ(v) - φ(c))/(v - c) for v in its interval, c its value at the middle of the ball.

        Such a secant is the mean of φ' between c and v. Each side of c is cut into cells. With the largest slope of
        each cell in the place of φ' the mean is monotone on a cell, so the largest is at an end of one.
        """
        neurons, center = self.layer.neurons, self.center
        assert neurons is not None
        near = down(center - self.error), up(center + self.error)
        ends = np.minimum(self.low, near[0]), np.maximum(self.high, near[1])
        whole, least, most = slope_bounds(neurons, *ends), [], []
        for end, behind in zip(ends, near[::-1], strict=True):
            share = np.arange(_MEANS + 1.0)[:, None] / _MEANS
            marks = np.clip(center + share * (end - center), np.minimum(center, end), np.maximum(center, end))
            marks[-1] = end
            points = Near(marks, np.where(share == 0.0, self.error, 0.0))
            widths, lengths = points[1:] - points[:-1], points[1:] - points[0]
            from_, to = np.concatenate([behind[None], marks[1:-1]]), marks[1:]
            slopes = slope_bounds(neurons, np.minimum(from_, to), np.maximum(from_, to))
            low, high = ((np.tri(_MEANS) @ (slope * widths)) / lengths for slope in slopes)
            # where c may lie beyond the first mark, its quotient is infinite or NaN, and the slopes of the whole serve
            least.append(np.fmax(whole[0], low.below.min(axis=0)))
            most.append(np.fmin(whole[1], high.above.max(axis=0)))
        return np.minimum(*least), np.maximum(*most)


class QuadraticRelaxation:
    """One network over one ball, from intervals and ellipsoids of its pre-activations that are known.

    Attributes
    ----------
    stages : what is known of the hidden layers.
    """

    def __init__(
        self,
        network: Network,
        ball: Ball,
        centers: Sequence[Interval],
        intervals: Sequence[Interval],
        spreads: Sequence[Spread],
    ) -> None:
        self.network, self.ball, self.radius = network, ball, radius_of(ball)
        if len(intervals) != network.depth - 1 or len(spreads) != network.depth - 1:
            raise ProofFailed("parabolas need to know of every hidden layer")
        known = zip(network.layers[:-1], intervals, centers, spreads, strict=False)
        self.stages = [_stage(*one) for one in known]
        self._sizes = [up(np.abs(ball.center) + self.radius), *(stage.size for stage in self.stages)]

    @cached_property
    def first(self) -> Array:
        """The first layer's weight, or another with few columns: see :func:`first_factor`."""
        return first_factor(self.network.layers[0].weight)

    @np.errstate(all="ignore")  # overflows give infinity or NaN, which prove nothing
    def above(self, hints: ParabolaHints | SecondOrderHints) -> float:
        """At least max of row·v_N over the ball, for any hints."""
        row, bends, total = self.replaced(hints)
        if isinstance(hints, SecondOrderHints):
            B, most = self._together(bends, hints.multipliers)
        else:
            spreads = (stage.spread for stage in self.stages)
            B, tops = bends[0], [_most(*one) for one in zip(spreads, bends, hints.tops, strict=True)]
            most = tops[0]
            total = total + 0.5 * Near.of(twice_above(np.asarray(self.radius), np.array(tops[1:]))).sum()
        return float((total + self._over_ball(row, B, most, float(hints.mu))).above)

    @np.errstate(all="ignore")
    def replaced(self, hints: ParabolaHints | SecondOrderHints) -> tuple[Array, list[Array], Near]:
        """Floats r, diagonals D_k and a number with row·v_N ≤ r·Δx + ½Σ_k Δv_kᵀ D_k Δv_k + number over the ball."""
        parts = hints.multipliers if isinstance(hints, SecondOrderHints) else hints.tops[1:]
        if {len(hints.slopes), len(hints.bends), len(parts) + 1} != {len(self.stages)}:
            raise ProofFailed("the hints are for other layers")
        row, total = self._through(len(self.stages), np.asarray(hints.row, dtype=float))
        bends: list[Array] = []
        for index, stage in reversed(list(enumerate(self.stages))):
            g, bend, height = _replaced(stage, row, hints.slopes[index], hints.bends[index])
            row, constant = self._through(index, g)
            total = total + constant + Near.of(height).sum()
            bends.insert(0, bend)
        (rest,), (boxed,) = split_by_box(self.ball, row[None])
        return rest, bends, total + dot(row, self.ball.center) + boxed

    def _through(self, index: int, row: Array) -> tuple[Array, Near]:
        """Floats r and a number with row·v ≤ r·z + number, v the pre-activations of a layer, z what enters it."""
        layer = self.network.layers[index]
        (rest,), (missed,) = pulled(Approx(row[None]), layer.weight, self._sizes[index])
        return rest, dot(row, Near.weights(layer.bias)) + missed

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

    def show_negative(self, row: Array, hints: Sequence[ParabolaHints | SecondOrderHints]) -> bool:
        """Whether one of the hints proves that row·v_N is negative all over the ball."""
        try:
            return any(self.above(one) < 0.0 for one in hints if np.array_equal(one.row, row))
        except (ProofFailed, np.linalg.LinAlgError):
            return False

    def _over_ball(self, row: Array, B: Array, most: float, mu: float) -> float:
        """At least max of row·d + ½(Wd)ᵀB(Wd) over ‖d‖ ≤ radius; ``most`` is at least λmax(WᵀBW)."""
        if not B.any():
            return float(up(self.radius * norm_above(row)))
        weight = self.network.layers[0].weight
        if B.ndim == 1:
            weight, B = weight[np.flatnonzero(B)], B[B != 0.0]
        return form_over_ball(row, weight, B, self.radius, most, mu, solved(weight, B, row, mu))


def _stage(layer: Layer, interval: Interval, center: Interval, known: Spread) -> Stage:
    neurons, (low, high) = layer.neurons, interval
    assert neurons is not None
    slope, offset, some, alpha, beta = straight_parts(layer, interval)
    cells = _cells(neurons.take(some), low[some], high[some], alpha, beta)
    floor, roof = relax(neurons, low, high, 0.0 * low, 0.0 * high)[4:]
    size = np.maximum(-floor, roof)
    return Stage(layer, low, high, slope, offset, some, alpha, beta, cells, size, known, *center)


def _cells(neurons: Neurons, low: Array, high: Array, alpha: Array, beta: Array) -> Cells:
    """Two cells on both sides of 0 where all neurons are straight there, else more; 0 is a mark where it is inside."""
    if not low.size:
        return Cells(*np.zeros((6, 1, 0)))
    count = 2 if kinked(neurons, low, high, alpha, beta).all() else _CELLS
    share = np.arange(count + 1.0)[:, None] / count
    across = np.where(share <= 0.5, low * (1.0 - 2.0 * share), high * (2.0 * share - 1.0))
    along = np.clip(low + share * (high - low), low, high)
    marks = np.where((low < 0.0) & (high > 0.0), across, along)
    marks[0], marks[-1] = low, high
    start, stop = marks[:-1], marks[1:]
    return Cells(start, stop, *lines_around(neurons, start, stop)[:4])


def _replaced(stage: Stage, row: Array, slopes: Array, bends: Array) -> tuple[Array, Array, Array]:
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


def _heights(stage: Stage, row: Array, g: Array, bend: Array) -> Array:
    """At least max of row·φ(v) - g·v - ½bend·(v - c)² over the intervals of open neurons, c the middle's v.

    In a cell φ is replaced by the line on the safe side. For bend ≥ 0 what is left is concave: below the peak of its
    parabola, and below its tangents at both ends. Else it is convex, and largest at an end.
    """
    at, cells = stage.open, stage.cells
    c = Near(stage.center[at], stage.error[at])
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


def _most(known: Spread, bend: Array, top: float) -> float:
    """At least λmax(B^½ S B^½) and 0, B the positive bends; ``top`` is a guess of it."""
    some = np.flatnonzero(bend > 0.0)
    if not some.size:
        return 0.0
    place = np.full(len(bend), -1)
    place[known.neurons] = np.arange(len(known.neurons))
    if (place[some] < 0).any():
        raise ProofFailed("the hints bend neurons whose ellipsoid is not known")
    root = up(np.sqrt(bend[some]))  # more bend is more
    A = Approx(known.S[np.ix_(place[some], place[some])]).scaled(root, root).above()
    guess = np.ldexp(top, -2 * known.exponent) if np.isfinite(top) else None
    most = np.maximum(largest_eigenvalue_above(A, guess), 0.0)
    return float(up(np.ldexp(most, 2 * known.exponent)))
