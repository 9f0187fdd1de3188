"""Digests: two networks that compute different functions must not share one."""

from __future__ import annotations

from typing import Any

import numpy as np

import lipcert as lc
from attack.draw import leaky, plain, some
from attack.log import Log
from lipcert.model.arrays import Array
from lipcert.model.network import Network


def digest(rng: np.random.Generator, log: Log) -> None:
    """A pair of networks that differ in something small."""
    one, two = some(rng, _other_number, _other_rows, _other_shape)(rng)
    log.checks += 1
    same = log.ask("one.digest == two.digest", one=one, two=two)
    if same:
        log.violation("two different networks have one digest")


def _copy(net: Network) -> tuple[list[Array], list[Array], list[Any]]:
    return (
        [np.array(layer.weight) for layer in net.layers],
        [np.array(layer.bias) for layer in net.layers],
        [layer.neurons for layer in net.layers[:-1]],
    )


def _natural(rng: np.random.Generator) -> Network:
    return plain(rng, (2, int(rng.integers(2, 5)), int(rng.integers(2, 5)), 2), some(rng, "relu", "tanh", leaky(0.1)))


def _other_number(rng: np.random.Generator) -> tuple[Network, Network]:
    """One weight or bias moved by one unit in the last place, or from zero to the least float."""
    net = _natural(rng)
    weights, biases, rows = _copy(net)
    array = some(rng, *weights, *biases)
    place = tuple(int(rng.integers(n)) for n in array.shape)
    array[place] = np.nextafter(array[place], np.inf) if rng.random() < 0.7 else 5e-324
    return net, lc.Network.from_weights(weights, biases, rows)


def _other_rows(rng: np.random.Generator) -> tuple[Network, Network]:
    """One neuron with another activation, or two neurons that change theirs."""
    net = _natural(rng)
    weights, biases, _ = _copy(net)
    names = [[some(rng, "relu", "tanh", "sigmoid", "arctan") for _ in w] for w in weights[:-1]]
    other = [list(row) for row in names]
    layer = int(rng.integers(len(other)))
    k = int(rng.integers(len(other[layer])))
    other[layer][k] = some(rng, *({"relu", "tanh", "sigmoid", "arctan"} - {names[layer][k]}))
    return lc.Network.from_weights(weights, biases, names), lc.Network.from_weights(weights, biases, other)


def _other_shape(rng: np.random.Generator) -> tuple[Network, Network]:
    """The same entries in the same order, in another shape; or an activation moved to the next layer."""
    n = int(rng.integers(3, 6))
    values = rng.standard_normal(2 * n)
    if rng.random() < 0.5:
        return lc.Network.from_weights([values.reshape(2, n)]), lc.Network.from_weights([values.reshape(n, 2)])
    weights = [rng.standard_normal((n, n)) for _ in range(3)]
    one, two = (["relu", "identity"], ["identity", "relu"])
    return lc.Network.from_weights(weights, None, one), lc.Network.from_weights(weights, None, two)
