"""Lower bounds: the point belongs to the region, and the Jacobian's norm there is no smaller."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from attack.draw import extreme, leaky, plain, region, rescaled, some, tilted
from attack.log import Log, decimal
from attack.parameters import draw_neuron
from attack.points import belongs, fractions
from attack.truth import Model, jacobian, length, norm_is_below
from lipcert.model.network import Network
from lipcert.model.regions import Region


def lower(rng: np.random.Generator, log: Log) -> None:
    """One network, one lower bound."""
    net, where = some(rng, _tall, _scaled, _natural, _one)(rng)
    code = f"lc.lower_bound(net, region, samples=40, steps=4, starts=4, seed={int(rng.integers(100))})"
    found = log.ask(code, net=net, region=where)
    if found is None:
        return
    log.checks += 1
    point = fractions(found.point)
    if not belongs(where, point):
        log.violation(f"the point {found.point} does not belong to the region")
    matrix = jacobian(Model.of(net), point, fractions(rng.standard_normal(net.inputs)))
    if matrix is not None and found.value > 0 and norm_is_below(matrix, found.value):
        size = decimal(length([c for row in matrix for c in row]))
        log.violation(f"the lower bound is {found.value!r}; the Jacobian's Frobenius norm at its point is {size}")


def _tall(rng: np.random.Generator) -> tuple[Network, Region]:
    """Many rows, or columns, of one size: their squares underflow together."""
    count, size = int(some(rng, 10, 300, 3000)), extreme(rng, -560, -500)
    sort = rng.random()
    if sort < 0.3:
        wide = min(count, 100)
        return lc.Network.from_weights([np.full((1, wide), size)]), lc.Ball(np.zeros(wide), 1.0)
    tall = np.full((count, 1), size)
    weights = [tall] if sort < 0.7 else [np.ones((1, 1)), tall]
    return lc.Network.from_weights(weights), lc.Ball([1.0], 0.5)


def _scaled(rng: np.random.Generator) -> tuple[Network, Region]:
    d = int(rng.integers(1, 4))
    net = rescaled(plain(rng, (d, 3, 3, int(rng.integers(1, 4))), leaky(tilted(rng))), rng, 600)
    return net, region(rng, d)


def _natural(rng: np.random.Generator) -> tuple[Network, Region]:
    d, row = int(rng.integers(1, 4)), some(rng, "relu", "tanh", "hardtanh", "silu", "sin")
    return plain(rng, (d, 4, 3, 2), row), region(rng, d, float(some(rng, 1.0, 1e-9, 1e6, extreme(rng, -600, 10))))


def _one(rng: np.random.Generator) -> tuple[Network, Region]:
    return draw_neuron(rng)
