"""Branch and bound: cut the region, bound the pieces, take the maximum."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field, replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.cover import Cover, Leaf, cover
from lipcert.proof.pieces import AXIS
from lipcert.runtime.progress import Report, watched
from lipcert.runtime.threads import one_thread
from lipcert.search.candidate import Candidate
from lipcert.search.joint import Joint
from lipcert.search.lower import jacobian_norms, lower_bound
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.witness import witness

_BATCH = 256
_ENTRIES = 350_000
"""Numbers in one stack of matrices at most; more would leave the processor's caches."""
_WIDEST = 1200
"""Layers wider than this leave time for too few pieces."""
_FEW = 4
"""A piece with so few open neurons is cut by their sign: then its bound becomes exact."""
_FEW_INPUTS = 16
"""With at most so many inputs, halving boxes gets somewhere."""
_ATTAINED = 1.0 - 1e-6
"""The share of its bound that a piece must show at a point before it is left alone."""


@dataclass(frozen=True)
class Split(Method):
    """The largest bound over pieces of the region, always cutting the piece with the largest.

    On a convex region the Lipschitz constant is the largest Jacobian norm, so any cover will do. Pieces are cut by
    halving an input axis or by confining a neuron to one side of its kink; when no neuron of a piece is open its
    bound is the norm itself. The bound is valid whenever the search stops: at the tolerance, at the end of its time,
    on an interrupt, or where the bound of a piece cannot be proved.

    Parameters
    ----------
    method
        Bounds the whole region first.
    seconds
        About how long to go on.
    tolerance
        Stop when upper/lower ≤ 1 + tolerance.
    workers
        Processes that bound pieces; 1 works in this one.
    pieces
        Stop after so many pieces, or a few more; None is no limit. Unlike time, it does not depend on the machine.
    """

    method: Method = field(default_factory=lambda: Joint(seconds=5.0))
    seconds: float = 60.0
    tolerance: float = 0.05
    workers: int = 1
    pieces: int | None = None

    def solve(self, problem: Problem) -> Candidate:
        started = time.perf_counter()
        if not problem.region.bounded:
            raise InvalidInput("Split needs a bounded region, such as Ball(center, radius)")
        candidate = self.method.solve(problem)
        return self.refine(problem, candidate, started + self.seconds)

    def refine(self, problem: Problem, candidate: Candidate, end: float) -> Candidate:
        """A candidate with a tree of pieces, if that is better than the candidate itself."""
        widest = max(problem.network.sizes[1:-1], default=0)
        if not 0 < widest <= _WIDEST or problem.known is not None:
            return candidate
        search, kept = _Search(problem.network, problem.region), None
        with watched() as report:
            try:
                with cover(problem.network, problem.region, candidate.sweeps, self.workers, one_thread) as kept:
                    search.run(kept, self, end, candidate.bound, report)
            except KeyboardInterrupt:
                report("interrupted; the best bound so far is kept")
            except (ProofFailed, np.linalg.LinAlgError) as failure:
                report(f"stopped, the best bound so far is kept: {failure}")
        found = replace(candidate, witness=search.witness)
        if kept is None or not kept.bound < candidate.bound:
            return found
        return replace(found, bound=kept.bound, cover=kept)


@dataclass(eq=False)
class _Search:
    """Which pieces are still open, worst first, and the largest norm that was met; the cover keeps the books."""

    network: Network
    region: Region
    open: list[tuple[float, int]] = field(default_factory=list)
    """Minus the bound, and the node."""
    done: float = 0.0
    lower: float = 0.0
    witness: Array | None = None

    def run(self, cover: Cover, limits: Split, end: float, ceiling: float, report: Report) -> None:
        """Cut until upper and lower meet, or time is up, or there are enough pieces."""
        most = np.inf if limits.pieces is None else limits.pieces
        few = self.network.inputs <= _FEW_INPUTS
        start = lower_bound(self.network, self.region, samples=1000 if few else 100, starts=16 if few else 4)
        self.lower, self.witness = start.value, start.point
        self.add([cover.leaf(0)] if cover.bound > 0.0 else [])
        while self.open and time.perf_counter() < end and cover.pieces < most:
            enough = self.lower * (1.0 + limits.tolerance)
            if self.upper <= enough:
                return
            batch = [cover.leaf(heapq.heappop(self.open)[1]) for _ in range(min(len(self.open), self.batch))]
            self.done = max(self.done, *(leaf.bound for leaf in batch if leaf.bound <= enough), 0.0)
            kept = [leaf for leaf in batch if leaf.bound > enough and not self.settle(cover, leaf)]
            if not kept:
                continue
            self.add(cover.cut([leaf.node for leaf in kept], *self.cuts(kept, cover.bounding.starts)))
            share = min(self.upper, ceiling)
            report(
                f"{cover.pieces} pieces, {len(self.open)} open, upper {share:.4g}, lower {self.lower:.4g},"
                f" ratio {share / max(self.lower, 1e-300):.4g}"
            )

    @property
    def upper(self) -> float:
        """The largest bound of a leaf, as far as the search knows."""
        return max(self.done, -self.open[0][0] if self.open else 0.0)

    @property
    def batch(self) -> int:
        room = max(1, _ENTRIES // max(self.network.sizes[1:-1]) ** 2)
        return int(np.clip(len(self.open) // 3, 1, min(_BATCH, room)))

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if leaves and self.network.inputs <= _FEW_INPUTS:
            middles = [0.5 * leaf.piece.lower[0] + 0.5 * leaf.piece.upper[0] for leaf in leaves]
            self.meet(self.region.project(np.array(middles)))
        for leaf in leaves:
            heapq.heappush(self.open, (-leaf.bound, leaf.node))

    def settle(self, cover: Cover, leaf: Leaf) -> bool:
        """Whether nothing is left to do for a piece, because none of its neurons is open.

        Its bound is then attained if it has an input, and that raises the lower bound; or it has none, and weights
        that prove so end the matter. Where neither can be shown, the piece must be cut.
        """
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
        """The best of the points, if it is better than all before."""
        points = points[np.isfinite(points).all(axis=1)]  # the middle of a huge piece may overflow
        if not len(points):
            return
        norms = jacobian_norms(self.network, points)
        best = int(np.argmax(norms))
        if norms[best] > self.lower:
            self.lower, self.witness = float(norms[best]), points[best]

    def cuts(self, leaves: list[Leaf], starts: Array) -> tuple[Array, Array, Array]:
        """Where to cut each of the pieces; ``starts`` tells where the neurons of each hidden layer begin."""
        found = []
        for leaf in leaves:
            piece, shares = leaf.piece, leaf.shares
            open_neurons = int((shares > 0).sum())
            if open_neurons and (self.network.inputs > _FEW_INPUTS or open_neurons <= _FEW):
                neuron = int(np.argmax(shares))
                layer = int(np.searchsorted(starts, neuron, side="right")) - 1
                index = neuron - int(starts[layer])
                found.append((layer, index, self.middle(layer, index, piece.low[:, neuron], piece.high[:, neuron])))
            else:
                axis = int(np.argmax((piece.upper - piece.lower)[0]))
                found.append((AXIS, axis, float(0.5 * piece.lower[0, axis] + 0.5 * piece.upper[0, axis])))
        where, what, at = (np.array(part) for part in zip(*found, strict=True))
        return where, what, at

    def middle(self, layer: int, index: int, low: Array, high: Array) -> float:
        """The kink of a neuron inside its interval, or else the middle."""
        neurons = self.network.layers[layer].neurons
        assert neurons is not None
        row = neurons.take(np.array([index])).groups[0][0]
        if row.row.kinks:
            for knot, inside in row.knots_inside(low, high):
                if inside[0]:
                    return float(knot[0])
        return float(0.5 * low[0] + 0.5 * high[0])
