"""Same function: products that spell out an activation become that activation.

Exporters write SiLU as x·sigmoid(x), Mish as x·tanh(softplus(x)), GELU as x·(1 + erf(x/√2))/2, hardswish as
x·clip(x + 3, 0, 6)/6, softsign as x/(1 + |x|) and tanhshrink as x - tanh(x), with the constants in any place; people
write x·x and sin(x)².
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from lipcert.importers.graph import Apply, Graph, Node, Offender, Product, Rewriting, Scale, Special, Sum
from lipcert.importers.precise import Precise
from lipcert.model.activations import activation
from lipcert.model.network import Neurons

_ROOT_TWO = Precise.of(0.5).inverse_root()
_ONE, _NOTHING = Precise.of(1.0), Precise.of(0.0)
_PRODUCT = (
    "it multiplies two values that both depend on the input, and is no activation that is known; a GELU that is spelled"
    " out with tanh is one operator from operator set 20 of ONNX on"
)
_QUOTIENT = "it divides by a value that depends on the input"


def recognise_gates(graph: Graph) -> Graph:
    """Replace every product that is an activation."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        found = _gate(graph, node)
        if found is None and isinstance(node.op, Special) and node.op.name == "erf":  # where it is no part of a GELU
            erf = Apply(Neurons.of(activation("erf"), node.size))
            new.place[position] = new.add(erf, (new.place[node.inputs[0]],), node)
            continue
        if found is None:
            new.copy(position, node)
            continue
        # y = outer·φ(inner·x + shift) + offset
        shape = (node.size,)
        inner, outer, shift, offset = (
            factor.broadcast(shape) for factor in (found.inner, found.outer, found.shift, found.offset)
        )
        scaled = new.add(Scale(inner, shift), (new.place[found.root],), node)
        applied = new.add(Apply(Neurons.of(activation(found.name), node.size)), (scaled,), node)
        new.place[position] = new.add(Scale(outer, offset), (applied,), node)
    return new.graph(graph.output)


def unrecognised(graph: Graph) -> list[Offender]:
    """Products and special functions that are left over."""
    found = []
    for node in graph.nodes:
        reason = _QUOTIENT if isinstance(node.op, Special) else None
        if isinstance(node.op, Product):
            quotient = any(isinstance(graph.nodes[i].op, Special) for i in node.inputs)
            reason = None if quotient else _PRODUCT  # a quotient has its own line already
        if reason is not None:
            found.append(Offender(node.source, node.kind, node.shape, reason))
    return found


@dataclass(frozen=True)
class _Line:
    """factor·x + shift, the same for all elements, with x the value of node ``root``."""

    root: int
    factor: Precise
    shift: Precise


@dataclass(frozen=True)
class _Gate:
    """outer·φ(inner·x + shift) + offset with φ a row of the table and x the value of node ``root``."""

    name: str
    root: int
    inner: Precise
    outer: Precise
    shift: Precise = _NOTHING
    offset: Precise = _NOTHING


def _line(graph: Graph, position: int, until: Collection[int] = ()) -> _Line:
    """A node as a line over the first ancestor that is not a uniform scaling, or that is in ``until``."""
    factor, shift = _ONE, _NOTHING
    while position not in until and isinstance(op := graph.nodes[position].op, Scale):
        if not (_uniform(op.factor) and _uniform(op.shift)):
            break
        factor, shift = factor * op.factor.take(0), shift + factor * op.shift.take(0)
        (position,) = graph.nodes[position].inputs
    return _Line(position, factor, shift)


def _uniform(numbers: Precise) -> bool:
    """Whether all numbers are the same."""
    return all(bool((part == part[0]).all()) for part in numbers.parts)


def _common(graph: Graph, one: int, two: int) -> tuple[_Line, _Line] | None:
    """Two nodes as lines over the nearest value that both are lines over; the second is no constant."""
    root, chain = _line(graph, one).root, [one]
    while chain[-1] != root:
        chain += graph.nodes[chain[-1]].inputs
    second = _line(graph, two, chain)
    if second.root not in chain or second.factor.nothing:
        return None
    return _line(graph, one, (second.root,)), second


def _gate(graph: Graph, node: Node) -> _Gate | None:
    if isinstance(node.op, Product):
        one, two = node.inputs
        return _square(graph, one, two) or _match(graph, one, two) or _match(graph, two, one)
    if isinstance(node.op, Sum) and len(node.inputs) == 2:
        return _tanhshrink(graph, *node.inputs) or _tanhshrink(graph, *node.inputs[::-1])
    if _name(node) == "square":
        return _squared_sine(graph, _Gate("square", node.inputs[0], _ONE, _ONE))
    return None


def _square(graph: Graph, one: int, two: int) -> _Gate | None:
    lines = _common(graph, one, two)
    if lines is None or not all(line.shift.nothing for line in lines):
        return None
    square = _Gate("square", lines[0].root, _ONE, lines[0].factor * lines[1].factor)
    return _squared_sine(graph, square) or square


def _squared_sine(graph: Graph, square: _Gate) -> _Gate | None:
    """sin² = (1 - cos(2·))/2, whose slopes a bound sees better."""
    line = _line(graph, square.root)
    inner = graph.nodes[line.root]
    if _name(inner) != "sin" or not line.shift.nothing:
        return None
    half = 0.5 * (square.outer * (line.factor * line.factor))
    return _Gate("cos", inner.inputs[0], 2.0 * _ONE, -half, offset=half)


def _tanhshrink(graph: Graph, plain: int, bent: int) -> _Gate | None:
    """a·x + s + c·tanh(d·x) + e is -c·tanhshrink(d·x) + s + e, if a = -cd."""
    tanh = _line(graph, bent)
    inner = graph.nodes[tanh.root]
    lines = _common(graph, plain, inner.inputs[0]) if _name(inner) == "tanh" else None
    if lines is None or not lines[1].shift.nothing or not (lines[0].factor + tanh.factor * lines[1].factor).nothing:
        return None
    line, y = lines
    return _Gate("tanhshrink", y.root, y.factor, -tanh.factor, offset=line.shift + tanh.shift)


def _match(graph: Graph, plain: int, gate: int) -> _Gate | None:
    """The activation a·x · (c·ψ(d·x + f) + e), for the known ψ.

    Constants such as 1/6 or 1/√2 come in single precision. That changes the scale of an activation and not its kind,
    so no constant has to be near another: x·(1 + erf(dx)) is 2/t·gelu(tx) with t = d·√2, and x·clip(αx + 1/2, 0, 1) is
    1/t·hardswish(tx) with t = 6α, whatever d and α are.
    """
    bent = _line(graph, gate)
    inner = graph.nodes[bent.root]
    if not isinstance(inner.op, (Apply, Special)):
        return None
    c, e, name, (parent,) = bent.factor, bent.shift, _name(inner), inner.inputs
    if name == "reciprocal":
        return _softsign(graph, plain, parent, c) if e.nothing else None
    if name == "tanh" and _name(graph.nodes[parent]) == "softplus":
        name, (parent,) = "tanh(softplus)", graph.nodes[parent].inputs
    lines = _common(graph, plain, parent)
    if lines is None or not lines[0].shift.nothing:
        return None
    (root, a, _), (_, d, f) = ((line.root, line.factor, line.shift) for line in lines)
    if name == "erf" and f.nothing and (e - c).nothing:
        turn = _ROOT_TWO * d
        return _Gate("gelu", root, turn, 2.0 * a * c * turn.reciprocal())
    if not e.nothing:
        return None
    if name in ("sigmoid", "tanh(softplus)") and f.nothing:
        return _Gate("silu" if name == "sigmoid" else "mish", root, d, a * c * d.reciprocal())
    if name == "hardsigmoid" and f.nothing and isinstance(inner.op, Apply):
        turn = 6.0 * Precise.of(inner.op.neurons.groups[0][0].parameters[0]) * d
        return _Gate("hardswish", root, turn, a * c * turn.reciprocal())
    if name == "clip(0, 6)" and (f - 3.0).nothing:
        return _Gate("hardswish", root, d, 6.0 * a * c * d.reciprocal())
    return None


def _softsign(graph: Graph, plain: int, below: int, c: Precise) -> _Gate | None:
    """a·x·c/(e + k·|dx|) is ac/(et)·softsign(tx) with t = k·|d|/e."""
    bottom = _line(graph, below)
    size = graph.nodes[bottom.root]
    if _name(size) != "|x|" or not bottom.shift.high > 0.0 or not bottom.factor.high > 0.0:
        return None
    lines = _common(graph, plain, size.inputs[0])
    if lines is None or not all(line.shift.nothing for line in lines):
        return None
    d = lines[1].factor if lines[1].factor.high > 0.0 else -lines[1].factor
    turn = bottom.factor * d * bottom.shift.reciprocal()
    return _Gate("softsign", lines[1].root, turn, lines[0].factor * c * (bottom.shift * turn).reciprocal())


def _name(node: Node) -> str | None:
    """The function of a node, where one function with known parameters serves all elements."""
    if isinstance(node.op, Special):
        return node.op.name
    if not isinstance(node.op, Apply) or len(node.op.neurons.groups) != 1:
        return None
    row = node.op.neurons.groups[0][0]
    if any(np.ndim(parameter) for parameter in row.parameters):
        return None
    if row.name == "leaky_relu":
        return "|x|" if row.parameters == (-1.0,) else None
    if row.name == "softplus":
        return row.name if row.parameters == (1.0,) else None
    if row.name == "hardsigmoid":
        return row.name if row.parameters[1] == 0.5 and row.parameters[0] != 0.0 else None
    if row.name == "relu6" or (row.name == "hardtanh" and row.parameters == (0.0, 6.0)):
        return "clip(0, 6)"
    return row.name
