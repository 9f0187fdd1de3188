"""Throughput of a campaign: MNIST test images × 8 radii, 784-128-128-128-10 ELU, ClosedForm, both enclosures, proved.

Run: python benchmarks/campaign.py --workers 2                (all 10,000 images, some minutes)
     python benchmarks/campaign.py --workers 1 --points 300   (a share of them, and what all would take)

The time includes the start of the workers. --check N compares rows with single calls of certify. MNIST is read from the
folder beside the repository.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import lipcert as lc
from mnist import classifier, images

RADII = [2.0**-k for k in range(1, 9)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput of a campaign.")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--curvature", action=argparse.BooleanOptionalAction, help="bounds to second order")
    parser.add_argument("--check", type=int, default=5, help="rows compared with certify")
    options = parser.parse_args()
    network, (x, y) = classifier(), images()
    print(f"accuracy {np.mean(network(x).argmax(axis=1) == y):.4f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = lc.campaign(
            network,
            x,
            y,
            radii=RADII,
            out=Path(folder) / "run.sqlite",
            points=options.points,
            workers=options.workers,
            curvature=options.curvature,
        )
        seconds = time.perf_counter() - started
    rows = len(found.rows)
    print(f"{rows} proved bounds, {options.workers} workers: {seconds:.1f} s, {rows / seconds:.1f} a second", end="")
    print(f", {rows / len(RADII) / seconds:.2f} points a second; {1e3 * found.seconds / rows:.1f} ms of work each")
    if rows < 80_000:
        print(f"all 80,000 at this rate: {80_000 / rows * seconds / 60:.1f} minutes")
    for row in np.random.default_rng(0).choice(np.array(found.rows, dtype=object), options.check, replace=False):
        bound = lc.certify(network, lc.Ball(x[row.point], row.radius), lc.ClosedForm()).bound
        print(f"  point {row.point}, radius {row.radius:g}: {row.bound:.9g}, certify {bound:.9g}")
    print("radius     certified   margin/(√2·bound)   mean bound")
    for radius in RADII:
        here = [row for row in found.rows if row.radius == radius]
        shares = [100 * np.mean([row.robust for row in here]), 100 * np.mean([row.plain >= radius for row in here])]
        print(f"{radius:<10g} {shares[0]:8.2f} %   {shares[1]:8.2f} %          {np.mean([r.bound for r in here]):8.3f}")


if __name__ == "__main__":
    main()
