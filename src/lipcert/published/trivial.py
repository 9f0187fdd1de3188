"""The oldest bound: a product of layer norms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lipcert.certificate import Proof
from lipcert.multipliers import Method
from lipcert.network import Layer, dense

if TYPE_CHECKING:
    from lipcert.certify import Problem


@dataclass(frozen=True)
class Trivial(Method):
    """‖W_N‖ Π ‖W_i‖ max|φ_i'|: each layer bounded by itself, the region ignored.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[3.0]], [[2.0]]], activation="sigmoid")
    >>> lc.certify(net, method=Trivial()).bound
    1.5
    """

    def solve(self, problem: Problem) -> Proof:
        return Proof(math.prod(_gain(layer) for layer in problem.network.layers), ())


def _gain(layer: Layer) -> float:
    norm = float(np.linalg.norm(dense(layer.weight), ord=2))
    if layer.neurons is None:
        return norm
    slopes = layer.neurons.slope_range(np.full(layer.size, -np.inf), np.full(layer.size, np.inf))
    return norm * float(np.abs(slopes).max())
