"""Branch and bound: pieces of a region, how they are cut, what is proved of each, and the ledger that keeps account.

A piece is a part of the input region (its intersection with a box) on which some neurons may be confined to
intervals. Every cut replaces a piece by two that together contain it. A Lipschitz bound of a piece holds for
‖W_N D_{N-1} … D_1 W_1‖ with every slope matrix that its intervals allow, hence for the Jacobian at every input of the
piece. The largest over pieces that cover a convex region bounds the Lipschitz constant there. Pieces go through a pass
as a stack of regions; every piece takes the least of all rules that apply.

A search suggests where to cut and which pieces have no input. Every suggestion is safe: whatever is cut, the leaves
cover the region, and their values are those that were proved here. So the values of a cover hold even if the search is
wrong. What a value bounds is the matter of a :class:`Bounding`: a Lipschitz constant, outputs, entries of a Jacobian.
A stored tree is proved again by the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, inflate, up
from lipcert.kernel.domain import Domain, corners, same_region
from lipcert.kernel.elementwise import elementwise
from lipcert.kernel.enclosures import activated, affine, jacobian
from lipcert.kernel.half_spaces import contradict
from lipcert.kernel.jacobian import interval_bounds
from lipcert.kernel.norms import induced_above, spectral_factor
from lipcert.kernel.sweep import Sweep, intervals, proving
from lipcert.kernel.taylor import MOST_INPUTS, Second, SecondOrder
from lipcert.model.activations import STRAIGHT
from lipcert.model.arrays import Array, Interval, frozen
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Ball, LInf, Norms, Region
from lipcert.suggest.hints import LEAF, Guide, Hints, Linear, Tree
from lipcert.suggest.multipliers import Hinted, advised, kinked

AXIS = -1
"""In the place of a cut neuron's layer: a cut along an axis of the input."""
_SLACK = 2.0**-40
"""Share of the sizes that are added up, by which sums in another order may differ."""
_STUCK = 0.9
"""A piece whose bound is above this share of that of the piece it is part of is swept again. Without, a controller of
tanh and hardtanh comes to 1.016 times the truth with 3,300 pieces, not to 1.010 with 1,400."""
_HALVINGS = 12
"""Of the search that makes a support function sharp; it is good to a thousandth then."""
_BACK = Linear(depth=None)
"""How the intervals of pieces are found."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Boxes (count, inputs), and what is known of each of them.

    Attributes
    ----------
    lower, upper : the sides of the boxes.
    low, high : the intervals of the pre-activations of all hidden neurons in a row, (count, neurons).
    values : what was proved of a piece, or of one that it is a part of, (count, rows).
    hints : multipliers that should serve a piece, for each neuron log2(T/(r² S_jj)); -inf where there are none.
    shares : about the share of the squared bound that each neuron's open slope is to blame for, 0 where its slope is a
        single number. Where nobody asks for advice, hints and shares have no columns.
    second : pieces that are bounded to second order only, (count,).
    """

    lower: Array
    upper: Array
    low: Array
    high: Array
    values: Array
    hints: Array
    shares: Array
    second: Array

    def __len__(self) -> int:
        return len(self.values)

    def take(self, which: Array | slice) -> Pieces:
        """Some of the pieces."""
        return Pieces(*(getattr(self, column.name)[which] for column in fields(self)))

    @staticmethod
    def stack(parts: list[Pieces]) -> Pieces:
        """The pieces of all parts, one after the other."""
        return Pieces(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Pieces)))

    def copy(self) -> Pieces:
        """Rows of their own, that keep no larger arrays alive and can be read only."""
        return Pieces(*(frozen(np.array(getattr(self, column.name))) for column in fields(self)))

    def put(self, which: Array, some: Pieces) -> None:
        """Write the rows of some of the pieces over."""
        for column in fields(self):
            getattr(self, column.name)[which] = getattr(some, column.name)


def children(pieces: Pieces, starts: Array, layer: Array, index: Array, value: Array) -> Pieces:
    """The two halves of each piece, in the order first, second, first, second, …

    ``starts`` tells where the neurons of each hidden layer begin. A box is halved at a float between its sides, which
    both halves share, or a neuron is confined to either side of a value, which both sides share: so the halves cover
    the piece.
    """
    twice = pieces.take(np.repeat(np.arange(len(pieces)), 2))
    below = 2 * np.arange(len(pieces))
    axis, neuron = layer == AXIS, layer != AXIS
    cut, at = below[axis], value[axis]
    if not ((twice.lower[cut, index[axis]] <= at) & (at <= twice.upper[cut, index[axis]])).all():
        raise ProofFailed("a box is cut outside its sides")
    twice.upper[cut, index[axis]] = twice.lower[cut + 1, index[axis]] = at
    cut, at, place = below[neuron], value[neuron], starts[layer[neuron]] + index[neuron]
    twice.high[cut, place] = np.minimum(twice.high[cut, place], at)
    twice.low[cut + 1, place] = np.maximum(twice.low[cut + 1, place], at)
    return twice


def has_taylor(network: Network) -> bool:
    """Whether pieces to second order say anything about a network: few inputs, and slopes that change."""
    groups = [group for layer in network.layers[:-1] if layer.plain for group in layer.plain.groups]
    bends = any(row.row.smooth and set(row.shape) != {STRAIGHT} for row, _ in groups)
    return network.inputs <= MOST_INPUTS and (network.coupled or bends)


class Bounding(ABC):
    """Proves values of pieces of one region, for one network: each is at least what it bounds, all over the piece.

    What ``sweeps`` prove of the whole region serves its parts, and the multipliers of the last of them do. Of a network
    with products or softmax the pieces are those of the same function with elementwise activations.

    Attributes
    ----------
    network, digest : the network itself, or the same function, and the digest of the network itself.
    root : the whole region as a piece.
    norms, start : in which Lipschitz bounds are, and what their sweeps begin with.
    rows : how many values each piece has.
    least : the value of a piece without inputs.
    carries : whether values need the ellipsoids of a sweep; if not, intervals and slopes do.
    coarse : how much larger values to second order may be than those to first order where parts have the former only.
    slack : (rows,), what another order of sums may change of a value, at least about.
    """

    least: ClassVar[float] = 0.0
    carries: ClassVar[bool] = False
    coarse: ClassVar[float] = 1.0
    norms: Norms = PLAIN
    start: Array | None = None

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints], rows: int) -> None:
        self.digest, known, last = network.digest, intervals(network, region, sweeps), tuple(sweeps[-1:])
        if network.coupled:  # multipliers are about other layers then
            (network, known), last = elementwise(network, known), ()
        self.network, self.region, self.sweeps, self.rows = network, region, tuple(sweeps), rows
        self.starts = frozen(np.cumsum([0, *network.sizes[1:-1]]))
        self.slices = [slice(begin, end) for begin, end in pairwise(self.starts)]
        self.curved = SecondOrder(network) if region.bounded and has_taylor(network) else None
        self.enclosures = (_BACK,) if region.bounded else ()
        whole = np.full(network.inputs, np.inf)
        lower, upper = corners(region) if region.bounded else (-whole, whole)
        high = np.full((1, self.starts[-1]), np.inf)
        low, high = _joined(known) if known else (-high, high)
        values, blank = np.full((1, rows), np.inf), np.zeros((1, 0))
        root = Pieces(lower[None], upper[None], low, high, values, blank, blank, np.zeros(1, dtype=bool))
        with proving():
            guide = Hinted.absolute(last[0] if last else None, *self.enclosures)
            first = self.sweep(root, guide).run(self.carries)
            low, high = _joined(first.intervals)
            hints, shares = advised(first, False) if self.carries else (blank, blank)
            self.slack = _SLACK * self.sizes(first)
        self.root = replace(root, low=low, high=high, hints=hints, shares=shares).copy()

    def bound(self, pieces: Pieces) -> Pieces:
        """Prove the values of each piece: the least of all rules that apply."""
        if self.curved is None:
            return self._first_order(pieces)
        found = pieces.take(np.arange(len(pieces)))
        with proving():
            found.values[self.domain(pieces).outside()] = self.least
        inside = np.flatnonzero((found.values > self.least).any(axis=-1))
        if inside.size:
            found.put(inside, self._second_order(self.curved, found.take(inside)))
        return found

    def _first_order(self, pieces: Pieces) -> Pieces:
        """The values that follow from slopes; of pieces that gain little once more, by the hints that they now have."""
        found = self._swept(pieces)
        stuck = np.flatnonzero((found.values > np.maximum(_STUCK * pieces.values, self.least)).any(axis=-1))
        if self.carries and stuck.size:
            again = self._swept(found.take(stuck), enclose=False)
            better = np.flatnonzero((again.values < found.values[stuck]).any(axis=-1))
            found = found.take(np.arange(len(found)))
            found.put(stuck[better], again.take(better))
        return found

    def _swept(self, pieces: Pieces, enclose: bool = True) -> Pieces:
        """The values that follow from the slopes that the intervals of each piece allow."""
        with proving():
            sweep = self.sweep(pieces, enclose=enclose).run(self.carries)
            values = np.fmin(self.to_first_order(sweep), pieces.values)
            values[sweep.empty] = self.least
            hints, shares = advised(sweep, True) if self.carries else (pieces.hints, pieces.shares)
        low, high = _joined(sweep.intervals, len(pieces))
        return replace(pieces, low=low, high=high, values=values, hints=hints, shares=shares)

    def _second_order(self, curved: SecondOrder, pieces: Pieces) -> Pieces:
        """The values to second order and, where that pays, to first order.

        Intervals that are found to second order are not kept: those of a part are as soon found again.
        """
        with proving():
            second = curved.bound(pieces.lower, pieces.upper, self.layers(pieces.low), self.layers(pieces.high))
            values = self.to_second_order(second)
        found = replace(pieces, values=np.fmin(values, pieces.values))
        found.values[second.empty] = self.least
        rest = np.flatnonzero(~pieces.second & ~second.empty)
        if rest.size:
            first = self._first_order(replace(pieces, low=second.low, high=second.high).take(rest))
            soon = (values[rest] <= self.coarse * first.values).mean(axis=-1) >= 0.5  # of most values
            soon &= ~kinked(self.network, self.layers(first.low), self.layers(first.high))
            least = np.fmin(first.values, found.values[rest])
            found.put(rest, replace(first, values=least, second=soon))
        return found

    @abstractmethod
    def to_first_order(self, sweep: Sweep) -> Array:
        """The values of the pieces of a sweep, (count, rows); NaN proves nothing."""

    @abstractmethod
    def to_second_order(self, second: Second) -> Array:
        """The values of pieces that are known to second order, (count, rows); NaN proves nothing."""

    def sizes(self, sweep: Sweep) -> Array:
        """About how large the numbers are that are added up, (rows,); zero if a value cannot be small beside them."""
        return np.zeros(self.rows) if self.carries else np.abs(self.to_first_order(sweep)[0])

    def is_void(self, piece: Pieces, weights: Array) -> bool:
        """Prove that no input of one piece has its neurons inside their intervals, by weights λ (neurons,).

        The intervals ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above,
        or over all of space half-spaces contradict each other.
        """
        with proving():
            if not self.region.bounded:
                none = np.zeros(0, dtype=int)
                return bool(self.void_sides(piece, np.zeros(1, dtype=int), weights[None], none, np.zeros(0))[0])
            sweep = self.sweep(piece).run(needs_bound=False)
            if sweep.empty[0]:
                return True
            low, high = piece.low[0], piece.high[0]
            least_at = np.where(weights > 0.0, low, np.where(weights < 0.0, high, 0.0))
            least = (Near.of(weights) * least_at).sum().below
            extra = self.layers(weights[None])
            rows = np.zeros((1, self.network.sizes[-2]))
            return bool(sweep.traces[0].above(len(extra), np.zeros(1, dtype=int), rows, extra)[0] < least)

    def void_sides(self, pieces: Pieces, of: Array, weights: Array, place: Array, value: Array) -> Array:
        """Which weights (cuts, neurons) prove that nothing of a piece of all of space is on one side of a cut.

        Cuts are at values of neurons, each of one of the pieces; the side is above the value where the neuron's weight
        is positive. No cuts: of the pieces themselves.
        """
        ends = np.where(weights > 0.0, pieces.low[of], pieces.high[of])
        ends[np.arange(len(place)), place] = value
        known = list(zip(self.layers(pieces.low), self.layers(pieces.high), strict=True))
        with proving():
            return contradict(self.network, known, weights, ends, of)

    def sweep(self, pieces: Pieces, guide: Guide | None = None, enclose: bool = True) -> Sweep:
        """A sweep over pieces, that has not been run; by their own hints, or those of a guide."""
        known = list(zip(self.layers(pieces.low), self.layers(pieces.high), strict=True))
        guide = guide or Hinted.relative(self.layers(pieces.hints), *self.enclosures)
        given = self.domain(pieces), guide, known, True, enclose, self.norms, self.start
        return Sweep(self.network, *given)

    def domain(self, pieces: Pieces) -> Domain:
        """Where the inputs of pieces lie."""
        if isinstance(self.region, Ball) and not isinstance(self.region.norm, LInf):
            center = np.broadcast_to(self.region.center, pieces.lower.shape)
            radius = np.full(len(pieces), float(self.region.radius))
            return Domain(center, radius, pieces.lower, pieces.upper, _HALVINGS).measured([self.region])
        center = 0.5 * pieces.lower + 0.5 * pieces.upper if self.region.bounded else np.zeros(pieces.lower.shape)
        return Domain(center, None, pieces.lower, pieces.upper)

    def halves(self, pieces: Pieces, layer: Array, index: Array, value: Array) -> Pieces:
        """The two halves of each piece, one after the other, no larger than what they have of the region."""
        self.check_cuts(AXIS, layer, index, value)
        found = children(pieces, self.starts, layer, index, value)
        lower, upper = self.domain(found).inner_box()
        return replace(found, lower=lower, upper=upper)

    def check_cuts(self, first: int, layer: Array, index: Array, value: Array) -> None:
        """An error unless cuts, of layers from the first one on, are of what the network has."""
        limits = np.array([self.network.inputs, *self.network.sizes[1:-1]])
        there = (layer >= first).all() and (layer < len(limits) - 1).all() and np.isfinite(value).all()
        if not there or (index < 0).any() or (index >= limits[layer + 1]).any():
            raise ProofFailed("the tree cuts something that the network does not have")

    def layers(self, values: Array) -> list[Array]:
        """Values of all hidden neurons in a row (count, neurons), per layer."""
        return [values[:, part] for part in self.slices]


class PieceBounds(Bounding):
    """Lipschitz bounds of pieces, one row: at least ‖W_N D_{N-1} … D_1 W_1‖ for all slopes of a piece."""

    carries = True
    coarse = 3.0
    """With 1 a piece of tanh 4-64-64-1 takes twice the time, with 10 bounds of deep networks are 1.4 as large."""

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = (), norms: Norms = PLAIN) -> None:
        self.norms = norms
        if norms.input.name == "linf":
            start = sweeps[-1].start if sweeps else None
            self.start = np.ones(network.inputs) if start is None else start
        super().__init__(network, region, sweeps, 1)

    def to_first_order(self, sweep: Sweep) -> Array:
        found = sweep.bounds if self.norms.plain else np.fmin(sweep.bounds, interval_bounds(sweep))
        return found[:, None]

    def to_second_order(self, second: Second) -> Array:
        if self.norms.plain:
            return second.bounds[:, None]
        sizes = second.entries
        found = induced_above(Near(np.zeros(sizes.shape), sizes), self.norms)
        factor = spectral_factor(self.norms, *sizes.shape[1:])
        return np.fmin(found, inflate(second.bounds * factor, 1))[:, None]


class OutputRows(Bounding):
    """Outputs: row i is at least v_i, row outputs + i at least -v_i, all over a piece."""

    least = -np.inf

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = ()) -> None:
        super().__init__(network, region, sweeps, 2 * network.outputs)

    def to_second_order(self, second: Second) -> Array:
        return second.outputs

    def to_first_order(self, sweep: Sweep) -> Array:
        """By back-substitution, and by the intervals of the last hidden layer, if there is one."""
        eye, domain = np.eye(self.network.outputs), sweep.domain
        assert domain is not None
        neurons = self.network.layers[-2].neurons if sweep.intervals else None
        before = domain.inner_box() if neurons is None else activated(neurons, sweep.intervals[-1])
        lower, upper = affine(self.network.layers[-1], before)
        above = sweep.traces[0].above_outputs(np.concatenate([eye, -eye]))
        return np.fmin(above, np.concatenate([upper, -lower], axis=-1))

    def sizes(self, sweep: Sweep) -> Array:
        """Both ends of an output round alike."""
        upper, lower = np.split(super().sizes(sweep), 2)
        return np.tile(np.maximum(lower, upper), 2)


class JacobianEntries(Bounding):
    """Sizes of the entries of W_N D_{N-1} … D_1 W_1 for all slopes of a piece, (outputs · inputs), row by row."""

    def __init__(self, network: Network, region: Region, sweeps: Sequence[Hints] = ()) -> None:
        super().__init__(network, region, sweeps, network.outputs * network.inputs)

    def to_second_order(self, second: Second) -> Array:
        return second.entries.reshape(len(second.entries), -1)

    def to_first_order(self, sweep: Sweep) -> Array:
        sizes = jacobian(self.network, sweep.slopes).size
        return np.array(np.broadcast_to(sizes.reshape(len(sizes), -1), (sweep.count, self.rows)))


def _joined(intervals: Sequence[Interval], count: int = 1) -> Interval:
    """The intervals of all hidden neurons in a row, (count, neurons)."""
    blank = np.zeros((count, 0))
    low, high = (np.concatenate([blank, *(pair[k] for pair in intervals)], axis=-1) for k in (0, 1))
    return low, high


_CHUNK = 64
"""Pieces that are cut together when a tree is proved again; more would not be faster."""
_AGAIN = 2.0**-24
"""verify() batches pieces differently, so they round differently: room for that, relative to a value."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One piece that is not cut, and its number in the tree."""

    node: int
    piece: Pieces

    @property
    def bound(self) -> float:
        """The largest of the values."""
        return float(self.piece.values.max())


class Cover:
    """A region and the pieces that it was cut into.

    Of each node it is known what it is half of, and the layer, index and value of that cut. New leaves count all at
    once, so an interrupt at any moment leaves a cover.
    """

    def __init__(self, bounding: Bounding) -> None:
        self.bounding = bounding
        self._nodes: list[tuple[int, list[Any]]] = []
        self._leaves: dict[int, Leaf] = {}
        self._void: dict[int, Array] = {}
        self._passed: list[int] = []
        self._add(bounding.root, [(-1, [])])

    @property
    def pieces(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @property
    def values(self) -> Array:
        """At least what is bounded, all over the region, (rows,): the largest value of a leaf, row by row."""
        return self.leaves().max(axis=0, initial=self.bounding.least)

    @property
    def bound(self) -> float:
        """The largest of the values; of a cover for Lipschitz bounds, at least the constant over the region."""
        return float(self.values.max())

    def check(self, network: Network, region: Region, kind: type[Bounding], norms: Norms = PLAIN) -> Cover:
        """The cover itself, or an error if it is that of something else."""
        mine = self.bounding
        if network.digest != mine.digest or not same_region(region, mine.region):
            raise ProofFailed("the pieces are those of another network or region")
        if type(mine) is not kind or mine.norms != norms:
            raise ProofFailed("the values of the pieces bound something else than what is asked for, or in other norms")
        return self

    def leaf(self, node: int) -> Leaf:
        """A piece that is not cut."""
        if node not in self._leaves:
            raise ProofFailed("the pieces do not cover the region: a node is cut twice, or is no child of another")
        return self._leaves[node]

    def leaves(self, room: bool = True) -> Array:
        """The values of all pieces that may have an input, (pieces, rows), in order; with room for other batches."""
        every = (leaf.piece.values[0] for _, leaf in sorted(self._leaves.items()))
        values = np.array([one for one in every if (one > self.bounding.least).any()]).reshape(-1, self.bounding.rows)
        if not room:
            return values
        return up(np.where(values > 0.0, values * (1.0 + _AGAIN), values * (1.0 - _AGAIN)) + self.bounding.slack)

    def cut(self, nodes: Sequence[int], layer: Array, index: Array, value: Array) -> list[Leaf]:
        """Cut some leaves, each along an axis or by a neuron; the halves that may have an input are returned."""
        if len(set(nodes)) != len(nodes):
            raise ProofFailed("the pieces do not cover the region: a node is cut twice")
        halves = self.bounding.halves(Pieces.stack([self.leaf(node).piece for node in nodes]), layer, index, value)
        cuts = zip(nodes, layer.tolist(), index.tolist(), value.tolist(), strict=True)
        found = self._add(halves, [(node, cut) for node, *cut in cuts for _ in range(2)])
        return [leaf for leaf in found if (leaf.piece.values > self.bounding.least).any()]

    def confine(self, nodes: Sequence[int], of: Array, cuts: tuple[Array, Array, Array, Array]) -> list[Leaf]:
        """What is left of leaves of all of space after cuts whose other sides weights prove to have no input.

        Each cut is of one of the leaves: a neuron, numbered through all layers, a value, whether what is left is above,
        and the weights; those that are not proved are not made. Neither half of a cut is bounded: one has no input, the
        other keeps the bound. Cuts of a layer are proved together, with what is left by those of layers before.
        """
        leaves, (place, value, above, weights) = [self.leaf(node) for node in nodes], cuts
        bounding, rows, pieces = self.bounding, np.arange(len(place)), Pieces.stack([leaf.piece for leaf in leaves])
        right = np.isfinite(weights).all(axis=1) & np.isfinite(value) & ((weights[rows, place] < 0.0) == above)
        layer = np.searchsorted(bounding.starts, place, side="right") - 1
        last, made, void, passed = list(nodes), list[tuple[int, list[Any]]](), dict[int, Array](), list[int]()
        for which in np.unique(layer):
            some = np.flatnonzero(right & (layer == which))
            for k in some[bounding.void_sides(pieces, of[some], weights[some], place[some], value[some])].tolist():
                j, at, up_, number = int(of[k]), float(value[k]), int(above[k]), self.pieces + len(made)
                end, tighter = (pieces.low, max) if up_ else (pieces.high, min)
                end[j, place[k]] = tighter(end[j, place[k]], at)
                made += [(last[j], [int(which), int(place[k] - bounding.starts[which]), at])] * 2
                passed.append(last[j])
                void[number + 1 - up_], last[j] = np.array(weights[k]), number + up_
        rest = [Leaf(node, pieces.take(slice(j, j + 1)).copy()) for j, node in enumerate(last)]
        self._void |= void
        self._passed += passed
        self._put(made, nodes, rest)
        return rest

    def drop(self, node: int, weights: Array) -> bool:
        """Whether weights of the neurons prove that a leaf has no input; then it counts no more."""
        if not np.isfinite(weights).all() or not self.bounding.is_void(self.leaf(node).piece, weights):
            return False
        self._void[node] = np.array(weights)
        del self._leaves[node]
        return True

    def tree(self) -> Tree:
        """The cuts as arrays, for a certificate."""
        count = self.pieces
        layer, index, value, child = np.full(count, LEAF), np.zeros(count, int), np.zeros(count), np.zeros(count, int)
        for node in range(1, count, 2):
            parent, cut = self._nodes[node]
            layer[parent], index[parent], value[parent] = cut
            child[parent] = node
        table = np.array(list(self._void.values())).reshape(len(self._void), sum(self.bounding.network.sizes[1:-1]))
        row, neuron = np.nonzero(table)
        void = np.array(list(self._void), dtype=int)[row], neuron, table[row, neuron]
        return Tree(layer, index, value, child, max(self.bound, 0.0), *void, passed=np.array(self._passed, dtype=int))

    def _add(self, pieces: Pieces, made: list[tuple[int, list[Any]]]) -> list[Leaf]:
        """Bound new leaves; they, and the parents and cuts that made them, count together."""
        found = self.bounding.bound(pieces)
        if not (found.values >= self.bounding.least).all():
            raise ProofFailed("the bound of a piece is no number")
        leaves = [Leaf(self.pieces + k, found.take(slice(k, k + 1)).copy()) for k in range(len(made))]
        self._put(made, [parent for parent, _ in made], leaves)
        return leaves

    def _put(self, made: list[tuple[int, list[Any]]], done: Iterable[int], leaves: list[Leaf]) -> None:
        """New nodes, and leaves in the place of others."""
        left = self._leaves.copy()
        for node in done:
            left.pop(node, None)
        self._nodes += made
        self._leaves = left | {leaf.node: leaf for leaf in leaves}  # in one step


def leaf_values(
    kind: type[Bounding],
    pieces: Cover | Tree,
    network: Network,
    region: Region,
    sweeps: Sequence[Hints] = (),
    *norms: Norms,
) -> Array:
    """The values of the leaves, (pieces, rows): of a cover, or of cuts, that are proved again with hints for all."""
    if isinstance(pieces, Cover):
        return pieces.check(network, region, kind, *norms).leaves()
    return prove_leaves(kind(network, region, sweeps, *norms), pieces)  # type: ignore[arg-type]


def prove_leaves(bounding: Bounding, tree: Tree) -> Array:
    """The values of the leaves that may have an input, (pieces, rows), derived again from the cuts.

    Nodes are cut in the order of their children, so they get the numbers that they have in the tree.

    Raises
    ------
    ProofFailed
        If the cuts do not describe a tree whose leaves cover the region.
    """
    columns = ((tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight))
    if any(len({np.shape(column) for column in group} | {(len(group[0]),)}) != 1 for group in columns):
        raise ProofFailed("the columns of the tree differ in length")
    if (tree.neuron < 0).any() or (tree.neuron >= bounding.starts[-1]).any() or not np.isfinite(tree.weight).all():
        raise ProofFailed("the tree weighs neurons that the network does not have")
    cover = Cover(bounding)
    todo = np.flatnonzero(tree.layer != LEAF)
    todo = todo[np.argsort(tree.child[todo])]
    passed = np.isin(todo, tree.passed)
    rows = defaultdict[int, Array](lambda: np.zeros(bounding.starts[-1]))  # no weights prove nothing
    for node, neuron, weight in zip(tree.void.tolist(), tree.neuron.tolist(), tree.weight.tolist(), strict=True):
        rows[node][neuron] = weight
    while todo.size:
        some, ready = todo[:_CHUNK], todo[:_CHUNK] < cover.pieces
        if passed[0]:  # chains: nodes are there, or halves of others
            ready |= np.isin(some, (tree.child[some], tree.child[some] + 1))
        alike = (passed[:_CHUNK] == passed[0]) & ready
        count = int(alike.argmin()) or len(alike)
        some = todo[:count]
        if passed[0]:
            _confine(cover, tree, some, rows)
        else:
            cover.cut(some.tolist(), tree.layer[some], tree.index[some], tree.value[some])
        todo, passed = todo[count:], passed[count:]
    made = cover.tree()
    if len(made.layer) != len(tree.layer) or not np.array_equal(
        made.child, np.where(made.layer == LEAF, 0, tree.child)
    ):
        raise ProofFailed("the pieces do not cover the region: a node lacks a child, or has more than one parent")
    for node in np.setdiff1d(np.intersect1d(tree.void, np.flatnonzero(tree.layer == LEAF)), made.void).tolist():
        cover.drop(node, rows[node])
    return cover.leaves(room=False)


def _confine(cover: Cover, tree: Tree, chain: Array, rows: dict[int, Array]) -> None:
    """Repeat chains of cuts, one half of each without inputs."""
    first = tree.child[chain]
    leaves, of = list[int](), dict[int, int]()
    for node, child in zip(chain.tolist(), first.tolist(), strict=True):
        if node not in of:
            of[node] = len(leaves)
            leaves.append(node)
        of[child] = of[child + 1] = of[node]
    above = np.array([int(node) in rows for node in first])
    void = np.where(above, first, first + 1)
    cover.bounding.check_cuts(0, tree.layer[chain], tree.index[chain], tree.value[chain])
    place = cover.bounding.starts[tree.layer[chain]] + tree.index[chain]
    weights = np.array([rows[int(node)] for node in void])
    of_ = np.array([of[int(node)] for node in chain])
    cover.confine(leaves, of_, (place, tree.value[chain], above, weights))
