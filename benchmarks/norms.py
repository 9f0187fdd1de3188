"""Bounds for ℓ∞ inputs against interval Jacobians from the same enclosures, and what norms cost.

Interval Jacobians bound every entry by itself and add up, as tools for ℓ∞ robustness do (published.JacobianBox). The
gain is their bound over lipcert's; it is never below one. Cost is the time of a bound for ℓ∞ inputs, or in units, over
that of a plain ℓ2 bound with the same method and region, least of three runs.

Run: python benchmarks/norms.py                 (784-128-128-128-10 and 6-128-128-3; about a minute on one core)
     python benchmarks/norms.py --images 5 --radii 0.1
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.methods.method import Method
from lipcert.model.arrays import Array

METHODS: tuple[Method, ...] = (lc.ClosedForm(), lc.Scalar(), lc.Joint())
PAIRS = (("linf", "linf"), ("linf", "l2"), ("linf", "l1"))


def random_network(sizes: tuple[int, ...], activation: str, seed: int) -> lc.Network:
    """Weights of size 1.5/√in and biases of size 0.3."""
    rng = np.random.default_rng(seed)
    shapes = [(out, into) for into, out in itertools.pairwise(sizes)]
    weights = [1.5 * rng.standard_normal(shape) / np.sqrt(shape[1]) for shape in shapes]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(shape[0]) for shape in shapes], activation)


def cases(images: int) -> dict[str, tuple[lc.Network, Array]]:
    """Networks and points: images in [0, 1] for the wide one, whose first layer is divided as training would do."""
    rng = np.random.default_rng(0)
    found = {}
    for activation in ("relu", "tanh"):
        wide = random_network((784, 128, 128, 128, 10), activation, 1)
        found[f"784-128x3-10 {activation}"] = wide, rng.random((images, 784))
        few = random_network((6, 128, 128, 3), activation, 2)
        found[f"6-128-128-3 {activation}"] = few, rng.uniform(-1.0, 1.0, (images, 6))
    return found


def least(action: Callable[[], object], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def gains(network: lc.Network, points: Array, radii: list[float]) -> dict[tuple[str, str], list[float]]:
    """The interval Jacobian's bound over that of Scalar, for each pair of norms."""
    found: dict[tuple[str, str], list[float]] = {pair: [] for pair in PAIRS}
    for point, radius in itertools.product(points, radii):
        ball = lc.Ball(point, radius, norm=lc.LInf())
        for p, q in PAIRS:
            ends: dict[str, Any] = {"input_norm": p, "output_norm": q}
            box = lc.certify(network, ball, lc.published.JacobianBox(), **ends)
            own = lc.certify(network, ball, lc.Scalar(), **ends)
            found[p, q].append(box.bound / own.bound)
    return found


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
    parser = argparse.ArgumentParser(description="Bounds for ℓ∞ inputs, and what norms cost.")
    parser.add_argument("--images", type=int, default=1, help="points for each network")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.5])
    options = parser.parse_args()
    everything = []
    for name, (network, points) in cases(options.images).items():
        for pair, found in gains(network, points, options.radii).items():
            print(
                f"{name:20} {pair[0]} → {pair[1]:4}  gain: least {min(found):.3f}, median {np.median(found):.3f}",
                flush=True,
            )
            everything += found
        for method in METHODS:
            cube, units = costs(network, points[0], 0.05, method)
            print(f"{name:20} {type(method).__name__:10}  cost: ℓ∞ × {cube:.2f}, units × {units:.2f}", flush=True)
    print(f"all: least gain {min(everything):.3f}, median {np.median(everything):.3f}")


if __name__ == "__main__":
    main()
