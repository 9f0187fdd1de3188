"""Classifiers with smooth activations over balls of many inputs: bound over lower bound, with Joint and with Auto.

784-128-128-128-10, trained on MNIST for four epochs with ELU, GELU and tanh, around test images.

Run: python benchmarks/second_order_ball.py                    (radius 0.25, 5 images; about three minutes on one core)
     python benchmarks/second_order_ball.py --images 1 --radius 0.1 1
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.reproduce.classifiers import require_torch
from mnist import mnist

SIZES = 784, 128, 128, 128, 10
ACTIVATIONS = {"elu": "ELU", "gelu": "GELU", "tanh": "Tanh"}


def classifier(activation: str, epochs: int) -> lc.Network:
    """A classifier of the paper's size, trained with Adam on cross-entropy."""
    torch = require_torch()
    torch.manual_seed(0)
    x, y = (torch.tensor(part) for part in mnist().train)
    x = x.float()
    linear = [torch.nn.Linear(*sizes) for sizes in itertools.pairwise(SIZES)]
    bend = getattr(torch.nn, ACTIVATIONS[activation])
    model = torch.nn.Sequential(*[part for layer in linear for part in (layer, bend())][:-1])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for part in itertools.chain.from_iterable(torch.randperm(len(x)).split(128) for _ in range(epochs)):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        optimiser.step()
    weights, biases = ([getattr(one, name).detach().double().numpy() for one in linear] for name in ("weight", "bias"))
    return lc.Network.from_weights(weights, biases, activation)


def ratios(network: lc.Network, images: Array, radius: float, seconds: float) -> list[tuple[float, ...]]:
    """For each image Joint's and Auto's bound over the lower bound, and the seconds they took."""
    rows = []
    for image in images:
        ball = lc.Ball(image, radius)
        truth, row = lc.lower_bound(network, ball).value, []
        for method in (lc.Joint(seconds=seconds), lc.Auto(seconds=seconds)):
            started = time.perf_counter()
            certificate = lc.certify(network, ball, method)
            row += [certificate.bound / truth, time.perf_counter() - started]
            assert lc.verify(network, certificate) <= certificate.bound
        rows.append(tuple(row))
        print(f"  Joint {row[0]:.3f} ({row[1]:.1f} s), Auto {row[2]:.3f} ({row[3]:.1f} s)", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Second order over balls of many inputs.")
    parser.add_argument("--radius", type=float, nargs="+", default=[0.25])
    parser.add_argument("--images", type=int, default=5, help="of the test set, from its beginning")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each bound")
    parser.add_argument("--activations", nargs="+", choices=ACTIVATIONS, default=list(ACTIVATIONS))
    options = parser.parse_args()
    images = mnist().test[0][: options.images]
    for activation in options.activations:
        network = classifier(activation, options.epochs)
        for radius in options.radius:
            rows = ratios(network, images, radius, options.seconds)
            joint, _, auto, _ = np.median(rows, axis=0)
            print(f"{activation}, radius {radius:g}: median {joint:.3f} with Joint, {auto:.3f} with Auto", flush=True)


if __name__ == "__main__":
    main()
