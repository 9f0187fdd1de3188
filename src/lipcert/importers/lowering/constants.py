"""Same function: what does not depend on the input becomes a number."""

from __future__ import annotations

import numpy as np

from lipcert.importers.graph import Constant, Graph, Input, Product, Rewriting, Scale, Unknown


def fold_constants(graph: Graph) -> Graph:
    """Operations on constants alone are carried out; a product with a constant is a scaling."""
    new = Rewriting()
    known: dict[int, Constant] = {}
    for position, node in enumerate(graph.nodes):
        values = [known[i] for i in node.inputs if i in known]
        if isinstance(node.op, Constant):
            known[position] = node.op
        elif len(values) == len(node.inputs) and not isinstance(node.op, (Input, Unknown)):
            known[position] = Constant(np.asarray(node.op.value(*(c.number for c in values))))
        elif isinstance(node.op, Product) and values:
            (other,) = (i for i in node.inputs if i not in known)
            scale = Scale(values[0].number, np.zeros(node.size))
            new.place[position] = new.add(scale, (new.place[other],), node)
            continue
        if position in known:
            new.place[position] = new.add(known[position], (), node)
        else:
            new.copy(position, node)
    return new.graph(graph.output)
