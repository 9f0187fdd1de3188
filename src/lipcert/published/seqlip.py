"""SeqLip: the network cut into pairs of singular frames, each maximised over the slopes between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.published.base import NotApplicable, Published, Run, global_slopes
from lipcert.search.problem import Problem

_BATCH = 2048


@dataclass(frozen=True)
class SeqLip(Published):
    """Virmaux and Scaman, *Lipschitz Regularity of Deep Neural Networks: Analysis and Efficient Estimation*, NeurIPS
    2018. Global: the region is ignored.

    With W_i = U_i Σ_i V_iᵀ the Jacobian is a product of factors Σ'_{i+1} V_{i+1}ᵀ D_i U_i Σ'_i, where Σ' is Σ at the
    two ends of the network and its root between, so that neighbours share it. The norm of each factor is convex in the
    slopes D_i, so it is largest at a corner of their box, and all corners are tried.

    Limits: the corners double with every neuron, so layers with more than ``widest`` neurons are refused. The
    greedy search for corners that the authors use there finds a lower value, not a bound: see :meth:`estimate`.

    Parameters
    ----------
    widest
        Most neurons of a layer whose corners are all tried; at 16 a layer takes seconds, at 20 minutes.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(SeqLip().value(net), 6)
    1.0
    """

    widest: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.widest <= 30:
            raise InvalidInput(f"widest must be from 0 to 30, got {self.widest}")

    def run(self, problem: Problem) -> Run:
        wide = max((int(np.count_nonzero(f.low < f.high)) for f in _factors(problem.network)), default=0)
        if wide > self.widest:
            raise NotApplicable(
                f"SeqLip would have to try 2^{wide} corners for a layer, and widest is {self.widest}; raise it, or call"
                " SeqLip().estimate(network) for the greedy value, which is not a bound"
            )
        if problem.network.depth == 1:
            return Run(float(np.linalg.norm(dense(problem.network.layers[0].weight), 2)))
        return Run(math.prod(factor.maximum() for factor in _factors(problem.network)))

    def estimate(self, network: Network) -> float:
        """The greedy value: an *estimate* of what all corners would give, at most that, and not a certified bound."""
        if network.depth == 1:
            return float(np.linalg.norm(dense(network.layers[0].weight), 2))
        return math.prod(factor.greedy() for factor in _factors(network))


@dataclass(frozen=True, eq=False)
class _Factor:
    """‖left · D · right‖ for slopes D between low and high."""

    left: Array
    right: Array
    low: Array
    high: Array

    def norms(self, slopes: Array) -> Array:
        """For slopes (..., n)."""
        return np.asarray(np.linalg.norm((self.left * slopes[..., None, :]) @ self.right, ord=2, axis=(-2, -1)))

    def maximum(self) -> float:
        """Over all corners."""
        free = np.flatnonzero(self.low < self.high)
        best = 0.0
        for first in range(0, 2**free.size, _BATCH):
            corner = np.arange(first, min(first + _BATCH, 2**free.size))
            slopes = np.tile(self.low, (corner.size, 1))
            chosen = (corner[:, None] >> np.arange(free.size)) & 1 == 1
            slopes[:, free] = np.where(chosen, self.high[free], self.low[free])
            best = max(best, float(self.norms(slopes).max()))
        return best

    def greedy(self) -> float:
        """From the steepest slopes on, the one change of a neuron that helps most, while one does."""
        slopes, free = self.high.copy(), np.flatnonzero(self.low < self.high)
        best = float(self.norms(slopes))
        while free.size:
            trials = np.tile(slopes, (free.size, 1))
            other = np.where(slopes[free] == self.high[free], self.low[free], self.high[free])
            trials[np.arange(free.size), free] = other
            norms = np.concatenate([self.norms(part) for part in np.array_split(trials, 1 + free.size // 64)])
            leader = int(np.argmax(norms))
            if norms[leader] <= best * (1.0 + 1e-12):
                break
            best, slopes = float(norms[leader]), trials[leader]
        return best


def _factors(network: Network) -> Iterator[_Factor]:
    parts = [np.linalg.svd(dense(layer.weight), full_matrices=False) for layer in network.layers]
    last = network.depth - 1
    for index, layer in enumerate(network.layers[:-1]):
        (frame, before, _), (_, behind, turned) = parts[index], parts[index + 1]
        left = (behind if index + 1 == last else np.sqrt(behind))[:, None] * turned
        right = frame * (before if index == 0 else np.sqrt(before))
        yield _Factor(left, right, *global_slopes(layer))
