"""Values that are the same line over another value, element by element."""

from __future__ import annotations

from dataclasses import dataclass

from lipcert.importers.graph import Graph, Scale
from lipcert.importers.precise import Precise


@dataclass(frozen=True)
class Line:
    """factor·x + shift, the same for all elements, with x the value of node ``root``."""

    root: int
    factor: Precise
    shift: Precise


def line_of(graph: Graph, position: int) -> Line:
    """A node as a line over the first ancestor that is not a uniform scaling."""
    factor, shift = Precise.of(1.0), Precise.of(0.0)
    while isinstance(op := graph.nodes[position].op, Scale):
        if not (uniform(op.factor) and uniform(op.shift)):
            break
        factor, shift = factor * op.factor.take(0), shift + factor * op.shift.take(0)
        (position,) = graph.nodes[position].inputs
    return Line(position, factor, shift)


def uniform(numbers: Precise) -> bool:
    """Whether all numbers are the same."""
    return bool((numbers.parts == numbers.parts[:, :1]).all() and (numbers.error == numbers.error[0]).all())
