"""Same function: sorted values by comparisons, each of which is a rotation, an absolute value and the rotation back.

For a pair let s = (a + b)/√2 and d = (a - b)/√2. Then max(a, b) = (s + |d|)/√2 and min(a, b) = (s - |d|)/√2. Both maps
are rotations, and |·| has slopes in [-1, 1], so that a bound sees that sorting is 1-Lipschitz. With one neuron for the
maximum and another for the minimum it would not. Longer rows are sorted by Batcher's merge exchange.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lipcert.importers.graph import Affine, Apply, Graph, Join, Maximum, Node, Pick, Rewriting, Scale, Sort
from lipcert.importers.precise import Precise
from lipcert.importers.precise_matrix import PreciseMatrix
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons

_ROOT_HALF = Precise.of(2.0).inverse_root()


def expand_sorts(graph: Graph) -> Graph:
    """Replace every sorting by rounds of comparisons."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        if not isinstance(node.op, Sort):
            new.copy(position, node)
            continue
        windows = node.op.windows
        groups, k = windows.shape
        values = new.add(Pick(windows.ravel()), (new.place[node.inputs[0]],), node, (windows.size,))
        for pairs in _rounds(k):
            low, high = ((np.arange(groups)[:, None] * k + pairs[:, end]).ravel() for end in (0, 1))
            values = _compared(new, values, windows.size, low, high, node)
        new.place[position] = new.add(Pick(np.arange(windows.size)), (values,), node)
    return new.graph(graph.output)


def _rounds(k: int) -> Iterator[Array]:
    """Pairs (i, j), i < j, round after round, disjoint in each: exchanging those that are out of order sorts k values.

    Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
    """
    top = 1 << max((k - 1).bit_length() - 1, 0)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            first = np.arange(k - d) if k > d else np.zeros(0, dtype=int)
            first = first[(first & p) == r]
            if first.size:
                yield np.stack([first, first + d], axis=1)
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2


def _compared(new: Rewriting, values: int, size: int, low: Array, high: Array, node: Node) -> int:
    """The values with each pair in order: the smaller one at ``low``, the larger one at ``high``.

    All of them become neurons, sums and values without a partner too: so what a bound sees is turned, not stretched.
    """
    count = low.size
    others = np.setdiff1d(np.arange(size), np.concatenate([low, high]))
    sums, gaps, rest = np.arange(count), np.arange(count, 2 * count), np.arange(2 * count, size)

    def turned(values: int, rows: list[Array], columns: list[Array], signs: list[float]) -> int:
        entries = _and_ones(_ROOT_HALF * Precise.of(np.repeat(signs, count)), rest.size)
        weight = PreciseMatrix.of_entries((size, size), np.concatenate(rows), np.concatenate(columns), entries)
        return new.add(Affine(weight, Precise.of(np.zeros(size))), (values,), node, (size,))

    there = turned(values, [sums, sums, gaps, gaps, rest], [low, high, high, low, others], [1.0, 1.0, 1.0, -1.0])
    groups = ((activation("identity"), np.concatenate([sums, rest])), (activation("abs"), gaps))
    applied = new.add(Apply(Neurons(size, groups)), (there,), node, (size,))
    return turned(applied, [low, low, high, high, others], [sums, gaps, sums, gaps, rest], [1.0, -1.0, 1.0, 1.0])


def _and_ones(numbers: Precise, count: int) -> Precise:
    """The numbers, and so many ones after them."""
    parts = np.concatenate([numbers.parts, np.zeros((len(numbers.parts), count))], axis=1)
    parts[0, numbers.shape[0] :] = 1.0
    return Precise(parts, np.concatenate([numbers.error, np.zeros(count)]))


def pair_extremes(graph: Graph) -> Graph:
    """Where both the maximum and the minimum of the same pairs are taken, they are one sorting."""
    found = {position: pairs for position in range(len(graph.nodes)) if (pairs := _pairs(graph, position)) is not None}
    partner = _partners(found)
    if not partner:
        return graph
    new = Rewriting()
    sorted_pairs: dict[int, int] = {}
    for position, node in enumerate(graph.nodes):
        if position not in partner:
            new.copy(position, node)
            continue
        first = min(position, partner[position])
        if first not in sorted_pairs:
            sorted_pairs[first] = _sorted(new, graph, found[first], node)
        order, sign = _order(found[first], found[position])
        # a minimum is here the maximum of the negative values, which is minus the smaller one
        index = 2 * order + (1 if sign > 0 else 0)
        picked = new.add(Pick(index), (sorted_pairs[first],), node)
        signs, nothing = np.full(node.size, float(sign)), Precise.of(np.zeros(node.size))
        new.place[position] = picked if sign > 0 else new.add(Scale(Precise.of(signs), nothing), (picked,), node)
    return new.graph(graph.output)


class _Pairs:
    """What a maximum of pairs compares: (pairs, 2) elements by node and index, and whether their negatives."""

    def __init__(self, elements: Array, sign: int) -> None:
        flat = elements.reshape(-1, 4)
        swap = (flat[:, 0] > flat[:, 2]) | ((flat[:, 0] == flat[:, 2]) & (flat[:, 1] > flat[:, 3]))
        self.keys = np.where(swap[:, None], flat[:, [2, 3, 0, 1]], flat)  # (pairs, 4), each pair in one order
        self.sign = sign


def _pairs(graph: Graph, position: int) -> _Pairs | None:
    node = graph.nodes[position]
    if not isinstance(node.op, Maximum):
        return None
    windows = node.op.windows
    if windows.shape[1] != 2 or (windows < 0).any() or (windows[:, 0] == windows[:, 1]).any():
        return None
    where, signs = _origins(graph, node.inputs[0])
    seen = where[windows]  # (pairs, 2, 2)
    sign = signs[windows]
    if (seen[..., 0] < 0).any() or np.unique(sign).size != 1:
        return None
    pairs = _Pairs(seen, int(sign.flat[0]))
    return pairs if len(np.unique(pairs.keys, axis=0)) == len(pairs.keys) else None


def _origins(graph: Graph, position: int) -> tuple[Array, Array]:
    """Where each element comes from, as node and index, through arrangements and changes of sign; and its sign."""
    node = graph.nodes[position]
    match node.op:
        case Pick(index=index):
            where, sign = _origins(graph, node.inputs[0])
            return np.where((index < 0)[:, None], -1, where[index]), sign[index]
        case Join():
            parts = [_origins(graph, operand) for operand in node.inputs]
            return np.concatenate([where for where, _ in parts]), np.concatenate([sign for _, sign in parts])
        case Scale(factor=factor, shift=shift) if shift.nothing.all() and (factor + 1.0).nothing.all():
            where, sign = _origins(graph, node.inputs[0])
            return where, -sign
    return np.stack([np.full(node.size, position), np.arange(node.size)], axis=1), np.ones(node.size, dtype=int)


def _partners(found: dict[int, _Pairs]) -> dict[int, int]:
    """Maxima and minima of the same pairs, each with the other."""
    waiting: dict[tuple[bytes, int], int] = {}
    partner: dict[int, int] = {}
    for position, pairs in found.items():
        key = np.unique(pairs.keys, axis=0).tobytes()
        other = waiting.pop((key, -pairs.sign), None)
        if other is None:
            waiting[key, pairs.sign] = position
        else:
            partner |= {position: other, other: position}
    return partner


def _sorted(new: Rewriting, graph: Graph, pairs: _Pairs, like: Node) -> int:
    """The pairs in order, one after the other."""
    nodes = np.unique(pairs.keys[:, [0, 2]])
    sizes = np.array([graph.nodes[int(n)].size for n in nodes])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    values = new.place[int(nodes[0])]
    if len(nodes) > 1:
        values = new.add(Join(), (new.place[int(n)] for n in nodes), like, (int(sizes.sum()),))
    ends = [starts[np.searchsorted(nodes, pairs.keys[:, k])] + pairs.keys[:, k + 1] for k in (0, 2)]
    return new.add(Sort(np.stack(ends, axis=1)), (values,), like, (2 * len(pairs.keys),))


def _order(first: _Pairs, mine: _Pairs) -> tuple[Array, int]:
    """For each pair of mine, its place among the first; and the sign of mine."""
    place = {key.tobytes(): number for number, key in enumerate(np.ascontiguousarray(first.keys))}
    return np.array([place[key.tobytes()] for key in np.ascontiguousarray(mine.keys)]), mine.sign
