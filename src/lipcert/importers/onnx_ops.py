"""What ONNX's operators mean, as verbs of the builder; both the older and the newer form of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lipcert.importers import windows as win
from lipcert.importers.builder import SOFTMAX, Builder, Tensor, Unsupported, Value
from lipcert.typing import Array


@dataclass(frozen=True, eq=False)
class Call:
    """One use of an operator: operands (None where left out), attributes, operator set, number of outputs."""

    operands: Sequence[Any]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int = 1

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
        return None if value is None else [int(v) for v in np.ravel(value)]

    def axes(self, position: int, rank: int) -> list[int] | None:
        """Axes counted from the front."""
        axes = self.whole(position, "axes")
        return None if axes is None else [a % rank for a in axes]


Operator = Callable[[Builder, Call], Any]


def _row(name: str, **parameters: float) -> Operator:
    """An activation; parameters are attributes of the operator, with its defaults."""
    keys = {"negative_slope": "alpha"}

    def operator(b: Builder, call: Call) -> Tensor:
        values = {key: float(call.attribute(keys.get(key, key), d)) for key, d in parameters.items()}
        return b.activate(call.x, name, **values)

    return operator


def _prelu(b: Builder, call: Call) -> Tensor:
    slope = call.constant(1, "slope")
    return b.activate(
        call.x,
        "leaky_relu",
        negative_slope=np.asarray(slope, dtype=float).squeeze()[()]
        if np.size(slope) == 1
        else np.asarray(slope, dtype=float),
    )


def _selu(b: Builder, call: Call) -> Tensor:
    alpha, gamma = float(call.attribute("alpha", 1.6732632)), float(call.attribute("gamma", 1.0507010))
    if np.allclose((alpha, gamma), (1.6732632423543772, 1.0507009873554805), rtol=1e-6):
        return b.activate(call.x, "selu")
    return b.scale(b.activate(call.x, "elu", alpha=alpha), gamma)


def _swish(b: Builder, call: Call) -> Tensor:
    alpha = float(call.attribute("alpha", 1.0))
    return b.divide(b.activate(b.scale(call.x, alpha), "silu"), np.asarray(alpha))


def _gelu(b: Builder, call: Call) -> Tensor:
    return b.activate(call.x, "gelu_tanh" if call.attribute("approximate", "none") == "tanh" else "gelu")


def _clip(b: Builder, call: Call) -> Tensor:
    low, high = call.constant(1, "min"), call.constant(2, "max")
    return b.clamp(call.x, *(None if v is None or abs(float(v)) > 1e38 else float(v) for v in (low, high)))


def _fold(verb: Callable[[Builder, Any, Any], Value]) -> Operator:
    def operator(b: Builder, call: Call) -> Value:
        result = call.operands[0]
        for operand in call.operands[1:]:
            result = verb(b, result, operand)
        return result

    return operator


def _gemm(b: Builder, call: Call) -> Value:
    sides: list[Any] = []
    for operand, key in zip(call.operands[:2], ("transA", "transB")):
        turned = bool(call.attribute(key, 0))
        if isinstance(operand, Tensor):
            sides.append(b.view(operand, lambda index: index.T) if turned else operand)
        else:
            sides.append(np.asarray(operand).T if turned else np.asarray(operand))
    product = b.matmul(*sides)
    alpha, beta = float(call.attribute("alpha", 1.0)), float(call.attribute("beta", 1.0))
    product = product if alpha == 1.0 else b.multiply(product, np.asarray(alpha))
    offset = call.operand(2)
    if offset is None or beta == 0.0:
        return product
    return b.add(product, offset if beta == 1.0 else b.multiply(offset, np.asarray(beta)))


def _batch_norm(b: Builder, call: Call) -> Tensor:
    if call.attribute("training_mode", 0) or call.attribute("spatial", 1) != 1 or call.outputs > 1:
        raise Unsupported("it normalises by the batch at hand")
    gain, offset, mean, variance = (np.asarray(call.constant(k, "statistics"), dtype=float) for k in range(1, 5))
    return b.batch_norm(call.x, mean, variance, gain, offset, float(call.attribute("epsilon", 1e-5)))


def _frame(call: Call, kernel: Sequence[int]) -> tuple[list[int], win.Pads, list[int]]:
    """Stride, padding and dilation of a convolution or pool."""
    rank = len(kernel)
    stride = list(call.attribute("strides", [1] * rank))
    dilation = list(call.attribute("dilations", [1] * rank))
    auto = call.attribute("auto_pad", "NOTSET")
    if auto == "VALID":
        return stride, [(0, 0)] * rank, dilation
    if auto == "NOTSET":
        flat = list(call.attribute("pads", [0] * (2 * rank)))
        return stride, list(zip(flat[:rank], flat[rank:])), dilation
    pads = []
    for size, k, s, d in zip(call.x.shape[2:], kernel, stride, dilation, strict=True):
        spare = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
        pads.append((spare // 2, spare - spare // 2) if auto == "SAME_UPPER" else (spare - spare // 2, spare // 2))
    return stride, pads, dilation


def _conv(b: Builder, call: Call) -> Tensor:
    weight, bias = call.constant(1, "weight"), call.constant(2, "bias")
    stride, pads, dilation = _frame(call, weight.shape[2:])
    return b.conv(call.x, weight, bias, stride, pads, dilation, int(call.attribute("group", 1)))


def _average_pool(b: Builder, call: Call) -> Tensor:
    kernel = list(call.attribute("kernel_shape"))
    stride, pads, dilation = _frame(call, kernel)
    ceil, include = bool(call.attribute("ceil_mode", 0)), bool(call.attribute("count_include_pad", 0))
    if ceil and include:
        raise Unsupported("ceil_mode together with count_include_pad means different things to different runtimes")
    seen, shape = win.pool_windows(call.x.shape, kernel, stride, pads, dilation, ceil)
    counts = np.full(len(seen), float(np.prod(kernel))) if include else None
    return b.average_windows(call.x, seen, counts, shape)


def _max_pool(b: Builder, call: Call) -> Tensor:
    if call.outputs > 1 or call.attribute("storage_order", 0):
        raise Unsupported("it also returns indices")
    kernel = list(call.attribute("kernel_shape"))
    stride, pads, dilation = _frame(call, kernel)
    seen, shape = win.pool_windows(call.x.shape, kernel, stride, pads, dilation, bool(call.attribute("ceil_mode", 0)))
    return b.maximum(call.x, seen, shape)


def _reduce(kind: str) -> Operator:
    def operator(b: Builder, call: Call) -> Tensor:
        rank = len(call.x.shape)
        axes, keep = call.axes(1, rank), bool(call.attribute("keepdims", 1))
        if not axes and call.attribute("noop_with_empty_axes", 0):
            return call.x
        chosen = axes or list(range(rank))
        if kind in ("mean", "sum"):
            return b.mean(call.x, chosen, keep, kind == "sum")
        sign = 1.0 if kind == "max" else -1.0
        count = int(np.prod([call.x.shape[a] for a in chosen]))
        last = range(rank - len(chosen), rank)
        seen = np.moveaxis(win.positions(call.x.shape), chosen, last).reshape(-1, count)
        shape = [1 if a in chosen else s for a, s in enumerate(call.x.shape) if keep or a not in chosen]
        return b.scale(b.maximum(b.scale(call.x, sign), seen, shape), sign)

    return operator


def _global(kind: str) -> Operator:
    def operator(b: Builder, call: Call) -> Tensor:
        axes = list(range(2, len(call.x.shape)))
        return _reduce(kind)(b, Call([call.x], {"axes": axes, "keepdims": 1}, call.opset))

    return operator


def _flatten(b: Builder, call: Call) -> Tensor:
    axis = int(call.attribute("axis", 1))
    axis = axis + len(call.x.shape) if axis < 0 else axis
    return b.reshape(call.x, (int(np.prod(call.x.shape[:axis], dtype=int)), -1))


def _reshape(b: Builder, call: Call) -> Tensor:
    shape = call.whole(1, "shape") or []
    if not call.attribute("allowzero", 0):
        shape = [call.x.shape[a] if s == 0 else s for a, s in enumerate(shape)]
    return b.reshape(call.x, shape)


def _transpose(b: Builder, call: Call) -> Tensor:
    order = call.attribute("perm", list(range(len(call.x.shape)))[::-1])
    return b.view(call.x, lambda index: index.transpose(order))


def _squeeze(b: Builder, call: Call) -> Tensor:
    axes = call.axes(1, len(call.x.shape))
    return b.view(call.x, lambda index: np.squeeze(index, None if axes is None else tuple(axes)))


def _unsqueeze(b: Builder, call: Call) -> Tensor:
    axes = call.whole(1, "axes") or []
    return b.view(call.x, lambda index: np.expand_dims(index, tuple(axes)))


def _slice(b: Builder, call: Call) -> Tensor:
    starts, stops = call.whole(1, "starts") or [], call.whole(2, "ends") or []
    rank = len(call.x.shape)
    axes = [a % rank for a in call.whole(3, "axes", range(len(starts))) or []]
    steps = call.whole(4, "steps", [1] * len(starts)) or []
    cut = [slice(None)] * rank
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        before_first = step < 0 and stop < -call.x.shape[axis]
        cut[axis] = slice(start, None if before_first else stop, step)
    return b.view(call.x, lambda index: index[tuple(cut)])


def _gather(b: Builder, call: Call) -> Tensor:
    chosen = np.asarray(call.constant(1, "indices"), dtype=int)
    return b.view(call.x, lambda index: np.take(index, chosen, axis=int(call.attribute("axis", 0))))


def _pad(b: Builder, call: Call) -> Tensor:
    rank = len(call.x.shape)
    flat = call.whole(1, "pads") or []
    fill = call.constant(2, "value", 0.0)
    axes = call.axes(3, rank) or list(range(rank))
    pads = [(0, 0)] * rank
    for axis, low, high in zip(axes, flat[: len(axes)], flat[len(axes) :], strict=True):
        pads[axis] = (low, high)
    modes: Mapping[str, win.PadMode] = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    return b.pad(call.x, pads, modes[call.attribute("mode", "constant")], float(np.ravel(fill)[0]))


def _split(b: Builder, call: Call) -> Any:
    axis = int(call.attribute("axis", 0)) % len(call.x.shape)
    sizes = call.whole(1, "split")
    length = call.x.shape[axis]
    part = -(-length // call.outputs)
    cuts = np.arange(part, length, part) if sizes is None else np.cumsum(sizes)[:-1]
    return tuple(b.pick(call.x, p) for p in np.split(win.positions(call.x.shape), cuts, axis=axis))


def _expand(b: Builder, call: Call) -> Tensor:
    shape = call.whole(1, "shape") or []
    return b.spread(call.x, np.broadcast_shapes(call.x.shape, tuple(shape)))


def _dropout(b: Builder, call: Call) -> Any:
    mode = call.constant(2, "training_mode", False)
    if bool(np.ravel(mode)[0]):
        raise Unsupported("it is random in training mode")
    return (call.x,) * call.outputs


def _cast(b: Builder, call: Call) -> Tensor:
    if int(call.attribute("to", 1)) not in (1, 11):  # float, double
        raise Unsupported("it rounds to another type of number")
    return call.x


def _shape(b: Builder, call: Call) -> Array:
    whole = np.array(call.x.shape, dtype=np.int64)
    return whole[int(call.attribute("start", 0)) : call.attribute("end", None)]


def softmax(b: Builder, call: Call) -> Tensor:
    raise Unsupported(SOFTMAX)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Abs": lambda b, call: b.activate(call.x, "leaky_relu", negative_slope=-1.0),
    "Add": _fold(lambda b, x, y: b.add(x, y)),
    "Atan": _row("arctan"),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": _row("celu", alpha=1.0),
    "Clip": _clip,
    "Concat": lambda b, call: b.concat(call.operands, int(call.attribute("axis"))),
    "Conv": _conv,
    "Div": _fold(lambda b, x, y: b.divide(x, y)),
    "Dropout": _dropout,
    "Elu": _row("elu", alpha=1.0),
    "Erf": lambda b, call: b.special(call.x, "erf"),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "HardSigmoid": _row("hardsigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _row("hardswish"),
    "Identity": lambda b, call: call.x,
    "LeakyRelu": _row("leaky_relu", negative_slope=0.01),
    "LogSoftmax": softmax,
    "MatMul": _fold(lambda b, x, y: b.matmul(x, y)),
    "Max": _fold(lambda b, x, y: b.larger(x, y)),
    "MaxPool": _max_pool,
    "Min": _fold(lambda b, x, y: b.larger(x, y, -1.0)),
    "Mish": _row("mish"),
    "Mul": _fold(lambda b, x, y: b.multiply(x, y)),
    "Neg": lambda b, call: b.scale(call.x, -1.0),
    "PRelu": _prelu,
    "Pad": _pad,
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("mean"),
    "ReduceMin": _reduce("min"),
    "ReduceSum": _reduce("sum"),
    "Relu": _row("relu"),
    "Reshape": _reshape,
    "Selu": _selu,
    "Shape": _shape,
    "Sigmoid": _row("sigmoid"),
    "Sin": _row("sin"),
    "Slice": _slice,
    "Softmax": softmax,
    "Softplus": _row("softplus"),
    "Softsign": _row("softsign"),
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _fold(lambda b, x, y: b.add(x, y, -1.0)),
    "Sum": _fold(lambda b, x, y: b.add(x, y)),
    "Swish": _swish,
    "Tanh": _row("tanh"),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
