"""Branch and bound: cut the region, bound the pieces, take the maximum."""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.lower import jacobian_norms, lower_bound
from lipcert.multipliers import Joint, Method
from lipcert.network import Network
from lipcert.progress import Report, watched
from lipcert.regions import Region
from lipcert.threads import suited_to
from lipcert.typing import Array
from lipcert.verify.backward import Interval
from lipcert.verify.checker import intervals
from lipcert.verify.pieces import AXIS, LEAF, Bounds, Pieces
from lipcert.verify.stack import Stack
from lipcert.verify.tree import Tree, children, confined
from lipcert.witness import witness

if TYPE_CHECKING:
    from lipcert.certificate import Proof, Sweep
    from lipcert.certify import Problem

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
_AGAIN = 1.0 + 2.0**-24
"""Other stacks round otherwise: room for a check that bounds the same pieces in other company."""


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
    """

    method: Method = field(default_factory=lambda: Joint(seconds=5.0))
    seconds: float = 60.0
    tolerance: float = 0.05
    workers: int = 1

    def solve(self, problem: Problem) -> Proof:
        started = time.perf_counter()
        if not problem.region.bounded:
            raise InvalidInput("Split needs a bounded region, such as Ball(center, radius)")
        proof = self.method.solve(problem)
        return self.refine(problem, proof, started + self.seconds)

    def refine(self, problem: Problem, proof: Proof, end: float) -> Proof:
        """A proof with a tree of pieces, if that is better than the proof itself."""
        widest = max(problem.network.sizes[1:-1], default=0)
        if not 0 < widest <= _WIDEST or problem.known is not None:
            return proof
        search = _Search(problem.network, problem.region)
        with watched() as report:
            try:
                with _bounding(self.workers, problem, proof) as bounding:
                    search.run(bounding, self.tolerance, end, proof.bound, report)
            except KeyboardInterrupt:
                report("interrupted; the best bound so far is kept")
            except (ProofFailed, np.linalg.LinAlgError) as failure:
                report(f"stopped, the best bound so far is kept: {failure}")
        tree = search.tree()
        found = replace(proof, witness=search.witness)
        return replace(found, bound=tree.bound, tree=tree) if tree.bound < proof.bound else found


_Entry = tuple[float, int, Pieces, Array]
"""Minus the bound, the node, the piece, and the shares of neurons in its bound."""


@dataclass(eq=False)
class _Search:
    """The tree as it grows, and the pieces that are still open, worst first."""

    network: Network
    region: Region
    layer: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    child: list[int] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    open: list[_Entry] = field(default_factory=list)
    void: dict[int, Array] = field(default_factory=dict)
    """Weights that show of some leaves that they have no input."""
    whole: int = 0
    """Nodes that belong to a finished tree; an interrupt may leave some behind that do not."""
    done: float = 0.0
    lower: float = 0.0
    witness: Array | None = None

    def run(self, bounding: _Bounding, tolerance: float, end: float, ceiling: float, report: Report) -> None:
        """Cut until upper and lower meet, or time is up."""
        few = self.network.inputs <= _FEW_INPUTS
        start = lower_bound(self.network, self.region, samples=1000 if few else 100, starts=16 if few else 4)
        self.lower, self.witness = start.value, start.point
        self.add(bounding.stack.root, bounding(bounding.stack.root))
        self.whole = 1
        while self.open and time.perf_counter() < end:
            upper = self.upper
            if upper <= self.lower * (1.0 + tolerance):
                return
            batch = [heapq.heappop(self.open) for _ in range(min(len(self.open), self.batch))]
            enough = self.lower * (1.0 + tolerance)
            self.done = max(self.done, *(-entry[0] for entry in batch if -entry[0] <= enough), 0.0)
            kept = [entry for entry in batch if -entry[0] > enough and not self.settle(bounding.stack, entry)]
            if not kept:
                continue
            cut, pieces = self.cut(kept, bounding.stack.starts)
            halves = children(pieces, bounding.stack.starts, *cut)
            found = bounding(halves)
            for number, (_, node, *_) in enumerate(kept):
                self.layer[node], self.index[node], self.value[node] = (column[number].item() for column in cut)
                self.child[node] = self.whole + 2 * number
            self.add(halves, found)
            self.whole = len(self.child)
            share = min(self.upper, ceiling)
            report(
                f"{len(self.layer)} pieces, {len(self.open)} open, upper {share:.4g}, lower {self.lower:.4g},"
                f" ratio {share / max(self.lower, 1e-300):.4g}"
            )

    @property
    def upper(self) -> float:
        """The largest bound of a leaf."""
        return max(self.done, -self.open[0][0] if self.open else 0.0)

    @property
    def batch(self) -> int:
        room = max(1, _ENTRIES // max(self.network.sizes[1:-1]) ** 2)
        return int(np.clip(len(self.open) // 3, 1, min(_BATCH, room)))

    def add(self, pieces: Pieces, found: Bounds) -> None:
        """New leaves; those that can be cut further stay open."""
        pieces = confined(pieces, found)
        if self.network.inputs <= _FEW_INPUTS:
            self.meet(self.region.project(0.5 * pieces.lower + 0.5 * pieces.upper))
        for number, bound in enumerate(found.bound):
            node = len(self.layer)
            self.layer.append(LEAF)
            self.index.append(0)
            self.value.append(0.0)
            self.bound.append(float(bound))
            self.child.append(0)
            if bound <= 0.0:
                continue
            one = slice(number, number + 1)
            entry = (-float(bound), node, pieces.take(one).copy(), found.open[number].copy())
            heapq.heappush(self.open, entry)

    def settle(self, stack: Stack, entry: _Entry) -> bool:
        """Whether nothing is left to do for a piece, because none of its neurons is open.

        Its bound is then attained if it has an input, and that raises the lower bound; or it has none, and weights
        that prove so end the matter. Where neither can be shown, the piece must be cut.
        """
        bound, node, piece, shares = entry
        if (shares > 0).any():
            return False
        point, weights = witness(stack, piece)
        if point is not None:
            self.meet(point[None])
            if self.lower >= -bound * _ATTAINED:
                self.done = max(self.done, -bound)
                return True
        if stack.is_void(piece, weights):
            self.void[node], self.bound[node] = weights, 0.0
            return True
        return False

    def meet(self, points: Array) -> None:
        """The best of the points, if it is better than all before."""
        norms = jacobian_norms(self.network, points)
        best = int(np.argmax(norms))
        if norms[best] > self.lower:
            self.lower, self.witness = float(norms[best]), points[best]

    def cut(self, entries: list[_Entry], starts: Array) -> tuple[tuple[Array, Array, Array], Pieces]:
        """Where to cut each of the pieces; ``starts`` tells where the neurons of each hidden layer begin."""
        where, what, at = [], [], []
        for _, _, piece, shares in entries:
            open_neurons = int((shares > 0).sum())
            if open_neurons and (self.network.inputs > _FEW_INPUTS or open_neurons <= _FEW):
                neuron = int(np.argmax(shares))
                layer = int(np.searchsorted(starts, neuron, side="right")) - 1
                where.append(layer)
                what.append(neuron - int(starts[layer]))
                at.append(self.middle(layer, what[-1], piece.low[:, neuron], piece.high[:, neuron]))
            else:
                width = (piece.upper - piece.lower)[0]
                axis = int(np.argmax(width))
                where.append(AXIS)
                what.append(axis)
                at.append(float(0.5 * piece.lower[0, axis] + 0.5 * piece.upper[0, axis]))
        stacked = Pieces.stack([entry[2] for entry in entries])
        return (np.array(where), np.array(what), np.array(at)), stacked

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

    def tree(self) -> Tree:
        """The tree as arrays: its finished part, which is a cover at any moment."""
        layer, index, value, child, bound = (
            np.array(column[: self.whole]) for column in (self.layer, self.index, self.value, self.child, self.bound)
        )
        cut = (child > 0) & (child < self.whole)
        layer, index, child = np.where(cut, layer, LEAF), np.where(cut, index, 0), np.where(cut, child, 0)
        worst = float(bound[~cut].max()) if self.whole else np.inf
        void = {node: weights for node, weights in self.void.items() if node < self.whole}
        rows = np.array(list(void.values())).reshape(len(void), sum(self.network.sizes[1:-1]))
        row, neuron = np.nonzero(rows)
        columns = np.array(list(void), dtype=int)[row], neuron, rows[row, neuron]
        return Tree(layer, index, np.where(cut, value, 0.0), child, worst * _AGAIN, *columns)


class _Bounding:
    """Bounds of pieces, in this process or shared among workers."""

    def __init__(self, stack: Stack, pool: Executor | None, workers: int) -> None:
        self.stack, self.pool, self.workers = stack, pool, workers

    def __call__(self, pieces: Pieces) -> Bounds:
        if self.pool is None or len(pieces) < 2 * self.workers:
            return self.stack.bound(pieces)
        parts = [pieces.take(part) for part in np.array_split(np.arange(len(pieces)), self.workers)]
        return Bounds.stack(list(self.pool.map(_work, parts)))


@contextmanager
def _bounding(workers: int, problem: Problem, proof: Proof) -> Iterator[_Bounding]:
    known = intervals(problem.network, problem.region, proof.sweeps)
    prepared = (problem.network, problem.region, known, proof.sweeps[-1] if proof.sweeps else None)
    stack = Stack(*prepared)
    if workers <= 1:
        yield _Bounding(stack, None, 1)
        return
    with ProcessPoolExecutor(workers, initializer=_prepare, initargs=prepared) as pool:
        yield _Bounding(stack, pool, workers)


_shared: dict[str, Stack] = {}


def _prepare(network: Network, region: Region, known: list[Interval], hints: Sweep | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that has the tree
    with suited_to(max(network.sizes)):
        _shared["stack"] = Stack(network, region, known, hints)


def _work(pieces: Pieces) -> Bounds:
    stack = _shared["stack"]
    with suited_to(max(stack.network.sizes)):
        return stack.bound(pieces)
