"""The verbs in which importers write a graph: tensors in, tensors out, shapes checked on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.errors import LipcertError
from lipcert.importers import graph as ops
from lipcert.importers import windows as win
from lipcert.importers.graph import Graph, Node, Offender, refuse
from lipcert.importers.lowering.forms import fold_constants
from lipcert.importers.lowering.gates import recognise_gates, unrecognised
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.activations import Activation, activation
from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Neurons


@dataclass(frozen=True)
class Tensor:
    """A value of the graph under construction."""

    node: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))


Value = Tensor | Array
"""A tensor that depends on the input, or a constant."""


SELF_NORMALISING = (
    "it divides by the spread of its own input, which has no exact translation and hardly a bound; batch norm in"
    " evaluation mode is read, as is a fixed scale and shift in its place"
)
"""Why layer norm and its like are refused."""

SOFTMAX = (
    "take the logits before it as the output: drop_softmax=True (--drop-softmax) does so where it is the last operation"
)
"""Why a softmax is refused."""


class Opaque:
    """The result of an operation without translation that is no tensor, or one of unknown shape."""


class Positions(Opaque):
    """Which elements were chosen, as sort and its like tell besides the values; nothing may use it."""

    reason = "it uses the positions of sorted values, which jump"


class Unsupported(Exception):
    """An operation, as it is used here, has no exact translation; the message says why."""


class Builder:
    """A graph under construction. Operations that cannot be translated are noted, and refused all at once."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.nodes: list[Node] = []
        self.offenders: list[Offender] = []
        self.source, self.kind = "input", "Input"
        self.input = self._add(ops.Input(), (), tuple(shape))

    @contextmanager
    def reading(self, source: str, kind: str, shape: tuple[int, ...] | None) -> Iterator[None]:
        """Within the block, nodes belong to this operation of the model, and what it cannot do is noted."""
        self.source, self.kind = source, kind
        try:
            yield
        except (Unsupported, LipcertError) as reason:  # LipcertError: a parameter outside what an activation allows
            self.offenders.append(Offender(source, kind, shape, str(reason)))

    def finish(self, output: Any) -> Graph:
        """The graph up to an output, which may be a constant, or an error with every offender."""
        if isinstance(output, Positions):
            self.offenders.append(Offender("output", "output", None, output.reason))
        last = self.tensor(output) if isinstance(output, (Tensor, np.ndarray)) else self.unknown((1,))
        if self.offenders:  # whatever was read may hold further ones, also where the output is out of reach
            last = self._add(ops.Unknown(), tuple(range(len(self.nodes))), (1,))
        graph = Graph(tuple(self.nodes), last.node)
        offenders = [*self.offenders, *unrecognised(recognise_gates(fold_constants(graph.live())))]
        if offenders:
            refuse(offenders)
        return graph

    def unknown(self, shape: Sequence[int], operands: Sequence[Any] = ()) -> Tensor:
        """A stand-in for what could not be translated."""
        return self._add(ops.Unknown(), tuple(o.node for o in operands if isinstance(o, Tensor)), tuple(shape))

    def constant(self, value: Array) -> Tensor:
        """A constant as a tensor."""
        value = np.asarray(value, dtype=float)
        return self._add(ops.Constant(value.ravel()), (), value.shape)

    def tensor(self, value: Value) -> Tensor:
        """A constant made a tensor; a tensor as it is."""
        return value if isinstance(value, Tensor) else self.constant(value)

    # positions -----------------------------------------------------------------------------------------------

    def pick(self, x: Tensor, index: Array, fill: float = 0.0) -> Tensor:
        """The tensor of x's elements at the given positions; ``fill`` where the position is -1."""
        if index.size == 0:
            raise Unsupported(f"the result has no elements (shape {index.shape})")
        flat = index.ravel()
        if flat.size == x.size and (flat == np.arange(x.size)).all():
            return Tensor(x.node, index.shape)
        picked = self._add(ops.Pick(flat), (x.node,), index.shape)
        if fill != 0.0 and (flat < 0).any():
            picked = self.scale(picked, 1.0, np.where(index < 0, fill, 0.0))
        return picked

    def view(self, x: Tensor, change: Any) -> Tensor:
        """Whatever a function of arrays does to the arrangement of the elements (reshape, transpose, slice …)."""
        try:
            index = np.asarray(change(win.positions(x.shape)))
        except (ValueError, IndexError, TypeError, np.exceptions.AxisError) as error:
            raise Unsupported(f"its arguments do not fit an operand of shape {x.shape}: {error}") from None
        return self.pick(x, index)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape; one entry may be -1."""
        return self.view(x, lambda index: index.reshape(tuple(int(s) for s in shape)))

    def pad(self, x: Tensor, pads: win.Pads, fill: float = 0.0) -> Tensor:
        """Padding of the last axes."""
        return self.pick(x, win.padded(win.positions(x.shape), pads), fill)

    def concat(self, parts: Sequence[Value], axis: int) -> Tensor:
        """Tensors side by side along an axis."""
        tensors = [self.tensor(part) for part in parts]
        offsets = np.cumsum([0, *(t.size for t in tensors[:-1])])
        try:
            index = np.concatenate([win.positions(t.shape) + o for t, o in zip(tensors, offsets)], axis=axis)
        except (ValueError, np.exceptions.AxisError) as error:
            raise Unsupported(f"operands do not fit together: {error}") from None
        joined = self._add(ops.Join(), tuple(t.node for t in tensors), (int(index.size),))
        return self.pick(joined, index)

    # affine maps ---------------------------------------------------------------------------------------------

    def affine(self, x: Tensor, weight: Weight | PreciseMatrix, bias: Any, shape: Sequence[int]) -> Tensor:
        """weight·x + bias on the flat tensor; the bias is broadcast to the result's shape."""
        offset = Precise.of(bias).broadcast(tuple(shape)).reshape(-1)
        return self._add(ops.Affine(PreciseMatrix.of(weight), offset), (x.node,), tuple(shape))

    def scale(self, x: Tensor, factor: Any, shift: Any = 0.0) -> Tensor:
        """factor·x + shift, element by element, all three broadcast; arrays or :class:`Precise` numbers.

        A factor that has to be computed must be Precise: it is rounded after it was folded into a weight.
        """
        factor, shift = Precise.of(factor), Precise.of(shift)
        x = self.spread(x, common_shape(x.shape, factor.shape, shift.shape))
        flat = [value.broadcast(x.shape).reshape(-1) for value in (factor, shift)]
        return self._add(ops.Scale(*flat), (x.node,), x.shape)

    def batch_norm(self, x: Tensor, mean: Any, variance: Any, gain: Any, offset: Any, epsilon: float) -> Tensor:
        """gain·(x - mean)/√(variance + epsilon) + offset, each with one number a channel (axis 1 of x).

        The factor gain/√(variance + epsilon) is not rounded before it is folded.
        """
        spread = Precise.of(variance) + epsilon
        if not (spread.high > 0.0).all():
            raise Unsupported(f"variance + epsilon must be positive, the least is {spread.high.min():.3g}")
        factor = spread.inverse_root() * Precise.of(gain)
        along = (-1, *(1 for _ in x.shape[2:]))
        centred = self.scale(x, 1.0, -Precise.of(mean).reshape(*along))
        return self.scale(centred, factor.reshape(*along), Precise.of(offset).broadcast(factor.shape).reshape(*along))

    def spread(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """X broadcast to a shape."""
        return x if x.shape == shape else self.view(x, lambda index: np.broadcast_to(index, shape))

    def add(self, x: Value, y: Value, sign: float = 1.0) -> Tensor:
        """X + sign·y."""
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x = self.constant(x)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            shape = common_shape(x.shape, y.shape)
            y = y if sign == 1.0 else self.scale(y, sign)
            return self._add(ops.Sum(), (self.spread(x, shape).node, self.spread(y, shape).node), shape)
        if isinstance(x, Tensor):
            return self.scale(x, 1.0, Precise.of(y) if sign == 1.0 else sign * Precise.of(y))
        assert isinstance(y, Tensor)
        return self.scale(y, sign, x)

    def multiply(self, x: Value, y: Value) -> Tensor:
        """X·y, element by element."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            shape = common_shape(x.shape, y.shape)
            return self._add(ops.Product(), (self.spread(x, shape).node, self.spread(y, shape).node), shape)
        return self.scale(y, x) if isinstance(y, Tensor) else self.scale(self.tensor(x), y)

    def divide(self, x: Value, y: Value) -> Tensor:
        """Quotient x / y; a y that depends on the input only counts as a part of an activation."""
        if isinstance(y, Tensor):
            return self.multiply(x, self.special(y, "reciprocal"))
        if not np.all(y):
            raise Unsupported("it divides by zero")
        return self.scale(self.tensor(x), Precise.of(y).reciprocal())

    def matmul(self, x: Value, y: Value) -> Tensor:
        """Matrix product with a constant matrix on either side, vectors as in numpy."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            raise Unsupported("it multiplies two values that both depend on the input")
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x = self.constant(x)
        tensor, matrix = (x, np.asarray(y, float)) if isinstance(x, Tensor) else (y, np.asarray(x, float))
        assert isinstance(tensor, Tensor)
        if matrix.ndim != 2 or not matrix.size:
            raise Unsupported(f"the constant operand must be a matrix with entries, it has shape {matrix.shape}")
        right = isinstance(x, Tensor)
        inner = tensor.shape[-1] if right or len(tensor.shape) == 1 else tensor.shape[-2]
        if inner != matrix.shape[0 if right else 1]:
            raise Unsupported(f"shapes do not fit: {getattr(x, 'shape', ())} times {getattr(y, 'shape', ())}")
        if right:
            shape = (*tensor.shape[:-1], matrix.shape[1])
            return self.affine(tensor, _repeat(matrix.T, tensor.size // inner, 1), 0.0, shape)
        after = 1 if len(tensor.shape) == 1 else tensor.shape[-1]
        shape = (matrix.shape[0],) if len(tensor.shape) == 1 else (*tensor.shape[:-2], matrix.shape[0], after)
        return self.affine(tensor, _repeat(matrix, tensor.size // (inner * after), after), 0.0, shape)

    def mean(self, x: Tensor, axes: Sequence[int] | None, keep: bool, total: bool = False) -> Tensor:
        """Mean (or sum) over some axes; None is all of them."""
        seen, shape = win.over_axes(x.shape, range(len(x.shape)) if axes is None else axes, keep)
        weight = win.averaging(seen, np.full(len(seen), 1.0 if total else float(seen.shape[1])), x.size)
        return self.affine(x, weight, 0.0, shape)

    def conv(
        self,
        x: Tensor,
        weight: Array,
        bias: Array | None,
        stride: Sequence[int],
        pads: win.Pads,
        dilation: Sequence[int],
        groups: int = 1,
    ) -> Tensor:
        """A convolution of (batch, channels, …)."""
        weight = np.asarray(weight, dtype=float)
        if len(x.shape) != weight.ndim or x.shape[1] != weight.shape[1] * groups:
            raise Unsupported(f"a kernel of shape {weight.shape} in {groups} groups does not fit {x.shape}")
        matrix, shape = win.convolution(x.shape, weight, stride, pads, dilation, groups)
        offset = 0.0 if bias is None else np.reshape(bias, (-1, *(1 for _ in shape[2:])))
        return self.affine(x, matrix, offset, shape)

    def conv_transpose(
        self,
        x: Tensor,
        weight: Array,
        bias: Array | None,
        stride: Sequence[int],
        pads: win.Pads,
        dilation: Sequence[int],
        sizes: Sequence[int],
        groups: int = 1,
    ) -> Tensor:
        """The adjoint of a convolution of images of the given sizes, padded so, into those of x."""
        weight = np.asarray(weight, dtype=float)
        if len(x.shape) != weight.ndim or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
            raise Unsupported(f"a kernel of shape {weight.shape} in {groups} groups does not fit {x.shape}")
        shape = (x.shape[0], weight.shape[1] * groups, *sizes)
        if min(sizes) < 1:
            raise Unsupported(f"the result has no elements (shape {shape})")
        matrix, back = win.convolution(shape, weight, stride, pads, dilation, groups)
        if back != x.shape:
            raise Unsupported(f"its padding does not fit: images of sizes {tuple(sizes)} become {back[2:]}")
        turned = PreciseMatrix.of_entries(matrix.shape[::-1], matrix.columns, matrix.rows, matrix.values)
        offset = 0.0 if bias is None else np.reshape(bias, (-1, *(1 for _ in sizes)))
        return self.affine(x, turned, offset, shape)

    def average_windows(self, x: Tensor, seen: Array, counts: Array | None, shape: Sequence[int]) -> Tensor:
        """The average over windows of positions, divided by the given counts or by what each window sees."""
        divisor = (seen >= 0).sum(axis=1) if counts is None else counts
        if (divisor == 0).any():
            raise Unsupported("a window lies outside the input")
        return self.affine(x, win.averaging(seen, divisor.astype(float), x.size), 0.0, shape)

    def average_pool(
        self,
        x: Tensor,
        kernel: win.Sizes,
        stride: win.Sizes,
        pads: win.Pads,
        dilation: win.Sizes,
        ceil: bool,
        include: bool,
    ) -> Tensor:
        """The average over windows; with ``include`` padding counts as zeros."""
        if ceil and include:
            raise Unsupported("ceil_mode together with count_include_pad means different things to different runtimes")
        seen, shape = win.pool_windows(x.shape, kernel, stride, pads, dilation, ceil)
        return self.average_windows(x, seen, np.full(len(seen), seen.shape[1]) if include else None, shape)

    def upsample(self, x: Tensor, factors: Sequence[float], linear: bool, corners: bool = False) -> Tensor:
        """Each axis enlarged by a whole factor, by repeating values or by linear interpolation."""
        if len(factors) != len(x.shape) or any(factor < 1 or factor != int(factor) for factor in factors):
            raise Unsupported(f"factors {list(factors)}: only enlarging by whole factors is read")
        for axis, factor in enumerate(map(int, factors)):
            if factor > 1 and linear:
                matrix, shape = win.interpolation(x.shape, axis, factor, corners)
                x = self.affine(x, matrix, 0.0, shape)
            elif factor > 1:
                x = self.pick(x, np.repeat(win.positions(x.shape), factor, axis))
        return x

    # what is not affine --------------------------------------------------------------------------------------

    def activate(self, x: Tensor, name: str, **parameters: Any) -> Tensor:
        """An activation of the table; parameters are broadcast to x's shape."""
        values = {
            key: value if np.ndim(value) == 0 else np.broadcast_to(value, x.shape).ravel()
            for key, value in parameters.items()
        }
        return self.apply(x, activation(name, **values))

    def apply(self, x: Tensor, row: Activation) -> Tensor:
        """An activation as it is."""
        return self._add(ops.Apply(Neurons.of(row, x.size)), (x.node,), x.shape)

    def hard_sigmoid(self, x: Tensor) -> Tensor:
        """clip(x/6 + 1/2, 0, 1). The table's slope α is the float next to 1/6, so x is scaled by 1/(6α) first."""
        (slope, _) = activation("hardsigmoid").parameters
        return self.activate(self.scale(x, (6.0 * Precise.of(slope)).reciprocal()), "hardsigmoid")

    def special(self, x: Tensor, name: Any) -> Tensor:
        """A function that only counts as a part of an activation."""
        return self._add(ops.Special(name), (x.node,), x.shape)

    def power(self, x: Tensor, exponent: Any) -> Tensor:
        """x², x³ and x."""
        if np.ndim(exponent) or float(exponent) not in (1.0, 2.0, 3.0):
            raise Unsupported("only the powers 1, 2 and 3 are known")
        return x if float(exponent) == 1.0 else self.activate(x, "square" if float(exponent) == 2.0 else "cube")

    def clamp(self, x: Tensor, low: float | None, high: float | None) -> Tensor:
        """Values held between two limits, either of which may be missing."""
        low = None if low is None or np.isneginf(low) else float(low)
        high = None if high is None or np.isposinf(high) else float(high)
        if low is not None and high is not None:
            return self.activate(x, "hardtanh", min_val=low, max_val=high)
        if low is not None:  # max(x, c) = c + relu(x - c)
            return self.scale(self.activate(self.scale(x, 1.0, -low), "relu"), 1.0, low)
        if high is not None:
            return self.scale(self.activate(self.scale(x, -1.0, high), "relu"), -1.0, high)
        return x

    def maximum(self, x: Tensor, seen: Array, shape: Sequence[int], sign: float = 1.0) -> Tensor:
        """The maximum over windows of positions; the minimum with sign -1."""
        if (seen < 0).all(axis=1).any():
            raise Unsupported("a window lies outside the input")
        return self._add(ops.Maximum(seen, sign), (x.node,), tuple(shape))

    def sort(self, x: Tensor, axis: int, descending: bool = False) -> Tensor:
        """The values along an axis of size two in order."""
        index = np.moveaxis(win.positions(x.shape), axis, -1)
        windows = index.reshape(-1, index.shape[-1])
        if windows.shape[1] != 2:
            raise Unsupported(f"it sorts {windows.shape[1]} values at a time; only the sorting of pairs is read")
        result = self._add(ops.Sort(windows), (x.node,), index.shape)
        ordered = self.view(result, lambda place: place[..., ::-1]) if descending else result
        return self.view(ordered, lambda place: np.moveaxis(place, -1, axis))

    def larger(self, x: Value, y: Value, sign: float = 1.0) -> Tensor:
        """The larger of two values, element by element; the smaller with sign -1."""
        left, right = self.tensor(x), self.tensor(y)
        shape = common_shape(left.shape, right.shape)
        pair = [self.spread(side, shape) for side in (left, right)]
        joined = self.concat([self.reshape(side, (side.size,)) for side in pair], 0)
        return self.maximum(joined, np.arange(joined.size).reshape(2, -1).T, shape, sign)

    def _add(self, op: ops.Op, inputs: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        shape = tuple(int(s) for s in shape)
        self.nodes.append(Node(op, inputs, shape, self.source, self.kind))
        return Tensor(len(self.nodes) - 1, shape)


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Unsupported(f"shapes do not fit: {error}") from None


def _repeat(matrix: Array, before: int, after: int) -> Weight:
    """I ⊗ matrix ⊗ I, with identities of the given sizes."""
    if before == after == 1:
        return matrix
    inner = sparse.kron(sparse.csr_array(matrix), sparse.eye_array(after))
    return sparse.csr_array(sparse.kron(sparse.eye_array(before), inner))
