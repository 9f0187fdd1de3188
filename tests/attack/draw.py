"""Random numbers, networks and regions that are hard on arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

import lipcert as lc
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, dense
from lipcert.model.regions import Region

METHODS = (
    "lc.ClosedForm()",
    "lc.Scalar()",
    "lc.Diagonal()",
    "lc.Joint(iterations=4)",
    "lc.Auto(np.inf, 20)",
    "lc.Split(lc.ClosedForm(), np.inf, pieces=60)",
    "lc.Split(lc.Scalar(), np.inf, 0.0, pieces=60)",
)
_WEIGHTS = (0.2, 0.2, 0.1, 0.1, 0.15, 0.15, 0.1)


def method(rng: np.random.Generator) -> str:
    """A method, as code."""
    return str(rng.choice(METHODS, p=_WEIGHTS))


def extreme(rng: np.random.Generator, low: int = -1070, high: int = 1000) -> float:
    """A positive float of any size: a power of two, or some mantissa."""
    power = int(rng.integers(low, high))
    mantissa = 1.0 if rng.random() < 0.4 else 1.0 + float(rng.random())
    return float(np.ldexp(mantissa, power))


def some(rng: np.random.Generator, *values: Any) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]


def turn(rng: np.random.Generator, n: int) -> Array:
    """An orthogonal matrix, up to rounding, of one of several sorts."""
    sort = int(some(rng, 0, 0, 1, 2, 3, 4, 4, 4))
    if sort == 0 and n == 2:
        angle = rng.uniform(0.0, 7.0)
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    if sort == 1:
        v = rng.standard_normal(n)
        return np.eye(n) - 2.0 * np.outer(v, v) / (v @ v)
    if sort == 2 and n in (2, 4):
        one = np.array([[1.0, 1.0], [1.0, -1.0]])
        return (one if n == 2 else np.kron(one, one)) / np.sqrt(n)
    if sort == 3:
        return np.eye(n)[rng.permutation(n)] * rng.choice([-1.0, 1.0], n)
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def plain(rng: np.random.Generator, sizes: tuple[int, ...], activation: Any = "relu") -> lc.Network:
    """A network at natural scale."""
    weights = [rng.standard_normal((out, into)) / np.sqrt(into) for into, out in itertools.pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.5 * rng.standard_normal(len(w)) for w in weights], activation)


def sizes(rng: np.random.Generator, width: int = 4, depth: int = 3, outputs: int = 3) -> tuple[int, ...]:
    """One to three inputs, a few narrow layers, a few outputs."""
    inputs = int(rng.integers(1, 4))
    hidden = rng.integers(1, width + 1, int(rng.integers(1, depth + 1)))
    return (inputs, *hidden.tolist(), int(rng.integers(1, outputs + 1)))


def like(network: lc.Network, weights: Sequence[Any], biases: Sequence[Any] | None = None) -> lc.Network:
    """Other weights, and perhaps biases, with the activations of a network."""
    biases = [layer.bias for layer in network.layers] if biases is None else biases
    return lc.Network.from_weights(weights, biases, [layer.neurons for layer in network.layers[:-1]])


def rescaled(network: lc.Network, rng: np.random.Generator, most: int = 500) -> lc.Network:
    """The same function, for neurons with φ(sv) = sφ(v), in other units per neuron or layer: powers of two."""
    weights = [dense(layer.weight).copy() for layer in network.layers]
    biases = [np.array(layer.bias) for layer in network.layers]
    for k in range(len(weights) - 1):
        neurons = network.layers[k].neurons
        assert neurons is not None
        if not all(row.name in ("relu", "leaky_relu", "identity") for row, _ in neurons.groups):
            continue
        size = len(weights[k])
        power = rng.integers(-most, most, size) if rng.random() < 0.5 else np.full(size, rng.integers(-most, most))
        up, bias = np.ldexp(weights[k], power[:, None]), np.ldexp(biases[k], power)
        down = np.ldexp(weights[k + 1], -power)
        if all(np.isfinite(part).all() for part in (up, bias, down)):
            weights[k], biases[k], weights[k + 1] = up, bias, down
    return like(network, weights, biases)


def sparsely(network: lc.Network) -> lc.Network:
    """The same network with sparse weights."""
    return like(network, [sparse.csr_array(layer.weight) for layer in network.layers])


def tilted(rng: np.random.Generator) -> float:
    """A slope of leaky_relu."""
    sign = float(rng.choice([-1.0, 1.0], p=[0.25, 0.75]))
    return sign * float(
        some(rng, 0.01, 1.0, 0.3, extreme(rng, -1070, -20), extreme(rng, 0, 300), extreme(rng, -600, -300))
    )


def region(rng: np.random.Generator, d: int, size: float = 1.0) -> Region:
    """A ball, a box or a clipped ball of about that size around the origin or elsewhere."""
    center = size * rng.standard_normal(d) * rng.choice([0.0, 1.0])
    radius = size * float(rng.uniform(0.05, 2.0))
    sort = rng.random()
    if sort < 0.55:
        return lc.Ball(center, radius)
    low, high = center - radius * rng.random(d), center + radius * rng.random(d)
    return lc.Box(low, high) if sort < 0.85 else lc.Ball(center, radius, clip=lc.Box(low, high))


def leaky(slope: float) -> Activation:
    return lc.activation("leaky_relu", negative_slope=slope)
