"""Which radius was the paper's MNIST study computed with?

Run: python benchmarks/paper_radius.py RESULTS            (ten minutes; RESULTS is of `lipcert reproduce mnist`)
     python benchmarks/paper_radius.py RESULTS --points 3

The ratio mean(r_cert)/mean(r_triv) of the regularised classifier at random points, by the paper's rule with
EclipseGenLocal Fast: once over balls of radius ε, once over balls of radius √784·ε, as the paper's tables of random
networks have it. The paper prints 6.14. Nothing is written.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.reproduce.mnist import PAPER_METHOD, best_radii, local_bound
from lipcert.reproduce.printed import PAPER_RADII


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--points", type=int, default=20)
    options = parser.parse_args()
    network = lc.load(options.results / "regularised.npz")
    points = np.random.default_rng(0).random((20, network.inputs))[: options.points]
    outputs = np.sort(network(points), axis=1)
    margins = outputs[:, -1] - outputs[:, -2]
    trivial = margins / (math.sqrt(2.0) * lc.certify(network, method=lc.published.Trivial()).bound)
    for name, factor in (("√n·ε", math.sqrt(network.inputs)), ("ε", 1.0)):
        bounds = np.array(
            [[local_bound(network, lc.Ball(x, factor * e), PAPER_METHOD) for e in PAPER_RADII] for x in points]
        )
        radii = best_radii(margins, bounds)
        print(f"radius {name:>5}: mean(r_cert)/mean(r_triv) = {radii.mean() / trivial.mean():.2f}", flush=True)


if __name__ == "__main__":
    main()
