"""Is this network 1-Lipschitz? Orthogonal layers with GroupSort, as in training with a Lipschitz constraint."""

import torch
from torch import nn

import lipcert as lc


class GroupSort2(nn.Module):
    """Pairs of neurons in ascending order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = x.reshape(-1, 2).chunk(2, 1)
        return torch.cat([torch.min(one, two), torch.max(one, two)], 1).reshape(x.shape)


def orthogonal(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs).double()
    nn.init.orthogonal_(layer.weight)
    return layer


torch.manual_seed(0)
middle = orthogonal(32, 32)
first, last = orthogonal(10, 32), orthogonal(32, 16)
module = nn.Sequential(first, GroupSort2(), middle, GroupSort2(), orthogonal(32, 32), GroupSort2(), last)
network = lc.load(module.eval())
honest = lc.certify(network, method=lc.Scalar())
print(f"orthogonal: proved to be at most {honest.bound:.9f} over all inputs")
assert honest.bound <= 1.0 + 1e-6

with torch.no_grad():  # training has moved a layer: is the claim still true?
    middle.weight[:8] *= 1.5
moved = lc.load(module.eval())
ball = lc.Ball([0.0] * 10, 1.0)
below, above = lc.lower_bound(moved, ball), lc.certify(moved, method=lc.Scalar())
print(f"after a change: at least {below.value:.4f}, at most {above.bound:.4f}")
assert below.value > 1.0, "so it is not 1-Lipschitz any more, and here is a point that shows it"
