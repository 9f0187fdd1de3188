"""The largest certified radius of many MNIST images, in one campaign and by single calls; and of a small CNN.

Run: python benchmarks/radii.py                 (100 images, mnist-net_256x2; about seven minutes on one core)
     python benchmarks/radii.py --points 10 --single 3
     python benchmarks/radii.py --cnn 3         (784 → 3136 → 1568 → 100 → 10, as torch makes it, so many images)
     python benchmarks/radii.py --cnn 3 --epochs 2      (the same after so many epochs of training)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from mnist import images, mnist

MODEL = Path(__file__).parents[2] / "shared/data/models/mnist-net_256x2.onnx"


def cnn(epochs: int) -> lc.Network:
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    convolutions = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU()
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10))
    x, labels = mnist().train
    inputs, targets = torch.tensor(x, dtype=torch.float32).reshape(-1, 1, 28, 28), torch.tensor(labels).long()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        for some in np.array_split(rng.permutation(len(x)), len(x) // 128):
            optimiser.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs[some]), targets[some])
            loss.backward()
            optimiser.step()
    return lc.load(model.eval(), input_shape=(1, 28, 28))


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches for certified radii.")
    parser.add_argument("--points", type=int, default=100, help="images in the campaign")
    parser.add_argument("--single", type=int, default=10, help="images that are asked about by themselves as well")
    parser.add_argument("--cnn", type=int, metavar="N", help="so many images of a CNN instead")
    parser.add_argument("--epochs", type=int, default=0, help="how long that CNN is trained first")
    options = parser.parse_args()
    x = images()[0]
    if options.cnn:
        network = cnn(options.epochs)
        for number, point in enumerate(x[: options.cnn]):
            started, worked = time.perf_counter(), time.process_time()
            found = lc.certified_radius(network, point)
            taken, worked = time.perf_counter() - started, time.process_time() - worked
            print(f"image {number}: {found.radius:.5f} ({found.basis}), {taken:.1f} s, {worked:.1f} s of a processor")
        return
    network = lc.load(str(MODEL))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        rows = lc.campaign(network, x[: options.points], search=True, out=Path(folder) / "run.sqlite").rows
        seconds = (time.perf_counter() - started) / options.points
    radii = np.array([row.certified for row in rows])
    bases = {basis: sum(row.basis == basis for row in rows) for basis in sorted({r.basis for r in rows})}
    print(
        f"{len(radii)} images: mean radius {radii.mean():.5f}, median {np.median(radii):.5f}, {seconds:.2f} s a point"
    )
    print(f"what they rest on: {bases}")
    single = [lc.certified_radius(network, point).radius for point in x[: options.single]]
    print(f"of {len(single)} single calls, {np.count_nonzero(radii[: len(single)] == single)} give the same radius")


if __name__ == "__main__":
    main()
