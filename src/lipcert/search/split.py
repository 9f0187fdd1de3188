"""Branch and bound: cut the region, bound the pieces, take the maximum."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.cover import Cover, Leaf, cover
from lipcert.proof.pieces import AXIS
from lipcert.runtime.clock import clock
from lipcert.runtime.threads import one_thread
from lipcert.search.anytime import Anytime
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
FEW_INPUTS = 16
"""With at most so many inputs, halving boxes gets somewhere."""
_WHOLE = 0.4
"""Share of the time for a bound of the whole region, before it is cut."""
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
_ATTAINED = 1.0 - 1e-6
"""The share of its bound that a piece must show at a point before it is left alone."""


@dataclass(frozen=True)
class Split(Anytime):
    """The largest bound over pieces of the region, always cutting the piece with the largest.

    On a convex region the Lipschitz constant is the largest Jacobian norm, so any cover will do. Pieces are cut by
    halving an input axis or by confining a neuron to one side of its kink; when no neuron of a piece is open its
    bound is the norm itself. The bound is valid whenever the search stops: at the tolerance, at the end of its time,
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
    """

    method: Method = field(default_factory=lambda: Joint(seconds=5.0))
    seconds: float = 60.0
    tolerance: float = 0.05
    workers: int = 1
    pieces: int | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """What the method for the whole region finds, then the pieces."""
        if not problem.region.bounded:
            raise InvalidInput("Split needs a bounded region, such as Ball(center, radius)")
        now, method, best = clock(), self.method, start
        now.check()
        if isinstance(method, Anytime):
            limit = np.inf if method.seconds is None else method.seconds
            with now.sharing(min(_WHOLE * now.left, limit) if affordable(problem, 1.0 - _WHOLE) else np.inf):
                for candidate in method.candidates(problem, start):
                    yield candidate
                    best = min(best, candidate, key=lambda found: found.bound)
        else:
            found = method.solve(problem)
            yield found
            best = min(best, found, key=lambda found: found.bound)
        yield from self.refined(problem, best)

    def refined(self, problem: Problem, candidate: Candidate, impatient: bool = False) -> Iterator[Candidate]:
        """A candidate with a tree of pieces, if that is better than the candidate itself.

        ``impatient`` gives up where more pieces promise nothing in the time that is left.
        """
        now = clock()
        if not affordable(problem):
            return
        search, kept, interrupt = _Search(problem.network, problem.region, impatient), None, None
        try:
            with cover(problem.network, problem.region, candidate.sweeps, self.workers, one_thread) as kept:
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


def affordable(problem: Problem, share: float = 1.0) -> bool:
    """Whether a share of the time that is left would do for pieces: the whole region is proved again to begin with."""
    widest = max(problem.network.sizes[1:-1], default=0)
    now = clock()
    return 0 < widest <= _WIDEST and problem.known is None and share * now.left >= _STARTING * now.sweep


@dataclass(eq=False)
class _Search:
    """Which pieces are still open, worst first, and the largest norm that was met; the cover keeps the books."""

    network: Network
    region: Region
    impatient: bool = False
    open: list[tuple[float, int]] = field(default_factory=list)
    """Minus the bound, and the node."""
    done: float = 0.0
    lower: float = 0.0
    witness: Array | None = None
    past: list[tuple[float, float]] = field(default_factory=list)
    """Numbers of pieces and the mean logarithm of their bounds, relative to that of the whole region."""

    def run(self, cover: Cover, limits: Split, ceiling: float) -> None:
        """Cut until upper and lower meet, or time is up, or there are enough pieces, or they promise nothing."""
        most = np.inf if limits.pieces is None else limits.pieces
        few, now = self.network.inputs <= FEW_INPUTS, clock()
        samples, starts = (1000, 16) if few else (100, 4)
        start = lower_bound(self.network, self.region, samples=samples, starts=starts, seconds=max(0.1 * now.left, 0.0))
        self.lower, self.witness = start.value, start.point
        self.add([cover.leaf(0)] if cover.bound > 0.0 else [])
        began = before = time.perf_counter()
        pace = 0.0
        while self.open and now.allows(pace) and cover.pieces < most:
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
    def batch(self) -> int:
        room = max(1, _ENTRIES // max(self.network.sizes[1:-1]) ** 2)
        return int(np.clip(len(self.open) // 3, 1, min(_BATCH, room)))

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if leaves and self.network.inputs <= FEW_INPUTS:
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
        where, what, at = [], [], []
        few = self.network.inputs <= FEW_INPUTS
        axes = self.axes(leaves) if few else np.zeros(0, dtype=int)
        for number, leaf in enumerate(leaves):
            piece, shares = leaf.piece, leaf.shares
            open_neurons = int((shares > 0).sum())
            if open_neurons and (not few or open_neurons <= _FEW):
                neuron = int(np.argmax(shares))
                layer = int(np.searchsorted(starts, neuron, side="right")) - 1
                where.append(layer)
                what.append(neuron - int(starts[layer]))
                at.append(self.middle(layer, what[-1], piece.low[:, neuron], piece.high[:, neuron]))
            else:
                axis = int(axes[number] if few else np.argmax((piece.upper - piece.lower)[0]))
                where.append(AXIS)
                what.append(axis)
                at.append(float(0.5 * piece.lower[0, axis] + 0.5 * piece.upper[0, axis]))
        return np.array(where), np.array(what), np.array(at)

    def axes(self, leaves: list[Leaf]) -> Array:
        """The axis to halve for each piece: the one that is most to blame for what its open neurons add to the bound.

        A neuron's pre-activation moves by |∂v_j/∂x_i|·width_i along axis i, to first order at the centre; its share of
        the bound is divided among the axes in proportion to the squares of that.
        """
        lower, upper = (
            np.concatenate(ends)
            for ends in zip(*((p.lower, p.upper) for p in (leaf.piece for leaf in leaves)), strict=True)
        )
        shares, width = np.stack([leaf.shares for leaf in leaves]), upper - lower
        values = self.network.preactivations(0.5 * lower + 0.5 * upper)
        blame, begin = np.zeros(width.shape), 0
        moves = dense(self.network.layers[0].weight) * width[:, None, :]
        for index, layer in enumerate(self.network.layers[:-1]):
            assert layer.neurons is not None
            squares = moves * moves
            total = squares.sum(axis=-1, keepdims=True)
            part = np.divide(squares, total, out=np.zeros(squares.shape), where=total > 0)
            blame += np.einsum("kn,kni->ki", shares[:, begin : begin + layer.size], part)
            begin += layer.size
            if index + 2 < len(self.network.layers):
                slope = layer.neurons.slope(values[index])
                moves = dense(self.network.layers[index + 1].weight) @ (slope[:, :, None] * moves)
        return np.argmax(blame + 1e-9 * width / width.max(axis=-1, keepdims=True), axis=-1)

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
