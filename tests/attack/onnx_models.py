"""Small ONNX models in double precision, each with one feature that a reader may get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnx_graphs import DOUBLE, FLOAT, model_of, node

Nodes = list[Any]


def onnx_model(name: str, seed: int) -> Any:
    """The model of that name, from ``x`` (1, 3) to ``y``."""
    rng = np.random.default_rng(seed)
    constants = {"W": rng.standard_normal((3, 4)), "b": rng.standard_normal(4), "V": rng.standard_normal((4, 2))}
    nodes, extra = _TRAPS[name](rng)
    constants |= extra
    first = [node("MatMul", "x W", "h0"), node("Add", "h0 b", "h")]
    last = [node("MatMul", "z V", "y")]
    order = [*first, *nodes, *last]
    if name == "out_of_order":
        order = [*first, *nodes[::-1], *last]
    return model_of(order, constants, kind=DOUBLE)


def _one(kind: str, **attributes: Any) -> Callable[[np.random.Generator], tuple[Nodes, dict[str, Any]]]:
    return lambda rng: ([node(kind, "h", "z", **attributes)], {})


def _clip(low: float, high: float) -> Callable[[np.random.Generator], tuple[Nodes, dict[str, Any]]]:
    return lambda rng: ([node("Clip", "h low high", "z")], {"low": np.float64(low), "high": np.float64(high)})


def _out_of_order(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    """The limit of a Clip is computed after the Clip."""
    nodes = [node("Add", "one one", "limit"), node("Clip", "h limit", "z")]
    return nodes, {"one": np.float64(0.5)}


def _undefined(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    return [node("Add", "h nowhere", "z")], {}


def _random(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    noise = node("RandomNormal", "", "noise", shape=[4], dtype=DOUBLE)
    return [noise, node("Add", "h noise", "z")], {}


def _random_like(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    return [node("RandomUniformLike", "h", "noise", dtype=DOUBLE), node("Add", "h noise", "z")], {}


def _casts(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    nodes = [
        node("Cast", "h", "f", to=FLOAT),
        node("Cast", "f", "g", to=DOUBLE),
        node("Sub", "g h", "lost"),
        node("Mul", "lost many", "z"),
    ]
    return nodes, {"many": np.float64(1e9)}


def _huge_clip(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    nodes = [node("Mul", "h up", "large"), node("Clip", "large low high", "cut"), node("Mul", "cut down", "z")]
    numbers = {"up": 1e39, "low": -1e39, "high": 2e38, "down": 1e-39}
    return nodes, {key: np.float64(value) for key, value in numbers.items()}


def _batch_norm(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    names = {key: rng.random(4) + (1e-7 if key == "var" else 0.0) for key in ("scale", "shift", "mean", "var")}
    names["var"] *= 1e-5
    return [node("BatchNormalization", "h scale shift mean var", "z")], names


def _training_dropout(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    return [node("Dropout", "h ratio mode", "z")], {"ratio": np.float64(0.5), "mode": np.bool_(True)}


def _prelu(rng: np.random.Generator) -> tuple[Nodes, dict[str, Any]]:
    return [node("PRelu", "h slope", "z")], {"slope": rng.standard_normal(4)}


def _amplified(kind: str, **attributes: Any) -> Callable[[np.random.Generator], tuple[Nodes, dict[str, Any]]]:
    """Differences from a line, enlarged: defaults that are single precision numbers show."""
    return lambda rng: (
        [node(kind, "h", "a", **attributes), node("Sub", "a h", "c"), node("Mul", "c many", "z")],
        {"many": np.float64(1e6)},
    )


_TRAPS: Mapping[str, Callable[[np.random.Generator], tuple[Nodes, dict[str, Any]]]] = {
    "relu": _one("Relu"),
    "leaky": _one("LeakyRelu", alpha=0.1),
    "leaky_default": _one("LeakyRelu"),
    "elu": _one("Elu", alpha=0.7),
    "selu": _one("Selu"),
    "selu_amplified": _amplified("Selu"),
    "hard_sigmoid": _one("HardSigmoid"),
    "hard_sigmoid_given": _one("HardSigmoid", alpha=0.3, beta=0.1),
    "celu": _one("Celu", alpha=0.3),
    "softplus": _one("Softplus"),
    "softplus_amplified": _amplified("Softplus"),
    "threshold": _one("ThresholdedRelu", alpha=1.0),
    "clip": _clip(-0.5, 0.75),
    "clip_turned": _clip(0.75, -0.5),
    "huge_clip": _huge_clip,
    "out_of_order": _out_of_order,
    "undefined": _undefined,
    "random": _random,
    "random_like": _random_like,
    "casts": _casts,
    "batch_norm": _batch_norm,
    "training_dropout": _training_dropout,
    "prelu": _prelu,
    "round": _one("Round"),
    "sign": _one("Sign"),
    "mish": _one("Mish"),
    "softsign": _one("Softsign"),
    "shrink": _one("Shrink", lambd=0.5),
}
NAMES = tuple(_TRAPS)
