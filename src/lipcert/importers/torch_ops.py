"""What the operations of an exported PyTorch graph (ATen) mean, as verbs of the builder.

A handler gets the first operand of an operation, then its other arguments by the names that ATen gives them. Operands
that depend on the input are tensors of the builder, all others numbers or arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

from lipcert.errors import LipcertError
from lipcert.importers import graph as ops
from lipcert.importers import windows as win
from lipcert.importers.builder import SELF_NORMALISING, SOFTMAX, Builder, Positions, Tensor, Unsupported, common_shape
from lipcert.model.arrays import Array

Handler = Callable[..., Any]

LARGEST_MATRIX = 2**25
"""Entries of a matrix that is found by applying an operation to one basis vector after the other."""

_INDICES = ("index", "indices", "repeats")
"""Arguments that say which elements are taken; all other tensors hold elements."""

_JUMPS = "it jumps where its operand crosses a limit; write choices with relu, clamp, abs, maximum or leaky_relu"
_PART = "load the part of the model behind it, or the part before it"
_UNKNOWN = f"unknown operation; {_PART}"


class TorchBuilder(Builder):
    """A graph under construction; ``unit`` is the unit roundoff of the operation that is being read."""

    unit = 2.0**-53


def name_of(target: Any) -> str:
    """The name of an operation of ATen, without its overload."""
    schema = getattr(target, "_schema", None)
    return str(target) if schema is None else str(schema.name).removeprefix("aten::")


def translate(b: TorchBuilder, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of one operation, some operand of which depends on the input."""
    name = name_of(target)
    try:
        if name in ARRANGING:
            return arranged(b, target, args, kwargs)
        if name in SHAPES:
            return target(*tree_map(_zeros, list(args)), **kwargs)
        handler = HANDLERS.get(name)
        if handler is None:
            raise Unsupported(MISSING.get(name, _UNKNOWN))
        (_, first), *others = bound(target, args, kwargs)
        return handler(b, _plain(first), **{key: _plain(value) for key, value in others if value is not None})
    except (Unsupported, LipcertError):  # says itself what is wrong
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise Unsupported(f"it is called in an unknown way: {error}") from None


def bound(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The arguments of an operation by name, with defaults."""
    arguments = enumerate(target._schema.arguments)
    return [(a.name, args[k] if k < len(args) else kwargs.get(a.name, a.default_value)) for k, a in arguments]


def array(value: torch.Tensor) -> Array:
    """A tensor's numbers, in double precision (whole numbers and truth values stay what they are)."""
    numbers = value.detach().cpu()
    return numbers.to(torch.float64).numpy().copy() if numbers.is_floating_point() else numbers.numpy().copy()


def _plain(value: Any) -> Any:
    return tree_map(lambda leaf: array(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def _zeros(leaf: Any) -> Any:
    return torch.zeros(leaf.shape, dtype=torch.float64) if isinstance(leaf, Tensor) else leaf


# operations that move elements, and maps that are linear ---------------------------------------------------------


def arranged(b: Builder, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operation that only moves elements makes of its operands: PyTorch carries it out on their positions."""
    operands: list[Tensor] = []

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, (Tensor, torch.Tensor)):
            return leaf
        operand = leaf if isinstance(leaf, Tensor) else b.constant(array(leaf))
        start = sum(each.size for each in operands)
        operands.append(operand)
        return torch.arange(start, start + operand.size, dtype=torch.float64).reshape(operand.shape)

    values = {}
    for name, value in bound(target, args, kwargs):
        leaves = tree_flatten(value)[0]
        if name in _INDICES and any(isinstance(leaf, Tensor) for leaf in leaves):
            raise Unsupported("which elements it takes depends on their values; a network takes the same ones always")
        if any(isinstance(leaf, torch.dtype) for leaf in leaves):
            raise Unsupported("it reinterprets the bits of numbers")
        values[name] = value if name in _INDICES else tree_map(place, value)
    if values.get("accumulate"):
        raise Unsupported("it adds up elements; use index_add or a linear layer")
    found = target(**values)
    return tree_map(lambda part: _taken(b, operands, part.numpy().astype(int)), found)


def _taken(b: Builder, operands: Sequence[Tensor], index: Array) -> Tensor:
    """The elements at some positions of the operands, counted through."""
    starts = np.cumsum([0, *(operand.size for operand in operands)])
    for start, end, operand in zip(starts, starts[1:], operands):
        if ((start <= index) & (index < end)).all():
            return b.pick(operand, index - start)
    joined = b.concat([b.reshape(operand, (operand.size,)) for operand in operands], 0)
    return b.pick(joined, index)


def _chosen(b: Builder, condition: Any, x: Any, other: Any) -> Tensor:
    """X where a constant condition holds, else the other."""
    if isinstance(condition, Tensor):
        raise Unsupported(_JUMPS)
    left, right = (v if isinstance(v, Tensor) else b.constant(v) for v in (x, other))
    shape = common_shape(np.shape(condition), left.shape, right.shape)
    one, two = (np.broadcast_to(win.positions(side.shape), shape) for side in (left, right))
    return _taken(b, [left, right], np.where(condition, one, two + left.size))


def linear_map(b: Builder, x: Tensor, call: Callable[[torch.Tensor], torch.Tensor]) -> Tensor:
    """What a linear operation makes of x: its matrix is found by applying it to one basis vector after the other."""
    shape = tuple(call(torch.zeros(x.shape, dtype=torch.float64)).shape)
    if x.size * int(np.prod(shape)) > LARGEST_MATRIX:
        raise Unsupported(f"its matrix has more than {LARGEST_MATRIX} entries; write it with linear or conv layers")
    basis = torch.eye(x.size, dtype=torch.float64).reshape(x.size, *x.shape)
    columns = torch.stack([call(one).reshape(-1) for one in basis], dim=1)
    return b.affine(x, columns.numpy(), 0.0, shape)


def _matmul(b: Builder, x: Any, other: Any) -> Tensor:
    """A product with a constant of any number of axes."""
    tensor, constant = (x, other) if isinstance(x, Tensor) else (other, x)
    if isinstance(constant, Tensor) or constant.ndim == 2:
        return b.matmul(x, other)
    if constant.ndim == 3 and len(constant) == 1 and len(tensor.shape) >= 3:
        return b.matmul(x, other[0]) if tensor is x else b.matmul(x[0], other)
    fixed = torch.from_numpy(constant.astype(float))
    return linear_map(b, tensor, lambda z: torch.matmul(z, fixed) if tensor is x else torch.matmul(fixed, z))


def _addmm(b: Builder, x: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Tensor:
    return b.add(b.multiply(b.tensor(x), np.asarray(beta)), b.scale(_matmul(b, mat1, mat2), alpha))


# functions of one number -----------------------------------------------------------------------------------------


def _refused(reason: str) -> Handler:
    """Handler of what has no translation."""

    def handler(*_: Any, **__: Any) -> Tensor:
        raise Unsupported(reason)

    return handler


def _with_positions(handler: Handler) -> Handler:
    """Handler of an operation that also returns which elements were chosen, or statistics; nothing may use them."""
    return lambda b, x, **given: (handler(b, x, **given), Positions())


def _row(name: str) -> Handler:
    """Handler of an activation whose parameters have the names of the table."""
    return lambda b, x, **given: b.activate(x, name, **given)


def _elu(b: Builder, x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    if (scale, input_scale) != (1, 1):
        raise Unsupported("only an ELU without scales is known")
    return b.activate(x, "elu", alpha=alpha)


def _hardtanh(b: Builder, x: Tensor, min_val: float, max_val: float) -> Tensor:
    if (min_val, max_val) == (0, 6):
        return b.activate(x, "relu6")
    return b.activate(x, "hardtanh", min_val=min_val, max_val=max_val)


def _softplus(b: Builder, x: Tensor, beta: float, threshold: float) -> Tensor:
    # beyond βx = t PyTorch returns x: less than softplus by log(1 + exp(-t))/β, which must be lost in rounding t/β
    assert isinstance(b, TorchBuilder)
    half = b.unit * 2.0 ** np.floor(np.log2(threshold / beta)) if threshold > 0 and beta > 0 else 0.0
    if not np.exp(-threshold) <= half * beta:
        raise Unsupported(
            f"beyond its threshold of {threshold} it jumps away from softplus by {np.exp(-threshold):.2g}, which"
            " shows in the precision of the module; give threshold=40 (20 does in single precision)"
        )
    return b.activate(x, "softplus", beta=beta)


def _clamp(b: Builder, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    for limit in (min, max):
        if isinstance(limit, Tensor) or np.ndim(limit):
            raise Unsupported("its limits must be numbers")
    return b.clamp(x, min, max)


def _threshold(b: Builder, x: Tensor, threshold: float, value: float) -> Tensor:
    if threshold != value:
        raise Unsupported(f"it jumps from {value} to {threshold} at {threshold}, so it has no Lipschitz constant")
    return b.activate(x, "threshold", threshold=float(threshold))


def _rrelu(b: Builder, x: Tensor, lower: float, upper: float, training: bool) -> Tensor:
    if training:
        raise Unsupported("it is random in training mode; pass training=self.training, and call eval()")
    return b.activate(x, "leaky_relu", negative_slope=(lower + upper) / 2)


def _prelu(b: Builder, x: Tensor, weight: Array) -> Tensor:
    if isinstance(weight, Tensor):
        raise Unsupported("its slope depends on the input")
    if weight.size == 1:
        return b.activate(x, "leaky_relu", negative_slope=float(weight.reshape(-1)[0]))
    along = weight.shape if weight.ndim > 1 else (-1, *(1 for _ in x.shape[2:]))
    return b.activate(x, "leaky_relu", negative_slope=np.reshape(weight, along))


def _dropout(b: Builder, x: Tensor, p: float, train: bool = True) -> Tensor:
    if train and p > 0:
        raise Unsupported("it is random: pass training=self.training, and call eval()")
    return x


ACTIVATIONS: Final[Mapping[str, Handler]] = {
    "relu": _row("relu"),
    "leaky_relu": _row("leaky_relu"),
    **dict.fromkeys(("prelu", "_prelu_kernel"), _prelu),
    "rrelu": _rrelu,
    "relu6": _row("relu6"),
    "hardtanh": _hardtanh,
    "elu": _elu,
    "celu": _row("celu"),
    "selu": _row("selu"),
    **dict.fromkeys(("sigmoid", "special_expit"), _row("sigmoid")),
    "tanh": _row("tanh"),
    "softplus": _softplus,
    "silu": _row("silu"),
    "gelu": lambda b, x, approximate: b.activate(x, "gelu_tanh" if approximate == "tanh" else "gelu"),
    "mish": _row("mish"),
    "hardswish": _row("hardswish"),
    "hardsigmoid": lambda b, x: b.hard_sigmoid(x),
    **dict.fromkeys(("arctan", "atan"), _row("arctan")),
    "sin": _row("sin"),
    "cos": _row("cos"),
    **dict.fromkeys(("erf", "special_erf"), lambda b, x: b.special(x, "erf")),
    "square": lambda b, x: b.power(x, 2),
    "softshrink": _row("softshrink"),
    "hardshrink": _refused("it jumps at its limits, so it has no Lipschitz constant; softshrink does not"),
    "threshold": _threshold,
    "log_sigmoid": lambda b, x: b.scale(b.activate(b.scale(x, -1.0), "softplus"), -1.0),
    **dict.fromkeys(("abs", "absolute"), lambda b, x: b.activate(x, "leaky_relu", negative_slope=-1.0)),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda b, x, min: _clamp(b, x, min=min),
    "clamp_max": lambda b, x, max: _clamp(b, x, max=max),
    **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"), _dropout),
}
"""Functions of each element by itself."""


# arithmetic ------------------------------------------------------------------------------------------------------


def _sub(b: Builder, x: Any, other: Any, alpha: Any) -> Tensor:
    if alpha == 1 and isinstance(x, Tensor) and isinstance(other, Tensor):
        made = b.nodes[other.node]
        bend = made.op.neurons.describe() if isinstance(made.op, ops.Apply) else ""
        if bend == "tanh" and made.inputs == (x.node,) and other.shape == x.shape:
            return b.activate(x, "tanhshrink")
    return b.add(x, other, -float(alpha))


def _div(b: Builder, x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        raise Unsupported("division with rounding is a step function")
    return b.divide(x, other)


def _extreme(sign: float, b: Builder, x: Any, other: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    """Max and min: of two tensors, over an axis (with the positions, which nothing may use), or of all elements."""
    if other is not None:
        return b.larger(x, other, sign)
    if dim is None:
        return _over_axes(sign, b, x)
    return _over_axes(sign, b, x, dim, keepdim), Positions()


def _over_axes(sign: float, b: Builder, x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    axes = np.atleast_1d(np.asarray(dim, dtype=int)).tolist() or range(len(x.shape))
    seen, shape = win.over_axes(x.shape, axes, keepdim)
    return b.maximum(x, seen, shape, sign)


def _mean(total: bool, b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    axes = None if dim is None or np.size(dim) == 0 else [int(a) for a in np.atleast_1d(dim)]
    return b.mean(x, axes, keepdim, total)


ARITHMETIC: Final[Mapping[str, Handler]] = {
    "sort": _with_positions(lambda b, x, dim, descending, stable=False: b.sort(x, dim, descending)),
    "pow": lambda b, x, exponent: b.power(x, exponent),
    "reciprocal": lambda b, x: b.special(x, "reciprocal"),
    "add": lambda b, x, other, alpha: b.add(x, other, float(alpha)),
    **dict.fromkeys(("sub", "subtract"), _sub),
    "rsub": lambda b, x, other, alpha: b.add(other, b.multiply(x, np.asarray(alpha)), -1.0),
    **dict.fromkeys(("mul", "multiply"), lambda b, x, other: b.multiply(x, other)),
    **dict.fromkeys(("div", "divide", "true_divide"), _div),
    **dict.fromkeys(("neg", "negative"), lambda b, x: b.scale(x, -1.0)),
    "lerp": lambda b, x, end, weight: b.add(x, b.multiply(b.add(end, x, -1.0), np.asarray(weight))),
    **dict.fromkeys(("maximum", "max"), partial(_extreme, 1.0)),
    **dict.fromkeys(("minimum", "min"), partial(_extreme, -1.0)),
    "amax": partial(_over_axes, 1.0),
    "amin": partial(_over_axes, -1.0),
    "mean": partial(_mean, False),
    "sum": partial(_mean, True),
    "cumsum": lambda b, x, dim, dtype=None: linear_map(b, x, lambda z: torch.cumsum(z, dim)),
    "where": lambda b, condition, self, other: _chosen(b, condition, self, other),
    "masked_fill": lambda b, x, mask, value: _chosen(b, mask, value, x),
    "fill": lambda b, x, value: b.spread(b.tensor(value if isinstance(value, Tensor) else np.asarray(value)), x.shape),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "sign", "round", "floor", "ceil"), _refused(_JUMPS)),
}


# layers ----------------------------------------------------------------------------------------------------------


def _fixed(*weights: Any) -> None:
    if any(isinstance(weight, Tensor) for weight in weights):
        raise Unsupported("its weight depends on the input")


def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> Any:
    _fixed(weight)
    result = b.matmul(x, np.asarray(weight).T)
    return result if bias is None else b.add(result, bias)


def _conv(b: Builder, x: Tensor, weight: Any, padding: Any, groups: int, bias: Any = None, **given: Any) -> Tensor:
    _fixed(weight, bias)
    rank = weight.ndim - 2
    stride, dilation = (_each(given[key], rank) for key in ("stride", "dilation"))
    if padding == "same":
        spare = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads: win.Pads = [(s // 2, s - s // 2) for s in spare]
    else:
        pads = _both(0 if padding == "valid" else padding, rank)
    return b.conv(x, weight, bias, stride, pads, dilation, groups)


def _conv_transpose(b: Builder, x: Tensor, weight: Any, groups: int, bias: Any = None, **given: Any) -> Tensor:
    _fixed(weight, bias)
    axes = range(weight.ndim - 2)
    names = ("stride", "dilation", "output_padding", "padding")
    stride, dilation, spare, pads = (_each(given[name], len(axes)) for name in names)
    reach = [dilation[a] * (weight.shape[2 + a] - 1) + 1 for a in axes]
    sizes = [(x.shape[2 + a] - 1) * stride[a] - 2 * pads[a] + reach[a] + spare[a] for a in axes]
    around = [(pads[a], pads[a] - spare[a]) for a in axes]
    return b.conv_transpose(x, weight, bias, stride, around, dilation, sizes, groups)


def _enlarge(b: Builder, x: Tensor, align_corners: bool, output_size: Any = None, scale_factors: Any = None) -> Tensor:
    """Linear interpolation."""
    factors = scale_factors or [after / n for after, n in zip(output_size, x.shape[2:], strict=True)]
    return b.upsample(x, (1, 1, *factors), True, align_corners)


def _batch_norm(b: Builder, x: Tensor, eps: float, training: bool = False, **given: Any) -> Tensor:
    if training or "running_mean" not in given or "running_var" not in given:
        raise Unsupported("it normalises by the batch at hand; call eval(), and keep running statistics")
    gain, offset = given.get("weight", 1.0), given.get("bias", 0.0)
    return b.batch_norm(x, given["running_mean"], given["running_var"], gain, offset, eps)


def _frame(rank: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], tuple[int, ...], win.Pads]:
    """Kernel, stride and padding of a pool; without a stride the windows lie side by side."""
    kernel = _each(kernel_size, rank)
    return kernel, _each(stride, rank) if stride else kernel, _both(padding, rank)


def _average_pool(rank: int, b: Builder, x: Tensor, ceil_mode: bool, count_include_pad: bool, **frame: Any) -> Tensor:
    return b.average_pool(x, *_frame(rank, **frame), (1,) * rank, ceil_mode, count_include_pad)


def _max_pool(rank: int, b: Builder, x: Tensor, dilation: Any, ceil_mode: bool, **frame: Any) -> Tensor:
    return b.maximum(x, *win.pool_windows(x.shape, *_frame(rank, **frame), _each(dilation, rank), ceil_mode))


def _adaptive(rank: int, maximum: bool, b: Builder, x: Tensor, output_size: Any) -> Any:
    seen, shape = win.adaptive_windows(x.shape, _each(output_size, rank))
    return (b.maximum(x, seen, shape), Positions()) if maximum else b.average_windows(x, seen, None, shape)


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


def _pad(b: Builder, x: Tensor, pad: Any, mode: str = "constant", value: float = 0.0) -> Tensor:
    if mode != "constant":
        place = torch.arange(x.size, dtype=torch.float64).reshape(x.shape)
        return b.pick(x, torch.nn.functional.pad(place, list(pad), mode).numpy().astype(int))
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return b.pad(x, pairs[::-1], float(value))


_RANKS = (1, 2, 3)

LAYERS: Final[Mapping[str, Handler]] = {
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "dot", "vdot"), lambda b, x, **other: _matmul(b, x, *other.values())),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), lambda b, x, **others: _addmm(b, x, *others.values())),
    **{f"conv{d}d": _conv for d in _RANKS},
    **{f"conv_transpose{d}d": _conv_transpose for d in _RANKS},
    **{f"avg_pool{d}d": partial(_average_pool, d) for d in _RANKS},
    **{f"max_pool{d}d": partial(_max_pool, d) for d in _RANKS},
    **{f"max_pool{d}d_with_indices": _with_positions(partial(_max_pool, d)) for d in _RANKS},
    **{f"adaptive_avg_pool{d}d": partial(_adaptive, d, False) for d in _RANKS},
    **{f"adaptive_max_pool{d}d": partial(_adaptive, d, True) for d in _RANKS},
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _with_positions(_batch_norm),
    "native_dropout": _with_positions(_dropout),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), _enlarge),
    **dict.fromkeys(
        ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        _refused("of interpolations only nearest and linear are known, without antialias"),
    ),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _refused(SOFTMAX)),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "instance_norm", "std", "var"), _refused(SELF_NORMALISING)),
    **dict.fromkeys(("group_norm", "native_group_norm", "rms_norm"), _refused(SELF_NORMALISING)),
    **dict.fromkeys(
        ("to", "_to_copy", "type_as", "clone", "contiguous", "lift_fresh_copy", "detach", "detach_", "alias"),
        lambda b, x, **_: x,
    ),
}

MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("lstm", "gru", "lstm_cell", "gru_cell"), f"gates multiply signals, which is not bounded yet; {_PART}"
    ),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_native_multi_head_attention"),
        f"attention multiplies signals, which is not bounded yet; {_PART}",
    ),
    "glu": f"it multiplies two signals, which is not bounded yet; {_PART}",
    "embedding": f"it takes whole numbers, and a Lipschitz constant is about real ones; {_PART}",
}
"""What people bring most often of what is not read, and what they can do."""

ARRANGING: Final = frozenset(
    {
        *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "ravel", "view_as", "reshape_as"),
        *("squeeze", "unsqueeze", "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis"),
        *("t", "numpy_T", "mT", "flip", "fliplr", "flipud", "roll", "rot90", "expand", "expand_as", "broadcast_to"),
        *("repeat", "tile", "repeat_interleave", "slice", "narrow", "select", "index_select", "index", "take"),
        *("split", "split_with_sizes", "tensor_split", "chunk", "unbind", "diagonal", "unfold", "gather"),
        *("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "index_put", "copy", "channel_shuffle"),
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "select_scatter", "slice_scatter"),
        *("pixel_shuffle", "pixel_unshuffle"),
        *(f"{kind}_pad{d}d" for kind in ("reflection", "replication") for d in _RANKS),
        *(f"{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in _RANKS),
    }
)
"""Operations that only move elements."""

SHAPES: Final = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Operations whose result depends on the shape of the operand alone."""

HANDLERS: Final[Mapping[str, Handler]] = {**ACTIVATIONS, **ARITHMETIC, **LAYERS}
"""What each other operation means, by its name in ATen."""
