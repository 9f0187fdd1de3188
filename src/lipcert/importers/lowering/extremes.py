"""Same function: maxima over windows, and sorted pairs, by activations.

A maximum becomes a tournament of max(a, b) = b + relu(a - b). Where both the maximum and the minimum of the same pairs
are taken, or pairs are sorted, let s = (a + b)/√2 and d = (a - b)/√2. Then max(a, b) = (s + |d|)/√2 and
min(a, b) = (s - |d|)/√2. Both maps are rotations, and |·| has slopes in [-1, 1], so a bound sees that sorting is
1-Lipschitz. With one neuron for the maximum and another for the minimum it would not.
"""

from __future__ import annotations

import numpy as np

from lipcert.importers.graph import Affine, Apply, Graph, Join, Maximum, Node, Pick, Rewriting, Scale, Sort, Sum
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons

_ROOT_HALF = Precise.of(2.0).inverse_root()


def sort_pairs(graph: Graph) -> Graph:
    """Replace sorted pairs, and maxima and minima of the same pairs, by rotations and absolute values."""
    found = {position: pairs for position in range(len(graph.nodes)) if (pairs := _pairs(graph, position)) is not None}
    groups: dict[bytes, list[int]] = {}
    for position, pairs in found.items():
        groups.setdefault(np.unique(pairs, axis=0).tobytes(), []).append(position)
    first = {
        member: members[0]
        for members in groups.values()
        if len({graph.nodes[member].op.sign for member in members}) == 2  # type: ignore[attr-defined]
        for member in members
    }
    new = Rewriting()
    ordered: dict[int, int] = {}
    for position, node in enumerate(graph.nodes):
        if isinstance(node.op, Sort):
            values = _ordered(new, new.place[node.inputs[0]], node.op.windows, node)
            new.place[position] = new.add(Pick(np.arange(node.size)), (values,), node)
        elif position in first and isinstance(node.op, Maximum):
            base = found[first[position]]
            if first[position] not in ordered:
                ordered[first[position]] = _joined(new, graph, base, node)
            place = {row.tobytes(): number for number, row in enumerate(base)}
            order = np.array([place[row.tobytes()] for row in found[position]])
            index = 2 * order + (node.op.sign > 0)
            new.place[position] = new.add(Pick(index), (ordered[first[position]],), node)
        else:
            new.copy(position, node)
    return new.graph(graph.output)


def _pairs(graph: Graph, position: int) -> Array | None:
    """What a maximum of pairs compares, (pairs, 4): node and index of each end, the ends in one order."""
    node = graph.nodes[position]
    if not isinstance(node.op, Maximum):
        return None
    windows = node.op.windows
    if windows.shape[1] != 2 or (windows < 0).any() or (windows[:, 0] == windows[:, 1]).any():
        return None
    seen = _origins(graph, node.inputs[0])[windows].reshape(-1, 4)
    swap = (seen[:, 0] > seen[:, 2]) | ((seen[:, 0] == seen[:, 2]) & (seen[:, 1] > seen[:, 3]))
    rows = np.ascontiguousarray(np.where(swap[:, None], seen[:, [2, 3, 0, 1]], seen))
    return rows if (rows >= 0).all() and len(np.unique(rows, axis=0)) == len(rows) else None


def _origins(graph: Graph, position: int) -> Array:
    """Node and index that each element comes from, (size, 2), through new arrangements; -1 where nothing is picked."""
    node = graph.nodes[position]
    match node.op:
        case Pick(index=index):
            return np.where((index < 0)[:, None], -1, _origins(graph, node.inputs[0])[index])
        case Join():
            return np.concatenate([_origins(graph, operand) for operand in node.inputs])
    return np.stack([np.full(node.size, position), np.arange(node.size)], axis=1)


def _joined(new: Rewriting, graph: Graph, pairs: Array, like: Node) -> int:
    """The pairs in order, one after the other."""
    nodes = np.unique(pairs[:, [0, 2]])
    sizes = np.array([graph.nodes[int(n)].size for n in nodes])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    values = new.place[int(nodes[0])]
    if len(nodes) > 1:
        values = new.add(Join(), (new.place[int(n)] for n in nodes), like, (int(sizes.sum()),))
    ends = [starts[np.searchsorted(nodes, pairs[:, k])] + pairs[:, k + 1] for k in (0, 2)]
    return _ordered(new, values, np.stack(ends, axis=1), like)


def _ordered(new: Rewriting, values: int, pairs: Array, node: Node) -> int:
    """For each pair (pairs, 2) of positions the smaller value, then the larger one.

    Sums become neurons too, with the activation identity: so what a bound sees is turned, not stretched.
    """
    count, size = len(pairs), pairs.size
    low, high = np.arange(0, size, 2), np.arange(1, size, 2)
    sums, gaps = np.arange(count), np.arange(count, size)

    def turned(values: int, rows: list[Array], columns: list[Array], signs: list[float]) -> int:
        entries = _ROOT_HALF * Precise.of(np.repeat(signs, count))
        weight = PreciseMatrix.of_entries((size, size), np.concatenate(rows), np.concatenate(columns), entries)
        return new.add(Affine(weight, Precise.of(np.zeros(size))), (values,), node, (size,))

    picked = new.add(Pick(pairs.ravel()), (values,), node, (size,))
    there = turned(picked, [sums, sums, gaps, gaps], [low, high, high, low], [1.0, 1.0, 1.0, -1.0])
    groups = ((activation("identity"), sums), (activation("abs"), gaps))
    applied = new.add(Apply(Neurons(size, groups)), (there,), node, (size,))
    return turned(applied, [low, low, high, high], [sums, gaps, sums, gaps], [1.0, -1.0, 1.0, 1.0])


def expand_maxima(graph: Graph) -> Graph:
    """Replace every maximum by rounds of pairs; equal pairs in overlapping windows are played once."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.op, Maximum):
            new.copy(position, node)
            continue
        operand, sign = graph.nodes[node.inputs[0]], node.op.sign
        values, size = _signed(new, new.place[node.inputs[0]], sign, operand), operand.size
        windows = node.op.windows
        while (windows[:, 1:] >= 0).any() or (windows[:, 0] < 0).any():
            values, size, windows = _round(new, values, size, windows, node)
        new.place[position] = _signed(new, new.add(Pick(windows[:, 0]), (values,), node), sign, node)
    return new.graph(graph.output)


def _signed(new: Rewriting, values: int, sign: float, like: Node) -> int:
    if sign == 1.0:
        return values
    return new.add(Scale(Precise.of(np.full(like.size, sign)), Precise.of(np.zeros(like.size))), (values,), like)


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
