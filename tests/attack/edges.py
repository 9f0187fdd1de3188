"""Kinks that a region only just reaches: an interval that is too short by one unit in the last place shows.

A rectifier is off all over the region but for its very edge; behind it comes a weight that makes its slope count. A
checker that encloses the pre-activation a little too tightly takes the rectifier for dead, and the bound for zero.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import extreme, leaky, like, method, some, strange
from attack.log import Log
from attack.points import as_fraction, fractions, inside
from attack.trees import forged, settled_tree
from attack.truth import Model, Point, Witness, decided, jacobian, length, outputs, phi, rough, stretch
from exact import precision, rational
from lipcert.kernel.cover import Tree
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region

Case = tuple[Network, Region, Point, Point]
"""A network, a region, a point near its edge, and a direction."""


def edges(rng: np.random.Generator, log: Log) -> None:
    """One network, one method, one tree."""
    drawn = some(rng, _scalar, _scalar, _linear)(rng)
    if drawn is None:
        return
    net, where, x, d = drawn
    model = Model.of(net)
    if log.perturbed and rng.random() < 0.5:
        net = _shy(net)
    found = stretch(model, x, d) if inside(where, x) else None
    witness = None if found is None else Witness(x, d, found)
    given = some(rng, "", "", ", enclosures=[Lipschitz()]", ", enclosures=[Linear()]", ", enclosures=[Linear(1, 0.2)]")
    cert = log.certified(f"{method(rng)}{given}", witness, again=False, net=net, region=where)
    cert = forged(net, where) if cert is None or rng.random() < 0.5 else cert
    log.by_trees(cert, witness, settled_tree([]), _void(rng, net), net=net)


def _shy(net: Network) -> Network:
    """The network whose rectifier may stay closed, its bias being one float less; they are 2⁻⁵² apart, relatively."""
    biases = [np.array(layer.bias) for layer in net.layers]
    less = np.nextafter(biases[-2], -np.inf)
    near = np.abs(biases[-2] - less) <= 2.0**-52 * np.abs(less)  # not among subnormal numbers
    biases[-2] = np.where(near, less, biases[-2])
    return like(net, [layer.weight for layer in net.layers], biases)


def _void(rng: np.random.Generator, net: Network) -> Tree:
    """The tree that cuts where the rectifier opens, and claims that this side is void."""
    last = sum(net.sizes[1:-1]) - 1
    others = [int(k) for k in rng.integers(0, last + 1, int(rng.integers(0, 3)))]
    weights = [float(some(rng, 1.0, 1.0, extreme(rng, -900, 900))), *(1e-20 * rng.standard_normal(len(others)))]
    neurons = np.array([last, *others])
    return replace(
        settled_tree([(net.depth - 2, 0, 0.0)]), void=np.full(len(neurons), 2), neuron=neurons, weight=np.array(weights)
    )


def _scalar(rng: np.random.Generator) -> Case | None:
    """x → φ → ±φ + b → relu: b is such that the rectifier opens at one end of the interval only."""
    row, center = strange(rng)
    size = float(some(rng, 0.0, 1e-12, 1e-3, 0.5, 3.0)) * float(some(rng, 1.0, abs(center) + 1e-300))
    low, high = center - size, center + size
    if not np.isfinite([low, high]).all():
        return None
    up = rng.random() < 0.5
    end, sign = (high, 1) if up else (low, -1)
    parameters = tuple(float(np.ravel(p)[0]) for p in row.parameters)

    def at(v: Any) -> tuple[arb, arb]:
        return phi(row.name, parameters, arb(v), -sign)

    found = decided(lambda: at(rational(end)))
    if found is None or not found[0].is_finite() or not found[1].is_finite():
        return None
    value, slope = found
    if not abs(slope) > arb(2) ** -900:  # the rest would be hard to write down
        return None
    lean = 1 if bool(sign * slope > 0) else -1  # of the weight: the rectifier's input is largest at the end
    bias = _just_above(-lean * value)
    if bias is None:
        return None
    with precision(256):
        rest = (lean * value + arb(rational(bias))) / abs(slope)
    step = as_fraction(rest.mid()) / 8 if rest.is_finite() and rest > 0 else fmpq(0)
    x = [rational(end) - sign * min(step, (rational(high) - rational(low)) / 4)]
    net = lc.Network.from_weights([[[1.0]], [[float(lean)]], [[1.0]]], [None, [bias], None], [row, "relu"])
    where = lc.Box([low], [high]) if rng.random() < 0.6 else lc.Ball([center], size)
    return net, where, x, [fmpq(1)]


def _just_above(value: arb) -> float | None:
    """The least float above a number, or a little more."""
    near = float(value.mid())
    if not np.isfinite(near):
        return None
    for _ in range(4):
        if arb(rational(near)) > value:
            return near
        near = float(np.nextafter(near, np.inf))
    return None


def _linear(rng: np.random.Generator) -> Case | None:
    """Layers whose neurons are all on one side of their kinks, then a rectifier that opens at the edge only."""
    d = int(rng.integers(1, 4))
    size = float(some(rng, 1.0, 1.0, extreme(rng, -520, 300)))
    center = size * rng.standard_normal(d) * float(some(rng, 0.0, 1.0, 100.0))
    where = _region(rng, center, size * float(rng.uniform(0.1, 2.0)))
    inner = _straight(rng, d, size + float(np.abs(center).max()))
    model = Model.of(inner)
    rows = jacobian(model, fractions(center))
    x = None if rows is None else _edge(where, rows[0])
    found = None if x is None else outputs(model, x)
    bias = None if found is None or not found[0].is_finite() else _just_above(-found[0])
    if rows is None or x is None or bias is None:
        return None
    weights = [*(layer.weight for layer in inner.layers), [[1.0]]]
    biases = [*(layer.bias for layer in inner.layers[:-1]), [bias], None]
    neurons = [*(layer.neurons for layer in inner.layers[:-1]), "relu"]
    along = fractions(rough([rows[0]])[0])
    return lc.Network.from_weights(weights, biases, neurons), where, x, along


def _straight(rng: np.random.Generator, d: int, size: float) -> Network:
    """An affine function to one number, in a few layers whose kinks are far away."""
    sizes = [d, *(int(n) for n in rng.integers(1, int(some(rng, 4, 20)), int(rng.integers(1, 4)))), 1]
    weights, biases, rows = [], [], []
    for into, out in itertools.pairwise(sizes):
        scale = float(some(rng, 1.0, 1.0, extreme(rng, -200, 200)))
        weights.append(scale * rng.standard_normal((out, into)))
        size *= scale * 5.0 * into
        kind = some(rng, "identity", "on", "off")
        rows.append({"identity": "identity", "on": "relu"}.get(kind, leaky(float(some(rng, 0.1, -0.5, 1e-30)))))
        far = {"identity": 0.0, "on": 30.0, "off": -30.0}[kind]
        biases.append(np.full(out, far * size))
        size *= 1.0 + abs(far)
    biases[-1][:] = 0.0
    return lc.Network.from_weights(weights, biases, rows[:-1])


def _region(rng: np.random.Generator, center: Array, radius: float) -> lc.Ball | lc.Box:
    low, high = (center + sign * radius * rng.random(center.shape) for sign in (-1.0, 1.0))
    return some(rng, lc.Ball(center, radius), lc.Box(low, high), lc.Ball(center, radius, clip=lc.Box(low, high)))


def _edge(where: lc.Ball | lc.Box, a: list[arb]) -> Point | None:
    """About the point of a region where a·x is largest, well inside by 2⁻⁵⁰ relatively."""
    short = fmpq(2**50 - 1, 2**50)
    if isinstance(where, lc.Box):
        ends = zip(fractions(where.lower), fractions(where.upper), a, strict=True)
        return [(p + q) / 2 + short * (q - p) / 2 * (1 if c > 0 else -1) for p, q, c in ends]
    with precision(256):
        norm, radius = length(a), rational(float(where.radius))
        if not norm > 0:
            return None
        steps = [radius * as_fraction((c / norm).mid()) for c in a]
    if where.clip is not None:  # clip(λ·step) for the λ that leads to the sphere
        below, above = where.clip.lower - where.center, where.clip.upper - where.center
        direction, low, high = np.array([float(c) for c in steps]), 0.0, 1e6
        for _ in range(80):
            rate = 0.5 * (low + high)
            outside = np.linalg.norm(np.clip(rate * direction, below, above) / where.radius) >= 1.0
            low, high = (low, rate) if outside else (rate, high)
        steps = fractions(np.clip(low * direction, below, above))
    return [m + short * u for m, u in zip(fractions(where.center), steps, strict=True)]
