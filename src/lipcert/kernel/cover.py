"""The ledger of branch and bound: it alone says what was cut where, and what is proved of each piece.

A search suggests where to cut and which pieces have no input. Every suggestion is safe: whatever is cut, the leaves
cover the region, and their values are those that were proved here. So the values of a cover hold even if the search is
wrong. What a value bounds is the matter of a :class:`Bounding`: a Lipschitz constant, outputs, entries of a Jacobian.
A stored tree is proved again by the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import up
from lipcert.kernel.domain import same_region
from lipcert.kernel.piece_bounds import Bounding, PieceBounds, Pieces
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Norms, Region
from lipcert.suggest.hints import LEAF, Hints, Tree

_CHUNK = 64
"""Pieces that are cut together when a tree is proved again; more would not be faster."""
_AGAIN = 2.0**-24
"""verify() batches pieces differently, so they round differently: room for that, relative to a value."""


class _Node(NamedTuple):
    """What a node is half of, the layer, index and value of that cut, and the node's values."""

    parent: int
    cut: list[Any]
    values: Array


@dataclass(frozen=True, eq=False)
class Leaf:
    """One piece that is not cut, and its number in the tree."""

    node: int
    piece: Pieces

    @property
    def bound(self) -> float:
        """The largest of the values."""
        return float(self.piece.values.max())


class Cover:
    """A region and the pieces that it was cut into.

    New nodes count all at once, so an interrupt at any moment leaves a cover.
    """

    def __init__(self, bounding: Bounding) -> None:
        self.bounding = bounding
        self._nodes: list[_Node] = []
        self._leaves: dict[int, Leaf] = {}
        self._void: dict[int, Array] = {}
        self._passed: list[int] = []
        self._add(bounding.root, [(-1, [])])

    @property
    def pieces(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @property
    def values(self) -> Array:
        """At least what is bounded, all over the region, (rows,): the largest value of a leaf, row by row."""
        return roomy(np.max(self._uncut(), axis=0), self.bounding.slack)

    @property
    def bound(self) -> float:
        """The largest of the values; of a cover for Lipschitz bounds, at least the constant over the region."""
        return float(self.values.max())

    def check(self, network: Network, region: Region, kind: type[Bounding], norms: Norms = PLAIN) -> Cover:
        """The cover itself, or an error if it is that of something else."""
        digest, mine = self.bounding.asked
        if network.digest != digest or not same_region(region, mine):
            raise ProofFailed("the pieces are those of another network or region")
        if type(self.bounding) is not kind or self.bounding.norms != norms:
            raise ProofFailed("the values of the pieces bound something else than what is asked for, or in other norms")
        return self

    def leaf(self, node: int) -> Leaf:
        """A piece that is not cut."""
        return self._leaves[node]

    def leaves(self, room: bool = True) -> Array:
        """The values of all pieces that may have an input, (pieces, rows), in the order of their nodes."""
        found = [values for values in self._uncut() if (values > self.bounding.least).any()]
        values = np.array(found).reshape(len(found), self.bounding.rows)
        return roomy(values, self.bounding.slack) if room else values

    def cut(self, nodes: Sequence[int], layer: Array, index: Array, value: Array) -> list[Leaf]:
        """Cut some leaves, each along an axis or by a neuron; the halves that may have an input are returned."""
        if len(set(nodes)) != len(nodes) or not all(node in self._leaves for node in nodes):
            raise ProofFailed("the pieces do not cover the region: a node is cut twice, or is no child of another")
        halves = self.bounding.halves(Pieces.stack([self._leaves[node].piece for node in nodes]), layer, index, value)
        cuts = zip(nodes, layer.tolist(), index.tolist(), value.tolist(), strict=True)
        found = self._add(halves, [(node, cut) for node, *cut in cuts for _ in range(2)])
        return [leaf for leaf in found if (leaf.piece.values > self.bounding.least).any()]

    def confine(self, node: int, place: Array, value: Array, above: Array, weights: Array) -> Leaf:
        """What is left of a leaf of all of space after cuts whose other sides weights prove to have no input.

        Cuts are by neurons, numbered through all layers; those that are not proved are not made. Neither half of a cut
        is bounded: one has no input, the other keeps the bound. Cuts of a layer are proved together, with what is left
        by those of layers before.
        """
        leaf, bounding, rows = self._leaves[node], self.bounding, np.arange(len(place))
        right = np.isfinite(weights).all(axis=1) & np.isfinite(value) & ((weights[rows, place] < 0.0) == above)
        layer = np.searchsorted(bounding.starts, place, side="right") - 1
        piece, empty = leaf.piece.take(np.zeros(1, dtype=int)), np.full(bounding.rows, bounding.least)
        nodes, void, passed = list[_Node](), dict[int, Array](), list[int]()
        for which in np.unique(layer):
            some = np.flatnonzero(right & (layer == which))
            for k in some[bounding.void_sides(piece, weights[some], place[some], value[some])].tolist():
                at, up_, number = float(value[k]), int(above[k]), self.pieces + len(nodes)
                end, tighter = (piece.low, max) if up_ else (piece.high, min)
                end[0, place[k]] = tighter(end[0, place[k]], at)
                half = _Node(node, [int(which), int(place[k] - bounding.starts[which]), at], piece.values[0])
                nodes += [half._replace(values=empty), half][:: 1 if up_ else -1]
                passed.append(node)
                void[number + 1 - up_], node = np.array(weights[k]), number + up_
        rest = Leaf(node, piece.copy(leaf.piece))
        self._void |= void
        self._passed += passed
        self._nodes += nodes
        self._leaves.pop(leaf.node)
        self._leaves[node] = rest
        return rest

    def drop(self, node: int, weights: Array) -> bool:
        """Whether weights of the neurons prove that a leaf has no input; then it counts no more."""
        if not np.isfinite(weights).all() or not self.bounding.is_void(self._leaves[node].piece, weights):
            return False
        self._void[node] = np.array(weights)
        self._nodes[node] = self._nodes[node]._replace(values=np.full(self.bounding.rows, self.bounding.least))
        del self._leaves[node]
        return True

    def tree(self) -> Tree:
        """The cuts as arrays, for a certificate."""
        count = self.pieces
        layer, index, value, child = np.full(count, LEAF), np.zeros(count, int), np.zeros(count), np.zeros(count, int)
        for node in range(1, count, 2):
            parent, cut, _ = self._nodes[node]
            layer[parent], index[parent], value[parent] = cut
            child[parent] = node
        table = np.array(list(self._void.values())).reshape(len(self._void), sum(self.bounding.network.sizes[1:-1]))
        row, neuron = np.nonzero(table)
        void = np.array(list(self._void), dtype=int)[row], neuron, table[row, neuron]
        return Tree(layer, index, value, child, max(self.bound, 0.0), *void, passed=np.array(self._passed, dtype=int))

    def _uncut(self) -> list[Array]:
        """The values of the nodes that were not cut."""
        cut = {node.parent for node in self._nodes}
        return [node.values for number, node in enumerate(self._nodes) if number not in cut]

    def _add(self, pieces: Pieces, made: list[tuple[int, list[Any]]]) -> list[Leaf]:
        """Bound new leaves; they, and the parents and cuts that made them, count together."""
        found = self.bounding.bound(pieces)
        if not (found.values >= self.bounding.least).all():
            raise ProofFailed("the bound of a piece is no number")
        leaves, nodes = [], []
        for number, (parent, cut) in enumerate(made):
            like = self._leaves[parent].piece if parent >= 0 else None
            leaves.append(Leaf(self.pieces + number, found.take(slice(number, number + 1)).copy(like)))
            nodes.append(_Node(parent, cut, leaves[-1].piece.values[0]))
        for parent, _ in made:
            self._leaves.pop(parent, None)
        self._nodes += nodes  # in one step
        self._leaves |= {leaf.node: leaf for leaf in leaves}
        return leaves


def roomy(values: Array, slack: Array) -> Array:
    """Values enlarged by what may become of them when pieces are batched differently."""
    return np.asarray(up(np.where(values > 0.0, values * (1.0 + _AGAIN), values * (1.0 - _AGAIN)) + slack))


def prove_tree(
    network: Network,
    region: Region,
    tree: Tree,
    sweeps: Sequence[Hints] = (),
    norms: Norms = PLAIN,
) -> float:
    """The largest Lipschitz bound of a leaf, derived again from the cuts, and from hints for the whole region."""
    return float(prove_leaves(PieceBounds(network, region, sweeps, norms), tree).max(initial=0.0))


def prove_leaves(bounding: Bounding, tree: Tree) -> Array:
    """The values of the leaves that may have an input, (pieces, rows), derived again from the cuts.

    Nodes are cut in the order of their children, so they get the numbers that they have in the tree.

    Raises
    ------
    ProofFailed
        If the cuts do not describe a tree whose leaves cover the region.
    """
    columns = ((tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight))
    if any(len({np.shape(column) for column in group} | {(len(group[0]),)}) != 1 for group in columns):
        raise ProofFailed("the columns of the tree differ in length")
    if (tree.neuron < 0).any() or (tree.neuron >= bounding.starts[-1]).any() or not np.isfinite(tree.weight).all():
        raise ProofFailed("the tree weighs neurons that the network does not have")
    cover = Cover(bounding)
    todo = np.flatnonzero(tree.layer != LEAF)
    todo = todo[np.argsort(tree.child[todo])]
    passed = np.isin(todo, tree.passed)
    rows = {int(node): np.zeros(bounding.starts[-1]) for node in np.unique(tree.void)}
    for node, neuron, weight in zip(tree.void.tolist(), tree.neuron.tolist(), tree.weight.tolist(), strict=True):
        rows[node][neuron] = weight
    while todo.size:
        alike = passed[:_CHUNK] == passed[0]
        if passed[0]:  # a chain: all but the last are halves of the one before
            alike[1:] &= np.isin(todo[1:_CHUNK] - tree.child[todo[: _CHUNK - 1]][: len(alike) - 1], (0, 1))
        else:  # those that exist already
            alike &= todo[:_CHUNK] < cover.pieces
        count = int(alike.argmin()) or len(alike)
        some = todo[:count]
        if passed[0]:
            _confine(cover, tree, some, rows)
        else:
            cover.cut(some.tolist(), tree.layer[some], tree.index[some], tree.value[some])
        todo, passed = todo[count:], passed[count:]
    made = cover.tree()
    if len(made.layer) != len(tree.layer) or not np.array_equal(
        made.child, np.where(made.layer == LEAF, 0, tree.child)
    ):
        raise ProofFailed("the pieces do not cover the region: a node lacks a child, or has more than one parent")
    for node in np.setdiff1d(np.intersect1d(tree.void, np.flatnonzero(tree.layer == LEAF)), made.void).tolist():
        cover.drop(node, rows[node])
    return cover.leaves(room=False)


def _confine(cover: Cover, tree: Tree, chain: Array, rows: dict[int, Array]) -> None:
    """Repeat a chain of cuts, one half of each without inputs."""
    first = tree.child[chain]
    above = np.array([int(node) in rows for node in first])
    void = np.where(above, first, first + 1)
    sizes = np.array([*cover.bounding.network.sizes[1:-1], 0])
    there = (tree.layer[chain] >= 0) & (tree.layer[chain] < len(sizes)) & (tree.index[chain] >= 0)
    if not there.all() or (tree.index[chain] >= sizes[tree.layer[chain]]).any() or not 0 <= chain[0] < cover.pieces:
        raise ProofFailed("the tree cuts something that the network does not have")
    if not all(int(node) in rows for node in void):
        raise ProofFailed("the tree lacks the weights of a side that it leaves out")
    place = cover.bounding.starts[tree.layer[chain]] + tree.index[chain]
    weights = np.array([rows[int(node)] for node in void])
    cover.confine(int(chain[0]), place, tree.value[chain], above, weights)
