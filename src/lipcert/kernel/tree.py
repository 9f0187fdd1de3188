"""Pieces of a region, how they are cut, and what was cut where, as a certificate stores it.

A piece is a box, and intervals that neurons are confined to. Every cut replaces a piece by two that together contain
it, so the leaves cover the root whatever the cuts are; only the bound of each leaf needs a proof, and those are derived
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, frozen
from lipcert.model.network import Network

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


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in the order they were made, the root first; the two children of a cut node follow each other.

    Attributes
    ----------
    layer : per node, LEAF, AXIS, or the hidden layer (from 0) of the neuron that was cut.
    index : the axis or the neuron.
    value : where it was cut.
    child : number of the first child (below ``value``); the second (above) is the next.
    bound : the largest value of a leaf, or 0 if that is negative.
    void, neuron, weight : for leaves that contain no input, three columns of their own: the node, and the weights of
        the neurons (numbered through all hidden layers) that show it.
    second : nodes that are bounded to second order only.
    passed : empty; older files name nodes that were not bounded then, and are now.
    """

    layer: Array
    index: Array
    value: Array
    child: Array
    bound: float
    void: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    neuron: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    weight: Array = field(default_factory=lambda: np.zeros(0))
    second: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    passed: Array = field(default_factory=lambda: np.zeros(0, dtype=int))

    @property
    def leaves(self) -> int:
        return int((self.layer == LEAF).sum())


def check_shape(network: Network, tree: Tree) -> None:
    """Every cut node has two later children, every node but the root one parent, and cuts name what exists."""
    columns = ((tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight))
    if any(len({np.shape(column) for column in group} | {(len(group[0]),)}) != 1 for group in columns):
        raise ProofFailed("the columns of the tree differ in length")
    count = len(tree.layer)
    cut = np.flatnonzero(tree.layer != LEAF)
    first = tree.child[cut]
    named = np.sort(np.concatenate([[0], first, first + 1]))
    if count == 0 or (first <= cut).any() or not np.array_equal(named, np.arange(count)):
        raise ProofFailed("the pieces do not cover the region: a node lacks a child, or has more than one parent")
    check_cuts(network, tree.layer[cut], tree.index[cut], tree.value[cut])
    neurons = sum(network.sizes[1:-1])
    if (tree.neuron < 0).any() or (tree.neuron >= neurons).any() or not np.isfinite(tree.weight).all():
        raise ProofFailed("the tree weighs neurons that the network does not have")


def check_cuts(network: Network, layer: Array, index: Array, value: Array) -> None:
    """Raise unless every cut names an axis or a neuron of the network, and a number."""
    limits = np.array([network.inputs, *network.sizes[1:-1]])
    there = (layer >= AXIS).all() and (layer < len(limits) - 1).all() and np.isfinite(value).all()
    if not there or (index < 0).any() or (index >= limits[layer + 1]).any():
        raise ProofFailed("the tree cuts something that the network does not have")
