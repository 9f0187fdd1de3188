"""Against the public package eclipse-nn 0.1.7 in one run: same networks, same ball of radius 1.

Run: pip install 'lipcert[bench]' && python benchmarks/eclipse.py        (some minutes, nearly all of it theirs)

ReLU networks of the paper, 40 × 20 and 60 × 10 (width × layers). Times are of the processor, one thread, the median of
--repeats runs where a run takes less than a second. Their bounds are as good as floating point, lipcert's are
proved. In this release of eclipse-nn the SDP stages never count as solved (it looks for the word "Solved" in cvxpy's
status, which is "optimal"), so that its Fast and Acc return CF's bound after the time of the SDPs; the output says in
how many layers an SDP counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import numpy as np
from threadpoolctl import threadpool_limits

import lipcert as lc
from lipcert.methods.method import Method
from lipcert.reproduce.cells import paper_center, paper_network

RADIUS = 1.0
PAIRS: tuple[tuple[str, Method, float], ...] = (
    ("CF", lc.ClosedForm(), 1.0),
    ("Fast", lc.Scalar(), 100.0),
    ("Acc", lc.Joint(), 20.0),
)
"""Their algorithm, ours, and how many times faster ours should be."""


def timed(action: Callable[[], float], repeats: int) -> tuple[float, float]:
    """The result and the median seconds of processor; slow actions run once."""
    spent: list[float] = []
    while len(spent) < repeats and sum(spent) < max(1.0, 0.5 * len(spent)):
        start = time.process_time()
        value = action()
        spent.append(time.process_time() - start)
    return value, statistics.median(spent)


def theirs(network: lc.Network, algorithm: str, said: io.StringIO) -> float:
    from eclipse_nn import LipConstEstimator

    weights, biases = [layer.weight for layer in network.layers], [layer.bias for layer in network.layers]
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = LipConstEstimator(weights=weights, biases=biases)
        bound, _, status = estimator.estimate_gen_local(paper_center(), RADIUS, "relu", algorithm)
    return float(bound) if status == 0 else float("nan")


def ours(network: lc.Network, ball: lc.Ball, method: Method) -> float:
    return lc.certify(network, ball, method).bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    print(f"eclipse-nn {version('eclipse-nn')}, lipcert {lc.__version__}, ball of radius {RADIUS:g}")
    short = 0
    warm = paper_network(10, 5, "relu")
    theirs(warm, "Acc", io.StringIO()), ours(warm, lc.Ball(paper_center(), RADIUS), lc.Joint())
    for width, layers in ((40, 20), (60, 10)):
        network, ball = paper_network(width, layers, "relu"), lc.Ball(paper_center(), RADIUS)
        print(f"\nReLU {width} × {layers}, lower bound {lc.lower_bound(network, ball).value:.4g}")
        print(f"{'theirs':>8} {'bound':>10} {'seconds':>9} {'solved':>7}   {'ours':<11} {'bound':>10}", end="")
        print(f" {'seconds':>9} {'× faster':>9} {'× tighter':>10}")
        for algorithm, method, wanted in PAIRS:
            said = io.StringIO()
            one, slow = timed(partial(theirs, network, algorithm, said), repeats)
            two, fast = timed(partial(ours, network, ball, method), repeats)
            counted = said.getvalue().count("All good.") / max(said.getvalue().count("Layer 0\n"), 1)
            solved = "" if algorithm == "CF" else f"{counted:.0f}/{layers - 1}"
            verdict = [f"slower than {wanted:g}×"] * (slow < wanted * fast) + ["looser"] * (two > one)
            short += bool(verdict)
            print(
                f"{algorithm:>8} {one:10.4g} {slow:9.3f} {solved:>7}   {type(method).__name__:<11} {two:10.4g}"
                f" {fast:9.4f} {slow / fast:9.1f} {one / two:10.4g}"
                f"  {', '.join(verdict)}".rstrip(),
                flush=True,
            )
    print("\nsolved: layers whose SDP counted as solved; where none did, Fast and Acc are CF's bound after SDP time.")
    return int(short > 0)


if __name__ == "__main__":
    np.seterr(all="ignore")
    with threadpool_limits(limits=1):
        sys.exit(main())
