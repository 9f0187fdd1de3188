"""Same function: a product with a value that does not depend on the input is a scaling."""

from __future__ import annotations

import numpy as np

from lipcert.importers.graph import Graph, Product, Rewriting, Scale
from lipcert.importers.lowering.forms import Form, compose
from lipcert.importers.precise import Precise


def fold_constants(graph: Graph) -> Graph:
    """Products with constants become scalings by their exact values; other operations on constants need no change.

    An activation of constants stays a row of neurons: its value is a float only by accident.
    """
    new = Rewriting()
    known: dict[int, Form] = {}
    for position, node in enumerate(graph.nodes):
        op, inputs = node.op, node.inputs
        if isinstance(op, Product) and any(i in known for i in inputs):
            factor, other = sorted(inputs, key=lambda i: i not in known)
            op, inputs = Scale(known[factor].offset, Precise.of(np.zeros(node.size))), (other,)
        if op.linear and all(i in known for i in inputs):
            known[position] = compose(op, [known[i] for i in inputs])
        new.place[position] = new.add(op, (new.place[i] for i in inputs), node)
    return new.graph(graph.output)
