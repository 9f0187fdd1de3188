"""Weights, biases, centres and radii of any size a float can have."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from attack.draw import extreme, leaky, like, method, plain, region, rescaled, sizes, some, tilted
from attack.log import Log
from attack.points import steepest
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region


def scales(rng: np.random.Generator, log: Log) -> None:
    """One network, natural in other units or with extreme entries, and one method."""
    net, where = some(rng, _rescaled, _scalar, _scattered)(rng)
    witness = steepest(net, where, rng, 8, log.perturbed)
    log.certified(method(rng), witness, again=None, net=net, region=where)


def _rescaled(rng: np.random.Generator) -> tuple[Network, Region]:
    """A natural network in other units inside, and at its two ends."""
    net = plain(rng, sizes(rng), some(rng, "relu", leaky(tilted(rng))))
    net = rescaled(net, rng, int(some(rng, 60, 300, 540, 1000)))
    size = float(np.ldexp(1.0, int(some(rng, 0, 0, rng.integers(-540, 500), rng.integers(-1060, 1000)))))
    with np.errstate(over="ignore"):
        first = np.array(net.layers[0].weight) / size
    if not np.isfinite(first).all():
        return net, region(rng, net.inputs)
    weights = [first, *(layer.weight for layer in net.layers[1:])]
    return like(net, weights), region(rng, net.inputs, size)


def _scalar(rng: np.random.Generator) -> tuple[Network, Region]:
    """A chain of single neurons with weights s, 1/s and slopes that bring the product back to natural size."""
    depth = int(rng.integers(2, 6))
    weights = [extreme(rng, -620, 620) for _ in range(depth)]
    with np.errstate(all="ignore"):
        total = np.prod([np.longdouble(w) for w in weights[:-1]])
        last = float(1 / total) if 0 < float(1 / total) < np.inf else 1.0
    weights[-1] = last
    rows = [
        leaky(tilted(rng)) if rng.random() < 0.7 else some(rng, "relu", "identity", "tanh") for _ in range(depth - 1)
    ]
    biases = [[float(some(rng, 0.0, 0.0, extreme(rng, -600, 600)))] for _ in range(depth)]
    size = float(some(rng, 1.0, extreme(rng, -1060, -300), extreme(rng, -300, 300)))
    return lc.Network.from_weights([[[w]] for w in weights], biases, rows), region(rng, 1, size)


def _scattered(rng: np.random.Generator) -> tuple[Network, Region]:
    """Entries of natural size with some extreme ones among them."""
    net = plain(rng, sizes(rng), some(rng, "relu", "tanh", leaky(tilted(rng)), "identity"))
    weights: list[Array] = []
    biases: list[Array] = []
    for layer in net.layers:
        for out, array in ((weights, layer.weight), (biases, layer.bias)):
            odd = rng.random(array.shape) < 0.2
            strange = np.reshape([extreme(rng, -1073, 500) for _ in range(array.size)], array.shape)
            out.append(np.where(odd, strange * rng.choice([-1.0, 0.0, 1.0], array.shape), array))
    size = float(some(rng, 1.0, 1.0, extreme(rng, -1000, -100), extreme(rng, 10, 300)))
    return like(net, weights, biases), region(rng, net.inputs, size)
