"""What a network does at points, with proved errors: its pre-activations, and how far it stretches a direction."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.kernel.near import Approx, Near, congruence
from lipcert.kernel.neuron_bounds import slope_bounds, value_error
from lipcert.kernel.norms import length_above
from lipcert.kernel.rounding import down, norm_below, up
from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.norms import PLAIN, Norm, Norms

_SHALLOW = 4
"""Layers up to which errors are kept entry by entry."""
_BROAD = 3000
"""Entries from which an error is kept entry by entry: a matrix of that size takes more time than it saves."""
_WIDE, _SMALL = 1000, 2.0**-32
"""Neurons of a layer from which errors entry by entry are tried first; they do if they are this small."""


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Vectors (count, n) near computed ones, entry by entry, and unless Q is None also e + d away, eeᵀ ≼ Q, |d| ≤ δ.

    An ellipsoid follows the contraction of the network where errors by entry would grow with every layer. In a few
    layers they hardly grow, and ``entrywise`` costs less.
    """

    near: Near
    entrywise: bool
    Q: Approx | None = None
    delta: Array = field(default_factory=lambda: np.zeros(1))

    def through(self, weight: Weight, bias: Near | float = 0.0) -> _Vectors:
        """W x + b for the vectors x."""
        if self.entrywise or max(weight.shape) >= _BROAD or not self.near.error.any():
            return _Vectors(self.near.through(weight) + bias, self.entrywise)
        if self.Q is None:
            Q = Approx.diagonal(np.zeros(self.near.shape)).sum_above(self.near.error)
        else:
            Q = self.Q.sum_above(self.delta)
        Q, computed = congruence(Q, weight), Near.of(self.near.value).through(weight) + bias
        error = up(up(np.sqrt(np.diagonal(Q, axis1=-2, axis2=-1))) + computed.error)
        return _Vectors(Near(computed.value, error), False, Approx(Q, symmetric=True), computed.error)

    def scaled(self, slopes: Near, computed: Near) -> _Vectors:
        """Vectors that are away from computed ones by slopes·(e + d), and by what those lost."""
        near = Near(computed.value, up(up(slopes.size * self.near.error) + computed.error))
        if self.Q is None:
            return _Vectors(near, self.entrywise)
        m, apart = slopes.value, up(slopes.error * self.near.error)
        delta = up(up(up(np.abs(m) * self.delta) + apart) + computed.error)
        return _Vectors(near, False, self.Q.scaled(m, m), delta)


def held(network: Network) -> Network:
    """The same function, its output held by neurons of the identity."""
    last, size = network.layers[-1], network.outputs
    read = Layer(np.eye(size), np.zeros(size), None)
    return Network((*network.layers[:-1], Layer(last.weight, last.bias, Neurons.of("identity", size)), read))


def trajectory(network: Network, points: Array, quickly: bool = False) -> list[tuple[Array, Array]]:
    """The pre-activations of the hidden layers at points (count, inputs) as computed, and bounds of their errors."""
    if quickly or network.depth <= _SHALLOW:
        return _followed(network, points, entrywise=True)
    if max(network.sizes[1:]) < _WIDE:
        return _followed(network, points, entrywise=False)
    found = _followed(network, points, entrywise=True)
    enough = [size.max(axis=-1, initial=0.0) <= _SMALL * np.abs(v).max(axis=-1, initial=0.0) for v, size in found]
    again = np.flatnonzero(~np.all(enough, axis=0))  # point by point: what is said of one does not hang on others
    if again.size:
        for (v, size), (value, error) in zip(found, _followed(network, points[again], entrywise=False), strict=True):
            v[again], size[again] = value, error
    return found


def _followed(network: Network, points: Array, entrywise: bool) -> list[tuple[Array, Array]]:
    z = _Vectors(Near.of(points), entrywise)
    found = []
    for layer in network.layers[:-1]:
        assert layer.neurons is not None
        v = z.through(layer.weight, Near.weights(layer.bias))
        found.append((v.near.value, np.where(np.isnan(v.near.error), np.inf, v.near.error)))
        value = layer.neurons.value(v.near.value)
        z = v.scaled(_slopes(layer.neurons, v.near), Near(value, value_error(layer.neurons, value)))
    return found


def _slopes(neurons: Neurons, v: Near) -> Near:
    """The slopes of φ where v may be."""
    return Near.between(*slope_bounds(neurons, v.below, v.above))


def stretch_below(network: Network, point: Array, direction: Array, norms: Norms = PLAIN) -> float:
    """At most ‖J·direction‖/‖direction‖ for the Jacobian J at the point (at a kink: for every one-sided Jacobian).

    The norms may have units, no shapes: the direction, multiplied by units, is rounded once.
    """
    quickly = 0.0
    if max(network.sizes) >= _WIDE:
        quickly = _stretch_below(network, point, direction, norms, entrywise=True)
        about = norms.output.of(network.jacobian(point) @ direction) / norms.input.of(direction)
        if quickly > (1.0 - 2.0**-20) * float(about):
            return quickly
    return max(quickly, _stretch_below(network, point, direction, norms, entrywise=False))


def _stretch_below(network: Network, point: Array, direction: Array, norms: Norms, entrywise: bool) -> float:
    y, exponent = _Vectors(Near.of(direction[None]), entrywise), 0
    for layer, v in zip(network.layers, trajectory(network, point[None]), strict=False):
        assert layer.neurons is not None
        y, slopes = y.through(layer.weight), _slopes(layer.neurons, Near(*v))
        moved = slopes * y.near.value
        top = float(np.abs(moved.value).max())
        power = int(np.frexp(top)[1]) if 0.0 < top < np.inf else 0  # keeps the vector near unit size
        y, exponent = y.scaled(slopes.shifted(-power), moved.shifted(-power)), exponent + power
    last = y.through(network.layers[-1].weight).near[0]
    length = down(np.ldexp(_length_below(last, norms.output), exponent))
    below = float(down(length / length_above(direction, norms.input)))
    return below if 0.0 < below < np.inf else 0.0


def _length_below(y: Near, norm: Norm) -> Array:
    """At most the norm of a vector."""
    sizes, units = np.maximum(down(np.abs(y.value) - y.error), 0.0), norm.units(len(y.value))
    sizes = sizes if units is None else np.maximum(down(sizes / units), 0.0)
    if norm.name == "l2":
        return norm_below(sizes)
    return np.asarray(sizes.max()) if norm.name == "linf" else Near.of(sizes).sum().below
