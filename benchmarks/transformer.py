"""Bounds and lower bounds of a vision transformer over ℓ2 balls around images.

    python benchmarks/transformer.py MODEL.onnx IMAGES.npz

The model and the images (arrays x and y) are those of the verification competition; --mean and --std bring pixels from
0 to 1 to what the model takes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import lipcert as lc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--image", type=int, nargs="*", default=None, help="which images; default: all")
    parser.add_argument("--radius", type=float, nargs="*", default=[1e-4, 0.01, 0.05, 0.1])
    parser.add_argument("--method", default="scalar")
    parser.add_argument("--radii", action="store_true", help="certified radii too, and attacks")
    parser.add_argument("--seconds", type=float, default=None, help="for each certified radius")
    parser.add_argument("--mean", type=float, nargs=3, default=[0.0, 0.0, 0.0], help="of the channels")
    parser.add_argument("--std", type=float, nargs=3, default=[1.0, 1.0, 1.0], help="of the channels")
    given = parser.parse_args()
    mean, std = (np.reshape(three, (3, 1, 1)) for three in (given.mean, given.std))
    network, data = lc.load(given.model), np.load(given.images)
    images = range(len(data["x"])) if given.image is None else given.image
    ratios: dict[float, list[float]] = {}
    for number in images:
        x = ((data["x"][number] - mean) / std).ravel()
        for radius in given.radius:
            started, ball = time.process_time(), lc.Ball(x, radius)
            try:
                bound = lc.certify(network, ball, given.method).bound
            except lc.ProofFailed as error:
                print(f"image {number}, radius {radius:g}: {error}", flush=True)
                continue
            seconds = time.process_time() - started
            low = lc.lower_bound(network, ball, seconds=2.0).value
            ratios.setdefault(radius, []).append(bound / low)
            print(
                f"image {number}, radius {radius:g}: bound {bound:.4f} in {seconds:.1f} s, lower bound {low:.4f},"
                f" ratio {bound / low:.4f}",
                flush=True,
            )
        if given.radii:
            label = int(data["y"][number])
            if int(np.argmax(network(x))) == label:
                started, found = time.process_time(), lc.certified_radius(network, x, label, seconds=given.seconds)
                seconds = time.process_time() - started
                sizes = found.radius * np.geomspace(1.2, 40.0, 8)
                broken = min(float(lc.attack(network, x, label, size).distances) for size in sizes)
                print(
                    f"image {number}: certified radius {found.radius:.4f} in {seconds:.1f} s, attacked at {broken:.4f},"
                    f" ratio {broken / found.radius:.3f}",
                    flush=True,
                )
    for radius, several in ratios.items():
        print(f"radius {radius:g}: ratio {np.median(several):.4f} in the median, {max(several):.4f} at worst")


if __name__ == "__main__":
    main()
