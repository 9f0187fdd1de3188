"""A controller is trained until its loop contracts: any two motions of a pendulum come closer together, proved.

A network imitates a law that only just holds an inverted pendulum. A step of the closed loop is bounded over small
balls that cover the operating range, in coordinates y = M⁻¹x; the largest of these bounds is one over the whole range.
Controller and M are trained together until it is below 1, and a penalty keeps the torque near the law.

Run: python examples/train_contracting.py        (needs torch)
"""

from __future__ import annotations

import torch
from torch import nn

import lipcert as lc
from lipcert.training import local_bound

STEP, GRAVITY = 0.05, 9.81  # s; N·m, with unit mass and length
RANGE = torch.tensor([0.3, 0.6])  # operating range: rad, rad/s
BALLS = 9  # along each axis of the range
ENOUGH = 0.99  # where training stops; contraction finds a better M for the proof


class Loop(nn.Module):
    """One step of the pendulum with its controller: angle and rate."""

    def __init__(self) -> None:
        super().__init__()
        self.law = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angle, rate = x[:, :1], x[:, 1:]
        force = GRAVITY * torch.sin(angle) + self.law(x)
        return torch.cat([angle + STEP * rate, rate + STEP * force], dim=1)


class Moved(nn.Module):
    """The loop in coordinates y = M⁻¹x."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop, self.M = loop, nn.Parameter(torch.eye(2))

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = self.loop(y @ self.M.T) @ torch.linalg.inv(self.M).T
        return moved

    def largest(self) -> torch.Tensor:
        """The largest bound over the balls; each covers a rectangle of the range."""
        inverse = torch.linalg.inv(self.M.detach())
        axis = (2.0 * torch.arange(BALLS) + 1.0) / BALLS - 1.0
        corners = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) * RANGE / BALLS
        radius = torch.linalg.vector_norm(corners @ inverse.T, dim=1).max()
        centres = torch.cartesian_prod(axis, axis) * RANGE
        return local_bound(self, centres @ inverse.T, float(radius), relaxation=False).max()


def law(x: torch.Tensor) -> torch.Tensor:
    return -10.5 * x[:, :1] - 1.0 * x[:, 1:]


def proved(loop: Loop) -> str:
    network = lc.load(loop, input_shape=(2,))
    found = lc.contraction(network, lc.Box(-RANGE.numpy(), RANGE.numpy()), seconds=5.0)
    return f"a step changes distances by a factor of at most {found.rate:.4f}, proved"


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loop = Loop().eval()
    moved = Moved(loop)
    optimiser = torch.optim.Adam(moved.parameters(), 1e-2)
    for step in range(2000):
        x = (2.0 * torch.rand(256, 2) - 1.0) * RANGE
        off = (loop.law(x) - law(x)).square().mean()
        optimiser.zero_grad()
        if step < 1000:  # imitation
            off.backward()
        else:
            if step == 1000:
                print(f"imitation, within {off.item() ** 0.5:.2f} N·m of the law: {proved(loop)}")
            bound = moved.largest()
            if bound < ENOUGH:
                break
            (100.0 * bound + off).backward()
        optimiser.step()
    print(f"after {step - 1000} more steps, {off.item() ** 0.5:.2f} N·m away: {proved(loop)}")


if __name__ == "__main__":
    main()
