"""What PyTorch's functions and tensor methods mean, as verbs of the builder.

Handlers carry the parameter names and defaults of the function they stand for, so that arguments bind as they do
in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from lipcert.importers import windows as win
from lipcert.importers.builder import SELF_NORMALISING, SOFTMAX, Builder, Positions, Tensor, Unsupported
from lipcert.model.arrays import Array

Handler = Callable[..., Any]


class TorchBuilder(Builder):
    """A graph under construction from a module that computes in single precision or in double."""

    def __init__(self, shape: Sequence[int], single: bool) -> None:
        super().__init__(shape)
        self.unit = 2.0**-24 if single else 2.0**-53


def _refused(reason: str) -> Handler:
    """Handler of what has no translation."""

    def handler(b: Builder, input: Tensor, *_: Any, **__: Any) -> Tensor:
        raise Unsupported(reason)

    return handler


def _row(name: str, **parameters: Any) -> Handler:
    """Handler of an activation: parameters in the order of PyTorch's function, each with its default."""
    order = [key for key in parameters if key != "inplace"]

    def handler(b: Builder, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        strange = sorted(kwargs.keys() - parameters.keys())
        if strange:
            raise Unsupported(f"it is called in an unknown way: with {', '.join(strange)}")
        values = {**parameters, **dict(zip(order, args)), **kwargs}
        return b.activate(input, name, **{key: values[key] for key in order})

    return handler


def _softplus(b: Builder, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    # beyond βx = t PyTorch returns x: less than softplus by log(1 + exp(-t))/β, which must be lost in rounding t/β
    assert isinstance(b, TorchBuilder)
    half = b.unit * 2.0 ** np.floor(np.log2(threshold / beta)) if threshold > 0 and beta > 0 else 0.0
    if not np.exp(-threshold) <= half * beta:
        raise Unsupported(
            f"beyond its threshold of {threshold} it jumps away from softplus by {np.exp(-threshold):.2g}, which"
            " shows in the precision of the module; give threshold=40 (20 does in single precision)"
        )
    return b.activate(input, "softplus", beta=beta)


def _clamp(b: Builder, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    for limit in (min, max):
        if isinstance(limit, Tensor) or np.ndim(limit):
            raise Unsupported("its limits must be numbers")
    return b.clamp(input, min, max)


def _threshold(b: Builder, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if threshold != value:
        raise Unsupported(f"it jumps from {value} to {threshold} at {threshold}, so it has no Lipschitz constant")
    return b.activate(input, "threshold", threshold=float(threshold))


def _rrelu(
    b: Builder, input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    if training:
        raise Unsupported("it is random in training mode")
    return b.activate(input, "leaky_relu", negative_slope=(lower + upper) / 2)


def _prelu(b: Builder, input: Tensor, weight: Array) -> Tensor:
    if weight.size == 1:
        return b.activate(input, "leaky_relu", negative_slope=float(weight.reshape(-1)[0]))
    along = (-1, *(1 for _ in input.shape[2:]))
    return b.activate(input, "leaky_relu", negative_slope=np.reshape(weight, along))


ACTIVATIONS: Final[Mapping[str, Handler]] = {
    "relu": _row("relu", inplace=False),
    "leaky_relu": _row("leaky_relu", negative_slope=0.01, inplace=False),
    "prelu": _prelu,
    "rrelu": _rrelu,
    "relu6": _row("relu6", inplace=False),
    "hardtanh": _row("hardtanh", min_val=-1.0, max_val=1.0, inplace=False),
    "elu": _row("elu", alpha=1.0, inplace=False),
    "celu": _row("celu", alpha=1.0, inplace=False),
    "selu": _row("selu", inplace=False),
    **dict.fromkeys(("sigmoid", "expit"), _row("sigmoid")),
    "tanh": _row("tanh"),
    "softplus": _softplus,
    "softsign": _row("softsign"),
    "silu": _row("silu", inplace=False),
    "gelu": lambda b, input, approximate="none": b.activate(input, "gelu_tanh" if approximate == "tanh" else "gelu"),
    "mish": _row("mish", inplace=False),
    "hardswish": _row("hardswish", inplace=False),
    "hardsigmoid": lambda b, input, inplace=False: b.hard_sigmoid(input),
    **dict.fromkeys(("arctan", "atan"), _row("arctan")),
    "sin": _row("sin"),
    "cos": _row("cos"),
    "erf": lambda b, input: b.special(input, "erf"),
    "square": lambda b, input: b.power(input, 2),
    "tanhshrink": _row("tanhshrink"),
    "softshrink": _row("softshrink", lambd=0.5),
    "hardshrink": _refused("it jumps at its limits, so it has no Lipschitz constant; softshrink does not"),
    **dict.fromkeys(("threshold", "_threshold"), _threshold),  # the second is F.threshold's own name
    **dict.fromkeys(
        ("logsigmoid", "log_sigmoid"), lambda b, input: b.scale(b.activate(b.scale(input, -1.0), "softplus"), -1.0)
    ),
    **dict.fromkeys(("abs", "absolute"), lambda b, input: b.activate(input, "leaky_relu", negative_slope=-1.0)),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda b, input, min: _clamp(b, input, min=min),
    "clamp_max": lambda b, input, max: _clamp(b, input, max=max),
}


def _div(b: Builder, input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        raise Unsupported("division with rounding is a step function")
    return b.divide(input, other)


def _extreme(sign: float, b: Builder, input: Any, other: Any = None, **kwargs: Any) -> Tensor:
    if kwargs or other is None or isinstance(other, int):
        raise Unsupported("only the maximum of two tensors is known; for one over an axis use amax or a pool")
    return b.larger(input, other, sign)


def _over_axes(sign: float, b: Builder, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    axes = np.atleast_1d(np.asarray(dim, dtype=int)).tolist() or range(len(input.shape))
    seen, shape = win.over_axes(input.shape, axes, keepdim)
    return b.maximum(input, seen, shape, sign)


class Sorted(NamedTuple):
    """What torch.sort returns; the indices have no translation."""

    values: Tensor
    indices: Positions


def _sort(b: Builder, input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Sorted:
    return Sorted(b.sort(input, dim, descending), Positions())


ARITHMETIC: Final[Mapping[str, Handler]] = {
    "sort": _sort,
    "pow": lambda b, input, exponent: b.power(input, exponent),
    "reciprocal": lambda b, input: b.special(input, "reciprocal"),
    **dict.fromkeys(("add", "iadd"), lambda b, input, other, *, alpha=1.0: b.add(input, other, float(alpha))),
    **dict.fromkeys(
        ("sub", "subtract", "isub"), lambda b, input, other, *, alpha=1.0: b.add(input, other, -float(alpha))
    ),
    "rsub": lambda b, input, other, alpha=1.0: b.add(other, b.multiply(input, np.asarray(alpha)), -1.0),
    **dict.fromkeys(("mul", "multiply", "imul"), lambda b, input, other: b.multiply(input, other)),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv", "itruediv"), _div),
    **dict.fromkeys(("neg", "negative"), lambda b, input: b.scale(input, -1.0)),
    **dict.fromkeys(("matmul", "mm", "mv"), lambda b, input, other: b.matmul(input, other)),
    "addmm": lambda b, input, mat1, mat2: b.add(input, b.matmul(mat1, mat2)),
    **dict.fromkeys(("maximum", "max"), partial(_extreme, 1.0)),
    **dict.fromkeys(("minimum", "min"), partial(_extreme, -1.0)),
    "zeros_like": lambda b, input: b.constant(np.zeros(input.shape)),
    "ones_like": lambda b, input: b.constant(np.ones(input.shape)),
    "full_like": lambda b, input, fill_value: b.constant(np.full(input.shape, float(fill_value))),
    "amax": partial(_over_axes, 1.0),
    "amin": partial(_over_axes, -1.0),
}


def linear(b: Builder, input: Tensor, weight: Any, bias: Any = None) -> Any:
    if isinstance(weight, Tensor):
        raise Unsupported("its weight depends on the input")
    result = b.matmul(input, np.asarray(weight).T)
    return result if bias is None else b.add(result, bias)


def conv(
    b: Builder,
    input: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    mode: str = "zeros",
) -> Tensor:
    if isinstance(weight, Tensor) or isinstance(bias, Tensor):
        raise Unsupported("its weight depends on the input")
    rank = weight.ndim - 2
    stride, dilation = _each(stride, rank), _each(dilation, rank)
    pads: win.Pads
    if padding == "valid":
        pads = [(0, 0)] * rank
    elif padding == "same":
        spare = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads = [(s // 2, s - s // 2) for s in spare]
    else:
        pads = _both(padding, rank)
    if mode != "zeros":
        input = _pad(b, input, [side for pair in pads[::-1] for side in pair], mode)
        pads = [(0, 0)] * rank
    return b.conv(input, weight, bias, stride, pads, dilation, int(groups))


def conv_transpose(
    b: Builder,
    input: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    if isinstance(weight, Tensor) or isinstance(bias, Tensor):
        raise Unsupported("its weight depends on the input")
    rank = weight.ndim - 2
    stride, dilation, spare, pads = (_each(part, rank) for part in (stride, dilation, output_padding, padding))
    axes = range(rank)
    reach = [dilation[a] * (weight.shape[2 + a] - 1) + 1 for a in axes]
    sizes = [(input.shape[2 + a] - 1) * stride[a] - 2 * pads[a] + reach[a] + spare[a] for a in axes]
    around = [(pads[a], pads[a] - spare[a]) for a in axes]
    return b.conv_transpose(input, weight, bias, stride, around, dilation, sizes, int(groups))


def _interpolate(
    b: Builder,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    linear = mode in ("linear", "bilinear", "trilinear")
    if antialias or not (linear or mode in ("nearest", "nearest-exact")):
        raise Unsupported("of interpolations only nearest and linear are known, without antialias")
    before = input.shape[2:]
    if size is None:
        factors = tuple(scale_factor) if np.ndim(scale_factor) else (scale_factor,) * len(before)
    else:
        factors = tuple(after / n for after, n in zip(_each(size, len(before)), before, strict=True))
    return b.upsample(input, (1, 1, *factors), linear, bool(align_corners))


def batch_norm(
    b: Builder,
    input: Tensor,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        raise Unsupported("it normalises by the batch at hand; call eval(), and keep running statistics")
    gain, offset = 1.0 if weight is None else weight, 0.0 if bias is None else bias
    return b.batch_norm(input, running_mean, running_var, gain, offset, eps)


def _dropout(b: Builder, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if training and p > 0:
        raise Unsupported("it is random: pass training=self.training, and call eval()")
    return input


def _frame(rank: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], tuple[int, ...], win.Pads]:
    """Kernel, stride and padding of a pool; without a stride the windows lie side by side."""
    kernel = _each(kernel_size, rank)
    return kernel, kernel if stride is None or stride == () else _each(stride, rank), _both(padding, rank)


def _average_pool(
    rank: int,
    b: Builder,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    if divisor_override is not None:
        raise Unsupported("divisor_override is not known")
    frame = (*_frame(rank, kernel_size, stride, padding), (1,) * rank, ceil_mode)
    return b.average_pool(input, *frame, count_include_pad)


def _max_pool(
    rank: int,
    b: Builder,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    if return_indices:
        raise Unsupported("it also returns indices")
    frame = _frame(rank, kernel_size, stride, padding)
    return b.maximum(input, *win.pool_windows(input.shape, *frame, _each(dilation, rank), ceil_mode))


def _adaptive(
    rank: int, maximum: bool, b: Builder, input: Tensor, output_size: Any, return_indices: bool = False
) -> Tensor:
    if return_indices:
        raise Unsupported("it also returns indices")
    sizes = (output_size,) * rank if output_size is None or isinstance(output_size, int) else output_size
    result = [s if size is None else int(size) for size, s in zip(sizes, input.shape[-rank:], strict=True)]
    seen, shape = win.adaptive_windows(input.shape, result)
    return b.maximum(input, seen, shape) if maximum else b.average_windows(input, seen, None, shape)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) * rank if np.ndim(value) == 0 else tuple(value)
    if len(values) == 1 and rank > 1:
        values = values * rank
    if len(values) != rank:
        raise Unsupported(f"it has {len(values)} sizes for {rank} axes")
    return tuple(int(v) for v in values)


def _both(padding: Any, rank: int) -> win.Pads:
    """The same padding on both sides of each axis."""
    return [(p, p) for p in _each(padding, rank)]


LAYERS: Final[Mapping[str, Callable[..., Any]]] = {
    "linear": linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    **{f"avg_pool{d}d": partial(_average_pool, d) for d in (1, 2, 3)},
    **{f"max_pool{d}d": partial(_max_pool, d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": partial(_adaptive, d, False) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": partial(_adaptive, d, True) for d in (1, 2, 3)},
    "batch_norm": batch_norm,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
    **dict.fromkeys(("softmax", "log_softmax"), _refused(SOFTMAX)),
    **{f"conv_transpose{d}d": conv_transpose for d in (1, 2, 3)},
    **dict.fromkeys(("interpolate", "upsample"), _interpolate),
    **dict.fromkeys(
        ("layer_norm", "instance_norm", "group_norm", "rms_norm", "local_response_norm", "normalize"),
        _refused(SELF_NORMALISING),
    ),
}


def arranged(b: Builder, x: Tensor, call: Callable[[torch.Tensor], Any]) -> Any:
    """What a call of PyTorch that only moves elements makes of x: it is carried out on the elements' positions."""
    found = call(torch.arange(x.size, dtype=torch.float64).reshape(x.shape))
    if isinstance(found, torch.Tensor):
        return b.pick(x, found.numpy().astype(int))
    if isinstance(found, (tuple, list)) and all(isinstance(part, torch.Tensor) for part in found):
        return tuple(b.pick(x, part.numpy().astype(int)) for part in found)
    return found


ARRANGING: Final = frozenset(
    {
        *("contiguous", "clone", "detach", "reshape", "view", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze"),
        *("permute", "transpose", "swapaxes", "swapdims", "movedim", "t", "flip", "expand"),
        *(
            "getitem",
            "narrow",
            "select",
            "index_select",
            "split",
            "chunk",
            "unbind",
            "pixel_shuffle",
            "pixel_unshuffle",
        ),
        *("size", "dim", "ndimension", "numel", "nelement"),
    }
)
"""Functions and methods that only move elements, or tell their number."""

ATTRIBUTES: Final = ("shape", "ndim", "T", "mT", "dtype", "device")
"""Attributes of a tensor that a forward may read."""


def _cast(b: Builder, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A change of device or of type; that a run loses no precision by it is seen when the module runs."""
    for kind in (*args, *kwargs.values()):
        if isinstance(kind, torch.dtype) and kind not in (torch.float32, torch.float64):
            raise Unsupported(f"it rounds to numbers of type {kind}")
    return input


def _cat(b: Builder, tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Tensor:
    return b.concat(tensors, dim if axis is None else axis)


def _stack(b: Builder, tensors: Sequence[Any], dim: int = 0) -> Tensor:
    rank = len(tensors[0].shape) + 1
    axis = dim % rank
    return b.concat([b.view(b.tensor(t), lambda index: np.expand_dims(index, axis)) for t in tensors], axis)


def _mean(
    sum: bool, b: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, dtype: Any = None
) -> Tensor:
    _cast(b, input, dtype)
    chosen = dim if axis is None else axis
    axes = None if chosen is None or np.size(chosen) == 0 else [int(a) for a in np.atleast_1d(chosen)]
    return b.mean(input, axes, keepdim, sum)


def _pad(b: Builder, input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    flat = [int(p) for p in np.atleast_1d(pad)]
    if mode != "constant":
        padded: Tensor = arranged(b, input, lambda x: torch.nn.functional.pad(x, flat, mode))
        return padded
    pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
    return b.pad(input, pairs[::-1], 0.0 if value is None else float(value))


ARRANGE: Final[Mapping[str, Handler]] = {
    **dict.fromkeys(("type_as", "cpu", "float", "double", "to"), _cast),
    **dict.fromkeys(("view_as", "reshape_as"), lambda b, input, other: b.reshape(input, other.shape)),
    "expand_as": lambda b, input, other: b.spread(input, other.shape),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    "mean": partial(_mean, False),
    "sum": partial(_mean, True),
    "pad": _pad,
}

HANDLERS: Final[Mapping[str, Handler]] = {**ACTIVATIONS, **ARITHMETIC, **LAYERS, **ARRANGE}
"""By the name of the function or method; a trailing underscore (in place) does not matter."""
