"""Chains whose leading terms cancel, so that rounding errors are all that floating point sees.

A row (c, -fl(ac)) applied to (a, 1) gives the rounding error of one product; orthogonal layers carry it along; a large
last weight makes it count. A checker that charges too little for rounding anywhere on the way is caught.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import lipcert as lc
from attack.draw import leaky, method, some, sparsely, turn
from attack.log import Log
from attack.points import steepest
from attack.trees import random_tree, settled_tree
from lipcert.model.arrays import Array


def cancel(rng: np.random.Generator, log: Log) -> None:
    """One cancelling chain: a sweep and trees over it, sometimes another method."""
    net, region = _chain(rng)
    net = sparsely(net) if rng.random() < 0.1 else net
    witness = steepest(net, region, rng, 2, perturbed=True)
    slow = rng.random() < 0.1
    cert = log.certified(method(rng) if slow else "lc.ClosedForm()", witness, again=slow, net=net, region=region)
    if cert is None:
        return
    trees = [settled_tree(_open(net, region)), *([random_tree(rng, net, region)] if slow else [])]
    log.by_trees(cert, witness, *trees, net=net)


def _open(net: lc.Network, region: lc.Ball | lc.Box) -> list[tuple[int, int, float]]:
    """Cuts that leave no kink of the first layer inside a piece."""
    layer = net.layers[0]
    reach = np.abs(np.asarray(layer.weight)) @ np.broadcast_to(region.radius, net.inputs)
    value = layer.affine(region.center)
    return [(0, int(k), 0.0) for k in np.flatnonzero(np.abs(value) < reach)[:4]]


def _chain(rng: np.random.Generator) -> tuple[lc.Network, lc.Ball | lc.Box]:
    """Weights that cancel, then many that keep lengths, then one that amplifies; or all of that transposed."""
    pairs, wide = int(rng.integers(1, 4)), int(some(rng, 1, 2, 2, 3, 4, 8))
    faint = float(10.0 ** rng.uniform(-30, -10))
    first, second = _cancelling(rng, pairs, wide, faint)
    middle = _middle(rng, wide)
    last = np.full((int(some(rng, 1, 1, 1, 2)), wide), 10.0 ** rng.uniform(0, 25))
    last = last * (rng.choice([-1.0, 1.0], last.shape) if rng.random() < 0.3 else 1.0)
    if rng.random() < 0.3:
        second, middle, last = _ballast(rng, second, middle, last)
    weights = [first, second, *middle, last]
    big = float(10.0 ** rng.uniform(0, 4))
    bias: Array = np.zeros(len(first))
    bias[: 2 * pairs] = big
    bias[2 * pairs :] = rng.choice([0.0, -0.5, 0.25], len(first) - 2 * pairs)
    if rng.random() < 0.25:
        weights = [w.T for w in weights[::-1]]
        opened = abs(float(weights[0][0, 0]))  # the first neurons reach so far
        return lc.Network.from_weights(weights, None, _rows(rng, weights, opened)), _around(rng, weights[0].shape[1])
    biases: list[Any] = [bias, *[None] * (len(weights) - 1)]
    rows = [some(rng, "relu", "relu", leaky(0.1), leaky(-1.0)), *["identity"] * (len(weights) - 2)]
    if rng.random() < 0.3:  # rectifiers that are always on
        for k in range(1, len(weights) - 1):
            rows[k], biases[k] = "relu", np.full(len(weights[k]), 1e3)
    elif rng.random() < 0.3:  # rectifiers that are at their kinks but for rounding
        rows[1] = some(rng, "relu", leaky(0.3))
    return lc.Network.from_weights(weights, biases, rows), _around(rng, 1)


def _ballast(
    rng: np.random.Generator, second: Array, middle: list[Array], last: Array
) -> tuple[Array, list[Array], Array]:
    """A coordinate of natural size beside the faint ones, that the last weight drops: nothing looks ill-conditioned."""
    second = np.concatenate([second, rng.uniform(0.5, 1.0, (1, second.shape[1]))])
    middle = [np.pad(layer, ((0, 1), (0, 1))) for layer in middle]
    for layer in middle:
        layer[-1, -1] = 1.0
    return second, middle, np.concatenate([last, np.zeros((len(last), 1))], axis=1)


def _cancelling(rng: np.random.Generator, pairs: int, wide: int, faint: float) -> tuple[Array, Array]:
    """Two weights whose product is rounding errors, and a faint rest that depends on kinks."""
    columns, rows = [], []
    for _ in range(pairs):
        a = float(some(rng, 1.0, rng.uniform(0.5, 1.0), rng.uniform(0.5, 1.0)))
        c = rng.uniform(0.3, 1.0, wide) * rng.choice([-1.0, 1.0], wide)
        columns += [a, 1.0]
        rows += [c, -(a * c)]
    return np.array([[*columns, 1.0, 1.0]]).T, np.array([*rows, np.full(wide, faint), np.full(wide, -faint)]).T


def _middle(rng: np.random.Generator, n: int) -> list[Array]:
    """Orthogonal layers: one many times, or many; some shrink, and the next ones stretch again."""
    depth = int(some(rng, 0, 2, 8, 12, 20, 40))
    same = turn(rng, n)
    layers = [same if rng.random() < 0.9 else same.T for _ in range(depth)]
    if rng.random() < 0.3:
        layers = [turn(rng, n) for _ in range(depth)]
    power = float(some(rng, 1.0, 1.0, 0.5, 3.0, 1e-3, 1e8))
    return [layer * (power if k % 2 else 1.0 / power) for k, layer in enumerate(layers)]


def _rows(rng: np.random.Generator, weights: list[Array], reach: float) -> list[Any]:
    kinked = some(rng, "relu", leaky(0.5), lc.activation("hardtanh", min_val=-reach, max_val=2.0 * reach))
    return [kinked, *["identity"] * (len(weights) - 2)]


def _around(rng: np.random.Generator, d: int) -> lc.Ball | lc.Box:
    center = rng.uniform(-1.5, 1.5, d) * rng.choice([0.0, 1.0])
    radius = float(some(rng, 1.0, 1.0, 0.3, 1e-3))
    return lc.Ball(center, radius) if rng.random() < 0.7 else lc.Box(center - radius, center + radius)
