"""Reach boxes against the sampled hull, and against a grid of tiles by linear relaxation.

Run: python benchmarks/reach.py [--seconds 10] [--tiles 4096]          (about two minutes on one core)
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

import lipcert as lc
from lipcert.kernel.hints import Linear
from lipcert.methods.greedy import ClosedForm
from lipcert.model.arrays import Array
from lipcert.questions.prove_outputs import prove_outputs_many


def controller(sizes: tuple[int, ...], seed: int) -> lc.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((n, k)) * 1.2 / np.sqrt(k) for k, n in itertools.pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(n) for n in sizes[1:]], activation="tanh")


def hull(network: lc.Network, box: lc.Box) -> tuple[Array, Array]:
    """What 200,000 samples and an ascent for every side reach."""
    rng = np.random.default_rng(1)
    seen = [network(box.sample(20_000, rng)) for _ in range(10)]
    for output, sign in itertools.product(range(network.outputs), (1.0, -1.0)):
        x = box.sample(200, rng)
        for step in range(60):
            x = box.project(x + 0.2 * 0.96**step * sign * np.sign(network.jacobian(x)[:, output]))
        seen.append(network(x))
    together = np.concatenate(seen)
    return together.min(axis=0), together.max(axis=0)


def tiled(network: lc.Network, box: lc.Box, tiles: int) -> tuple[Array, Array]:
    """The hull of the boxes of equal tiles, each by linear relaxation; axes are halved in turn."""
    halvings = np.bincount(np.arange(int(np.log2(tiles))) % network.inputs, minlength=network.inputs)
    edges = [np.linspace(lo, hi, 2**k + 1) for lo, hi, k in zip(box.lower, box.upper, halvings, strict=True)]
    corners = list(itertools.product(*(itertools.pairwise(edge) for edge in edges)))
    some = [lc.Box([side[0] for side in tile], [side[1] for side in tile]) for tile in corners]
    ends = [found.box() for found in prove_outputs_many(network, some, ClosedForm(), [Linear(depth=None)])]  # type: ignore[union-attr]
    return np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Reach boxes.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tiles", type=int, default=4096)
    options = parser.parse_args()
    for sizes in ((4, 64, 64, 2), (12, 64, 64, 4)):
        for seed in (0, 1):
            network, box = controller(sizes, seed), lc.Box(-np.ones(sizes[0]), np.ones(sizes[0]))
            low, high = hull(network, box)
            print(f"tanh {'-'.join(map(str, sizes))}, seed {seed}: widths of the box over those of the sampled hull")
            for name, method in {"ClosedForm": lc.ClosedForm(), "default": lc.Auto(options.seconds)}.items():
                found = lc.reach(network, box, method)
                ratios = (found.upper - found.lower) / (high - low)
                print(f"  {name:12} {found.seconds:5.1f} s  {np.array2string(ratios, precision=3)}", flush=True)
            clock = time.perf_counter()
            lower, upper = tiled(network, box, options.tiles)
            seconds, ratios = time.perf_counter() - clock, (upper - lower) / (high - low)
            print(f"  {options.tiles} tiles   {seconds:5.1f} s  {np.array2string(ratios, precision=3)}", flush=True)


if __name__ == "__main__":
    main()
