"""All of space, made bounded: the rays of a box with one input more.

Where φ(s·v) = s·φ(v) for every s > 0, as for relu, biases can be carried as multiples of a further input t ≥ 0:
v_1 = W_1 x + b_1 t, and so on, with a neuron in each layer that hands t on. That network is g(x, t) = t·f(x/t) for
t > 0. The sign of each of its pre-activations, hence each slope, is the same all along a ray s·(x, t), s > 0, and at
(x, 1) it is that of f at x; so ∂g/∂x at s·(x, 1) is the Jacobian of f at x. With s = 1/max(1, ‖x‖_∞) the ray meets the
box -1 ≤ x ≤ 1, 0 ≤ t ≤ 1 at a point where some coordinate has size one. Hence: if pieces cover those faces of the box,
the largest ‖∂g/∂x‖ of a piece is at least the Lipschitz constant of f over all of space. Pieces that keep away from the
faces are not needed. All this holds for each of the networks that a certificate speaks of: weights and biases keep
their relative errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.hints import Interval
from lipcert.model.activations import activation
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Box

STRAIGHT_FROM_ZERO = ("identity", "leaky_relu", "relu")
"""Rows of the activation table with φ(s·v) = s·φ(v) for all s > 0, whatever their parameters."""


def has_rays(network: Network) -> bool:
    """Whether slopes are the same all along a ray, once the biases are taken along."""
    rows = {row.name for layer in network.layers if layer.neurons for row, _ in layer.neurons.groups}
    return rows <= set(STRAIGHT_FROM_ZERO)


def along_rays(network: Network) -> tuple[Network, Box]:
    """The network g(x, t) above, t its last input and the last neuron of each hidden layer; and the box."""
    if not has_rays(network):
        raise ProofFailed("a region without bounds can be cut only where activations are straight from zero on")
    layers = []
    for layer in network.layers:
        weight = np.concatenate([dense(layer.weight), layer.bias[:, None]], axis=1)
        neurons = layer.neurons
        if neurons is not None:
            weight = np.concatenate([weight, np.eye(1, weight.shape[1], weight.shape[1] - 1)])
            carrier = activation("identity"), np.array([layer.size])
            neurons = Neurons(layer.size + 1, (*neurons.groups, carrier))
        layers.append(Layer(weight, np.zeros(len(weight)), neurons))
    corner = np.ones(network.inputs + 1)
    return Network(tuple(layers)), Box(np.append(-corner[:-1], 0.0), corner)


def only_at_infinity(network: Network, intervals: Sequence[Interval], weights: Sequence[Array]) -> bool:
    """Whether weights λ prove that no point with t > 0 of a network along rays has its neurons in their intervals.

    ``intervals`` and ``weights`` are those of each hidden layer, (neurons,). A positive λ_j counts where v_j ≥ 0 is
    asked for, a negative one where v_j ≤ 0 is; so Σ λ_j v_j ≥ 0. Layer by layer from the last, the sum is written in
    what comes before: row·z, each entry with an error. Where no term can be positive, because the signs of each entry
    and its z_j are known to differ, all but that of t are left out, which makes the sum larger. If in the end row_t·t
    is all that is left, and row_t < 0, then the sum is negative where t > 0: a contradiction. That asks for no bound
    of the inputs: near t = 0, however small v_j is, its sign is known.
    """
    row = Near.of(np.zeros(network.sizes[-2]))
    for layer, (low, high), weight in zip(network.layers[-2::-1], intervals[::-1], weights[::-1], strict=True):
        assert layer.neurons is not None
        if (((weight > 0.0) & ~(low >= 0.0)) | ((weight < 0.0) & ~(high <= 0.0))).any():
            return False
        left, right = (layer.neurons.slope(np.full(layer.size, side)) for side in (-1.0, 1.0))  # z = left·v⁻ + right·v⁺
        above, below = low >= 0.0, high <= 0.0
        positive = (below | (right >= 0.0)) & (above | (left <= 0.0))
        negative = (below | (right <= 0.0)) & (above | (left >= 0.0))
        gone = (positive & (row.value <= -row.error)) | (negative & (row.value >= row.error)) | (positive & negative)
        if not gone[:-1].all():  # what is not positive may outweigh something further back
            gone = positive & negative
        gone[-1] = False  # t itself
        row = row.replace(gone, 0.0)
        used = _some(row)
        if (used & ~(above | below | (left == right))).any():
            return False
        row = (row * np.where(above, right, left)).replace(~used, 0.0) + weight
        W = dense(layer.weight)
        row = row.through(W.T).replace(~(_some(row) @ (W != 0.0)), 0.0)  # a sum of zeros is zero
    last = row[-1]
    return bool(not _some(row[:-1]).any() and last.value < -last.error)


def _some(row: Near) -> Array:
    """Which entries may be other than zero."""
    return np.asarray((row.value != 0.0) | (row.error != 0.0))
