"""What is proved of the outputs of a network over a region: how fast they change, where they lie, and of which class.

Reach sets, sensitivities and certified radii are bundles of the facts that are made here. Hints come from outside;
whatever they say, the facts hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Approx, Near, congruence, inflate, norm_above, raised, underflow, up
from lipcert.kernel.branch_and_bound import Cover, JacobianEntries, OutputRows, PieceBounds, leaf_values
from lipcert.kernel.checker import rules_of
from lipcert.kernel.domain import check_region, corners, radius_above
from lipcert.kernel.enclosures import BackSubstitution, activated_ends, affine, held, jacobian, trajectory
from lipcert.kernel.facts import EllipsoidFact, Fact, LipschitzFact, PairsFact, Part, RowsFact, SlopesFact
from lipcert.kernel.jacobian import entries
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.norm_product import norm_product
from lipcert.kernel.quadratic_form import DualBound, QuadraticRelaxation, plain_ball
from lipcert.kernel.sweep import Sweep, chain, proving, stack_of
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Ball, LInf, Region
from lipcert.suggest.hints import DualHints, Guide, Hints, QuadraticHints, RowHints, StoredGuide, Tree

Group: TypeAlias = tuple[int, ...]
AnyFact = TypeVar("AnyFact", bound=Fact)


@dataclass(frozen=True, eq=False)
class OutputBounds:
    """Proved of one network over one region; the methods that return facts state what.

    Attributes
    ----------
    network, region : what is spoken of.
    bound : ‖Δv_N‖ ≤ bound·‖Δz_0‖ for any two inputs of the region.
    output : at the centre; empty without a centre.
    sweeps : the hints that prove all of this again.
    tree : the pieces over which the bound was proved, if it was.
    """

    network: Network
    region: Region
    bound: float
    output: Near
    sweeps: tuple[Hints, ...] = field(repr=False)
    _ellipsoid: tuple[Array, int] = field(repr=False)
    """S and e with Δv_N Δv_Nᵀ ≼ ‖Δz_0‖² 4**e·S."""
    _run: Sweep | None = field(default=None, repr=False)
    """None after the product of norms."""
    _which: int = 0
    _earlier: tuple[BackSubstitution, ...] = field(default=(), repr=False)
    tree: Tree | None = field(default=None, repr=False)

    @property
    def _sweep(self) -> Sweep:
        if self._run is None:
            raise ProofFailed("the product of norms says nothing of single neurons")
        return self._run

    def rules(self, by_pieces: bool = False) -> frozenset[str]:
        """The rules that all of this rests on, also where pieces of the region are bounded besides."""
        return rules_of(self.network, self.region, self.sweeps, by_pieces or self.tree is not None)

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Where the pre-activations of each hidden layer lie."""
        return tuple((lower[self._which], upper[self._which]) for lower, upper in self._sweep.intervals)

    def lipschitz(self, rows: Array) -> Array:
        """At least the Lipschitz constant of each combination rows·v_N of the outputs, for rows (k, outputs)."""
        S, exponent = self._ellipsoid
        with np.errstate(all="ignore"):
            axes = up(np.ldexp(inflate(np.sqrt(np.diagonal(congruence(S, rows))), 1), exponent))
            return np.fmin(axes, inflate(self.bound * norm_above(rows), 2))

    def above(self, rows: Array) -> Array:
        """At least max over the region of rows·v_N by linear relaxation, (k,); infinite where there is none."""
        best = np.full(len(rows), np.inf)
        with np.errstate(all="ignore"):
            traces = (*self._earlier, *(self._run.traces if self._run else ()))
            return np.fmin.reduce([best, *(trace.above_outputs(rows, [self._which])[0] for trace in traces)])

    def measured(self, bounds: Array) -> Array:
        """Bounds by ℓ2 norms, as bounds by the norm of the ball: ‖z‖₂ ≤ (largest ‖z‖₂ of its unit ball)·‖z‖."""
        ball = self.region
        if not isinstance(ball, Ball) or ball.plain:
            return bounds
        unit = norm_above(ball.units) if isinstance(ball.norm, LInf) else ball.units.max()
        return inflate(bounds * unit, 2)

    def made(self, kind: type[AnyFact], rules: Iterable[str], *content: Any) -> AnyFact:
        """A fact about the network and region of this; for the rules of this package alone."""
        return kind(self.network.digest, self.region, self.rules().union(rules), *content)

    @property
    def fact(self) -> LipschitzFact:
        """The bound."""
        return self.made(LipschitzFact, (), Part((0, self.network.depth)), self.bound)

    def slopes(self, rows: Array) -> SlopesFact:
        """How fast combinations of the outputs change."""
        rules = ["norms"] if isinstance(self.region, Ball) and not self.region.plain else []
        return self.made(SlopesFact, rules, rows, self.measured(self.lipschitz(rows)))

    def leads(self, label: int) -> RowsFact:
        """At most f_j - f_label at the centre, for the other classes j."""
        center, rows = self.region.center[None], -pairs(self.network.outputs, label)
        return at_points(self.network, center, rows, self.output[None])[0]

    def rows(self, rows: Array) -> RowsFact:
        """How large combinations of the outputs get, by linear relaxation."""
        return self.made(RowsFact, ["back-substitution"], rows, self.above(rows)[None])

    def box(self) -> RowsFact:
        """How large outputs and their negatives get: linear relaxation, interval arithmetic, and centre ± δ·axes."""
        both, (lower, upper) = both_sides(self.network.outputs), corners(self.region)
        with proving():
            axes = self.lipschitz(np.eye(self.network.outputs))
            near = Near(self.output.value, inflate(radius_above(self.region) * axes + self.output.error, 2))
            ends = lower[None], upper[None]
            for layer, (low, high) in zip(self.network.layers, self.intervals, strict=False):
                within = affine(layer, ends)
                ends = activated_ends(layer, (np.fmax(within[0], low), np.fmin(within[1], high)))
            (low,), (high,) = affine(self.network.layers[-1], ends)
            sides = [np.concatenate([high, -low]), np.concatenate([near.above, -near.below]), self.above(both)]
        return self.made(RowsFact, ["back-substitution"], both, np.fmin.reduce(sides)[None])

    def shape(self) -> EllipsoidFact:
        """Y - value = (y - f(c)) + (f(c) - value): the first is in δ²Ŝ, the second in the box of the error."""
        S, exponent = self._ellipsoid
        radius = np.full(len(S), radius_above(self.region))
        # what underflows is far less than what is added to the diagonal
        shape = Approx(np.ldexp(S, 2 * exponent)).above()
        shape = Approx(shape).scaled(radius, radius).sum_above(self.output.error)
        return self.made(EllipsoidFact, (), self.output.value, shape)

    def hinted(self, hints: Sequence[RowHints]) -> RowsFact:
        """How large the rows of some hints get over a ball."""
        rows, rules, limits = [np.asarray(one.row, dtype=float) for one in hints], set(), []
        for one, row in zip(hints, rows, strict=True):
            if row.shape != (self.network.outputs,):
                raise ProofFailed("a hint is not about outputs")
            if isinstance(one, QuadraticHints):
                rules.add("quadratic relaxation" if one.multipliers is None else "second order")
                limits.append(self.quadratic_relaxation.above(one))
            elif isinstance(one, DualHints):
                rules.add("dual")
                limits.append(self.dual_bound.above(one))
        return self.made(RowsFact, rules, np.array(rows), np.array(limits)[None])

    @cached_property
    def dual_bound(self) -> DualBound:
        """What the dual bound knows over a ball; a box that cuts the ball counts in the intervals only."""
        with proving():
            return DualBound(self.network, self.region, self.intervals)

    @cached_property
    def quadratic_relaxation(self) -> QuadraticRelaxation:
        """What a quadratic relaxation knows over a ball."""
        (ball, _), spreads = plain_ball(self.region), list[tuple[Array, Array]]()
        for index in range(self.network.depth - 1):
            neurons, S, exponent = self._sweep.ellipsoid(index, self._which)
            spreads.append((neurons, raised(np.ldexp(S, 2 * exponent), underflow(len(S)))))
        with proving():
            centers = [Near(v[0], error[0]) for v, error in trajectory(self.network, ball.center[None])]
            return QuadraticRelaxation(self.network, ball, centers, self.intervals, spreads)


def both_sides(outputs: int) -> Array:
    """Rows for every output, and for its negative."""
    return np.concatenate([np.eye(outputs), -np.eye(outputs)])


def pairs(outputs: int, label: int) -> Array:
    """Rows that take f_label - f_j from the outputs, for all other classes j."""
    eye = np.eye(outputs)
    return np.delete(eye[label] - eye, label, axis=0)


def over_pieces(base: OutputBounds, pieces: Cover | Tree) -> RowsFact:
    """How large outputs and their negatives get over pieces of the region."""
    leaves = leaf_values(OutputRows, pieces, base.network, base.region, base.sweeps)
    return base.made(RowsFact, base.rules(True), both_sides(base.network.outputs), leaves)


def derivatives_by_pieces(base: OutputBounds, pieces: Cover | Tree) -> PairsFact:
    """How large each entry of the Jacobian gets over pieces of the region."""
    with proving():
        least = leaf_values(JacobianEntries, pieces, base.network, base.region, base.sweeps).max(axis=0, initial=0.0)
    least = least.reshape(base.network.outputs, base.network.inputs)
    return base.made(PairsFact, base.rules(True), *_coordinates(least), least)


def derivatives(one: OutputBounds, by_ellipsoids: bool = False) -> PairsFact:
    """The same by an interval for each, or by ellipsoids of columns or rows."""
    with proving():
        slopes = _slopes(one)
        ends = [(alpha[None], beta[None]) for alpha, beta in slopes]
        least = entries(one.network, slopes) if by_ellipsoids else jacobian(one.network, ends).size[0]
    return one.made(PairsFact, (), *_coordinates(least), least)


def _coordinates(matrix: Array) -> tuple[tuple[Group, ...], ...]:
    """The single outputs and inputs that rows and columns are about."""
    return tuple(tuple((k,) for k in range(size)) for size in matrix.shape)


def pair_bound(base: OutputBounds, outputs: Group, inputs: Group, sweeps: Sequence[Hints]) -> PairsFact:
    """The same for one pair by hints of its own, the intervals being those of the whole network."""
    if any(hints.enclosures for hints in sweeps) or not sweeps:
        raise ProofFailed("the hints of a pair must be multipliers only: the region is one of all inputs")
    piece, known = base.network.select(inputs, outputs), [(low[None], high[None]) for low, high in base.intervals]
    with proving():
        bounds = [Sweep(piece, None, StoredGuide(hints, piece, False), known).run().bounds for hints in sweeps]
    return base.made(PairsFact, (), (outputs,), (inputs,), np.fmin.reduce(bounds)[None])


def _slopes(one: OutputBounds) -> list[Interval]:
    hidden = zip(one.network.layers[:-1], one.intervals, strict=True)
    return [slope_bounds(layer.neurons, *interval) for layer, interval in hidden if layer.neurons is not None]


def output_at(network: Network, points: Array) -> Near:
    """The outputs at points (count, inputs)."""
    with proving():
        return Near(*trajectory(held(network), points)[-1])


def at_points(network: Network, points: Array, rows: Array, output: Near | None = None) -> list[RowsFact]:
    """How large combinations of the outputs are at each of some points (count, inputs)."""
    output = output_at(network, points) if output is None else output
    limits = np.fmin((output @ rows.T).above, np.inf)  # an overflow gives NaN, which says nothing
    return [
        RowsFact(network.digest, Ball.of(point, np.zeros(()), None, PLAIN.input), frozenset(), rows, some[None])
        for point, some in zip(points, limits, strict=True)
    ]


def outputs_asked(network: Network, regions: Sequence[Region], guide: Guide) -> list[OutputBounds]:
    """What a guide that is asked for multipliers leads to over regions of one kind."""
    domain = stack_of(regions, network.inputs)
    with proving():
        run, values = Sweep(network, domain, guide).run(), _values(network, regions)
        known = zip(regions, values, strict=True)
        return [_swept(network, region, value, run, n) for n, (region, value) in enumerate(known)]


def outputs_hinted(
    network: Network, region: Region, sweeps: Sequence[Hints], pieces: Cover | Tree | None = None
) -> OutputBounds:
    """What hints prove, and a cover, or a tree of pieces that is proved again. Without hints, the product of norms."""
    if not sweeps:
        if pieces is not None:
            raise ProofFailed("there are no multipliers to prove a bound from")
        check_region(region, network.inputs)
        bound = norm_product(network)
        sphere = np.eye(network.outputs), int(np.frexp(bound)[1])  # bound² ≤ 4**exponent
        return OutputBounds(network, region, bound, _values(network, [region])[0], (), sphere)
    told, ceiling = tuple(one.bare for one in sweeps), np.inf
    tree = pieces.tree() if isinstance(pieces, Cover) else pieces
    with proving():
        *before, last = (one for one in chain(network, region, told) if isinstance(one, Sweep))
        if pieces is not None:
            ceiling = float(leaf_values(PieceBounds, pieces, network, region, sweeps).max(initial=0.0))
        found = _swept(network, region, _values(network, [region])[0], last, ceiling=ceiling)
    return replace(found, _earlier=tuple(trace for one in before for trace in one.traces), sweeps=told, tree=tree)


def _swept(
    network: Network, region: Region, output: Near, sweep: Sweep, which: int = 0, ceiling: float = np.inf
) -> OutputBounds:
    if sweep.start is not None:  # then ellipsoids are relative to ‖Δz_0/h‖, not to ‖Δz_0‖
        raise ProofFailed("ellipsoids of outputs begin with a unit ball, the hints begin with other axes")
    bound = float(np.minimum(sweep.bounds[which], ceiling))  # NaN stays NaN
    if not np.isfinite(bound):
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    ellipsoid = sweep.S[which], int(sweep.exponent[which])
    return OutputBounds(network, region, bound, output, (sweep.hints(which),), ellipsoid, sweep, which)


def _values(network: Network, regions: Sequence[Region]) -> list[Near]:
    """The outputs at the centres, empty for regions that have none."""
    centers = {region.center.tobytes(): region.center for region in regions if region.bounded}
    found = {name: output_at(network, center[None])[0] for name, center in centers.items()}
    return [found[region.center.tobytes()] if region.bounded else Near.of(np.zeros(0)) for region in regions]
