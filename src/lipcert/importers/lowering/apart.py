"""Same function: identity neurons between affine maps whose composition cannot be rounded."""

from __future__ import annotations

from collections.abc import Collection

from lipcert.importers.graph import Apply, Graph, Input, Offender, Rewriting, refuse
from lipcert.model.activations import activation
from lipcert.model.network import Neurons

_REASON = (
    "one of its coefficients is not finite, or no double is near enough to it; scale the layers around it so that"
    " all coefficients that are not zero lie between 1e-290 and 1e290"
)


def separate(graph: Graph, nodes: Collection[int]) -> Graph:
    """The operands of the given nodes become neurons with the activation identity, which is exact.

    Raises
    ------
    UnreadableModel
        An operation that stands alone already has a coefficient that no float is near enough to.
    """
    new = Rewriting()
    alone = []
    for position, node in enumerate(graph.nodes):
        if position not in nodes:
            new.copy(position, node)
            continue
        inputs, cut = [], False
        for operand in node.inputs:
            before = graph.nodes[operand]
            place = new.place[operand]
            if not isinstance(before.op, (Apply, Input)):
                row = Apply(Neurons.of(activation("identity"), before.size))
                place, cut = new.add(row, (place,), before), True
            inputs.append(place)
        if not cut:
            alone.append(Offender(node.source, node.kind, node.shape, _REASON))
        new.place[position] = new.add(node.op, inputs, node)
    if alone:
        refuse(alone)
    return new.graph(graph.output)
