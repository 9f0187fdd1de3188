"""Certified radii of a classifier of the MNIST study, beside those of the paper's rule with the paper's bounds.

Run: python benchmarks/study_radii.py results/mnist/regularised.npz [--points 20]

The model is one that ``lipcert reproduce mnist`` has trained, the points are those of the study. The paper's rule takes
the largest min(ε, margin/(√2·L)) over its grid of ε, with L by ECLipsE-Gen-Local Fast over each ball; an ε that can no
longer be the best is left out. A quarter of a minute per point.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.reproduce.mnist import PAPER_METHOD, choose, local_bound
from lipcert.reproduce.printed import PAPER_RADII
from mnist import mnist


def by_the_papers_rule(network: lc.Network, x: Array) -> float:
    """The largest radius that the rule finds."""
    second, first = np.sort(network(x))[-2:]
    best = 0.0
    for size in sorted(PAPER_RADII, reverse=True):
        if size <= best:
            break
        bound = local_bound(network, lc.Ball(x, size), PAPER_METHOD)
        best = max(best, min(size, float(first - second) / (math.sqrt(2.0) * bound)))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Certified radii, beside those of the paper's rule.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--points", type=int, default=20)
    asked = parser.parse_args()
    network = lc.load(asked.model)
    for choice, points in choose(mnist(), asked.points).items():
        radii = np.array([(by_the_papers_rule(network, x), lc.certified_radius(network, x).radius) for x in points])
        rule, certified = radii.mean(axis=0)
        print(
            f"{choice:>8}: {certified:.4g} in the mean, the rule {rule:.4g}: {certified / rule:.3g} times", flush=True
        )


if __name__ == "__main__":
    main()
