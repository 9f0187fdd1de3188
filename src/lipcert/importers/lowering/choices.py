"""Same function: a choice between two lines that meet where the choice changes is an activation with one kink.

People write a leaky ReLU as where(x > 0, x, x/10), and PyTorch exports softshrink as the sum of two choices. With
t = x - c, slopes l and r left and right of the limit c, and the value h there,

    y = h + r·relu(t) - l·relu(-t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lipcert.importers.graph import Apply, Choice, Constant, Graph, Node, Offender, Rewriting, Scale, Sum
from lipcert.importers.lowering.lines import Line, line_of, uniform
from lipcert.importers.precise import Precise
from lipcert.model.activation_row import moderate
from lipcert.model.activations import activation
from lipcert.model.network import Neurons

_JUMP = "its two values differ where the choice changes, so it jumps and has no Lipschitz constant"
_STRANGE = "it chooses between values that are not lines over the one value that decides"


@dataclass(frozen=True)
class _Bend:
    """height + right·relu(x - limit) - left·relu(limit - x), with x the value of node ``place``."""

    place: int
    limit: Precise
    left: Precise
    right: Precise
    height: Precise


def recognise_choices(graph: Graph) -> Graph:
    """Replace every choice that is an activation."""
    new = Rewriting()
    for position, node in enumerate(graph.nodes):
        shrink = _shrink(graph, node)
        bend = _bend(graph, node) if isinstance(node.op, Choice) else None
        if shrink is not None:
            shrunk = new.add(_apply("softshrink", node, lambd=float(shrink.limit.nearest)), _at(new, shrink), node)
            new.place[position] = new.add(_scale(shrink.right, 0.0, node), (shrunk,), node)
        elif isinstance(bend, _Bend):
            new.place[position] = _written(new, bend, node)
        else:
            new.copy(position, node)
    return new.graph(graph.output)


def unrecognised_choices(graph: Graph) -> list[Offender]:
    """Choices that are left over, and why."""
    reasons = [(node, _bend(graph, node)) for node in graph.nodes if isinstance(node.op, Choice)]
    return [Offender(node.source, node.kind, node.shape, why) for node, why in reasons if isinstance(why, str)]


def _bend(graph: Graph, node: Node) -> _Bend | str:
    """A choice as one kink, or why it is none."""
    assert isinstance(node.op, Choice)
    place, *branches = node.inputs
    x = line_of(graph, place)
    above, below = (_branch(graph, position, x.root) for position in branches)
    if above.root != x.root or below.root != x.root or x.factor.nothing:
        return _STRANGE
    limit = Precise.of(node.op.limit)
    gap = (above.factor - below.factor) * (limit - x.shift) + (above.shift - below.shift) * x.factor
    if not gap.nothing:
        return _JUMP
    unit = x.factor.reciprocal()
    left, right = below.factor * unit, above.factor * unit
    return _Bend(place, limit, left, right, below.shift + left * (limit - x.shift))


def _branch(graph: Graph, position: int, root: int) -> Line:
    """What a choice can give, a constant as a level line over the value that decides."""
    line = line_of(graph, position)
    op = graph.nodes[line.root].op
    if not isinstance(op, Constant) or not uniform(Precise.of(op.number)):
        return line
    return Line(root, Precise.of(0.0), line.factor * op.number[0] + line.shift)


def _shrink(graph: Graph, node: Node) -> _Bend | None:
    """The right half of a multiple of softshrink, if a sum is that: two kinks at ±λ, level between them."""
    if not isinstance(node.op, Sum) or len(node.inputs) != 2:
        return None
    halves = [graph.nodes[i] for i in node.inputs]
    bends = [_bend(graph, half) for half in halves if isinstance(half.op, Choice)]
    found = sorted((bend for bend in bends if isinstance(bend, _Bend)), key=lambda bend: float(bend.limit.nearest))
    if len(found) != 2 or found[0].place != found[1].place:
        return None
    low, high = found
    nothing = (low.right, high.left, low.height, high.height, low.left - high.right, low.limit + high.limit)
    return high if moderate(high.limit.nearest) and all(bool(one.nothing) for one in nothing) else None


def _written(new: Rewriting, bend: _Bend, node: Node) -> int:
    """One neuron an element where that is enough, else two."""
    t = new.add(_scale(Precise.of(1.0), -bend.limit, node), _at(new, bend), node)
    ratio = float(bend.left.nearest / bend.right.nearest) if bend.right.nearest != 0.0 else np.inf
    if not bend.left.nothing and np.isfinite(ratio) and (bend.right * ratio - bend.left).nothing:
        kinked = new.add(_apply("leaky_relu", node, negative_slope=ratio), (t,), node)
        return new.add(_scale(bend.right, bend.height, node), (kinked,), node)
    sides = []
    if not bend.right.nothing or bend.left.nothing:
        sides.append((t, bend.right))
    if not bend.left.nothing:
        sides.append((new.add(_scale(Precise.of(-1.0), 0.0, node), (t,), node), -bend.left))
    parts, height = [], bend.height
    for place, slope in sides:
        kinked = new.add(_apply("relu", node), (place,), node)
        parts.append(new.add(_scale(slope, height, node), (kinked,), node))
        height = Precise.of(0.0)
    return parts[0] if len(parts) == 1 else new.add(Sum(), parts, node)


def _at(new: Rewriting, bend: _Bend) -> tuple[int]:
    return (new.place[bend.place],)


def _apply(name: str, node: Node, **parameters: float) -> Apply:
    return Apply(Neurons.of(activation(name, **parameters), node.size))


def _scale(factor: Precise, shift: Any, node: Node) -> Scale:
    return Scale(factor.broadcast((node.size,)), Precise.of(shift).broadcast((node.size,)))
