"""Certified radii: pairs of classes and a search, against the plain rule on a grid; and attacks.

Run: python benchmarks/robustness.py                (1,000 digits of scikit-learn, about two minutes)
     python benchmarks/robustness.py --mnist 200    (so many MNIST test images, 784-128-128-128-10 ELU)

plain: max over ε = 2, 1, 1/2 … 1/256 of min(ε, margin/(√2·L(ε))). The other rows say what each change adds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array

GRID = [2.0**-k for k in range(-1, 9)]
RULES: dict[str, dict[str, Any]] = {
    "plain, on a grid": {"pairwise": False, "radii": GRID},
    "plain, searched": {"pairwise": False},
    "pairs, on a grid": {"relaxation": False, "curvature": False, "radii": GRID},
    "pairs, searched": {"relaxation": False, "curvature": False},
    "pairs and relaxation, searched": {"curvature": False},
    "and curvature": {},
}


def digits() -> tuple[lc.Network, Array, Array]:
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    data = load_digits()
    x, y = data.data / 16.0, data.target
    order = np.random.default_rng(0).permutation(len(x))
    model = MLPClassifier((32, 32), alpha=1e-2, max_iter=200, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[order[:797]], y[order[:797]])
    network = lc.Network.from_weights([w.T for w in model.coefs_], model.intercepts_, "relu")
    return network, x[order[797:]], y[order[797:]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Certified radii by several rules.")
    parser.add_argument("--mnist", type=int, metavar="N", help="MNIST test images instead of digits")
    parser.add_argument("--points", type=int, default=1000, help="digits")
    options = parser.parse_args()
    if options.mnist:
        from mnist import classifier, images

        network, (x, y) = classifier(), images()
        x, y = x[: options.mnist], y[: options.mnist]
    else:
        network, x, y = digits()
        x, y = x[: options.points], y[: options.points]
    right = network(x).argmax(axis=1) == y
    print(f"{len(x)} points, {100 * right.mean():.2f} % classified as they should be")
    radii: dict[str, Array] = {}
    for name, rule in RULES.items():
        started = time.perf_counter()
        radii[name] = np.array([lc.certified_radius(network, *pair, **rule).radius for pair in zip(x, y, strict=True)])
        seconds = (time.perf_counter() - started) / len(x)
        gain = radii[name].mean() / radii["plain, on a grid"].mean()
        print(f"{name:32} mean radius {radii[name].mean():.4f}   × {gain:.3f}   {1e3 * seconds:.0f} ms a point")
    best = radii["and curvature"]
    for name in ("plain, on a grid", "pairs, searched"):
        print(f"points where the last row is below '{name}': {np.count_nonzero(best < radii[name])}")
    inside = lc.attack(network, x[right], y[right], best[right], restarts=5)
    print(f"attacks that succeed within the certified radius: {np.count_nonzero(inside.found)} of {right.sum()}")
    broken = lc.attack(network, x[right], y[right], 8.0, restarts=5).distances
    share = np.median(best[right] / broken)
    print(f"broken at a mean distance of {broken.mean():.4f}; certified/broken: median {share:.3f}")


if __name__ == "__main__":
    main()
