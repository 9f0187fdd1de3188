"""A loop in other coordinates, y = M⁻¹x; M⁻¹ is computed in exact fractions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.kernel.arithmetic import down, up
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons

Exact: TypeAlias = list[list[Fraction]]
_LARGEST = 10**100
"""Entries of an inverse at most: squares of larger ones would not be floats."""
_LIMIT = Fraction(2**1000)
"""Floats between the inverse of this and this are within a rounding of what they stand for."""


def exact(matrix: Array) -> Exact:
    """The floats of a matrix as fractions."""
    return [[Fraction(float(entry)) for entry in row] for row in np.atleast_2d(matrix)]


def inverse(matrix: Array) -> Exact:
    """M⁻¹, by elimination."""
    n = len(matrix)
    rows = [row + [Fraction(int(i == j)) for j in range(n)] for i, row in enumerate(exact(matrix))]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        if not rows[pivot][k]:
            raise InvalidInput("the shape has no inverse; its columns must be independent")
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(n):
            if i != k and rows[i][k]:
                rows[i] = [entry - rows[i][k] * own for entry, own in zip(rows[i], rows[k], strict=True)]
    found = [row[n:] for row in rows]
    if max(abs(entry) for row in found for entry in row) > _LARGEST:
        raise InvalidInput("the shape is too near to one without an inverse, or too small; give states in other units")
    return found


def nearest(matrix: Exact, least: Fraction = 1 / _LIMIT) -> Array:
    """The floats nearest to fractions, within a rounding of each from the ``least`` on; an error where floats end."""
    if any(entry and not least <= abs(entry) <= _LIMIT for row in matrix for entry in row):
        raise InvalidInput("the shape takes numbers out of the range of floats; give states in other units")
    return np.array([[float(entry) for entry in row] for row in matrix])


def in_coordinates(step: Network, shape: Array) -> Network:
    """M⁻¹ step(M y, w), with layers of their own for M and M⁻¹, so that the step's weights keep their tolerance."""
    into, *hidden, last = np.eye(step.inputs), *step.layers
    into[: len(shape), : len(shape)] = shape
    first = Layer(into, np.zeros(step.inputs), _identity(step.inputs))
    last = replace(last, plain=_identity(step.outputs))
    return Network((first, *hidden, last, Layer(nearest(inverse(shape)), np.zeros(step.outputs), None)))


def _identity(size: int) -> Neurons:
    return Neurons(size, ((Activation("identity"), np.arange(size)),))


def moved(shape: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The corners of a box that contains M⁻¹x for all x between two corners."""
    ends = list(zip(map(Fraction, lower.tolist()), map(Fraction, upper.tolist()), strict=True))
    found: Exact = [[], []]
    for row in inverse(shape):
        sides = [(entry * a, entry * b) for entry, (a, b) in zip(row, ends, strict=True)]
        found[0].append(sum(map(min, sides), Fraction()))
        found[1].append(sum(map(max, sides), Fraction()))
    low, high = nearest(found, Fraction())
    return down(low), up(high)


def stretch(shape: Array) -> float:
    """At least ‖M⁻¹‖₂, by the Frobenius norm."""
    squares = sum(entry * entry for row in inverse(shape) for entry in row)
    return float(up(up(np.sqrt(up(np.array(float(squares)))))))
