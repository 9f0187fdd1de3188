"""What intervals alone tell of a network over boxes: where values lie, and how large derivatives are.

Both are cheap, a few products per layer, and both only become narrower when what they start from does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.kernel.hints import Interval
from lipcert.kernel.near import Near
from lipcert.kernel.neuron_bounds import relax
from lipcert.kernel.rounding import down, transpose, up
from lipcert.model.arrays import Array, Weight, dense
from lipcert.model.network import Layer, Network, Neurons

_ENTRIES = 4_000_000
"""Entries of products up to which derivatives are formed from both ends."""


def values(network: Network, corners: Interval, known: Sequence[Interval] = ()) -> list[Interval]:
    """Where the pre-activations of every layer lie, the outputs last, for inputs between corners (count, inputs).

    Each layer follows from the one before; ``known`` are intervals of the hidden layers, which count too. What
    overflows is not known.
    """
    found: list[Interval] = []
    ends = corners
    for index, layer in enumerate(network.layers):
        lower, upper = (
            np.where(np.isnan(end), off, end) for end, off in zip(affine(layer, ends), (-np.inf, np.inf), strict=True)
        )
        if index < len(known):
            lower, upper = np.maximum(lower, known[index][0]), np.minimum(upper, known[index][1])
        found.append((lower, upper))
        if layer.neurons is not None:
            ends = activated(layer.neurons, (lower, upper))
    return found


def affine(layer: Layer, ends: Interval) -> Interval:
    """Where W z + b lies for z between two ends (count, n); NaN where numbers overflow."""
    found = Near.between(*ends).through(layer.weight) + Near.weights(layer.bias)
    return found.below, found.above


def activated(neurons: Neurons, interval: Interval) -> Interval:
    """Where φ(v) lies for v in intervals (count, n); everywhere for those that are not finite."""
    finite = np.isfinite(interval[0]) & np.isfinite(interval[1])
    low, high = (np.where(finite, end, 0.0) for end in interval)
    level = np.zeros(low.shape)
    *_, floor, roof = relax(neurons, low, high, level, level)
    return np.where(finite, floor, -np.inf), np.where(finite, roof, np.inf)


def derivatives(network: Network, slopes: Sequence[Interval]) -> Array:
    """At least the size of every entry of W_N D_{N-1} … D_1 W_1 for all slopes between ends (count, n) per layer.

    (count, outputs, inputs). The smaller size of the products from both ends counts. Overflow gives infinity, which
    proves nothing.
    """
    least = np.fmin.reduce([one.size for one in _products(network, slopes, _ENTRIES)])
    return np.where(np.isnan(least), np.inf, least)


def jacobian(network: Network, slopes: Sequence[Interval], most: int = _ENTRIES) -> Near:
    """The entries of W_N D_{N-1} … D_1 W_1 for all slopes between ends (count, n) per layer, (count, outputs, inputs).

    The intersection of the products from both ends counts; what overflows may be anything.
    """
    products = _products(network, slopes, most)
    found = Near.between(
        np.fmax.reduce([one.below for one in products]), np.fmin.reduce([one.above for one in products])
    )
    return found.replace(~np.isfinite(found.error), Near(np.zeros(()), np.array(np.inf)))


def _products(network: Network, slopes: Sequence[Interval], most: int) -> list[Near]:
    """The product formed from its narrower end, and from the other too where that has at most so many entries."""
    weights, ends = [layer.weight for layer in network.layers], list(slopes)
    count, widest = max((len(alpha) for alpha, _ in ends), default=1), max(network.sizes)
    small = count * max(network.inputs, network.outputs) * widest <= most
    found = []
    if small or network.inputs < network.outputs:
        found.append(_product([transpose(weight) for weight in weights], ends).T)
    if small or network.inputs >= network.outputs:
        found.append(_product(weights[::-1], ends[::-1]))
    return found


def _product(weights: Sequence[Weight], slopes: Sequence[Interval]) -> Near:
    """The entries of weights[0] D weights[1] D …; the first weight is taken row by row.

    An entry times a slope is between the least and the largest of four products.
    """
    first, *others = weights
    found = Near.weights(dense(first)[None])
    for weight, (alpha, beta) in zip(others, slopes, strict=True):
        corners = [end * slope[:, None, :] for end in (found.below, found.above) for slope in (alpha, beta)]
        found = Near.between(down(np.minimum.reduce(corners)), up(np.maximum.reduce(corners)))
        found = found.through(transpose(weight))
    return found
