"""Joint's cost against depth: time and memory of one value with gradient, at width 100.

Run: python benchmarks/depth.py [--width 100]        (under a minute; nothing is written)

A global ReLU problem, in which every neuron of every layer has a multiplier: the most there can be. Processor time of
one BLAS thread, medians; beside it that of the bare products W P Wᵀ and Wᵀ P̄ W of all layers. Memory is the peak that
tracemalloc sees. Per layer both should stay the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

import lipcert as lc
from lipcert.methods.joint import Chain
from lipcert.methods.method import Kept

DEPTHS = (20, 40, 80)


def median(action: Callable[[], object], repeats: int = 7) -> float:
    spent = []
    for turn in range(repeats + 1):
        start = time.process_time()
        action()
        if turn:  # the first one warms up
            spent.append(time.process_time() - start)
    return statistics.median(spent)


def square(width: int, layers: int) -> lc.Network:
    rng = np.random.default_rng(0)
    sizes = [width] * (layers + 1)
    return lc.Network.from_weights([rng.standard_normal((n, n)) * (0.6 / np.sqrt(n)) for n in sizes[1:]])


def products(network: lc.Network) -> Callable[[], object]:
    """The matrix products that no method can do without, forwards and backwards."""
    weights = [layer.weight for layer in network.layers[1:]]
    P = np.eye(len(weights[0])) + 0.01

    def action() -> None:
        for W in weights:
            (W @ P) @ W.T
            (W.T @ P) @ W

    return action


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=100)
    width = parser.parse_args().width
    print(f"{'layers':>6} {'ms a step':>10} {'ms a layer':>11} {'÷ bare products':>16} {'peak MB':>8}", end="")
    print(f" {'matrices a layer':>17}")
    for depth in DEPTHS:
        network = square(width, depth)
        ones = np.ones(width)
        hidden = [Kept(0.0 * ones, ones, layer.weight, np.arange(width)) for layer in network.layers[1:]]
        chain = Chain(network.layers[0].weight, hidden)
        x = np.full(chain.size, np.log(width) + 1.0)
        seconds, bare = median(partial(chain, x, 1e-3)), median(products(network))
        tracemalloc.start()
        chain(x, 1e-3)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"{depth:6} {1e3 * seconds:10.2f} {1e3 * seconds / depth:11.3f} {seconds / bare:16.2f} {peak / 1e6:8.1f}"
            f" {peak / (8.0 * depth * width**2):17.2f}",
            flush=True,
        )


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
