"""A convolutional network from PyTorch: local bounds around images, and the global bound.

For each radius the script prints the mean bound over the balls, the mean lower bound, and how many images provably keep
their class on the whole ball.

Run: python examples/cnn.py        (needs torch and scikit-learn)
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import lipcert as lc

IMAGES, RADII = 5, (0.05, 0.2, 0.5)


def trained() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network with two convolutions, and the images (1 × 8 × 8, pixels from 0 to 1) and labels it has not seen."""
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images / 16.0, dtype=torch.float32)[:, None]
    y = torch.tensor(digits.target)
    train, test = torch.randperm(len(x)).split([1200, len(x) - 1200])
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(8):
        for batch in train[torch.randperm(len(train))].split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    return model.eval(), x[test], y[test]


def main() -> None:
    torch.set_num_threads(1)
    model, x, y = trained()
    network = lc.load(model, input_shape=(1, 8, 8))
    points, labels = x.reshape(len(x), -1).numpy().astype(float), y.numpy()
    right = network(points).argmax(axis=1) == labels
    print(f"read as a chain of sizes {network.sizes}; {right.mean():.1%} of {len(points)} test images right")
    print(f"global bound {lc.certify(network, method=lc.Scalar()).bound:.4g}\n")
    print(f"{'radius':>6} {'mean bound':>11} {'mean lower':>11} {'keep their class':>17}")
    chosen = np.flatnonzero(right)[:IMAGES]
    for radius in RADII:
        balls = [lc.Ball(points[image], radius, clip=(0, 1)) for image in chosen]
        bounds = [lc.certify(network, ball, lc.Scalar()).bound for ball in balls]
        lowers = [lc.lower_bound(network, ball, samples=100, steps=10, starts=4).value for ball in balls]
        safe = [lc.certified_radius(network, points[image], radii=[radius], clip=(0, 1)).radius for image in chosen]
        kept = sum(found >= radius for found in safe)
        print(f"{radius:6} {np.mean(bounds):11.4g} {np.mean(lowers):11.4g} {f'{kept} of {IMAGES}':>17}")


if __name__ == "__main__":
    main()
