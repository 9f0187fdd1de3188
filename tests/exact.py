"""References without rounding: activations by lipcert.definitions, and matrices of fractions.

Nothing here comes from the table under test. A ball is a midpoint and a radius that holds every rounding error, so each
number below is exact to within a radius that can be read off.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq, fmpq_mat

from lipcert.definitions.functions import Function, ball, jet, precision, rational
from lipcert.definitions.rows import function
from lipcert.model.activations import Activation
from lipcert.model.arrays import dense
from lipcert.model.network import Network

__all__ = [
    "PRECISION",
    "at",
    "ball",
    "diagonal",
    "exact",
    "exact_outputs",
    "highest",
    "matrix",
    "positive_semidefinite",
    "precision",
    "rational",
    "slope_range",
]

PRECISION = 200
NEGLIGIBLE = arb(2) ** -1200


def exact(row: Activation) -> Function:
    """The definition of a row, with its parameters; they must be single numbers."""
    return function(row.name, tuple(float(np.asarray(parameter)) for parameter in row.parameters))


def at(row: Activation, v: float) -> tuple[arb, arb]:
    """φ(v) and φ'(v) from the right to 100 bits or to within 2⁻¹²⁰⁰, at whatever working precision that takes."""
    bits = PRECISION
    while True:
        with precision(bits):
            here, after = ball(v), ball(float(np.nextafter(v, np.inf)))
            arcs = exact(row).on(here, after).arcs
            found = arcs[0].first if arcs else jet(exact(row).formulas[0], here)
        if all(x.rel_accuracy_bits() > 100 or (x.is_finite() and x.rad() < NEGLIGIBLE) for x in found):
            return found
        bits *= 2


def slope_range(row: Activation, low: arb, high: arb) -> tuple[arb, arb]:
    """Least and largest derivative on [low, high], both sides of a kink counting if it is inside."""
    return exact(row).on(low, high).slopes()


def highest(row: Activation, sign: int, low: arb, high: arb, slope: arb) -> arb:
    """About the largest sign·φ(v) - slope·v on [low, high], and not more: the second opinion is off by 2⁻⁶⁴ of it."""
    found = exact(row).on(low, high).top(sign, slope)
    size = 1 + abs(found) + abs(slope) * (abs(low) + abs(high))
    return found - size * arb(2) ** -60


def matrix(array: Any) -> fmpq_mat:
    """A matrix of floats or fractions as fractions, exactly."""
    rows = np.atleast_2d(np.asarray(array)).tolist()
    return fmpq_mat(
        [[fmpq(x.numerator, x.denominator) if isinstance(x, Fraction) else rational(x) for x in r] for r in rows]
    )


def diagonal(entries: Any) -> fmpq_mat:
    """A diagonal matrix of fractions or floats, exactly."""
    values = [x if isinstance(x, fmpq) else rational(x) for x in entries]
    return fmpq_mat([[v if i == j else fmpq(0) for j in range(len(values))] for i, v in enumerate(values)])


def positive_semidefinite(symmetric: fmpq_mat) -> bool:
    """Whether a symmetric matrix of fractions has no negative eigenvalue: elimination without a single rounding."""
    rows = [list(row) for row in symmetric.table()]
    n = len(rows)
    assert all(rows[i][j] == rows[j][i] for i in range(n) for j in range(i))
    for k in range(n):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[k][j] != 0 for j in range(k + 1, n))):
            return False
        for i in range(k + 1, n) if pivot > 0 else ():
            factor = rows[i][k] / pivot
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


PIECES: dict[str, Callable[[Fraction], Fraction]] = {
    "relu": lambda v: max(v, Fraction(0)),
    "hardswish": lambda v: Fraction(0) if v <= -3 else v if v >= 3 else v * (v + 3) / 6,
}
"""Activations that map fractions to fractions."""


def exact_outputs(network: Network, x: list[Fraction]) -> list[Fraction]:
    """The outputs of a network in rational arithmetic; all neurons of a layer have one activation of PIECES."""
    for layer in network.layers:
        rows = zip(dense(layer.weight).tolist(), layer.bias.tolist(), strict=True)
        x = [sum((Fraction(w) * z for w, z in zip(row, x, strict=True)), Fraction(b)) for row, b in rows]
        if layer.neurons is not None:
            x = [PIECES[layer.neurons.groups[0][0].name](v) for v in x]
    return x
