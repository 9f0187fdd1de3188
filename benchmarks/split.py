"""How near Split comes to the true constant, and how many nodes it bounds per second.

Run: python benchmarks/split.py --table --seconds 120      the 20 networks of Table 1, radius 1; two minutes
     python benchmarks/split.py --rate                                  nodes per second, one process
     python benchmarks/split.py --mnist FOLDER --images 20 --seconds 60 mnist-net_256x2 at radius 0.05

With --tolerance 0.001 a table goes on to a thousandth of the true constant, which takes longer.

FOLDER holds models/mnist-net_256x2.onnx and mnist/t10k-images-idx3-ubyte.gz. Seconds are for each network or image;
each node of the tree is bounded and proved once.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import time
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.reproduce.cells import paper_center, paper_network

WIDTHS, LAYERS = (10, 20, 40, 60), (5, 10, 15, 20, 25)
PROTOTYPE = {(10, 5): (1050.0, math.sqrt(5.0)), (40, 5): (580.0, 1.0), (60, 15): (83.0, 1.0)}
"""Pieces a second of a first prototype (axis halving, closed form, no proof) on one core; the radius that is timed.

At radius 1 there is nothing to time on 10 × 5: a fraction of a second and 151 nodes reach the constant itself.
"""


def row(name: str, network: lc.Network, region: Region, seconds: float, tolerance: float) -> tuple[float, float]:
    """One line of a table; the ratio to the lower bound without nodes and with."""
    before = lc.certify(network, region, lc.Joint(seconds=3.0))
    after = lc.certify(network, region, lc.Split(seconds=seconds, tolerance=tolerance))
    lower = lc.lower_bound(network, region, points=after.witness).value
    nodes = 0 if after.tree is None else len(after.tree.layer)
    print(
        f"{name:10} {before.bound:11.4g} {after.bound:11.4g} {lower:11.4g} {before.bound / lower:8.3f}"
        f" {after.bound / lower:8.3f} {nodes:8d} {nodes / after.seconds:8.0f}/s {after.seconds:7.1f} s",
        flush=True,
    )
    return before.bound / lower, after.bound / lower


def header(name: str) -> None:
    print(f"{name:10} {'Joint':>11} {'Split':>11} {'lower':>11} {'Joint/l':>8} {'Split/l':>8} {'nodes':>8}")


def table(seconds: float, tolerance: float) -> None:
    header("network")
    ratios = []
    for width, layers in itertools.product(WIDTHS, LAYERS):
        network = paper_network(width, layers, "relu")
        name, ball = f"{width} x {layers}", lc.Ball(paper_center(), 1.0)
        ratios.append(row(name, network, ball, seconds, tolerance)[1])
    found = np.array(ratios)
    counts = [f"≤ {1 + most:g} on {(found <= (1 + most) * (1 + 1e-9)).sum()}" for most in (0.001, 0.01, 0.05, 0.2)]
    print(f"ratio {', '.join(counts)} of {len(found)}")
    wide = lc.Ball(paper_center(), math.sqrt(5.0))
    row("60 x 15 √5", paper_network(60, 15, "relu"), wide, seconds, tolerance)


def rate(seconds: float) -> None:
    for (width, layers), (prototype, radius) in PROTOTYPE.items():
        network = paper_network(width, layers, "relu")
        method = lc.Split(method=lc.ClosedForm(), seconds=seconds, tolerance=1e-6)
        clock = time.process_time()  # processor time, so that other work on the machine does not count
        certificate = lc.certify(network, lc.Ball(paper_center(), radius), method)
        nodes = 0 if certificate.tree is None else len(certificate.tree.layer)
        per_second = nodes / (time.process_time() - clock)
        print(
            f"{width} x {layers}, radius {radius:.3g}: {nodes} nodes, {per_second:.0f} per processor second,"
            f" {per_second / prototype:.2f} × the prototype's"
        )


def mnist(folder: Path, images: int, seconds: float, tolerance: float) -> None:
    network = lc.load(folder / "models" / "mnist-net_256x2.onnx")
    header("image")
    for number, image in enumerate(_images(folder / "mnist" / "t10k-images-idx3-ubyte.gz", images)):
        row(str(number), network, lc.Ball(image, 0.05, clip=(0, 1)), seconds, tolerance)


def _images(path: Path, count: int) -> Array:
    with gzip.open(path) as file:
        content = file.read(16 + 784 * count)
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, 784) / 255.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rate", action="store_true")
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=0.05)
    options = parser.parse_args()
    if options.table:
        table(options.seconds, options.tolerance)
    if options.rate:
        rate(options.seconds)
    if options.mnist:
        mnist(options.mnist, options.images, options.seconds, options.tolerance)
