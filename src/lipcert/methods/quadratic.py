"""Slopes and bends of the quadratic relaxation, by descent; for networks too large for the semidefinite dual bound.

For one row of the outputs every open neuron has a slope and a bend. The bound of
:mod:`lipcert.kernel.quadratic_form` is convex in them but not smooth: the side of a kink where a neuron's
height is attained may change, and so may the top eigenvector of a layer. Subgradients are averaged over those that are
nearly active, and steps are Adam's. A trial takes a few products with the weights and some tens with the layers'
ellipsoids; 20 to 30 trials come close to the best.

Coordinates do not depend on the size of the row: a neuron's slope as a share of its slope range, and the logarithm of
its bend, both relative to the row's entry.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse import linalg as iterative

from lipcert.kernel.domain import split_by_box
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.quadratic_form import KnownLayer, QuadraticRelaxation
from lipcert.model.activations import STRAIGHT
from lipcert.model.arrays import Array, Weight, times
from lipcert.model.network import Network
from lipcert.runtime.clock import clock
from lipcert.suggest.hints import QuadraticHints
from lipcert.suggest.multipliers import solved

_TRIALS = 120
"""Most trials to reach a negative bound; 20 to 30 come close to the best."""
_PATIENCE, _SHARE = 12, 0.25
"""The search is given up when so many trials close less than this share of the gap to zero."""
_RATE, _TILT = 0.1, 0.3
"""The first step of bends, and that of slopes relative to it; steps get shorter with the number of trials."""
_USUAL: Final = 0.4
"""The start takes every neuron to move by this share of the farthest it can."""
_EVEN: Final = 0.02
"""Heights on both sides of a kink, and eigenvalues, within this relative difference are averaged."""
_SEEN, _FEW = 6, 60
"""Top eigenvectors that are averaged, and the size up to which a full decomposition is faster than Lanczos."""
_DIRECTIONS: Final = 24
"""Dimension of the Krylov space for the maximum over the ball; its error falls geometrically with it."""
_ROOM: Final = 1e-6
"""How far below zero a bound must be, relative to the margin, so that rounding does not spoil the proof."""


def straight(network: Network) -> bool:
    """Whether hidden neurons are piecewise linear; for smooth ones second-order bounds are better."""
    hidden = [layer.neurons for layer in network.layers[:-1]]
    rows = [row for neurons in hidden if neurons is not None for row, _ in neurons.groups]
    return all(shape == STRAIGHT for row in rows for shape in row.shape)


def suggest(facts: OutputBounds, row: Array) -> QuadraticHints | None:
    """Slopes and bends that seem to show that row·v_N < 0; None if there seem to be none."""
    relaxation = facts.quadratic_relaxation
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):  # far too ill-scaled
        layers = [layer for stage in relaxation.stages if (layer := _Layer.of(stage, relaxation.radius)) is not None]
        if len(layers) < len(relaxation.stages):
            return None
        descent = _Descent(_Objective(relaxation, row, layers))
        for _ in range(_TRIALS):
            clock().check()
            descent.step()
            if descent.settled:
                return descent.hints()
            if descent.hopeless:
                return None
    return None


class _Descent:
    """Adam on averaged subgradients; ``best`` is the least value so far, ``bounds`` the least after each step."""

    def __init__(self, objective: _Objective) -> None:
        self.objective, self.x = objective, objective.start()
        self.mean, self.square = np.zeros((2, self.x.size))
        self.best: _Value | None = None
        self.last: _Value | None = None
        self.bounds: list[float] = []

    def step(self) -> None:
        self.last = value = self.objective(self.x)
        if self.best is None or value.bound < self.best.bound:
            self.best = value
        self.bounds.append(self.best.bound)
        trial = len(self.bounds)
        self.mean = 0.9 * self.mean + 0.1 * value.gradient
        self.square = 0.99 * self.square + 0.01 * value.gradient**2
        size = np.sqrt(self.square / (1.0 - 0.99**trial))
        usual = 1e-3 * np.sqrt(float(size @ size) / max(size.size, 1)) + 1e-300
        pace = _RATE / (1.0 + trial / 40.0) * self.objective.pace
        self.x = self.x - pace * self.mean / (1.0 - 0.9**trial) / (size + usual)

    @property
    def settled(self) -> bool:
        """Whether the last bound is negative, also with a multiplier of the ball that a proof can use."""
        goal = -_ROOM * self.objective.scale
        if self.best is None or self.best is not self.last or not self.best.bound < goal:
            return False
        return self.objective.corrected(self.best) < goal

    @property
    def hopeless(self) -> bool:
        """Whether the bound falls too slowly to get below zero, or is no number."""
        if not np.isfinite(self.bounds[-1]) or not np.isfinite(self.x).all():
            return True
        falls = len(self.bounds) <= _PATIENCE
        return not falls and self.bounds[-1 - _PATIENCE] - self.bounds[-1] < _SHARE * self.bounds[-1]

    def hints(self) -> QuadraticHints:
        """Of the best."""
        assert self.best is not None
        return self.objective.hints(self.best)


@dataclass(eq=False)
class _Layer:
    """One layer: what is known of it, and of its open neurons the weights, S, and how far they can move."""

    stage: KnownLayer
    own: Weight
    S: Array
    farthest: Array
    near: Array | None = None

    @staticmethod
    def of(stage: KnownLayer, radius: float) -> _Layer | None:
        """None where the ellipsoid of an open neuron is not known."""
        at, (neurons, S) = stage.open, stage.spread
        place = np.full(stage.low.size, -1)
        place[neurons] = np.arange(len(neurons))
        if (place[at] < 0).any():
            return None
        S = S[np.ix_(place[at], place[at])]
        farthest = np.maximum(radius * np.sqrt(np.maximum(np.diagonal(S), 0.0)), 1e-200)
        return _Layer(stage, stage.layer.weight[at], S, farthest)

    def top(self, bend: Array) -> tuple[float, Array]:
        """λmax(B^½ S B^½), and about its derivatives by the bends."""
        if not bend.size:
            return 0.0, bend
        root = np.sqrt(bend)
        A = root[:, None] * self.S * root
        if not np.isfinite(A).all():  # LAPACK may never return from infinities
            raise np.linalg.LinAlgError("the squares of a layer are too large for floating point")
        if bend.size <= _FEW:
            values, vectors = np.linalg.eigh(A)
        else:
            start = np.ones(bend.size) if self.near is None else self.near
            try:
                values, vectors = iterative.eigsh(A, k=_SEEN, which="LA", v0=start, tol=1e-3, ncv=20)
            except iterative.ArpackError:
                return np.inf, np.full(bend.size, np.nan)
            self.near = vectors @ np.linspace(0.1, 1.0, _SEEN)
        share = np.exp((values - values[-1]) / max(_EVEN * values[-1], 1e-300))
        return float(values[-1]), (vectors * vectors) @ (share / share.sum() * values) / bend


@dataclass(eq=False)
class _Value:
    """The bound, its gradient, and the hints for a proof: slopes, bends, eigenvalues and μ.

    ``row`` is the row at the inputs, ``over`` the part of the bound that comes from it and the first bends.
    """

    bound: float
    over: float
    row: Array
    gradient: Array
    slopes: list[Array]
    bends: list[Array]
    tops: list[float]
    mu: float


class _Objective:
    """The bound of a row over a ball, as a function of the coordinates: of all layers the slopes, then all bends."""

    def __init__(self, relaxation: QuadraticRelaxation, row: Array, layers: list[_Layer]) -> None:
        self.row, self.layers, self.ball = row, layers, relaxation.ball
        self.radius, self.center = relaxation.radius, relaxation.ball.center
        last = relaxation.network.layers[-1]
        self.through, self.constant = times(row[None], last.weight)[0], float(row @ last.bias)
        self.sizes = [layer.stage.open.size for layer in layers]
        count = sum(self.sizes)
        self.pace = np.repeat([_TILT, 1.0], count)
        self.scale = float(np.linalg.norm(self.through)) or 1.0

    def start(self) -> Array:
        """As if every neuron moved by the same share of what it can."""
        shares, rates = [], []
        for layer in self.layers:
            stage, way = layer.stage, _USUAL * layer.farthest
            shares.append(np.clip(0.5 + 0.5 * stage.center.value[stage.open] / way, 0.02, 0.98))
            rates.append(np.log((stage.beta - stage.alpha) / (2.0 * way)))
        return np.concatenate([*shares, *rates])

    def hints(self, value: _Value) -> QuadraticHints:
        stages = [layer.stage for layer in self.layers]
        slopes, bends = (tuple(map(full, stages, parts)) for parts in (value.slopes, value.bends))
        self.corrected(value)
        return QuadraticHints(self.row, slopes, bends, float(value.mu), tuple(value.tops))

    def corrected(self, value: _Value) -> float:
        """The bound with μ raised to at least the first layer's largest eigenvalue, as a proof needs it."""
        first, bend = self.layers[0], value.bends[0]
        if not bend.size:
            return value.bound
        value.tops[0] = first.top(bend)[0]
        least = value.tops[0] * (1.0 + 1e-6)
        if value.mu < least:
            y = solved(first.own, bend, value.row, least)
            over = 0.5 * (float(value.row @ y) + least * self.radius * self.radius)
            value.bound, value.over, value.mu = value.bound + over - value.over, over, least
        return value.bound

    def __call__(self, x: Array) -> _Value:
        parts = np.split(x, np.cumsum([*self.sizes, *self.sizes])[:-1])
        count = len(self.layers)
        row, bound, steps, tops = self.through, self.constant, [], []
        for k in reversed(range(count)):
            layer, stage = self.layers[k], self.layers[k].stage
            even = _EVEN * np.abs(row[stage.open]) * layer.farthest
            step = Parabolas(stage, row, parts[k], np.exp(parts[count + k]), even)
            top, rise = layer.top(step.bend) if k else (0.0, None)
            bound += float(step.height.sum() + step.g @ stage.layer.bias + row @ stage.offset.value)
            bound += 0.5 * self.radius * self.radius * top
            row = times(step.g[None], stage.layer.weight)[0]
            steps.append((step, rise))
            tops.append(top)
        (rest,), (boxed,) = split_by_box(self.ball, row[None])
        over, y, mu = _over_ball(self.layers[0].own, steps[-1][0].bend, rest, self.radius)
        bound += float(row @ self.center) + over + float(boxed)
        z, gradient = self.center + y, [np.zeros(0)] * (2 * count)
        for k, (layer, (step, rise)) in enumerate(zip(self.layers, reversed(steps), strict=True)):
            stage = layer.stage
            v = stage.layer.weight @ z + stage.layer.bias
            square = (layer.own @ y) ** 2 if rise is None else self.radius * self.radius * rise
            z = stage.slope * v + stage.offset.value
            z[stage.open], gradient[k], by_rate = step.derivatives(v[stage.open], square)
            gradient[count + k] = step.rate * by_rate
        slopes, bends = ([getattr(step, name) for step, _ in reversed(steps)] for name in ("own", "bend"))
        return _Value(bound, over, rest, np.concatenate(gradient), slopes, bends, tops[::-1], mu)


def full(stage: KnownLayer, part: Array) -> Array:
    """Numbers of all neurons of a layer, from those of open ones; zero elsewhere."""
    found = np.zeros(stage.slope.size)
    found[stage.open] = part
    return found


class Parabolas:
    """One layer: a row after it becomes a row before it, with heights and bends of its open neurons.

    A neuron's slope is a share of its slope range, and its bend a rate, both relative to the row's entry. ``soft`` is a
    smooth maximum in the place of ``height``, as smooth as ``even`` is large.
    """

    def __init__(self, stage: KnownLayer, row: Array, share: Array, rate: Array, even: Array | float) -> None:
        self.stage, self.row, self.rate = stage, row[stage.open], rate
        self.bend = np.abs(self.row) * rate + 1e-100
        self.tilt = stage.alpha + share * (stage.beta - stage.alpha)
        self.own = self.tilt * self.row
        self.g = row * stage.slope
        self.g[stage.open] = self.own
        cells, rising, center = stage.cells, self.row > 0.0, stage.center.value[stage.open]
        slope = np.where(rising, cells.upper_slope, cells.lower_slope)
        offset = np.where(rising, cells.upper_offset, cells.lower_offset)
        a = slope * self.row - self.own
        peaks = np.clip(center + a / self.bend, cells.start, cells.stop)
        if (self.bend < 0.0).any():  # there it is the higher end
            rises = a > self.bend * (0.5 * (cells.start + cells.stop) - center)
            peaks = np.where(self.bend < 0.0, np.where(rises, cells.stop, cells.start), peaks)
        self.places, self.squares = peaks, (peaks - center) ** 2
        values = a * peaks + self.row * offset - 0.5 * self.bend * self.squares
        self.height, self.even = values.max(axis=0), even + 1e-300
        self.shares = np.exp(np.maximum((values - self.height) / self.even, -50.0))
        total = self.shares.sum(axis=0)
        self.shares /= total
        self.soft = self.height + self.even * np.log(total)
        self.v = (self.shares * peaks).sum(axis=0)  # where the height is attained, on average
        self.z = (self.shares * (slope * peaks + offset)).sum(axis=0)
        self.square = (self.shares * self.squares).sum(axis=0)

    def derivatives(self, v: Array, square: Array) -> tuple[Array, Array, Array]:
        """By the row, the shares and the rates, from the derivatives of the rest by slopes and half bends."""
        by_slope, by_bend = v - self.v, 0.5 * (square - self.square)
        by_row = self.z + self.tilt * by_slope + np.sign(self.row) * self.rate * by_bend
        return by_row, self.row * (self.stage.beta - self.stage.alpha) * by_slope, np.abs(self.row) * by_bend

    def variances(self) -> tuple[Array, Array]:
        """Of the places where the height is attained, and of their squares."""
        means = ((self.places, self.v), (self.squares, self.square))
        of_places, of_squares = ((self.shares * (part - mean) ** 2).sum(axis=0) for part, mean in means)
        return of_places, of_squares


def _over_ball(weight: Weight, bend: Array, row: Array, radius: float) -> tuple[float, Array, float]:
    """About max of row·d + ½Σ bend·(Wd)² over ‖d‖ ≤ radius, its maximiser, and the multiplier of the ball.

    Lanczos: in the Krylov space of row, H·row, H²·row, … the matrix H = WᵀBW is tridiagonal.
    """
    length = float(np.linalg.norm(row))
    if not length > 0.0 or not np.isfinite(length):
        return 0.0 * length, 0.0 * row, 1.0
    back = weight.T
    basis, diagonal, beside = [row / length], [], []
    for _ in range(min(_DIRECTIONS, row.size)):
        w = back @ (bend * (weight @ basis[-1]))
        diagonal.append(float(w @ basis[-1]))
        known = np.array(basis)
        for _ in range(2):
            w = w - known.T @ (known @ w)
        beside.append(float(np.linalg.norm(w)))
        if not beside[-1] > 1e-12 * (abs(diagonal[0]) + 1e-300):
            break
        basis.append(w / beside[-1])
    size = len(diagonal)
    values, vectors = np.linalg.eigh(
        np.diag(diagonal) + np.diag(beside[: size - 1], 1) + np.diag(beside[: size - 1], -1)
    )
    part = length * vectors[0]
    low, high = values[-1] * (1.0 + 1e-9), max(values[-1], 0.0) + length / radius
    for _ in range(60):
        middle = 0.5 * (low + high)
        far = float(((part / (middle - values)) ** 2).sum()) > radius * radius
        low, high = (middle, high) if far else (low, middle)
    y = (vectors @ (part / (high - values))) @ np.array(basis[:size])
    return 0.5 * (float((part * part / (high - values)).sum()) + high * radius * radius), y, high
