"""How long it takes to verify a certificate, over the time to make it.

Run: python benchmarks/rigour.py

The networks are two of the paper's. Times are processor seconds, and ratios of times taken in turn, medians of several.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import lipcert as lc
from lipcert.kernel.checker import lipschitz_fact
from lipcert.reproduce.cells import RADIUS_STUDY, paper_center, paper_network


def costs(repeats: int) -> None:
    print("time to verify over time to certify, ClosedForm, both enclosures, width 128, 30 layers")
    for activation, norms in (("leaky_relu", RADIUS_STUDY), ("elu", (0.8, 2.5))):
        network = paper_network(128, 30, activation, norms)
        for radius in (1.0, 0.2, 0.04, 0.008):
            region = lc.Ball(paper_center(), math.sqrt(5.0) * radius)
            passes, checks = [], []
            for _ in range(repeats):
                started = time.process_time()
                certificate = lc.certify(network, region, lc.ClosedForm())
                middle = time.process_time()
                lipschitz_fact(network, region, certificate.part, certificate.sweeps)
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
    parser.add_argument("--repeats", type=int, default=7, help="runs behind each median")
    costs(parser.parse_args().repeats)
