"""A point of a piece on which the network is affine: where its bound is attained, if there is one."""

from __future__ import annotations

import numpy as np

from lipcert.network import Network
from lipcert.regions import Region
from lipcert.typing import Array
from lipcert.verify.pieces import Pieces
from lipcert.verify.stack import Stack

_ROUNDS = 60
_INWARD = 1e-6
"""How far inside its interval, in units of the interval's part of the region, a neuron is asked to be."""


def witness(stack: Stack, piece: Pieces) -> Array | None:
    """A point of the region at which all confined neurons of one piece are inside their intervals, or None.

    Where every slope of a piece is a single number, the pre-activations are affine functions A x + c of its inputs.
    Projections onto the set where they obey, and onto the region, take turns.
    """
    network, region = stack.network, stack.region
    A, c, low, high = _constraints(stack, piece)
    x = region.center
    if not len(A):
        return x
    inverse = np.linalg.pinv(A @ A.T, rcond=1e-10, hermitian=True)
    margin = np.minimum(_INWARD * region.radius * np.sqrt((A * A).sum(axis=-1)), 0.25 * (high - low))
    for _ in range(_ROUNDS):
        v = A @ x + c
        if ((low < v) & (v < high)).all():
            return x if _obeys(network, region, stack, piece, x) else None
        x = region.project(x + A.T @ (inverse @ (np.clip(v, low + margin, high - margin) - v)))
    return None


def _constraints(stack: Stack, piece: Pieces) -> tuple[Array, Array, Array, Array]:
    """A, c, low, high of the neurons whose slope is open in the whole region and known in the piece."""
    rows, offsets, low, high = [], [], [], []
    slopes: list[Array] = []
    for index, part in enumerate(stack.slices):
        layer = stack.network.layers[index]
        assert layer.neurons is not None
        ends = piece.low[0, part], piece.high[0, part]
        alpha, beta = layer.neurons.slope_range(*ends)
        slopes.append(0.5 * (alpha + beta))
        open_ = (stack.slopes[index][0] < stack.slopes[index][1])[0]
        some = np.flatnonzero(open_ & (alpha == beta))
        row, offset = _traced(stack, index, some, slopes, piece)
        rows.append(row)
        offsets.append(offset)
        low.append(ends[0][some])
        high.append(ends[1][some])
    return np.concatenate(rows), np.concatenate(offsets), np.concatenate(low), np.concatenate(high)


def _traced(stack: Stack, index: int, some: Array, slopes: list[Array], piece: Pieces) -> tuple[Array, Array]:
    """Pre-activations of some neurons as affine functions of the input."""
    rows, offset = stack.weights[index][some], stack.network.layers[index].bias[some]
    for back in range(index - 1, -1, -1):
        layer = stack.network.layers[back]
        assert layer.neurons is not None
        ends = piece.low[0, stack.slices[back]], piece.high[0, stack.slices[back]]
        middle = 0.5 * ends[0] + 0.5 * ends[1]
        offset = offset + rows @ (layer.neurons.value(middle) - slopes[back] * middle)
        rows = rows * slopes[back]
        offset = offset + rows @ layer.bias
        rows = rows @ stack.weights[back]
    return rows, offset


def _obeys(network: Network, region: Region, stack: Stack, piece: Pieces, x: Array) -> bool:
    """Whether the network itself has the piece's slopes at the point."""
    seen = np.concatenate(network.preactivations(x)[:-1])
    return bool(((piece.low[0] <= seen) & (seen <= piece.high[0])).all())
