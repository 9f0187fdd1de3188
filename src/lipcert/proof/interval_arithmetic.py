"""What intervals alone tell of a network over boxes: where values lie, and how large derivatives are.

Both are cheap, a few products per layer, and both only become narrower when what they start from does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.network import Layer, Network, Neurons
from lipcert.proof.hints import Interval
from lipcert.proof.neuron_bounds import relax
from lipcert.proof.rounding import ETA, LOOSE, TINY, UP, down, fan_in, gamma, magnitude, spread, turned, up

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
    """Where W z + b lies for z between two ends (count, n); NaN where numbers overflow.

    With z within r of a middle m, it is within |W|r of W m + b, of which the computed value misses at most
    γ(|W||m| + |b|), what W and b are known to included. What underflows in the sum r + γ|m| is multiplied by |W|. Where
    a part of the sum W m + b overflows, γ(|W||m| + |b|) may be finite, and no such bound holds.
    """
    low, high = ends
    middle = 0.5 * low + 0.5 * high
    radius = up(np.maximum(high - middle, middle - low))
    g = gamma(fan_in(layer.weight) + LOOSE + 6)
    inner = radius * (1.0 + g) + g * np.abs(middle) + 2.0 * ETA
    reach = (spread(magnitude(layer.weight), inner) + g * np.abs(layer.bias)) * UP * UP + TINY
    value = layer.affine(middle)
    value = np.where(np.isfinite(value), value, np.nan)
    return down(value - reach), up(value + reach)


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
    found = [np.maximum(-low, high) for low, high in _products(network, slopes, _ENTRIES)]
    least = np.fmin.reduce(found)
    return np.where(np.isnan(least), np.inf, least)


def jacobian(network: Network, slopes: Sequence[Interval], most: int = _ENTRIES) -> Interval:
    """Where the entries of W_N D_{N-1} … D_1 W_1 lie for all slopes between ends (count, n) per layer.

    (count, outputs, inputs); the intersection of the products from both ends counts.
    """
    lows, highs = zip(*_products(network, slopes, most), strict=True)
    low, high = np.fmax.reduce(lows), np.fmin.reduce(highs)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _products(network: Network, slopes: Sequence[Interval], most: int) -> list[Interval]:
    """The product formed from its narrower end, and from the other too where that has at most so many entries."""
    weights, ends = [layer.weight for layer in network.layers], list(slopes)
    count, widest = max((len(alpha) for alpha, _ in ends), default=1), max(network.sizes)
    small = count * max(network.inputs, network.outputs) * widest <= most
    found = []
    if small or network.inputs < network.outputs:
        low, high = _product([turned(weight) for weight in weights], ends)
        found.append((np.swapaxes(low, -1, -2), np.swapaxes(high, -1, -2)))
    if small or network.inputs >= network.outputs:
        found.append(_product(weights[::-1], ends[::-1]))
    return found


def _product(weights: Sequence[Weight], slopes: Sequence[Interval]) -> Interval:
    """Where the entries of weights[0] D weights[1] D … lie; the first weight is taken row by row.

    An entry times a slope is between the least and the largest of four products. The product with a weight is that
    of the middles, give or take |W| times the radii, as in :func:`affine`.
    """
    first, *others = weights
    start = dense(first)[None]
    charge = gamma(LOOSE + 1) * np.abs(start)
    low, high = down(start - charge), up(start + charge)
    for weight, (alpha, beta) in zip(others, slopes, strict=True):
        corners = [end * slope[:, None, :] for end in (low, high) for slope in (alpha, beta)]
        low, high = down(np.minimum.reduce(corners)), up(np.maximum.reduce(corners))
        middle = 0.5 * low + 0.5 * high
        radius = up(np.maximum(high - middle, middle - low))
        g = gamma(weight.shape[0] + LOOSE + 6)
        reach = times(radius * (1.0 + g) + g * np.abs(middle) + 2.0 * ETA, magnitude(weight)) * UP * UP + TINY
        value = times(middle, weight)
        value = np.where(np.isfinite(value), value, np.nan)
        low, high = down(value - reach), up(value + reach)
    return low, high
