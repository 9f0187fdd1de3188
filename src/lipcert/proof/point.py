"""What a network does at points, with proved errors: its pre-activations, and how far it stretches a direction."""

from __future__ import annotations

import numpy as np

from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.norms import PLAIN, Norm, Norms
from lipcert.proof.near import congruence
from lipcert.proof.neuron_bounds import slope_bounds, value_error
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    U,
    down,
    fan_in,
    gamma,
    magnitude,
    norm_above,
    norm_below,
    raise_diagonal,
    spread,
    square_above,
    stretched,
    up,
)

_SHALLOW = 4
"""Layers up to which errors are kept entry by entry."""
_BROAD = 3000
"""Entries from which an error is kept entry by entry: a matrix of that size takes more time than it saves."""
_WIDE, _SMALL = 1000, 2.0**-32
"""Neurons of a layer from which errors entry by entry are tried first; they do if they are this small."""


class Error:
    """The errors e of computed vectors (count, n), kept in ellipsoids: e eᵀ ≼ Q; of long ones by entry: |e| ≤ box.

    An ellipsoid follows the contraction of the network where norms would grow with every layer. In a few layers they
    hardly grow, and ``entrywise`` costs less.
    """

    def __init__(self, entrywise: bool = False) -> None:
        self.entrywise = entrywise
        self.Q: Array | None = None
        self.box: Array | None = None

    def through(self, weight: Weight) -> None:
        """The error after an exact linear map."""
        if self.Q is None and self.box is None:
            return
        rows, columns = weight.shape
        if self.entrywise or max(rows, columns) >= _BROAD:
            self.box = up(spread(magnitude(weight), self.sizes(columns)) * UP) + TINY
            self.Q = None
            return
        if self.box is not None:
            box, self.box = self.box, None
            self.add(box)
        assert self.Q is not None
        self.Q = congruence(self.Q, weight)

    def scaled(self, factor: Array) -> None:
        """The error after an exact multiplication of each entry; two roundings per entry and one of the mean."""
        if self.box is not None:
            self.box = up(self.box * np.abs(factor)) + TINY
        if self.Q is not None:
            Q = factor[:, :, None] * self.Q * factor[:, None, :]
            error = 8.0 * gamma(1) * np.abs(Q).sum(axis=-1) * UP
            error = error + TINY * (1.0 + np.abs(factor).sum(axis=-1, keepdims=True))
            self.Q = raise_diagonal(0.5 * (Q + np.swapaxes(Q, -1, -2)), error)

    def add(self, delta: Array) -> None:
        """A further error d with |d| ≤ δ entrywise, (count, n).

        d dᵀ ≼ n·diag(δ²), and (e + d)(e + d)ᵀ ≼ (a + b)(Q/a + n·diag(δ²)/b) for any a, b > 0. Factors UP cover the
        rounding of numbers that are not negative, the raised diagonal that of Q's entries. The floor TINY under δ² also
        covers errors d whose squares would underflow.
        """
        n = delta.shape[-1]
        if self.box is not None or (self.Q is None and (self.entrywise or n >= _BROAD)):
            self.box = up((0.0 if self.box is None else self.box) + delta * UP) + TINY
            return
        box = n * square_above(delta * UP + TINY) * UP
        if self.Q is None:
            self.Q = box[:, :, None] * np.eye(n)
            return
        a, b = np.sqrt(np.trace(self.Q, axis1=-2, axis2=-1)), np.sqrt(box.sum(axis=-1))
        grown = np.where(a > 0, UP * (1.0 + b / np.where(a > 0, a, 1.0)), 1.0)
        total = grown[:, None, None] * self.Q
        raised = (1.0 + a / b)[:, None] * box * UP + 4.0 * gamma(1) * np.abs(total).sum(axis=-1) * UP
        self.Q = raise_diagonal(total, raised)

    def rescaled(self, power: int) -> None:
        """The error of vectors that are multiplied by a power of two; exact but for underflow, which is added."""
        if self.Q is not None:
            self.Q = np.ldexp(self.Q, 2 * power)
            self.add(np.zeros(self.Q.shape[:-1]))
        elif self.box is not None:
            self.box = np.ldexp(self.box, power)
            self.add(np.zeros(self.box.shape))

    def sizes(self, n: int) -> Array:
        """At least |e_l| for each entry, (count, n)."""
        if self.Q is not None:
            size = np.sqrt(np.diagonal(self.Q, axis1=-2, axis2=-1)) * UP
        else:
            size = np.zeros((1, n)) if self.box is None else self.box
        return np.where(np.isnan(size), np.inf, size)

    def length(self) -> float:
        """At least ‖e‖₂ of a single one."""
        if self.box is not None:
            return float(norm_above(self.box)[0])
        return 0.0 if self.Q is None else float(np.sqrt(np.trace(self.Q[0])) * UP)


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
    z, error = points, Error(entrywise)
    found = []
    for layer in network.layers[:-1]:
        assert layer.neurons is not None
        v = layer.affine(z)
        error.through(layer.weight)
        fresh = _product_error(layer.weight, z) + gamma(LOOSE + 2) * np.abs(layer.bias) + gamma(2) * np.abs(v)
        size = (error.sizes(layer.size) + fresh) * UP + TINY  # less than what the ellipsoid of both tells
        error.add(fresh)
        found.append((v, size))
        m, apart = _slopes(layer.neurons, v, size)
        z = layer.neurons.value(v)
        error.scaled(m)
        error.add(apart * size + value_error(layer.neurons, z))
    return found


def _slopes(neurons: Neurons, v: Array, size: Array) -> tuple[Array, Array]:
    """The middle of the slopes of φ within ``size`` of v, and at least how far they are from it."""
    alpha, beta = slope_bounds(neurons, down(v - size), up(v + size))
    m = 0.5 * (alpha + beta)
    return m, up(np.maximum(beta - m, m - alpha))


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
    y, error, exponent = direction[None], Error(entrywise), 0
    for layer, (v, size) in zip(network.layers, trajectory(network, point[None]), strict=False):
        assert layer.neurons is not None
        rounding = _product_error(layer.weight, y)
        y = spread(layer.weight, y)
        error.through(layer.weight)
        error.add(rounding)
        m, apart = _slopes(layer.neurons, v, size)
        rest = apart * (np.abs(y) + error.sizes(y.shape[-1])) + 2.0 * U * np.abs(m * y)
        y = m * y
        error.scaled(m)
        error.add(rest)
        top = float(np.abs(y).max())
        if top > 0 and np.isfinite(top):  # keep the vector near unit size
            power = int(np.frexp(top)[1])
            y, exponent = np.ldexp(y, -power), exponent + power
            error.rescaled(-power)
    last = network.layers[-1].weight
    rounding = _product_error(last, y)
    y = spread(last, y)
    error.through(last)
    error.add(rounding)
    length = float(np.ldexp(_length_below(y[0], error, norms.output), exponent))
    below = length / length_above(direction, norms.input) * (1.0 - 2.0**-50)
    # there and beyond, the factors above do not round down
    return below if length > 2.0**-900 and 2.0**-900 < below < np.inf else 0.0


def _length_below(y: Array, error: Error, norm: Norm) -> float:
    """At most the norm of the vector of which y is the computed one."""
    if norm == PLAIN.output:
        return float(norm_below(y)) - error.length() * UP
    sizes = np.maximum(down(np.abs(y) - error.sizes(len(y))[0] * UP), 0.0)
    units = norm.units(len(y))
    sizes = sizes if units is None else np.maximum(down(sizes / units), 0.0)
    if norm.name == "l2":
        return float(norm_below(sizes))
    return float(sizes.max()) if norm.name == "linf" else float(sizes.sum()) * (1.0 - gamma(len(y) + 2))


def length_above(vector: Array, norm: Norm) -> float:
    """At least the norm of a vector."""
    units = norm.units(len(vector))
    sizes = np.abs(vector) if units is None else up(np.abs(vector) / units)
    if norm.name == "l2":
        return float(norm_above(sizes))
    return float(sizes.max() if norm.name == "linf" else stretched(sizes.sum(), len(sizes)))


def _product_error(weight: Weight, z: Array) -> Array:
    """At least the rounding error of weight·z."""
    return gamma(fan_in(weight) + LOOSE + 3) * spread(magnitude(weight), np.abs(z)) * UP
