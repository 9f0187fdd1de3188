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
from scipy import sparse
from torch.utils._pytree import tree_flatten, tree_map

from lipcert.importers import signals
from lipcert.importers import windows as win
from lipcert.importers.builder import PART, Builder, Frame, Positions, Tensor, Unsupported, common_shape, each_axis
from lipcert.model.arrays import Array

Handler = Callable[..., Any]

_INDICES = ("index", "indices", "repeats")
"""Arguments that say which elements are taken; all other tensors hold elements."""

_JUMPS = "it jumps where its operand crosses a limit; write choices with relu, clamp, abs, maximum or leaky_relu"

RANDOM = "it is random; keep random numbers in a buffer, or pass training=self.training to dropout"


class TorchBuilder(Builder):
    """A graph under construction; ``unit`` is the unit roundoff of the operation that is being read.

    ``off`` is how far an activation of the model is from ours, relatively.
    """

    unit = 2.0**-53
    off = 0.0


def name_of(target: Any) -> str:
    """The name of an operation of ATen, without its overload."""
    schema = getattr(target, "_schema", None)
    return str(target) if schema is None else str(schema.name).removeprefix("aten::")


def translate(b: TorchBuilder, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of one operation, some operand of which depends on the input."""
    name = name_of(target)
    if name in ARRANGING:
        return arranged(b, target, args, kwargs)
    if name in SHAPES:
        of_shape = lambda leaf: torch.zeros(leaf.shape).double() if isinstance(leaf, Tensor) else leaf  # noqa: E731
        return target(*tree_map(of_shape, list(args)), **kwargs)
    if name not in HANDLERS:
        random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        raise Unsupported(RANDOM if random else MISSING.get(name, f"unknown operation; {PART}"))
    (_, first), *others = bound(target, args, kwargs)
    return HANDLERS[name](b, _plain(first), **{key: _plain(value) for key, value in others if value is not None})


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


# operations that move elements -----------------------------------------------------------------------------------


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
        if name == "value":  # a number that is put at places
            values[name] = place(torch.tensor(value)).item()
    if values.get("accumulate") or isinstance(values.get("reduce"), str):
        raise Unsupported("it combines elements; use index_add or scatter_add")
    return tree_map(lambda part: b.taken(operands, part.numpy().astype(int)), target(**values))


def _chosen(b: Builder, condition: Any, x: Any, other: Any) -> Tensor:
    """X where a constant condition holds, else the other."""
    if isinstance(condition, Tensor):
        raise Unsupported(_JUMPS)
    left, right = (v if isinstance(v, Tensor) else b.constant(v) for v in (x, other))
    shape = common_shape(np.shape(condition), left.shape, right.shape)
    one, two = (np.broadcast_to(win.positions(side.shape), shape) for side in (left, right))
    return b.taken([left, right], np.where(condition, one, two + left.size))


def _added(b: Builder, x: Any, dim: int, index: Array, source: Any, alpha: float = 1.0) -> Tensor:
    """X, to which elements of the source are added: its index says where along an axis each belongs."""
    x, source = b.tensor(x), b.tensor(source)
    part = b.view(source, lambda places: places[tuple(map(slice, index.shape))])
    place = torch.from_numpy(win.positions(x.shape)).gather(dim, torch.from_numpy(index)).numpy().ravel()
    sums = sparse.coo_array((np.full(part.size, alpha), (place, np.arange(part.size))), shape=(x.size, part.size))
    return b.add(x, b.affine(part, sums, 0.0, x.shape))


def _index_add(b: Builder, x: Any, dim: int, index: Array, source: Any, alpha: float) -> Tensor:
    along = [-1 if axis == dim % len(x.shape) else 1 for axis in range(len(x.shape))]
    return _added(b, x, dim, np.broadcast_to(index.reshape(along), source.shape).copy(), source, alpha)


def _pad(b: Builder, x: Tensor, pad: Any, mode: str = "constant", value: float = 0.0) -> Tensor:
    place = torch.arange(1, x.size + 1, dtype=torch.float64).reshape(x.shape)
    index = torch.nn.functional.pad(place, list(pad), mode).numpy().astype(int) - 1  # -1 where zeros come in
    return b.pick(x, index, float(value or 0.0))


# functions of one number -----------------------------------------------------------------------------------------


def _with_positions(handler: Handler) -> Handler:
    """Handler of an operation that also returns which elements were chosen, or statistics; nothing may use them."""
    return lambda b, x, **given: (handler(b, x, **given), Positions())


def _row(name: str) -> Handler:
    return lambda b, x, **given: b.activate(x, name, **given)


def _elu(b: Builder, x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    if (scale, input_scale) != (1, 1):
        raise Unsupported("only an ELU without scales is known")
    return b.activate(x, "elu", alpha=alpha)


def _softplus(b: TorchBuilder, x: Tensor, beta: float, threshold: float) -> Tensor:
    """Beyond βx = t PyTorch returns x, which is less than softplus by log(1 + exp(-t))/β."""
    jump = float(np.exp(-threshold))
    if not (beta > 0.0 and jump <= 2.0**-20):
        raise Unsupported(
            f"at its threshold of {threshold} it jumps by {jump / beta:.2g}; give a threshold of 20 or more"
        )
    if jump > b.unit * 2.0 ** np.floor(np.log2(threshold)):  # it is not lost in rounding
        b.off = max(b.off, jump / threshold)
        b.kind += f", as log(1 + exp(x)): the module is below it by up to {jump / beta:.2g} where it returns x"
    return b.activate(x, "softplus", beta=beta)


def _clamp(b: Builder, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    if any(isinstance(limit, Tensor) or np.ndim(limit) for limit in (min, max)):
        raise Unsupported("its limits must be numbers")
    return b.clamp(x, min, max)


def _threshold(b: Builder, x: Tensor, threshold: float, value: float) -> Tensor:
    if threshold != value:
        raise Unsupported(f"it jumps from {value} to {threshold} at {threshold}, so it has no Lipschitz constant")
    return b.activate(x, "threshold", threshold=float(threshold))


def _prelu(b: Builder, x: Tensor, weight: Array) -> Tensor:
    if isinstance(weight, Tensor):
        raise Unsupported("its slope depends on the input")
    along = () if weight.size == 1 else weight.shape if weight.ndim > 1 else (-1, *(1 for _ in x.shape[2:]))
    return b.activate(x, "leaky_relu", negative_slope=np.reshape(weight, along))


def _dropout(b: Builder, x: Tensor, p: float = 1.0, train: bool = True) -> Tensor:
    if train and p > 0:
        raise Unsupported("it is random in training mode: pass training=self.training, and call eval()")
    return x


def _rrelu(b: Builder, x: Tensor, lower: float, upper: float, training: bool) -> Tensor:
    return b.activate(_dropout(b, x, train=training), "leaky_relu", negative_slope=(lower + upper) / 2)


_ROWS = "relu leaky_relu relu6 celu selu sigmoid tanh silu mish hardswish sin cos erf softshrink"
ACTIVATIONS: Final[Mapping[str, Handler]] = {
    **{name: _row(name) for name in _ROWS.split()},
    "atan": _row("arctan"),
    **dict.fromkeys(("prelu", "_prelu_kernel"), _prelu),
    "rrelu": _rrelu,
    "hardtanh": lambda b, x, **ends: (
        b.activate(x, "hardtanh", **ends) if [*ends.values()] != [0, 6] else b.activate(x, "relu6")
    ),
    "elu": _elu,
    "softplus": _softplus,
    "gelu": lambda b, x, approximate: b.activate(x, "gelu_tanh" if approximate == "tanh" else "gelu"),
    "hardsigmoid": lambda b, x: b.hard_sigmoid(x),
    "threshold": _threshold,
    "log_sigmoid": lambda b, x: b.scale(b.activate(b.scale(x, -1.0), "softplus"), -1.0),
    "abs": lambda b, x: b.activate(x, "leaky_relu", negative_slope=-1.0),
    **dict.fromkeys(("clamp", "clip", "clamp_min", "clamp_max"), _clamp),
    **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"), _dropout),
}
"""Functions of each element by itself."""


# arithmetic and layers -------------------------------------------------------------------------------------------


def _div(b: Builder, x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        raise Unsupported("division with rounding is a step function")
    return b.divide(x, other)


def _extreme(sign: float, b: Builder, x: Any, other: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    """Max and min: of two tensors, over an axis (with the positions, which nothing may use), or of all elements."""
    if other is not None:
        return b.larger(x, other, sign)
    found = _over_axes(sign, b, x, () if dim is None else dim, keepdim)
    return found if dim is None else (found, Positions())


def _over_axes(sign: float, b: Builder, x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return b.over_axes(x, np.atleast_1d(np.asarray(dim, dtype=int)).tolist() or range(len(x.shape)), keepdim, sign)


def _mean(total: bool, b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    axes = None if dim is None or np.size(dim) == 0 else [int(a) for a in np.atleast_1d(dim)]
    return b.mean(x, axes, keepdim, total)


def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> Any:
    result = b.matmul(x, b.view(weight, np.transpose) if isinstance(weight, Tensor) else np.transpose(weight))
    return result if bias is None else b.add(result, bias)


def _conv(
    b: Builder, x: Any, weight: Any, stride: Any, dilation: Any, groups: int, bias: Any = None, **given: Any
) -> Any:
    """A convolution, or a transposed one, which has an output_padding."""
    if any(isinstance(operand, Tensor) for operand in (weight, bias)):
        raise Unsupported("its weight depends on the input")
    kernel, rank, padding = weight.shape[2:], weight.ndim - 2, given["padding"]
    stride, dilation = each_axis(stride, rank), each_axis(dilation, rank)
    spare = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    same = [(s // 2, s - s // 2) for s in spare]
    frame = Frame(
        kernel, stride, same if padding == "same" else _both(0 if padding == "valid" else padding, rank), dilation
    )
    if "output_padding" in given:
        return b.conv_transpose(x, weight, bias, frame, each_axis(given["output_padding"], rank), groups)
    return b.conv(x, weight, bias, frame, groups)


def _batch_norm(b: Builder, x: Tensor, eps: float, training: bool = False, **given: Any) -> Tensor:
    if training or "running_mean" not in given or "running_var" not in given:
        raise Unsupported("it normalises by the batch at hand; call eval(), and keep running statistics")
    gain, offset = given.get("weight", 1.0), given.get("bias", 0.0)
    return b.batch_norm(x, given["running_mean"], given["running_var"], gain, offset, eps)


def _frame(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Frame:
    """The windows of a pool, which lie side by side where it has no stride."""
    kernel = each_axis(kernel_size, rank)
    moves = each_axis(stride, rank) if stride else kernel
    return Frame(kernel, moves, _both(padding, rank), each_axis(dilation, rank), ceil_mode)


def _pool(average: bool, rank: int, b: Builder, x: Tensor, **frame: Any) -> Tensor:
    include = frame.pop("count_include_pad", False)
    seen = _frame(rank, **{"dilation": 1} | frame)
    return b.average_pool(x, seen, include) if average else b.max_pool(x, seen)


def _adaptive(average: bool, rank: int, b: Builder, x: Tensor, output_size: Any) -> Any:
    parts = zip(x.shape[len(x.shape) - rank :], each_axis(output_size, rank), strict=True)
    seen, shape = win.windows(x.shape, [win.divided(*axis) for axis in parts])
    return b.average_windows(x, seen, shape) if average else (b.maximum(x, seen, shape), Positions())


def _both(padding: Any, rank: int) -> win.Pads:
    """The same padding on both sides of each axis."""
    return [(p, p) for p in each_axis(padding, rank)]


def _layer_norm(
    b: Builder, x: Tensor, normalized_shape: Any, eps: float, weight: Any = None, bias: Any = None, **_: Any
) -> Tensor:
    return signals.layer_norm(b, x, len(normalized_shape), weight, bias, eps)


def _instance_norm(b: Builder, x: Tensor, use_input_stats: bool, eps: float, **given: Any) -> Tensor:
    if not use_input_stats:
        return _batch_norm(b, x, eps, **given)
    return signals.group_norm(b, x, x.shape[1], given.get("weight"), given.get("bias"), eps)


_RANKS = (1, 2, 3)

HANDLERS: Final[Mapping[str, Handler]] = {
    **ACTIVATIONS,
    "sort": _with_positions(lambda b, x, dim, descending, stable=False: b.sort(x, dim, descending)),
    **dict.fromkeys(("expm1", "special_expm1"), lambda b, x: b.scale(b.activate(x, "exp"), 1.0, -1.0)),
    **dict.fromkeys(("log1p", "special_log1p"), lambda b, x: b.activate(b.scale(x, 1.0, 1.0), "log")),
    "logsumexp": lambda b, x, dim, keepdim: b.activate(_mean(True, b, b.activate(x, "exp"), dim, keepdim), "log"),
    "pow": lambda b, x, exponent: b.power(x, exponent),
    "add": lambda b, x, other, alpha: b.add(x, other, float(alpha)),
    "sub": lambda b, x, other, alpha: b.add(x, other, -float(alpha)),
    "mul": lambda b, x, other: b.multiply(x, other),
    "div": _div,
    "neg": lambda b, x: b.scale(x, -1.0),
    **dict.fromkeys(("maximum", "max"), partial(_extreme, 1.0)),
    **dict.fromkeys(("minimum", "min"), partial(_extreme, -1.0)),
    "amax": partial(_over_axes, 1.0),
    "amin": partial(_over_axes, -1.0),
    "mean": partial(_mean, False),
    "sum": partial(_mean, True),
    "index_add": _index_add,
    "scatter_add": lambda b, x, dim, index, src: _added(b, x, dim, index, src),
    "where": lambda b, condition, self, other: _chosen(b, condition, self, other),
    "masked_fill": lambda b, x, mask, value: _chosen(b, mask, value, x),
    "fill": lambda b, x, value: b.spread(b.tensor(value if isinstance(value, Tensor) else np.asarray(value)), x.shape),
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "dot", "vdot"), lambda b, x, **other: b.matmul(x, *other.values())),
    **dict.fromkeys(
        ("addmm", "addmv"),
        lambda b, x, beta, alpha, **two: b.add(
            b.multiply(x, np.asarray(beta)), b.scale(b.matmul(*two.values()), alpha)
        ),
    ),
    "convolution": lambda b, x, transposed, output_padding, **given: _conv(
        b, x, **given, **({"output_padding": output_padding} if transposed else {})
    ),
    **{f"conv{kind}{d}d": _conv for d in _RANKS for kind in ("", "_transpose")},
    **{f"{kind}_pool{d}d": partial(_pool, kind == "avg", d) for d in _RANKS for kind in ("avg", "max")},
    **{f"max_pool{d}d_with_indices": _with_positions(partial(_pool, False, d)) for d in _RANKS},
    **{f"adaptive_{kind}_pool{d}d": partial(_adaptive, kind == "avg", d) for d in _RANKS for kind in ("avg", "max")},
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _with_positions(_batch_norm),
    "native_dropout": _with_positions(_dropout),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    **dict.fromkeys(("softmax", "_softmax"), lambda b, x, dim, **_: signals.softmax(b, x, dim)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), lambda b, x, dim, **_: signals.softmax(b, x, dim, log=True)),
    **{name: _row(name) for name in ("exp", "log", "sqrt", "rsqrt", "reciprocal")},
    "layer_norm": _layer_norm,
    "native_layer_norm": _with_positions(_layer_norm),
    "rms_norm": lambda b, x, normalized_shape, eps=None, weight=None: signals.layer_norm(
        b, x, len(normalized_shape), weight, None, 2.0**-23 if eps is None else eps, False
    ),
    "group_norm": lambda b, x, num_groups, eps, weight=None, bias=None, **_: signals.group_norm(
        b, x, num_groups, weight, bias, eps
    ),
    "instance_norm": _instance_norm,
    **dict.fromkeys(
        ("to", "_to_copy", "type_as", "clone", "contiguous", "lift_fresh_copy", "detach", "detach_", "alias"),
        lambda b, x, **_: x,
    ),
}
"""What each other operation means, by its name in ATen."""

MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "sign", "round", "floor", "ceil"), _JUMPS),
    "hardshrink": "it jumps at its limits, so it has no Lipschitz constant; softshrink does not",
    **dict.fromkeys(
        ("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa"),
        "of interpolations only nearest is read; a transposed convolution can stand for it",
    ),
    "embedding": f"it takes whole numbers, and a Lipschitz constant is about real ones; {PART}",
}
"""What people bring most often of what is not read, and what they can do."""

_MOVES = """
    view reshape _unsafe_view flatten unflatten ravel view_as reshape_as squeeze unsqueeze permute transpose swapaxes
    swapdims movedim moveaxis t numpy_T mT flip roll rot90 expand expand_as broadcast_to repeat tile repeat_interleave
    slice narrow select index_select index take split split_with_sizes tensor_split chunk unbind diagonal unfold gather
    broadcast_tensors unsafe_split unsafe_split_with_sizes unsafe_chunk index_put copy channel_shuffle cat stack hstack
    vstack scatter select_scatter slice_scatter pixel_shuffle pixel_unshuffle"""
_MOVES_OF = ("reflection_pad", "replication_pad", "upsample_nearest", "_upsample_nearest_exact")
ARRANGING: Final = frozenset({*_MOVES.split(), *(f"{kind}{d}d" for kind in _MOVES_OF for d in _RANKS)})
"""Operations that only move elements."""

SHAPES: Final = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Operations whose result depends on the shape of the operand alone."""

KNOWN: Final = frozenset({*HANDLERS, *ARRANGING, *SHAPES, *MISSING})
"""Operations that are not taken apart."""
