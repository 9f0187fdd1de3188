"""Small PyTorch models of the kinds that people bring: convolutional, residual, pooled, saturated, sorted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import lipcert as lc


class Wrapped(nn.Module):
    """A module from a function and named parts; tensors become buffers."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            self.register_buffer(name, part) if isinstance(part, torch.Tensor) else setattr(self, name, part)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


class Block(nn.Module):
    """Two convolutions with batch norm and a skip, which has a convolution of its own where shapes differ."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.skip: nn.Module = nn.Identity() if before == after and stride == 1 else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Any) -> Any:
        inner = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(inner)) + self.skip(x))


def residual(channels: int = 8, size: int = 8, seed: int = 0) -> nn.Module:
    """A stem with a max pool, two residual blocks and an average; batch norms with the statistics of random images."""
    torch.manual_seed(seed)
    stem = nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)
    blocks = Block(channels, channels), Block(channels, 2 * channels, 2)
    module = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, 10))
    for _ in range(20):
        module(torch.rand(64, 1, size, size))
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight.uniform_(0.5, 2.0)
                part.bias.uniform_(-1.0, 1.0)
    return module.eval()


def convolutional() -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 3)).eval()


def pooled() -> nn.Module:
    torch.manual_seed(2)
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 12), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(12, 3)).eval()


def saturated() -> nn.Module:
    torch.manual_seed(3)
    layers = nn.Linear(4, 16), nn.Hardtanh(), nn.Linear(16, 16), nn.Hardtanh(), nn.Linear(16, 2)
    return nn.Sequential(*layers).eval()


class Loop(nn.Module):
    """A linear plant, a tanh controller and an actuator that saturates."""

    plant: torch.Tensor
    actuator: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.controller = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
        self.register_buffer("plant", torch.tensor([[1.0, 0.05], [0.49, 0.975]]))
        self.register_buffer("actuator", torch.tensor([[0.0, 0.25]]))

    def forward(self, x: Any) -> Any:
        return x @ self.plant.T + torch.clamp(4.0 * self.controller(x), -1.0, 1.0) @ self.actuator


class GroupSort2(nn.Module):
    """Pairs of neurons in ascending order."""

    def forward(self, x: Any) -> Any:
        one, two = x.reshape(-1, 2).chunk(2, 1)
        return torch.cat([torch.min(one, two), torch.max(one, two)], 1).reshape(x.shape)


def orthogonal(width: int = 24, depth: int = 5) -> nn.Module:
    """Orthogonal layers with GroupSort: Lipschitz constant one, to rounding."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width).double(), GroupSort2()]
        nn.init.orthogonal_(layers[-2].weight)  # type: ignore[arg-type]
    return nn.Sequential(*layers[:-1]).eval()


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (convolutional, (1, 6, 6)),
    "residual": (lambda: residual(3, 6), (1, 6, 6)),
    "pooled": (pooled, (1, 6, 6)),
    "saturated": (saturated, (4,)),
    "loop": (lambda: Loop().eval(), (2,)),
    "orthogonal": (lambda: orthogonal(8, 3), (8,)),
}


def network(kind: str) -> lc.Network:
    """One of the kinds, as lipcert reads it."""
    make, shape = KINDS[kind]
    return lc.load(make(), input_shape=shape)
