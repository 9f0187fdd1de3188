"""The oldest bound: a product of layer norms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer
from lipcert.published.base import Published, Run, global_slopes
from lipcert.search.ellipsoid import largest_of
from lipcert.search.problem import Problem

_WIDE = 1000
"""Rows and columns from which a norm is found from products alone."""


@dataclass(frozen=True)
class Trivial(Published):
    """‖W_N‖ Π ‖W_i‖ max|φ_i'|, as in Szegedy et al., *Intriguing Properties of Neural Networks*, ICLR 2014. Global: the
    region is ignored.

    Convolutions are never made into matrices, so images may be large.

    Limits: each layer is bounded by itself, as if the worst directions of all layers met.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[3.0]], [[2.0]]], activation="sigmoid")
    >>> lc.published.Trivial().value(net)
    1.5
    """

    matrices = 0  # convolutions stay kernels

    def run(self, problem: Problem) -> Run:
        return Run(math.prod(_gain(layer) for layer in problem.network.layers))


def _gain(layer: Layer) -> float:
    norm = _norm(layer)
    if layer.neurons is None:
        return norm
    return norm * float(np.abs(global_slopes(layer)).max())


def _norm(layer: Layer) -> float:
    """‖W‖: all singular values of a small matrix, or the largest one from products with the kernel or the matrix."""
    one = layer.convolution
    if min(layer.linear.shape) <= _WIDE:
        return float(np.linalg.norm(dense(layer.weight), ord=2))

    def twice(x: Array) -> Array:
        if one is not None:
            return one.backward(one.forward(x.reshape(1, -1)))[0]
        return np.asarray(layer.weight.T @ (layer.weight @ x))

    return math.sqrt(max(float(largest_of(layer.linear.shape[1], twice)), 0.0))
