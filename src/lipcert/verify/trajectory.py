"""What a network does at one point, with proved errors: its pre-activations, and how far it stretches a direction."""

from __future__ import annotations

import numpy as np

from lipcert.network import Layer, Network, Neurons
from lipcert.typing import Array, Weight
from lipcert.verify.relaxation import slope_bounds, value_error
from lipcert.verify.rounding import (
    LOOSE,
    TINY,
    UP,
    U,
    congruence,
    down,
    fan_in,
    gamma,
    magnitude,
    norm_above,
    norm_below,
    raise_diagonal,
    spread,
    square_above,
    up,
)

_BROAD = 3000
"""Entries from which an error is kept entry by entry: a matrix of that size takes more time than it saves."""


class Error:
    """The error e of a computed vector, kept in an ellipsoid: e eᵀ ≼ Q; of a long one entry by entry: |e| ≤ box.

    An ellipsoid follows the contraction of the network where norms would grow with every layer.
    """

    def __init__(self) -> None:
        self.Q: Array | None = None
        self.box: Array | None = None

    def through(self, weight: Weight) -> None:
        """The error after an exact linear map."""
        if self.Q is None and self.box is None:
            return
        rows, columns = weight.shape
        if max(rows, columns) >= _BROAD:
            self.box = up(spread(magnitude(weight), self.sizes(columns)) * UP) + TINY
            self.Q = None
            return
        if self.box is not None:
            self._to_ellipsoid()
        assert self.Q is not None
        self.Q = congruence(self.Q, weight)

    def _to_ellipsoid(self) -> None:
        box, self.box = self.box, None
        assert box is not None
        self.add(box)

    def scaled(self, factor: Array) -> None:
        """The error after an exact multiplication of each entry; two roundings an entry and one of the mean."""
        if self.box is not None:
            self.box = up(self.box * np.abs(factor)) + TINY
        if self.Q is not None:
            Q = factor[:, None] * self.Q * factor
            error = 8.0 * gamma(1) * np.abs(Q).sum(axis=1) * UP + TINY * (1.0 + np.abs(factor).sum())
            self.Q = raise_diagonal(0.5 * (Q + Q.T), error)

    def add(self, delta: Array) -> None:
        """A further error d with |d| ≤ δ entrywise.

        d dᵀ ≼ n·diag(δ²), and (e + d)(e + d)ᵀ ≼ (a + b)(Q/a + n·diag(δ²)/b) for any a, b > 0. Factors UP cover the
        rounding of numbers that are not negative, the raised diagonal that of Q's entries. The floor TINY under δ² also
        covers errors d whose squares would underflow.
        """
        if self.box is not None or (self.Q is None and len(delta) >= _BROAD):
            self.box = up((0.0 if self.box is None else self.box) + delta * UP) + TINY
            return
        bounded = delta * UP + TINY
        box = len(delta) * square_above(bounded) * UP
        if self.Q is None:
            self.Q = np.diag(box)
            return
        a, b = np.sqrt(np.trace(self.Q)), np.sqrt(box.sum())
        total = UP * (1.0 + b / a) * self.Q if a > 0 else self.Q
        raised = (1.0 + a / b) * box * UP + 4.0 * gamma(1) * np.abs(total).sum(axis=1) * UP
        self.Q = raise_diagonal(total, raised)

    def sizes(self, n: int) -> Array:
        """At least |e_l| for each entry."""
        if self.box is not None:
            return np.where(np.isnan(self.box), np.inf, self.box)
        if self.Q is None:
            return np.zeros(n)
        size = np.sqrt(np.diagonal(self.Q)) * UP
        return np.where(np.isnan(size), np.inf, size)

    def length(self) -> float:
        """At least ‖e‖₂."""
        if self.box is not None:
            return float(norm_above(self.box))
        return 0.0 if self.Q is None else float(np.sqrt(np.trace(self.Q)) * UP)


def held(network: Network) -> Network:
    """The same function, its output held by neurons of the identity."""
    last, size = network.layers[-1], network.outputs
    read = Layer(np.eye(size), np.zeros(size), None)
    return Network((*network.layers[:-1], Layer(last.weight, last.bias, Neurons.of("identity", size)), read))


def trajectory(network: Network, point: Array) -> list[tuple[Array, Array]]:
    """The pre-activations of the hidden layers at a point as computed, each with a bound of its error."""
    z, error = point, Error()
    found = []
    for layer in network.layers[:-1]:
        assert layer.neurons is not None
        v = layer.affine(z)
        error.through(layer.weight)
        error.add(_product_error(layer.weight, z) + gamma(LOOSE + 2) * np.abs(layer.bias) + gamma(2) * np.abs(v))
        size = error.sizes(layer.size)
        found.append((v, size))
        alpha, beta = slope_bounds(layer.neurons, down(v - size), up(v + size))
        m = 0.5 * (alpha + beta)
        z = layer.neurons.value(v)
        error.scaled(m)
        error.add(up(np.maximum(beta - m, m - alpha)) * size + value_error(layer.neurons, z))
    return found


def stretch_below(network: Network, point: Array, direction: Array) -> float:
    """At most ‖J·direction‖₂/‖direction‖₂ for the Jacobian J at the point (at a kink: for every one-sided Jacobian)."""
    y, error, exponent = direction, Error(), 0
    for layer, (v, size) in zip(network.layers, trajectory(network, point), strict=False):
        assert layer.neurons is not None
        rounding = _product_error(layer.weight, y)
        y = spread(layer.weight, y)
        error.through(layer.weight)
        error.add(rounding)
        alpha, beta = slope_bounds(layer.neurons, down(v - size), up(v + size))
        m = 0.5 * (alpha + beta)
        apart = up(np.maximum(beta - m, m - alpha))
        rest = apart * (np.abs(y) + error.sizes(len(y))) + 2.0 * U * np.abs(m * y)
        y = m * y
        error.scaled(m)
        error.add(rest)
        top = float(np.abs(y).max())
        if top > 0 and np.isfinite(top):  # keep the vector near unit size
            power = int(np.frexp(top)[1])
            y, exponent = np.ldexp(y, -power), exponent + power
            if error.Q is not None:
                error.Q = np.ldexp(error.Q, -2 * power)
            if error.box is not None:
                error.box = np.ldexp(error.box, -power)
            error.add(np.zeros(len(y)))  # exact but for underflow, which the floor covers
    last = network.layers[-1].weight
    rounding = _product_error(last, y)
    y = spread(last, y)
    error.through(last)
    error.add(rounding)
    length = float(norm_below(y)) - error.length() * UP
    below = float(np.ldexp(length, exponent)) / float(norm_above(direction)) * (1.0 - 2.0**-50)
    return below if 2.0**-900 < below < np.inf else 0.0  # there and beyond, the factors above do not round down


def _product_error(weight: Weight, z: Array) -> Array:
    """At least the rounding error of weight·z."""
    return gamma(fan_in(weight) + LOOSE + 3) * spread(magnitude(weight), np.abs(z)) * UP
