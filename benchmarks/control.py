"""What can be proved of public neural controllers: commands, evaluations in float32 and with int8 weights, tubes.

Run: python benchmarks/control.py FOLDER        (some minutes; FOLDER has the ONNX files of the ARCH competition)

Initial states, gains and dynamics are those of the competition's reports, in words below. Plants are discretised by
Euler's rule, which is part of the question: what it leaves out of the plant is not bounded. "met" is the largest
error or difference among 10⁶ random evaluations; the bound of a command is compared with its sampled range.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array, dense

COUNT = 1_000_000
SECONDS = 10.0
PRODUCTS = "not yet: its plant has products of states, which loops do not have"


@dataclass(frozen=True)
class Case:
    """A controller, the states that its loop begins with, and its step (or why there is none)."""

    file: str
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    loop: Callable[[lc.Network], lc.Network] | str
    steps: int = 0


def held(rates: Callable[[int], tuple[Any, Any, Any]], states: int, control: float, pieces: int) -> lc.Network:
    """The plant over one period of a held control, by Euler's rule in pieces; rates are W1, W2 and activations."""
    first, last, activations = rates(states)
    dt = control / pieces
    keep = np.eye(states + 1)
    W2 = np.vstack([dt * np.asarray(last), np.zeros((1, len(first)))])
    step = lc.Network.from_weights(
        [np.vstack([first, keep]), np.hstack([W2, keep])], activation=[[*activations, *["identity"] * (states + 1)]]
    )
    return lc.compose(*[step] * pieces).select(outputs=range(states))


def pendulum(states: int) -> tuple[Any, Any, Any]:
    """θ'' = (g/l) sin θ + u/(m l²), with m = 0.5, l = 0.5, g = 1, no friction."""
    return [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 0], [2.0, 0, 8.0]], ["sin", "identity", "identity"]


def tora(states: int) -> tuple[Any, Any, Any]:
    """x1' = x2, x2' = -x1 + 0.1 sin x3, x3' = x4, x4' = u - 10."""
    first = np.vstack([np.eye(5), np.eye(5)[2]])
    last = [[0, 1, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0.1], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]
    return first, last, [*["identity"] * 5, "sin"]


def shifted(network: lc.Network, shift: float) -> lc.Network:
    """The network plus a number."""
    return lc.compose(network, lc.Network.from_weights([np.eye(network.outputs)], [np.full(network.outputs, shift)]))


CASES = {
    "single pendulum": Case(
        "Single_Pendulum__controller_single_pendulum.onnx",
        (1.0, 0.0),
        (1.175, 0.2),
        lambda u: lc.closed_loop(held(pendulum, 2, 0.05, 1), u),
        20,
    ),
    "TORA": Case(
        "Benchmark9-Tora__controllerTora.onnx",
        (0.6, -0.7, -0.4, 0.5),
        (0.7, -0.6, -0.3, 0.6),
        lambda u: lc.closed_loop(held(tora, 4, 1.0, 10), shifted(u, -10.0)),
        5,
    ),
    "unicycle": Case(
        "Benchmark10-Unicycle__controllerB.onnx", (9.5, -4.5, 2.1, 1.5), (9.55, -4.45, 2.11, 1.51), PRODUCTS
    ),
    "cart-pole": Case("CartPole__model.onnx", (-0.1, -0.05, -0.1, -0.05), (0.1, 0.05, 0.1, 0.05), PRODUCTS),
    "double pendulum": Case(
        "Double_Pendulum__controller_double_pendulum_more_robust.onnx", (1.0,) * 4, (1.3,) * 4, PRODUCTS
    ),
    "NAV": Case("NAV__networks__nn-nav-point.onnx", (2.9, 2.9, 0.0, 0.0), (3.1, 3.1, 0.0, 0.0), PRODUCTS),
    "QUAD": Case("QUAD__model.onnx", (-0.4,) * 6 + (0.0,) * 6, (0.4,) * 6 + (0.0,) * 6, PRODUCTS),
    "VCAS": Case(
        "VCAS__onnx_networks__VertCAS_noResp_pra01_v9_20HU_200.onnx",
        (-0.016, -0.11, 0.1),
        (-0.015, -0.09, 0.125),
        "not yet: its loop chooses among nine networks",
    ),
}


def float32(network: lc.Network, x: Array) -> Array:
    """An evaluation in float32, by numpy's matrix products."""
    z = x.astype(np.float32)
    for layer in network.layers:
        z = z @ dense(layer.weight).astype(np.float32).T + layer.bias.astype(np.float32)
        z = z if layer.neurons is None else layer.neurons.value(z).astype(np.float32)
    return z.astype(float)


def int8(network: lc.Network) -> lc.Network:
    """Weights on a grid of 255 numbers, one grid per layer."""
    weights = []
    for layer in network.layers:
        W = dense(layer.weight)
        unit = np.abs(W).max() / 127
        weights.append(np.round(W / unit) * unit)
    rows = [layer.neurons for layer in network.layers if layer.neurons is not None]
    return lc.Network.from_weights(weights, [layer.bias for layer in network.layers], rows)


def sampled(action: Callable[[Array], Array], box: lc.Box) -> Array:
    """What an action gives at random inputs that float32 has."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(100):
        x = rng.uniform(box.lower, box.upper, (COUNT // 100, len(box.lower))).astype(np.float32).astype(float)
        parts.append(action(np.clip(x, box.lower, box.upper).astype(np.float32).astype(float)))
    return np.concatenate(parts)


def show(name: str, case: Case, folder: Path, seconds: float) -> None:
    network, box = lc.load(folder / case.file), lc.Box(case.lower, case.upper)
    print(f"{name}: {network}")
    started = time.perf_counter()
    reached, values = lc.reach(network, box, seconds=seconds), sampled(network, box)
    ratio = ((reached.upper - reached.lower) / np.ptp(values, axis=0)).max()
    print(f"  commands     {ratio:.3f} of the sampled width, {reached.seconds:.1f} s")
    for what, found, apart in (
        ("float32", lc.evaluation_error(network, box, seconds=seconds), lambda x: float32(network, x) - network(x)),
        ("int8", lc.difference(network, int8(network), box, seconds=seconds), lambda x: int8(network)(x) - network(x)),
    ):
        met = np.abs(sampled(apart, box)).max(axis=0)
        worst = float((found.bound / met).max())
        print(f"  {what:<12} at most {found.bound.max():.3g}, {worst:.3g} times what is met, {found.seconds:.1f} s")
    if isinstance(case.loop, str):
        print(f"  loop         {case.loop}")
        return
    step = case.loop(network)
    tube = lc.tube(step, box, case.steps, seconds=3 * seconds)
    x, ratios = box.sample(100_000, np.random.default_rng(0)), []
    for k in range(1, case.steps + 1):
        x = step(x)
        ratios.append(float(((tube.upper[k] - tube.lower[k]) / np.ptp(x, axis=0)).max()))
    print(f"  tube         {case.steps} steps, at most {max(ratios):.3f} of the sampled width, {tube.seconds:.1f} s")
    print(f"               at the end {np.round(tube.lower[-1], 3)} to {np.round(tube.upper[-1], 3)}")
    print(f"  all          {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="one of the controllers")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each question")
    arguments = parser.parse_args()
    for name, case in CASES.items():
        if arguments.only in (None, name):
            show(name, case, arguments.folder, arguments.seconds)


if __name__ == "__main__":
    main()
