"""How large a row of the outputs can get over a ball, by parabolas of any slope; proved.

A row·z of the values after a layer is replaced neuron by neuron, the last layer first, by a line and a square,

    row·φ(v) ≤ slope·v + ½·bend·(v - center)² + height,      bend ≥ 0, for v in the neuron's interval,

where ``center`` is v at the middle of the ball. Slopes and bends are hints; the height is the least that makes it true.
The squares of all neurons of a layer stay behind; in a ball they cannot all be large. With Δv Δvᵀ ≼ ‖Δx‖² S,

    Σ bend·Δv² ≤ ‖Δx‖² λmax(B^½ S B^½),      B = diag(bend).

In the first layer Δv = W Δx, so they are a form H = WᵀBW of Δx. With what is left of the row, for every μ > λmax(H),

    row·Δx + ½ΔxᵀHΔx ≤ ½(rowᵀ(μ - H)⁻¹row + μ·radius²).

Where the ball is clipped to a box, a part of what is left of the row is bounded by the box.
Without bends this is linear relaxation, with slopes chosen for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, times
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball
from lipcert.proof.domain import form_over_ball, split_by_box
from lipcert.proof.hints import Interval
from lipcert.proof.near import largest_eigenvalue_above
from lipcert.proof.neuron_bounds import kinked, relax, slope_bounds, value_error
from lipcert.proof.rounding import LOOSE, TINY, UP, U, gamma, magnitude, norm_above, spread, stretched, twice_above, up
from lipcert.suggest.algebra import solved
from lipcert.suggest.lines import suggested_lines

_CELLS: Final = 16
"""Cells that an interval is cut into where neurons are curved."""


@dataclass(frozen=True, eq=False)
class BowlHints:
    """What shows that a row of the outputs stays below zero; nothing in it is believed.

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

    Neurons of a single slope are slope·v + offset up to ``slack``; the others are ``open``, and what follows about
    them is in the order of these numbers: ``cells``, and slopes between ``alpha`` and ``beta``. At the middle of the
    ball v is within ``error`` of ``center``. |z| ≤ size. What is rounded in a row multiplies ``passed`` ≥
    |W||z before| + |b| + |v|; ``lost`` is what underflow loses.
    """

    layer: Layer
    low: Array
    high: Array
    center: Array
    error: Array
    slope: Array
    offset: Array
    slack: Array
    size: Array
    passed: Array
    lost: float
    spread: Spread
    open: Array
    alpha: Array
    beta: Array
    cells: Cells


class Bowls:
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
        if not ball.plain or ball.center.ndim != 1 or not 0.0 < float(ball.radius) < np.inf:
            raise ProofFailed("parabolas of any slope are for single balls of the ℓ2 norm and of positive radius")
        if len(intervals) != network.depth - 1 or len(spreads) != network.depth - 1:
            raise ProofFailed("parabolas need to know of every hidden layer")
        self.network, self.ball, self.radius = network, ball, float(ball.radius)
        self.stages: list[Stage] = []
        size = up(np.abs(ball.center) + self.radius)
        for layer, interval, center, known in zip(network.layers[:-1], intervals, centers, spreads, strict=False):
            self.stages.append(_stage(layer, interval, center, known, size))
            size = self.stages[-1].size
        self._last = size

    def above(self, hints: BowlHints) -> float:
        """At least max of row·v_N over the ball, for any hints."""
        with np.errstate(all="ignore"):  # overflows give infinity or NaN, which prove nothing
            return self._above(hints)

    def _above(self, hints: BowlHints) -> float:
        row, last = np.asarray(hints.row, dtype=float), self.network.layers[-1]
        through = times(row[None], last.weight)[0]
        passed = spread(magnitude(last.weight), self._last) + np.abs(last.bias)
        total = float(row @ last.bias)
        charge = gamma(len(row) + LOOSE + 4) * float(np.abs(row) @ passed) + TINY * (1.0 + self._last.sum())
        form: Array | None = None
        if {len(hints.slopes), len(hints.bends), len(hints.tops)} != {len(self.stages)}:
            raise ProofFailed("the hints are for other layers")
        for index in reversed(range(len(self.stages))):
            stage, slopes, bends, top = self.stages[index], hints.slopes[index], hints.bends[index], hints.tops[index]
            through, bend, rise, lost = _replaced(stage, through, slopes, bends)
            most = _most(stage.spread, bend, top)
            if index == 0:
                form, ceiling = bend, most
            else:
                rise += 0.5 * float(twice_above(np.asarray(self.radius), np.asarray(most)))
            total += rise
            charge += lost + 2.0 * U * (abs(total) + abs(rise))
            through = times(through[None], stage.layer.weight)[0]
        assert form is not None
        along = float(through @ self.ball.center)
        size = float(np.abs(through) @ np.abs(self.ball.center))
        (rest,), (boxed,) = split_by_box(self.ball, through[None])
        across = self._over_ball(rest, form, ceiling, float(hints.mu)) + float(boxed)
        total = total + along + across
        charge += gamma(len(through) + 4) * size + 4.0 * U * (abs(total) + abs(along) + abs(across) + abs(boxed)) + TINY
        return float(up(np.asarray(total + charge * UP * UP)))

    def show_negative(self, row: Array, told: Sequence[BowlHints]) -> bool:
        """Whether one of the hints proves that row·v_N is negative all over the ball."""
        try:
            return any(self.above(hints) < 0.0 for hints in told if np.array_equal(hints.row, row))
        except (ProofFailed, np.linalg.LinAlgError):
            return False

    def _over_ball(self, row: Array, bend: Array, most: float, mu: float) -> float:
        """At least max of row·d + ½Σ bend·(Wd)² over ‖d‖ ≤ radius; ``most`` is at least λmax(WᵀBW)."""
        if not bend.any():
            return float(stretched(self.radius * norm_above(row), 2))
        if not most < mu * (1.0 - 2.0**-40) or not mu < np.inf:
            raise ProofFailed("the multiplier of the ball is too small")
        W, some = self.network.layers[0].weight, np.flatnonzero(bend)
        y = solved(W[some], bend[some], row, mu)
        return form_over_ball(row, W[some], bend[some], self.radius, most, mu, y)


def _stage(layer: Layer, interval: Interval, center: Interval, known: Spread, below: Array) -> Stage:
    """What is known of a layer, given at least the size of the values that enter it."""
    neurons, (low, high) = layer.neurons, interval
    assert neurons is not None
    if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
        raise ProofFailed("parabolas need intervals of all neurons")
    alpha, beta = slope_bounds(neurons, low, high)
    closed = alpha == beta
    slope, end = np.where(closed, alpha, 0.0), neurons.value(low)
    slack = value_error(neurons, end) + 8.0 * U * (np.abs(end) + np.abs(slope * low))
    floor, roof = relax(neurons, low, high, 0.0 * low, 0.0 * high)[4:]
    size = up(np.maximum(np.abs(floor), np.abs(roof)))
    passed = spread(magnitude(layer.weight), below) + np.abs(layer.bias) + np.maximum(np.abs(low), np.abs(high))
    passed = (passed + np.abs(end)) * UP + TINY
    lost = float(TINY * (1.0 + passed.sum() + below.sum() + size.sum()))
    lines = slope, np.where(closed, end - slope * low, 0.0), np.where(closed, slack, 0.0)
    some = np.flatnonzero(~closed)
    alpha, beta = alpha[some], beta[some]
    cells = _cells(neurons.take(some), low[some], high[some], alpha, beta)
    return Stage(layer, low, high, *center, *lines, size, passed, lost, known, some, alpha, beta, cells)


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
    drawn = relax(neurons, start, stop, *suggested_lines(neurons, (start, stop)))
    if not all(np.isfinite(part).all() for part in drawn):
        raise ProofFailed("the lines around a neuron are not finite")
    return Cells(start, stop, *drawn[:4])


def _replaced(stage: Stage, row: Array, slopes: Array, bends: Array) -> tuple[Array, Array, float, float]:
    """What row·z becomes: g and bends with row·z ≤ g·v + ½Σ bend·(v - center)² + heights.

    Returns g, the bends, the sum of heights and g·bias, and what is lost. Whatever is rounded in g or in the product
    with the weights that follows multiplies ``passed``.
    """
    if np.shape(slopes) != row.shape or np.shape(bends) != row.shape:
        raise ProofFailed("the hints are for other layers")
    g, height = row * stage.slope, row * stage.offset + np.abs(row) * stage.slack * UP
    bend, at = np.zeros(len(row)), stage.open
    bend[at] = np.where(np.isfinite(bends[at]), np.maximum(bends[at], 0.0), 0.0)
    g[at] = np.where(np.isfinite(slopes[at]), slopes[at], 0.0)
    height[at], missed = _heights(stage, row[at], g[at], bend[at])
    terms = np.abs(g) @ stage.passed + np.abs(row) @ (stage.size + np.abs(stage.offset)) + np.abs(height).sum()
    rate = gamma(max(stage.layer.weight.shape) + LOOSE + 12)
    lost = missed + (rate * float(terms) + stage.lost) * UP
    return g, bend, float(height.sum() + g @ stage.layer.bias), lost


def _heights(stage: Stage, row: Array, g: Array, bend: Array) -> tuple[Array, float]:
    """At least max of row·φ(v) - g·v - ½bend·(v - c)² over the intervals of open neurons, for c = ``center``.

    The true centre is within ``error`` of c; what that may add up to comes second. In a cell φ is replaced by the line
    on the safe side. What is left is concave: below the peak of its parabola, and below its tangents at both ends.
    """
    at, cells = stage.open, stage.cells
    low, high, c, error = stage.low[at], stage.high[at], stage.center[at], stage.error[at]
    reach = up(np.maximum(np.abs(low), np.abs(high)) + np.abs(c))
    tilt = np.where(row > 0.0, cells.upper_slope, cells.lower_slope)
    shift = row * np.where(row > 0.0, cells.upper_offset, cells.lower_offset)
    a, width = row * tilt - g, up(cells.stop - cells.start)
    peak = a * (a / np.where(bend > 0.0, bend, 1.0))
    ways = [np.where(bend > 0.0, a * c + 0.5 * peak + gamma(8) * (np.abs(a * c) + peak), np.inf)]
    for end, sign in ((cells.start, 1.0), (cells.stop, -1.0)):
        pull = bend * (end - c)
        over = np.maximum(sign * (a - pull), 0.0) * width
        terms = np.abs(a * end) + np.abs(pull) * reach + (np.abs(a) + bend * reach) * width
        ways.append(a * end - 0.5 * (pull * (end - c)) + over + gamma(12) * terms)
    best = np.fmin.reduce(ways) + shift
    rounded = (np.abs(row * tilt) + np.abs(g)) * reach + np.abs(shift) + np.abs(best)
    best = best + (gamma(8) * rounded * UP + TINY * (1.0 + reach + np.abs(a) + np.abs(row)))
    slack = float((bend * error) @ (reach + error))
    return best.max(axis=0), float(slack * UP + TINY * (1.0 + reach.sum()))


def _most(known: Spread, bend: Array, top: float) -> float:
    """At least λmax(B^½ S B^½) and 0; ``top`` is a guess of it."""
    some = np.flatnonzero(bend)
    if not some.size:
        return 0.0
    place = np.full(len(bend), -1)
    place[known.neurons] = np.arange(len(known.neurons))
    if (place[some] < 0).any():
        raise ProofFailed("the hints bend neurons whose ellipsoid is not known")
    root = np.sqrt(bend[some])
    A = root[:, None] * known.S[np.ix_(place[some], place[some])] * root
    lost = gamma(8) * np.abs(A).sum(axis=-1).max() * UP + TINY * (len(A) + float(root.max()))
    guess = np.ldexp(top, -2 * known.exponent) if np.isfinite(top) else None
    most = max(float(largest_eigenvalue_above(A, guess)), 0.0)
    return float(up(np.ldexp(up(np.asarray(most + lost * UP)), 2 * known.exponent)))
