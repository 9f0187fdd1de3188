"""What a matrix of bounds for all pairs costs, and how tight it is: 20 inputs, 10 outputs.

Run: python benchmarks/sensitivity.py        (about a minute)

Cost is CPU time relative to one certify with the same method, least of several runs. Tightness is the geometric mean
over pairs of the bound relative to certify(inputs=[k], outputs=[j]), which makes a pass of its own for the pair.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

import lipcert as lc
from lipcert.methods.method import Method

SIZES = ((20, 50, 50, 50, 10), (20, 100, 100, 10), (20, 40, 40, 40, 40, 40, 10), (20, 128, 128, 128, 10))
METHODS: tuple[Method, ...] = (lc.ClosedForm(), lc.Scalar())


def network(sizes: tuple[int, ...], activation: str) -> lc.Network:
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((out, into)) for into, out in itertools.pairwise(sizes)]
    weights = [2.0 * w / (np.sqrt(w.shape[0]) + np.sqrt(w.shape[1])) for w in weights]
    return lc.Network.from_weights(weights, [0.5 * rng.standard_normal(w.shape[0]) for w in weights], activation)


def least(action: Callable[[], object], runs: int = 7) -> float:
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    costs = []
    for sizes, activation, method in itertools.product(SIZES, ("relu", "elu", "tanh"), METHODS):
        net, ball = network(sizes, activation), lc.Ball(np.linspace(-1.0, 1.0, 20), 0.3)
        one = least(lambda net=net, ball=ball, method=method: lc.certify(net, ball, method))  # type: ignore[misc]
        all_pairs = least(lambda net=net, ball=ball, method=method: lc.sensitivity(net, ball, method))  # type: ignore[misc]
        matrix = lc.sensitivity(net, ball, method).matrix
        chosen = [(j, k) for j in (0, 4, 9) for k in (0, 7, 13)]
        single = [lc.certify(net, ball, method, inputs=[k], outputs=[j]).bound for j, k in chosen]
        ratio = np.exp(np.mean(np.log([matrix[pair] / bound for pair, bound in zip(chosen, single, strict=True)])))
        costs.append(all_pairs / one)
        name = "-".join(map(str, sizes))
        print(f"{name:24} {activation:5} {type(method).__name__:10}", end=" ")
        print(
            f"certify {1e3 * one:6.1f} ms   all 200 pairs × {costs[-1]:.2f}   bound / pair alone {ratio:.3f}",
            flush=True,
        )
    print(f"cost: at most × {max(costs):.2f}, geometric mean × {np.exp(np.mean(np.log(costs))):.2f}")


if __name__ == "__main__":
    main()
