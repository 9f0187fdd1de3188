"""A model as a graph of operations, each with an exact meaning: what importers write and lowering reads.

Values are tensors stored flat, in C order; a node knows the shape it came from. Nodes refer to earlier nodes
only, so a graph is read front to back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np

from lipcert.errors import UnreadableModel
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons


class Op:
    """What a node does to its operands; a frozen value."""


class Input(Op):
    """The model's input."""


@dataclass(frozen=True, eq=False)
class Linear(Op):
    """y = Σ parts[k]·x_k + shift, over the operands x_k; without operands a constant.

    The numbers are known beyond double precision where the model does not store them.
    """

    parts: tuple[PreciseMatrix, ...]
    shift: Precise

    @cached_property
    def scaling(self) -> tuple[Precise, Precise] | None:
        """The numbers f and s if y = f·x + s with the same two for all elements."""
        if len(self.parts) != 1 or not self.parts[0].diagonal:
            return None
        numbers = self.parts[0].values, self.shift
        if not all((part == part[0]).all() for number in numbers for part in number.parts):
            return None
        return numbers[0].take(0), numbers[1].take(0)


@dataclass(frozen=True, eq=False)
class Apply(Op):
    """An activation, neuron by neuron."""

    neurons: Neurons


class Unknown(Op):
    """An operation without translation; it keeps the shape so that reading can go on and find the others."""


@dataclass(frozen=True, eq=False)
class Bilinear(Op):
    """y_k = Σ_j x[one_kj]·z[two_kj] for two operands x and z, positions (outputs, terms)."""

    one: Array
    two: Array


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x)/Σexp(x) over rows of some width, one after the other."""

    width: int


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of a graph: what it does, where its operands are, and the shape of its result.

    ``source`` is the name of the model's operation it came from, ``kind`` its type in the model's own words.
    """

    op: Op
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    source: str = ""
    kind: str = ""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def label(self) -> str:
        """Name and type, for people."""
        return f"{self.source} ({self.kind})" if self.source else self.kind


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which each comes after its operands; node 0 is the input."""

    nodes: tuple[Node, ...]
    output: int

    def ancestors(self, nodes: Iterable[int], known: Collection[int] = ()) -> set[int]:
        """Some nodes and all that they are computed from, back to known ones."""
        found: set[int] = set()
        pending = list(nodes)
        while pending:
            position = pending.pop()
            if position not in found:
                found.add(position)
                pending += () if position in known else self.nodes[position].inputs
        return found

    def live(self) -> Graph:
        """The same function without the nodes that do not reach the output; the input always stays."""
        kept = sorted(self.ancestors([self.output]) | {0})
        place = {old: new for new, old in enumerate(kept)}
        nodes = (replace(self.nodes[old], inputs=tuple(place[i] for i in self.nodes[old].inputs)) for old in kept)
        return Graph(tuple(nodes), place[self.output])


@dataclass(frozen=True)
class Offender:
    """An operation that stands in the way, and why."""

    name: str
    kind: str
    shape: tuple[int, ...] | None
    reason: str

    def __str__(self) -> str:
        shape = "of unknown shape" if self.shape is None else f"of shape {self.shape}"
        return f"{self.name or '(unnamed)'}: {self.kind} {shape}: {self.reason}"


def refuse(offenders: Iterable[Offender]) -> NoReturn:
    """One error that lists every offender."""
    lines = [str(offender) for offender in dict.fromkeys(offenders)]
    count = "1 operation has" if len(lines) == 1 else f"{len(lines)} operations have"
    raise UnreadableModel(f"{count} no exact translation:\n" + "\n".join(f"  {line}" for line in lines))
