"""Split on the 20 deep ELU networks of the paper's Table 2.

Run: python benchmarks/table2_deep.py --radius 1 --seconds 60 --workers 2         all of them, twenty minutes
     python benchmarks/table2_deep.py --radius 5 --only 100x50 120x40             radius √5, two of them

Each node of the tree is bounded and proved once; seconds are those of the whole call.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics

import lipcert as lc
from lipcert.reproduce.cells import paper_center, paper_network

WIDTHS, LAYERS = (60, 80, 100, 120), (30, 40, 50, 60, 70)


def row(width: int, layers: int, square: float, seconds: float, workers: int, tolerance: float) -> float:
    """One line of the table; the ratio of bound and lower bound."""
    network, ball = paper_network(width, layers, "elu"), lc.Ball(paper_center(), math.sqrt(square))
    found = lc.certify(network, ball, lc.Split(seconds=seconds, workers=workers, tolerance=tolerance))
    lower = lc.lower_bound(network, ball, points=found.witness).value
    nodes = 0 if found.tree is None else len(found.tree.layer)
    print(
        f"{f'{width} x {layers}':>9} {ball.radius:7.3f} {found.bound:11.4g} {lower:11.4g} {found.bound / lower:9.4g}"
        f" {nodes:8d} {found.seconds:8.1f}",
        flush=True,
    )
    return found.bound / lower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radius", type=float, default=1.0, help="square of the radius: 1, or 5 for the paper's")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--only", nargs="*", default=[f"{n}x{k}" for n, k in itertools.product(WIDTHS, LAYERS)])
    options = parser.parse_args()
    print(f"{'network':>9} {'radius':>7} {'bound':>11} {'lower':>11} {'ratio':>9} {'nodes':>8} {'seconds':>8}")
    ratios = []
    for name in options.only:
        width, layers = (int(part) for part in name.split("x"))
        ratios.append(row(width, layers, options.radius, options.seconds, options.workers, options.tolerance))
    print(f"ratio: median {statistics.median(ratios):.4g}, worst {max(ratios):.4g}")


if __name__ == "__main__":
    main()
