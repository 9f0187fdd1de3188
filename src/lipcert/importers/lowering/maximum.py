"""Same function: a maximum over windows becomes a tournament of max(a, b) = b + relu(a - b).

Equal pairs in overlapping windows are played once.
"""

from __future__ import annotations

import numpy as np

from lipcert.importers.graph import Affine, Apply, Graph, Maximum, Node, Pick, Rewriting, Sum
from lipcert.importers.precise import Precise
from lipcert.importers.precise_matrix import PreciseMatrix
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons


def expand_maxima(graph: Graph) -> Graph:
    """Replace every maximum by rounds of pairs."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.op, Maximum):
            new.copy(position, node)
            continue
        (operand,) = node.inputs
        values, size = new.place[operand], graph.nodes[operand].size
        windows = node.op.windows
        while (windows[:, 1:] >= 0).any() or (windows[:, 0] < 0).any():
            values, size, windows = _round(new, values, size, windows, node)
        new.place[position] = new.add(Pick(windows[:, 0]), (values,), node)
    return new.graph(graph.output)


def _round(new: Rewriting, values: int, size: int, windows: Array, node: Node) -> tuple[int, int, Array]:
    """One round: the new values, how many, and the windows in terms of them."""
    windows = np.take_along_axis(windows, np.argsort(windows < 0, axis=1, kind="stable"), axis=1)
    if windows.shape[1] % 2:
        windows = np.concatenate([windows, np.full((len(windows), 1), -1)], axis=1)
    one, two = windows[:, 0::2], windows[:, 1::2]  # present entries come first: if two is there, so is one
    low, high = np.minimum(one, two), np.maximum(one, two)
    paired = (two >= 0) & (low != high)
    pairs, place = np.unique(np.stack([low[paired], high[paired]], axis=1), axis=0, return_inverse=True)
    alone = (one >= 0) & ~paired
    singles, seat = np.unique(one[alone], return_inverse=True)
    result = np.full(one.shape, -1)
    result[paired] = place.ravel()
    result[alone] = len(pairs) + seat.ravel()
    count = len(pairs) + len(singles)
    if not len(pairs):
        return new.add(Pick(singles), (values,), node, (count,)), count, result
    last = not len(singles) and np.array_equal(result, np.arange(count)[:, None]) and count == node.size
    shape = node.shape if last else (count,)  # an image again, so that a convolution that follows is seen as one
    inner = (len(pairs),) if len(singles) else shape
    ends = np.tile(np.arange(len(pairs)), 2), np.concatenate([pairs[:, 0], pairs[:, 1]])
    signs = np.repeat([1.0, -1.0], len(pairs))
    difference = PreciseMatrix.of_entries((len(pairs), size), *ends, Precise.of(signs))
    gap = new.add(Affine(difference, Precise.of(np.zeros(len(pairs)))), (values,), node, inner)
    won = new.add(Apply(Neurons.of(activation("relu"), len(pairs))), (gap,), node, inner)
    base = new.add(Pick(np.concatenate([pairs[:, 1], singles])), (values,), node, shape)
    if len(singles):
        won = new.add(Pick(np.r_[np.arange(len(pairs)), np.full(len(singles), -1)]), (won,), node, (count,))
    return new.add(Sum(), (won, base), node, shape), count, result
