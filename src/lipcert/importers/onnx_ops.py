"""What ONNX's operators mean, as verbs of the builder; both the older and the newer form of each.

A handler gets the operands that may depend on the input, then the others and the attributes by the names that ONNX
gives them: what older operator sets have as an attribute newer ones have as an operand of the same name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from lipcert.importers import signals
from lipcert.importers.builder import Builder, Frame, Positions, Tensor, Unsupported, Value
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


def _refused(reason: str) -> Operator:
    def operator(*_: Any, **__: Any) -> Tensor:
        raise Unsupported(reason)

    return operator


def _softmax(log: bool, b: OnnxBuilder, x: Tensor, axis: int = -1) -> Tensor:
    if b.opset < 13 and _axis(axis, len(x.shape)) != len(x.shape) - 1:
        raise Unsupported("before operator set 13 it takes all axes from its axis on together")
    return signals.softmax(b, x, _axis(axis, len(x.shape)), log)


def _layer_norm(
    b: OnnxBuilder, x: Tensor, Scale: Any, B: Any = None, axis: int = -1, epsilon: float = 1e-5, **_: Any
) -> Tensor:
    if b.outputs > 1:
        raise Unsupported("it also returns statistics")
    return signals.layer_norm(b, x, len(x.shape) - _axis(axis, len(x.shape)), Scale, B, epsilon)


def _rms_norm(b: OnnxBuilder, x: Tensor, scale: Any, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> Tensor:
    return signals.layer_norm(b, x, len(x.shape) - _axis(axis, len(x.shape)), scale, None, epsilon, False)


def _group_norm(b: Builder, x: Tensor, scale: Any, bias: Any, num_groups: int, epsilon: float, **_: Any) -> Tensor:
    if np.size(scale) != x.shape[1]:
        raise Unsupported("it has a scale for each group; from operator set 21 on there is one for each channel")
    return signals.group_norm(b, x, num_groups, scale, bias, epsilon)


def _refused_norm(b: Builder, x: Tensor, **_: Any) -> Tensor:
    raise Unsupported("it divides by a norm that may be zero; write it with a small number added")


def _row(name: str, **names: str) -> Operator:
    return lambda b, x, **given: b.activate(x, name, **{names[key]: float(value) for key, value in given.items()})


def _fold(verb: Callable[[Builder, Any, Any], Value]) -> Operator:
    """An operator of any number of operands, which are taken in turn."""

    def operator(b: Builder, result: Any, *others: Any) -> Value:
        for operand in others:
            result = verb(b, result, operand)
        return result

    return operator


def _prelu(b: Builder, x: Tensor, slope: Array) -> Tensor:
    slope = np.asarray(slope, dtype=float)
    return b.activate(x, "leaky_relu", negative_slope=slope.reshape(()) if slope.size == 1 else slope)


def _selu(b: Builder, x: Tensor, alpha: float, gamma: float) -> Tensor:
    return b.scale(b.activate(x, "elu", alpha=alpha), gamma)


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
    b: Builder, x: Tensor, W: Array, group: int, auto_pad: str, B: Any = None, kernel_shape: Any = None, **given: Any
) -> Tensor:
    if kernel_shape and tuple(kernel_shape) != W.shape[2:]:
        raise Unsupported("its kernel_shape is not that of its kernel")
    return b.conv(x, W, B, _frame(x, W.shape[2:], auto_pad, given), group)


def _conv_transpose(
    b: Builder, x: Tensor, W: Array, group: int, auto_pad: str, B: Any = None, kernel_shape: Any = None, **given: Any
) -> Tensor:
    kernel = W.shape[2:]
    if auto_pad not in ("NOTSET", "VALID") or given.get("output_shape"):
        raise Unsupported("its padding follows from a wanted size; give pads and output_padding")
    more = given.get("output_padding") or [0] * len(kernel)
    if (kernel_shape and tuple(kernel_shape) != kernel) or len(more) != len(kernel) or min(more) < 0:
        raise Unsupported("its kernel_shape or output_padding does not fit its kernel")
    return b.conv_transpose(x, W, B, _frame(x, kernel, auto_pad, given), more, group)


def _average_pool(
    b: Builder, x: Tensor, kernel_shape: Any, auto_pad: str, count_include_pad: int = 0, **given: Any
) -> Tensor:
    return b.average_pool(x, _frame(x, kernel_shape, auto_pad, given), bool(count_include_pad))


def _max_pool(
    b: OnnxBuilder, x: Tensor, kernel_shape: Any, auto_pad: str, storage_order: int = 0, **given: Any
) -> Tensor:
    if b.outputs > 1 or storage_order:
        raise Unsupported("it also returns indices")
    return b.max_pool(x, _frame(x, kernel_shape, auto_pad, given))


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


def _pow(b: Builder, x: Tensor, Y: Array) -> Tensor:
    if Y.size != 1:
        raise Unsupported("its exponents differ")
    return b.power(x, Y.reshape(()))


def _reduce(
    kind: str, b: Builder, x: Tensor, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    rank = len(x.shape)
    chosen = [_axis(axis, rank) for axis in _whole(axes)]
    if not chosen and noop_with_empty_axes:
        return x
    chosen = chosen or list(range(rank))
    if kind in ("mean", "sum"):
        return b.mean(x, chosen, bool(keepdims), kind == "sum")
    return b.over_axes(x, chosen, bool(keepdims), 1.0 if kind == "max" else -1.0)


def _global(kind: str, b: Builder, x: Tensor) -> Tensor:
    return _reduce(kind, b, x, list(range(2, len(x.shape))))


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
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "load the PyTorch module, whose recurrent layers are read"),
}
"""What people can do about operators that they bring most often of those that are not read."""

SEVERAL: Final[Mapping[str, Operator]] = {
    "Add": _fold(lambda b, x, y: b.add(x, y)),
    "Concat": lambda b, *parts, axis: b.concat(parts, axis),
    "Div": _fold(lambda b, x, y: b.divide(x, y)),
    "Gemm": _gemm,
    "MatMul": lambda b, x, y: b.matmul(x, y),
    "Max": _fold(lambda b, x, y: b.larger(x, y)),
    "Min": _fold(lambda b, x, y: b.larger(x, y, -1.0)),
    "Mul": _fold(lambda b, x, y: b.multiply(x, y)),
    "Sub": _fold(lambda b, x, y: b.add(x, y, -1.0)),
    "Sum": _fold(lambda b, x, y: b.add(x, y)),
}
"""Operators all of whose operands may depend on the input; the others' first one must."""

OPERATORS: Final[Mapping[str, Operator]] = {
    **SEVERAL,
    "Abs": lambda b, x: b.activate(x, "leaky_relu", negative_slope=-1.0),
    "Atan": _row("arctan"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": _row("celu", alpha="alpha"),
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Cos": _row("cos"),
    "Dropout": _dropout,
    "Elu": _row("elu", alpha="alpha"),
    "Erf": _row("erf"),
    "Gelu": lambda b, x, approximate: b.activate(x, "gelu_tanh" if approximate == "tanh" else "gelu"),
    "GlobalAveragePool": partial(_global, "mean"),
    "GlobalMaxPool": partial(_global, "max"),
    "Exp": _row("exp"),
    "GroupNormalization": _group_norm,
    "InstanceNormalization": lambda b, x, scale, B, epsilon: signals.group_norm(b, x, x.shape[1], scale, B, epsilon),
    "LayerNormalization": _layer_norm,
    "Log": _row("log"),
    **dict.fromkeys(("LpNormalization", "LRN"), _refused_norm),
    "RMSNormalization": _rms_norm,
    "Sqrt": _row("sqrt"),
    "HardSigmoid": _row("hardsigmoid", alpha="alpha", beta="beta"),
    "HardSwish": _row("hardswish"),
    "Identity": lambda b, x: x,
    "LeakyRelu": _row("leaky_relu", alpha="negative_slope"),
    "LogSoftmax": partial(_softmax, True),
    "MaxPool": _max_pool,
    "Mish": _row("mish"),
    "Neg": lambda b, x: b.scale(x, -1.0),
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": _pow,
    "Reciprocal": lambda b, x: b.divide(1.0, x),
    **{f"Reduce{kind.title()}": partial(_reduce, kind) for kind in ("max", "mean", "min", "sum")},
    "Relu": _row("relu"),
    "Resize": _resize,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _row("sigmoid"),
    "Sin": _row("sin"),
    "Softmax": partial(_softmax, False),
    "Softplus": _row("softplus"),
    "Softsign": _row("softsign"),
    "Tanh": _row("tanh"),
    "TopK": _top,
    "Upsample": _resize,
}
