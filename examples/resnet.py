"""A small residual network from PyTorch: batch norm and skips are translated exactly.

The skip of a residual block passes each activation through identity neurons, which do not loosen the bound. The script
prints the layers of the network, and bound and lower bound for smaller and smaller balls.

Run: python examples/resnet.py        (needs torch)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import lipcert as lc


class Block(nn.Module):
    """x + two convolutions of x, each with batch norm; halved in size at its end."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.activation = nn.ReLU()
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block."""
        return self.pool(self.activation(x + self.body(x)))


def trained() -> nn.Module:
    """Two blocks on 8 × 8 images, taught to tell horizontal from vertical waves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), Block(4), Block(4), nn.Flatten(), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        x, y = waves(64)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval()


def waves(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images of waves, and whether they run across (0) or down (1)."""
    kind = torch.randint(0, 2, (count,))
    phase = 2.0 * torch.pi * torch.rand(count, 1)
    wave = 0.5 + 0.5 * torch.sin(torch.arange(8.0) + phase)
    across, down = wave[:, None, :].expand(-1, 8, -1), wave[:, :, None].expand(-1, -1, 8)
    image = torch.where((kind == 0)[:, None, None], across, down) + 0.1 * torch.randn(count, 8, 8)
    return image[:, None], kind


def main() -> None:
    torch.set_num_threads(1)
    model = trained()
    x, y = waves(200)
    network = lc.load(model, input_shape=(1, 8, 8))
    points = x.reshape(len(x), -1).numpy().astype(float)
    accuracy = (network(points).argmax(axis=1) == y.numpy()).mean()
    print(f"read as a chain of sizes {network.sizes}, {accuracy:.1%} of 200 images right")
    print(f"global bound {lc.certify(network, method=lc.ClosedForm()).bound:.4g}\n")
    print(f"{'radius':>7} {'lower bound':>12} {'proved ≤':>10} {'ratio':>6} {'seconds':>8}")
    for radius in (1.0, 0.3, 0.1, 0.01):
        ball = lc.Ball(points[0], radius)
        certificate = lc.certify(network, ball, lc.Scalar())
        lower = lc.lower_bound(network, ball, samples=100, steps=20, starts=4).value
        ratio = certificate.bound / lower
        print(f"{radius:7} {lower:12.4g} {certificate.bound:10.4g} {ratio:6.3f} {certificate.seconds:8.2f}")
    steepest = np.linalg.norm(network.jacobian(points[0]), 2)
    print(f"\nthe Jacobian at the centre has norm {steepest:.4g}; the bound tends to it as the ball shrinks")


if __name__ == "__main__":
    main()
