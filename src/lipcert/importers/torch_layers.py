"""PyTorch's layers with weights, and its pools, as verbs of the builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from lipcert.importers import resize
from lipcert.importers import windows as win
from lipcert.importers.builder import SELF_NORMALISING, SOFTMAX, Builder, Tensor, Unsupported
from lipcert.model.arrays import Array

PADDING: Final[Mapping[str, win.PadMode]] = {
    "zeros": "constant",
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
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
    mode: win.PadMode = "constant",
) -> Tensor:
    if isinstance(weight, Tensor) or isinstance(bias, Tensor):
        raise Unsupported("its weight depends on the input")
    rank = weight.ndim - 2
    if len(input.shape) == rank + 1:  # without the batch axis
        single = b.reshape(input, (1, *input.shape))
        result = conv(b, single, weight, bias, stride, padding, dilation, groups, mode)
        return b.reshape(result, result.shape[1:])
    stride, dilation = each(stride, rank), each(dilation, rank)
    pads: win.Pads
    if padding == "valid":
        pads = [(0, 0)] * rank
    elif padding == "same":
        spare = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads = [(s // 2, s - s // 2) for s in spare]
    else:
        pads = both(padding, rank)
    return b.conv(input, weight, bias, stride, pads, dilation, int(groups), mode)


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
    if len(input.shape) == rank + 1:  # without the batch axis
        single = b.reshape(input, (1, *input.shape))
        result = conv_transpose(b, single, weight, bias, stride, padding, output_padding, groups, dilation)
        return b.reshape(result, result.shape[1:])
    stride, dilation, spare, pads = (each(part, rank) for part in (stride, dilation, output_padding, padding))
    axes = range(rank)
    reach = [dilation[a] * (weight.shape[2 + a] - 1) + 1 for a in axes]
    sizes = [(input.shape[2 + a] - 1) * stride[a] - 2 * pads[a] + reach[a] + spare[a] for a in axes]
    around = [(pads[a], pads[a] - spare[a]) for a in axes]
    return b.conv_transpose(input, weight, bias, stride, around, dilation, sizes, int(groups))


def interpolate(
    b: Builder,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    rank = len(input.shape) - 2
    if antialias or mode == "bicubic" or rank < 1:
        raise Unsupported("of interpolations only nearest, nearest-exact, linear and area are known, without antialias")
    before = input.shape[2:]
    if size is not None:
        after = each(size, rank)
        scales = [Fraction(m, n) for m, n in zip(after, before, strict=True)]
    else:
        factors = (scale_factor,) * rank if np.ndim(scale_factor) == 0 else tuple(scale_factor)
        after = tuple(int(np.floor(n * float(f))) for n, f in zip(before, factors, strict=True))
        given = [Fraction(float(f)) for f in factors]
        scales = [Fraction(m, n) for m, n in zip(after, before)] if recompute_scale_factor else given
    if min(after) < 1:
        raise Unsupported(f"the result has no elements (sizes {after})")
    axes = [resize.Axis(*parts) for parts in zip(before, after, scales, strict=True)]
    match mode:
        case "area":
            return adaptive(rank, False, b, input, after)
        case "nearest":
            return resize.nearest(b, input, axes, "asymmetric", "floor")
        case "nearest-exact":
            return resize.nearest(b, input, axes, "half_pixel", "round_prefer_ceil")
        case "linear" | "bilinear" | "trilinear":
            return resize.linear(b, input, axes, "align_corners" if align_corners else "half_pixel")
    raise Unsupported(f"the interpolation {mode!r} is not known")


def self_normalising(b: Builder, input: Tensor, *_: Any, **__: Any) -> Tensor:
    raise Unsupported(SELF_NORMALISING)


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


def prelu(b: Builder, input: Tensor, weight: Array) -> Tensor:
    if weight.size == 1:
        return b.activate(input, "leaky_relu", negative_slope=float(weight.reshape(-1)[0]))
    along = (-1, *(1 for _ in input.shape[2:]))
    return b.activate(input, "leaky_relu", negative_slope=np.reshape(weight, along))


def dropout(b: Builder, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if training and p > 0:
        raise Unsupported("it is random: pass training=self.training, and call eval()")
    return input


def softmax(b: Builder, input: Tensor, *_: Any, **__: Any) -> Tensor:
    raise Unsupported(SOFTMAX)


def _frame(rank: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], tuple[int, ...], win.Pads]:
    """Kernel, stride and padding of a pool; without a stride the windows lie side by side."""
    kernel = each(kernel_size, rank)
    return kernel, kernel if stride is None or stride == () else each(stride, rank), both(padding, rank)


def average_pool(
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
    frame = (*_frame(rank, kernel_size, stride, padding), (1,) * rank, ceil_mode)
    seen, shape = win.pool_windows(input.shape, *frame)
    counts: Array | None = None
    if divisor_override is not None:
        counts = np.full(len(seen), float(divisor_override))
    elif count_include_pad:
        counts = np.resize(win.padded_counts(input.shape[-rank:], *frame), len(seen))
    return b.average_windows(input, seen, counts, shape)


def max_pool(
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
    return b.maximum(input, *win.pool_windows(input.shape, *frame, each(dilation, rank), ceil_mode))


def adaptive(
    rank: int, maximum: bool, b: Builder, input: Tensor, output_size: Any, return_indices: bool = False
) -> Tensor:
    if return_indices:
        raise Unsupported("it also returns indices")
    sizes = (output_size,) * rank if output_size is None or isinstance(output_size, int) else output_size
    result = [s if size is None else int(size) for size, s in zip(sizes, input.shape[-rank:], strict=True)]
    seen, shape = win.adaptive_windows(input.shape, result)
    return b.maximum(input, seen, shape) if maximum else b.average_windows(input, seen, None, shape)


def each(value: Any, rank: int) -> tuple[int, ...]:
    """One number an axis."""
    values = (value,) * rank if np.ndim(value) == 0 else tuple(value)
    if len(values) == 1 and rank > 1:
        values = values * rank
    if len(values) != rank:
        raise Unsupported(f"it has {len(values)} sizes for {rank} axes")
    return tuple(int(v) for v in values)


def both(padding: Any, rank: int) -> win.Pads:
    """The same padding on both sides of each axis."""
    return [(p, p) for p in each(padding, rank)]


LAYERS: Final[Mapping[str, Callable[..., Any]]] = {
    "linear": linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    **{f"avg_pool{d}d": partial(average_pool, d) for d in (1, 2, 3)},
    **{f"max_pool{d}d": partial(max_pool, d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": partial(adaptive, d, False) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": partial(adaptive, d, True) for d in (1, 2, 3)},
    "batch_norm": batch_norm,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), dropout),
    **dict.fromkeys(("softmax", "log_softmax"), softmax),
    **{f"conv_transpose{d}d": conv_transpose for d in (1, 2, 3)},
    **dict.fromkeys(("interpolate", "upsample"), interpolate),
    "pixel_shuffle": lambda b, input, upscale_factor: resize.shuffle(b, input, int(upscale_factor)),
    "pixel_unshuffle": lambda b, input, downscale_factor: resize.unshuffle(b, input, int(downscale_factor)),
    **dict.fromkeys(
        ("layer_norm", "instance_norm", "group_norm", "rms_norm", "local_response_norm", "normalize"), self_normalising
    ),
}
