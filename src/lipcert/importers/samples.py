"""Where an imported network is compared with its model, and how far rounding may take the two apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from lipcert.model.activation_row import STRAIGHT
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.weights import entries

SIZES: Final = (1e-3, 0.1, 1.0, 1.0, 3.0, 10.0, 30.0, 1e2, 1e3, 1e4, 1e6, 1e7, 1e9, 1e12, 1e15, 1e20, 1e25, 1e30, 1e39)
"""Sizes of random inputs. The last one is beyond every number of single precision."""

NOISE: Final = 16.0
"""Units of roundoff by which every sum and every activation is disturbed to learn what rounding does."""

DRAWS: Final = 3
"""How often it is disturbed, each time both ways, so that a neuron at its kink is moved to either side."""

MARGIN: Final = 16.0
"""How many times the largest disturbance seen may be reached. A model's roundings are about one unit each, 1/256 of
what is allowed, so that all draws are too small by chance at one output in 10⁷ or fewer."""

_WORK = 4e9
"""Products that the search for kinks may cost."""

_MEMORY = 3e7
"""Numbers that are kept at once."""


def sample(inputs: int, seed: int, sizes: Sequence[float] = ()) -> Array:
    """Points to compare at, (points, inputs), as float64 numbers that single precision cannot represent.

    The origin, the unit box, normal points of every size in ``SIZES`` and of the given ones, and points whose
    entries have sizes of their own.
    """
    rng = np.random.default_rng(seed)
    spread = np.array([*SIZES, *sizes])[:, None]
    mixed = 10.0 ** rng.uniform(-3.0, 12.0, (4, inputs))
    return np.concatenate(
        [
            np.zeros((1, inputs)),
            rng.random((4, inputs)),
            spread * rng.standard_normal((len(spread), inputs)),
            mixed * rng.standard_normal((4, inputs)),
        ]
    )


def at_kinks(network: Network, tests: Array, rng: np.random.Generator) -> Array:
    """Pairs of points on the two sides of kinks, as near as bisection in floating point comes.

    For neurons drawn at random, all of them where they are few, two of the given points are sought between which
    the pre-activation crosses a kink, and the crossing is bisected.
    """
    tests = tests[:: -(-len(tests) // _rows(network))]
    with np.errstate(all="ignore"):
        seen = network.preactivations(tests)
        work = 60.0 * 2.0 * sum(cost(layer) for layer in network.layers)
        limit = int(np.clip(_WORK / work, 2, 64))
        kinks = list(_kinks(network))
        chosen = [kinks[k] for k in rng.permutation(len(kinks))] if len(kinks) > limit else kinks
        ends, where = [], []
        size = np.abs(tests).max(axis=1)
        for layer, neuron, knot in chosen:
            value = seen[layer][:, neuron] - knot
            below, above = (_first(side & np.isfinite(value), size) for side in (value < 0.0, value >= 0.0))
            if below is None or above is None:
                continue
            ends.append((tests[below], tests[above]))
            where.append((layer, neuron, knot))
            if len(where) == limit:
                break
        if not where:
            return np.zeros((0, network.inputs))
        low, high = np.array([a for a, _ in ends]), np.array([b for _, b in ends])
        return _bisected(network, low, high, where)


def _bisected(network: Network, low: Array, high: Array, where: Sequence[tuple[int, int, float]]) -> Array:
    """Both ends after the crossings have been bisected; at ``low`` the value is under the knot, at ``high`` not."""
    layer, neuron, knot = (np.array(part) for part in zip(*where, strict=True))
    rows, before = np.arange(len(where)), network.slice(0, int(layer.max()) + 1)
    for _ in range(70):
        middle = 0.5 * low + 0.5 * high
        if ((middle == low) | (middle == high)).all():
            break
        values = before.preactivations(middle)
        value = np.array([values[i][k, j] for k, i, j in zip(rows, layer, neuron, strict=True)])
        under = (value < knot)[:, None]
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return np.concatenate([low, high])


def _kinks(network: Network) -> Iterator[tuple[int, int, float]]:
    """Every (layer, neuron, knot) at which an activation may have a kink."""
    for place, layer in enumerate(network.layers):
        for row, index in layer.neurons.groups if layer.neurons else ():
            if row.row.kinks:
                for knot in row.row.knots(np.zeros(index.size), *row.parameters):
                    for neuron, value in zip(index, np.broadcast_to(knot, index.shape), strict=True):
                        yield place, int(neuron), float(value)


def _first(candidates: Array, size: Array) -> int | None:
    """The candidate of the smallest size that is not the origin, if there is any."""
    if not candidates.any():
        return None
    return int(np.argmin(np.where(candidates, np.where(size == 0.0, 1e300, size), np.inf)))


def cost(layer: Layer) -> int:
    """Products in the layer's affine map at one point."""
    return layer.convolution.entries if layer.convolution else entries(layer.linear)


def disturbed(network: Network, x: Array, unit: float, seed: int = 0) -> tuple[Array, Array, Array]:
    """Outputs, how far rounding may move each, and the largest value in the network; per point of (n, inputs).

    Every sum Wz + b is moved by ±16u(|W||z| + |b|) and every activation by ±16u|φ|, at random, where u is the unit
    roundoff. Formulas of smooth activations cancel, as exp(v) - 1 or 1 + erf(v) does; they are moved by
    ±16u(1 + |v|) in addition, |v| up to 64, times the largest parameter. The result is 16 times the largest change
    of an output in three draws of the signs and of their opposites.
    """
    parts = [x[start : start + _rows(network)] for start in range(0, len(x), _rows(network))]
    exact, moved, largest = zip(*(_moved(network, part, unit, seed) for part in parts), strict=True)
    return np.concatenate(exact), np.concatenate(moved), np.concatenate(largest)


def _rows(network: Network) -> int:
    """How many points may be carried through the network at once."""
    return max(8, int(_MEMORY / sum(network.sizes)))


def _moved(network: Network, x: Array, unit: float, seed: int) -> tuple[Array, Array, Array]:
    exact, reaches = x, []
    for layer in network.layers:
        size = layer.convolution.magnitude() if layer.convolution else abs(layer.weight)
        sums = Layer(size, np.abs(layer.bias), None).affine(np.abs(exact))
        v = exact = layer.affine(exact)
        bends = np.zeros(1)
        if layer.neurons is not None:
            exact = layer.neurons.value(v)
            bends = np.abs(exact) + _beyond(layer.neurons, v, np.minimum(sums, 2.0 / (NOISE * unit)))
        reaches.append((sums, bends))
    moved = np.zeros_like(exact)
    for number in range(2 * DRAWS):
        rng = np.random.default_rng((seed, number // 2))
        side = (-1) ** number * NOISE * unit
        z = x
        for layer, (sums, bends) in zip(network.layers, reaches, strict=True):
            z = _shaken(layer.affine(z), side * sums, rng)
            if layer.neurons is not None:
                z = _shaken(layer.neurons.value(z), side * bends, rng)
        moved = np.fmax(moved, np.abs(z - exact))
    largest = np.max([np.abs(x).max(axis=1), *(sums.max(axis=1) for sums, _ in reaches)], axis=0)
    return exact, MARGIN * moved, largest


def _shaken(value: Array, reach: Array, rng: np.random.Generator) -> Array:
    """Each entry up or down by its reach."""
    return value + np.where(rng.integers(0, 2, value.shape, dtype=np.uint8) == 1, reach, -reach)


def _beyond(neurons: Neurons, v: Array, most: Array) -> Array:
    """What activations may be moved by beyond their own size; 0 for straight pieces.

    Terms may cancel in the formula of a curved one. In a periodic one a step may lead anywhere after many periods, or
    back: up to ``most``.
    """
    sizes = np.zeros(v.shape)
    for row, index in neurons.groups:
        shape = np.broadcast_arrays(*row.row.shape(np.zeros(1), *row.parameters))
        if any((piece != STRAIGHT).any() for piece in shape):
            scale = np.max([1.0, *(np.max(np.abs(parameter)) for parameter in row.parameters)])
            sizes[:, index] = scale * (1.0 + np.minimum(np.abs(v[:, index]), 64.0))
        if np.isfinite(row.row.period):
            sizes[:, index] += most[:, index]
    return sizes
