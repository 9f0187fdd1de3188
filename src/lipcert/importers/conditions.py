"""Comparisons, and choices that rest on them; :mod:`lipcert.importers.lowering.choices` tells what they mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.importers.builder import Builder, Tensor, Unsupported, Value, common_shape
from lipcert.importers.graph import Choice
from lipcert.model.arrays import Array


@dataclass(frozen=True)
class Condition:
    """Where a tensor exceeds a limit, or where it does not; only a choice may use it."""

    tensor: Tensor
    limit: float
    above: bool
    reason = "it uses a comparison as a number, which jumps; known is a choice between two lines that meet"

    @property
    def node(self) -> int:
        """The node whose value decides."""
        return self.tensor.node


def exceeds(b: Builder, x: Value, y: Value) -> Condition:
    """Where x exceeds y. What happens where they are equal does not matter to a choice that does not jump."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return Condition(b.add(x, y, -1.0), 0.0, above=True)
    tensor, limits = (x, y) if isinstance(x, Tensor) else (y, x)
    assert isinstance(tensor, Tensor)
    limit = np.unique(np.asarray(limits, dtype=float))
    if limit.size != 1 or not np.isfinite(limit[0]):
        raise Unsupported("it compares with limits that are not all one finite number")
    shape = common_shape(tensor.shape, np.shape(limits))
    return Condition(b.spread(tensor, shape), float(limit[0]), above=isinstance(x, Tensor))


def choose(b: Builder, where: Condition | Array, x: Value, y: Value) -> Tensor:
    """X where the condition holds, else y; a condition that is a constant picks elements."""
    if isinstance(where, Tensor):
        raise Unsupported("its condition is a number that depends on the input")
    given = where.tensor.shape if isinstance(where, Condition) else np.shape(where)
    shape = common_shape(given, _shape(x), _shape(y))
    sides = [b.spread(v, shape) if isinstance(v, Tensor) else np.broadcast_to(v, shape) for v in (x, y)]
    one, other = (b.tensor(side) for side in sides)
    if isinstance(where, Condition):
        chosen = (one, other) if where.above else (other, one)
        return b.node(Choice(where.limit), (b.spread(where.tensor, shape), *chosen), shape)
    both = b.concat([b.reshape(side, (side.size,)) for side in (one, other)], 0)
    index = np.arange(one.size).reshape(shape)
    return b.pick(both, np.where(np.broadcast_to(where, shape), index, index + one.size))


def _shape(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, Tensor) else np.shape(value)
