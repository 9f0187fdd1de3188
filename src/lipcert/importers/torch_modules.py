"""PyTorch's modules and traced calls, translated into the functions that they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import fx, nn
from torch.utils._pytree import tree_flatten

from lipcert.errors import LipcertError
from lipcert.importers.builder import Builder, Tensor, Unsupported
from lipcert.importers.registry import of_module
from lipcert.importers.torch_guard import genuine
from lipcert.importers.torch_ops import ACTIVATIONS, ARRANGING, ATTRIBUTES, HANDLERS, Handler, arranged

_DROPOUTS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
_KEEPING: Final = frozenset({"Flatten", "Identity", *_DROPOUTS})
"""Modules that in evaluation mode change at most the shape of a sample."""

_ARRANGING: Final = frozenset(
    {
        *(*_KEEPING, "Unflatten", "PixelShuffle", "PixelUnshuffle"),
        *(f"{mode}Pad{d}d" for mode in ("Reflection", "Replication", "Circular") for d in (1, 2, 3)),
    }
)
"""Modules that only move elements."""

_HOMES = ("torch", "torch.nn.functional", "torch._C._nn", "torch.special", "_operator", "builtins", "math")


def _attributes(name: str, *same: str, **renamed: str) -> tuple[str, Mapping[str, str]]:
    return name, {key: key for key in same} | renamed


_RANKS = (1, 2, 3)
_WEIGHTS = ("weight", "bias")
_CONV = ("stride", "padding", "dilation", "groups")
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
    **dict.fromkeys(
        ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        _attributes("interpolate", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"),
    ),
    **dict.fromkeys(
        ("LayerNorm", "GroupNorm", "RMSNorm", "LocalResponseNorm", *(f"InstanceNorm{d}d" for d in _RANKS)),
        _attributes("layer_norm"),
    ),
    "Linear": _attributes("linear", *_WEIGHTS),
    **{f"Conv{d}d": _attributes(f"conv{d}d", *_WEIGHTS, *_CONV, mode="padding_mode") for d in _RANKS},
    **{f"ConvTranspose{d}d": _attributes(f"conv_transpose{d}d", *_WEIGHTS, *_CONV, "output_padding") for d in _RANKS},
    **{f"BatchNorm{d}d": _attributes("batch_norm", *_WEIGHTS, "running_mean", "running_var", "eps") for d in _RANKS},
    **dict.fromkeys(("Softmax", "LogSoftmax"), _attributes("softmax")),
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
    if name.removesuffix("_") in ARRANGING or name == "getattr":
        return _bound(_arranged, b, node, *args, **kwargs)
    handler = HANDLERS.get(name) or HANDLERS.get(name.removesuffix("_"))
    if handler is None:
        raise Unsupported(_MISSING.get(name, _UNKNOWN))
    return _bound(handler, b, *(_plain(a) for a in args), **{k: _plain(v) for k, v in kwargs.items()})


def _arranged(b: Builder, node: fx.Node, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A call that only moves elements, by what PyTorch does to their positions."""
    if not isinstance(input, Tensor) or any(isinstance(leaf, Tensor) for leaf in tree_flatten((args, kwargs))[0]):
        raise Unsupported("the index depends on the input")
    if any(isinstance(leaf, torch.dtype) for leaf in (*args, *kwargs.values())):
        raise Unsupported("it reinterprets the bits of numbers")
    if node.target is getattr and args[0] not in ATTRIBUTES:
        raise Unsupported(f"the attribute {args[0]} is not known")
    call: Any = node.target
    if node.op == "call_method":
        call = getattr(torch.Tensor, str(node.target))
    return arranged(b, input, lambda x: call(x, *args, **kwargs))


_UNKNOWN = "unknown module or operation"
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
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise Unsupported(f"it is called in an unknown way: {error}") from None


def _module(b: Builder, module: Any, *given: Any, **named: Any) -> Any:
    given = (*given, *(named.pop(name) for name in ("input",) if name in named))
    kind = _base(module)
    if kind in _MISSING:
        raise Unsupported(_MISSING[kind])
    if len(given) != 1 or named:
        raise Unsupported("it is called with more than one argument, or by an unknown name")
    (x,) = given
    mine = of_module(module)
    if mine is not None:
        return b.apply(x, mine)
    if kind in _ARRANGING:
        return _bound(arranged, b, x, module)
    if kind not in MODULES:
        raise Unsupported(_UNKNOWN)
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


def attribute(module: nn.Module, path: str) -> Any:
    """A parameter or buffer by its dotted name."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


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
        activation = kind in MODULES and MODULES[kind][0] in ACTIVATIONS
        return activation or kind in _KEEPING or of_module(part) is not None
    return kind_of(module, node).rpartition(".")[2] in {"flatten", *ACTIVATIONS}
