"""What the engine costs, as ratios taken in one run: `python benchmarks/engine.py [--repeats 5]`.

Processor time of one BLAS thread, so that other work on the machine matters little; wall time where threads are
compared.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

import lipcert as lc
from lipcert.kernel.hints import Enclosure, Linear, Lipschitz
from lipcert.methods.method import Method
from lipcert.reproduce.cells import paper_center, paper_network

ENCLOSURES: dict[str, tuple[Enclosure, ...]] = {
    "Lipschitz": (Lipschitz(),),
    "Lipschitz, Linear(depth=8)": (Lipschitz(), Linear(depth=8)),
    "Lipschitz, Linear()": (Lipschitz(), Linear()),
}


def interleaved(
    actions: Sequence[Callable[[], object]], repeats: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Median seconds of each action; they take turns, so that a slow spell of the machine hits all alike."""
    seconds: list[list[float]] = [[] for _ in actions]
    for turn in range(repeats + 1):
        for action, record in zip(actions, seconds, strict=True):
            start = clock()
            action()
            if turn:  # the first round warms up
                record.append(clock() - start)
    return [statistics.median(record) for record in seconds]


def square(size: int, layers: int, activation: str) -> lc.Network:
    """A network whose layers all have the same size; a deeper one begins like a shallower one."""
    rng = np.random.default_rng(0)
    draws = [(rng.standard_normal((size, size)), rng.standard_normal(size)) for _ in range(layers)]
    weights, biases = [w * (1.1 / math.sqrt(size)) for w, _ in draws], [b for _, b in draws]
    return lc.Network.from_weights(weights, biases, activation)


def bounding(
    network: lc.Network, radius: float, method: Method, enclosures: tuple[Enclosure, ...]
) -> Callable[[], object]:
    ball = lc.Ball(np.zeros(network.inputs), radius)
    return lambda: lc.certify(network, ball, method, enclosures=enclosures)


def depth(repeats: int) -> None:
    print("Depth, width 100: time per layer relative to 20 layers; and that of layers 41-80 relative to layers 21-40")
    networks = {n: square(100, n, "leaky_relu") for n in (20, 40, 80)}
    for method in (lc.ClosedForm(), lc.Scalar()):
        for name, enclosures in ENCLOSURES.items():
            actions = [bounding(net, 1.0, method, enclosures) for net in networks.values()]
            seconds = interleaved(actions, repeats)
            rates = [s / n for s, n in zip(seconds, networks, strict=True)]
            row = "  ".join(f"{n}: {rate / rates[0]:.2f}" for n, rate in zip(networks, rates, strict=True))
            marginal = (seconds[2] - seconds[1]) / (2.0 * (seconds[1] - seconds[0]))
            print(f"  {method!s:24} {name:28} {row}  further: {marginal:.2f}   ({1e3 * rates[0]:.1f} ms a layer)")


def width(repeats: int, size: int = 1024, layers: int = 4) -> None:
    print(f"ClosedForm with the Lipschitz enclosure, width {size}, {layers} layers, against the products W(PWᵀ) alone")
    network = square(size, layers, "relu")
    P = np.random.default_rng(0).standard_normal((size, size))
    P = P @ P.T / size

    def products() -> None:
        for layer in network.layers:
            layer.weight @ (P @ layer.weight.T)

    with threadpool_limits(1):
        bare, engine = interleaved([products, bounding(network, 3.0, lc.ClosedForm(), (Lipschitz(),))], repeats)
    print(f"  {engine / bare:.2f}×   (engine {engine:.2f} s, products {bare:.2f} s, target 6×)")


def threads(repeats: int, size: int = 128, layers: int = 30) -> None:
    print(f"Two BLAS threads against one, width {size}, {layers} layers, wall time; the engine limits itself")
    network = square(size, layers, "leaky_relu")
    action = bounding(network, 1.0, lc.ClosedForm(), (Lipschitz(),))
    W = np.random.default_rng(0).standard_normal((size, size))

    def limited(count: int, run: Callable[[], object]) -> Callable[[], object]:
        def go() -> None:
            with threadpool_limits(count):
                run()

        return go

    def product() -> None:
        for _ in range(layers):
            W @ (W @ W.T)

    runs = [limited(1, action), limited(2, action), limited(1, product), limited(2, product)]
    one, two, bare_one, bare_two = interleaved(runs, repeats, time.perf_counter)
    print(f"  engine {two / one:.2f}×   (products without the limit {bare_two / bare_one:.2f}×)")


def diagonal() -> None:
    print("Diagonal, ELU, width 100, 60 layers, radius √5 (the paper's Acc: 1,109 s)")
    network = paper_network(100, 60, "elu")
    ball = lc.Ball(paper_center(), math.sqrt(5))
    for method in (lc.Scalar(), lc.Diagonal()):
        start = time.process_time()
        bound = lc.certify(network, ball, method).bound
        print(f"  {method!s:28} bound {bound:.3e}   {time.process_time() - start:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["depth", "width", "threads", "diagonal"])
    chosen = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "depth": lambda: depth(chosen.repeats),
        "width": lambda: width(chosen.repeats),
        "threads": lambda: threads(chosen.repeats),
        "diagonal": diagonal,
    }
    for name, part in parts.items():
        if chosen.only in (None, name):
            part()


if __name__ == "__main__":
    main()
