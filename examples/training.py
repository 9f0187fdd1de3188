"""A training loop that logs a certified bound after every epoch, with and without a penalty on the Jacobian.

For each epoch the loop prints accuracy, the certified global bound, the mean certified bound around test images, and
the mean certified radius. The second run penalises the Jacobian along one random direction of the outputs.

Run: python examples/training.py        (needs torch and scikit-learn)
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import lipcert as lc
from lipcert.model.arrays import Array

EPOCHS, IMAGES, RADII = 5, 5, (0.1, 0.2, 0.4, 0.8)


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Digits with pixels from 0 to 1, in any order, and their labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    return torch.tensor(digits.data[order] / 16.0, dtype=torch.float32), torch.tensor(digits.target[order])


def slope(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Mean squared norm of the Jacobian along one random direction of the outputs."""
    x = x.requires_grad_()
    outputs = model(x)
    direction = torch.randn_like(outputs)
    (pulled,) = torch.autograd.grad((outputs * direction).sum(), x, create_graph=True)
    return pulled.square().sum(dim=1).mean()


def measure(model: nn.Module, x: Array, y: Array) -> str:
    """One line of the log."""
    network = lc.load(model.eval(), input_shape=(64,))
    right = network(x).argmax(axis=1) == y
    points = x[:IMAGES]
    local = np.mean([lc.certify(network, lc.Ball(point, RADII[1], (0, 1)), lc.ClosedForm()).bound for point in points])
    safe = np.mean([lc.certified_radius(network, *pair, radii=RADII, clip=(0, 1)).radius for pair in zip(points, y)])
    overall = lc.certify(network, method=lc.Scalar()).bound
    return f"{right.mean():9.1%} {overall:13.4g} {local:12.4g} {safe:12.4f}"


def train(penalty: float) -> None:
    """Train from the same start, and log."""
    torch.manual_seed(0)
    x, y = images()
    model = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    test = x[1400:].numpy().astype(float), y[1400:].numpy()
    print(f"\npenalty {penalty:g}\n{'epoch':>5} {'accuracy':>9} {'global bound':>13}", end=" ")
    print(f"{'mean bound':>12} {'mean radius':>12}")
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch in torch.randperm(1400).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            if penalty:
                loss = loss + penalty * slope(model, x[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(f"{epoch:5d} {measure(model, *test)}")


def main() -> None:
    torch.set_num_threads(1)
    for penalty in (0.0, 0.003):
        train(penalty)


if __name__ == "__main__":
    main()
