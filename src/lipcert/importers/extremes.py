"""Same function: maxima and minima over windows, by activations.

A maximum becomes a tournament of max(a, b) = b + relu(a - b). Where both the maximum and the minimum of the same pairs
are taken, as in sorting, let s = (a + b)/√2 and d = (a - b)/√2. Then max(a, b) = (s + |d|)/√2 and
min(a, b) = (s - |d|)/√2. Both maps are rotations, and |·| has slopes in [-1, 1], so a bound sees that sorting is
1-Lipschitz. With one neuron for the maximum and another for the minimum it would not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lipcert.importers.graph import Apply, Graph, Linear, Maximum, Node, Rewriting
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons

_ROOT_HALF = Precise.of(2.0).inverse_root()


def expand_maxima(graph: Graph) -> Graph:
    """Replace pairs whose maxima and minima are both taken by rotations, every other maximum by rounds of pairs."""
    signs: dict[Any, set[float]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Maximum):
            signs.setdefault(_seen(node.inputs[0], node.op.windows), set()).add(node.op.sign)
    new, ordered = Rewriting(), {}
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.op, Maximum):
            new.copy(position, node)
            continue
        values, windows, sign = new.place[node.inputs[0]], node.op.windows, node.op.sign
        key, size = _seen(node.inputs[0], windows), graph.nodes[node.inputs[0]].size
        if len(signs[key]) == 2 and _pairs(windows):
            if key not in ordered:
                ordered[key] = _ordered(new, values, windows, node, size)
            index = 2 * np.arange(node.size) + (sign > 0)
            new.place[position] = new.add(Linear.of(PreciseMatrix.choosing(index, windows.size)), (ordered[key],), node)
            continue
        values = _signed(new, values, sign, graph.nodes[node.inputs[0]])
        while (windows[:, 1:] >= 0).any() or (windows[:, 0] < 0).any():
            values, size, windows = _round(new, values, size, windows, node)
        chosen = Linear.of(PreciseMatrix.choosing(windows[:, 0], size))
        new.place[position] = _signed(new, new.add(chosen, (values,), node), sign, node)
    return new.graph(graph.output)


def _seen(position: int, windows: Array) -> Any:
    return position, windows.shape, windows.tobytes()


def _pairs(windows: Array) -> bool:
    """Whether each window has two different elements, and no window is there twice."""
    return (
        windows.shape[1] == 2
        and bool((windows >= 0).all() and (windows[:, 0] != windows[:, 1]).all())
        and len(np.unique(np.sort(windows, axis=1), axis=0)) == len(windows)
    )


def _ordered(new: Rewriting, values: int, pairs: Array, node: Node, before: int) -> int:
    """For each pair (pairs, 2) of positions the smaller value, then the larger one.

    Sums become neurons too, with the activation identity: so what a bound sees is rotated, not stretched.
    """
    count, size = len(pairs), pairs.size
    low, high = np.arange(0, size, 2), np.arange(1, size, 2)
    sums, gaps = np.arange(count), np.arange(count, size)

    def rotated(values: int, rows: list[Array], columns: list[Array], signs: list[float]) -> int:
        entries = _ROOT_HALF * Precise.of(np.repeat(signs, count))
        weight = PreciseMatrix.of_entries((size, size), np.concatenate(rows), np.concatenate(columns), entries)
        return new.add(Linear.of(weight), (values,), node, (size,))

    picked = new.add(Linear.of(PreciseMatrix.choosing(pairs.ravel(), before)), (values,), node, (size,))
    there = rotated(picked, [sums, sums, gaps, gaps], [low, high, high, low], [1.0, 1.0, 1.0, -1.0])
    groups = ((activation("identity"), sums), (activation("abs"), gaps))
    applied = new.add(Apply(Neurons(size, groups)), (there,), node, (size,))
    return rotated(applied, [low, low, high, high], [sums, gaps, sums, gaps], [1.0, -1.0, 1.0, 1.0])


def _signed(new: Rewriting, values: int, sign: float, like: Node) -> int:
    if sign == 1.0:
        return values
    return new.add(Linear.of(PreciseMatrix.diagonal_of(np.full(like.size, sign))), (values,), like)


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
    chosen = PreciseMatrix.choosing(np.concatenate([pairs[:, 1], singles]).astype(int), size)
    if not len(pairs):
        return new.add(Linear.of(chosen), (values,), node, (count,)), count, result
    last = not len(singles) and np.array_equal(result, np.arange(count)[:, None]) and count == node.size
    shape = node.shape if last else (count,)  # an image again, so that a convolution that follows is seen as one
    inner = (len(pairs),) if len(singles) else shape
    ends = np.tile(np.arange(len(pairs)), 2), np.concatenate([pairs[:, 0], pairs[:, 1]])
    signs = np.repeat([1.0, -1.0], len(pairs))
    difference = PreciseMatrix.of_entries((len(pairs), size), *ends, Precise.of(signs))
    gap = new.add(Linear.of(difference), (values,), node, inner)
    won = new.add(Apply(Neurons.of(activation("relu"), len(pairs))), (gap,), node, inner)
    places = np.r_[np.arange(len(pairs)), np.full(len(singles), -1)]
    base = new.add(Linear.of(chosen), (values,), node, shape)  # a value of its own, smaller than all that it is from
    both = Linear.of(PreciseMatrix.choosing(places, len(pairs)), PreciseMatrix.choosing(np.arange(count), count))
    return new.add(both, (won, base), node, shape), count, result
