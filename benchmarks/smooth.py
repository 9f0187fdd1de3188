"""Smooth networks with few inputs: how near Split comes to the true constant, and how many boxes it proves per second.

Run: python benchmarks/smooth.py                    the rows below, 20 seconds each
     python benchmarks/smooth.py --seconds 60
     python benchmarks/smooth.py --answers          reach sets and sensitivities of tanh 4-64-64-2 by cuts, 10 seconds
     python benchmarks/smooth.py --controllers      trained controllers of 2, 4 and 6 inputs, 10 seconds (scikit-learn)

Weights are randn·1.5/√inputs and biases 0.3·randn. Use one BLAS thread: OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import numpy as np

import lipcert as lc
from lipcert.model.regions import Region

ROWS = [
    ("tanh", (4, 64, 64, 1), "box", 1.0, 3600),
    ("tanh", (6, 128, 128, 3), "ball", 0.3, 1100),
    ("tanh", (6, 128, 128, 3), "box", 1.0, 1100),
    ("softplus", (6, 64, 64, 64, 3), "box", 1.0, 1400),
    ("silu", (12, 64, 64, 4), "ball", 0.3, None),
    ("silu", (12, 64, 64, 4), "box", 1.0, None),
    ("relu", (12, 64, 64, 4), "ball", 0.3, None),
]
"""Activation, sizes, region, its radius, and nodes per second of a prototype without proof."""


def drawn(sizes: tuple[int, ...], activation: str, gain: float = 1.5, seed: int = 0) -> lc.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((m, n)) * gain / np.sqrt(n) for n, m in pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(m) for m in sizes[1:]], activation)


def row(name: str, network: lc.Network, region: Region, method: lc.Split, prototype: int | None = None) -> float:
    """One line; the ratio of the bound to the lower bound."""
    joint = lc.certify(network, region, lc.Joint(seconds=3.0)).bound
    found = lc.certify(network, region, method)
    lower = lc.lower_bound(network, region, points=found.witness).value
    nodes = 0 if found.tree is None else len(found.tree.layer)
    beside = "" if prototype is None else f" (prototype {prototype})"
    print(
        f"{name:32} Joint {joint / lower:7.3f}  Split {found.bound / lower:7.4f}  {nodes:7d} nodes"
        f" {nodes / found.seconds:6.0f}/s{beside} {found.seconds:6.1f} s",
        flush=True,
    )
    return found.bound / lower


def answers(seconds: float) -> None:
    for seed in range(3):
        network, box = drawn((4, 64, 64, 2), "tanh", 1.2, seed), lc.Box([-1.0] * 4, [1.0] * 4)
        points = box.sample(200_000, np.random.default_rng(1))
        values, sizes = network(points), np.abs(network.jacobian(points[:50_000])).max(axis=0)
        for name in ("reach", "sensitivity"):
            started = time.perf_counter()
            method = lc.Split(seconds=seconds)
            if name == "reach":
                found = lc.reach(network, box, method)
                ratios = (found.upper - found.lower) / (values.max(axis=0) - values.min(axis=0))
            else:
                ratios = (lc.sensitivity(network, box, method).matrix / sizes).ravel()
            taken = time.perf_counter() - started
            print(f"seed {seed} {name:12} over what is sampled: {np.round(ratios, 3)}  {taken:.1f} s", flush=True)


def controllers(seconds: float) -> None:
    from sklearn.neural_network import MLPRegressor

    for inputs, width in ((2, 32), (2, 64), (4, 32), (4, 64), (6, 32)):
        rng = np.random.default_rng(inputs)
        states, gains = rng.uniform(-1.5, 1.5, (3000, inputs)), rng.normal(size=(inputs,))
        torque = 3.0 * np.tanh(states @ gains) + np.sin(states[:, 0])
        model = MLPRegressor(
            hidden_layer_sizes=(width, width),
            activation="tanh",
            solver="lbfgs",
            alpha=1e-2,
            max_iter=400,
            random_state=0,
        )
        model.fit(states, torque)
        network = lc.Network.from_weights([weight.T for weight in model.coefs_], model.intercepts_, "tanh")
        method = lc.Split(seconds=seconds, tolerance=0.01)
        row(f"controller {inputs}-{width}-{width}-1", network, lc.Box([-1.0] * inputs, [1.0] * inputs), method)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--controllers", action="store_true")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    asked = parser.parse_args()
    if asked.answers or asked.controllers:
        (answers if asked.answers else controllers)(asked.seconds or 10.0)
        return
    for activation, sizes, kind, radius, prototype in ROWS:
        name = f"{activation} {'-'.join(map(str, sizes))} {kind} {radius}"
        network, size = drawn(sizes, activation), sizes[0]
        region: Region = (
            lc.Ball(np.zeros(size), radius) if kind == "ball" else lc.Box([-radius] * size, [radius] * size)
        )
        if asked.only in name:
            method = lc.Split(seconds=asked.seconds or 20.0, tolerance=0.01)
            row(name, network, region, method, prototype)


if __name__ == "__main__":
    main()
