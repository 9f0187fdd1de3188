"""What is proved of a network over a region: the ellipsoid and the box of its outputs, not only a bound.

Reach sets, sensitivities, certified radii and campaigns rest on this. The steps are the checker's, rounded outwards;
multipliers and lines come from a method layer by layer, or from the hints of a method that needs the whole network.
Several balls around one centre go through together: what depends on the centre is computed once, and what is done
neuron by neuron is done for all of them at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.certificate import Sweep
from lipcert.certify import BOTH, Problem, check_question
from lipcert.enclosures import Enclosure, Interval, Linear, Lipschitz
from lipcert.enclosures.lines import bounding_lines
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.multipliers import Method, Stage
from lipcert.multipliers.base import Greedy
from lipcert.network import Network, Neurons, times
from lipcert.reduction import Reduction, reduction
from lipcert.regions import Ball, Region
from lipcert.typing import Array, Weight
from lipcert.verify.backward import Backward
from lipcert.verify.carried import Near, carried
from lipcert.verify.checker import ROOM, _axes, _check_weights, _reach, _through, proving
from lipcert.verify.curvature import Cap, Choice, Curvature, Fewer
from lipcert.verify.relaxation import Relaxation, relax, slope_bounds
from lipcert.verify.rounding import (
    LOOSE,
    TINY,
    UP,
    congruence,
    down,
    gamma,
    largest_eigenvalue_above,
    magnitude,
    norm_above,
    spread,
    stretched,
    up,
)
from lipcert.verify.step import Step, activate
from lipcert.verify.support import check_region, radius_above
from lipcert.verify.trajectory import held, trajectory


@dataclass(frozen=True, eq=False)
class Facts:
    """Proved of one network over one region.

    Attributes
    ----------
    network, region : what is spoken of.
    bound : ‖Δv_N‖ ≤ bound·‖Δz_0‖ for any two inputs of the region.
    value, error : the output at the centre as computed, and at least its rounding error; empty without a centre.
    """

    network: Network
    region: Region
    bound: float
    value: Array
    error: Array
    _stretch: float
    _run: _Run

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Where the pre-activations of each hidden layer lie."""
        return tuple(self._run.intervals)

    @property
    def multipliers(self) -> tuple[tuple[Array, int], ...]:
        """The T of each hidden layer that the proof used, relative to 4**exponent, and the exponent."""
        return tuple(self._run.multipliers)

    @property
    def ellipsoid(self) -> Array:
        """Ŝ with Δv_N Δv_Nᵀ ≼ ‖Δz_0‖² Ŝ, (outputs, outputs)."""
        S = np.ldexp(self._run.S, 2 * self._run.exponent) * (self._stretch * self._stretch)
        charge = 4.0 * gamma(1) * np.abs(S).sum(axis=1) * UP + len(S) * TINY
        lifted = np.array(S)
        np.fill_diagonal(lifted, up(np.diagonal(S) + charge))
        return lifted

    def lipschitz(self, rows: Array) -> Array:
        """At least the Lipschitz constant of each combination rows·v_N of the outputs, for rows (k, outputs)."""
        with np.errstate(all="ignore"):
            axes = stretched(self._stretch * _axes(congruence(self._run.S, rows), self._run.exponent), 2)
            return np.fmin(axes, stretched(self.bound * norm_above(rows), 2))

    def above(self, rows: Array) -> Array:
        """At least max over the region of rows·v_N by linear relaxation, (k,); infinite where there is none."""
        best = np.full(len(rows), np.inf)
        with np.errstate(all="ignore"):
            return np.fmin.reduce([best, *(_above_output(trace, rows) for trace in self._run.traces)])

    def box(self) -> Interval:
        """Where the outputs lie: centre ± δ·axes, cut by the linear relaxation."""
        eye = np.eye(self.network.outputs)
        with np.errstate(all="ignore"):
            reach = stretched(radius_above(self.region) * self.lipschitz(eye) + self.error, 2)
            lower, upper = down(self.value - reach), up(self.value + reach)
        above = self.above(np.concatenate([eye, -eye]))
        return np.fmax(lower, -above[len(eye) :]), np.fmin(upper, above[: len(eye)])

    def curvature(self, choose: Choice, cap: Cap | None = None) -> Curvature:
        """What is known to second order over a ball, or part of it; hints for multipliers are asked for."""
        network, ball = self._run.network, self._run.region
        if not isinstance(ball, Ball):
            raise ProofFailed("second-order bounds are about balls only")
        fewer, reduced = None, _ready(self.network).reduction
        if network is self.network and reduced is not None:
            fewer = Fewer(reduced.network.layers[0].weight, reduced.rows, reduced.stretch)
        centers = trajectory(_ready(network).extended, ball.center)
        return Curvature(network, ball, centers, self._run.intervals, choose, fewer, cap)


def output_at(network: Network, point: Array) -> Interval:
    """The output at a point as computed, and at least its rounding error."""
    with proving(network):
        return trajectory(_ready(network).extended, point)[-1]


def establish(network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure] = BOTH) -> Facts:
    """Prove the facts about a network over a region with the multipliers of a method."""
    check_question(network, region, method, enclosures)
    with proving(network):
        return _establish(network, [region], method, tuple(enclosures))[0]


def establish_balls(
    network: Network, balls: Sequence[Ball], method: Method, enclosures: Sequence[Enclosure] = BOTH
) -> list[Facts | ProofFailed]:
    """The facts for several balls around one centre, or why there are none for one of them."""
    for ball in balls:
        check_question(network, ball, method, enclosures)
    with proving(network):
        if len(balls) > 1:
            try:
                return list(_establish(network, balls, method, tuple(enclosures)))
            except ProofFailed:
                pass  # of some ball: then each for itself
        found: list[Facts | ProofFailed] = []
        for ball in balls:
            try:
                found += _establish(network, [ball], method, tuple(enclosures))
            except ProofFailed as error:
                found.append(error)
        return found


def _establish(
    network: Network, regions: Sequence[Region], method: Method, enclosures: tuple[Enclosure, ...]
) -> list[Facts]:
    for region in regions:
        check_region(region, network.inputs)
    ready = _ready(network)
    inner, mapped, stretch = network, list(regions), 1.0
    if ready.reduction is not None and all(isinstance(region, Ball) and region.clip is None for region in regions):
        inner, stretch = ready.reduction.network, ready.reduction.stretch
        mapped = list(ready.reduction.images(regions))
    try:
        if isinstance(method, Greedy):
            runs = _Pass(inner, mapped, None, _Layerwise(method, enclosures)).run()
        else:
            runs = [_hinted(inner, region, method, enclosures) for region in mapped]
    except np.linalg.LinAlgError as error:
        raise ProofFailed(f"{method} found no bound: {error}; weights may be too large or ill-scaled") from error
    value, error_at = np.zeros(0), np.zeros(0)
    if regions[0].bounded:
        value, error_at = output_at(network, regions[0].center)
    facts = []
    for region, run in zip(regions, runs, strict=True):
        norm = up(np.ldexp(stretched(np.sqrt(largest_eigenvalue_above(run.S)), 2), run.exponent))
        bound = float(ROOM * stretched(stretch * np.minimum(norm, run.ceiling), 2))
        if not np.isfinite(bound):
            raise ProofFailed(f"{method} found no finite bound; try a smaller region or another method")
        facts.append(Facts(network, region, bound, value, error_at, stretch, run))
    return facts


def _hinted(network: Network, region: Region, method: Method, enclosures: tuple[Enclosure, ...]) -> _Run:
    """One region, with the hints of a method that looks at the network as a whole."""
    proof = method.solve(Problem(network, region, enclosures))
    if not proof.sweeps:
        raise InvalidInput(f"{method} keeps no multipliers, only a bound; take another, such as ClosedForm() or Auto()")
    known: tuple[Interval, ...] | None = None
    for sweep in proof.sweeps:
        run = _Pass(network, [region], known, _Given(sweep)).run()[0]
        known = tuple(run.intervals)
    if proof.cover is not None:
        run.ceiling = proof.cover.bound_of(network, region)
    return run


class _Guide(ABC):
    """Where multipliers and lines come from."""

    enclosures: tuple[Enclosure, ...]

    @abstractmethod
    def multipliers(self, stage: Stage, neurons: Array) -> Array:
        """T of what is kept of one layer of one region, relative to the stage's scale: these neurons, then others."""

    @abstractmethod
    def lines(self, which: int, index: int, neurons: Neurons, interval: Interval) -> tuple[Array, Array]:
        """Slopes of the lower and upper lines of one of the linear enclosures, for intervals (regions, neurons)."""


@dataclass(frozen=True, eq=False)
class _Layerwise(_Guide):
    method: Greedy
    enclosures: tuple[Enclosure, ...]

    def multipliers(self, stage: Stage, neurons: Array) -> Array:
        return self.method.choose(stage)

    def lines(self, which: int, index: int, neurons: Neurons, interval: Interval) -> tuple[Array, Array]:
        tilts = [enclosure.tilt for enclosure in self.enclosures if isinstance(enclosure, Linear)]
        lines = bounding_lines(neurons, *interval, tilts[which])
        return lines.lower_slope, lines.upper_slope


@dataclass(frozen=True, eq=False)
class _Given(_Guide):
    sweep: Sweep

    @property
    def enclosures(self) -> tuple[Enclosure, ...]:  # type: ignore[override]
        return self.sweep.enclosures

    def multipliers(self, stage: Stage, neurons: Array) -> Array:
        power = 2 * (self.sweep.exponents[stage.index] - stage.exponent)
        T = np.zeros(stage.alpha.shape)
        T[: neurons.size] = np.ldexp(self.sweep.multipliers[stage.index][neurons], power)
        return T

    def lines(self, which: int, index: int, neurons: Neurons, interval: Interval) -> tuple[Array, Array]:
        pair = self.sweep.lines[which * len(self.sweep.multipliers) + index]
        lower, upper = (np.broadcast_to(slope, interval[0].shape) for slope in pair)
        return lower, upper


class _Run:
    """What a pass has proved of one region so far.

    ``weight`` leads from the values that P speaks of to the next layer; ``whole`` is the ellipsoid there, if it was
    formed, and ``axes`` how far each neuron moves at most.
    """

    def __init__(self, network: Network, region: Region, linear: Sequence[Linear]) -> None:
        self.network, self.region = network, region
        self.traces = [Backward(network, region, enclosure.depth, ()) for enclosure in linear]
        self.intervals: list[Interval] = []
        self.multipliers: list[tuple[Array, int]] = []
        self.P: Array | None = None
        self.S = np.zeros((0, 0))
        self.exponent = 0
        self.weight = Near(network.layers[0].weight)
        self.whole: tuple[Array, int] | None = None
        self.axes = np.zeros(0)
        self.ceiling = np.inf
        """A bound of the whole network that was proved otherwise."""

    def arrive(self) -> None:
        """At the next layer, before its neurons' intervals are known."""
        self.whole = None if self.weight.may_pay else _through(self.P, self.weight, self.exponent)
        self.axes = _reach(self.P, self.weight, self.exponent) if self.whole is None else _axes(*self.whole)

    def activate(
        self, index: int, rough: tuple[Array, Array], sure: tuple[Array, Array], ahead: Weight, guide: _Guide
    ) -> None:
        """Through neurons with the given slopes, as computed and as proved; those with one slope may be left out."""
        size = len(self.axes)
        kept = carried(self.weight, *sure, self.axes == 0.0, ahead) if self.whole is None else None
        if kept is None:
            self.S, self.exponent = self.whole or _through(self.P, self.weight, self.exponent)
            self.weight, neurons = Near(ahead), np.arange(size)
        else:
            self.S, self.exponent = _through(self.P, kept.rows, self.exponent)
            ones = np.ones(len(kept.alpha) - kept.neurons.size)
            rough = tuple(np.concatenate([slope[kept.neurons], ones]) for slope in rough)  # type: ignore[assignment]
            sure, self.weight, neurons = (kept.alpha, kept.beta), kept.ahead, kept.neurons
        hint = guide.multipliers(Stage(index, self.S, self.exponent, *rough, self.weight.middle), neurons)
        step = activate(self.S, *sure, hint)
        self.multipliers.append((_used(step, neurons, size), self.exponent))
        self.P = step.P

    def finish(self) -> None:
        """At the output."""
        self.S, self.exponent = _through(self.P, self.weight, self.exponent)


class _Pass:
    """One proved sweep for several regions around one centre, as the checker's but for the source of its hints."""

    def __init__(
        self, network: Network, regions: Sequence[Region], known: tuple[Interval, ...] | None, guide: _Guide
    ) -> None:
        _check_weights(network)
        self.network, self.known, self.guide = network, known, guide
        enclosures = guide.enclosures if regions[0].bounded else ()
        linear = [enclosure for enclosure in enclosures if isinstance(enclosure, Linear)]
        self.runs = [_Run(network, region, linear) for region in regions]
        local = any(isinstance(enclosure, Lipschitz) for enclosure in enclosures)
        self.centers = trajectory(network, regions[0].center) if local else []

    def run(self) -> list[_Run]:
        """All layers."""
        for index, (layer, ahead) in enumerate(pairwise(self.network.layers)):
            assert layer.neurons is not None
            self._arrive(index)
            lower, upper = self._intervals(index)
            self._settle(index, layer.neurons, (lower, upper))
            rough = layer.neurons.slope_range(lower, upper)
            sure = slope_bounds(layer.neurons, lower, upper)
            for k, run in enumerate(self.runs):
                run.activate(index, (rough[0][k], rough[1][k]), (sure[0][k], sure[1][k]), ahead.weight, self.guide)
        for run in self.runs:
            run.finish()
        return self.runs

    def _arrive(self, index: int) -> None:
        first, *others = self.runs
        first.arrive()
        for run in others:
            if index:
                run.arrive()
            else:  # the first layer is the same for all
                run.whole, run.axes = first.whole, first.axes

    def _intervals(self, index: int) -> Interval:
        """Where the pre-activations of a layer lie, (regions, neurons)."""
        size = self.network.layers[index].size
        for run in self.runs:
            lower, upper = self.known[index] if self.known else (np.full(size, -np.inf), np.full(size, np.inf))
            if self.centers:
                value, error = self.centers[index]
                reach = stretched(radius_above(run.region) * run.axes + error, 2)
                lower, upper = np.fmax(lower, down(value - reach)), np.fmin(upper, up(value + reach))
            for trace in run.traces:
                lower, upper = trace.tightened(index, lower, upper, run.axes == 0.0)
            if not (lower <= upper).all():
                raise ProofFailed(f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
            run.intervals.append((lower, upper))
        lows, highs = zip(*(run.intervals[index] for run in self.runs), strict=True)
        return np.stack(lows), np.stack(highs)

    def _settle(self, index: int, neurons: Neurons, interval: Interval) -> None:
        """Lines around the activations of a layer, for all regions at once."""
        for which in range(len(self.runs[0].traces)):
            slopes = self.guide.lines(which, index, neurons, interval)
            relaxed = relax(neurons, *interval, *slopes)
            columns = [getattr(relaxed, column.name) for column in fields(relaxed)]
            for k, run in enumerate(self.runs):
                run.traces[which].relaxations.append(Relaxation(*(column[k] for column in columns)))


def _above_output(trace: Backward, rows: Array) -> Array:
    """At least max over the region of rows·v_N by one linear relaxation; NaN, from an overflow, says nothing."""
    layer, last = trace.network.layers[-1], trace.network.depth - 1
    through, shift = times(rows, layer.weight), rows @ layer.bias
    # the rounding of these two products multiplies activations that are bounded
    below = trace._below(last)
    missed = np.abs(rows) @ (spread(magnitude(layer.weight), below) + np.abs(layer.bias))
    value = trace._above(last, through)
    charge = gamma(rows.shape[-1] + LOOSE + 4) * missed * UP + TINY * (1.0 + below.sum())
    charge = charge + 4.0 * gamma(1) * (np.abs(value) + np.abs(shift) + charge)
    return np.asarray(up(value + (shift + charge)))


def _used(step: Step, neurons: Array, size: int) -> Array:
    """The multipliers T of a layer's neurons that a step was proved with, zero where none is needed."""
    T = np.zeros(size)
    active = step.active[step.active < neurons.size]
    T[neurons[active]] = (step.lifted / (step.g * step.g))[: active.size]
    return T


@dataclass(frozen=True, eq=False)
class _Ready:
    """What every question about one network shares."""

    extended: Network
    """The same function, its output held by neurons of the identity."""
    reduction: Reduction | None


_prepared: WeakKeyDictionary[Network, _Ready] = WeakKeyDictionary()


def _ready(network: Network) -> _Ready:
    if network not in _prepared:
        _prepared[network] = _Ready(held(network), reduction(network))
    return _prepared[network]
