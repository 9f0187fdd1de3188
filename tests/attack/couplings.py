"""Networks with softmax rows and products: bounds against quotients of differences, in ball arithmetic, and Jacobians.

`python -m attack --kinds couplings --seconds 1200` meets about a thousand networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flint import arb
from torch import nn

import lipcert as lc
from attack.draw import some
from attack.log import Log
from exact import precision, rational
from lipcert.definitions.rows import function
from lipcert.model.arrays import Array, dense
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network

_SPLIT = "lc.Split(lc.Scalar(), np.inf, 1e-3, 30)"
_ROWS = ("identity", "relu", "tanh", "exp", "square", "gelu", "sigmoid")


def couplings(rng: np.random.Generator, log: Log) -> None:
    """Softmax rows, products and activations, over balls and boxes of any size."""
    net, size = drawn(rng), float(10.0 ** rng.uniform(-8.0, 0.5))
    x = rng.normal(size=net.inputs)
    region = lc.Ball(x, size) if rng.random() < 0.6 else lc.Box(x - size, x + size)
    method = some(rng, "lc.ClosedForm()", "lc.Scalar()", "lc.Diagonal()", "lc.Auto(np.inf, 20)", _SPLIT)
    found: Any = log.ask(f"lc.certify(net, region, {method})", net=net, region=region)
    if found is None:
        return
    proved = log.ask("lc.verify(net, cert)", net=net, cert=found)
    if rng.random() < 0.3 and max(net.sizes) < 40:
        log.ask("lc.verify(net, cert, exact=True)", net=net, cert=found)
    points = region.sample(100, rng)
    steepest = float(np.linalg.norm(net.jacobian(points), 2, axis=(1, 2)).max())
    if not steepest <= found.bound * (1.0 + 1e-9) + 1e-12:
        log.violation(f"the bound is {found.bound!r}; a Jacobian has norm {steepest!r}")
    log.checks += 1
    for number, (layer, values) in enumerate(zip(found.layers, net.preactivations(points), strict=False), 1):
        slack = 1e-9 * (1.0 + np.abs(values))
        if not ((layer.lower - slack <= values) & (values <= layer.upper + slack)).all():
            log.violation(f"values of layer {number} are outside of their intervals")
        log.checks += 1
    step = size * 10.0 ** rng.uniform(-6.0, 0.0)
    pairs = [(points[0], points[1]), (points[2], points[3]), (points[4], region.project(points[4] + step * x))]
    for bound in (found.bound, proved):
        for one, two in pairs:
            if bound is not None and not np.array_equal(one, two) and steeper(net, one, two, bound):
                log.violation(f"the bound is {bound!r}; two points have a larger quotient")
            log.checks += 1


class Step(nn.Module):
    """The last state of a recurrent cell, or what a module makes of some numbers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(x)
        last: torch.Tensor = found[0][:, -1] if isinstance(found, tuple) else found
        return last


MODULES = (
    (lambda n: nn.LayerNorm(n, 0.01), 1),
    (lambda n: nn.Sequential(nn.Linear(n, 2 * n), nn.GLU(), nn.Linear(n, 2)), 1),
    (lambda n: nn.LSTM(n, 2, batch_first=True), 2),
    (lambda n: nn.GRU(n, 2, batch_first=True), 2),
    (lambda n: nn.TransformerEncoderLayer(n, 1, 3, 0.0, batch_first=True, norm_first=bool(n % 2)), 2),
    (lambda n: nn.Sequential(nn.Linear(n, n), nn.Softmax(-1), nn.Linear(n, 2)), 1),
)
"""What is read from PyTorch, of a width, and the rank of its inputs."""


def drawn(rng: np.random.Generator) -> Network:
    """A network of couplings of all kinds, or a module as it is read: norms, gates, recurrent cells, attention."""
    if rng.random() < 0.7:
        return network(rng)
    make, rank = MODULES[int(rng.integers(len(MODULES)))]
    torch.manual_seed(int(rng.integers(2**31)))
    n = int(rng.integers(2, 5))
    return lc.load(Step(make(n)).double().eval(), input_shape=(2, n)[-rank:])


def network(rng: np.random.Generator) -> Network:
    """A small one."""
    weights, biases, rows, width = [], [], [], int(rng.integers(1, 5))
    for _ in range(rng.integers(1, 4)):
        plain, wide = int(rng.integers(1, 4)), [(int(rng.integers(1, 3)), int(rng.integers(1, 5)))]
        wide = wide if rng.random() < 0.7 else []
        size = plain + sum(count * n for count, n in wide) + int(rng.integers(2, 6))
        terms = int(rng.integers(1, size // 2 + 1))
        index = np.stack([rng.permutation(size)[: 2 * terms] for _ in range(rng.integers(1, 4))])
        coupling = Coupling.of(plain, size, wide, [(index[:, :terms], index[:, terms:])])
        weights.append(rng.normal(size=(size, width)) * rng.choice([0.1, 0.7, 2.0]))
        biases.append(rng.normal(size=size))
        rows.append(([str(name) for name in rng.choice(_ROWS, plain)], coupling))
        width = coupling.width
    weights.append(rng.normal(size=(int(rng.integers(1, 4)), width)))
    return Network.from_weights(weights, [*biases, rng.normal(size=len(weights[-1]))], rows)


def steeper(net: Network, one: Array, two: Array, bound: float) -> bool:
    """Whether ‖f(x) - f(y)‖ > bound·‖x - y‖ for certain."""
    with precision(256):
        ends = [[arb(rational(c)) for c in point] for point in (one, two)]
        moved = sum(((a - b) ** 2 for a, b in zip(*ends, strict=True)), arb(0))
        apart = sum(((a - b) ** 2 for a, b in zip(*(value(net, end) for end in ends), strict=True)), arb(0))
        return bool(apart > moved * arb(rational(bound)) ** 2)


def value(net: Network, z: list[arb]) -> list[arb]:
    """f in ball arithmetic."""
    for layer in net.layers:
        pairs = zip(dense(layer.weight), layer.bias, strict=True)
        v = [sum((arb(rational(w)) * c for w, c in zip(row, z, strict=True)), arb(rational(b))) for row, b in pairs]
        if layer.plain is None:
            return v
        z = [arb(0)] * layer.plain.size
        for row, index in layer.plain.groups:
            for neuron in index:
                z[neuron] = function(row.name, ()).value(v[neuron])
        if layer.coupling is None:
            continue
        for _, places in layer.coupling.softmax_rows():
            for each in places:
                z += [1 / sum(((v[j] - v[k]).exp() for j in each), arb(0)) for k in each]
        for product in layer.coupling.products:
            for left, right in zip(product.one, product.two, strict=True):
                z.append(sum((v[a] * v[b] for a, b in zip(left, right, strict=True)), arb(0)))
    return z
