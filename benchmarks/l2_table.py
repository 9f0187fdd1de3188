"""The table that ℓ2 verifiers compare themselves by: the share of 200 images that is verified, and seconds per image.

Run: python benchmarks/l2_table.py DATA mnist_mlp                      (a few minutes; DATA holds the networks)
     python benchmarks/l2_table.py DATA mnist_convsmall cifar10_cnn_a  (ten to fifteen minutes each, most of it attacks)
     python benchmarks/l2_table.py DATA --show                         (what is there so far)

An image is wrong (misclassified), broken (it has a counterexample), verified, or undecided. Counterexamples come from
an attack or from the search for a proof. The ball is not clipped to images, as in the published table; so what is
verified holds for clipped inputs too. Every verified image is attacked once more, with 20 starts. Results are added to
a file line by line, and the same command goes on where it was stopped. Seconds are those of the clock; on a machine
that does other things too, those of the processor are nearer to what the work takes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array

NETWORKS = {
    "mnist_mlp": ("mnist_200.npz", 1.0),
    "mnist_convsmall": ("mnist_200.npz", 0.3),
    "cifar10_cnn_a": ("cifar10_200.npz", 24.0 / 255.0 / 0.225),  # the images are normalised
}
PUBLISHED = {  # verified in percent, and seconds per image on GPUs
    "mnist_mlp": "SDP-CROWN 32.5 (2.5 s), BICCOS 41 (173 s), PGD 54",
    "mnist_convsmall": "SDP-CROWN 81.5 (12 s), BICCOS 19.5 (248 s), PGD 84.5",
    "cifar10_cnn_a": "SDP-CROWN 49 (12 s), BICCOS 20 (210 s), PGD 55.5",
}


def images(data: Path, name: str) -> tuple[Array, Array]:
    stored = np.load(data / NETWORKS[name][0])
    return stored["x"].reshape(len(stored["x"]), -1).astype(float), stored["y"].astype(int)


def examine(network: lc.Network, x: Array, y: int, radius: float, seconds: float) -> dict[str, Any]:
    """One image: what it is, what settled it, and the seconds that this took."""
    started, processor = time.perf_counter(), time.process_time()
    answer, basis = "undecided", ""
    if int(network(x).argmax()) != y:
        answer = "wrong"
    elif lc.attack(network, x, y, radius, restarts=3).found:
        answer = "broken"
    else:
        found = lc.certified_radius(network, x, y, radii=[radius], seconds=seconds)
        if found.radius >= radius:
            answer, basis = "verified", found.basis
        elif found.broken is not None:
            answer, basis = "broken", "a proof's search"
    took, used = time.perf_counter() - started, time.process_time() - processor
    if answer == "verified" and lc.attack(network, x, y, radius, restarts=20, seed=1).found:
        raise SystemExit("an attack breaks what was verified")
    return {"answer": answer, "basis": basis, "seconds": took, "processor": used}


def show(name: str, rows: list[dict[str, Any]]) -> None:
    count = len(rows)
    print(f"{name}, ε = {NETWORKS[name][1]:.4g}, {count} images   (published: {PUBLISHED[name]})")
    for answer in ("verified", "broken", "undecided", "wrong"):
        took = [row["seconds"] for row in rows if row["answer"] == answer]
        if took:
            line = (
                f"  {answer:10} {100 * len(took) / count:5.1f} %   mean {np.mean(took):6.2f} s   max {max(took):6.2f} s"
            )
            print(line)
    for basis in sorted({row["basis"] for row in rows} - {""}):
        took = [row["seconds"] for row in rows if row["basis"] == basis]
        print(f"    by {basis:16} {len(took):4} images, mean {np.mean(took):6.2f} s")
    used = np.array([row["processor"] for row in rows])
    quick = [row["answer"] == "verified" and row["processor"] <= 10.0 for row in rows]
    print(f"  verified within 10 s of processor time {100 * np.mean(quick):.1f} %")
    print(f"  per image: mean {np.mean([row['seconds'] for row in rows]):.2f} s, of the processor {used.mean():.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Verified shares on the networks of the published table.")
    parser.add_argument("data", type=Path)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], default=[])
    parser.add_argument("--seconds", type=float, default=10.0, help="per image, for proofs")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--first", default="", help="images to begin with, as in 76,106")
    parser.add_argument("--out", type=Path, default=Path("l2_table.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    done: dict[tuple[str, float, int], dict[str, Any]] = {}
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            done[row["network"], row["limit"], row["image"]] = row
    for name in () if options.show else options.networks:
        network, (x, y) = lc.load(options.data / f"{name}.onnx"), images(options.data, name)
        first = [int(k) for k in options.first.split(",") if k]
        for k in dict.fromkeys([*first, *range(min(options.images, len(x)))]):
            key = name, options.seconds, k
            if key not in done:
                found = examine(network, x[k], int(y[k]), NETWORKS[name][1], options.seconds)
                done[key] = {"network": name, "limit": options.seconds, "image": k, **found}
                with options.out.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
    for name, limit in sorted({key[:2] for key in done}):
        print(f"at most {limit:g} s of proof per image:")
        show(name, [row for key, row in done.items() if key[:2] == (name, limit)])


if __name__ == "__main__":
    main()
