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

import numpy as np

from lipcert.errors import ProofFailed
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


def missed(lower: Array, upper: Array) -> Array:
    """Which boxes (count, inputs) have no coordinate of size one: each of their rays meets a face elsewhere."""
    return np.asarray((np.maximum(-lower, upper) < 1.0).all(axis=-1))
