"""What is proved of the outputs of a network over a region: their ellipsoid and their box, not only a bound.

Reach sets, sensitivities, certified radii and campaigns rest on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.backsubstitution import BackSubstitution
from lipcert.kernel.checker import ROOM
from lipcert.kernel.cover import Cover, prove_tree
from lipcert.kernel.domain import Domain, check_region, radius_above
from lipcert.kernel.dual_bound import Cut, DualBound
from lipcert.kernel.guide import Guide
from lipcert.kernel.hints import Hints, Interval
from lipcert.kernel.near import Approx, Near, congruence, largest_eigenvalue_above
from lipcert.kernel.norm_product import norm_ellipsoid
from lipcert.kernel.point import held, trajectory
from lipcert.kernel.projection import Projection, projection
from lipcert.kernel.quadratic_relaxation import QuadraticRelaxation, Spread
from lipcert.kernel.rounding import inflate, norm_above, up
from lipcert.kernel.sweep import Centers, Sweep, proving, stacked
from lipcert.kernel.tree import Tree
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Region
from lipcert.suggest.replay import StoredGuide


@dataclass(frozen=True, eq=False)
class OutputBounds:
    """Proved of one network over one region.

    Attributes
    ----------
    network, region : what is spoken of.
    bound : ‖Δv_N‖ ≤ bound·‖Δz_0‖ for any two inputs of the region.
    output : at the centre; empty without a centre.
    """

    network: Network
    region: Region
    bound: float
    output: Near
    _stretch: float
    _inner: Region
    _sweep: Sweep = field(repr=False)
    _which: int
    _earlier: tuple[BackSubstitution, ...] = field(default=(), repr=False)
    _told: tuple[Hints, ...] = field(default=(), repr=False)
    tree: Tree | None = field(default=None, repr=False)
    """The pieces over which the bound was proved, if it was."""

    @cached_property
    def sweeps(self) -> tuple[Hints, ...]:
        """The hints that prove all of this again."""
        if isinstance(self._sweep, _Product):
            return ()
        return self._told or (self._sweep.hints(self._which),)

    @property
    def subject(self) -> tuple[Network, Region]:
        """The network and the region that the hints are about: :func:`projected`."""
        return self._sweep.network, self._inner

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Where the pre-activations of each hidden layer lie."""
        return tuple((lower[self._which], upper[self._which]) for lower, upper in self._sweep.intervals)

    @property
    def multipliers(self) -> tuple[tuple[Array, int], ...]:
        """About the T of each hidden layer that the proof used, relative to 4**exponent, and the exponent."""
        pairs = zip(self._sweep.views, self._sweep.steps, strict=True)
        return tuple((v.widen(s.multipliers)[self._which], int(v.exponent[self._which])) for v, s in pairs)

    @property
    def ellipsoid(self) -> Array:
        """Ŝ with Δv_N Δv_Nᵀ ≼ ‖Δz_0‖² Ŝ, (outputs, outputs)."""
        stretch = np.full(self.network.outputs, self._stretch)
        # what underflows is far less than what is added to the diagonal
        return Approx(np.ldexp(self._S, 2 * self._exponent)).scaled(stretch, stretch).above()

    @property
    def _S(self) -> Array:
        return np.asarray(self._sweep.S[self._which])

    @property
    def _exponent(self) -> int:
        return int(self._sweep.exponent[self._which])

    def lipschitz(self, rows: Array) -> Array:
        """At least the Lipschitz constant of each combination rows·v_N of the outputs, for rows (k, outputs)."""
        with np.errstate(all="ignore"):
            squares = np.diagonal(congruence(self._S, rows))
            axes = up(np.ldexp(inflate(np.sqrt(squares), 1), self._exponent))
            return np.fmin(inflate(self._stretch * axes, 2), inflate(self.bound * norm_above(rows), 2))

    def above(self, rows: Array) -> Array:
        """At least max over the region of rows·v_N by linear relaxation, (k,); infinite where there is none."""
        best = np.full(len(rows), np.inf)
        with np.errstate(all="ignore"):
            found = (trace.above_output(self._which, rows) for trace in (*self._earlier, *self._sweep.traces))
            return np.fmin.reduce([best, *found])

    def around(self, ball: Ball) -> OutputBounds:
        """The same over a ball: what holds for all inputs holds there. Hints are those of a sweep without intervals."""
        if self.region.bounded or self.tree is not None:
            raise ProofFailed("only what is proved for all inputs can be said of a ball")
        check_region(ball, self.network.inputs)
        (output,) = _values(self.network, [ball])
        told = tuple(replace(one, enclosures=(), lines=()) for one in self.sweeps)
        return replace(self, region=ball, output=output, _inner=ball, _told=told)

    def box(self) -> Interval:
        """Where the outputs lie: centre ± δ·axes, cut by the linear relaxation."""
        eye = np.eye(self.network.outputs)
        with np.errstate(all="ignore"):
            reach = inflate(radius_above(self.region) * self.lipschitz(eye) + self.output.error, 2)
            around, above = Near(self.output.value, reach), self.above(np.concatenate([eye, -eye]))
            return np.fmax(around.below, -above[len(eye) :]), np.fmin(around.above, above[: len(eye)])

    def dual_bound(self, cuts: Sequence[Cut] = ()) -> DualBound:
        """What value functions know over a ball, or the part of it where some neurons are confined.

        A box that cuts the ball counts in the intervals only, so that the network may have fewer inputs.
        """
        if not isinstance(self.region, Ball) or not self.region.plain:
            raise ProofFailed("value functions are about balls of the ℓ2 norm only")
        network, ball = projected(self.network, Ball(self.region.center, self.region.radius))
        assert isinstance(ball, Ball)
        with proving():
            return DualBound(network, ball, self.intervals, cuts)

    def quadratic_relaxation(self) -> QuadraticRelaxation:
        """What parabolas of any slope are drawn from over a ball."""
        network, ball = self._sweep.network, self._inner
        if not isinstance(ball, Ball) or not ball.plain:
            raise ProofFailed("parabolas of any slope are about balls of the ℓ2 norm only")
        spreads = []
        for view in self._sweep.views:
            neurons, S = view.known(self._which)
            spreads.append(Spread(S, int(view.exponent[self._which]), neurons))
        with proving():
            return QuadraticRelaxation(network, ball, _path(network, ball), self.intervals, spreads)


def output_at(network: Network, points: Array, quickly: bool = False) -> Near:
    """The outputs at points (count, inputs), with larger errors quickly."""
    with proving():
        return Near(*trajectory(_ready(network).extended, points, quickly)[-1])


def _path(network: Network, ball: Ball) -> list[tuple[Array, Array]]:
    """The pre-activations at the centre and their errors, those of the outputs last."""
    with proving():
        return [(v[0], error[0]) for v, error in trajectory(_ready(network).extended, ball.center[None])]


def projected(network: Network, region: Region) -> tuple[Network, Region]:
    """The network and the region that proofs about a region's outputs are made for: on fewer inputs where that pays."""
    ready = _ready(network).projection
    if ready is None or not isinstance(region, Ball) or region.clip is not None or not region.plain:
        return network, region
    return ready.network, ready.image(region)


def outputs_asked(network: Network, regions: Sequence[Region], guide: Guide) -> list[OutputBounds | ProofFailed]:
    """What a guide that is asked for multipliers leads to over each region, or why nothing is proved."""
    for region in regions:
        check_region(region, network.inputs)
    inner = [projected(network, region) for region in regions]
    mapped = [region for _, region in inner]
    answers: list[OutputBounds | ProofFailed] = [ProofFailed("")] * len(regions)
    for target in dict.fromkeys(target for target, _ in inner):
        members = [number for number, (mine, _) in enumerate(inner) if mine is target]
        centers = Centers(target)

        def sweep(
            domain: Domain | None, some: Sequence[Region], target: Network = target, centers: Centers = centers
        ) -> list[tuple[Sweep, int]]:
            run = Sweep(target, domain, guide, centers=centers).run()
            return [(run, which) for which in range(len(some))]

        found = stacked(target, [mapped[number] for number in members], sweep)
        values = _values(network, [regions[number] for number in members])
        for number, answer, value in zip(members, found, values, strict=True):
            if isinstance(answer, ProofFailed):
                answers[number] = answer
                continue
            try:
                answers[number] = _bounds(network, regions[number], mapped[number], value, *answer)
            except ProofFailed as error:
                answers[number] = error
    return answers


@dataclass(frozen=True, eq=False)
class _Product:
    """The product of norms in the place of a sweep: nothing is known of single neurons."""

    network: Network
    bound: float
    S: Array
    exponent: Array
    intervals: Sequence[Interval] = ()
    traces: Sequence[BackSubstitution] = ()


_products: WeakKeyDictionary[Network, _Product] = WeakKeyDictionary()


def outputs_by_norms(network: Network, region: Region, before: OutputBounds | None = None) -> OutputBounds:
    """What the product of norms tells, found once for a network; it needs no hints, and says nothing of intervals.

    With what it told of a region with the same centre, outputs there are not computed again.
    """
    check_region(region, network.inputs)
    if network not in _products:
        S, exponent = norm_ellipsoid(network)
        bound = inflate(np.ldexp(np.sqrt(largest_eigenvalue_above(S)), exponent), 2)
        _products[network] = _Product(network, float(ROOM * bound), S[None], np.array([exponent]))
    found = _products[network]
    known = before is not None and before.network is network and np.array_equal(before.region.center, region.center)
    output = before.output if known and before is not None else _values(network, [region])[0]
    return OutputBounds(network, region, found.bound, output, 1.0, region, found, 0)  # type: ignore[arg-type]


def outputs_hinted(
    network: Network,
    region: Region,
    sweeps: Sequence[Hints],
    cover: Cover | None = None,
    tree: Tree | None = None,
) -> OutputBounds:
    """What hints prove, and a cover, or a tree of pieces that is proved again; all are about :func:`projected`."""
    check_region(region, network.inputs)
    target, inner = projected(network, region)
    known: Sequence[Interval] = ()
    traces: list[BackSubstitution] = []
    if not sweeps:
        raise ProofFailed("there are no multipliers to prove a bound from")
    with proving():
        domain = Domain.of([inner]) if inner.bounded else None
        for position, hints in enumerate(sweeps, 1):
            last = position == len(sweeps)
            sweep = Sweep(target, domain, StoredGuide(hints, target, inner.bounded), known).run(needs_bound=last)
            known = sweep.intervals
            traces += [] if last else sweep.traces
        ceiling = np.inf if tree is None else prove_tree(target, inner, tree, sweeps)
        if cover is not None:
            ceiling, tree = cover.bound_of(target, inner), cover.tree()
        (value,) = _values(network, [region])
        found = _bounds(network, region, inner, value, sweep, 0, ceiling)
        return replace(found, _earlier=tuple(traces), _told=tuple(sweeps), tree=tree)


def _bounds(
    network: Network,
    region: Region,
    inner: Region,
    output: Near,
    sweep: Sweep,
    which: int,
    ceiling: float = np.inf,
) -> OutputBounds:
    ready = _ready(network).projection
    stretch = 1.0 if sweep.network is network or ready is None else ready.stretch
    bound = float(ROOM * inflate(stretch * np.minimum(sweep.bounds[which], ceiling), 2))
    if not np.isfinite(bound):
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    return OutputBounds(network, region, bound, output, stretch, inner, sweep, which)


def _values(network: Network, regions: Sequence[Region]) -> list[Near]:
    """The outputs at the centres, empty for regions that have none."""
    centers = {region.center.tobytes(): region.center for region in regions if region.bounded}
    found = {name: output_at(network, center[None])[0] for name, center in centers.items()}
    return [found[region.center.tobytes()] if region.bounded else Near.of(np.zeros(0)) for region in regions]


@dataclass(frozen=True, eq=False)
class _Ready:
    """What every question about one network shares; extended is :func:`held`."""

    extended: Network
    projection: Projection | None


_prepared: WeakKeyDictionary[Network, _Ready] = WeakKeyDictionary()


def _ready(network: Network) -> _Ready:
    if network not in _prepared:
        _prepared[network] = _Ready(held(network), projection(network))
    return _prepared[network]
