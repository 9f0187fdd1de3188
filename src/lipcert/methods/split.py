"""Branch and bound: cut the region, bound the boxes, take the maximum; of the Lipschitz constant or of several values.

The cover keeps the tree; a search decides what to cut and where.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.branch_and_bound import AXIS, Bounding, Cover, Leaf, PieceBounds, Pieces, has_taylor
from lipcert.kernel.taylor import MOST_INPUTS
from lipcert.methods.half_spaces import Cell
from lipcert.methods.joint import Anytime, Joint
from lipcert.methods.lower import is_straight, jacobian_norms, lower_bound, witness
from lipcert.methods.method import Candidate, Method, Problem
from lipcert.methods.second_order_jacobian import improved, suits
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Layer, Network
from lipcert.model.regions import Norms, Region
from lipcert.runtime.clock import clock

_BATCH = 256
"""Boxes that are cut at once at most; more would not be faster."""
_ENTRIES, _CURVED = 80_000, 600_000
"""Numbers in one stack of matrices; more would not be faster, and would cut boxes that are not the worst. The second is
for second-order bounds, which have no such matrices."""
_TRACED = 1_000_000
"""Entries of the rows that are traced for one stack of boxes; more would leave the processor's caches."""
_WIDEST = 1200
"""Layers wider than this leave time for too few boxes."""
_FEW = 4
"""A box with so few open neurons is cut by their sign: then its bound becomes exact."""
FEW_INPUTS = 16
"""Halving axes is of use with at most so many inputs."""
VANISHING = 1e-200
"""Bounds and widths below this are rounding; no region is cut for them."""
_WHOLE, _FIRST = 0.4, 0.1
"""Share of the time for a bound of the whole region; the second if boxes have second-order bounds, which are soon
better."""
_STARTING = 8.0
"""Time that boxes need to be of use, in sweeps with their proof."""
_GAIN, _LEAST_PIECES, _EARLY, _OPTIMISM = 0.98, 200, 9.0, 2.0
"""Auto stops cutting if the mean bound of the boxes, extrapolated, does not reach the first, relative to that of the
whole region. Not before so many boxes, not with more than 9 times the time used left, and not unless bounds would miss
it even if they fell twice as fast."""
_ATTAINED = 1.0 - 1e-6
"""A box is done when a point of it attains this share of its bound."""
_SAMPLES = 2000
"""Points at which several values are first looked at."""
_JOINT = 0.5
"""Share of the time that Joint gets if Split comes after it."""
Reached = Callable[[Array], Array]
"""The values that are attained at points (count, inputs), (count, rows)."""


@dataclass(frozen=True)
class Split(Anytime):
    """Branch and bound: the largest bound over boxes of the region, always cutting the box with the largest.

    On a convex region the Lipschitz constant is the largest Jacobian norm, so any cover will do. Boxes are cut by
    halving an input axis or by confining a neuron to one side of its kink; when no neuron of a box is open its
    bound is the norm itself. All of space is cut by the kinks of neurons, of piecewise linear networks with any number
    of inputs. The bound is valid whenever the search stops: at the tolerance, at the end of its time,
    on an interrupt, or where the bound of a piece cannot be proved.

    Parameters
    ----------
    method
        Bounds the whole region first, in at most 40 % of the time.
    seconds
        How long the whole may take, proof included.
    tolerance
        Stop when upper/lower ≤ 1 + tolerance; default: 0.05, and 1e-6 over all of space, where the search ends.
    pieces
        Stop after so many pieces, or a few more; None is no limit. Unlike time, it does not depend on the machine.
        ``sensitivity`` takes so many for each entry.
    """

    method: Method = field(default_factory=lambda: Joint(seconds=5.0))
    seconds: float = 60.0
    tolerance: float | None = None
    pieces: int | None = None

    def gap(self, region: Region) -> float:
        """The tolerance for a region."""
        return (0.05 if region.bounded else 1e-6) if self.tolerance is None else self.tolerance

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """What the method for the whole region finds, then the pieces."""
        if not can_cut(problem):
            if problem.network.coupled:
                raise InvalidInput(
                    f"Split cuts regions of networks with products or softmax if they have at most {FEW_INPUTS} inputs,"
                    f" this one has {problem.network.inputs}; take Auto"
                )
            raise InvalidInput(
                "Split cuts all of space only where all activations are piecewise linear, such as relu or hardtanh;"
                " for others it needs a bounded region, such as Ball(center, radius)"
            )
        now, method, best = clock(), self.method, start
        now.check()
        if isinstance(method, Anytime):
            limit = np.inf if method.seconds is None else method.seconds
            share = _FIRST if has_taylor(problem.network) else _WHOLE
            with now.sharing(min(share * now.left, limit) if affordable(problem, 1.0 - share) else np.inf):
                best = yield from passed_on(method.candidates(problem, start), best)
        else:
            best = yield from passed_on([method.solve(problem)], best)
        if problem.network.inputs > MOST_INPUTS and suits(problem, best):
            best = yield from passed_on(improved(problem, best), best)
        yield from self.refined(problem, best)

    def refined(self, problem: Problem, candidate: Candidate, impatient: bool = False) -> Iterator[Candidate]:
        """A candidate with a tree of boxes, if that is better than the candidate itself.

        impatient=True: stop if more boxes are not expected to help in the time that is left.
        """
        now = clock()
        if not affordable(problem):
            return
        search, kept, interrupt = _Search(problem.network, problem.region, problem.norms, impatient), None, None
        try:
            bounding = PieceBounds(problem.network, problem.region, candidate.sweeps, problem.norms)
            kept = Cover(bounding)
            search.run(kept, self, candidate.bound)
        except KeyboardInterrupt as error:
            interrupt = error
        except (ProofFailed, np.linalg.LinAlgError) as failure:
            now.say(f"stopped, the best bound so far is kept: {failure}")
        found = replace(candidate, witness=search.witness)
        if kept is not None and kept.bound < candidate.bound:
            found = replace(found, bound=kept.bound, cover=kept, found_by="Split")
        yield found
        if interrupt is not None:
            raise interrupt


@dataclass(frozen=True)
class Auto(Anytime):
    """The best bound that fits into a time: ClosedForm at once, then Joint and Split while time is left.

    Networks with smooth slopes and many inputs also get a second-order bound over a ball, after Joint.

    It ends early if neither another method nor more pieces are expected to help. ``found_by`` of the certificate says
    which method found the bound.

    Parameters
    ----------
    seconds
        How long it may take, proof included; the first bound is computed however long it takes.
    pieces
        Pieces that Split may cut the region into, about; None is no limit. With ``seconds=inf`` what is found does not
        depend on the machine.
    """

    seconds: float = 10.0
    pieces: int | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """The candidates of one method after the other, while there is time."""
        now = clock()
        few = can_cut(problem) and problem.network.inputs <= FEW_INPUTS
        pieces = few and affordable(problem, 1.0 - _JOINT)
        with now.sharing(_JOINT * now.left if pieces else np.inf):
            best = yield from passed_on(Joint().candidates(problem, start), start)
        if problem.network.inputs > MOST_INPUTS and suits(problem, best):
            for candidate in improved(problem, best):
                yield candidate
                return  # pieces of many inputs hardly bend less
        if can_cut(problem):
            yield from Split(pieces=self.pieces).refined(problem, best, impatient=True)


def passed_on(found: Iterable[Candidate], best: Candidate) -> Generator[Candidate, None, Candidate]:
    """All candidates; what is returned is the best."""
    for candidate in found:
        yield candidate
        best = min(best, candidate, key=lambda one: one.bound)
    return best


def can_cut(problem: Problem) -> bool:
    """Whether the region can be cut; all of space can if the network is piecewise linear."""
    if problem.network.coupled or problem.region.bounded:
        return problem.region.bounded and (not problem.network.coupled or halves_axes(problem.network))
    return is_straight(problem.network)


def halves_axes(network: Network) -> bool:
    """Whether the axes of regions are cut: there are few inputs, and no softmax with too many exponents."""
    few = network.inputs <= FEW_INPUTS and network.depth > 1
    return few and (not network.coupled or max(map(neurons, network.layers)) <= _WIDEST)


def affordable(problem: Problem, share: float = 1.0) -> bool:
    """Whether a share of the time that is left is enough for boxes; they begin with a proof of the whole region."""
    widest, now = max(map(neurons, problem.network.layers[:-1]), default=0), clock()
    return 0 < widest <= _WIDEST and problem.known is None and share * now.left >= _STARTING * now.sweep


def neurons(layer: Layer) -> int:
    """How many neurons a layer has where its products and softmax rows are written with elementwise activations."""
    if layer.coupling is None:
        return layer.size
    exponents = sum(count * width * (width - 1) for count, width in layer.coupling.rows)
    return layer.size + exponents + 2 * sum(product.one.size for product in layer.coupling.products)


@dataclass(eq=False)
class _Search:
    """Which boxes are still open, worst first, and the largest norm that was met."""

    network: Network
    region: Region
    norms: Norms
    impatient: bool = False
    open: list[tuple[float, int]] = field(default_factory=list)
    """Minus the bound, and the node."""
    done: float = 0.0
    lower: float = 0.0
    witness: Array | None = None
    points: dict[int, Array] = field(default_factory=dict)
    """Over all of space: points inside pieces, or inside what these are halves of."""
    past: list[tuple[float, float]] = field(default_factory=list)
    """Numbers of pieces and the mean logarithm of their bounds, relative to that of the whole region."""

    def __post_init__(self) -> None:
        self.few = self.region.bounded and self.network.inputs <= FEW_INPUTS  # then axes are halved
        self.entries = _CURVED if has_taylor(self.network) else _ENTRIES

    def run(self, cover: Cover, limits: Split, ceiling: float) -> None:
        """Cut until upper and lower meet, time is up, there are enough boxes, or more are not expected to help."""
        most = np.inf if limits.pieces is None else limits.pieces
        few, now = self.network.inputs <= FEW_INPUTS, clock()
        samples, starts = (1000, 16) if few else (100, 4)
        ends = {"input_norm": self.norms.input, "output_norm": self.norms.output, "seconds": max(0.1 * now.left, 0.0)}
        start = lower_bound(self.network, self.region, samples=samples, starts=starts, **ends)  # type: ignore[arg-type]
        self.lower, self.witness = start.value, start.point
        if cover.bound > VANISHING:
            self.add([cover.leaf(0)])
        began = before = time.perf_counter()
        pace = 0.0
        while self.open and now.allows(pace) and cover.pieces < most:
            enough = max(self.lower * (1.0 + limits.gap(self.region)), VANISHING)
            if self.upper <= enough:
                return
            batch = [cover.leaf(node) for node in self.worst()]
            self.done = max(self.done, *(leaf.bound for leaf in batch if leaf.bound <= enough), 0.0)
            look = self.settled if self.region.bounded else self.confined
            kept = look(cover, [leaf for leaf in batch if leaf.bound > enough])
            if not kept:
                continue
            for node, leaf in enumerate(kept):
                if (point := self.points.pop(leaf.node, None)) is not None:
                    self.points |= dict.fromkeys((cover.pieces + 2 * node, cover.pieces + 2 * node + 1), point)
            self.add(cover.cut([leaf.node for leaf in kept], *self.cuts(kept, cover.bounding)))
            share = min(self.upper, ceiling)
            now.say(
                f"{cover.pieces} pieces, {len(self.open)} open, upper {share:.4g}, lower {self.lower:.4g},"
                f" ratio {share / max(self.lower, 1e-300):.4g}"
            )
            after = time.perf_counter()
            pace, before = after - before, after
            more = min(now.left / max(after - began, 1e-9), most / cover.pieces - 1.0)
            if self.impatient and self.hopeless(cover.pieces, ceiling, more):
                now.say("more pieces promise nothing")
                return

    def hopeless(self, pieces: int, ceiling: float, more: float) -> bool:
        """Whether bounds of pieces, falling as they did, hardly gain anything from ``more`` times as many again.

        The mean of their logarithms falls about in proportion to the logarithm of their number; the largest of them
        follows later.
        """
        if more > _EARLY or pieces < _LEAST_PIECES or not (self.open and 0.0 < ceiling < np.inf):
            return False
        if not self.past or pieces >= 1.4 * self.past[-1][0]:
            self.past.append((float(pieces), float(np.mean(np.log([-bound / ceiling for bound, _ in self.open])))))
        if len(self.past) < 2 or self.past[-1][0] < pieces:
            return False
        (before, high), (now, low) = self.past[-2:]
        return low - _OPTIMISM * (high - low) / np.log(now / before) * np.log1p(more) > np.log(_GAIN)

    @property
    def upper(self) -> float:
        """The largest bound of a leaf, as far as the search knows."""
        return max(self.done, -self.open[0][0] if self.open else 0.0)

    @property
    def most(self) -> int:
        """How many pieces are cut at once at most."""
        return min(_BATCH, max(2, self.entries // max(map(neurons, self.network.layers[:-1])) ** 2))

    def worst(self) -> list[int]:
        """The boxes to cut next, no longer open: some of the worst, and all that have the same bound as the worst.

        If the first cuts gain nothing, all boxes have the bound of the whole region, and are cut breadth first.
        """
        count, top = np.clip(len(self.open) // 3, 1, self.most), self.open[0][0]
        found: list[int] = []
        while self.open and (len(found) < count or (self.open[0][0] == top and len(found) < self.most)):
            found.append(heapq.heappop(self.open)[1])
        return found

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if leaves and self.few:
            middles = [0.5 * leaf.piece.lower[0] + 0.5 * leaf.piece.upper[0] for leaf in leaves]
            self.meet(np.array(middles))
        for leaf in leaves:
            heapq.heappush(self.open, (-leaf.bound, leaf.node))

    def settled(self, cover: Cover, leaves: list[Leaf]) -> list[Leaf]:
        """The boxes that are not done. One is done when none of its neurons is open, and more is known.

        Its bound is then attained if it has an input, which raises the lower bound; or it has none, and weights prove
        that. If neither can be shown, the box must be cut.
        """
        kept = []
        for leaf in leaves:
            if not (leaf.piece.shares > 0).any():
                point, weights = witness(cover.bounding, leaf.piece)
                if point is not None:
                    self.meet(point[None])
                    if self.lower >= leaf.bound * _ATTAINED:
                        self.done = max(self.done, leaf.bound)
                        continue
                if cover.drop(leaf.node, weights):
                    continue
            kept.append(leaf)
        return kept

    def confined(self, cover: Cover, leaves: list[Leaf]) -> list[Leaf]:
        """What is to be cut of pieces of all of space; those are done that have no input, or no open neuron.

        Half-spaces of a piece often leave an open neuron only one side. Then the other is cut off, without bounds for
        the halves: a side without input needs none, and the rest is to be cut again.
        """
        kept, points, chains = list[Leaf](), list[Array | None](), list[tuple[int, int, float, bool, Array]]()
        met = list[Array]()
        for leaf in leaves:
            low, high = np.array(leaf.piece.low[0]), np.array(leaf.piece.high[0])
            ends = [
                (low[part], high[part]) for part in cover.bounding.slices
            ]  # views: what is implied is noted in them
            cell, point = Cell(self.network, ends), self.points.pop(leaf.node, None)
            if point is None or not cell.holds(point):
                point = cell.inside()
                met += [] if point is None else [point]
            if point is None and (weights := cell.void()) is not None and cover.drop(leaf.node, weights):
                continue
            if not (leaf.piece.shares > 0).any() or not cell.marks:
                self.done = max(self.done, leaf.bound)
                continue
            chain, left = list[tuple[int, float, bool, Array]](), len(cell.marks)
            while point is not None:
                found = cell.implied(point, self.lower if self.norms.plain else 0.0)
                for j, mark, above, _ in found:
                    low[j], high[j] = (max(low[j], mark), high[j]) if above else (low[j], min(high[j], mark))
                chain, left = chain + found, len(cell.marks) - len(found)
                if left or cell.last:
                    break
                cell = Cell(self.network, ends)
            chain = chain if left else chain[:-1]  # the last one is left to be bounded
            chains += [(len(kept), *cut) for cut in chain]
            kept.append(leaf)
            points.append(point)
        if met:
            self.meet(np.array(met))
        if chains:
            of, place, value, sides, weights = (np.array(column) for column in zip(*chains, strict=True))
            kept = cover.confine([leaf.node for leaf in kept], of, (place, value, sides, weights))
        self.points |= {leaf.node: point for leaf, point in zip(kept, points, strict=True) if point is not None}
        return kept

    def meet(self, points: Array) -> None:
        """Keep the best of the points if it is better than all before."""
        points = self.region.project(points)
        points = points[np.isfinite(points).all(axis=1)]  # the middle of a huge piece may overflow
        if not len(points):
            return
        norms = jacobian_norms(self.network, points, self.norms)
        best = int(np.argmax(norms))
        if norms[best] > self.lower:
            self.lower, self.witness = float(norms[best]), points[best]

    def cuts(self, leaves: list[Leaf], bounding: Bounding) -> tuple[Array, Array, Array]:
        """Where to cut each of the boxes."""
        pieces, network = Pieces.stack([leaf.piece for leaf in leaves]), bounding.network
        rows, width = np.arange(len(leaves)), pieces.upper - pieces.lower
        which = to_halve(network, pieces, bounding.root) if self.few else np.argmax(width, axis=-1)
        layer, at = np.full(len(leaves), AXIS), 0.5 * pieces.lower[rows, which] + 0.5 * pieces.upper[rows, which]
        open_ = (pieces.shares > 0).sum(axis=-1)
        shares = pieces.shares if self.region.bounded else first_open(network, pieces)
        for k in np.flatnonzero((open_ > 0) & ((not self.few) | (open_ <= _FEW))):
            neuron = int(np.argmax(shares[k]))
            layer[k] = np.searchsorted(bounding.starts, neuron, side="right") - 1
            which[k] = neuron - bounding.starts[layer[k]]
            interval = pieces.low[k, [neuron]], pieces.high[k, [neuron]]
            at[k] = kink(network.layers[layer[k]], int(which[k]), *interval)
        return layer, which, at


def first_open(network: Network, pieces: Pieces) -> Array:
    """The shares of open neurons in the first layer that has some, (count, neurons); -1 for all others."""
    found, done = [], np.zeros((len(pieces), 1), dtype=bool)
    shares = np.split(pieces.shares, np.cumsum(network.sizes[1:-1])[:-1], axis=1)
    for (alpha, beta), share in zip(slopes_of(network, pieces), shares, strict=True):
        found.append(np.where((alpha < beta) & ~done, share, -1.0))
        done = done | (alpha < beta).any(axis=1, keepdims=True)
    return np.concatenate(found, axis=1)


def moves(network: Network, pieces: Pieces) -> Iterator[Array]:
    """About how far the pre-activations of each hidden layer move along each side, (count, neurons, inputs).

    That is |∂v_j/∂x_i|·width_i with the middle of each slope's range.
    """
    found = dense(network.layers[0].weight) * (pieces.upper - pieces.lower)[:, None, :]
    for layer, (alpha, beta) in zip(network.layers[1:], slopes_of(network, pieces), strict=True):
        yield np.abs(found)
        found = dense(layer.weight) @ ((0.5 * alpha + 0.5 * beta)[:, :, None] * found)


def to_halve(network: Network, pieces: Pieces, root: Pieces) -> Array:
    """The axis to halve of each box: the one that contributes most to what open neurons add to the bound.

    Neuron j of a layer adds about (β_j - α_j)·‖∂f/∂φ_j‖ times how far it moves, all derivatives by middle slopes.
    Its move along an axis, relative to its interval, says how much narrower halving the axis makes it. Where nothing is
    open, the widest axis in units of the region is halved.
    """
    width, whole = pieces.upper - pieces.lower, root.upper - root.lower
    score = np.divide(width, whole, out=np.zeros(width.shape), where=whole > 0.0)
    weights = [dense(layer.weight) for layer in network.layers]
    slopes = slopes_of(network, pieces)
    ahead = [weights[-1]]
    for weight, (alpha, beta) in zip(weights[-2:0:-1], slopes[:0:-1], strict=True):
        ahead.append((ahead[-1] * (0.5 * alpha + 0.5 * beta)[:, None, :]) @ weight)
    open_, begin = np.zeros(width.shape), 0
    for (alpha, beta), move, after in zip(slopes, moves(network, pieces), ahead[::-1], strict=True):
        mine = slice(begin, begin := begin + move.shape[1])
        reach = np.maximum(pieces.high[:, mine] - pieces.low[:, mine], move.max(axis=-1))[:, :, None]
        part = np.divide(move, reach, out=np.zeros(move.shape), where=reach > 0)
        adds = (beta - alpha) * np.linalg.norm(after, axis=-2) * np.linalg.norm(move, axis=-1)
        open_ += np.einsum("kn,kni->ki", adds, part)
    open_ = np.nan_to_num(open_)
    most = open_.max(axis=-1, keepdims=True)
    return np.argmax(1e-9 * score + np.divide(open_, most, out=np.zeros(width.shape), where=most > 0.0), axis=1)


def kink(layer: Layer, neuron: int, low: Array, high: Array) -> float:
    """The kink of a neuron inside its interval, or else the middle."""
    assert layer.neurons is not None
    row = layer.neurons.take(np.array([neuron])).groups[0][0]
    if row.row.kinks:
        for knot, inside in row.knots_inside(low, high):
            if inside[0]:
                return float(knot[0])
    return float(0.5 * low[0] + 0.5 * high[0])


def output_values(network: Network, points: Array) -> Array:
    """Outputs from both sides."""
    values = network(points)
    return np.concatenate([values, -values], axis=-1)


def entry_sizes(network: Network, points: Array) -> Array:
    """Sizes of the entries of the Jacobian."""
    return np.abs(network.jacobian(points)).reshape(len(points), -1)


def attained(region: Region, reached: Reached) -> Array:
    """The largest values met at sampled points, (rows,)."""
    return np.asarray(reached(region.sample(_SAMPLES, np.random.default_rng(0))).max(axis=0))


@dataclass(eq=False)
class RowSearch:
    """Branch and bound on several values at once: outputs from both sides, or entries of the Jacobian.

    The box whose values exceed the attained ones most is cut first. ``lower`` (rows,) is attained somewhere; a value
    counts as found when it is within ``tolerance`` times ``scale``.
    """

    network: Network
    region: Region
    reached: Reached
    lower: Array
    scale: Array
    tolerance: float
    open: list[tuple[float, int]] = field(default_factory=list)

    def run(self, cover: Cover, most: float) -> None:
        """Cut until all values are found, or time is up, or there are enough boxes."""
        took = 0.0
        self.add([cover.leaf(0)])
        try:
            while self.open and cover.pieces < most and clock().allows(took):
                started = time.perf_counter()
                batch = [cover.leaf(heapq.heappop(self.open)[1]) for _ in range(min(len(self.open), self.batch))]
                batch = [leaf for leaf in batch if self.excess(leaf) > self.tolerance]
                if not batch:
                    return
                pieces, layer = Pieces.stack([leaf.piece for leaf in batch]), np.full(len(batch), AXIS)
                axis, rows = to_halve(cover.bounding.network, pieces, cover.bounding.root), np.arange(len(batch))
                at = 0.5 * pieces.lower[rows, axis] + 0.5 * pieces.upper[rows, axis]
                self.add(cover.cut([leaf.node for leaf in batch], layer, axis, at))
                took = time.perf_counter() - started
                worst = -self.open[0][0] if self.open else 0.0
                clock().say(f"{cover.pieces} pieces, {len(self.open)} open, at most {worst:.3g} widths too large")
        except (ProofFailed, np.linalg.LinAlgError) as failure:
            clock().say(f"stopped, the best values so far are kept: {failure}")

    @property
    def batch(self) -> int:
        room = max(1, _TRACED // max(map(neurons, self.network.layers[:-1]), default=1) ** 2)
        return int(np.clip(len(self.open) // 2, 1, min(_BATCH, room)))

    def excess(self, leaf: Leaf) -> float:
        """How far the values of a box are above what is attained, at most, relative to the scale."""
        return float(((leaf.piece.values[0] - self.lower) / self.scale).max())

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if not leaves:
            return
        middles = np.array([0.5 * leaf.piece.lower[0] + 0.5 * leaf.piece.upper[0] for leaf in leaves])
        middles = self.region.project(middles)
        self.lower = np.fmax(self.lower, self.reached(middles[np.isfinite(middles).all(axis=1)]).max(axis=0))
        for leaf in leaves:
            heapq.heappush(self.open, (-self.excess(leaf), leaf.node))


def slopes_of(network: Network, pieces: Pieces) -> list[Interval]:
    """The slopes that the intervals of pieces allow, for each hidden layer."""
    found, begin = [], 0
    for layer in network.layers[:-1]:
        assert layer.neurons is not None
        mine = slice(begin, begin + layer.size)
        found.append(layer.neurons.slope_range(pieces.low[:, mine], pieces.high[:, mine]))
        begin += layer.size
    return found
