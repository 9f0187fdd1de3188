"""What proof costs: how far proved bounds exceed unproved ones, and how long checking takes.

Run: python benchmarks/rigour.py        (some minutes; --quick leaves out the largest networks)

The networks are the paper's: 20 cells each of Tables 1 (ReLU) and 2 (ELU), 21 of the radius study (LeakyReLU, width
128), each with the radius √5·δ that its tables were computed with. Both bounds of a cell come from one run, the proved
one from the hints of the other. Times are processor seconds, and ratios of times taken in turn, medians of several.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator

import lipcert as lc
from lipcert.proof.checker import prove
from lipcert.reproduce.cells import RADIUS_STUDY, paper_center, paper_network
from lipcert.search.method import Method

RADII = (5.0, 1.0, 0.2, 0.04, 0.008, 0.0016, 0.00032)
METHODS: tuple[Method, ...] = (lc.ClosedForm(), lc.Scalar())


def cells() -> Iterator[tuple[str, lc.Network, float]]:
    for width in (10, 20, 40, 60):
        for layers in (5, 10, 15, 20, 25):
            yield f"Table 1, relu {width} × {layers}", paper_network(width, layers, "relu"), 1.0
    for width in (60, 80, 100, 120):
        for layers in (30, 40, 50, 60, 70):
            yield f"Table 2, elu {width} × {layers}", paper_network(width, layers, "elu"), 1.0
    for layers in (5, 30, 60):
        network = paper_network(128, layers, "leaky_relu", RADIUS_STUDY)
        for radius in RADII:
            yield f"radius {radius:g}, leaky_relu 128 × {layers}", network, radius


def excesses(quick: bool) -> None:
    print("proved bound over unproved bound, minus 1")
    found: dict[str, list[tuple[float, float, str]]] = {type(method).__name__: [] for method in METHODS}
    for name, network, radius in cells():
        if quick and network.depth * max(network.sizes) ** 2 > 300_000:
            continue
        region = lc.Ball(paper_center(), math.sqrt(5.0) * radius)
        for method in METHODS:
            certificate = lc.certify(network, region, method, verify=False)
            proved = prove(network, region, certificate.sweeps)
            found[type(method).__name__].append((proved / certificate.bound - 1.0, certificate.bound, name))
    for method_name, rows in found.items():
        worst = max(rows)
        bounds = [bound for _, bound, _ in rows]
        print(
            f"  {method_name:10}  {len(rows)} cells, bounds {min(bounds):.1e} … {max(bounds):.1e}:"
            f"  median {statistics.median(row[0] for row in rows):.1e},  worst {worst[0]:.1e} ({worst[2]})"
        )


def costs(repeats: int) -> None:
    print("\ntime to check over time of the ClosedForm pass, both enclosures, width 128, 30 layers")
    for activation, norms in (("leaky_relu", RADIUS_STUDY), ("elu", (0.8, 2.5))):
        network = paper_network(128, 30, activation, norms)
        for radius in (1.0, 0.2, 0.04, 0.008):
            region = lc.Ball(paper_center(), math.sqrt(5.0) * radius)
            passes, checks = [], []
            for _ in range(repeats):
                started = time.process_time()
                certificate = lc.certify(network, region, lc.ClosedForm(), verify=False)
                middle = time.process_time()
                prove(network, region, certificate.sweeps)
                passes.append(middle - started)
                checks.append(time.process_time() - middle)
            ratios = sorted(check / run for check, run in zip(checks, passes, strict=True))
            print(
                f"  {activation:10}  radius {radius:<6g} pass {statistics.median(passes):.3f} s,"
                f"  check {statistics.median(checks):.3f} s,  ratio {statistics.median(ratios):.2f}"
                f" ({ratios[0]:.2f} … {ratios[-1]:.2f})"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the largest networks")
    parser.add_argument("--repeats", type=int, default=7, help="runs behind each median")
    arguments = parser.parse_args()
    excesses(arguments.quick)
    costs(arguments.repeats)
