"""What ONNX's operators mean, as verbs of the builder; both the older and the newer form of each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from lipcert.importers import windows as win
from lipcert.importers.builder import SELF_NORMALISING, SOFTMAX, Builder, Positions, Tensor, Unsupported, Value

_FAR = 2.0**20
"""Limits beyond it are not reached by a shift, which would cost digits."""


class Room:
    """How many numbers a model may ask for: some in any case, and so many times those that it stores.

    Kernels of convolutions are used at many places.
    """

    def __init__(self, stored: int = 0, always: int = 2**25, times: int = 4096) -> None:
        self.most = self.left = always + times * stored

    def take(self, *sizes: int) -> None:
        """Use up the product of the sizes; refuse, before anything is made, where there is not as much left."""
        count = math.prod(int(size) for size in sizes)
        self.left -= count
        if self.left < 0:
            raise Unsupported(
                f"it needs {count} numbers, far more than the model stores; it may have {self.most} in all"
            )


@dataclass(frozen=True, eq=False)
class Call:
    """One use of an operator: operands (None where left out), attributes, operator set, number of outputs.

    ``shape`` is that of its first result, ``dtype`` the type of the numbers, ``single`` whether they all are numbers of
    single precision.
    """

    operands: Sequence[Any]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    shape: tuple[int, ...]
    dtype: Any
    single: bool
    room: Room

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


def _refused(reason: str) -> Operator:
    """What has no translation."""

    def operator(b: Builder, call: Call) -> Tensor:
        raise Unsupported(reason)

    return operator


softmax: Final = _refused(SOFTMAX)


def _row(name: str, **parameters: str) -> Operator:
    """An activation; parameters are attributes of the operator."""
    return lambda b, call: b.activate(call.x, name, **{k: float(call.attributes[a]) for k, a in parameters.items()})


def _prelu(b: Builder, call: Call) -> Tensor:
    slope = np.asarray(call.constant(1, "slope"), dtype=float)
    return b.activate(call.x, "leaky_relu", negative_slope=slope.reshape(()) if slope.size == 1 else slope)


def _selu(b: Builder, call: Call) -> Tensor:
    alpha, gamma = (float(call.attributes[name]) for name in ("alpha", "gamma"))
    return b.scale(b.activate(call.x, "elu", alpha=alpha), gamma)


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
            result = verb(b, result, operand)
        return result

    return operator


def _matmul(b: Builder, call: Call) -> Value:
    return _product(b, call, *call.operands)


def _product(b: Builder, call: Call, left: Value, right: Value) -> Value:
    """A matrix that acts on each row of a tensor of several axes is repeated."""
    call.room.take(*call.shape, *(max(side.shape, default=1) for side in (left, right) if not isinstance(side, Tensor)))
    return b.matmul(left, right)


def _gemm(b: Builder, call: Call) -> Value:
    sides: list[Any] = []
    for operand, key in zip(call.operands[:2], ("transA", "transB")):
        turned = bool(call.attribute(key, 0))
        if isinstance(operand, Tensor):
            sides.append(b.view(operand, lambda index: index.T) if turned else operand)
        else:
            sides.append(np.asarray(operand).T if turned else np.asarray(operand))
    product = _product(b, call, *sides)
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
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    wide = [max(n + flat[a] + flat[a + rank], spans[a]) for a, n in enumerate(call.x.shape[2:])]
    call.room.take(8, *call.x.shape[:2], *wide)
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


def _conv(b: Builder, call: Call) -> Tensor:
    weight, bias = call.constant(1, "weight"), call.constant(2, "bias")
    stride, pads, dilation = _frame(call, weight.shape[2:])
    if list(call.attribute("kernel_shape", weight.shape[2:])) != list(weight.shape[2:]):
        raise Unsupported("its kernel_shape is not that of its kernel")
    call.room.take(*call.shape, *weight.shape[1:])
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
    call.room.take(*call.x.shape, *weight.shape[1:])
    return b.conv_transpose(call.x, weight, bias, stride, around, dilation, sizes, int(call.attribute("group", 1)))


def _resize(b: Builder, call: Call) -> Tensor:
    """Resize, and Upsample of older operator sets, by whole factors."""
    older, shape = call.opset < 11, call.x.shape
    scales, sizes = call.constant(1 if older else 2, "scales"), None if older else call.whole(3, "sizes")
    rule = "asymmetric" if older else call.attribute("coordinate_transformation_mode", "half_pixel")
    mode = call.attribute("mode", "nearest")
    near = "floor" if older else call.attribute("nearest_mode", "round_prefer_floor")
    if any(call.attribute(name, 0) for name in ("axes", "antialias", "exclude_outside")) or (
        sizes and call.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    ):
        raise Unsupported("axes, antialias, exclude_outside and keep_aspect_ratio_policy are not known")
    if (mode, rule, near if mode == "nearest" else "") not in _RESIZED:
        raise Unsupported(f"the mode {mode!r} with coordinates {rule!r} and {near!r} is not known")
    factors = [m / n for m, n in zip(sizes, shape, strict=True)] if sizes else [float(f) for f in np.ravel(scales)]
    return b.upsample(call.x, factors, mode == "linear", rule == "align_corners")


_RESIZED: Final = {
    ("nearest", "asymmetric", "floor"),
    *(("nearest", "half_pixel", f"round_prefer_{side}") for side in ("floor", "ceil")),
    *(("linear", rule, "") for rule in ("half_pixel", "pytorch_half_pixel", "align_corners")),
}
"""Mode, coordinates and rounding that exporters write; by whole factors, all nearest ones repeat each value."""


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


def _pool(call: Call) -> tuple[list[int], list[int], win.Pads, list[int], bool]:
    """Kernel, stride, padding and dilation of a pool, and whether the last window may be incomplete."""
    kernel, ceil = list(call.attribute("kernel_shape")), bool(call.attribute("ceil_mode", 0))
    stride, pads, dilation = _frame(call, kernel)
    call.room.take(*call.shape, *kernel)
    return kernel, stride, pads, dilation, ceil


def _average_pool(b: Builder, call: Call) -> Tensor:
    return b.average_pool(call.x, *_pool(call), bool(call.attribute("count_include_pad", 0)))


def _max_pool(b: Builder, call: Call) -> Tensor:
    if call.outputs > 1 or call.attribute("storage_order", 0):
        raise Unsupported("it also returns indices")
    return b.maximum(call.x, *win.pool_windows(call.x.shape, *_pool(call)))


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


def _pad(b: Builder, call: Call) -> Tensor:
    rank = len(call.x.shape)
    flat = call.whole(1, "pads") or []
    fill = call.constant(2, "value", 0.0)
    axes = call.axes(3, rank) or list(range(rank))
    pads = [(0, 0)] * rank
    for axis, low, high in zip(axes, flat[: len(axes)], flat[len(axes) :], strict=True):
        pads[axis] = (low, high)
    call.room.take(8, *(n + max(low, 0) + max(high, 0) for n, (low, high) in zip(call.x.shape, pads, strict=True)))
    return b.pad(call.x, pads, float(np.ravel(fill)[0]))


ARRANGING: Final = frozenset(
    {
        *("DepthToSpace", "Expand", "Flatten", "Gather", "Reshape", "Shape", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators that only move elements, or tell their number."""

OPERATORS: Final[Mapping[str, Operator]] = {
    "Abs": lambda b, call: b.activate(call.x, "leaky_relu", negative_slope=-1.0),
    "Add": _fold(lambda b, x, y: b.add(x, y)),
    "Atan": _row("arctan"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": _row("celu", alpha="alpha"),
    "Clip": _clip,
    "Concat": lambda b, call: b.concat(call.operands, int(call.attribute("axis"))),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Cos": _row("cos"),
    "Div": _fold(lambda b, x, y: b.divide(x, y)),
    "Dropout": _dropout,
    "Elu": _row("elu", alpha="alpha"),
    "Erf": lambda b, call: b.special(call.x, "erf"),
    "Gelu": lambda b, call: b.activate(call.x, "gelu_tanh" if call.attribute("approximate") == "tanh" else "gelu"),
    "Gemm": _gemm,
    "GlobalAveragePool": partial(_global, "mean"),
    "GlobalMaxPool": partial(_global, "max"),
    **dict.fromkeys(
        ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization", "LRN"),
        _refused(SELF_NORMALISING),
    ),
    "HardSigmoid": _row("hardsigmoid", alpha="alpha", beta="beta"),
    "HardSwish": _row("hardswish"),
    "Identity": lambda b, call: call.x,
    "LeakyRelu": _row("leaky_relu", negative_slope="alpha"),
    "LogSoftmax": softmax,
    "MatMul": _matmul,
    "Max": _fold(lambda b, x, y: b.larger(x, y)),
    "MaxPool": _max_pool,
    "Min": _fold(lambda b, x, y: b.larger(x, y, -1.0)),
    "Mish": _row("mish"),
    "Mul": _fold(lambda b, x, y: b.multiply(x, y)),
    "Neg": lambda b, call: b.scale(call.x, -1.0),
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": _pow,
    "Reciprocal": lambda b, call: b.special(call.x, "reciprocal"),
    "ReduceMax": partial(_reduce, "max"),
    "ReduceMean": partial(_reduce, "mean"),
    "ReduceMin": partial(_reduce, "min"),
    "ReduceSum": partial(_reduce, "sum"),
    "Relu": _row("relu"),
    "Resize": _resize,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _row("sigmoid"),
    "Sin": _row("sin"),
    "Softmax": softmax,
    "Softplus": _row("softplus"),
    "Softsign": _row("softsign"),
    "Sub": _fold(lambda b, x, y: b.add(x, y, -1.0)),
    "Sum": _fold(lambda b, x, y: b.add(x, y)),
    "Tanh": _row("tanh"),
    "TopK": _top,
    "Upsample": _resize,
}
