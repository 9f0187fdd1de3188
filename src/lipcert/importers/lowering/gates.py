"""Same function: products that spell out an activation become that activation.

Exporters write SiLU as x·sigmoid(x), Mish as x·tanh(softplus(x)), GELU as x·(1 + erf(x/√2))/2 and hardswish as
x·clip(x + 3, 0, 6)/6, with the constants in any place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.activations import activation
from lipcert.importers.graph import Apply, Graph, Node, Offender, Product, Rewriting, Scale, Special
from lipcert.network import Neurons

_CLOSE = 1e-6
"""Constants are stored in float32, so 1/6 or 1/√2 are known to that precision."""


def recognise_gates(graph: Graph) -> Graph:
    """Replace every product that is an activation."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        found = _gate(graph, node) if isinstance(node.op, Product) else None
        if found is None:
            new.copy(position, node)
            continue
        # y = outer·φ(inner·x)
        inner = np.full(node.size, found.inner), np.zeros(node.size)
        outer = np.full(node.size, found.outer), np.zeros(node.size)
        scaled = new.add(Scale(*inner), (new.place[found.root],), node)
        applied = new.add(Apply(Neurons.of(activation(found.name), node.size)), (scaled,), node)
        new.place[position] = new.add(Scale(*outer), (applied,), node)
    return new.graph(graph.output)


def unrecognised(graph: Graph) -> list[Offender]:
    """Products and special functions that are left over."""
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Product):
            found.append(
                Offender(node.source, node.kind, node.shape, "it multiplies two values that both depend on the input")
            )
        elif isinstance(node.op, Special):
            reason = f"{node.op.name} is no activation by itself, only as a part of GELU"
            found.append(Offender(node.source, node.kind, node.shape, reason))
    return found


@dataclass(frozen=True)
class _Gate:
    """outer·φ(inner·x) with φ a row of the table and x the value of node ``root``."""

    name: str
    root: int
    inner: float
    outer: float


@dataclass(frozen=True)
class _Line:
    """factor·x + shift, the same for all elements, with x the value of node ``root``."""

    root: int
    factor: float
    shift: float


def _line(graph: Graph, position: int) -> _Line:
    """A node as a line over the first ancestor that is not a uniform scaling."""
    factor, shift = 1.0, 0.0
    while isinstance(op := graph.nodes[position].op, Scale):
        if not ((op.factor == op.factor[0]).all() and (op.shift == op.shift[0]).all()):
            break
        factor, shift = factor * float(op.factor[0]), shift + factor * float(op.shift[0])
        (position,) = graph.nodes[position].inputs
    return _Line(position, factor, shift)


def _gate(graph: Graph, node: Node) -> _Gate | None:
    first, second = node.inputs
    return _match(graph, _line(graph, first), _line(graph, second)) or _match(
        graph, _line(graph, second), _line(graph, first)
    )


def _match(graph: Graph, plain: _Line, gate: _Line) -> _Gate | None:
    """The activation a·x · (c·ψ(d·x + f) + e), for the known ψ."""
    inner = graph.nodes[gate.root]
    if plain.shift != 0.0 or not isinstance(inner.op, (Apply, Special)):
        return None
    a, c, e = plain.factor, gate.factor, gate.shift
    name, (parent,) = _name(inner), inner.inputs
    if name == "tanh" and _name(graph.nodes[parent]) == "softplus":
        name, (parent,) = "tanh(softplus)", graph.nodes[parent].inputs
    line = _line(graph, parent)
    d, f = line.factor, line.shift
    if line.root != plain.root or d == 0.0:
        return None
    if name == "erf" and f == 0.0 and abs(e - c) <= _CLOSE * abs(c):
        turn = _snap(np.sqrt(2.0) * d)
        return _Gate("gelu", line.root, turn, 2.0 * a * c / turn)
    if e != 0.0:
        return None
    if name in ("sigmoid", "tanh(softplus)") and f == 0.0:
        return _Gate("silu" if name == "sigmoid" else "mish", line.root, d, a * c / d)
    if name == "hardsigmoid(1/6, 1/2)" and f == 0.0:
        return _Gate("hardswish", line.root, d, a * c / d)
    if name == "clip(0, 6)" and f == 3.0:
        return _Gate("hardswish", line.root, d, 6.0 * a * c / d)
    return None


def _snap(value: float) -> float:
    """±1 for a number that float32 cannot tell from it."""
    return float(np.sign(value)) if abs(abs(value) - 1.0) <= _CLOSE else float(value)


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
        fits = np.allclose(np.asarray(row.parameters), (1.0 / 6.0, 0.5), rtol=_CLOSE, atol=0.0)
        return "hardsigmoid(1/6, 1/2)" if fits else None
    if row.name == "relu6" or (row.name == "hardtanh" and row.parameters == (0.0, 6.0)):
        return "clip(0, 6)"
    return row.name
