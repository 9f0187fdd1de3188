"""What the paper prints: its tables as text, with every printed digit."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib import resources

import numpy as np

from lipcert.model.arrays import Array

_NOISE = 1e-9
"""Relative; allowed for the rounding errors of the two computations."""


@dataclass(frozen=True)
class Printed:
    """A bound and its seconds as printed; a bound may be a word such as ">10min", and either may be empty."""

    bound: str = ""
    seconds: str = ""

    @property
    def value(self) -> float | None:
        """The bound as a number, or None where no number is printed."""
        return _number(self.bound)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
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
    found = {}
    for row in _rows("paper.csv"):
        if row["table"] == table:
            key = row["method"], int(row["width"]), int(row["layers"]), _number(row["radius"])
            found[key] = Printed(row["bound"], row["seconds"])
    return found


@dataclass(frozen=True, eq=False)
class PaperModel:
    """What the paper prints of an MNIST model: its own local bounds (points, radii), and failures in percent (radii,).

    ``ratio`` is the mean certified radius over that of the trivial bound; only of the regularised model.
    """

    bounds: Array
    failures: Array
    ratio: float | None


PAPER_RADII = tuple(2.0**-k for k in range(1, 9))
"""ε = 1/2 … 1/256, of the MNIST study."""


@lru_cache
def paper_model(model: str) -> PaperModel:
    """What is printed of "baseline" or "regularised"."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in _rows("paper_mnist.csv"):
        if row["model"] == model:
            values[row["quantity"]].append(float(row["value"]))
    bounds = np.array(values["bound"]).reshape(-1, len(PAPER_RADII))
    return PaperModel(bounds, np.array(values["failure"]), values.get("ratio", [None])[0])


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files("lipcert.reproduce") / name).read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())
