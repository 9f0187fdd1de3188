"""What the paper prints: its tables as text, with every printed digit."""

from __future__ import annotations

import csv
from collections import defaultdict
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from lipcert.model.arrays import Array

_NOISE = 1e-9
"""Relative; allowed for the rounding errors of the two computations."""
PAPER_RADII = tuple(2.0**-k for k in range(1, 9))
"""ε = 1/2 … 1/256, of the MNIST study."""


class Printed(NamedTuple):
    """A bound and its seconds as printed; a bound may be a word such as ">10min", and either may be empty."""

    bound: str = ""
    seconds: str = ""

    @property
    def value(self) -> float | None:
        """The bound as a number, or None where no number is printed."""
        with suppress(ValueError):
            return float(self.bound)
        return None


def agrees(value: float, printed: str) -> bool:
    """Whether a value rounds to the printed digits.

    Examples
    --------
    >>> agrees(12.3454, "12.345"), agrees(12.3456, "12.345"), agrees(1.0604e17, "1.060e+17")
    (True, False, True)
    """
    exponent = Decimal(printed).as_tuple().exponent
    assert isinstance(exponent, int)
    return abs(value - float(printed)) <= 0.5 * 10.0**exponent * (1 + 1e-6) + _NOISE * abs(float(printed))


@lru_cache
def paper_table(table: str) -> dict[tuple[str, int, int, float | None], Printed]:
    """What "table1", "table2" or "radius" prints, by method, width, layers and radius δ; None if it has no radius."""
    return {
        (row["method"], int(row["width"]), int(row["layers"]), float(row["radius"]) if row["radius"] else None): (
            Printed(row["bound"], row["seconds"])
        )
        for row in _rows("paper.csv")
        if row["table"] == table
    }


@lru_cache
def paper_model(model: str) -> dict[str, Array]:
    """What is printed of "baseline" or "regularised".

    Its own local "bound" (points, radii), the "failure" rates in percent (radii,), and of the regularised model the
    "ratio" (1,) of the mean certified radius to that of the trivial bound.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for row in _rows("paper_mnist.csv"):
        if row["model"] == model:
            values[row["quantity"]].append(float(row["value"]))
    return {name: np.array(each) for name, each in values.items()} | {
        "bound": np.reshape(values["bound"], (-1, len(PAPER_RADII)))
    }


def _rows(name: str) -> list[dict[str, str]]:
    text = (resources.files("lipcert.reproduce") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
