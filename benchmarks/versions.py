"""Two versions in one run: single bounds, a campaign, and many balls at once.

Run: python benchmarks/versions.py --before FOLDER                 (the src folder of the other version)
     python benchmarks/versions.py --before FOLDER --images 1000   (the whole campaign of the claim; some minutes)

Each question is asked in processes of both versions in turns; the medians of the ratios are printed. The model and the
images are read from the folder beside the repository; without them the campaign is left out.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared" / "data"
BALLS = 2000
RADII = [2.0**-k for k in range(1, 9)]


def random(sizes: list[int], activation: str, seed: int = 0) -> lc.Network:
    """A Gaussian network."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    weights = [rng.normal(size=(out, into)) / np.sqrt(into) for into, out in pairs]
    return lc.Network.from_weights(weights, [0.1 * rng.normal(size=size) for size in sizes[1:]], activation)


def single() -> dict[str, float]:
    """Seconds of single bounds."""
    found = {}
    for width, depth, activation in (
        (10, 5, "relu"),
        (40, 20, "relu"),
        (60, 15, "relu"),
        (80, 30, "elu"),
        (128, 5, "tanh"),
    ):
        network = random([5, *[width] * depth, 2], activation)
        ball = lc.Ball(np.random.default_rng(1).normal(size=5), 0.3)
        for method in (lc.ClosedForm(), lc.Scalar(), lc.Joint(iterations=5)):
            lc.certify(network, ball, method)
            times = []
            for _ in range(5):
                started = time.perf_counter()
                lc.certify(network, ball, method)
                times.append(time.perf_counter() - started)
            found[f"{width} x {depth} {activation} {type(method).__name__}"] = statistics.median(times)
    return found


def balls() -> tuple[lc.Network, list[lc.Ball]]:
    """A network 5 → 40 ×9 → 2 and balls around many points."""
    rng = np.random.default_rng(0)
    network = random([5, *[40] * 9, 2], "relu")
    return network, [lc.Ball(rng.normal(size=5), 0.1 * (1 + k % 3)) for k in range(BALLS)]


def loop(count: int = 200) -> dict[str, float]:
    """Seconds a ball of a loop over some of the balls."""
    network, regions = balls()
    started = time.perf_counter()
    for region in regions[:count]:
        lc.certify(network, region, lc.ClosedForm())
    return {"loop": (time.perf_counter() - started) / count}


def many() -> dict[str, float]:
    """Seconds a ball of one call for all of them, and how far single calls differ."""
    network, regions = balls()
    started = time.perf_counter()
    found = lc.certify_many(network, regions, lc.ClosedForm())
    seconds = (time.perf_counter() - started) / len(regions)
    single = [lc.certify(network, region, lc.ClosedForm()).bound for region in regions[:50]]
    return {"many": seconds, "apart": max(abs(a.bound / b - 1.0) for a, b in zip(found, single, strict=False))}


def campaign(images: int) -> dict[str, float]:
    """Seconds a row of a campaign on mnist-net_256x2."""
    network = lc.load(SHARED / "models" / "mnist-net_256x2.onnx")
    folder = SHARED / "mnist"
    pixels, labels = (
        np.frombuffer(gzip.decompress((folder / f"t10k-{name}-ubyte.gz").read_bytes()), np.uint8, offset=skip)
        for name, skip in (("images-idx3", 16), ("labels-idx1", 8))
    )
    points = pixels.reshape(-1, 784) / 255.0
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        found = lc.campaign(network, points, labels, radii=RADII, out=Path(place) / "run.sqlite", points=images)
        return {"row": (time.perf_counter() - started) / len(found.rows), "rows": float(len(found.rows))}


def ask(source: Path, question: str, *arguments: str) -> dict[str, Any]:
    """The answer of another process that imports lipcert from a folder."""
    here = {**os.environ, "PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--ask", question, *arguments]
    done = subprocess.run(command, env=here, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Two versions in one run.")
    parser.add_argument("--before", type=Path, help="src folder of the other version")
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ask", help="answer one question and end")
    options = parser.parse_args()
    if options.ask:
        answers: dict[str, Callable[[], dict[str, float]]] = {"single": single, "loop": loop, "many": many}
        answers["campaign"] = lambda: campaign(options.images)
        print(json.dumps(answers[options.ask]()))
        return
    before, after = options.before.resolve(), HERE.parent / "src"
    turns = [(ask(before, "single"), ask(after, "single")) for _ in range(options.turns)]
    for name in turns[0][0]:
        ratio = statistics.median(new[name] / old[name] for old, new in turns)
        old, new = (1e3 * statistics.median(turn[k][name] for turn in turns) for k in (0, 1))
        print(f"single {name}: {old:.1f} ms before, {new:.1f} ms after, ratio {ratio:.2f}", flush=True)
    turns = [(ask(before, "loop"), {**ask(after, "loop"), **ask(after, "many")}) for _ in range(options.turns)]
    loops = statistics.median(new["loop"] / new["many"] for _, new in turns)
    old = statistics.median(old["loop"] / new["many"] for old, new in turns)
    each = 1e3 * statistics.median(new["many"] for _, new in turns)
    print(
        f"{BALLS} balls: {each:.2f} ms each; {loops:.1f} times as fast as a loop, {old:.1f} times as one before", end=""
    )
    print(f"; bounds within {turns[-1][1]['apart']:.1e} of single ones", flush=True)
    if SHARED.exists():
        images = ["--images", str(options.images)]
        turns = [(ask(before, "campaign", *images), ask(after, "campaign", *images)) for _ in range(options.turns)]
        ratio = statistics.median(old["row"] / new["row"] for old, new in turns)
        old, new = (1e3 * statistics.median(turn[k]["row"] for turn in turns) for k in (0, 1))
        rows = f"campaign, {turns[0][1]['rows']:.0f} rows"
        print(f"{rows}: {old:.1f} ms before, {new:.1f} ms after, {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
