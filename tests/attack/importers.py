"""Random models: the imported network computes what the model computes, or the import is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attack.draw import some
from attack.log import Log
from attack.points import fractions
from attack.truth import Model, outputs
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from onnx_graphs import DOUBLE, FLOAT, model_of, node

_NOISE = 256.0
"""How many times the error of our own evaluation in floating point the model's may be."""

_ACTIVATIONS = (
    *("relu(x)", "tanh(x)", "leaky_relu(x, 0.3)", "elu(x, 0.5)", "silu(x)", "gelu(x)", "gelu(x, approximate='tanh')"),
    *("softplus(x, 2.0, 60.0)", "hardtanh(x, -0.5, 0.75)", "hardsigmoid(x)", "hardswish(x)", "selu(x)", "celu(x, 0.3)"),
    *("mish(x)", "softsign(x)", "logsigmoid(x)", "softshrink(x)", "tanhshrink(x)", "relu6(x)", "sigmoid(x)"),
    *("threshold(x, 0.5, 3.0)", "threshold(x, 0.5, 0.5)", "hardshrink(x)", "softplus(x, 1.0, 5.0)"),
    *("dropout(x, 0.5, False)", "dropout(x, 0.5, True)", "max_pool1d(x, 1)", "prelu(x, p)"),
)
"""Functions of torch.nn.functional; some jump or are random, and must be refused."""

_BODIES: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "plain": lambda torch, b, x: b(x),
    "skip": lambda torch, b, x: b(x) + 0.3 * x[:, :2],
    "shared": lambda torch, b, x: torch.cat([b(x), b(2.0 * x - 1.0)], 1),
    "maximum": lambda torch, b, x: torch.maximum(b(x), -2.0 * b(x)),
    "sorted": lambda torch, b, x: torch.sort(b(x), 1)[0],
    "random": lambda torch, b, x: b(x) + torch.randn(1, 2, dtype=torch.float64),
    "grad mode": lambda torch, b, x: b(x) if torch.is_grad_enabled() else b(x) * 2.0,
    "casts": lambda torch, b, x: 1e9 * (b(x.float().double()) - b(x)),
    "huge clip": lambda torch, b, x: (1e35 * b(x)).clamp(max=2e35) * 1e-35,
    "selection": lambda torch, b, x: torch.where(b(x) > 100.0, b(x) * 0.0, b(x)),
    "in place": lambda torch, b, x: _changed(b(x), "h"),
    "in place, a view": lambda torch, b, x: _changed(b(x), "h.view(-1, 2)"),
    "in place, a clone": lambda torch, b, x: _changed(b(x), "h.clone()"),
    "a counter": lambda torch, b, x: b(x) + b[0].calls.add_(1.0),
}
"""What a module does with its stack of layers and the input."""

_TRAPS: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda torch, m: None,
    "hook": lambda torch, m: m.register_forward_hook(lambda one, given, result: 2.0 * result),
    "own forward": lambda torch, m: setattr(m, "forward", lambda x, old=m.forward: 3.0 * old(x)),
    "weight norm": lambda torch, m: torch.nn.utils.parametrizations.weight_norm(m.base[0]),
    "live statistics": lambda torch, m: m.base.insert(1, torch.nn.BatchNorm1d(4, track_running_stats=False)),
    "batch norm": lambda torch, m: m.base.insert(1, _batch_norm(torch)),
}
"""What is done to the module afterwards."""


def _changed(h: Any, view: str) -> Any:
    eval(view, {"h": h}).clamp_(max=0.5)
    return h


def _batch_norm(torch: Any) -> Any:
    norm = torch.nn.BatchNorm1d(4, eps=1e-3)
    norm.running_mean.normal_()
    norm.running_var.uniform_()
    return norm


def torch_module(activation: str, body: str, trap: str, seed: int) -> Any:
    """A module with three inputs, in double precision and evaluation mode."""
    import torch

    class Act(torch.nn.Module):
        p: Any

        def forward(self, x: Any) -> Any:
            return eval(f"F.{activation}", {"F": torch.nn.functional, "x": x, "p": self.p})

    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Sequential(torch.nn.Linear(3, 4), Act(), torch.nn.Linear(4, 2))

        def forward(self, x: Any) -> Any:
            return _BODIES[body](torch, self.base, x)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Body()
        made.base[0].register_buffer("calls", torch.zeros(1))
        made.base[1].register_buffer("p", torch.randn(4))
        _TRAPS[trap](torch, made)
    return made.double().eval()


def torch(rng: np.random.Generator, log: Log) -> None:
    """One module, with at most one odd feature beside its activation; run with and without gradients."""
    from torch import as_tensor, set_grad_enabled

    odd = rng.random() < 0.7
    given = some(rng, *_ACTIVATIONS), some(rng, *_BODIES) if odd else "plain", "none" if odd else some(rng, *_TRAPS)
    arguments = ", ".join(map(repr, [*given, int(rng.integers(2**31))]))
    net = log.ask(f"lc.load(torch_module({arguments}), input_shape=(3,))", torch_module=torch_module)
    if net is None:
        return
    module = eval(f"torch_module({arguments})", {"torch_module": torch_module})

    def run(x: Array, gradients: bool) -> Array:
        with set_grad_enabled(gradients):
            return np.asarray(module(as_tensor(x[None])).detach().numpy(), dtype=float).ravel()

    _compare(rng, log, net, lambda x: [run(x, gradients) for gradients in (True, False, False)])


Piece = tuple[list[Any], dict[str, Any]]


def _one(kind: str, operands: str = "", **attributes: Any) -> Callable[[], Piece]:
    return lambda: ([node(kind, f"h {operands}", "z", **attributes)], {})


def _shown(kind: str, **attributes: Any) -> Callable[[], Piece]:
    """Differences from a line, enlarged: defaults that are single precision numbers show."""
    nodes = [node(kind, "h", "a", **attributes), node("Sub", "a h", "c"), node("Mul", "c many", "z")]
    return lambda: (nodes, {"many": 1e6})


_KINDS = ("Relu", "LeakyRelu", "Selu", "HardSigmoid", "Softplus", "Softsign", "Mish", "Round", "Sign", "Sigmoid", "Abs")
PIECES: Mapping[str, Callable[[], Piece]] = {
    **{kind: _one(kind) for kind in (*_KINDS, "Tanh", "Neg", "Atan", "Sin", "Cos", "Erf", "Floor", "HardSwish")},
    "LeakyRelu given": _one("LeakyRelu", alpha=0.1),
    "Elu": _one("Elu", alpha=0.7),
    "HardSigmoid given": _one("HardSigmoid", alpha=0.3, beta=0.1),
    "Celu": _one("Celu", alpha=0.3),
    "Shrink": _one("Shrink", lambd=0.5),
    "Selu, enlarged": _shown("Selu"),
    "Softplus, enlarged": _shown("Softplus"),
    "Clip": _one("Clip", "low high"),
    "Clip, turned": _one("Clip", "high low"),
    "PRelu": _one("PRelu", "scale"),
    "Dropout": _one("Dropout"),
    "BatchNormalization": _one("BatchNormalization", "scale shift mean var"),
    "random": lambda: ([node("RandomUniformLike", "h", "n", dtype=DOUBLE), node("Add", "h n", "z")], {}),
    "out of order": lambda: ([node("Clip", "h limit", "z"), node("Add", "high high", "limit")], {}),
    "casts": lambda: (
        [node("Cast", "h", "f", to=FLOAT), node("Cast", "f", "g", to=DOUBLE), node("Sub", "g h", "z")],
        {},
    ),
    "huge clip": lambda: (
        [node("Mul", "h up", "a"), node("Clip", "a least most", "c"), node("Mul", "c down", "z")],
        {"up": 1e39, "least": -1e39, "most": 2e38, "down": 1e-39},
    ),
}
"""Nodes from ``h`` to ``z``, and their constants."""


def onnx_model(piece: str, seed: int) -> Any:
    """A model in double precision from ``x`` (1, 3) to ``y``."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, Any] = {"W": (3, 4), "b": 4, "V": (4, 2), "scale": 4, "shift": 4, "mean": 4}
    constants: dict[str, Any] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    nodes, more = PIECES[piece]()
    constants |= {"var": 1e-5 * rng.random(4), "low": -0.5, "high": 0.75, **more}
    ends = node("MatMul", "x W", "h0"), node("Add", "h0 b", "h"), node("MatMul", "z V", "y")
    return model_of([*ends[:2], *nodes, ends[2]], constants, kind=DOUBLE, opset=18)


def onnx(rng: np.random.Generator, log: Log) -> None:
    """One model."""
    from onnx.reference import ReferenceEvaluator

    piece, seed = some(rng, *PIECES), int(rng.integers(2**31))
    net = log.ask(f"lc.load(onnx_model({piece!r}, {seed}))", onnx_model=onnx_model)
    if net is None:
        return
    run: Any = ReferenceEvaluator(onnx_model(piece, seed)).run
    _compare(rng, log, net, lambda x: [np.ravel(run(None, {"x": x[None]})[0])])


def _compare(rng: np.random.Generator, log: Log, net: Network, runs: Callable[[Array], list[Array]]) -> None:
    """The model at natural, large and small points, and at some that single precision cannot hold."""
    if any(layer.coupling is not None for layer in net.layers):  # ``couplings`` asks about their bounds
        pairs = [(x, y) for x in rng.standard_normal((5, 3)) for y in runs(x)]
        log.checks += len(pairs)
        for x, y in pairs:
            if not np.abs(y - net(x)).max() <= 1e-6 * (1.0 + np.abs(y).max()):
                log.violation(f"at {[float(c).hex() for c in x]} the model gives {y}, the network {net(x)}")
        return
    model = Model.of(net)
    points = [size * rng.standard_normal(3) for size in (1e-9, 0.1, 1.0, 3.0, 10.0, 100.0, 1e3, 1e7)]
    for x in [*points, rng.integers(-25, 26, 3) * (1.0 + 2.0**-50), np.zeros(3)]:
        exact = outputs(model, fractions(x), precisions=(256, 1024))
        if exact is None:
            continue
        truth = np.array([float(y.mid()) for y in exact])
        size = np.abs(x)  # of the terms that are added up on the way
        for layer in net.layers:
            size = np.abs(layer.weight) @ size + np.abs(layer.bias)
        noise = _NOISE * np.abs(net(x) - truth).max() + 1e-9 * np.abs(truth).max() + 1e-12 * size.max()
        for y in runs(x):
            if np.isfinite(y).all():
                log.checks += 1
                if y.shape != truth.shape or not np.abs(y - truth).max() <= noise:
                    log.violation(f"at {[float(c).hex() for c in x]} the model gives {y}, the network exactly {truth}")
                    return
