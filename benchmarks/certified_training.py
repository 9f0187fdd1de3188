"""Training for certified radii: plain, Jacobian regularisation, product of norms, local bound, side by side.

Run: python benchmarks/certified_training.py ../shared/data/mnist --radius 0.3 --seconds 100 --seeds 3

Each training gets the same processor seconds on one core. Printed are the shares of test images that are classified
rightly, that are certified within the radius (by ``certified_radius``, the first images), and that survive an attack.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import lipcert as lc
from lipcert.training import certified_margin_loss, growing

Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor, float, float], torch.Tensor]


def images(folder: Path, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    pixels, classes = (
        gzip.decompress((folder / f"{kind}-{name}.gz").read_bytes())
        for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 1, 28, 28) / np.float32(255)
    y = np.frombuffer(classes, np.uint8, offset=8)
    return torch.from_numpy(x), torch.from_numpy(y.astype(int))


def network(name: str) -> nn.Module:
    if name == "mlp":
        layers = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)]
        return nn.Sequential(nn.Flatten(), *layers)
    convolutions = [nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 4, stride=2, padding=1)]
    return nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(392, 64), nn.ReLU(), nn.Linear(64, 10))


def plain(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return cross_entropy(module(x), y)


def jacobian(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    """Cross-entropy, and the squared Frobenius norm of the Jacobian, estimated by a random direction of the outputs."""
    x = x.requires_grad_()
    outputs = module(x)
    direction = torch.randn_like(outputs)
    (slopes,) = torch.autograd.grad((outputs * direction).sum(), x, create_graph=True)
    return cross_entropy(outputs, y) + 0.02 * radius * (slopes**2).flatten(1).sum(dim=1).mean()


def norms(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return certified_margin_loss(module, x, y, radius, most=0)


def local(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return certified_margin_loss(module, x, y, radius)


def norms_first(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    """The product of norms for the first part of the time, and the local bound when the radius is at its full size."""
    return (norms if part < 0.6 else local)(module, x, y, radius, part)


LOSSES: dict[str, Loss] = {
    "plain": plain,
    "jacobian": jacobian,
    "norms": norms,
    "local": local,
    "norms-first": norms_first,
}


def trained(
    name: str, loss: Loss, data: tuple[torch.Tensor, torch.Tensor], radius: float, seconds: float
) -> tuple[nn.Module, float]:
    """A network after so many processor seconds, and how many epochs these were."""
    module = network(name)
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    x, y = data
    begin, seen = time.process_time(), 0
    schedule = growing(radius, 1000)
    while True:
        for index in torch.randperm(len(x)).split(128):
            part = (time.process_time() - begin) / seconds
            if part >= 1.0:
                return module.eval(), seen / len(x)
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * min(1.0, 3.0 * (1.0 - part))
            optimizer.zero_grad()
            loss(module, x[index], y[index], schedule(int(1000 * part)), part).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimizer.step()
            seen += len(index)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--radius", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--network", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--losses", default=",".join(LOSSES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    data, (x, y) = images(given.mnist, "train"), images(given.mnist, "t10k")
    for name, seed in itertools.product(given.losses.split(","), range(given.seeds)):
        torch.manual_seed(seed)
        module, epochs = trained(given.network, LOSSES[name], data, given.radius, given.seconds)
        with torch.no_grad():
            clean = float((module(x).argmax(dim=1) == y).float().mean())
        net = lc.load(module, input_shape=(1, 28, 28))
        points, labels = x[: given.images].numpy().reshape(-1, 784).astype(float), y[: given.images].numpy()
        attacked = float(np.mean(~lc.attack(net, points, labels, radius=given.radius).found))
        radii = (
            lc.certified_radius(net, point, int(label), radii=[given.radius], seconds=2).radius
            for point, label in zip(points, labels, strict=True)
        )
        sure = float(np.mean([radius >= given.radius for radius in radii]))
        print(
            f"{given.network} {name:11s} seed {seed}: {epochs:5.1f} epochs, clean {100 * clean:.2f} %,"
            f" certified {100 * sure:.1f} %, attacked {100 * attacked:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
