"""Real ONNX models: import, agreement with onnxruntime, local bounds, lower bounds, times.

    python benchmarks/models.py FOLDER [--radius 0.01] [--points 100] [--json FILE]

At a random input of each model in the folder. One line a model and method; ratios are bound / lower bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array

METHODS = (lc.ClosedForm(), lc.Scalar(), lc.Auto(seconds=60))


def agreement(path: Path, network: lc.Network, points: int) -> float | None:
    """Largest difference to onnxruntime over random inputs, relative to the output; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    inputs = np.random.default_rng(0).random((points, network.inputs)).astype(np.float32)
    worst = 0.0
    for x, ours in zip(inputs, network(inputs.astype(float)), strict=True):
        theirs = session.run(None, {entry.name: x.reshape(entry.shape)})[0].ravel().astype(float)
        worst = max(worst, float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-300)))
    return worst


def centre(network: lc.Network) -> Array:
    """A random input."""
    return np.random.default_rng(0).random(network.inputs)


def measure(path: Path, radius: float, points: int) -> dict[str, Any]:
    """Everything about one model."""
    clock = time.perf_counter()
    network = lc.load(path)
    record: dict[str, Any] = {
        "model": path.stem,
        "sizes": list(network.sizes),
        "import_seconds": time.perf_counter() - clock,
        "agreement": agreement(path, network, points),
        "bounds": {},
    }
    ball = lc.Ball(centre(network), radius)
    clock = time.perf_counter()
    record["lower"] = lc.lower_bound(network, ball).value
    record["lower_seconds"] = time.perf_counter() - clock
    for method in METHODS:
        found = lc.certify(network, ball, method)
        record["bounds"][repr(method)] = {
            "bound": found.bound,
            "seconds": found.seconds,
            "verified": found.verified,
            "open": [int((layer.multiplier > 0).sum()) for layer in found.layers],
        }
    record["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--radius", type=float, default=0.01)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", help="part of the name")
    options = parser.parse_args()
    records = []
    for path in sorted(options.folder.glob("*.onnx"), key=lambda p: p.stat().st_size):
        if options.only and options.only not in path.stem:
            continue
        record = measure(path, options.radius, options.points)
        records.append(record)
        apart = "-" if record["agreement"] is None else f"{record['agreement']:.1e}"
        print(f"{record['model']}: {' → '.join(map(str, record['sizes']))}")
        print(f"  import {record['import_seconds']:.2f} s, differs from onnxruntime by {apart}", end="")
        print(f", lower bound {record['lower']:.6g} in {record['lower_seconds']:.1f} s")
        for name, found in record["bounds"].items():
            ratio = f"{found['bound'] / record['lower']:.3f}" if record["lower"] else "-"
            proved = "proved" if found["verified"] else "not proved"
            print(f"  {name:34} {found['bound']:.6g}  ratio {ratio}  {found['seconds']:.2f} s  {proved}", end="")
            print(f"  unstable neurons {found['open']}", flush=True)
        print(f"  peak memory so far {record['peak_gigabytes']:.2f} GB", flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
