"""Same function: products that spell out an activation become that activation.

Exporters write SiLU as x·sigmoid(x), Mish as x·tanh(softplus(x)), GELU as x·(1 + erf(x/√2))/2 and hardswish as
x·clip(x + 3, 0, 6)/6, with the constants in any place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.importers.graph import Apply, Graph, Node, Offender, Product, Rewriting, Scale, Special
from lipcert.importers.precise import Precise
from lipcert.model.activations import activation
from lipcert.model.network import Neurons

_ROOT_TWO = Precise.of(0.5).inverse_root()


def recognise_gates(graph: Graph) -> Graph:
    """Replace every product that is an activation."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        found = _gate(graph, node) if isinstance(node.op, Product) else None
        if found is None:
            new.copy(position, node)
            continue
        # y = outer·φ(inner·x)
        nothing = Precise.of(np.zeros(node.size))
        inner, outer = (factor.broadcast((node.size,)) for factor in (found.inner, found.outer))
        scaled = new.add(Scale(inner, nothing), (new.place[found.root],), node)
        applied = new.add(Apply(Neurons.of(activation(found.name), node.size)), (scaled,), node)
        new.place[position] = new.add(Scale(outer, nothing), (applied,), node)
    return new.graph(graph.output)


def unrecognised(graph: Graph) -> list[Offender]:
    """Products and special functions that are left over."""
    reasons = {
        Product: "it multiplies two values that both depend on the input",
        Special: "erf is no activation by itself, only as a part of GELU",
    }
    left = ((node, reasons.get(type(node.op))) for node in graph.nodes)
    return [Offender(node.source, node.kind, node.shape, reason) for node, reason in left if reason is not None]


@dataclass(frozen=True)
class _Gate:
    """outer·φ(inner·x) with φ a row of the table and x the value of node ``root``."""

    name: str
    root: int
    inner: Precise
    outer: Precise


@dataclass(frozen=True)
class _Line:
    """factor·x + shift, the same for all elements, with x the value of node ``root``."""

    root: int
    factor: Precise
    shift: Precise


def _line(graph: Graph, position: int) -> _Line:
    """A node as a line over the first ancestor that is not a uniform scaling."""
    factor, shift = Precise.of(1.0), Precise.of(0.0)
    while isinstance(op := graph.nodes[position].op, Scale):
        if not (_uniform(op.factor) and _uniform(op.shift)):
            break
        factor, shift = factor * op.factor.take(0), shift + factor * op.shift.take(0)
        (position,) = graph.nodes[position].inputs
    return _Line(position, factor, shift)


def _uniform(numbers: Precise) -> bool:
    return bool((numbers.parts == numbers.parts[:, :1]).all() and (numbers.error == numbers.error[0]).all())


def _gate(graph: Graph, node: Node) -> _Gate | None:
    first, second = (_line(graph, operand) for operand in node.inputs)
    return _match(graph, first, second) or _match(graph, second, first)


def _match(graph: Graph, plain: _Line, gate: _Line) -> _Gate | None:
    """The activation a·x · (c·ψ(d·x + f) + e), for the known ψ.

    Constants such as 1/6 or 1/√2 come in single precision. That changes the scale of an activation and not its kind,
    so no constant has to be near another: x·(1 + erf(dx)) is 2/t·gelu(tx) with t = d·√2, and x·clip(αx + 1/2, 0, 1) is
    1/t·hardswish(tx) with t = 6α, whatever d and α are.
    """
    inner = graph.nodes[gate.root]
    if not plain.shift.nothing or not isinstance(inner.op, (Apply, Special)):
        return None
    a, c, e = plain.factor, gate.factor, gate.shift
    name, (parent,) = _name(inner), inner.inputs
    if name == "tanh" and _name(graph.nodes[parent]) == "softplus":
        name, (parent,) = "tanh(softplus)", graph.nodes[parent].inputs
    line = _line(graph, parent)
    d, f = line.factor, line.shift
    if line.root != plain.root or d.nothing:
        return None
    if name == "erf" and f.nothing and (e - c).nothing:
        turn = _ROOT_TWO * d
        return _Gate("gelu", line.root, turn, 2.0 * a * c * turn.reciprocal())
    if not e.nothing:
        return None
    if name in ("sigmoid", "tanh(softplus)") and f.nothing:
        return _Gate("silu" if name == "sigmoid" else "mish", line.root, d, a * c * d.reciprocal())
    if name == "hardsigmoid" and f.nothing and isinstance(inner.op, Apply):
        turn = 6.0 * Precise.of(inner.op.neurons.groups[0][0].parameters[0]) * d
        return _Gate("hardswish", line.root, turn, a * c * turn.reciprocal())
    if name == "clip(0, 6)" and (f - 3.0).nothing:
        return _Gate("hardswish", line.root, d, 6.0 * a * c * d.reciprocal())
    return None


def _name(node: Node) -> str | None:
    """The function of a node, where one function with known parameters serves all elements."""
    if isinstance(node.op, Special):
        return node.op.name
    if not isinstance(node.op, Apply) or len(node.op.neurons.groups) != 1:
        return None
    row = node.op.neurons.groups[0][0]
    if any(np.ndim(parameter) for parameter in row.parameters):
        return None
    if row.name == "softplus":
        return row.name if row.parameters == (1.0,) else None
    if row.name == "hardsigmoid":
        return row.name if row.parameters[1] == 0.5 and row.parameters[0] != 0.0 else None
    if row.name == "relu6" or (row.name == "hardtanh" and row.parameters == (0.0, 6.0)):
        return "clip(0, 6)"
    return row.name
