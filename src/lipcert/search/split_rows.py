"""Branch and bound on several values at once: outputs from both sides, or entries of the Jacobian."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.cover import Cover, Leaf
from lipcert.proof.domain import corners
from lipcert.proof.hints import Interval
from lipcert.proof.pieces import AXIS, Pieces
from lipcert.runtime.clock import clock

_BATCH = 256
_ENTRIES = 1_000_000
"""Entries of the rows that are traced for one stack of pieces; more would leave the processor's caches."""
_SAMPLES, _STARTS, _STEPS = 2000, 8, 12
Reached = Callable[[Array], Array]
"""The values that are attained at points (count, inputs), (count, rows)."""


def output_values(network: Network, points: Array) -> Array:
    """Outputs from both sides."""
    values = network(points)
    return np.concatenate([values, -values], axis=-1)


def entry_sizes(network: Network, points: Array) -> Array:
    """Sizes of the entries of the Jacobian."""
    return np.abs(network.jacobian(points)).reshape(len(points), -1)


def attained(network: Network, region: Region, reached: Reached, climbs: bool) -> Array:
    """The largest values met at sampled points, (rows,), after a few steps uphill where values are outputs."""
    points = region.sample(_SAMPLES, np.random.default_rng(0))
    values = reached(points)
    best = values.max(axis=0)
    if not climbs:
        return best
    rows, size = values.shape[1], float(region.extent)
    here = points[np.argsort(-values, axis=0)[:_STARTS].T.ravel()]
    row = np.repeat(np.arange(rows), _STARTS)
    sign, output = np.where(row < network.outputs, 1.0, -1.0), row % network.outputs
    for step in range(_STEPS):
        uphill = sign[:, None] * network.jacobian(here)[np.arange(len(here)), output]
        length = np.maximum(np.linalg.norm(uphill, axis=1, keepdims=True), 1e-300)
        here = region.project(here + 0.5**step * size * uphill / length)
        best = np.maximum(best, reached(here).max(axis=0))
    return best


@dataclass(eq=False)
class RowSearch:
    """Which pieces are still open, the one that is furthest above what is attained first; the cover keeps the books.

    ``lower`` (rows,) is attained somewhere; a value counts as found when it is within ``tolerance`` times ``scale``.
    """

    network: Network
    region: Region
    reached: Reached
    lower: Array
    scale: Array
    tolerance: float
    open: list[tuple[float, int]] = field(default_factory=list)

    def run(self, cover: Cover, most: float) -> None:
        """Cut until all values are found, or time is up, or there are enough pieces."""
        took = 0.0
        self.add([cover.leaf(0)])
        try:
            while self.open and cover.pieces < most and clock().allows(took):
                started = time.perf_counter()
                batch = [cover.leaf(heapq.heappop(self.open)[1]) for _ in range(min(len(self.open), self.batch))]
                batch = [leaf for leaf in batch if self.excess(leaf) > self.tolerance]
                if not batch:
                    return
                self.add(cover.cut([leaf.node for leaf in batch], *self.cuts(batch)))
                took = time.perf_counter() - started
                worst = -self.open[0][0] if self.open else 0.0
                clock().say(f"{cover.pieces} pieces, {len(self.open)} open, at most {worst:.3g} widths too large")
        except (ProofFailed, np.linalg.LinAlgError) as failure:
            clock().say(f"stopped, the best values so far are kept: {failure}")

    @property
    def batch(self) -> int:
        room = max(1, _ENTRIES // max(self.network.sizes[1:-1], default=1) ** 2)
        return int(np.clip(len(self.open) // 2, 1, min(_BATCH, room)))

    def excess(self, leaf: Leaf) -> float:
        """How far the values of a piece are above what is attained, at most, relative to the scale."""
        return float(((leaf.values - self.lower) / self.scale).max())

    def add(self, leaves: list[Leaf]) -> None:
        """New leaves, open until they are settled."""
        if not leaves:
            return
        middles = np.array([0.5 * leaf.piece.lower[0] + 0.5 * leaf.piece.upper[0] for leaf in leaves])
        middles = self.region.project(middles)
        self.lower = np.fmax(self.lower, self.reached(middles[np.isfinite(middles).all(axis=1)]).max(axis=0))
        for leaf in leaves:
            heapq.heappush(self.open, (-self.excess(leaf), leaf.node))

    def cuts(self, leaves: list[Leaf]) -> tuple[Array, Array, Array]:
        """The axis to halve of each piece: the one along which open slopes, of all layers, change outputs most.

        Halving axis i takes from neuron j of a layer about (β_j - α_j)·|∂v_j/∂x_i|·width_i times ‖∂f/∂φ_j‖, all
        derivatives by middle slopes. Where nothing is open, the widest axis in units of the region is halved.
        """
        pieces = Pieces.stack([leaf.piece for leaf in leaves])
        width = pieces.upper - pieces.lower
        whole = np.subtract(*corners(self.region)[::-1])
        score = np.divide(width, whole, out=np.zeros(width.shape), where=whole > 0.0)
        weights = [dense(layer.weight) for layer in self.network.layers]
        slopes = slopes_of(self.network, pieces)
        ahead = [weights[-1]]
        for weight, (alpha, beta) in zip(weights[-2:0:-1], slopes[:0:-1], strict=True):
            ahead.append((ahead[-1] * (0.5 * alpha + 0.5 * beta)[:, None, :]) @ weight)
        moves, open_ = weights[0] * width[:, None, :], np.zeros(width.shape)
        for number, (alpha, beta) in enumerate(slopes):
            weight = (beta - alpha) * np.linalg.norm(ahead[-1 - number], axis=-2)
            open_ += np.einsum("kn,kni->ki", weight, np.abs(moves))
            if number + 1 < len(slopes):
                moves = weights[number + 1] @ ((0.5 * alpha + 0.5 * beta)[:, :, None] * moves)
        most = open_.max(axis=-1, keepdims=True)
        axis = np.argmax(1e-9 * score + np.divide(open_, most, out=np.zeros(width.shape), where=most > 0.0), axis=1)
        rows = np.arange(len(leaves))
        at = 0.5 * pieces.lower[rows, axis] + 0.5 * pieces.upper[rows, axis]
        return np.full(len(leaves), AXIS), axis, at


def slopes_of(network: Network, pieces: Pieces) -> list[Interval]:
    """The slopes that the intervals of pieces allow, for each hidden layer."""
    found, begin = [], 0
    for layer in network.layers[:-1]:
        assert layer.neurons is not None
        mine = slice(begin, begin + layer.size)
        found.append(layer.neurons.slope_range(pieces.low[:, mine], pieces.high[:, mine]))
        begin += layer.size
    return found
