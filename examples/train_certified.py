"""Training for certified radii: the same network four ways, certified while it trains, and attacked at the end.

Plain training minimises the cross-entropy. The others raise the logits of other classes by what they may gain within
the radius: by the product of the layers' norms, by gradients at the images, or by the local bound over each ball.

Run: python examples/train_certified.py        (needs torch, scikit-learn and matplotlib; about a minute)
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import lipcert as lc
from lipcert.training import Certification, certified_margin_loss, growing

EPOCHS, IMAGES, RADIUS = 12, 40, 0.5
BALLS = {"plain": None, "norms": math.inf, "gradients": 0.0, "local": RADIUS}


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Digits with pixels from 0 to 1, in any order, and their labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    return torch.tensor(digits.data[order] / 16.0, dtype=torch.float32), torch.tensor(digits.target[order])


def train(name: str) -> None:
    """Train from the same start, and log."""
    torch.manual_seed(0)
    x, y = images()
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    test = x[1400 : 1400 + IMAGES], y[1400 : 1400 + IMAGES]
    figure = Path(gettempdir()) / f"certified_{name}.png"
    certification = Certification(model, *test, RADIUS, every=4, figure=figure)
    radius, ball, step = growing(RADIUS, 22 * EPOCHS), BALLS[name], 0
    for epoch in range(1, EPOCHS + 1):
        for batch in torch.randperm(1400).split(64):
            if ball is None:
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            else:
                loss = certified_margin_loss(model, x[batch], y[batch], radius(step), ball=ball)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
        if row := certification(epoch):
            print(f"{name:9s} epoch {row.epoch:2d}: right {row.clean:.1%}, certified {row.certified:.1%}")
    net = lc.load(model.eval(), input_shape=(64,))
    points, labels = test[0].double().numpy(), test[1].numpy()
    safe = ~lc.attack(net, points, labels, RADIUS).found & (net(points).argmax(axis=1) == labels)
    print(f"{name:9s} within {RADIUS} an attack leaves {safe.mean():.1%}; the figure: {figure}")


def main() -> None:
    torch.set_num_threads(1)
    for name in BALLS:
        train(name)


if __name__ == "__main__":
    main()
