"""What proofs of small networks cost over a sketch of the same mathematics: `python benchmarks/small.py`.

The sketch is ``kernel.py`` of a folder beside the project: ClosedForm for ReLU over one ball in 160 lines, errors
carried along. It says how fast the product could be. One process and one thread; medians of runs that take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import lipcert as lc
from engine import interleaved

SKETCH = Path(__file__).parents[2] / "shared" / "proto" / "kernel.py"
CASES = [(5, 20, True), (10, 60, False), (20, 40, False), (5, 20, False), (20, 40, True)]
"""Layers, width, and whether back-substitution takes part besides the Lipschitz enclosure."""


def sketch(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("sketch", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network(layers: int, width: int) -> lc.Network:
    rng = np.random.default_rng(0)
    sizes = [10, *[width] * (layers - 1), 3]
    weights = [rng.standard_normal((n, m)) * math.sqrt(1.6 / m) for m, n in pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.1 * rng.standard_normal(n) for n in sizes[1:]], "relu")


def small(path: Path, repeats: int) -> None:
    module = sketch(path)
    print("ClosedForm, ReLU, one ball, proved: time over that of the sketch, and the bound over its bound")
    for layers, width, linear in CASES:
        net, ball = network(layers, width), lc.Ball(np.full(10, 0.1), 0.1)
        weights, biases = [np.array(layer.weight) for layer in net.layers], [layer.bias for layer in net.layers]
        enclosures = (lc.Lipschitz(), lc.Linear()) if linear else (lc.Lipschitz(),)
        found: list[float] = [0.0, 0.0]

        def product(
            net: lc.Network = net, ball: lc.Ball = ball, found: list[float] = found, e: Any = enclosures
        ) -> None:
            found[0] = lc.certify(net, ball, lc.ClosedForm(), enclosures=e).bound

        def other(w: Any = weights, b: Any = biases, found: list[float] = found, linear: bool = linear) -> None:
            found[1] = float(module.sweep(w, b, "relu", np.full(10, 0.1), 0.1, linear))

        ours, theirs = interleaved([product, other], repeats, time.process_time)
        name = f"{layers} x {width}, {'both enclosures' if linear else 'Lipschitz'}"
        print(f"  {name:28} {ours / theirs:5.2f}   bound {found[0] / found[1]:.6f}   ({1e3 * ours:.2f} ms)")


def stack(repeats: int, count: int = 2000) -> None:
    rng = np.random.default_rng(0)
    sizes = [5, *[40] * 9, 2]
    weights = [rng.standard_normal((n, m)) * math.sqrt(1.6 / m) for m, n in pairwise(sizes)]
    net = lc.Network.from_weights(weights, [0.1 * rng.standard_normal(n) for n in sizes[1:]], "relu")
    balls = [lc.Ball(center, 0.1) for center in rng.standard_normal((count, 5))]
    few = balls[: count // 20]
    together: Callable[[], object] = lambda: lc.certify_many(net, balls, lc.ClosedForm())  # noqa: E731
    alone: Callable[[], object] = lambda: [lc.certify(net, ball, lc.ClosedForm()) for ball in few]  # noqa: E731
    many, loop = interleaved([together, alone], repeats, time.process_time)
    print(f"{count} balls of 5 -> 40 x9 -> 2 as a stack: {20 * loop / many:.1f}x as fast as a loop (over a twentieth)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sketch", type=Path, default=SKETCH)
    chosen = parser.parse_args()
    with threadpool_limits(1):
        if chosen.sketch.exists():
            small(chosen.sketch, chosen.repeats)
        else:
            print(f"no sketch at {chosen.sketch}: skipped")
        stack(max(2, chosen.repeats // 5))


if __name__ == "__main__":
    main()
