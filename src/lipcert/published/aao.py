"""AAO: a sum over all ways to cut the network between layers, for averaged activation operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import dense
from lipcert.published.base import Published, Run, global_slopes
from lipcert.search.problem import Problem


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
