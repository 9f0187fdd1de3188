"""The verbs in which importers write a graph: tensors in, tensors out, shapes checked on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.errors import LipcertError
from lipcert.importers import gates
from lipcert.importers import graph as ops
from lipcert.importers import windows as win
from lipcert.importers.graph import Graph, Node, Offender, refuse
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.importers.untrusted import line
from lipcert.importers.windows import positions
from lipcert.model.activations import activation
from lipcert.model.arrays import Array, Weight
from lipcert.model.convolution import Convolution
from lipcert.model.network import Neurons


@dataclass(frozen=True)
class Tensor:
    """A value of the graph under construction."""

    node: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))


_ROOT_HALF = Precise.of(2.0).inverse_root()

Value = Tensor | Array
"""A tensor that depends on the input, or a constant."""

PART = "load the part of the model behind it, or the part before it"
"""What to try where an operation is not known."""

_POWERS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
"""Activations that are powers."""


_MISUSE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError, MemoryError)
"""What handlers and libraries raise at arguments that they do not take."""


class Opaque:
    """The result of an operation without translation that is no tensor, or one of unknown shape."""


class Positions(Opaque):
    """Which elements were chosen, as sort and its like tell besides the values; nothing may use it."""

    reason = "it uses the positions of sorted values, which jump"


class Unsupported(Exception):
    """An operation, as it is used here, has no exact translation; the message says why."""


class Room:
    """How many numbers a model may ask for: some in any case, and so many times those that it stores.

    Kernels of convolutions are used at many places.
    """

    def __init__(self, stored: float = 0, always: float = 2**25, times: int = 4096) -> None:
        self.most = self.left = always + times * stored

    def take(self, *sizes: int) -> None:
        """Use up the product of the sizes; refuse, before anything is made, where there is not as much left."""
        count = math.prod(int(size) for size in sizes)
        self.left -= count
        if self.left < 0:
            raise Unsupported(
                f"it needs {count} numbers, far more than the model stores; it may have {self.most} in all"
            )


@dataclass(frozen=True)
class Frame:
    """How the windows of a convolution or pool lie, one number an axis; ``ceil`` lets the last one be incomplete."""

    kernel: Sequence[int]
    stride: Sequence[int]
    pads: win.Pads
    dilation: Sequence[int]
    ceil: bool = False


class Builder:
    """A graph under construction. Operations that cannot be translated are noted, and refused all at once."""

    def __init__(self, shape: Sequence[int], room: Room | None = None) -> None:
        self.nodes: list[Node] = []
        self.offenders: list[Offender] = []
        self.known: dict[Any, int] = {}  # operands and positions → the node that takes these elements
        self.sorted: dict[Any, tuple[Tensor, Tensor]] = {}  # pairs of which the maximum or minimum was taken
        self.room = room or Room(math.inf)
        self.source, self.kind = "input", "Input"
        self.input = self.add_node(ops.Input(), (), tuple(shape))

    def step(
        self,
        source: str,
        kind: str,
        shapes: Sequence[tuple[int, ...] | None],
        operands: Sequence[Any],
        read: Callable[[bool], Sequence[Any] | None],
    ) -> Sequence[Any]:
        """What an operation gives, as ``read`` says, or stand-ins of these shapes, so that others are found.

        ``read`` is told whether one of the operands is unknown.
        """
        self.source, self.kind = source, kind
        try:
            if any(isinstance(operand, Positions) for operand in operands):
                raise Unsupported(Positions.reason)
            found = read(any(isinstance(operand, Opaque) for operand in operands))
            if found is not None:
                return found
        except (Unsupported, LipcertError, *_MISUSE) as error:
            said = isinstance(error, (Unsupported, LipcertError))
            reason = str(error) if said else f"it is used in an unknown way: {line(error)}"
            self.offenders.append(Offender(source, kind, shapes[0] if shapes else None, reason))
        nodes = tuple(operand.node for operand in operands if isinstance(operand, Tensor))
        return [Opaque() if shape is None else self.add_node(ops.Unknown(), nodes, shape) for shape in shapes]

    def finish(self, output: Any) -> Graph:
        """The graph up to an output, which may be a constant, or an error with every offender."""
        if isinstance(output, Positions):
            self.offenders.append(Offender("output", "output", None, output.reason))
        last = (
            self.tensor(output) if isinstance(output, (Tensor, np.ndarray)) else self.add_node(ops.Unknown(), (), (1,))
        )
        graph = Graph(tuple(self.nodes), last.node).live()
        if self.offenders:
            refuse(self.offenders)
        return graph

    def constant(self, value: Array) -> Tensor:
        """A constant as a tensor."""
        value = np.asarray(value, dtype=float)
        return self.add_node(ops.Linear((), Precise.of(value.ravel())), (), value.shape)

    def tensor(self, value: Value) -> Tensor:
        """A constant made a tensor; a tensor as it is."""
        return value if isinstance(value, Tensor) else self.constant(value)

    # positions -----------------------------------------------------------------------------------------------

    def pick(self, x: Tensor, index: Array, fill: float = 0.0) -> Tensor:
        """The tensor of x's elements at the given positions; ``fill`` where the position is -1."""
        return self.taken([x], index, fill)

    def taken(self, operands: Sequence[Value], index: Array, fill: float = 0.0) -> Tensor:
        """The elements at some positions of the operands, which are counted through one after the other."""
        if index.size == 0:
            raise Unsupported(f"the result has no elements (shape {index.shape})")
        flat, shift, start = index.ravel(), np.where(index < 0, fill, 0.0).ravel(), 0
        parts: dict[int, Array] = {}
        for operand in operands:
            size = int(np.prod(operand.shape, dtype=int))
            inside = (start <= flat) & (flat < start + size)
            value: Any = self._number(operand)
            if isinstance(value, Tensor) and inside.any():
                place = np.where(inside, flat - start, -1)
                parts[value.node] = np.maximum(parts.get(value.node, -1), place)
            elif inside.any():
                shift[inside] = np.ravel(value)[flat[inside] - start]
            start += size
        if not parts:
            return self.constant(shift.reshape(index.shape))
        sizes = {node: self.nodes[node].size for node in parts}
        (first, place), *others = parts.items()
        if not others and np.array_equal(place, np.arange(sizes[first])):
            return Tensor(first, index.shape)
        key = (tuple(sorted((node, place.tobytes()) for node, place in parts.items())), shift.tobytes())
        if key not in self.known:
            chosen = tuple(PreciseMatrix.choosing(place, sizes[node]) for node, place in parts.items())
            self.known[key] = self.add_node(ops.Linear(chosen, Precise.of(shift)), tuple(parts), index.shape).node
        return Tensor(self.known[key], index.shape)

    def view(self, x: Tensor, change: Any) -> Tensor:
        """Whatever a function of arrays does to the arrangement of the elements (reshape, transpose, slice …)."""
        try:
            index = np.asarray(change(positions(x.shape)))
        except (ValueError, IndexError, TypeError, np.exceptions.AxisError) as error:
            raise Unsupported(f"its arguments do not fit an operand of shape {x.shape}: {error}") from None
        return self.pick(x, index)

    def pad(self, x: Tensor, pads: win.Pads, fill: float = 0.0) -> Tensor:
        """Padding of each axis; negative numbers crop."""
        around = [(max(low, 0), max(high, 0)) for low, high in pads]
        self.room.take(8, *(n + sum(more) for n, more in zip(x.shape, around, strict=True)))
        index = np.pad(positions(x.shape), around, constant_values=-1)
        ends = zip(index.shape, pads, strict=True)
        return self.pick(x, index[tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in ends)], fill)

    def concat(self, parts: Sequence[Value], axis: int) -> Tensor:
        """Tensors side by side along an axis."""
        starts = np.cumsum([0, *(np.prod(part.shape, dtype=int) for part in parts)])
        try:
            places = [positions(part.shape) + start for part, start in zip(parts, starts, strict=False)]
            index = np.concatenate(places, axis=axis)
        except (ValueError, np.exceptions.AxisError) as error:
            raise Unsupported(f"operands do not fit together: {error}") from None
        return self.taken(parts, index)

    # affine maps ---------------------------------------------------------------------------------------------

    def affine(self, x: Tensor, weight: Weight | PreciseMatrix, bias: Any, shape: Sequence[int]) -> Tensor:
        """weight·x + bias on the flat tensor; the bias is broadcast to the result's shape."""
        offset = Precise.of(bias).broadcast(tuple(shape)).reshape(-1)
        return self.add_node(ops.Linear((PreciseMatrix.of(weight),), offset), (x.node,), tuple(shape))

    def scale(self, x: Tensor, factor: Any, shift: Any = 0.0) -> Tensor:
        """factor·x + shift, element by element, all three broadcast; arrays or :class:`Precise` numbers.

        A factor that has to be computed must be Precise: it is rounded after it was folded into a weight.
        """
        factor, shift = Precise.of(factor), Precise.of(shift)
        x = self.spread(x, common_shape(x.shape, factor.shape, shift.shape))
        factor, shift = (value.broadcast(x.shape).reshape(-1) for value in (factor, shift))
        place = np.arange(x.size)
        diagonal = PreciseMatrix.of_entries((x.size, x.size), place, place, factor)
        return self.add_node(ops.Linear((diagonal,), shift), (x.node,), x.shape)

    def batch_norm(self, x: Tensor, mean: Any, variance: Any, gain: Any, offset: Any, epsilon: float) -> Tensor:
        """gain·(x - mean)/√(variance + epsilon) + offset, each with one number a channel (axis 1 of x).

        The factor gain/√(variance + epsilon) is not rounded before it is folded.
        """
        spread = Precise.of(variance) + epsilon
        if not (spread.high > 0.0).all():
            raise Unsupported(f"variance + epsilon must be positive, the least is {spread.high.min():.3g}")
        along = (-1, *(1 for _ in x.shape[2:]))
        factor = (spread.inverse_root() * Precise.of(gain)).reshape(*along)
        centred = self.scale(x, 1.0, -Precise.of(mean).reshape(*along))
        return self.scale(centred, factor, Precise.of(offset).broadcast(spread.shape).reshape(*along))

    def spread(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """X broadcast to a shape."""
        return x if x.shape == shape else self.view(x, lambda index: np.broadcast_to(index, shape))

    def _paired(self, x: Tensor, y: Tensor) -> tuple[tuple[int, int], tuple[int, ...]]:
        """The nodes of two tensors broadcast to their common shape, and that shape."""
        shape = common_shape(x.shape, y.shape)
        return (self.spread(x, shape).node, self.spread(y, shape).node), shape

    def add(self, x: Value, y: Value, sign: float = 1.0) -> Tensor:
        """X + sign·y."""
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x = self.constant(x)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            pair, shape = self._paired(x, y if sign == 1.0 else self.scale(y, sign))
            size = math.prod(shape)
            same = PreciseMatrix.choosing(np.arange(size), size)
            return self.add_node(ops.Linear((same, same), Precise.of(np.zeros(size))), pair, shape)
        if isinstance(x, Tensor):
            return self.scale(x, 1.0, Precise.of(y) if sign == 1.0 else sign * Precise.of(y))
        assert isinstance(y, Tensor)
        return self.scale(y, sign, x)

    def multiply(self, x: Value, y: Value) -> Tensor:
        """X·y, element by element."""
        x, y = (self._number(value) for value in (x, y))
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            return self.scale(y, x) if isinstance(y, Tensor) else self.scale(self.tensor(x), y)
        pair, shape = self._paired(x, y)
        if found := gates.product(self.nodes, *pair):
            name, root, inner, outer = found
            return self.scale(self.activate(self.scale(Tensor(root, shape), inner), name), outer)
        index = positions(shape).reshape(-1, 1)
        return self.add_node(ops.Bilinear(index, index), pair, shape)

    def _number(self, value: Value) -> Value:
        """A tensor that is a constant as an array."""
        if isinstance(value, Tensor) and isinstance(op := self.nodes[value.node].op, ops.Linear) and not op.parts:
            return op.shift.high.reshape(value.shape)
        return value

    def divide(self, x: Value, y: Value) -> Tensor:
        """Quotient x / y; a y that depends on the input must turn out to be positive over the region."""
        if isinstance(y := self._number(y), Tensor):
            return self.multiply(x, self.activate(y, "reciprocal"))
        if not np.all(y):
            raise Unsupported("it divides by zero")
        return self.scale(self.tensor(x), Precise.of(y).reciprocal())

    def matmul(self, x: Value, y: Value) -> Tensor:
        """Matrix product as numpy's."""
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            x = self.constant(x)
        one, two = (positions(side.shape) for side in (x, y))
        ends = (*one.shape[-2:-1], *two.shape[1:][-1:])  # a vector has no rows, or no columns
        one, two = (one[None] if one.ndim == 1 else one), (two[:, None] if two.ndim == 1 else two)
        if min(one.ndim, two.ndim) < 2 or one.shape[-1] != two.shape[-2] or not one.size * two.size:
            raise Unsupported(f"shapes do not fit: {x.shape} times {y.shape}")
        batch = common_shape(one.shape[:-2], two.shape[:-2])
        full, shape = (*batch, one.shape[-2], two.shape[-1], one.shape[-1]), (*batch, *ends)
        self.room.take(*full)
        pairs = one[..., None, :], np.swapaxes(two, -1, -2)[..., None, :, :]
        left, right = (np.broadcast_to(part, full).reshape(-1, full[-1]) for part in pairs)
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return self.add_node(ops.Bilinear(left, right), (x.node, y.node), shape)
        if not isinstance(x, Tensor):
            x, y, left, right = y, x, right, left
        assert isinstance(x, Tensor)
        rows = np.repeat(np.arange(len(left)), full[-1])
        numbers = Precise.of(y).reshape(-1).take(right.ravel())
        weight = PreciseMatrix.of_entries((len(left), x.size), rows, left.ravel(), numbers)
        return self.affine(x, weight, 0.0, shape)

    def totals(self, x: Tensor, seen: Array, shape: Sequence[int]) -> Tensor:
        """The sum over each row of positions; -1 stands for nothing."""
        rows, columns = np.broadcast_to(np.arange(len(seen))[:, None], seen.shape)[seen >= 0], seen[seen >= 0]
        ones = PreciseMatrix.of_entries((len(seen), x.size), rows, columns, Precise.of(np.ones(rows.size)))
        return self.affine(x, ones, 0.0, shape)

    def mean(self, x: Tensor, axes: Sequence[int] | None, keep: bool, total: bool = False) -> Tensor:
        """Mean (or sum) over some axes; None is all of them."""
        seen, shape = win.over_axes(x.shape, range(len(x.shape)) if axes is None else axes, keep)
        return self.totals(x, seen, shape) if total else self.average_windows(x, seen, shape)

    def conv(self, x: Tensor, weight: Array, bias: Array | None, frame: Frame, groups: int = 1) -> Tensor:
        """A convolution of (batch, channels, …)."""
        found = self._convolution(x, x.shape, weight, frame, groups, 1)
        return self._affine_each(x, found.sparse(), bias, (found.outputs, *found.places))

    def _affine_each(self, x: Tensor, matrix: Any, bias: Array | None, shape: Sequence[int]) -> Tensor:
        """The same affine map for each picture of a batch."""
        offset = 0.0 if bias is None else np.reshape(bias, (-1, *(1 for _ in shape[1:])))
        whole = matrix if x.shape[0] == 1 else sparse.block_diag([matrix] * x.shape[0], "csr")
        return self.affine(x, whole, offset, (x.shape[0], *shape))

    def conv_transpose(
        self, x: Tensor, weight: Array, bias: Array | None, frame: Frame, more: Sequence[int], groups: int = 1
    ) -> Tensor:
        """The transpose of the convolution of the result, at whose end there are ``more`` places.

        The frame has the padding that is taken off the result.
        """
        axes = zip(x.shape[2:], frame.stride, frame.dilation, frame.kernel, frame.pads, more)
        sizes = [(n - 1) * s + d * (k - 1) + 1 - sum(p) + m for n, s, d, k, p, m in axes]
        shape = weight.shape[1] * groups, *sizes
        found = self._convolution(x, (x.shape[0], *shape), weight, frame, groups, 0)
        inner = tuple(slice(n) for n in x.shape[2:])  # more places may have room at the end
        rows = positions((x.shape[1], *found.places))[(slice(None), *inner)].ravel()
        return self._affine_each(x, found.sparse()[rows].T.tocsr(), bias, shape)

    def _convolution(
        self, x: Tensor, shape: Sequence[int], weight: Array, frame: Frame, groups: int, side: int
    ) -> Convolution:
        """The convolution of pictures of a shape, if the weight fits x, whose channels are on one side of it."""
        channels = weight.shape[side] * (groups if side else 1)
        if len(x.shape) != weight.ndim or x.shape[1] != channels or channels % groups:
            raise Unsupported(f"a kernel of shape {weight.shape} in {groups} groups does not fit {x.shape}")
        places = self._places(shape, frame)
        self.room.take(shape[0], *places, *weight.shape)
        return Convolution.of(np.asarray(weight, float), shape[2:], frame.stride, frame.pads, frame.dilation, groups)

    def _places(self, shape: Sequence[int], frame: Frame) -> list[int]:
        """How many places windows take along each axis, if there is room for the padded operand."""
        axes = list(zip(shape[2:], frame.kernel, frame.stride, frame.pads, frame.dilation, strict=True))
        if not all(k > 0 and s > 0 and d > 0 for _, k, s, _, d in axes):
            raise Unsupported("its window, stride or dilation is not positive")
        self.room.take(8, *shape[:2], *(max(n + max(sum(p), 0), d * (k - 1) + 1) for n, k, _, p, d in axes))
        places = [win.outputs(*axis, frame.ceil) for axis in axes]
        if min(places) < 1:
            raise Unsupported(f"the result has no elements (shape {(*shape[:2], *places)})")
        return places

    def windows(self, x: Tensor, frame: Frame) -> tuple[Array, tuple[int, ...]]:
        """The positions under each window of a pool, and the shape of its result; axes before them are left alone."""
        lead = len(x.shape) - len(frame.kernel)
        if lead < 0:
            raise Unsupported(f"its window of {len(frame.kernel)} axes does not fit an operand of shape {x.shape}")
        places = self._places((math.prod(x.shape[:lead]), 1, *x.shape[lead:]), frame)
        self.room.take(*x.shape[:lead], *places, *frame.kernel)
        axes = zip(x.shape[lead:], frame.kernel, frame.stride, frame.pads, frame.dilation, places, strict=True)
        return win.windows(x.shape, [win.along(*axis) for axis in axes])

    def average_windows(self, x: Tensor, seen: Array, shape: Sequence[int], count: int | None = None) -> Tensor:
        """The average over windows of positions, divided by a count or by how many each window sees."""
        divisor = np.full(len(seen), count) if count else (seen >= 0).sum(axis=1)
        if (divisor == 0).any():
            raise Unsupported("a window lies outside the input")
        return self.divide(self.totals(x, seen, shape), divisor.astype(float).reshape(shape))

    def average_pool(self, x: Tensor, frame: Frame, include: bool) -> Tensor:
        """The average over windows; with ``include`` padding counts as zeros."""
        if frame.ceil and include:
            raise Unsupported("ceil_mode together with count_include_pad means different things to different runtimes")
        return self.average_windows(x, *self.windows(x, frame), math.prod(frame.kernel) if include else None)

    # what is not affine --------------------------------------------------------------------------------------

    def activate(self, x: Tensor, name: str, **parameters: Any) -> Tensor:
        """An activation of the table; parameters are broadcast to x's shape."""
        each = {key: np.broadcast_to(v, x.shape).ravel() if np.ndim(v) else v for key, v in parameters.items()}
        return self.add_node(ops.Apply(Neurons.of(activation(name, **each), x.size)), (x.node,), x.shape)

    def hard_sigmoid(self, x: Tensor) -> Tensor:
        """clip(x/6 + 1/2, 0, 1). The table's slope α is the float next to 1/6, so x is scaled by 1/(6α) first."""
        (slope, _) = activation("hardsigmoid").parameters
        return self.activate(self.scale(x, (6.0 * Precise.of(slope)).reciprocal()), "hardsigmoid")

    def power(self, x: Tensor, exponent: Any) -> Tensor:
        """x, x², x³, √x, one over them, and such powers of squares."""
        op = self.nodes[x.node].op
        if isinstance(op, ops.Apply) and {row.name for row, _ in op.neurons.groups} == {"sqrt"} and exponent == 2.0:
            return Tensor(self.nodes[x.node].inputs[0], x.shape)
        if np.ndim(exponent) == 0 and float(exponent) in (1.0, *_POWERS):
            return x if float(exponent) == 1.0 else self.activate(x, _POWERS[float(exponent)])
        if np.ndim(exponent) or float(exponent) == 0.0 or float(exponent) % 2.0:
            raise Unsupported(f"of powers only {', '.join(f'{p:g}' for p in (1.0, *_POWERS))} and even ones are known")
        return self.power(self.activate(x, "square"), float(exponent) / 2.0)

    def clamp(self, x: Tensor, low: float | None, high: float | None) -> Tensor:
        """Values held between two limits, either of which may be missing."""
        low = None if low is None or np.isneginf(low) else float(low)
        high = None if high is None or np.isposinf(high) else float(high)
        if low is not None and high is not None:
            return self.activate(x, "hardtanh", min_val=low, max_val=high)
        limit, sign = (high, -1.0) if low is None else (low, 1.0)
        return x if limit is None else self.larger(x, np.asarray(limit), sign)

    def maximum(self, x: Tensor, seen: Array, shape: Sequence[int], sign: float = 1.0) -> Tensor:
        """The maximum over windows (outputs, k) of positions, the minimum with sign -1; -1 stands for nothing.

        It is a tournament of max(a, b) = b + relu(a - b). Windows that are pairs have s = (a + b)/√2 and
        d = (a - b)/√2: max(a, b) = (s + |d|)/√2 and min(a, b) = (s - |d|)/√2. Both maps are rotations, and |·| has
        slopes in [-1, 1], so a bound sees that sorting is 1-Lipschitz.
        """
        shape = tuple(shape)
        if (seen < 0).all(axis=1).any():
            raise Unsupported("a window lies outside the input")
        if win.are_pairs(seen):
            total, gap = self._rotated(x, np.sort(seen, axis=1), shape)
            return self.scale(self.add(total, gap, sign), _ROOT_HALF)
        x = x if sign == 1.0 else self.scale(x, sign)
        while (seen[:, 1:] >= 0).any() or (seen[:, 0] < 0).any():
            x, seen = self._round(x, seen, shape)
        result = self.pick(x, seen[:, 0].reshape(shape))
        return result if sign == 1.0 else self.scale(result, sign)

    def max_pool(self, x: Tensor, frame: Frame) -> Tensor:
        """The maximum over the windows of a pool.

        If windows share no more than their ends, it is taken axis by axis and round by round over whole images, so that
        every layer is a convolution. After relu padding may count as zeros.
        """
        seen, shape = self.windows(x, frame)
        axes = [*zip(frame.kernel, frame.stride, frame.dilation, strict=True)]
        image = len(x.shape) == 2 + len(axes) and x.shape[0] == 1 and not win.are_pairs(seen)
        if not image or (seen < 0).all(axis=1).any() or any(-(-k // 2) > s or d > 1 for k, s, d in axes):
            return self.maximum(x, seen, shape)
        op = self.nodes[x.node].op
        relu = isinstance(op, ops.Apply) and all(row.name == "relu" for row, _ in op.neurons.groups)
        if (seen < 0).any() and not relu:
            return self.maximum(x, seen, shape)
        for axis in range(len(axes) + 1, 1, -1):
            (taps, step, _), low = axes[axis - 2], frame.pads[axis - 2][0]
            around = [(low, taps + step) if a == axis else (0, 0) for a in range(len(x.shape))]
            index, first = np.pad(positions(x.shape), around, constant_values=-1), np.arange(shape[axis]) * step
            parts = [self.pick(x, np.take(index, first + tap, axis)) for tap in range(taps)]
            while len(parts) > 1:
                parts = self._over_images(parts)
            (x,) = parts
        return x

    def _over_images(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The maxima of each two images; identity neurons, of the same sizes, carry what is added to them."""
        ones, twos, alone = parts[0:-1:2], parts[1::2], parts[2 * (len(parts) // 2) :]
        values = self.concat([*map(self.add, ones, twos, [-1.0] * len(ones)), *twos, *alone], 1)
        size, changed = values.size, len(ones) * parts[0].size
        rows = (activation("relu"), np.arange(changed)), (activation("identity"), np.arange(changed, size))
        found = self.add_node(ops.Apply(Neurons(size, rows)), (values.node,), values.shape)
        images = [self.pick(found, index) for index in np.split(positions(found.shape), len(parts), axis=1)]
        kept = images[len(ones) :]
        return [*map(self.add, images, kept[: len(ones)]), *kept[len(ones) :]]

    def _rotated(self, x: Tensor, pairs: Array, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The scaled sum and the size of the scaled difference of pairs, once for maximum and minimum.

        Sums become neurons too, with the activation identity: so what a bound sees is rotated, not stretched.
        """
        low, high = (self.pick(x, side.reshape(shape)) for side in pairs.T)
        if (low, high) not in self.sorted:
            total, gap = (self.scale(self.add(low, high, sign), _ROOT_HALF) for sign in (1.0, -1.0))
            self.sorted[low, high] = self.activate(total, "identity"), self.activate(gap, "abs")
        return self.sorted[low, high]

    def _round(self, x: Tensor, seen: Array, shape: tuple[int, ...]) -> tuple[Tensor, Array]:
        """One round of a tournament: the new values, and the windows in terms of them."""
        pairs, singles, result = win.paired(seen)
        kept = np.concatenate([pairs[:, 1], singles])
        if not len(pairs):
            return self.pick(x, kept), result
        last = not len(singles) and np.array_equal(result, win.positions((math.prod(shape), 1)))
        outer = shape if last else kept.shape  # an image again, so that a convolution that follows is seen as one
        inner = outer if not len(singles) else (len(pairs),)
        base = self.pick(x, kept.reshape(outer))  # one tensor, smaller than all that it is from
        one, two = (self.pick(x, side.reshape(inner)) for side in pairs.T)
        won = self.activate(self.add(one, two, -1.0), "relu")
        places = np.r_[np.arange(len(pairs)), np.full(len(singles), -1)].reshape(outer)
        return self.add(base, self.pick(won, places)), result

    def over_axes(self, x: Tensor, axes: Sequence[int], keep: bool, sign: float = 1.0) -> Tensor:
        """The maximum over some axes; the minimum with sign -1."""
        return self.maximum(x, *win.over_axes(x.shape, axes, keep), sign)

    def sort(self, x: Tensor, axis: int, descending: bool = False) -> Tensor:
        """The values along an axis of size two in order."""
        index = np.moveaxis(positions(x.shape), axis, -1)
        pairs = index.reshape(-1, index.shape[-1])
        if pairs.shape[1] != 2:
            raise Unsupported(f"it sorts {pairs.shape[1]} values at a time; only the sorting of pairs is read")
        ends = [self.maximum(x, pairs, (len(pairs),), sign) for sign in (-1.0, 1.0)]
        place = positions((2, len(pairs))).T.reshape(index.shape)
        return self.taken(ends, np.moveaxis(place[..., ::-1] if descending else place, -1, axis))

    def larger(self, x: Value, y: Value, sign: float = 1.0) -> Tensor:
        """The larger of two values, element by element; the smaller with sign -1."""
        x, y = self._number(x), self._number(y)
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):  # max(x, c) = c + relu(x - c)
            x, y = (x, y) if isinstance(x, Tensor) else (self.tensor(y), x)
            gap = self.scale(self.add(x, y, -1.0), sign)
            return self.add(self.scale(self.activate(gap, "relu"), sign), y)
        pair, shape = self._paired(x, y)
        size = math.prod(shape)
        joined = self.taken([Tensor(node, (size,)) for node in sorted(pair)], np.arange(2 * size))
        return self.maximum(joined, np.arange(2 * size).reshape(2, -1).T, shape, sign)

    def add_node(self, op: ops.Op, inputs: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        shape = tuple(int(s) for s in shape)
        self.nodes.append(Node(op, inputs, shape, self.source, self.kind))
        return Tensor(len(self.nodes) - 1, shape)


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Unsupported(f"shapes do not fit: {error}") from None


def each_axis(value: Any, rank: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) * rank if np.ndim(value) == 0 else tuple(value)
    if len(values) == 1:
        values = values * rank
    if len(values) != rank:
        raise Unsupported(f"it has {len(values)} sizes for {rank} axes")
    return tuple(int(v) for v in values)
