"""Branch and bound: cut the region, bound the pieces, take the maximum."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import Norms
from lipcert.model.regions import Region
from lipcert.proof.cover import Cover, Leaf, cover
from lipcert.proof.pieces import AXIS, Pieces
from lipcert.proof.rays import along_rays, has_rays
from lipcert.proof.taylor import MOST_INPUTS, curved, deep
from lipcert.runtime.clock import clock
from lipcert.runtime.threads import one_thread
from lipcert.search.anytime import Anytime
from lipcert.search.candidate import Candidate
from lipcert.search.curved import improved, suits
from lipcert.search.cuts import kink, to_halve
from lipcert.search.directions import Stretch
from lipcert.search.joint import Joint
from lipcert.search.lower import jacobian_norms, lower_bound, uphill
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.witness import weights_at_infinity, witness

_BATCH = 256
_ENTRIES = 80_000
"""Numbers in one stack of matrices at most; more would not be faster, and cut pieces that are not the worst."""
_CURVED = 600_000
"""The same for pieces to second order, of which none has such matrices."""
_WIDEST = 1200
"""Layers wider than this leave time for too few pieces."""
_FEW = 4
"""A piece with so few open neurons is cut by their sign: then its bound becomes exact."""
FEW_INPUTS = 16
"""With at most so many inputs, halving boxes gets somewhere."""
VANISHING = 1e-200
"""Bounds and widths below this are what rounding leaves of nothing; no region is cut for them."""
_SMALL = 0.125
"""The longest side of a piece of rays from which on it counts as small, where it goes on to infinity."""
_WHOLE = 0.4
"""Share of the time for a bound of the whole region, before it is cut."""
_FIRST = 0.1
"""The same where pieces are bounded to second order: they soon forget the bound of the whole region."""
_STARTING = 8.0
"""Sweeps with their proof that pieces take to begin with, and some to be of use."""
_GAIN = 0.98
"""What pieces must be expected to reach in the mean, relative to the bound of the whole region."""
_LEAST_PIECES = 200
"""Before so many there is nothing to extrapolate from."""
_EARLY = 9.0
"""With so much of the time left, it is too early to give up."""
_OPTIMISM = 2.0
"""So much faster than before the bounds may fall."""
_FAR = (2.5, 1.6)
"""So many times too large is a bound to second order where its halves are cut again at once."""
_NOTHING = 1e3
"""A bound that is so many times too large says nothing: the region is cut until small parts promise to say more."""
_PARTS = 1024
"""So many parts at most are made before one of them is bounded."""
_ATTAINED = 1.0 - 1e-6
"""The share of its bound that a piece must show at a point before it is left alone."""


@dataclass(frozen=True)
class Split(Anytime):
    """The largest bound over pieces of the region, always cutting the piece with the largest.

    On a convex region the Lipschitz constant is the largest Jacobian norm, so any cover will do. Pieces are cut by
    halving an input axis or by confining a neuron to one side of its kink; when no neuron of a piece is open its
    bound is the norm itself. All of space is cut too, where activations are relu, leaky_relu or identity and inputs are
    few. The bound is valid whenever the search stops: at the tolerance, at the end of its time,
    on an interrupt, or where the bound of a piece cannot be proved.

    Parameters
    ----------
    method
        Bounds the whole region first, in at most 40 % of the time.
    seconds
        How long the whole may take, proof included.
    tolerance
        Stop when upper/lower ≤ 1 + tolerance.
    workers
        Processes that bound pieces; 1 works in this one.
    pieces
        Stop after so many pieces, or a few more; None is no limit. Unlike time, it does not depend on the machine.
        ``sensitivity`` takes so many for each entry.
    """

    method: Method = field(default_factory=lambda: Joint(seconds=5.0))
    seconds: float = 60.0
    tolerance: float = 0.05
    workers: int = 1
    pieces: int | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """What the method for the whole region finds, then the pieces."""
        if not can_cut(problem):
            raise InvalidInput(
                "Split cuts all of space only where activations are relu, leaky_relu (prelu, abs) or identity;"
                " for others it needs a bounded region, such as Ball(center, radius)"
            )
        now, method, best = clock(), self.method, start
        now.check()
        if isinstance(method, Anytime):
            limit = np.inf if method.seconds is None else method.seconds
            share = _FIRST if curved(problem.network) or deep(problem.network) else _WHOLE
            with now.sharing(min(share * now.left, limit) if affordable(problem, 1.0 - share) else np.inf):
                for candidate in method.candidates(problem, start):
                    yield candidate
                    best = min(best, candidate, key=lambda found: found.bound)
        else:
            found = method.solve(problem)
            yield found
            best = min(best, found, key=lambda found: found.bound)
        if problem.network.inputs > MOST_INPUTS and suits(problem, best):
            for candidate in improved(problem, best):
                yield candidate
                best = min(best, candidate, key=lambda found: found.bound)
        yield from self.refined(problem, best)

    def refined(self, problem: Problem, candidate: Candidate, impatient: bool = False) -> Iterator[Candidate]:
        """A candidate with a tree of pieces, if that is better than the candidate itself.

        ``impatient`` gives up where more pieces promise nothing in the time that is left.
        """
        now = clock()
        if not affordable(problem):
            return
        search, kept, interrupt = _Search(problem.network, problem.region, problem.norms, impatient), None, None
        try:
            whole = problem.network, problem.region, candidate.sweeps
            with cover(*whole, self.workers, one_thread, problem.norms) as kept:
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


def can_cut(problem: Problem) -> bool:
    """Whether there is a rule to cut the region: all of space is cut where slopes keep along rays."""
    return problem.region.bounded or has_rays(problem.network)


def affordable(problem: Problem, share: float = 1.0) -> bool:
    """Whether a share of the time that is left would do for pieces: the whole region is proved again to begin with."""
    widest = max(problem.network.sizes[1:-1], default=0)
    few = problem.region.bounded or problem.network.inputs <= FEW_INPUTS  # a box of rays has two faces an input
    now = clock()
    return few and 0 < widest <= _WIDEST and problem.known is None and share * now.left >= _STARTING * now.sweep


@dataclass(eq=False)
class _Search:
    """Which pieces are still open, worst first, and the largest norm that was met; the cover keeps the books."""

    network: Network
    region: Region
    norms: Norms
    impatient: bool = False
    open: list[tuple[float, int]] = field(default_factory=list)
    """Minus the bound, and the node."""
    done: float = 0.0
    lower: float = 0.0
    whole: float = np.inf
    """The bound of the whole region."""
    witness: Array | None = None
    past: list[tuple[float, float]] = field(default_factory=list)
    """Numbers of pieces and the mean logarithm of their bounds, relative to that of the whole region."""

    def __post_init__(self) -> None:
        self.rays = not self.region.bounded
        self.cut = along_rays(self.network)[0] if self.rays else self.network  # what pieces and cuts speak of
        self.curved, self.deep = curved(self.network), deep(self.network)
        self.stretch = Stretch(self.norms)

    def run(self, cover: Cover, limits: Split, ceiling: float) -> None:
        """Cut until upper and lower meet, or time is up, or there are enough pieces, or they promise nothing."""
        most = np.inf if limits.pieces is None else limits.pieces
        few, now = self.network.inputs <= FEW_INPUTS, clock()
        samples, starts = (1000, 16) if few else (100, 4)
        ends = {"input_norm": self.norms.input, "output_norm": self.norms.output, "seconds": max(0.1 * now.left, 0.0)}
        start = lower_bound(self.network, self.region, samples=samples, starts=starts, **ends)  # type: ignore[arg-type]
        self.lower, self.witness = start.value, start.point
        if cover.bound > VANISHING:
            self.whole = cover.leaf(0).bound
            self.add(self.parts(cover, self.faces(cover)))
        began = before = time.perf_counter()
        pace = 0.0
        while self.open and now.allows(pace) and cover.pieces < most:
            enough = max(self.lower * (1.0 + limits.tolerance), VANISHING)
            if self.upper <= enough:
                return
            batch = [cover.leaf(node) for node in self.worst()]
            self.done = max(self.done, *(leaf.bound for leaf in batch if leaf.bound <= enough), 0.0)
            kept = [leaf for leaf in batch if leaf.bound > enough and not self.settle(cover, leaf)]
            if not kept:
                continue
            self.add(self.halved(cover, kept))
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
        entries = _CURVED if self.curved else _ENTRIES
        return min(_BATCH, max(2, entries // max(self.network.sizes[1:-1]) ** 2))

    @property
    def batch(self) -> int:
        return int(np.clip(len(self.open) // 3, 1, self.most))

    def worst(self) -> list[int]:
        """The pieces to cut next, no longer open: some of the worst, and all that are as bad as the worst of them.

        Where the first cuts gain nothing, all pieces have the bound of the whole region, and are cut breadth first.
        """
        count, top = self.batch, self.open[0][0]
        found: list[int] = []
        while self.open and (len(found) < count or (self.open[0][0] == top and len(found) < self.most)):
            found.append(heapq.heappop(self.open)[1])
        return found

    def faces(self, cover: Cover) -> list[Leaf]:
        """What to begin with: the region itself, or the faces of a box of rays, as thin as floats allow."""
        rest = [cover.leaf(0)]
        if not self.rays:
            return rest
        found, count, edge = [], self.network.inputs, float(np.nextafter(1.0, 0.0))
        for axis, value in [(k, side) for k in range(count) for side in (-edge, edge)] + [(count, edge)]:
            if rest:
                halves = cover.cut([rest[0].node], np.array([AXIS]), np.array([axis]), np.array([value]))
                inner = [abs(leaf.piece.lower[0, axis] + leaf.piece.upper[0, axis]) < 1.5 for leaf in halves]
                rest = [leaf for leaf, is_inner in zip(halves, inner, strict=True) if is_inner]
                found += [leaf for leaf, is_inner in zip(halves, inner, strict=True) if not is_inner]
        return found

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if leaves and self.network.inputs <= FEW_INPUTS:
            middles = [0.5 * leaf.piece.lower[0] + 0.5 * leaf.piece.upper[0] for leaf in leaves]
            self.meet(np.array(middles))
        for leaf in leaves:
            heapq.heappush(self.open, (-leaf.bound, leaf.node))

    def parts(self, cover: Cover, leaves: list[Leaf]) -> list[Leaf]:
        """What to begin with: where slopes are smooth and bounds of leaves say nothing, parts without bounds.

        They are cut until halves of some part, of which nothing is kept, have bounds that say something.
        """
        bounding, now, level = cover.bounding, clock(), 1
        while self.curved and leaves and max(leaf.bound for leaf in leaves) > _NOTHING * self.lower > 0.0:
            if level % self.network.inputs == 0:
                probe = leaves[len(leaves) // 2]
                bounds = bounding.bound(bounding.halves(probe.piece, *self.cuts([probe], bounding.starts))).values
                now.say(f"{len(leaves)} parts, halves of one have bounds to {bounds.max():.4g}, lower {self.lower:.4g}")
                if bounds.max() <= _NOTHING * self.lower or len(leaves) > _PARTS or not now.allows(0.0):
                    break
            leaves = cover.cut([leaf.node for leaf in leaves], *self.cuts(leaves, bounding.starts), passing=True)
            level += 1
        return leaves

    def halved(self, cover: Cover, leaves: list[Leaf]) -> list[Leaf]:
        """What the leaves are cut into: halves, or where bounds to second order are far too large, parts of halves.

        Halves that are cut again anyway need no bounds of their own. Leaves without a bound of their own get one now.
        """
        starts = cover.bounding.starts
        for limit in _FAR[self.deep :] if self.lower > 0.0 else ():
            far = [leaf for leaf in leaves if leaf.piece.second[0] and limit * self.lower < leaf.bound < self.whole]
            if far and len(leaves) + len(far) <= 4 * self.most:
                nodes = {leaf.node for leaf in far}
                leaves = [leaf for leaf in leaves if leaf.node not in nodes]
                leaves += cover.cut([leaf.node for leaf in far], *self.cuts(far, starts), passing=True)
        return cover.cut([leaf.node for leaf in leaves], *self.cuts(leaves, starts))

    def settle(self, cover: Cover, leaf: Leaf) -> bool:
        """Whether nothing is left to do for a piece, because none of its neurons is open.

        Its bound is then attained if it has an input, and that raises the lower bound; or it has none, and weights
        that prove so end the matter. Where neither can be shown, the piece must be cut.
        """
        if self.far(leaf.piece):
            apart = weights_at_infinity(cover.bounding, leaf.piece)
            if apart is not None and cover.drop(leaf.node, apart):
                return True
        if (leaf.shares > 0).any():
            return False
        point, weights = witness(cover.bounding, leaf.piece)
        if point is not None:
            self.meet(point[None])
            if self.lower >= leaf.bound * _ATTAINED:
                self.done = max(self.done, leaf.bound)
                return True
        return cover.drop(leaf.node, weights)

    def meet(self, points: Array) -> None:
        """The best of the points, if it is better than all before; on a ray, x/t is the input."""
        if self.rays:
            points = points[points[:, -1] > 0.0]
            points = points[:, :-1] / points[:, -1:]
        points = self.region.project(points)
        points = points[np.isfinite(points).all(axis=1)]  # the middle of a huge piece may overflow
        if not len(points):
            return
        norms = jacobian_norms(self.network, points, self.stretch)
        best = int(np.argmax(norms))
        if norms[best] > self.lower:
            self.lower, self.witness = float(norms[best]), points[best]
            if self.network.inputs <= FEW_INPUTS:
                self.witness = uphill(self.network, self.region, points[best], stretch=self.stretch)
                self.lower = float(jacobian_norms(self.network, self.witness[None], self.stretch)[0])

    def cuts(self, leaves: list[Leaf], starts: Array) -> tuple[Array, Array, Array]:
        """Where to cut each of the pieces; ``starts`` tells where the neurons of each hidden layer begin."""
        where, what, at = [], [], []
        few = self.network.inputs <= FEW_INPUTS
        axes = to_halve(self.cut, leaves, self.rays) if few else np.zeros(0, dtype=int)
        for number, leaf in enumerate(leaves):
            piece, shares = leaf.piece, leaf.shares
            open_neurons = int((shares > 0).sum())
            if open_neurons and (not few or open_neurons <= _FEW or self.far(piece)):
                neuron = int(np.argmax(shares))
                layer = int(np.searchsorted(starts, neuron, side="right")) - 1
                where.append(layer)
                what.append(neuron - int(starts[layer]))
                at.append(kink(self.cut.layers[layer], what[-1], piece.low[:, neuron], piece.high[:, neuron]))
            else:
                known = few and not self.whole == leaf.bound > _NOTHING * self.lower  # what to blame
                axis = int(axes[number] if known else np.argmax((piece.upper - piece.lower)[0]))
                where.append(AXIS)
                what.append(axis)
                at.append(float(0.5 * piece.lower[0, axis] + 0.5 * piece.upper[0, axis]))
        return np.array(where), np.array(what), np.array(at)

    def far(self, piece: Pieces) -> bool:
        """Whether a piece of rays is small and goes on to infinity: there boxes do not tell signs of later layers."""
        return self.rays and bool(piece.lower[0, -1] == 0.0 and (piece.upper - piece.lower).max() <= _SMALL)
