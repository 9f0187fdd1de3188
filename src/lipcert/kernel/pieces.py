"""Pieces of a region: boxes, and intervals that neurons are confined to; what is proved of them, how to cut them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from lipcert.errors import ProofFailed
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

    @classmethod
    def stack(cls, parts: list[Self]) -> Self:
        """The rows of all parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(cls)))


@dataclass(frozen=True, eq=False)
class Pieces(Rows):
    """Boxes (count, inputs), and what is known of each of them.

    Attributes
    ----------
    lower, upper : the sides of the boxes.
    low, high : the intervals of the pre-activations of all hidden neurons in a row, (count, neurons).
    values : what was proved of a piece, or of one that it is a part of, (count, rows).
    hints : multipliers that should serve a piece, for each neuron log2(T/(r² S_jj)); -inf where there are none.
    shares : about the share of the squared bound that each neuron's open slope is to blame for, 0 where its slope is a
        single number. Where nobody asks for advice, hints and shares have no columns.
    second : pieces that are bounded to second order only, (count,).
    """

    lower: Array
    upper: Array
    low: Array
    high: Array
    values: Array
    hints: Array
    shares: Array
    second: Array

    def __len__(self) -> int:
        return len(self.values)

    def copy(self, like: Pieces | None = None) -> Pieces:
        """Rows of their own, that keep no larger arrays alive and can be read only; or those ``like`` them."""
        rows = [np.array(getattr(self, column.name)) for column in fields(self)]
        known = rows if like is None else [getattr(like, column.name) for column in fields(self)]
        return Pieces(*(frozen(old if np.array_equal(old, new) else new) for old, new in zip(known, rows, strict=True)))

    def put(self, which: Array, some: Pieces) -> None:
        """Write the rows of some of the pieces over."""
        for column in fields(self):
            getattr(self, column.name)[which] = getattr(some, column.name)


def children(pieces: Pieces, starts: Array, layer: Array, index: Array, value: Array) -> Pieces:
    """The two halves of each piece, in the order first, second, first, second, …

    ``starts`` tells where the neurons of each hidden layer begin. A box is halved at a float between its sides, which
    both halves share, or a neuron is confined to either side of a value, which both sides share: so the halves cover
    the piece.
    """
    twice = pieces.take(np.repeat(np.arange(len(pieces)), 2))
    below = 2 * np.arange(len(pieces))
    axis, neuron = layer == AXIS, layer != AXIS
    cut, at = below[axis], value[axis]
    if not ((twice.lower[cut, index[axis]] <= at) & (at <= twice.upper[cut, index[axis]])).all():
        raise ProofFailed("a box is cut outside its sides")
    twice.upper[cut, index[axis]] = twice.lower[cut + 1, index[axis]] = at
    cut, at, place = below[neuron], value[neuron], starts[layer[neuron]] + index[neuron]
    twice.high[cut, place] = np.minimum(twice.high[cut, place], at)
    twice.low[cut + 1, place] = np.maximum(twice.low[cut + 1, place], at)
    return twice
