"""Neurons that switch together, made one: the same function with fewer neurons.

relu(v) and relu(2v) have their kink at the same inputs, and relu(2v) = 2·relu(v). A certificate speaks of all networks
within 2⁻⁵² of the stored numbers, and in most of those the two kinks are a little apart; between them only one of
the neurons is on. So the pattern with one on and one off counts, although in the network itself it holds on a plane
only, and no bound of that network can be below it. With the neurons made one, there is no such pattern.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer, Network, Neurons

_STRAIGHT = ("identity", "leaky_relu", "relu")
"""Activations with φ(s·v) = s·φ(v) for all s > 0."""
_ROUNDED = Fraction(1, 2**53)


def merge_ties(network: Network) -> Network:
    """The same function, with neurons that are positive multiples of another one taken into that one.

    Two neurons of a layer become one if they have the same activation (relu, leaky_relu or identity), and weights and
    bias of the second are s > 0 times those of the first, exactly. Each weight that leaves the first is then
    w + s·w', rounded once: it differs from the exact number by at most 2⁻⁵³ of it. A certificate of the new network
    allows for more than that, so its bound holds for the given network too, taken exactly as it is stored.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [0.5]], [[1.0, -1.0]]])  # relu(x) - relu(x/2)
    >>> lc.merge_ties(net).sizes
    (1, 1, 1)
    """
    layers = list(network.layers)
    for index, (layer, ahead) in enumerate(itertools.pairwise(network.layers)):
        assert layer.neurons is not None
        out = np.array(dense(layers[index + 1].weight))
        kept = np.ones(layer.size, dtype=bool)
        for first, others in _groups(layer).items():
            columns = _sum(dense(ahead.weight), [(first, Fraction(1)), *others])
            if columns is not None:
                out[:, first], kept[[neuron for neuron, _ in others]] = columns, False
        if not kept.all():
            mine = layers[index]
            layers[index] = Layer(mine.weight[kept], mine.bias[kept], layer.neurons.take(np.flatnonzero(kept)))
            layers[index + 1] = Layer(out[:, kept], ahead.bias, ahead.neurons)
    return Network(tuple(layers), network.input_shape)


def _groups(layer: Layer) -> dict[int, list[tuple[int, Fraction]]]:
    """Neurons that have multiples, and which these are: neurons and factors."""
    assert layer.neurons is not None
    table = np.column_stack([dense(layer.weight), layer.bias])
    kinds = [_kind(layer.neurons, neuron) for neuron in range(layer.size)]
    alike: dict[object, list[int]] = {}
    for neuron, kind in enumerate(kinds):  # multiples have their signs, and about their direction, in common
        largest = np.abs(table[neuron]).max()
        if kind is not None and largest > 0.0:
            about = np.round(table[neuron] / largest, 9) + 0.0
            alike.setdefault((kind, about.tobytes()), []).append(neuron)
    found: dict[int, list[tuple[int, Fraction]]] = {}
    for first, *others in alike.values():
        factors = [(neuron, _factor(table[first], table[neuron])) for neuron in others]
        if usable := [(neuron, factor) for neuron, factor in factors if factor is not None]:
            found[first] = usable
    return found


def _kind(neurons: Neurons, neuron: int) -> tuple[str, tuple[float, ...]] | None:
    """Activation and parameters of a neuron, or None if it does not scale."""
    row = neurons.take(np.array([neuron])).groups[0][0]
    numbers = tuple(float(np.ravel(parameter)[0]) for parameter in row.parameters)
    return (row.name, numbers) if row.name in _STRAIGHT else None


def _factor(one: Array, two: Array) -> Fraction | None:
    """The s > 0 with two = s·one exactly, if there is one."""
    place = int(np.argmax(np.abs(one)))
    scale = Fraction(float(two[place])) / Fraction(float(one[place]))
    exact = all(Fraction(float(b)) == scale * Fraction(float(a)) for a, b in zip(one, two, strict=True))
    return scale if exact and scale > 0 else None


def _sum(weight: Array, parts: list[tuple[int, Fraction]]) -> Array | None:
    """Σ factor·column, each entry rounded once; None if that would lose more than a unit, at either end of floats."""
    exact = [sum((s * Fraction(float(row[k])) for k, s in parts), Fraction(0)) for row in weight]
    if any(abs(x) > Fraction(float(np.finfo(float).max)) for x in exact):
        return None
    rounded = [float(x) for x in exact]
    near = all(abs(Fraction(a) - x) <= _ROUNDED * abs(x) for a, x in zip(rounded, exact, strict=True))
    return np.array(rounded) if near else None
