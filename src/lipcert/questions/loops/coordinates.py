"""A loop in other coordinates, y = M⁻¹x, computed in exact fractions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.kernel.arithmetic import down, up
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network

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


def times(left: Exact, right: Exact) -> Exact:
    """The product."""
    columns = list(zip(*right, strict=True))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction()) for column in columns] for row in left]


def nearest(matrix: Exact, least: Fraction = 1 / _LIMIT) -> Array:
    """The floats nearest to fractions, within a rounding of each from the ``least`` on; an error where floats end."""
    if any(entry and not least <= abs(entry) <= _LIMIT for row in matrix for entry in row):
        raise InvalidInput("the shape takes numbers out of the range of floats; give states in other units")
    return np.array([[float(entry) for entry in row] for row in matrix])


def in_coordinates(step: Network, shape: Array) -> Network:
    """M⁻¹ step(M y, w): its weights are the floats nearest to the exact ones."""
    back, into = inverse(shape), np.eye(step.inputs)
    into[: len(shape), : len(shape)] = shape
    first, *_ = step.layers
    layers = [replace(first, linear=nearest(times(exact(dense(first.weight)), exact(into)))), *step.layers[1:]]
    last = layers[-1]
    weight, bias = times(back, exact(dense(last.weight))), times(back, exact(last.bias[:, None]))
    layers[-1] = replace(last, linear=nearest(weight), bias=nearest(bias)[:, 0])
    return Network(tuple(layers))


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
