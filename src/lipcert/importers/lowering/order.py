"""Same function: max(φ(a), φ(b)) = φ(max(a, b)) for a φ that never falls.

Pooling first leaves fewer neurons to activate, and no ties between neurons that are both switched off.
"""

from __future__ import annotations

import numpy as np

from lipcert.importers.graph import Apply, Graph, Maximum, Node, Rewriting
from lipcert.network import Neurons


def pool_first(graph: Graph) -> Graph:
    """Exchange an activation and the maximum that alone uses it."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        before = graph.nodes[node.inputs[0]] if isinstance(node.op, Maximum) else None
        if before is None or len(graph.consumers[node.inputs[0]]) != 1 or not _rises(before):
            new.copy(position, node)
            continue
        assert isinstance(before.op, Apply)
        pooled = new.add(node.op, (new.place[before.inputs[0]],), node)
        neurons = Neurons.of(before.op.neurons.groups[0][0], node.size)
        origin = Node(node.op, (), node.shape, before.source, before.kind)
        new.place[position] = new.add(Apply(neurons), (pooled,), origin)
    return new.graph(graph.output)


def _rises(node: Node) -> bool:
    """Whether a node applies one nowhere falling function to all its elements."""
    if not isinstance(node.op, Apply) or len(node.op.neurons.groups) != 1:
        return False
    row = node.op.neurons.groups[0][0]
    if any(np.ndim(parameter) for parameter in row.parameters):
        return False
    least, _ = row.slope_range(np.full(1, -np.inf), np.full(1, np.inf))
    return bool(least[0] >= 0.0)
