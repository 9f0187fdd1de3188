"""Pieces of a region: boxes, and intervals to which neurons are confined."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from lipcert.model.arrays import Array, frozen

LEAF = -2
AXIS = -1
"""In the place of a cut neuron's layer: a node that is not cut, and one that is cut along an axis of the input."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays with one row per piece."""

    def take(self, which: Array | slice) -> Self:
        """Some of the rows."""
        return type(self)(*(getattr(self, column.name)[which] for column in fields(self)))

    def copy(self, like: Self | None = None) -> Self:
        """Rows of their own, that keep no larger arrays alive and can be read only; or those ``like`` them."""
        rows = [np.array(getattr(self, column.name)) for column in fields(self)]
        known = rows if like is None else [getattr(like, column.name) for column in fields(self)]
        return type(self)(
            *(frozen(old if np.array_equal(old, new) else new) for old, new in zip(known, rows, strict=True))
        )

    @classmethod
    def stack(cls, parts: list[Self]) -> Self:
        """The rows of all parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))


@dataclass(frozen=True, eq=False)
class Pieces(Rows):
    """Boxes (count, inputs), and what is known of the pre-activations of all hidden neurons in a row (count, neurons).

    A piece is part of another whose values are ``ceiling`` (count, rows), so its own are never larger. ``hints``
    suggests multipliers, for each neuron log2(T/(r² S_jj)); -inf where there is no suggestion. ``second`` (count,) says
    which pieces are bounded to second order only.
    """

    lower: Array
    upper: Array
    low: Array
    high: Array
    hints: Array
    ceiling: Array
    second: Array

    def __len__(self) -> int:
        return len(self.ceiling)


@dataclass(frozen=True, eq=False)
class Bounds(Rows):
    """What was proved for each piece: values (count, rows) and intervals; and advice.

    ``hints`` are multipliers that should serve the piece's own parts better. ``open`` (count, neurons) estimates the
    share of the squared bound that each neuron's open slope is to blame for, 0 where its slope is a single number.
    Where nobody asks for advice these two have no columns. ``second`` (count,) advises to bound parts of the piece to
    second order only.
    """

    values: Array
    low: Array
    high: Array
    hints: Array
    open: Array
    second: Array
