"""Pixels: certified ℓ∞ radii of a classifier of images, in units of pixels.

The network was trained on normalised images, (x - mean)/std. With that normalisation put in front, centres and radii
are in units of pixels, 0 to 1.

Run: python examples/pixels.py        (needs scikit-learn)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import lipcert as lc

MEAN, STD = 0.3, 0.4


def trained(folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file with a network 64 → 32 → 10 for normalised digits; images in [0, 1] and labels it was not trained on."""
    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    model = MLPClassifier((32,), random_state=0, max_iter=400, alpha=0.1)
    model.fit((x[:1500] - MEAN) / STD, y[:1500])
    arrays = {f"W{k}": weight.T for k, weight in enumerate(model.coefs_, 1)}
    arrays |= {f"b{k}": bias for k, bias in enumerate(model.intercepts_, 1)}
    path = folder / "digits.npz"
    np.savez(path, activation="relu", **arrays)
    return path, x[1500:], y[1500:]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, images, labels = trained(Path(folder))
        network = lc.load(path, mean=MEAN, std=STD)
    print("image  class  certified ℓ∞ radius  attack succeeds at  bound ℓ∞ → ℓ∞ over radius 0.02")
    for number in range(5):
        image, label = images[number], int(labels[number])
        found = lc.certified_radius(network, image, label, norm=lc.LInf(), clip=(0, 1))
        broken = lc.attack(network, image, label, 0.5, norm=lc.LInf(), clip=(0, 1))
        ball = lc.Ball(image, 0.02, norm=lc.LInf(), clip=(0, 1))
        bound = lc.certify(network, ball, lc.Joint(), input_norm=lc.LInf(), output_norm=lc.LInf()).bound
        print(f"{number:5}  {label:5}  {found.radius:19.4f}  {float(broken.distances):18.4f}  {bound:10.3f}")


if __name__ == "__main__":
    main()
