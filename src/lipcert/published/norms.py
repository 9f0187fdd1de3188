"""Bounds from norms of weights: products, sums over cuts, and corners of slopes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.kernel.norm_product import norm_product
from lipcert.methods.method import Problem
from lipcert.model.arrays import Array, dense
from lipcert.published.base import NotApplicable, Published, Run, global_slopes


@dataclass(frozen=True)
class Trivial(Published):
    """‖W_N‖ Π ‖W_i‖ max|φ_i'|, as in Szegedy et al., *Intriguing Properties of Neural Networks*, ICLR 2014. Global: the
    region is ignored.

    Every network of finite slopes has one, in seconds: convolutions have the norms of their symbols, a max pool counts
    as such, a skip x + F(x) counts 1 + ‖F‖. Rounded up and proved: :mod:`lipcert.kernel.norm_product`.

    Limits: each layer is bounded by itself, as if the worst directions of all layers met.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[3.0]], [[2.0]]], activation="sigmoid")
    >>> round(lc.published.Trivial().value(net), 9)
    1.5
    """

    matrices = 0

    def run(self, problem: Problem) -> Run:
        return Run(norm_product(problem.network))


@dataclass(frozen=True)
class AAO(Published):
    """Combettes and Pesquet, *Lipschitz Certificates for Layered Network Structures Driven by Averaged Activation
    Operators*, SIAM Journal on Mathematics of Data Science 2, 2020. Global: the region is ignored.

    An averaged activation is a blend mId + rQ of the identity and a nonexpansive map; for ReLU m = r = ½. Multiplied
    out, the network is a sum over all subsets of its activations: where Q is taken the weights are cut and their norms
    multiplied, where Id is taken they are multiplied first. Activations with slopes in [α, β] are such blends with
    m = (α+β)/2, r = (β-α)/2, the extremes taken over the layer.

    Limits: the cut products see neither signs nor neurons. Published as a sum of 2^(N-1) terms; grouped by the last
    cut it takes N² products, which is what is done here.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(AAO().value(net), 6)  # ½‖W₂W₁‖ + ½‖W₂‖‖W₁‖
    1.0
    """

    def run(self, problem: Problem) -> Run:
        layers = problem.network.layers
        weights = [dense(layer.weight) for layer in layers]
        blends = []
        for layer in layers[:-1]:
            alpha, beta = global_slopes(layer)
            low, high = float(alpha.min()), float(beta.max())
            blends.append((0.5 * abs(low + high), 0.5 * (high - low)))
        ahead = [1.0]  # ahead[i]: the sum over the cuts of layers 1 … i, cut behind layer i
        for end in range(1, len(layers) + 1):
            product, share, total = np.eye(weights[end - 1].shape[0]), 1.0, 0.0
            for first in range(end, 0, -1):  # layers first … end uncut, a cut before them
                product = product @ weights[first - 1]
                cut = blends[first - 2][1] if first > 1 else 1.0
                total += share * float(np.linalg.norm(product, 2)) * cut * ahead[first - 1]
                share *= blends[first - 2][0] if first > 1 else 1.0
            ahead.append(total)
        return Run(ahead[-1])


_BATCH = 2048
"""Corners tried at once."""


@dataclass(frozen=True)
class SeqLip(Published):
    """Virmaux and Scaman, *Lipschitz Regularity of Deep Neural Networks: Analysis and Efficient Estimation*, NeurIPS
    2018. Global: the region is ignored.

    With W_i = U_i Σ_i V_iᵀ the Jacobian is a product of factors Σ'_{i+1} V_{i+1}ᵀ D_i U_i Σ'_i, where Σ' is Σ at the
    two ends of the network and its root between, so that neighbours share it. The norm of each factor is convex in the
    slopes D_i, so it is largest at a corner of their box, and all corners are tried.

    Limits: the corners double with every neuron, so layers with more than ``widest`` neurons are refused. The
    greedy search for corners that the authors use there finds a lower value, which is not a bound.

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
        layers = problem.network.layers
        slopes = [global_slopes(layer) for layer in layers[:-1]]
        wide = max((int(np.count_nonzero(low < high)) for low, high in slopes), default=0)
        if wide > self.widest:
            raise NotApplicable(
                f"SeqLip would have to try 2^{wide} corners for a layer, and widest is {self.widest}; raise it, or take"
                " LipSDP()"
            )
        parts = [np.linalg.svd(dense(layer.weight), full_matrices=False) for layer in layers]
        if len(parts) == 1:
            return Run(float(parts[0][1].max()))
        roots = [parts[0][1], *(np.sqrt(size) for _, size, _ in parts[1:-1]), parts[-1][1]]
        factors = (
            _at_corners(behind[:, None] * turned, frame * before, *ends)
            for (frame, *_), (*_, turned), before, behind, ends in zip(parts, parts[1:], roots, roots[1:], slopes)
        )
        return Run(math.prod(factors))


def _at_corners(left: Array, right: Array, low: Array, high: Array) -> float:
    """The largest ‖left · D · right‖ over all corners of the box of slopes D between low and high."""
    free, best = np.flatnonzero(low < high), 0.0
    for first in range(0, 2**free.size, _BATCH):
        corner = np.arange(first, min(first + _BATCH, 2**free.size))
        slopes = np.tile(low, (corner.size, 1))
        slopes[:, free] = np.where((corner[:, None] >> np.arange(free.size)) & 1 == 1, high[free], low[free])
        norms = np.linalg.norm((left * slopes[..., None, :]) @ right, ord=2, axis=(-2, -1))
        best = max(best, float(norms.max()))
    return best
