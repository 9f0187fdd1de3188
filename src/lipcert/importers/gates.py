"""Products that spell out an activation, recognised while a graph is written.

Exporters write SiLU as x·sigmoid(x), Mish as x·tanh(softplus(x)), GELU as x·(1 + erf(x/√2))/2 and hardswish as
x·clip(x + 3, 0, 6)/6, with the constants in any place; people write x·x.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from lipcert.importers.graph import Apply, Linear, Node
from lipcert.importers.precise import Precise

_ROOT_TWO, _ONE, _NOTHING = Precise.of(0.5).inverse_root(), Precise.of(1.0), Precise.of(0.0)
_GATES = {"sigmoid": "silu", "tanh(softplus)": "mish", "hardsigmoid": "hardswish"}
"""ψ → the activation x·ψ(x)."""


_Line = tuple[int, Precise, Precise]
"""The node of x, factor and shift of factor·x + shift, the same for all elements."""

Gate = tuple[str, int, Precise, Precise]
"""The name of φ, the node of x, inner and outer of outer·φ(inner·x)."""


def product(nodes: Sequence[Node], one: int, two: int) -> Gate | None:
    """The activation that the product of two nodes is, if it is one."""
    lines = _common(nodes, one, two)
    if lines is not None and all(shift.nothing for _, _, shift in lines):
        (root, a, _), (_, b, _) = lines
        return "square", root, _ONE, a * b
    return _match(nodes, one, two) or _match(nodes, two, one)


def _line(nodes: Sequence[Node], position: int, until: Collection[int] = ()) -> _Line:
    """A node as a line over the first ancestor that is not a uniform scaling, or that is in ``until``."""
    factor, shift = _ONE, _NOTHING
    while position not in until and isinstance(op := nodes[position].op, Linear) and op.scaling is not None:
        factor, shift = factor * op.scaling[0], shift + factor * op.scaling[1]
        (position,) = nodes[position].inputs
    return position, factor, shift


def _common(nodes: Sequence[Node], one: int, two: int) -> tuple[_Line, _Line] | None:
    """Two nodes as lines over the nearest value that both are lines over; the second is no constant."""
    root, chain = _line(nodes, one)[0], [one]
    while chain[-1] != root:
        chain += nodes[chain[-1]].inputs
    second = _line(nodes, two, chain)
    if second[0] not in chain or second[1].nothing:
        return None
    return _line(nodes, one, second[:1]), second


def _match(nodes: Sequence[Node], plain: int, gate: int) -> Gate | None:
    """The activation a·x · (c·ψ(d·x + f) + e), for the known ψ.

    Constants such as 1/6 or 1/√2 come in single precision. That changes the scale of an activation and not its kind,
    so no constant has to be near another: x·(1 + erf(dx)) is 2/t·gelu(tx) with t = d·√2, and x·clip(αx + 1/2, 0, 1) is
    1/t·hardswish(tx) with t = 6α, whatever d and α are.
    """
    place, c, e = _line(nodes, gate)
    inner = nodes[place]
    if not isinstance(inner.op, Apply):
        return None
    name, (parent,) = _name(inner), inner.inputs
    if name == "tanh" and _name(nodes[parent]) == "softplus":
        name, (parent,) = "tanh(softplus)", nodes[parent].inputs
    lines = _common(nodes, plain, parent)
    if lines is None or not lines[0][2].nothing:
        return None
    (root, a, _), (_, d, f) = lines
    kind, turn = None, d
    if name == "erf" and f.nothing and (e - c).nothing:
        kind, turn, c = "gelu", _ROOT_TWO * d, 2.0 * c
    elif name == "clip(0, 6)" and (f - 3.0).nothing and e.nothing:
        kind, c = "hardswish", 6.0 * c
    elif name in _GATES and f.nothing and e.nothing:
        kind = _GATES[name]
        if name == "hardsigmoid":
            turn = 6.0 * Precise.of(inner.op.neurons.groups[0][0].parameters[0]) * d
    return None if kind is None else (kind, root, turn, a * c * turn.reciprocal())


def _name(node: Node) -> str | None:
    """The function of a node, where one function with known parameters serves all elements."""
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
