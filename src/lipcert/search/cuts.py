"""Where to cut a piece: which axis to halve, at which value to confine a neuron."""

from __future__ import annotations

import numpy as np

from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer, Network
from lipcert.proof.cover import Leaf
from lipcert.proof.pieces import Pieces


def to_halve(network: Network, leaves: list[Leaf], rays: bool) -> Array:
    """The axis to halve for each piece: the one that is most to blame for what its open neurons add to the bound.

    A neuron's pre-activation moves by |∂v_j/∂x_i|·width_i along axis i, to first order at the centre. Relative to
    its interval, that tells how much narrower halving the axis makes it, and the root of its share what that gains.
    Along ``rays``, where t moves too, what is off at the centre must not leave all the blame to t: slopes are then the
    middle ones.
    """
    pieces = Pieces.stack([leaf.piece for leaf in leaves])
    shares, width = np.sqrt(np.stack([leaf.shares for leaf in leaves])), pieces.upper - pieces.lower
    values = network.preactivations(0.5 * pieces.lower + 0.5 * pieces.upper)
    blame, begin = np.zeros(width.shape), 0
    moves = dense(network.layers[0].weight) * width[:, None, :]
    for index, layer in enumerate(network.layers[:-1]):
        assert layer.neurons is not None
        if begin >= shares.shape[-1]:  # nobody watches the layers that follow
            break
        mine = slice(begin, begin + layer.size)
        reach = np.maximum(pieces.high[:, mine] - pieces.low[:, mine], np.abs(moves).max(axis=-1))[:, :, None]
        part = np.divide(np.abs(moves), reach, out=np.zeros(moves.shape), where=reach > 0)
        blame += np.einsum("kn,kni->ki", shares[:, mine], part)
        begin += layer.size
        if index + 2 < len(network.layers):
            slope = layer.neurons.slope(values[index])
            if rays:
                slope = 0.5 * np.add(*layer.neurons.slope_range(pieces.low[:, mine], pieces.high[:, mine]))
            moves = dense(network.layers[index + 1].weight) @ (slope[:, :, None] * moves)
    return np.argmax(blame + 1e-9 * width / width.max(axis=-1, keepdims=True), axis=-1)


def kink(layer: Layer, neuron: int, low: Array, high: Array) -> float:
    """The kink of a neuron inside its interval, or else the middle."""
    assert layer.neurons is not None
    row = layer.neurons.take(np.array([neuron])).groups[0][0]
    if row.row.kinks:
        for knot, inside in row.knots_inside(low, high):
            if inside[0]:
                return float(knot[0])
    return float(0.5 * low[0] + 0.5 * high[0])
