"""What was cut where, as a certificate stores it, and the checks that it is a tree.

Every cut replaces a piece by two that together contain it, so the leaves cover the root whatever the cuts are; only the
bound of each leaf needs a proof, and those are derived again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.pieces import AXIS, LEAF
from lipcert.model.arrays import Array
from lipcert.model.network import Network


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
    if (layer < AXIS).any() or (layer >= len(limits) - 1).any() or not np.isfinite(value).all():
        raise ProofFailed("the tree cuts something that the network does not have")
    if (index < 0).any() or (index >= limits[layer + 1]).any():
        raise ProofFailed("the tree cuts something that the network does not have")
