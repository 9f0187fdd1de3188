"""Matrices of fractions, to say exactly what folding must give."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lipcert.importers.precise import Precise
from lipcert.model.arrays import dense

Table = list[list[Fraction]]

ALLOWED = Fraction(1, 2**53) * (1 + Fraction(1, 2**19))
"""What one rounding may cost, relative to the rounded number."""


def fractions(matrix: Any) -> Table:
    """A matrix of floats, dense or sparse, as it is."""
    return [[Fraction(float(v)) for v in row] for row in dense(matrix)]


def times(one: Table, two: Table) -> Table:
    """The product of two matrices."""
    return [[sum((a * b for a, b in zip(row, col)), Fraction(0)) for col in zip(*two)] for row in one]


def assert_rounded_once(stored: Any, exact: Table) -> None:
    """Every float is within one rounding of the exact number; 0 only for 0."""
    for row, truth in zip(dense(stored), exact, strict=True):
        for value, number in zip(row, truth, strict=True):
            assert abs(Fraction(float(value)) - number) <= ALLOWED * abs(Fraction(float(value)))


def number_at(values: Precise, place: int) -> Fraction:
    """The sum of the parts; the models here have coefficients with an error far below that of the rounding."""
    return sum((Fraction(float(part)) for part in values.parts[:, place]), Fraction(0))
