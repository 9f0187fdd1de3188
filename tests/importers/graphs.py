"""Graphs for tests, and what they compute by the definition of each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lipcert.importers import graph as ops
from lipcert.importers.builder import Builder
from lipcert.model.arrays import Array


def built(shape: tuple[int, ...], body: Callable[[Any, Any], Any]) -> ops.Graph:
    build = Builder(shape)
    return build.finish(build.tensor(body(build, build.input)))


def grown(inputs: int, steps: int, rng: np.random.Generator, grow: Callable[[Any, Any, Any], Any]) -> ops.Graph:
    """A graph of so many steps, each an operation on two values from anywhere before."""
    build: Any = Builder((inputs,))
    values: list[Any] = [build.input]
    for _ in range(steps):
        x, y = (values[rng.integers(len(values))] for _ in range(2))
        values.append(grow(build, x, y))
    return build.finish(build.concat(values[-2:], 0))


def evaluated(graph: ops.Graph) -> Callable[[Array], Array]:
    """The function of inputs (..., inputs) that a graph is."""

    def run(x: Array) -> Array:
        values: list[Array] = []
        for node in graph.nodes:
            values.append(x if isinstance(node.op, ops.Input) else _value(node.op, [values[i] for i in node.inputs]))
        last = values[graph.output]
        return np.broadcast_to(last, (*x.shape[:-1], last.shape[-1]))

    return run


def _value(op: ops.Op, operands: Sequence[Array]) -> Any:
    match op:
        case ops.Linear():
            return sum((_product(part, x) for part, x in zip(op.parts, operands, strict=True)), op.shift.high)
        case ops.Apply():
            return op.neurons.value(operands[0])
    raise AssertionError(f"{op} has no value")


def _product(part: Any, x: Array) -> Array:
    flat = np.reshape(x, (-1, x.shape[-1]))
    return np.reshape((part.nearest @ flat.T).T, (*x.shape[:-1], -1))
