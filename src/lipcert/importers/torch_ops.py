"""What PyTorch's modules, functions and tensor methods mean, as verbs of the builder.

Handlers carry the parameter names and defaults of the function they stand for, so that arguments bind as they do
in PyTorch. Modules are translated into the function they call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import fx, nn

from lipcert.errors import LipcertError
from lipcert.importers import windows as win
from lipcert.importers.builder import Builder, Positions, Tensor, Unsupported
from lipcert.importers.conditions import Condition, choose, exceeds
from lipcert.importers.registry import of_module
from lipcert.importers.torch_arrange import ARRANGE, IDENTITIES
from lipcert.importers.torch_graph import attribute
from lipcert.importers.torch_guard import genuine
from lipcert.importers.torch_layers import LAYERS, PADDING, batch_norm, conv, linear, prelu, softmax

Handler = Callable[..., Any]


class TorchBuilder(Builder):
    """A graph under construction from a module that computes in single precision or in double."""

    def __init__(self, shape: Sequence[int], single: bool) -> None:
        super().__init__(shape)
        self.unit = 2.0**-24 if single else 2.0**-53


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


def _gelu(b: Builder, input: Tensor, approximate: str = "none") -> Tensor:
    return b.activate(input, "gelu_tanh" if approximate == "tanh" else "gelu")


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


def _log_sigmoid(b: Builder, input: Tensor) -> Tensor:
    return b.scale(b.activate(b.scale(input, -1.0), "softplus"), -1.0)


def _threshold(b: Builder, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if threshold != value:
        raise Unsupported(f"it jumps from {value} to {threshold} at {threshold}, so it has no Lipschitz constant")
    return b.activate(input, "threshold", threshold=float(threshold))


def _hardshrink(b: Builder, input: Tensor, lambd: float = 0.5) -> Tensor:
    raise Unsupported("it jumps at its limits, so it has no Lipschitz constant; softshrink does not")


def _rrelu(
    b: Builder, input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    if training:
        raise Unsupported("it is random in training mode")
    return b.activate(input, "leaky_relu", negative_slope=(lower + upper) / 2)


ACTIVATIONS: Final[Mapping[str, Handler]] = {
    "relu": _row("relu", inplace=False),
    "leaky_relu": _row("leaky_relu", negative_slope=0.01, inplace=False),
    "prelu": prelu,
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
    "gelu": _gelu,
    "mish": _row("mish", inplace=False),
    "hardswish": _row("hardswish", inplace=False),
    "hardsigmoid": lambda b, input, inplace=False: b.hard_sigmoid(input),
    **dict.fromkeys(("arctan", "atan"), _row("arctan")),
    "sin": _row("sin"),
    "cos": _row("cos"),
    "erf": lambda b, input: b.special(input, "erf"),
    "exp": lambda b, input: b.special(input, "exp"),
    "log": lambda b, input: b.special(input, "log"),
    "square": lambda b, input: b.power(input, 2),
    "tanhshrink": _row("tanhshrink"),
    "softshrink": _row("softshrink", lambd=0.5),
    "hardshrink": _hardshrink,
    "threshold": _threshold,
    "logsigmoid": _log_sigmoid,
    **dict.fromkeys(("abs", "absolute"), lambda b, input: b.activate(input, "leaky_relu", negative_slope=-1.0)),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda b, input, min: _clamp(b, input, min=min),
    "clamp_max": lambda b, input, max: _clamp(b, input, max=max),
}


def _add(b: Builder, input: Any, other: Any, *, alpha: float = 1.0) -> Any:
    return b.add(input, other, float(alpha))


def _sub(b: Builder, input: Any, other: Any, *, alpha: float = 1.0) -> Any:
    return b.add(input, other, -float(alpha))


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


def _where(b: Builder, condition: Any, input: Any, other: Any) -> Tensor:
    method = isinstance(condition, Tensor) or (not isinstance(condition, Condition) and condition.dtype.kind == "f")
    return choose(b, input, condition, other) if method else choose(b, condition, input, other)


ARITHMETIC: Final[Mapping[str, Handler]] = {
    "sort": _sort,
    "pow": lambda b, input, exponent: b.power(input, exponent),
    "reciprocal": lambda b, input: b.special(input, "reciprocal"),
    **dict.fromkeys(("add", "iadd"), _add),
    **dict.fromkeys(("sub", "subtract", "isub"), _sub),
    "rsub": lambda b, input, other, alpha=1.0: b.add(other, b.multiply(input, np.asarray(alpha)), -1.0),
    **dict.fromkeys(("mul", "multiply", "imul"), lambda b, input, other: b.multiply(input, other)),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv", "itruediv"), _div),
    **dict.fromkeys(("neg", "negative"), lambda b, input: b.scale(input, -1.0)),
    **dict.fromkeys(("matmul", "mm", "mv"), lambda b, input, other: b.matmul(input, other)),
    "addmm": lambda b, input, mat1, mat2: b.add(input, b.matmul(mat1, mat2)),
    **dict.fromkeys(("maximum", "max"), partial(_extreme, 1.0)),
    **dict.fromkeys(("minimum", "min"), partial(_extreme, -1.0)),
    **dict.fromkeys(("gt", "ge", "greater", "greater_equal"), lambda b, input, other: exceeds(b, input, other)),
    **dict.fromkeys(("lt", "le", "less", "less_equal"), lambda b, input, other: exceeds(b, other, input)),
    "where": _where,
    "zeros_like": lambda b, input: b.constant(np.zeros(input.shape)),
    "ones_like": lambda b, input: b.constant(np.ones(input.shape)),
    "full_like": lambda b, input, fill_value: b.constant(np.full(input.shape, float(fill_value))),
    "amax": partial(_over_axes, 1.0),
    "amin": partial(_over_axes, -1.0),
}

HANDLERS: Final[Mapping[str, Handler]] = {**ACTIVATIONS, **ARITHMETIC, **LAYERS, **ARRANGE}
"""By the name of the function or method; a trailing underscore (in place) does not matter."""

_HOMES = ("torch", "torch.nn.functional", "torch._C._nn", "torch.special", "_operator", "builtins", "math")


def _attributes(name: str, *same: str, **renamed: str) -> tuple[str, Mapping[str, str]]:
    return name, {key: key for key in same} | renamed


_RANKS = (1, 2, 3)
_POOL = ("kernel_size", "stride", "padding", "ceil_mode")
_DIVISOR = {1: (), 2: ("divisor_override",), 3: ("divisor_override",)}

MODULES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "ReLU": _attributes("relu"),
    "LeakyReLU": _attributes("leaky_relu", "negative_slope"),
    "PReLU": _attributes("prelu", "weight"),
    "RReLU": _attributes("rrelu", "lower", "upper"),
    "ReLU6": _attributes("relu6"),
    "Hardtanh": _attributes("hardtanh", "min_val", "max_val"),
    "ELU": _attributes("elu", "alpha"),
    "CELU": _attributes("celu", "alpha"),
    "SELU": _attributes("selu"),
    "Sigmoid": _attributes("sigmoid"),
    "Tanh": _attributes("tanh"),
    "Softplus": _attributes("softplus", "beta", "threshold"),
    "Softsign": _attributes("softsign"),
    "SiLU": _attributes("silu"),
    "GELU": _attributes("gelu", "approximate"),
    "Mish": _attributes("mish"),
    "Hardswish": _attributes("hardswish"),
    "Hardsigmoid": _attributes("hardsigmoid"),
    "LogSigmoid": _attributes("logsigmoid"),
    "Tanhshrink": _attributes("tanhshrink"),
    "Softshrink": _attributes("softshrink", "lambd"),
    "Hardshrink": _attributes("hardshrink", "lambd"),
    "Threshold": _attributes("threshold", "threshold", "value"),
    "PixelShuffle": _attributes("pixel_shuffle", "upscale_factor"),
    "PixelUnshuffle": _attributes("pixel_unshuffle", "downscale_factor"),
    **dict.fromkeys(
        ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        _attributes("interpolate", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"),
    ),
    **dict.fromkeys(
        ("LayerNorm", "GroupNorm", "RMSNorm", "LocalResponseNorm", *(f"InstanceNorm{d}d" for d in _RANKS)),
        _attributes("layer_norm"),
    ),
    "Flatten": _attributes("flatten", "start_dim", "end_dim"),
    "Unflatten": _attributes("unflatten", "dim", sizes="unflattened_size"),
    **{f"AvgPool{d}d": _attributes(f"avg_pool{d}d", *_POOL, "count_include_pad", *_DIVISOR[d]) for d in _RANKS},
    **{f"MaxPool{d}d": _attributes(f"max_pool{d}d", *_POOL, "dilation", "return_indices") for d in _RANKS},
    **{f"AdaptiveAvgPool{d}d": _attributes(f"adaptive_avg_pool{d}d", "output_size") for d in _RANKS},
    **{f"AdaptiveMaxPool{d}d": _attributes(f"adaptive_max_pool{d}d", "output_size", "return_indices") for d in _RANKS},
    **{f"ZeroPad{d}d": _attributes("pad", pad="padding") for d in _RANKS},
    **{f"ConstantPad{d}d": _attributes("pad", "value", pad="padding") for d in _RANKS},
}
"""Modules whose attributes are the arguments of a function: (function, {argument: attribute})."""


def translate(b: Builder, module: fx.GraphModule, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The result of one call of the traced graph."""
    if node.op == "call_module":
        return _module(b, module.get_submodule(str(node.target)), *args, **kwargs)
    name = str(node.target) if node.op == "call_method" else _function(node.target)
    if node.op == "call_function" and not genuine(node.target):
        raise Unsupported("it is a function of the user's")
    handler = HANDLERS.get(name) or HANDLERS.get(name.removesuffix("_"))
    if handler is None:
        raise Unsupported(_MISSING.get(name, "unknown operation"))
    return _bound(handler, b, *(_plain(a) for a in args), **{k: _plain(v) for k, v in kwargs.items()})


_PART = "load the part of the model behind it, or the part before it"
_MISSING = {
    **dict.fromkeys(
        ("LSTM", "GRU", "LSTMCell", "GRUCell"), f"gates multiply signals, which is not bounded yet; {_PART}"
    ),
    **dict.fromkeys(
        ("RNN", "RNNCell"),
        "recurrent layers are read from ONNX only; with the package onnxscript, export the module for the length"
        " that you need and load that file: torch.onnx.export(module, x, 'model.onnx', dynamo=True)",
    ),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"),
        f"attention multiplies signals, which is not bounded yet; {_PART}",
    ),
    **dict.fromkeys(("GLU", "glu"), f"it multiplies two signals, which is not bounded yet; {_PART}"),
    **dict.fromkeys(
        ("Embedding", "embedding"), f"it takes whole numbers, and a Lipschitz constant is about real ones; {_PART}"
    ),
}
"""What people bring most often of what is not read, and what they can do."""


def _bound(handler: Handler, *args: Any, **kwargs: Any) -> Any:
    try:
        return handler(*args, **kwargs)
    except LipcertError:  # says itself what is wrong
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise Unsupported(f"it is called in an unknown way: {error}") from None


def _module(b: Builder, module: Any, *given: Any, **named: Any) -> Any:
    given = (*given, *(named.pop(name) for name in ("input",) if name in named))
    if _base(module) in _MISSING:
        raise Unsupported(_MISSING[_base(module)])
    if len(given) != 1 or named:
        raise Unsupported("it is called with more than one argument, or by an unknown name")
    (x,) = given
    mine = of_module(module)
    if mine is not None:
        return b.apply(x, mine)
    kind = _base(module)
    if kind == "Linear":
        return linear(b, x, array(module.weight), array(module.bias))
    if kind in ("Conv1d", "Conv2d", "Conv3d"):
        settings = {key: getattr(module, key) for key in ("stride", "padding", "dilation", "groups")}
        return conv(b, x, array(module.weight), array(module.bias), mode=PADDING[str(module.padding_mode)], **settings)
    if kind in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
        settings = {key: getattr(module, key) for key in ("stride", "padding", "output_padding", "dilation", "groups")}
        return _bound(LAYERS["conv_transpose1d"], b, x, array(module.weight), array(module.bias), **settings)
    if kind in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"):
        if module.running_mean is None:
            raise Unsupported("it normalises by the batch at hand, for want of running statistics")
        keys = ("running_mean", "running_var", "weight", "bias")
        return batch_norm(b, x, eps=float(module.eps), **{key: array(getattr(module, key)) for key in keys})
    if kind in IDENTITIES:
        return x
    if kind in ("ReflectionPad", "ReplicationPad", "CircularPad"):
        mode = {"ReflectionPad": "reflect", "ReplicationPad": "replicate", "CircularPad": "circular"}[kind]
        return ARRANGE["pad"](b, x, pad=module.padding, mode=mode)
    if kind in ("Softmax", "LogSoftmax"):
        return softmax(b, x)
    if kind not in MODULES:
        raise Unsupported("unknown module")
    function, attributes = MODULES[kind]
    settings = {key: _plain(getattr(module, name)) for key, name in attributes.items()}
    return _bound(HANDLERS[function], b, x, **settings)


def _base(module: nn.Module) -> str:
    """Name of the class of torch.nn whose forward the module runs; parametrised weights do not change it."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torch.nn.modules"):
            known: Any = getattr(nn, kind.__name__, None)
            own = getattr(type(module), "forward", None)
            if known is not kind or own is not getattr(known, "forward", None) or not genuine(own):
                break
            for pad in ("ReflectionPad", "ReplicationPad", "CircularPad"):
                if kind.__name__.startswith(pad):
                    return pad
            return kind.__name__
    return f"{type(module).__name__} of the user's"


def _function(target: Any) -> str:
    name = str(getattr(target, "__name__", target))
    home = getattr(target, "__module__", None)
    return name if home in _HOMES or home is None else f"{home}.{name}"


def _plain(value: Any) -> Any:
    """Constants of PyTorch as arrays."""
    if isinstance(value, torch.Tensor):
        return array(value)
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def array(value: Any) -> Any:
    """A tensor's numbers in double precision (whole numbers and truth values stay what they are)."""
    if value is None:
        return None
    numbers = value.detach().cpu()
    return numbers.to(torch.float64).numpy().copy() if numbers.is_floating_point() else numbers.numpy().copy()


def kind_of(module: fx.GraphModule, node: fx.Node) -> str:
    """Type of a call in PyTorch's words."""
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))).__name__
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    return _function(node.target) if node.op == "call_function" else node.op


def is_softmax(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node is a softmax or its logarithm."""
    return kind_of(module, node).rpartition(".")[2].lower().replace("_", "") in ("softmax", "logsoftmax")


def holds(module: fx.GraphModule, name: str) -> bool:
    """Whether a function of that name, or its module, is called anywhere."""
    return any(kind_of(module, n).rpartition(".")[2].lower() == name for n in module.graph.nodes)


def input_size(module: fx.GraphModule, node: fx.Node) -> int | None:
    """How many inputs a call needs, where its module says so."""
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        return int(part.in_features) if isinstance(part, nn.Linear) else None
    weight = node.args[1] if node.target is nn.functional.linear and len(node.args) > 1 else None
    if isinstance(weight, fx.Node) and weight.op == "get_attr":
        return int(attribute(module, str(weight.target)).shape[-1])
    return None


def keeps_size(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a call leaves the number of elements of a sample as it is, whatever their shape."""
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        kind = _base(part)
        return (
            of_module(part) is not None
            or kind in IDENTITIES
            or kind == "Flatten"
            or (kind in MODULES and MODULES[kind][0] in ACTIVATIONS)
        )
    return kind_of(module, node).rpartition(".")[2] in {"flatten", *ACTIVATIONS}
