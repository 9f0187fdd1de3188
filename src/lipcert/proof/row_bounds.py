"""Bounds of a row of the outputs over a ball: what quadratic relaxation, second order and value functions share."""

from __future__ import annotations

from lipcert.model.arrays import Array, Weight
from lipcert.proof.near import Approx


def pulled(rows: Approx, weight: Weight, sizes: Array) -> tuple[Array, Array]:
    """Floats r and a number with rows·W z ≤ r·z + missed for every |z| ≤ sizes, for rows (k, n)."""
    through = rows @ Approx.weight(weight)
    return through.value, through.err(sizes)
