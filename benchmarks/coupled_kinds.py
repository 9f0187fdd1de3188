"""Bounds over lower bounds of networks with products and softmax, each trained for seconds, over balls of three radii.

python benchmarks/coupled_kinds.py [KIND ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import lipcert as lc

LENGTH, FEATURES = 20, 2


class Last(nn.Module):
    """What a recurrent network says after its last step."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], units: int = 16) -> None:
        super().__init__()
        self.cell, self.head = cell(FEATURES, units, batch_first=True), nn.Linear(units, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.cell(x)[0][:, -1])
        return found


class Attention(nn.Module):
    """A layer of a transformer with layer norms, and the mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.embed, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layer(self.embed(x)).mean(dim=1))
        return found


class SwiGLU(nn.Module):
    """A gated perceptron."""

    def __init__(self, inputs: int = 8, hidden: int = 24) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(inputs, hidden), nn.Linear(inputs, hidden), nn.Linear(hidden, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return found


class Squeeze(nn.Module):
    """A convolution whose channels are scaled by what all of the image says."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, stride=2)
        self.one, self.two, self.head = nn.Linear(channels, 3), nn.Linear(3, channels), nn.Linear(9 * channels, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        scale = torch.sigmoid(self.two(torch.relu(self.one(x.mean(dim=(2, 3))))))
        found: Tensor = self.head(torch.relu(self.second(x * scale[:, :, None, None])).flatten(1))
        return found


class Scheduled(nn.Module):
    """A controller u = k(σ)·x whose gains depend on a scheduling signal."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.gains(x[:, 3:]) * x[:, :3]).sum(dim=1, keepdim=True)


class CartPole(nn.Module):
    """A step of the cart-pole under a controller: position, speed, angle and angular speed after 20 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        force = 10.0 * torch.tanh(self.policy(x))
        speed, angle, turn = x[:, 1:2], x[:, 2:3], x[:, 3:4]
        sine, cosine = torch.sin(angle), torch.cos(angle)
        push = (force + 0.05 * turn * turn * sine) / 1.1
        bend = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
        found: Tensor = x + 0.02 * torch.cat([speed, push - 0.05 * bend * cosine / 1.1, turn, bend], dim=1)
        return found


def sequences(count: int) -> tuple[Tensor, Tensor]:
    """Noise, and which of its two features grows more."""
    x = torch.randn(count, LENGTH, FEATURES)
    return x, (x * torch.linspace(-1.0, 1.0, LENGTH)[:, None]).sum(dim=1)


def gated(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8)
    return x, torch.stack([x[:, 0] * x[:, 1], torch.sin(x[:, 2]) + x[:, 3] * x[:, 4]], dim=1)


def images(count: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 1, 8, 8)
    return x, torch.stack([x[:, 0, :4].mean(dim=(1, 2)), x[:, 0, :, :4].mean(dim=(1, 2))], dim=1)


def scheduled(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4)
    return x, (torch.stack([1.0 + x[:, 3] ** 2, -torch.cos(x[:, 3]), x[:, 3]], dim=1) * x[:, :3]).sum(1, keepdim=True)


def upright(count: int) -> tuple[Tensor, Tensor]:
    """States, which a step should make smaller."""
    x = 0.3 * torch.randn(count, 4)
    return x, 0.9 * x


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, Tensor]]]] = {
    "LayerNorm transformer": (Attention, lambda n: (sequences(n)[0][:, :4], sequences(n)[1])),
    "LSTM": (lambda: Last(nn.LSTM), sequences),
    "GRU": (lambda: Last(nn.GRU), sequences),
    "SwiGLU MLP": (SwiGLU, gated),
    "squeeze-excite CNN": (Squeeze, images),
    "gain-scheduled controller": (Scheduled, scheduled),
    "cart-pole step": (CartPole, upright),
}


def trained(kind: str, steps: int = 300) -> tuple[lc.Network, np.ndarray]:
    """A model that was trained, and an input."""
    torch.manual_seed(0)
    make, data = KINDS[kind]
    model = make()
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        x, y = data(64)
        optimiser.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimiser.step()
    point, _ = data(1)
    network = lc.load(model.double().eval(), input_shape=tuple(point.shape[1:]))
    return network, point[0].double().numpy().ravel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--radius", type=float, nargs="*", default=[1e-6, 0.01, 0.1])
    parser.add_argument("--method", default="scalar")
    given = parser.parse_args()
    for kind in given.kinds:
        network, x = trained(kind)
        for radius in given.radius:
            started, ball = time.process_time(), lc.Ball(x, radius)
            try:
                bound = lc.certify(network, ball, given.method).bound
            except lc.ProofFailed as error:
                print(f"{kind}, radius {radius:g}: {error}", flush=True)
                continue
            seconds = time.process_time() - started
            low = lc.lower_bound(network, ball, seconds=3.0).value
            print(
                f"{kind}, radius {radius:g}: {bound:.4g} / {low:.4g} = {bound / low:.4f}, {seconds:.2f} s", flush=True
            )


if __name__ == "__main__":
    main()
