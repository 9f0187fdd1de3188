"""What ONNX's operators mean, as verbs of the builder; both the older and the newer form of each.

A handler gets the operands that may depend on the input, then the others and the attributes by the names that ONNX
gives them: what older operator sets have as an attribute newer ones have as an operand of the same name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from lipcert.importers import signals
from lipcert.importers.builder import Builder, Frame, Positions, Tensor, Unsupported, Value
from lipcert.importers.untrusted import few
from lipcert.model.arrays import Array

Operator = Callable[..., Any]

_FAR = 2.0**20
"""Limits beyond it are not reached by a shift, which would cost digits."""


class OnnxBuilder(Builder):
    """A graph under construction.

    Of the operator that is being read: how many results it gives, the type of its numbers, whether all of them are
    numbers of single precision, and its operator set.
    """

    outputs: int = 1
    dtype: Any = np.float64
    single: bool = False
    opset: int = 13


def _axis(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise Unsupported(f"it names axis {axis} of {rank}")
    return axis % rank


def _whole(value: Any) -> list[int]:
    """Whole numbers, where they are meant."""
    if value is not None and np.size(value) and np.asarray(value).dtype.kind not in "iub":
        raise Unsupported("one of its operands must be whole numbers")
    return [] if value is None else [int(v) for v in np.ravel(value)]


def _softmax(log: bool, b: OnnxBuilder, x: Tensor, axis: int = -1) -> Tensor:
    if b.opset < 13 and _axis(axis, len(x.shape)) != len(x.shape) - 1:
        raise Unsupported("before operator set 13 it takes all axes from its axis on together")
    return signals.softmax(b, x, _axis(axis, len(x.shape)), log)


def _norm(
    center: bool, b: OnnxBuilder, x: Tensor, B: Any = None, axis: int = -1, epsilon: float = 1e-5, **given: Any
) -> Tensor:
    if b.outputs > 1:
        raise Unsupported("it also returns statistics")
    scale = given.get("Scale", given.get("scale"))
    return signals.layer_norm(b, x, len(x.shape) - _axis(axis, len(x.shape)), scale, B, epsilon, center)


def _group_norm(b: Builder, x: Tensor, scale: Any, bias: Any, num_groups: int, epsilon: float, **_: Any) -> Tensor:
    if np.size(scale) != x.shape[1]:
        raise Unsupported("it has a scale for each group; from operator set 21 on there is one for each channel")
    return signals.group_norm(b, x, num_groups, scale, bias, epsilon)


def _row(name: str, **names: str) -> Operator:
    return lambda b, x, **given: b.activate(x, name, **{names[key]: float(value) for key, value in given.items()})


def _prelu(b: Builder, x: Tensor, slope: Array) -> Tensor:
    return b.activate(x, "leaky_relu", negative_slope=np.reshape(slope, ()) if slope.size == 1 else slope.astype(float))


def _clip(b: OnnxBuilder, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """A limit that no finite number of the type exceeds is none; every other one is kept."""
    most = float(np.finfo(b.dtype).max)
    low, high = (None if v is None else float(np.asarray(v).reshape(())) for v in (min, max))
    low = None if low is None or low <= -most else low
    high = None if high is None or high >= most else high
    limits = [limit for limit in (low, high) if limit is not None]
    if not all(map(math.isfinite, limits)):
        raise Unsupported(f"its limits are {low} and {high}")
    if len(limits) == 1 and abs(limits[0]) > _FAR:  # the other limit is beyond every number
        beyond = sys.float_info.max
        return b.clamp(x, -beyond if low is None else low, beyond if high is None else high)
    return b.clamp(x, low, high)


def _gemm(
    b: Builder, left: Any, right: Any, offset: Any = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    sides = [
        side if not turned else b.view(side, np.transpose) if isinstance(side, Tensor) else np.transpose(side)
        for side, turned in ((left, transA), (right, transB))
    ]
    product: Value = b.matmul(*sides)
    product = product if alpha == 1.0 else b.multiply(product, np.asarray(alpha))
    if offset is None or beta == 0.0:
        return product
    return b.add(product, offset if beta == 1.0 else b.multiply(offset, np.asarray(beta)))


def _batch_norm(
    b: OnnxBuilder, x: Tensor, epsilon: float, scale: Array, B: Array, momentum: float, **given: Any
) -> Tensor:
    if given.pop("training_mode", 0) or given.pop("spatial", 1) != 1 or b.outputs > 1:
        raise Unsupported("it normalises by the batch at hand")
    mean, variance = given.values()  # whose names differ between operator sets
    channels = (x.shape[1],) if len(x.shape) > 1 else (1,)
    if any(part.shape != channels for part in (mean, variance, scale, B)):
        raise Unsupported(f"its statistics do not fit {channels[0]} channels")
    return b.batch_norm(x, mean, variance, scale, B, epsilon)


def _frame(x: Tensor, kernel: Sequence[int], auto_pad: str, given: Mapping[str, Any]) -> Frame:
    """The windows of a convolution or pool; where it says nothing they move by one and nothing is padded."""
    rank = len(kernel)
    names = (("strides", [1] * rank), ("dilations", [1] * rank), ("pads", [0] * (2 * rank)))
    stride, dilation, flat = (given.get(name) or default for name, default in names)
    if len(x.shape) != rank + 2 or not len(stride) == len(dilation) == rank or len(flat) != 2 * rank:
        raise Unsupported(f"its window of {rank} axes does not fit an operand of shape {x.shape}")
    if min(flat, default=0) < 0:
        raise Unsupported("its padding is negative")
    around = list(zip(flat[:rank], flat[rank:], strict=True))
    if auto_pad == "VALID":
        around = [(0, 0)] * rank
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(x.shape[2:], kernel, stride, dilation, strict=True)
        spare = [max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0) for n, k, s, d in axes]
        less = [(count // 2, count - count // 2) for count in spare]
        around = less if auto_pad == "SAME_UPPER" else [pair[::-1] for pair in less]
    elif auto_pad != "NOTSET":
        raise Unsupported(f"its padding {auto_pad!r} is not known")
    return Frame(kernel, stride, around, dilation, bool(given.get("ceil_mode", 0)))


def _conv(
    turned: bool, b: Builder, x: Tensor, W: Array, group: int, auto_pad: str, B: Any = None, **given: Any
) -> Tensor:
    kernel = W.shape[2:]
    if tuple(given.pop("kernel_shape", kernel)) != kernel:
        raise Unsupported("its kernel_shape is not that of its kernel")
    frame, more = _frame(x, kernel, auto_pad, given), given.get("output_padding") or [0] * len(kernel)
    if not turned:
        return b.conv(x, W, B, frame, group)
    if auto_pad not in ("NOTSET", "VALID") or given.get("output_shape"):
        raise Unsupported("its padding follows from a wanted size; give pads and output_padding")
    if len(more) != len(kernel) or min(more) < 0:
        raise Unsupported("its output_padding does not fit its kernel")
    return b.conv_transpose(x, W, B, frame, more, group)


def _pool(average: bool, b: OnnxBuilder, x: Tensor, kernel_shape: Any, auto_pad: str, **given: Any) -> Tensor:
    frame = _frame(x, kernel_shape, auto_pad, given)
    if average:
        return b.average_pool(x, frame, bool(given.get("count_include_pad", 0)))
    if b.outputs > 1 or given.get("storage_order"):
        raise Unsupported("it also returns indices")
    return b.max_pool(x, frame)


def _resize(b: Builder, x: Tensor, mode: str, scales: Any = None, sizes: Any = None, **given: Any) -> Tensor:
    """Resize, and Upsample of older operator sets, to the nearest of whole factors."""
    rule, near = given.get("coordinate_transformation_mode", "asymmetric"), given.get("nearest_mode", "floor")
    if mode != "nearest" or given.get("axes") or (rule, near) not in _RESIZED:
        raise Unsupported(f"the mode {mode!r} with coordinates {rule!r} and {near!r} is not known, only nearest is")
    if sizes is not None and given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("keep_aspect_ratio_policy is not known")
    wanted = [m / n for m, n in zip(_whole(sizes), x.shape)] or np.ravel(scales).tolist()
    if len(wanted) != len(x.shape) or any(factor < 1 or factor != int(factor) for factor in wanted):
        raise Unsupported(f"factors {wanted}: only enlarging by whole factors is read")
    for axis, factor in enumerate(map(int, wanted)):
        x = b.view(x, lambda index, axis=axis, factor=factor: np.repeat(index, factor, axis))
    return x


_RESIZED: Final = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
"""Coordinates and rounding that exporters write; by whole factors, all of them repeat each value."""


def _shrink(b: Builder, x: Tensor, lambd: float, bias: float) -> Tensor:
    if lambd != bias:
        raise Unsupported("it jumps at its limits unless bias is lambd, so it has no Lipschitz constant")
    return b.activate(x, "softshrink", lambd=lambd)


def _reduce(
    kind: str,
    b: Builder,
    x: Tensor,
    axes: Any = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
    over: tuple[int, int | None] = (0, None),
) -> Tensor:
    every = list(range(len(x.shape)))
    chosen = [_axis(axis, len(every)) for axis in _whole(axes)]
    if not chosen and noop_with_empty_axes:
        return x
    chosen = chosen or every[slice(*over)]
    if kind in ("mean", "sum"):
        return b.mean(x, chosen, bool(keepdims), kind == "sum")
    return b.over_axes(x, chosen, bool(keepdims), 1.0 if kind == "max" else -1.0)


def _top(b: Builder, x: Tensor, axis: int, K: Any = None, k: Any = None, largest: int = 1, sorted: int = 1) -> Any:
    """TopK of all values along an axis: they are sorted. The indices have no translation."""
    axis = _axis(axis, len(x.shape))
    (count,) = _whole(k if K is None else K) or [0]
    if count != x.shape[axis] or not sorted:
        raise Unsupported(f"it takes {count} of {x.shape[axis]} values; only sorting all of them is known")
    return b.sort(x, axis, bool(largest)), Positions()


def _dropout(b: OnnxBuilder, x: Tensor, ratio: Any = 0.5, training_mode: Any = False, seed: int = 0) -> Any:
    if np.any(training_mode):
        raise Unsupported("it is random in training mode")
    return (x, np.ones(x.shape, dtype=bool))[: b.outputs]  # the mask keeps everything


def _cast(b: OnnxBuilder, x: Tensor, to: int, **_: Any) -> Tensor:
    single, double = 1, 11
    if to not in (single, double):
        raise Unsupported("it rounds to another type of number")
    if to == single and not b.single:
        raise Unsupported("it rounds from double to single precision, in steps; keep to one precision")
    return x


def _pad(b: Builder, x: Tensor, mode: str, pads: Any, axes: Any = None, **value: Any) -> Tensor:
    """Padding with a constant; with anything else it only moves elements."""
    rank, flat = len(x.shape), _whole(pads)
    chosen = [_axis(axis, rank) for axis in _whole(axes)] or list(range(rank))
    around = [(0, 0)] * rank
    for axis, low, high in zip(chosen, flat[: len(chosen)], flat[len(chosen) :], strict=True):
        around[axis] = (low, high)
    return b.pad(x, around, float(np.ravel(next(iter(value.values()), 0.0))[0]))


def _recurrent(b: OnnxBuilder, X: Tensor, W: Array, R: Array, direction: str, hidden_size: int, **given: Any) -> Any:
    """LSTM, GRU and RNN, step by step."""
    (steps, batch, _), ways = X.shape, len(W)
    strange = [name for name in ("P", "clip", "input_forget", "layout", "activation_alpha") if given.get(name)]
    names = [name.decode().lower() for name in given.get("activations", ())]
    names = names or ["tanh" if W.shape[1] == hidden_size else "sigmoid", "tanh", "tanh"] * ways
    if strange or not {*names} <= {"sigmoid", "tanh", "relu"} or np.any(given.get("sequence_lens", steps) != steps):
        more = few(strange or names, between=" and ")
        raise Unsupported(f"it has {more}; such layers are read with sigmoid, tanh and relu, over all steps, no more")
    b.room.take(steps, 2**12)  # each step makes some twenty nodes
    nothing = np.zeros((ways, batch, hidden_size))
    biases = np.split(given.get("B", np.zeros((ways, 2 * W.shape[1]))), 2, axis=1)
    start, late, ends = [given.get(f"initial_{k}", nothing) for k in "hc"], bool(given.get("linear_before_reset")), []
    for way, called in enumerate(np.split(np.array(names), ways)):
        turn = -1 if way or direction == "reverse" else 1
        x = b.view(X, lambda i, turn=turn: i[::turn])
        weights, first = ([part[way] for part in parts] for parts in ((W, R, *biases), start))
        found, c = signals.recurrent(b, x, weights, first, called.tolist(), late)
        ends.append((found[::turn], [found[-1], c]))
    rows = [b.concat([each[step] for each, _ in ends], 0) for step in range(steps)]
    y = b.view(b.concat(rows, 0), lambda i: i.reshape(steps, ways, batch, hidden_size))
    last = [b.view(b.concat([state[k] for _, state in ends], 0), lambda i: i.reshape(nothing.shape)) for k in (0, 1)]
    return (y, *last)[: b.outputs]


ARRANGING: Final = frozenset(
    {
        *("DepthToSpace", "Expand", "Flatten", "Gather", "Reshape", "Shape", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators that only move elements, or tell their number."""

_JUMPS = "it jumps; write choices with Relu, Clip, Abs, Max or LeakyRelu"
MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Round", "Sign", "Floor", "Ceil", "Greater", "Less", "Equal", "Where", "ThresholdedRelu"), _JUMPS),
    **dict.fromkeys(
        ("LpNormalization", "LRN"), "it divides by a norm that may be zero; add a small number to the norm"
    ),
}
"""What people can do about operators that they bring most often of those that are not read."""

_FOLDED: Final[Mapping[str, Callable[[Builder, Any, Any], Value]]] = {
    "Add": lambda b, x, y: b.add(x, y),
    "Div": lambda b, x, y: b.divide(x, y),
    "Max": lambda b, x, y: b.larger(x, y),
    "Min": lambda b, x, y: b.larger(x, y, -1.0),
    "Mul": lambda b, x, y: b.multiply(x, y),
    "Sub": lambda b, x, y: b.add(x, y, -1.0),
    "Sum": lambda b, x, y: b.add(x, y),
}
SEVERAL: Final[Mapping[str, Operator]] = {
    **{name: partial(lambda verb, b, *operands: reduce(partial(verb, b), operands), v) for name, v in _FOLDED.items()},
    "Concat": lambda b, *parts, axis: b.concat(parts, axis),
    "Gemm": _gemm,
    "MatMul": lambda b, x, y: b.matmul(x, y),
}
"""Operators all of whose operands may depend on the input; the others' first one must."""

_ROWS = "Cos Erf Exp HardSwish Log Mish Relu Sigmoid Sin Softplus Softsign Sqrt Tanh"

OPERATORS: Final[Mapping[str, Operator]] = {
    **SEVERAL,
    **{name: _row(name.lower()) for name in _ROWS.split()},
    "Abs": lambda b, x: b.activate(x, "leaky_relu", negative_slope=-1.0),
    "Atan": _row("arctan"),
    "AveragePool": partial(_pool, True),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": _row("celu", alpha="alpha"),
    "Clip": _clip,
    "Conv": partial(_conv, False),
    "ConvTranspose": partial(_conv, True),
    "Dropout": _dropout,
    "Elu": _row("elu", alpha="alpha"),
    "Gelu": lambda b, x, approximate: b.activate(x, "gelu_tanh" if approximate == "tanh" else "gelu"),
    **{f"Global{k}Pool": partial(_reduce, r, over=(2, None)) for k, r in (("Average", "mean"), ("Max", "max"))},
    "GroupNormalization": _group_norm,
    "HardSigmoid": _row("hardsigmoid", alpha="alpha", beta="beta"),
    "Identity": lambda b, x: x,
    "InstanceNormalization": lambda b, x, scale, B, epsilon: signals.group_norm(b, x, x.shape[1], scale, B, epsilon),
    "LayerNormalization": partial(_norm, True),
    "LeakyRelu": _row("leaky_relu", alpha="negative_slope"),
    "LogSoftmax": partial(_softmax, True),
    "MaxPool": partial(_pool, False),
    "Neg": lambda b, x: b.scale(x, -1.0),
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": lambda b, x, Y: b.power(x, Y.reshape(()) if Y.size == 1 else Y),
    "RMSNormalization": partial(_norm, False),
    "Reciprocal": lambda b, x: b.divide(1.0, x),
    **{f"Reduce{kind.title()}": partial(_reduce, kind) for kind in ("max", "mean", "min", "sum")},
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Selu": lambda b, x, alpha, gamma: b.scale(b.activate(x, "elu", alpha=alpha), gamma),
    "Shrink": _shrink,
    "Softmax": partial(_softmax, False),
    "TopK": _top,
}
