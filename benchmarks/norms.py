"""What norms cost.

Cost is the time of a bound for ℓ∞ inputs, or in units, over
that of a plain ℓ2 bound with the same method and region, least of three runs.

Run: python benchmarks/norms.py                 (784-128-128-128-10 and 6-128-128-3; about a minute on one core)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

import lipcert as lc
from lipcert.methods.method import Method
from lipcert.model.arrays import Array

METHODS: tuple[Method, ...] = (lc.ClosedForm(), lc.Scalar(), lc.Joint())


def random_network(sizes: tuple[int, ...], activation: str, seed: int) -> lc.Network:
    """Weights of size 1.5/√in and biases of size 0.3."""
    rng = np.random.default_rng(seed)
    shapes = [(out, into) for into, out in itertools.pairwise(sizes)]
    weights = [1.5 * rng.standard_normal(shape) / np.sqrt(shape[1]) for shape in shapes]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(shape[0]) for shape in shapes], activation)


def cases() -> dict[str, tuple[lc.Network, Array]]:
    """Networks and a point: an image in [0, 1] for the wide one, whose first layer is divided as training would do."""
    rng = np.random.default_rng(0)
    found = {}
    for activation in ("relu", "tanh"):
        wide = random_network((784, 128, 128, 128, 10), activation, 1)
        found[f"784-128x3-10 {activation}"] = wide, rng.random(784)
        few = random_network((6, 128, 128, 3), activation, 2)
        found[f"6-128-128-3 {activation}"] = few, rng.uniform(-1.0, 1.0, 6)
    return found


def least(action: Callable[[], object], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def costs(network: lc.Network, point: Array, radius: float, method: Method) -> tuple[float, float]:
    """What ℓ∞ inputs, and units, cost over plain ℓ2: over a box, and over a ball."""
    box, ball = lc.Ball(point, radius, norm=lc.LInf()), lc.Ball(point, radius)
    scale = np.geomspace(0.5, 2.0, point.size)
    scaled = lc.Ball(point, radius, norm=lc.L2(scale=scale))
    plain = least(lambda: lc.certify(network, box, method))
    cube = least(lambda: lc.certify(network, box, method, input_norm="linf"))
    round_ = least(lambda: lc.certify(network, ball, method))
    units = least(lambda: lc.certify(network, scaled, method, input_norm=lc.L2(scale=scale)))
    return cube / plain, units / round_


def main() -> None:
    for name, (network, point) in cases().items():
        for method in METHODS:
            cube, units = costs(network, point, 0.05, method)
            print(f"{name:20} {type(method).__name__:10}  cost: ℓ∞ × {cube:.2f}, units × {units:.2f}", flush=True)


if __name__ == "__main__":
    main()
