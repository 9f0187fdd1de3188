"""One use of an ONNX operator, and how much a model may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lipcert.importers.builder import Builder, Tensor, Unsupported

ALWAYS: Final = 2**25
"""Numbers that the tensors and matrices of any model may have together."""

TIMES: Final = 4096
"""Beyond that, so many times the numbers that the model stores; kernels of convolutions are used at many places."""

_TENSOR = 8


class Room:
    """How many numbers a model that stores so many may still ask for."""

    def __init__(self, stored: int = 0) -> None:
        self.most = self.left = ALWAYS + TIMES * stored

    def tensor(self, *sizes: int) -> None:
        """A tensor of this shape; its elements count several times, because many arrays are made for them."""
        self.take(_TENSOR, *sizes)

    def take(self, *sizes: int) -> None:
        """Use up the product of the sizes; refuse, before anything is made, where there is not as much left."""
        count = math.prod(int(size) for size in sizes)
        self.left -= count
        if self.left < 0:
            raise Unsupported(f"it needs {count} numbers, and this model may have {self.most} in all")


@dataclass(frozen=True, eq=False)
class Call:
    """One use of an operator: operands (None where left out), attributes, operator set, number of outputs.

    ``dtype`` is the type of the numbers, ``single`` whether they all are numbers of single precision.
    """

    operands: Sequence[Any]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int = 1
    dtype: Any = np.float64
    single: bool = False
    room: Room = field(default_factory=Room)

    @property
    def x(self) -> Tensor:
        """The first operand, which must depend on the input."""
        if not isinstance(self.operands[0], Tensor):
            raise Unsupported("its first operand is a constant and another one is not")
        return self.operands[0]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, text decoded."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def operand(self, position: int) -> Any:
        """An operand, or None where it is left out."""
        return self.operands[position] if position < len(self.operands) else None

    def constant(self, position: int, name: str, default: Any = None) -> Any:
        """What older operator sets give as an attribute and newer ones as a constant operand."""
        value = self.operand(position)
        if isinstance(value, Tensor):
            raise Unsupported(f"its {name} depends on the input")
        return self.attribute(name, default) if value is None else value

    def whole(self, position: int, name: str, default: Any = None) -> list[int] | None:
        """Such a constant as a list of whole numbers."""
        value = self.constant(position, name, default)
        if value is None:
            return None
        if np.size(value) and np.asarray(value).dtype.kind not in "iub":
            raise Unsupported(f"its {name} must be whole numbers")
        return [int(v) for v in np.ravel(value)]

    def axes(self, position: int, rank: int) -> list[int] | None:
        """Axes counted from the front."""
        axes = self.whole(position, "axes")
        return None if axes is None else [axis_of(a, rank) for a in axes]


Operator = Callable[[Builder, Call], Any]


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise Unsupported(f"it names axis {axis} of {rank}")
    return axis % rank
