"""Models with an odd feature: the imported network computes what the model computes, or the import is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from attack.draw import some
from attack.log import Log
from attack.points import fractions
from attack.torch_modules import NAMES as TORCH
from attack.torch_modules import torch_module
from attack.truth import Model, outputs
from lipcert.model.arrays import Array
from lipcert.model.network import Network

_NOISE = 256.0
"""How many times the error of our own evaluation in floating point the model's may be."""


def torch_traps(rng: np.random.Generator, log: Log) -> None:
    """One module."""
    import torch

    name, seed = some(rng, *TORCH), int(rng.integers(2**31))
    code = f"lc.load(torch_module({name!r}, {seed}), input_shape=(3,))"
    with _around(name):
        net = log.ask(code, torch_module=torch_module)
        if net is None:
            return
        module = torch_module(name, seed)

        def run(x: Array) -> Array:
            return np.asarray(module(torch.as_tensor(x[None])).detach().numpy(), dtype=float).ravel()

        def quietly(x: Array) -> Array:
            with torch.no_grad():
                return run(x)

        _compare(rng, log, net, [quietly, run])


def onnx_traps(rng: np.random.Generator, log: Log) -> None:
    """One model."""
    from onnx.reference import ReferenceEvaluator

    from attack.onnx_models import NAMES, onnx_model

    name, seed = some(rng, *NAMES), int(rng.integers(2**31))
    net = log.ask(f"lc.load(onnx_model({name!r}, {seed}))", onnx_model=onnx_model)
    if net is None:
        return
    try:
        evaluator = ReferenceEvaluator(onnx_model(name, seed))
        evaluator.run(None, {"x": np.zeros((1, net.inputs))})
    except Exception as error:
        log.violation(f"onnx itself refuses the model: {type(error).__name__}: {str(error)[:200]}")
        return

    def run(x: Array) -> Array:
        found: Any = evaluator.run(None, {"x": x[None]})
        return np.asarray(found[0], dtype=np.float64).ravel()

    _compare(rng, log, net, [run])


@contextmanager
def _around(name: str) -> Iterator[None]:
    """Whatever a trap sets up outside its module, while it lasts."""
    if name != "global_hook":
        yield
        return
    import torch

    def doubled(module: Any, given: Any, result: Any) -> Any:
        return 2.0 * result if type(module).__name__ == "Wrapped" else result

    handle = torch.nn.modules.module.register_module_forward_hook(doubled)
    try:
        yield
    finally:
        handle.remove()


def _compare(rng: np.random.Generator, log: Log, net: Network, runs: list[Callable[[Array], Array]]) -> None:
    model = Model.of(net)
    for x in _points(rng, net.inputs):
        exact = outputs(model, fractions(x), precisions=(256, 1024))
        if exact is None:
            continue
        truth = np.array([float(y.mid()) for y in exact])
        with np.errstate(all="ignore"):
            noise = _NOISE * np.abs(net(x) - truth).max() + 1e-9 * np.abs(truth).max() + 1e-12 * _size(net, x)
        for run in runs:
            theirs = [run(x), run(x)]
            if not all(np.isfinite(y).all() for y in theirs):
                continue
            log.checks += 1
            for y in theirs:
                if y.shape != truth.shape or np.abs(y - truth).max() > noise:
                    log.violation(f"at {[float(c).hex() for c in x]} the model gives {y}, the network exactly {truth}")
                    return


def _size(net: Network, x: Array) -> float:
    """About the size of the terms that are added up on the way."""
    size = np.abs(x)
    for layer in net.layers:
        size = np.abs(layer.weight) @ size + np.abs(layer.bias)
    return float(np.max(size)) if np.isfinite(size).all() else np.inf


def _points(rng: np.random.Generator, d: int) -> list[Array]:
    """Natural points, large and small ones, and some that single precision cannot hold."""
    found = [size * rng.standard_normal(d) for size in (0.1, 1.0, 3.0, 10.0, 100.0)]
    found += [1e3 * rng.standard_normal(d), 1e7 * rng.standard_normal(d), 1e-9 * rng.standard_normal(d)]
    found += [rng.integers(-25, 26, d).astype(float) * (1.0 + 2.0**-50), np.zeros(d)]
    return found
