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
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Region
from lipcert.proof.backsubstitution import BackSubstitution
from lipcert.proof.bowls import Bowls, Spread
from lipcert.proof.checker import ROOM
from lipcert.proof.cover import Cover, prove_tree
from lipcert.proof.domain import Domain, check_region, radius_above
from lipcert.proof.guide import Guide, given
from lipcert.proof.hints import Hints, Interval
from lipcert.proof.margins import Cut, Margins
from lipcert.proof.near import congruence, largest_eigenvalue_above
from lipcert.proof.norm_product import norm_ellipsoid
from lipcert.proof.point import held, trajectory
from lipcert.proof.projection import Projection, projection
from lipcert.proof.rounding import TINY, UP, down, gamma, norm_above, stretched, up
from lipcert.proof.second_order import Cap, Choice, FirstLayer, SecondOrder
from lipcert.proof.sweep import Centers, Sweep, proving, stacked
from lipcert.proof.tree import Tree


@dataclass(frozen=True, eq=False)
class OutputBounds:
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

    def told(self) -> tuple[tuple[Hints, ...], Tree | None]:
        """The hints, and the pieces if there are any, from which all this can be derived again."""
        return self.sweeps, self.tree

    def at_most(self, bound: float) -> OutputBounds:
        """The same with a bound of the network, on the inputs that proofs are made for, that is known otherwise."""
        return replace(self, bound=min(self.bound, float(ROOM * stretched(np.asarray(self._stretch * bound), 2))))

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
        S = np.ldexp(self._S, 2 * self._exponent) * (self._stretch * self._stretch)
        charge = 4.0 * gamma(1) * np.abs(S).sum(axis=1) * UP + len(S) * TINY
        lifted = np.array(S)
        np.fill_diagonal(lifted, up(np.diagonal(S) + charge))
        return lifted

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
            axes = up(np.ldexp(stretched(np.sqrt(squares), 1), self._exponent))
            return np.fmin(stretched(self._stretch * axes, 2), stretched(self.bound * norm_above(rows), 2))

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
        ((value, error),) = _values(self.network, [ball])
        told = tuple(replace(one, enclosures=(), lines=()) for one in self.sweeps)
        return replace(self, region=ball, value=value, error=error, _inner=ball, _told=told)

    def box(self) -> Interval:
        """Where the outputs lie: centre ± δ·axes, cut by the linear relaxation."""
        eye = np.eye(self.network.outputs)
        with np.errstate(all="ignore"):
            reach = stretched(radius_above(self.region) * self.lipschitz(eye) + self.error, 2)
            lower, upper = down(self.value - reach), up(self.value + reach)
        above = self.above(np.concatenate([eye, -eye]))
        return np.fmax(lower, -above[len(eye) :]), np.fmin(upper, above[: len(eye)])

    def second_order(self, choose: Choice, cap: Cap | None = None) -> SecondOrder:
        """What is known to second order over a ball, or part of it; hints for multipliers are asked for."""
        network, ball = self._sweep.network, self._inner
        if not isinstance(ball, Ball) or not ball.plain:
            raise ProofFailed("second-order bounds are about ℓ2 balls only")
        first, projected = None, _ready(self.network).projection
        if network is self.network and projected is not None:
            first = FirstLayer(projected.network.layers[0].weight, projected.rows, projected.stretch)
        with proving():
            centers = trajectory(_ready(network).extended, ball.center[None])
        return SecondOrder(network, ball, [(v[0], e[0]) for v, e in centers], self.intervals, choose, first, cap)

    def margins(self, cuts: Sequence[Cut] = ()) -> Margins:
        """What value functions know over a ball, or the part of it where some neurons are confined.

        A box that cuts the ball counts in the intervals only, so that the network may have fewer inputs.
        """
        if not isinstance(self.region, Ball) or not self.region.plain:
            raise ProofFailed("value functions are about balls of the ℓ2 norm only")
        network, ball = projected(self.network, Ball(self.region.center, self.region.radius))
        assert isinstance(ball, Ball)
        with proving():
            return Margins(network, ball, self.intervals, cuts)

    def bowls(self) -> Bowls:
        """What parabolas of any slope are drawn from over a ball."""
        network, ball = self._sweep.network, self._inner
        if not isinstance(ball, Ball) or not ball.plain:
            raise ProofFailed("parabolas of any slope are about balls of the ℓ2 norm only")
        spreads = []
        for view in self._sweep.views:
            neurons, S = view.known(self._which)
            spreads.append(Spread(S, int(view.exponent[self._which]), neurons))
        with proving():
            centers = trajectory(_ready(network).extended, ball.center[None])
            return Bowls(network, ball, [(v[0], e[0]) for v, e in centers], self.intervals, spreads)


def output_at(network: Network, points: Array, quickly: bool = False) -> Interval:
    """The outputs at points (count, inputs) as computed, and at least their rounding errors, more of them quickly."""
    with proving():
        return trajectory(_ready(network).extended, points, quickly)[-1]


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
        bound = stretched(np.ldexp(np.sqrt(largest_eigenvalue_above(S)), exponent), 2)
        _products[network] = _Product(network, float(ROOM * bound), S[None], np.array([exponent]))
    found = _products[network]
    known = before is not None and before.network is network and np.array_equal(before.region.center, region.center)
    value = (before.value, before.error) if known and before is not None else _values(network, [region])[0]
    return OutputBounds(network, region, found.bound, *value, 1.0, region, found, 0)  # type: ignore[arg-type]


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
            sweep = Sweep(target, domain, given(hints, target, inner.bounded), known).run(needs_bound=last)
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
    value: Interval,
    sweep: Sweep,
    which: int,
    ceiling: float = np.inf,
) -> OutputBounds:
    ready = _ready(network).projection
    stretch = 1.0 if sweep.network is network or ready is None else ready.stretch
    bound = float(ROOM * stretched(stretch * np.minimum(sweep.bounds[which], ceiling), 2))
    if not np.isfinite(bound):
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    return OutputBounds(network, region, bound, *value, stretch, inner, sweep, which)


def _values(network: Network, regions: Sequence[Region]) -> list[Interval]:
    """The outputs at the centres, empty for regions that have none."""
    centers = {region.center.tobytes(): region.center for region in regions if region.bounded}
    found: dict[bytes, Interval] = {}
    for name, center in centers.items():
        value, error = output_at(network, center[None])
        found[name] = value[0], error[0]
    return [found[region.center.tobytes()] if region.bounded else (np.zeros(0), np.zeros(0)) for region in regions]


@dataclass(frozen=True, eq=False)
class _Ready:
    """What every question about one network shares."""

    extended: Network
    """The same function, its output held by neurons of the identity."""
    projection: Projection | None


_prepared: WeakKeyDictionary[Network, _Ready] = WeakKeyDictionary()


def _ready(network: Network) -> _Ready:
    if network not in _prepared:
        _prepared[network] = _Ready(held(network), projection(network))
    return _prepared[network]
