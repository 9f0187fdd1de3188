"""What ONNX's operators mean, as verbs of the builder; both the older and the newer form of each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from lipcert.importers import onnx_arrange as arrange
from lipcert.importers import resize
from lipcert.importers import windows as win
from lipcert.importers.builder import SELF_NORMALISING, SOFTMAX, Builder, Positions, Tensor, Unsupported, Value
from lipcert.importers.conditions import choose, exceeds
from lipcert.importers.onnx_call import Call, Operator, axis_of
from lipcert.model.arrays import Array

_FAR = 2.0**20
"""Limits beyond it are not reached by a shift, which would cost digits."""


def _row(name: str, **parameters: str) -> Operator:
    """An activation; parameters are attributes of the operator."""
    return lambda b, call: b.activate(call.x, name, **{k: float(call.attributes[a]) for k, a in parameters.items()})


def _prelu(b: Builder, call: Call) -> Tensor:
    slope = np.asarray(call.constant(1, "slope"), dtype=float)
    return b.activate(call.x, "leaky_relu", negative_slope=slope.reshape(()) if slope.size == 1 else slope)


def _selu(b: Builder, call: Call) -> Tensor:
    alpha, gamma = (float(call.attributes[name]) for name in ("alpha", "gamma"))
    return b.scale(b.activate(call.x, "elu", alpha=alpha), gamma)


def _swish(b: Builder, call: Call) -> Tensor:
    alpha = float(call.attributes["alpha"])
    if alpha == 0.0:  # x·sigmoid(0)
        return b.scale(call.x, 0.5)
    return b.divide(b.activate(b.scale(call.x, alpha), "silu"), np.asarray(alpha))


def _gelu(b: Builder, call: Call) -> Tensor:
    return b.activate(call.x, "gelu_tanh" if call.attribute("approximate", "none") == "tanh" else "gelu")


def _clip(b: Builder, call: Call) -> Tensor:
    """A limit that no finite number of the type exceeds is none; every other one is kept."""
    most = float(np.finfo(call.dtype).max)
    given = [call.constant(1, "min"), call.constant(2, "max")]
    low, high = (None if v is None else float(np.asarray(v).reshape(())) for v in given)
    low = None if low is None or low <= -most else low
    high = None if high is None or high >= most else high
    limits = [limit for limit in (low, high) if limit is not None]
    if not all(map(math.isfinite, limits)):
        raise Unsupported(f"its limits are {low} and {high}")
    if len(limits) == 1 and abs(limits[0]) > _FAR:  # the other limit is beyond every number
        beyond = sys.float_info.max
        return b.clamp(call.x, -beyond if low is None else low, beyond if high is None else high)
    return b.clamp(call.x, low, high)


def _fold(verb: Callable[[Builder, Any, Any], Value]) -> Operator:
    def operator(b: Builder, call: Call) -> Value:
        result = call.operands[0]
        for operand in call.operands[1:]:
            call.room.tensor(*np.broadcast_shapes(result.shape, operand.shape))
            result = verb(b, result, operand)
        return result

    return operator


def _matmul(b: Builder, call: Call) -> Value:
    _room_for_product(call, call.operands)
    return b.matmul(*call.operands)


def _room_for_product(call: Call, operands: Sequence[Any]) -> None:
    """A matrix that acts on each row of a tensor of several axes is repeated."""
    left, right = operands[:2]
    if isinstance(left, Tensor) != isinstance(right, Tensor):
        tensor, matrix = (left, right) if isinstance(left, Tensor) else (right, left)
        call.room.take(max(tensor.size // max(min(matrix.shape, default=1), 1), 1), matrix.size)


def _gemm(b: Builder, call: Call) -> Value:
    sides: list[Any] = []
    for operand, key in zip(call.operands[:2], ("transA", "transB")):
        turned = bool(call.attribute(key, 0))
        if isinstance(operand, Tensor):
            sides.append(b.view(operand, lambda index: index.T) if turned else operand)
        else:
            sides.append(np.asarray(operand).T if turned else np.asarray(operand))
    _room_for_product(call, sides)
    product = b.matmul(*sides)
    alpha, beta = (float(call.attributes[name]) for name in ("alpha", "beta"))
    product = product if alpha == 1.0 else b.multiply(product, np.asarray(alpha))
    offset = call.operand(2)
    if offset is None or beta == 0.0:
        return product
    return b.add(product, offset if beta == 1.0 else b.multiply(offset, np.asarray(beta)))


def _batch_norm(b: Builder, call: Call) -> Tensor:
    if call.attribute("training_mode", 0) or call.attribute("spatial", 1) != 1 or call.outputs > 1:
        raise Unsupported("it normalises by the batch at hand")
    gain, offset, mean, variance = (np.asarray(call.constant(k, "statistics"), dtype=float) for k in range(1, 5))
    channels = (call.x.shape[1],) if len(call.x.shape) > 1 else (1,)
    if any(part.shape != channels for part in (gain, offset, mean, variance)):
        raise Unsupported(f"its statistics do not fit {channels[0]} channels")
    return b.batch_norm(call.x, mean, variance, gain, offset, float(call.attributes["epsilon"]))


def _frame(call: Call, kernel: Sequence[int]) -> tuple[list[int], win.Pads, list[int]]:
    """Stride, padding and dilation of a convolution or pool."""
    rank = len(kernel)
    stride = list(call.attribute("strides", [1] * rank))
    dilation = list(call.attribute("dilations", [1] * rank))
    flat = list(call.attribute("pads", [0] * (2 * rank)))
    auto = call.attribute("auto_pad", "NOTSET")
    if len(call.x.shape) != rank + 2 or not len(stride) == len(dilation) == rank or len(flat) != 2 * rank:
        raise Unsupported(f"its window of {rank} axes does not fit an operand of shape {call.x.shape}")
    if min([*kernel, *stride, *dilation], default=1) < 1 or min(flat, default=0) < 0:
        raise Unsupported("its window, stride, dilation or padding is not positive")
    call.room.tensor(*call.x.shape[:2], *(n + flat[a] + flat[a + rank] for a, n in enumerate(call.x.shape[2:])))
    call.room.tensor(*call.x.shape[:2], *(d * (k - 1) + 1 for k, d in zip(kernel, dilation)))
    if auto == "VALID":
        return stride, [(0, 0)] * rank, dilation
    if auto == "NOTSET":
        return stride, list(zip(flat[:rank], flat[rank:])), dilation
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"its padding {auto!r} is not known")
    pads = []
    for size, k, s, d in zip(call.x.shape[2:], kernel, stride, dilation, strict=True):
        spare = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
        pads.append((spare // 2, spare - spare // 2) if auto == "SAME_UPPER" else (spare - spare // 2, spare // 2))
    return stride, pads, dilation


def _places(call: Call, kernel: Sequence[int], stride: Any, pads: win.Pads, dilation: Any, ceil: bool = False) -> int:
    """How many places the window takes."""
    sizes = call.x.shape[2:]
    counts = [win.outputs(n, k, s, p, d, ceil) for n, k, s, p, d in zip(sizes, kernel, stride, pads, dilation)]
    return math.prod(counts)


def _conv(b: Builder, call: Call) -> Tensor:
    weight, bias = call.constant(1, "weight"), call.constant(2, "bias")
    stride, pads, dilation = _frame(call, weight.shape[2:])
    if list(call.attribute("kernel_shape", weight.shape[2:])) != list(weight.shape[2:]):
        raise Unsupported("its kernel_shape is not that of its kernel")
    call.room.take(_places(call, weight.shape[2:], stride, pads, dilation), call.x.shape[0], weight.size)
    return b.conv(call.x, weight, bias, stride, pads, dilation, int(call.attribute("group", 1)))


def _conv_transpose(b: Builder, call: Call) -> Tensor:
    weight, bias = call.constant(1, "weight"), call.constant(2, "bias")
    if call.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or call.attribute("output_shape", None):
        raise Unsupported("its padding follows from a wanted size; give pads and output_padding")
    kernel = weight.shape[2:]
    rank = len(kernel)
    stride, pads, dilation = _frame(call, kernel)
    spare = list(call.attribute("output_padding", [0] * rank))
    if list(call.attribute("kernel_shape", kernel)) != list(kernel) or len(spare) != rank or min(spare) < 0:
        raise Unsupported("its kernel_shape or output_padding does not fit its kernel")
    sizes, around = [], []
    for n, k, s, (low, high), d, more in zip(call.x.shape[2:], kernel, stride, pads, dilation, spare, strict=True):
        sizes.append((n - 1) * s - low - high + d * (k - 1) + 1 + more)
        around.append((low, high - more))
    call.room.tensor(call.x.shape[0], weight.shape[1], int(call.attribute("group", 1)), *(max(m, 1) for m in sizes))
    call.room.take(math.prod(call.x.shape[2:]), call.x.shape[0], weight.size)
    return b.conv_transpose(call.x, weight, bias, stride, around, dilation, sizes, int(call.attribute("group", 1)))


def _resize(b: Builder, call: Call) -> Tensor:
    """Resize, and Upsample of older operator sets."""
    older = call.opset < 11
    scales, sizes = (
        (call.constant(1, "scales"), None) if older else (call.constant(2, "scales"), call.whole(3, "sizes"))
    )
    rule: Any = "asymmetric" if older else call.attribute("coordinate_transformation_mode", "half_pixel")
    mode, rank = call.attribute("mode", "nearest"), len(call.x.shape)
    chosen = [] if older else list(call.attribute("axes", []) or [])
    if chosen or call.attribute("antialias", 0) or call.attribute("exclude_outside", 0):
        raise Unsupported("axes, antialias and exclude_outside are not known")
    if rule not in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners") or mode not in (
        "nearest",
        "linear",
    ):
        raise Unsupported(f"the mode {mode!r} with coordinates {rule!r} is not known")
    if sizes:
        if call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Unsupported("keeping the aspect ratio is not known; give the sizes")
        factors = [Fraction(m, n) for m, n in zip(sizes, call.x.shape, strict=True)]
    else:
        factors = [Fraction(float(f)) for f in np.ravel(scales)]
        sizes = [math.floor(n * f) for n, f in zip(call.x.shape, factors, strict=True)]
    if len(factors) != rank or min(sizes) < 1:
        raise Unsupported(f"its sizes {sizes} do not fit an operand of shape {call.x.shape}")
    call.room.tensor(*sizes)
    call.room.take(2, *(max(n, m) for n, m in zip(call.x.shape, sizes)))
    axes = [resize.Axis(n, m, f) for n, m, f in zip(call.x.shape, sizes, factors)]
    if mode == "linear":
        return resize.linear(b, call.x, axes, rule)
    nearest: Any = "floor" if older else call.attribute("nearest_mode", "round_prefer_floor")
    return resize.nearest(b, call.x, axes, rule, nearest)


def _depth_to_space(b: Builder, call: Call) -> Tensor:
    return resize.shuffle(b, call.x, int(call.attribute("blocksize")), call.attribute("mode", "DCR") == "CRD")


def _thresholded(b: Builder, call: Call) -> Tensor:
    if float(call.attributes["alpha"]) != 0.0:
        raise Unsupported("it jumps at its limit, so it has no Lipschitz constant")
    return b.activate(call.x, "relu")


def _shrink(b: Builder, call: Call) -> Tensor:
    limit, bias = (float(call.attributes[name]) for name in ("lambd", "bias"))
    if limit != bias:
        raise Unsupported("it jumps at its limits unless bias is lambd, so it has no Lipschitz constant")
    return b.activate(call.x, "softshrink", lambd=limit)


def _pow(b: Builder, call: Call) -> Tensor:
    exponent = np.asarray(call.constant(1, "exponent"), dtype=float)
    if exponent.size != 1:
        raise Unsupported("its exponents differ")
    return b.power(call.x, exponent.reshape(()))


def _self_normalising(b: Builder, call: Call) -> Tensor:
    raise Unsupported(SELF_NORMALISING)


def _pool(call: Call) -> tuple[Array, tuple[int, ...]]:
    """What each window of a pool sees, and the shape of the result."""
    kernel, ceil = list(call.attribute("kernel_shape")), bool(call.attribute("ceil_mode", 0))
    stride, pads, dilation = _frame(call, kernel)
    call.room.take(*call.x.shape[:2], _places(call, kernel, stride, pads, dilation, ceil), *kernel)
    return win.pool_windows(call.x.shape, kernel, stride, pads, dilation, ceil)


def _average_pool(b: Builder, call: Call) -> Tensor:
    include = bool(call.attribute("count_include_pad", 0))
    if include and call.attribute("ceil_mode", 0):
        raise Unsupported("ceil_mode together with count_include_pad means different things to different runtimes")
    seen, shape = _pool(call)
    return b.average_windows(call.x, seen, np.full(len(seen), float(seen.shape[1])) if include else None, shape)


def _max_pool(b: Builder, call: Call) -> Tensor:
    if call.outputs > 1 or call.attribute("storage_order", 0):
        raise Unsupported("it also returns indices")
    return b.maximum(call.x, *_pool(call))


def _reduce(kind: str, b: Builder, call: Call) -> Tensor:
    rank = len(call.x.shape)
    axes, keep = call.axes(1, rank), bool(call.attribute("keepdims", 1))
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return call.x
    chosen = axes or list(range(rank))
    if kind in ("mean", "sum"):
        return b.mean(call.x, chosen, keep, kind == "sum")
    return b.maximum(call.x, *win.over_axes(call.x.shape, chosen, keep), 1.0 if kind == "max" else -1.0)


def _global(kind: str, b: Builder, call: Call) -> Tensor:
    axes = list(range(2, len(call.x.shape)))
    return _reduce(kind, b, replace(call, operands=[call.x], attributes={"axes": axes, "keepdims": 1}))


def _top(b: Builder, call: Call) -> Any:
    """TopK of all values along an axis: they are sorted. The indices have no translation."""
    axis = axis_of(int(call.attribute("axis", -1)), len(call.x.shape))
    (count,) = call.whole(1, "k") or [0]
    if count != call.x.shape[axis] or not call.attribute("sorted", 1):
        raise Unsupported(f"it takes {count} of {call.x.shape[axis]} values; only sorting all of them is known")
    call.room.take(call.x.size, 8 * max(count, 1).bit_length() ** 2)
    return b.sort(call.x, axis, bool(call.attribute("largest", 1))), Positions()


def _dropout(b: Builder, call: Call) -> Any:
    if np.any(call.constant(2, "training_mode", False)):
        raise Unsupported("it is random in training mode")
    return (call.x, np.ones(call.x.shape, dtype=bool))[: call.outputs]  # the mask keeps everything


def _cast(b: Builder, call: Call) -> Tensor:
    single, double = 1, 11
    to = int(call.attributes["to"])
    if to not in (single, double):
        raise Unsupported("it rounds to another type of number")
    if to == single and not call.single:
        raise Unsupported("it rounds from double to single precision, in steps; keep to one precision")
    return call.x


def softmax(b: Builder, call: Call) -> Tensor:
    raise Unsupported(SOFTMAX)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Abs": lambda b, call: b.activate(call.x, "leaky_relu", negative_slope=-1.0),
    "Add": _fold(lambda b, x, y: b.add(x, y)),
    "Atan": _row("arctan"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": _row("celu", alpha="alpha"),
    "Clip": _clip,
    "Concat": arrange.concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Cos": _row("cos"),
    "DepthToSpace": _depth_to_space,
    "Div": _fold(lambda b, x, y: b.divide(x, y)),
    "Dropout": _dropout,
    "Elu": _row("elu", alpha="alpha"),
    "Erf": lambda b, call: b.special(call.x, "erf"),
    "Exp": lambda b, call: b.special(call.x, "exp"),
    "Expand": arrange.expand,
    "Flatten": arrange.flatten,
    "Gather": arrange.gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": partial(_global, "mean"),
    "GlobalMaxPool": partial(_global, "max"),
    **dict.fromkeys(
        ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization", "LRN"),
        _self_normalising,
    ),
    **dict.fromkeys(("Greater", "GreaterOrEqual"), lambda b, call: exceeds(b, *call.operands)),
    "HardSigmoid": _row("hardsigmoid", alpha="alpha", beta="beta"),
    "HardSwish": _row("hardswish"),
    "Identity": lambda b, call: call.x,
    "LeakyRelu": _row("leaky_relu", negative_slope="alpha"),
    **dict.fromkeys(("Less", "LessOrEqual"), lambda b, call: exceeds(b, *call.operands[::-1])),
    "Log": lambda b, call: b.special(call.x, "log"),
    "LogSoftmax": softmax,
    "MatMul": _matmul,
    "Max": _fold(lambda b, x, y: b.larger(x, y)),
    "MaxPool": _max_pool,
    "Min": _fold(lambda b, x, y: b.larger(x, y, -1.0)),
    "Mish": _row("mish"),
    "Mul": _fold(lambda b, x, y: b.multiply(x, y)),
    "Neg": lambda b, call: b.scale(call.x, -1.0),
    "PRelu": _prelu,
    "Pad": arrange.pad,
    "Pow": _pow,
    "Reciprocal": lambda b, call: b.special(call.x, "reciprocal"),
    "ReduceMax": partial(_reduce, "max"),
    "ReduceMean": partial(_reduce, "mean"),
    "ReduceMin": partial(_reduce, "min"),
    "ReduceSum": partial(_reduce, "sum"),
    "Relu": _row("relu"),
    "Reshape": arrange.reshape,
    "Resize": _resize,
    "Selu": _selu,
    "Shape": arrange.shape,
    "Shrink": _shrink,
    "Sigmoid": _row("sigmoid"),
    "Sin": _row("sin"),
    "Slice": arrange.cut,
    "Softmax": softmax,
    "Softplus": _row("softplus"),
    "Softsign": _row("softsign"),
    "SpaceToDepth": lambda b, call: resize.unshuffle(b, call.x, int(call.attribute("blocksize")), crd=False),
    "Split": arrange.split,
    "Squeeze": arrange.squeeze,
    "Sub": _fold(lambda b, x, y: b.add(x, y, -1.0)),
    "Sum": _fold(lambda b, x, y: b.add(x, y)),
    "Swish": _swish,
    "Tanh": _row("tanh"),
    "ThresholdedRelu": _thresholded,
    "TopK": _top,
    "Transpose": arrange.transpose,
    "Unsqueeze": arrange.unsqueeze,
    "Upsample": _resize,
    "Where": lambda b, call: choose(b, *call.operands),
}
