"""Are time limits kept? Models from five inputs to convolutions, three methods, 1, 5 and 20 seconds.

The rule: at most 1.3 times the limit, plus the time of the first bound, that of ClosedForm.

Run: python benchmarks/clock.py [--models acas,cnn_a] [--seconds 1,5]      (all of it takes about half an hour)
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.methods.method import Method
from lipcert.model.regions import Region
from lipcert.reproduce.cells import paper_center, paper_network

DATA = Path(__file__).parents[2] / "shared/data"
METHODS: dict[str, Callable[[float], Method]] = {
    "Auto": lambda seconds: lc.Auto(seconds),
    "Joint": lambda seconds: lc.Joint(seconds=seconds),
    "Split": lambda seconds: lc.Split(seconds=seconds),
}


def random(sizes: list[int], activation: str, region: Region) -> tuple[lc.Network, Region]:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((n, k)) * 1.5 / np.sqrt(k) for k, n in itertools.pairwise(sizes)]
    biases = [0.3 * rng.standard_normal(n) for n in sizes[1:]]
    return lc.Network.from_weights(weights, biases, activation=activation), region


def paper(width: int, layers: int, activation: str) -> tuple[lc.Network, Region]:
    return paper_network(width, layers, activation), lc.Ball(paper_center(), 1.0)


def stored(name: str, radius: float, level: float = 0.5) -> tuple[lc.Network, Region]:
    network = lc.load(str(DATA / f"{name}.onnx"))
    return network, lc.Ball(np.full(network.inputs, level), radius)


def box(inputs: int) -> lc.Box:
    return lc.Box(-np.ones(inputs), np.ones(inputs))


MODELS: dict[str, Callable[[], tuple[lc.Network, Region]]] = {
    "relu 20 × 10": lambda: paper(20, 10, "relu"),
    "elu 60 × 15": lambda: paper(60, 15, "elu"),
    "tanh 4-64-64-1": lambda: random([4, 64, 64, 1], "tanh", box(4)),
    "silu 12-64-64-4": lambda: random([12, 64, 64, 4], "silu", box(12)),
    "relu 12-256×3-4": lambda: random([12, 256, 256, 256, 4], "relu", lc.Ball(np.zeros(12), 0.3)),
    "acas": lambda: (stored("models/ACASXU_run2a_1_1_batch_2000", 0.0)[0], lc.Box(-0.3 * np.ones(5), 0.3 * np.ones(5))),
    "mnist-net_256x2": lambda: stored("models/mnist-net_256x2", 0.5),
    "sigmoid 6 × 200": lambda: stored("models/ffnnSIGMOID__Point_6x200", 0.1),
    "convsmall": lambda: stored("l2/mnist_convsmall", 0.3),
    "Convnet_avgpool": lambda: stored("models/Convnet_avgpool", 0.1),
    "resnet_2b": lambda: stored("models/resnet_2b", 0.1),
    "cnn_a": lambda: stored("l2/cifar10_cnn_a", 24 / 255 / 0.225, 0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Asked and taken seconds.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", default="1,5,20")
    options = parser.parse_args()
    kept = asked = 0
    for name in options.models.split(","):
        network, region = MODELS[name]()
        clock = time.perf_counter()
        lc.certify(network, region, lc.ClosedForm())
        first = time.perf_counter() - clock
        for method, make in METHODS.items():
            for seconds in map(float, options.seconds.split(",")):
                clock = time.perf_counter()
                found = lc.certify(network, region, make(seconds))
                taken = time.perf_counter() - clock
                good = taken <= 1.3 * seconds + first
                kept, asked = kept + good, asked + 1
                print(
                    f"{name:17} first {first:6.2f} s  {method:5} asked {seconds:4.0f} s, taken {taken:6.2f} s,"
                    f" bound {found.bound:.5g} by {found.found_by:10} {'kept' if good else 'LATE'}",
                    flush=True,
                )
    print(f"{kept} of {asked} within 1.3 × + first")


if __name__ == "__main__":
    main()
