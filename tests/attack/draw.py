"""Random numbers, activations, networks and regions that are hard on arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

import lipcert as lc
from lipcert.errors import LipcertError
from lipcert.model.activations import TABLE, Activation
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
    mantissa = 1.0 if rng.random() < 0.4 else 1.0 + float(rng.random())
    return float(np.ldexp(mantissa, int(rng.integers(low, high))))


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


# Activations


def leaky(slope: float) -> Activation:
    return lc.activation("leaky_relu", negative_slope=slope)


def tilted(rng: np.random.Generator) -> float:
    """A slope of leaky_relu."""
    sign = float(rng.choice([-1.0, 1.0], p=[0.25, 0.75]))
    far = extreme(rng, -1070, -20), extreme(rng, 0, 300), extreme(rng, -600, -300)
    return sign * float(some(rng, 0.01, 1.0, 0.3, *far))


def named(rng: np.random.Generator) -> tuple[str, dict[str, float]]:
    """The name of an activation, and parameters, extreme or not."""
    name = str(rng.choice([*TABLE, *["elu", "celu", "softplus", "hardsigmoid", "hardtanh", "leaky_relu"] * 2]))
    far, sign = extreme(rng, -1070, 1020), float(rng.choice([-1.0, 1.0]))
    if name == "leaky_relu":
        return name, {"negative_slope": sign * far}
    if name == "hardtanh":
        low = float(some(rng, -far, far, 0.0, sign * extreme(rng, -60, 60)))
        high = float(some(rng, np.nextafter(low, np.inf), low + abs(low), low + far, far))
        return name, {"min_val": low, "max_val": high}
    if name == "hardsigmoid":
        huge = sign * float(some(rng, 2.0**53, 2.0**60, far, 0.5, extreme(rng, 40, 70)))
        return name, {"alpha": float(some(rng, 1.0, 0.2, far, extreme(rng, -60, 60))), "beta": huge}
    if name in ("elu", "celu"):
        return name, {"alpha": float(some(rng, far, extreme(rng, 900, 1020), extreme(rng, -60, 60)))}
    if name == "softplus":
        return name, {"beta": float(some(rng, far, extreme(rng, -200, 200), extreme(rng, -1070, -150)))}
    return name, {}


def strange(rng: np.random.Generator) -> tuple[Activation, float]:
    """A strange activation and an interesting place of it."""
    while True:
        name, given = named(rng)
        try:
            row = lc.activation(name, **given)
        except LipcertError:
            continue
        return row, place_of(rng, row)


def place_of(rng: np.random.Generator, row: Activation) -> float:
    """A pre-activation at a knot, in a tail where exponentials underflow, or anywhere."""
    knots = [float(np.ravel(k)[0]) for k in row.knots(np.zeros(1))] or [0.0]
    unit = float(np.ravel(row.parameters[0])[0]) if row.name in ("celu", "softplus") else 1.0
    unit = 1.0 / unit if row.name == "softplus" else unit
    deep = float(some(rng, -709.0, -745.0, -746.0, -760.0, -20.0, -36.7, 36.7, 40.0, 700.0, -38.6, -27.3))
    tail = deep + float(rng.normal())
    if row.name in ("elu", "celu", "softplus") and rng.random() < 0.5:
        return float(np.nan_to_num(float(rng.uniform(-770.0, -690.0)) * unit, posinf=0.0, neginf=0.0))
    with np.errstate(over="ignore"):
        at = float(some(rng, *knots, tail * unit, unit, -unit, rng.normal(), rng.normal() * extreme(rng, -60, 60)))
    return at if np.isfinite(at) else 0.0


def around(rng: np.random.Generator, row: Activation, center: float) -> tuple[lc.Network, Region]:
    """A network that has the activation first or second, and a region around the point that leads to the center."""
    close = float(some(rng, 0.0, 1e-300, 1e-17, 1e-8, 0.1, 1.0, 30.0)) * float(some(rng, 1.0, abs(center) + 1e-300))
    close = close if np.isfinite(close) else 1.0
    weights: list[Any] = [[[1.0]], [[1.0]]]
    rows: list[Any] = [row]
    sort = rng.integers(3)
    if sort == 1:
        weights = [[[1.0], [-1.0]], [[1.0, float(rng.normal())]]]
    elif sort == 2:
        weights, rows = [[[1.0]], *weights], ["identity", row]
    net = lc.Network.from_weights(weights, None, rows)
    if rng.random() < 0.7:
        return net, lc.Ball([center], close)
    with np.errstate(over="ignore"):
        return net, lc.Box(np.nan_to_num([center - close]), np.nan_to_num([center + close]))


# Networks and regions


def plain(rng: np.random.Generator, sizes: tuple[int, ...], activation: Any = "relu") -> lc.Network:
    """A network at natural scale."""
    weights = [rng.standard_normal((out, into)) / np.sqrt(into) for into, out in itertools.pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.5 * rng.standard_normal(len(w)) for w in weights], activation)


def whole(rng: np.random.Generator, sizes: Sequence[int], rows: Sequence[Any]) -> lc.Network:
    """Small whole numbers: ties, zeros, rows that vanish; each neuron has one of the activations."""
    weights = [rng.integers(-2, 3, (out, into)).astype(float) for into, out in itertools.pairwise(sizes)]
    biases = [rng.integers(-4, 5, len(w)).astype(float) for w in weights]
    return lc.Network.from_weights(weights, biases, [[some(rng, *rows) for _ in w] for w in weights[:-1]])


def sizes(rng: np.random.Generator, width: int = 4, depth: int = 3, outputs: int = 3) -> tuple[int, ...]:
    """One to three inputs, a few narrow layers, a few outputs."""
    hidden = rng.integers(1, width + 1, int(rng.integers(1, depth + 1)))
    return (int(rng.integers(1, 4)), *hidden.tolist(), int(rng.integers(1, outputs + 1)))


def like(network: lc.Network, weights: Sequence[Any], biases: Sequence[Any] | None = None) -> lc.Network:
    """Other weights, and perhaps biases, with the activations of a network."""
    biases = [layer.bias for layer in network.layers] if biases is None else biases
    return lc.Network.from_weights(weights, biases, [layer.neurons for layer in network.layers[:-1]])


def rescaled(network: lc.Network, rng: np.random.Generator, most: int = 500) -> lc.Network:
    """The same function, for neurons with φ(sv) = sφ(v), in other units per neuron or layer: powers of two."""
    weights = [dense(layer.weight).copy() for layer in network.layers]
    biases = [np.array(layer.bias) for layer in network.layers]
    for k, layer in enumerate(network.layers[:-1]):
        groups = layer.neurons.groups if layer.neurons else ()
        if not all(row.name in ("relu", "leaky_relu", "identity") for row, _ in groups):
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


def region(rng: np.random.Generator, d: int, size: float = 1.0) -> Region:
    """A ball, a box or a clipped ball of about that size around the origin or elsewhere."""
    center = size * rng.standard_normal(d) * rng.choice([0.0, 1.0])
    radius = size * float(rng.uniform(0.05, 2.0))
    sort = rng.random()
    if sort < 0.55:
        return lc.Ball(center, radius)
    low, high = center - radius * rng.random(d), center + radius * rng.random(d)
    return lc.Box(low, high) if sort < 0.85 else lc.Ball(center, radius, clip=lc.Box(low, high))


_ROWS = ("relu", "tanh", "silu", "elu", "sin", "hardtanh", "hardswish", "gelu", "identity")


def case(rng: np.random.Generator, **most: int) -> tuple[lc.Network, Region]:
    """A network and a region, both of natural size or in units of any size; some networks are sparse."""
    if rng.random() < 0.4:
        size = int(rng.integers(1, 3)), 3, 2, int(rng.integers(1, 3))
        net = rescaled(plain(rng, size, leaky(tilted(rng))), rng, 600)
        return net, region(rng, net.inputs, float(some(rng, 1.0, extreme(rng, -600, 300))))
    net = plain(rng, sizes(rng, **most), some(rng, *_ROWS, leaky(-1.0)))
    net = sparsely(net) if rng.random() < 0.2 else rescaled(net, rng, 100)
    return net, region(rng, net.inputs, float(some(rng, 1.0, 1.0, 1.0, 1e-9, 1e6, extreme(rng, -1000, 10))))
