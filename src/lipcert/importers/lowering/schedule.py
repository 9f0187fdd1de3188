"""Which activations make up a layer, and which values must travel past it.

Activations are taken as early as they can be. A value from before a layer that something after it needs is
carried through by identity neurons; the smallest set of tensors from which all such values can be had is a
minimum vertex cut, with sizes as capacities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from lipcert.importers.graph import Apply, Graph, Input, Linear

CONSTANT = -1
"""Depth of what does not depend on the input."""


@dataclass(frozen=True)
class Level:
    """One layer: the values known before it, the activations in it, the values carried past it (node positions)."""

    known: tuple[int, ...]
    applied: tuple[int, ...]
    carried: tuple[int, ...]


def levels(graph: Graph) -> Iterator[Level]:
    """The layers in order, and at the end one without activations, from which the output is read."""
    depth = depths(graph)
    known: tuple[int, ...] = (0,)
    for level in range(1, depth[graph.output] + 1):
        applied = tuple(i for i, n in enumerate(graph.nodes) if isinstance(n.op, Apply) and depth[i] == level)
        wanted = [
            i
            for i in range(len(graph.nodes))
            if 0 <= depth[i] < level and any(depth[c] >= level and c not in applied for c in graph.consumers[i])
        ]
        carried = cheapest(graph, known, wanted, depth)
        yield Level(known, applied, carried)
        known = (*applied, *carried)
    yield Level(known, (), ())


def depths(graph: Graph) -> list[int]:
    """For each node, how many activations lie on the longest way to it from the input."""
    depth: list[int] = []
    for node in graph.nodes:
        before = max((depth[i] for i in node.inputs), default=CONSTANT)
        if isinstance(node.op, Input):
            before = 0
        assert isinstance(node.op, (Input, Apply, Linear)), f"{type(node.op).__name__} is left over"
        depth.append(max(before, 0) + 1 if isinstance(node.op, Apply) else before)
    return depth


def cheapest(graph: Graph, known: Sequence[int], wanted: Sequence[int], depth: Sequence[int]) -> tuple[int, ...]:
    """The smallest set of tensors, computable from the known ones, that determines the wanted ones."""
    if not wanted:
        return ()
    inside: set[int] = set()
    pending = list(wanted)
    while pending:
        position = pending.pop()
        if position in inside or depth[position] == CONSTANT:
            continue
        inside.add(position)
        if position not in known:
            pending += graph.nodes[position].inputs
    order = sorted(inside)
    place = {node: k for k, node in enumerate(order)}
    count = len(order)
    source, sink = 2 * count, 2 * count + 1  # node k enters at k and leaves at count + k
    unlimited = min(2**30, 1 + sum(graph.nodes[i].size for i in order))
    edges = [(k, count + k, graph.nodes[node].size) for node, k in place.items()]
    for node, k in place.items():
        if node in known:
            edges.append((source, k, unlimited))
        else:
            operands = dict.fromkeys(i for i in graph.nodes[node].inputs if i in place)
            edges += [(count + place[i], k, unlimited) for i in operands]
    edges += [(count + place[node], sink, unlimited) for node in dict.fromkeys(wanted)]
    start, stop, capacity = (np.array(part, dtype=np.int32) for part in zip(*edges, strict=True))
    network = sparse.csr_array((capacity, (start, stop)), shape=(2 * count + 2, 2 * count + 2), dtype=np.int32)
    left = sparse.csr_array(network - maximum_flow(network, source, sink).flow)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    return tuple(node for node, k in place.items() if k in reached and count + k not in reached)
