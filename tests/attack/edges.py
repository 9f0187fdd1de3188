"""Kinks that a region only just reaches: an interval that is too short by one unit in the last place shows.

A rectifier is off all over the region but for its very edge; behind it comes a weight that makes its slope count. A
checker that encloses the pre-activation a little too tightly takes the rectifier for dead, and the bound for zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import extreme, like, method, some, strange
from attack.log import Log
from attack.points import as_fraction, inside
from attack.trees import forged, settled_tree
from attack.truth import Model, Point, Witness, decided, phi, stretch
from exact import precision, rational
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.hints import Tree

Case = tuple[Network, Region, Point, Point]
"""A network, a region, a point near its edge, and a direction."""


def edges(rng: np.random.Generator, log: Log) -> None:
    """One network, one method, one tree."""
    drawn = _drawn(rng)
    if drawn is None:
        return
    net, where, x, d = drawn
    model = Model.of(net)
    if rng.random() < 0.5:
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


def _drawn(rng: np.random.Generator) -> Case | None:
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
