"""MNIST from the folder beside the repository, and a classifier trained on it; shared by other benchmarks."""

from __future__ import annotations

import gzip
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.typing import Array

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"
HIDDEN = (128, 128, 128)


def images(name: str) -> tuple[Array, Array]:
    """Points between 0 and 1, and labels: 'train' or 't10k'."""
    if not FOLDER.is_dir():
        sys.exit(f"the MNIST files are not at {FOLDER}")
    with gzip.open(FOLDER / f"{name}-images-idx3-ubyte.gz") as stream:
        x = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 784) / 255.0
    with gzip.open(FOLDER / f"{name}-labels-idx1-ubyte.gz") as stream:
        y = np.frombuffer(stream.read(), np.uint8, offset=8).astype(int)
    return x, y


def classifier(epochs: int = 4) -> lc.Network:
    """784-128-128-128-10 with ELU, trained with PyTorch: Adam, rate 1e-3, weight decay 1e-4, batches of 128."""
    import importlib

    torch: Any = importlib.import_module("torch")  # its own annotations are incomplete
    nn = torch.nn
    torch.manual_seed(0)
    x, y = images("train")
    points, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    sizes = (784, *HIDDEN, 10)
    linear = [nn.Linear(into, out) for into, out in itertools.pairwise(sizes)]
    layers = [part for layer in linear for part in (layer, nn.ELU())][:-1]
    model = nn.Sequential(*layers)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(points[batch]), labels[batch]).backward()
            optimiser.step()
    weights = [layer.weight.detach().numpy().astype(float) for layer in linear]
    return lc.Network.from_weights(weights, [layer.bias.detach().numpy().astype(float) for layer in linear], "elu")
