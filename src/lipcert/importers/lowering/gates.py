"""Same function: products that spell out an activation become that activation.

Exporters write SiLU as x·sigmoid(x), Mish as x·tanh(softplus(x)), GELU as x·(1 + erf(x/√2))/2, hardswish as
x·clip(x + 3, 0, 6)/6, softsign as x/(1 + |x|), tanhshrink as x - tanh(x), the logarithm of a sigmoid as such, and
people write exp(-x²), x·x and sin(x)², with the constants in any place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lipcert.importers.graph import Apply, Graph, Node, Offender, Product, Rewriting, Scale, Special, Sum
from lipcert.importers.lowering.lines import Line, line_of
from lipcert.importers.precise import Precise
from lipcert.model.activations import activation
from lipcert.model.network import Neurons

_ROOT_TWO = Precise.of(0.5).inverse_root()
_NOTHING = Precise.of(0.0)
_PRODUCT = (
    "it multiplies two values that both depend on the input, and is no activation that is known; a GELU that is spelled"
    " out with tanh is one operator from operator set 20 of ONNX on"
)
_SPECIAL = {
    "log": "a logarithm is known only as that of a sigmoid",
    "exp": "an exponential is known only as exp(-x²), or as a part of an activation's own operator",
    "reciprocal": "it divides by a value that depends on the input",
}


def recognise_gates(graph: Graph) -> Graph:
    """Replace every product that is an activation."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        found = _gate(graph, node) if isinstance(node.op, Product) else _alone(graph, node)
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
        reason = None
        if isinstance(node.op, Special):
            reason = _SPECIAL[node.op.name]
        elif isinstance(node.op, Product):
            operands = [graph.nodes[i].op for i in node.inputs]
            quotient = any(isinstance(op, Special) and op.name == "reciprocal" for op in operands)
            reason = None if quotient else _PRODUCT  # the quotient is told of already
        if reason is not None:
            found.append(Offender(node.source, node.kind, node.shape, reason))
    return found


@dataclass(frozen=True)
class _Gate:
    """outer·φ(inner·x + shift) + offset with φ a row of the table and x the value of node ``root``."""

    name: str
    root: int
    inner: Precise
    outer: Precise
    shift: Precise = _NOTHING
    offset: Precise = _NOTHING


def _gate(graph: Graph, node: Node) -> _Gate | None:
    first, second = (line_of(graph, operand) for operand in node.inputs)
    if first.root == second.root and first.shift.nothing and second.shift.nothing:
        square = _Gate("square", first.root, Precise.of(1.0), first.factor * second.factor)
        return _squared_sine(graph, square) or square
    if first.root == second.root and _same_zero(first, second):
        ratio = second.factor * first.factor.reciprocal()
        return _Gate("square", first.root, first.factor, ratio, first.shift)
    return _match(graph, first, second) or _match(graph, second, first)


def _same_zero(one: Line, two: Line) -> bool:
    """Whether two lines over one value, neither level, are zero at the same point."""
    if one.root != two.root or one.factor.nothing or two.factor.nothing:
        return False
    return bool((one.factor * two.shift - two.factor * one.shift).nothing)


def _alone(graph: Graph, node: Node) -> _Gate | None:
    """The activation that is no product: x - tanh(x), log(sigmoid), exp(-x²), and the square of a sine."""
    if isinstance(node.op, Sum) and len(node.inputs) == 2:
        return _tanhshrink(graph, *node.inputs) or _tanhshrink(graph, *node.inputs[::-1])
    if isinstance(node.op, Apply) and _name(node) == "square":
        return _squared_sine(graph, _Gate("square", node.inputs[0], Precise.of(1.0), Precise.of(1.0)))
    if not isinstance(node.op, Special):
        return None
    line = line_of(graph, node.inputs[0])
    inner = graph.nodes[line.root]
    if not line.shift.nothing or not isinstance(inner.op, (Apply, Product)):
        return None
    if node.op.name == "log" and _name(inner) == "sigmoid" and (line.factor - 1.0).nothing:
        below = line_of(graph, inner.inputs[0])
        return _Gate("logsigmoid", below.root, below.factor, Precise.of(1.0), below.shift)
    if node.op.name != "exp":
        return None
    found = _squared(graph, inner)
    if found is None:
        return None
    factor, below = found
    rate = -line.factor * factor * below.factor * below.factor
    if not rate.nearest > 0.0:
        return None
    root = rate * rate.inverse_root()  # exp(-rate·(x + shift)²)
    return _Gate("gaussian", below.root, root, Precise.of(1.0), root * below.shift * below.factor.reciprocal())


def _tanhshrink(graph: Graph, plain: int, bent: int) -> _Gate | None:
    """a·x + s + c·tanh(y) + e with y = d·x + f is -c·tanhshrink(y) + s + e + cf, if a = -cd."""
    line, other = line_of(graph, plain), line_of(graph, bent)
    inner = graph.nodes[other.root]
    if _name(inner) != "tanh":
        return None
    y, c = line_of(graph, inner.inputs[0]), other.factor
    if y.root != line.root or y.factor.nothing or not (line.factor + c * y.factor).nothing:
        return None
    return _Gate("tanhshrink", y.root, y.factor, -c, y.shift, line.shift + other.shift + c * y.shift)


def _squared(graph: Graph, node: Node) -> tuple[Precise, Line] | None:
    """A factor, and a line that is no constant, of whose square a node is the multiple."""
    if isinstance(node.op, Apply):
        line = line_of(graph, node.inputs[0])
        return (Precise.of(1.0), line) if _name(node) == "square" and not line.factor.nothing else None
    one, two = (line_of(graph, operand) for operand in node.inputs)
    if one.root != two.root or one.factor.nothing or two.factor.nothing:
        return None
    if one.shift.nothing and two.shift.nothing:
        return one.factor * two.factor, Line(one.root, Precise.of(1.0), one.shift)
    same = (one.factor - two.factor).nothing and (one.shift - two.shift).nothing
    return (Precise.of(1.0), one) if same else None


def _squared_sine(graph: Graph, square: _Gate) -> _Gate | None:
    """sin² = (1 - cos(2·))/2, whose slopes a bound sees better."""
    line = line_of(graph, square.root)
    inner = graph.nodes[line.root]
    if _name(inner) != "sin" or not line.shift.nothing:
        return None
    below, half = line_of(graph, inner.inputs[0]), 0.5 * (square.outer * (line.factor * line.factor))
    return _Gate("cos", below.root, 2.0 * below.factor, -half, 2.0 * below.shift, half)


def _match(graph: Graph, plain: Line, gate: Line) -> _Gate | None:
    """The activation that a product of a line and a gate is, of the value at whose zero the line has its own."""
    found = _centred(graph, plain, gate)
    if found is None or plain.shift.nothing:
        return found
    return replace(found, shift=found.inner * plain.shift * plain.factor.reciprocal())


def _zero(plain: Line, line: Line) -> bool:
    """Whether a line is zero where the plain one is."""
    return bool(line.shift.nothing) if plain.shift.nothing else _same_zero(plain, line)


def _centred(graph: Graph, plain: Line, gate: Line) -> _Gate | None:
    """The activation a·x · (c·ψ(d·x + f) + e), for the known ψ, x measured from the zero of the plain line.

    Constants such as 1/6 or 1/√2 come in single precision. That changes the scale of an activation and not its kind,
    so no constant has to be near another: x·(1 + erf(dx)) is 2/t·gelu(tx) with t = d·√2, and x·clip(αx + 1/2, 0, 1) is
    1/t·hardswish(tx) with t = 6α, whatever d and α are.
    """
    inner = graph.nodes[gate.root]
    if not isinstance(inner.op, (Apply, Special)):
        return None
    a, c, e = plain.factor, gate.factor, gate.shift
    if isinstance(inner.op, Special) and inner.op.name == "reciprocal" and e.nothing:
        return _softsign(graph, plain, gate)
    name, (parent,) = _name(inner), inner.inputs
    if name == "tanh" and _name(graph.nodes[parent]) == "softplus":
        name, (parent,) = "tanh(softplus)", graph.nodes[parent].inputs
    line = line_of(graph, parent)
    d, zero = line.factor, _zero(plain, line)
    if line.root != plain.root or d.nothing:
        return None
    if name == "erf" and zero and (e - c).nothing:
        turn = _ROOT_TWO * d
        return _Gate("gelu", line.root, turn, 2.0 * a * c * turn.reciprocal())
    if not e.nothing:
        return None
    if name in ("sigmoid", "tanh(softplus)") and zero:
        return _Gate("silu" if name == "sigmoid" else "mish", line.root, d, a * c * d.reciprocal())
    if name == "hardsigmoid" and zero and isinstance(inner.op, Apply):
        turn = 6.0 * Precise.of(inner.op.neurons.groups[0][0].parameters[0]) * d
        return _Gate("hardswish", line.root, turn, a * c * turn.reciprocal())
    if name == "clip(0, 6)" and _zero(plain, replace(line, shift=line.shift - 3.0)):
        return _Gate("hardswish", line.root, d, 6.0 * a * c * d.reciprocal())
    return None


def _softsign(graph: Graph, plain: Line, gate: Line) -> _Gate | None:
    """a·x·c/(e + k·|dx|) is ac/(et)·softsign(tx) with t = k·|d|/e."""
    below = line_of(graph, graph.nodes[gate.root].inputs[0])
    size = graph.nodes[below.root]
    if _name(size) != "|x|" or not below.shift.nearest > 0.0 or not below.factor.nearest > 0.0:
        return None
    line = line_of(graph, size.inputs[0])
    if line.root != plain.root or not _zero(plain, line) or line.factor.nothing:
        return None
    d = line.factor if line.factor.nearest > 0.0 else -line.factor
    turn = below.factor * d * below.shift.reciprocal()
    outer = plain.factor * gate.factor * (below.shift * turn).reciprocal()
    return _Gate("softsign", line.root, turn, outer)


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
