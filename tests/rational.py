"""Matrices of fractions, to say exactly what folding must give."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lipcert.importers.precise import Precise
from lipcert.model.arrays import dense

Table = list[list[Fraction]]

ALLOWED = Fraction(1, 2**50)
"""How far a stored coefficient may be from the exact one, relative to the stored one."""


def fractions(matrix: Any) -> Table:
    """A matrix of floats, dense or sparse, as it is."""
    return [[Fraction(float(v)) for v in row] for row in dense(matrix)]


def times(one: Table, two: Table) -> Table:
    """The product of two matrices."""
    return [[sum((a * b for a, b in zip(row, col)), Fraction(0)) for col in zip(*two)] for row in one]


def assert_near(stored: Any, exact: Table, allowed: Fraction = ALLOWED) -> None:
    """Every float is within the tolerance of the exact number; 0 only for 0."""
    for row, truth in zip(dense(stored), exact, strict=True):
        for value, number in zip(row, truth, strict=True):
            assert abs(Fraction(float(value)) - number) <= allowed * abs(Fraction(float(value)))


def number_at(values: Precise, place: int) -> Fraction:
    """The sum of both floats; the models here have coefficients with an error far below the tolerance."""
    return Fraction(float(values.high[place])) + Fraction(float(values.low[place]))
