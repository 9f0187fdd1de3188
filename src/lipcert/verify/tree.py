"""A region cut into pieces: what was cut where, and the proof that the pieces cover it.

Every cut replaces a piece by two that together contain it: a box is halved at a float between its sides, which both
halves share, or a neuron is confined to either side of a value, which both sides share. So the leaves cover the root
whatever the cuts are; only the bound of each leaf needs a proof, and those are derived again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.certificate import Sweep
from lipcert.errors import ProofFailed
from lipcert.network import Network
from lipcert.regions import Ball, Box, Region
from lipcert.typing import Array
from lipcert.verify.rounding import down, up
from lipcert.verify.stack import Bounds, Pieces, bound_pieces

LEAF = -2
AXIS = -1
CHUNK = 128


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in the order they were made, the root first; the two children of a cut node follow each other.

    Attributes
    ----------
    layer : per node, LEAF, AXIS, or the hidden layer (from 0) of the neuron that was cut.
    index : the axis or the neuron.
    value : where it was cut.
    child : number of the first child (below ``value``); the second (above) is the next.
    bound : the largest bound of a leaf.
    """

    layer: Array
    index: Array
    value: Array
    child: Array
    bound: float

    @property
    def leaves(self) -> int:
        return int((self.layer == LEAF).sum())


def root_piece(network: Network, region: Region, sweep: Sweep | None) -> Pieces:
    """The whole region as one piece; the multipliers of a sweep are its hints."""
    if isinstance(region, Box):
        lower, upper = region.lower, region.upper
    elif isinstance(region, Ball):
        lower, upper = down(region.center - region.radius), up(region.center + region.radius)
        if region.clip is not None:
            lower, upper = np.maximum(lower, region.clip.lower), np.minimum(upper, region.clip.upper)
    else:
        raise ProofFailed(f"a region of type {type(region).__name__} cannot be cut into pieces")
    known = tuple((np.full((1, size), -np.inf), np.full((1, size), np.inf)) for size in network.sizes[1:-1])
    blank = tuple(np.full((1, size), -np.inf) for size in network.sizes[1:-1])
    piece = Pieces(lower[None].copy(), upper[None].copy(), known, blank, np.full(1, np.inf))
    if sweep is None:
        return piece
    hints = []
    for layer, (low, high), T, exponent in zip(
        network.layers, bound_pieces(network, region, piece).intervals, sweep.multipliers, sweep.exponents, strict=False
    ):
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(low, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            hint = np.log2(T / (0.5 * (beta - alpha))) + 2.0 * exponent
        hints.append(np.where(np.isfinite(hint), hint, -np.inf))
    return Pieces(piece.lower, piece.upper, known, tuple(hints), piece.ceiling)


def children(pieces: Pieces, layer: Array, index: Array, value: Array) -> Pieces:
    """The two halves of each piece, in the order first, second, first, second, …"""
    twice = pieces.take(np.repeat(np.arange(len(pieces)), 2))
    lower, upper = twice.lower.copy(), twice.upper.copy()
    known = [(low.copy(), high.copy()) for low, high in twice.known]
    for number, (where, what, at) in enumerate(zip(layer, index, value, strict=True)):
        below, above = 2 * number, 2 * number + 1
        if where == AXIS:
            if not lower[below, what] <= at <= upper[below, what]:
                raise ProofFailed("a box is cut outside its sides")
            upper[below, what] = lower[above, what] = at
        else:
            low, high = known[where]
            high[below, what] = min(high[below, what], at)
            low[above, what] = max(low[above, what], at)
    return Pieces(lower, upper, tuple(known), twice.hints, twice.ceiling)


def confined(pieces: Pieces, found: Bounds) -> Pieces:
    """The pieces with the intervals that were proved for them, and with better hints."""
    return Pieces(pieces.lower, pieces.upper, found.intervals, found.hints, found.bound)


def prove_tree(network: Network, region: Region, tree: Tree, sweep: Sweep | None) -> float:
    """The largest bound of a leaf, derived again from the cuts and the root's multipliers.

    Raises
    ------
    ProofFailed
        If the cuts do not describe a tree whose leaves cover the region.
    """
    _check_shape(network, tree)
    worst = 0.0
    stack: list[tuple[Array, Pieces]] = [(np.zeros(1, dtype=int), root_piece(network, region, sweep))]
    seen = 0
    while stack:
        nodes, pieces = stack.pop()
        if len(nodes) > CHUNK:
            for part in np.array_split(np.arange(len(nodes)), -(-len(nodes) // CHUNK)):
                stack.append((nodes[part], pieces.take(part)))
            continue
        seen += len(nodes)
        found = bound_pieces(network, region, pieces)
        leaf = tree.layer[nodes] == LEAF
        if not (found.bound[leaf] >= 0.0).all():
            raise ProofFailed("the bound of a piece is no number")
        worst = max(worst, float(found.bound[leaf].max(initial=0.0)))
        cut = np.flatnonzero(~leaf)
        if cut.size:
            at = nodes[cut]
            below = children(confined(pieces, found).take(cut), tree.layer[at], tree.index[at], tree.value[at])
            stack.append((np.stack([tree.child[at], tree.child[at] + 1], axis=1).ravel(), below))
    if seen != len(tree.layer):
        raise ProofFailed("the tree has nodes that do not belong to it")
    return worst


def _check_shape(network: Network, tree: Tree) -> None:
    """Every cut node has two later children, every node but the root one parent, and cuts name what exists."""
    count = len(tree.layer)
    cut = np.flatnonzero(tree.layer != LEAF)
    first = tree.child[cut]
    named = np.sort(np.concatenate([[0], first, first + 1]))
    if count == 0 or (first <= cut).any() or not np.array_equal(named, np.arange(count)):
        raise ProofFailed("the pieces do not cover the region: a node lacks a child, or has more than one parent")
    limits = np.array([network.inputs, *network.sizes[1:-1]])
    layer = tree.layer[cut]
    if (layer < AXIS).any() or (layer >= len(limits) - 1).any() or not np.isfinite(tree.value[cut]).all():
        raise ProofFailed("the tree cuts something that the network does not have")
    if (tree.index[cut] < 0).any() or (tree.index[cut] >= limits[layer + 1]).any():
        raise ProofFailed("the tree cuts something that the network does not have")
