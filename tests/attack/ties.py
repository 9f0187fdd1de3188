"""Exact coincidences: pre-activations at kinks, regions that are points or flat, rows that repeat or vanish."""

from __future__ import annotations

import itertools

import numpy as np

import lipcert as lc
from attack.draw import leaky, method, some
from attack.log import Log
from attack.points import steepest
from lipcert.model.regions import Region

_ROWS = ("relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "softsign", "elu", "selu", "celu")


def ties(rng: np.random.Generator, log: Log) -> None:
    """Small whole numbers everywhere, and one method."""
    depth, d = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sizes = [d, *(int(n) for n in rng.integers(1, 5, depth))]
    weights = [rng.integers(-2, 3, (out, into)).astype(float) for into, out in itertools.pairwise(sizes)]
    weights.append(rng.integers(-2, 3, (int(rng.integers(1, 3)), sizes[-1])).astype(float))
    biases = [rng.integers(-3, 4, len(w)).astype(float) for w in weights]
    rows = [[some(rng, *_ROWS, leaky(-1.0), leaky(0.0), leaky(2.0)) for _ in w] for w in weights[:-1]]
    net, region = lc.Network.from_weights(weights, biases, rows), _region(rng, d)
    witness = steepest(net, region, rng, 10)
    log.certified(method(rng), witness, net=net, region=region)


def _region(rng: np.random.Generator, d: int) -> Region:
    center = rng.integers(-3, 4, d).astype(float)
    radius = float(some(rng, 0.0, 0.0, 1.0, 2.0, 0.5, 5e-324, 1e-160, 2.0**-53))
    if rng.random() < 0.6:
        return lc.Ball(center, radius)
    flat = rng.random(d) < 0.5
    low, high = np.where(flat, center, center - radius), np.where(flat, center, center + 2.0 * radius)
    return lc.Box(low, high) if rng.random() < 0.6 else lc.Ball(center, 1.0, clip=lc.Box(low, high))
