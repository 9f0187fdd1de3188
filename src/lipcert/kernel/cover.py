"""The ledger of branch and bound: it alone says what was cut where, and what is proved of each piece.

A search suggests where to cut and which pieces have no input. Every suggestion is safe: whatever is cut, the leaves
cover the region, and their values are those that were proved here. So the values of a cover hold even if the search is
wrong. What a value bounds is the matter of a :class:`Bounding`: a Lipschitz constant, outputs, entries of a Jacobian.
A stored tree is proved again by the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import up
from lipcert.kernel.domain import same_region
from lipcert.kernel.hints import Hints
from lipcert.kernel.piece_bounds import Bounding, PieceBounds
from lipcert.kernel.tree import LEAF, Pieces, Tree, check_cuts, check_shape
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region

_CHUNK = 64
"""Pieces that are cut together when a tree is proved again; more would not be faster."""
_AGAIN = 2.0**-24
"""verify() batches pieces differently, so they round differently: room for that, relative to a value."""


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

    Rows are written before they count: ``pieces`` says how many nodes belong to a finished tree, so an interrupt at any
    moment leaves a cover. Each of the ``workers`` of a pool must have been told what to bound, by :func:`prepare`.
    Where a tree is proved again, ``second`` (nodes,) says which nodes are bounded to second order only; then pieces
    that turn out to have no input can still be cut.
    """

    def __init__(
        self, bounding: Bounding, pool: Executor | None = None, workers: int = 1, second: Array | None = None
    ) -> None:
        self.bounding, self._pool, self._workers, self._second = bounding, pool, workers, second
        self._known: list[Array] = []
        self._made: list[tuple[bool, int, int, int, float]] = []
        """Of each node whether it is to second order only, what it is half of, and layer, index, value of that cut."""
        self._leaves: dict[int, Leaf] = {}
        self._void: dict[int, Array] = {}
        self.pieces = 0
        self._add(bounding.root)

    @property
    def values(self) -> Array:
        """At least what is bounded, all over the region, (rows,): the largest value of a leaf, row by row."""
        leaves = self._uncut()
        if not leaves:
            return np.full(self.bounding.rows, np.inf)
        return roomy(np.max(leaves, axis=0), self.bounding.slack)

    @property
    def bound(self) -> float:
        """The largest of the values; of a cover for Lipschitz bounds, at least the constant over the region."""
        return float(self.values.max())

    def bound_of(self, network: Network, region: Region, norms: Norms = PLAIN) -> float:
        """The Lipschitz bound, or an error if this is the cover of something else."""
        if self.bounding.norms != norms:
            raise ProofFailed("the values of the pieces are bounds in other norms")
        return float(self.check(network, region, PieceBounds).values.max())

    def check(self, network: Network, region: Region, kind: type[Bounding]) -> Cover:
        """The cover itself, or an error if it is that of something else."""
        digest, mine = self.bounding.asked
        if network.digest != digest or not same_region(region, mine):
            raise ProofFailed("the pieces are those of another network or region")
        if type(self.bounding) is not kind:
            raise ProofFailed("the values of the pieces bound something else than what is asked for")
        return self

    def leaf(self, node: int) -> Leaf:
        """A piece that is neither cut nor known to have no input."""
        return self._leaves[node]

    def leaves(self, room: bool = True) -> Array:
        """The values of all pieces that may have an input, (pieces, rows), in the order of their nodes."""
        found = [values for values in self._uncut() if (values > self.bounding.least).any()]
        values = np.array(found).reshape(len(found), self.bounding.rows)
        return roomy(values, self.bounding.slack) if room else values

    def cut(self, nodes: Sequence[int], layer: Array, index: Array, value: Array) -> list[Leaf]:
        """Cut some leaves, each along an axis or by a neuron; the halves that may have an input are returned."""
        check_cuts(self.bounding.network, layer, index, value)
        if len(set(nodes)) != len(nodes):
            raise ProofFailed("a piece cannot be cut twice at once")
        whole = [self._leaves[node] for node in nodes]
        halves = self.bounding.halves(Pieces.stack([leaf.piece for leaf in whole]), layer, index, value)
        first, cuts = self.pieces, zip(layer.tolist(), index.tolist(), value.tolist(), strict=True)
        self._add(halves, whole, list(cuts))
        for node in nodes:
            del self._leaves[node]
        return [self._leaves[node] for node in range(first, self.pieces) if node in self._leaves]

    def drop(self, node: int, weights: Array) -> bool:
        """Whether weights of the neurons prove that a leaf has no input; then it counts no more."""
        if not np.isfinite(weights).all() or not self.bounding.is_void(self._leaves[node].piece, weights):
            return False
        self._void[node] = np.array(weights)
        self._known[node] = np.full(self.bounding.rows, self.bounding.least)
        del self._leaves[node]
        return True

    def tree(self) -> Tree:
        """The cuts as arrays, for a certificate."""
        count, made = self.pieces, self._made[: self.pieces]
        layer, index, value, child = np.full(count, LEAF), np.zeros(count, int), np.zeros(count), np.zeros(count, int)
        for node in range(1, count, 2):
            _, parent, layer[parent], index[parent], value[parent] = made[node]
            child[parent] = node
        table = np.array(list(self._void.values())).reshape(len(self._void), sum(self.bounding.network.sizes[1:-1]))
        row, neuron = np.nonzero(table)
        void = np.array(list(self._void), dtype=int)[row], neuron, table[row, neuron]
        second = np.flatnonzero([only for only, *_ in made])
        return Tree(layer, index, value, child, max(self.bound, 0.0), *void, second)

    def _uncut(self) -> list[Array]:
        """The values of the nodes that were not cut."""
        cut = {parent for _, parent, *_ in self._made[: self.pieces]}
        return [self._known[node] for node in range(self.pieces) if node not in cut]

    def _add(self, pieces: Pieces, parents: Sequence[Leaf] = (), cuts: Sequence[tuple[int, int, float]] = ()) -> None:
        """Bound new leaves; they, and the cuts that made them, count when ``pieces`` does."""
        first, leaves = self.pieces, {}
        if self._second is not None:
            pieces = replace(pieces, second=self._second[first : first + len(pieces)])
        found = self._bounded(pieces)
        if not (found.values >= self.bounding.least).all():
            raise ProofFailed("the bound of a piece is no number")
        del self._known[first:], self._made[first:]  # what an interrupt left behind
        for number in range(len(found)):
            like = parents[number // 2].piece if parents else None
            piece = found.take(slice(number, number + 1)).copy(like)
            half = (parents[number // 2].node, *cuts[number // 2]) if parents else (-1, LEAF, 0, 0.0)
            self._made.append((bool(pieces.second[number]), *half))
            self._known.append(piece.values[0])
            if self._second is not None or (piece.values > self.bounding.least).any():
                leaves[first + number] = Leaf(first + number, piece)
        self.pieces = len(self._known)
        self._leaves |= leaves

    def _bounded(self, pieces: Pieces) -> Pieces:
        """Pieces with their values, proved in this process or shared among workers."""
        if self._pool is None or len(pieces) < 2 * self._workers:
            return self.bounding.bound(pieces)
        parts = [pieces.take(part) for part in np.array_split(np.arange(len(pieces)), self._workers)]
        return Pieces.stack(list(self._pool.map(_work, parts)))


def roomy(values: Array, slack: Array) -> Array:
    """Values enlarged by what may become of them when pieces are batched differently."""
    return np.asarray(up(np.where(values > 0.0, values * (1.0 + _AGAIN), values * (1.0 - _AGAIN)) + slack))


_prepared: dict[str, Bounding] = {}


def prepare(bounding: Bounding) -> None:
    """Called in each process of a pool before pieces are shared among them."""
    _prepared["bounding"] = bounding


def _work(pieces: Pieces) -> Pieces:
    return _prepared["bounding"].bound(pieces)


def prove_tree(
    network: Network,
    region: Region,
    tree: Tree,
    sweeps: Sequence[Hints] = (),
    norms: Norms = PLAIN,
    remembered: bool = False,
) -> float:
    """The largest Lipschitz bound of a leaf, derived again from the cuts, and from hints for the whole region."""
    return float(prove_leaves(PieceBounds(network, region, sweeps, norms, remembered), tree).max(initial=0.0))


def prove_leaves(bounding: Bounding, tree: Tree) -> Array:
    """The values of the leaves that may have an input, (pieces, rows), derived again from the cuts.

    Nodes are cut in the order of their children, so they get the numbers that they have in the tree.

    Raises
    ------
    ProofFailed
        If the cuts do not describe a tree whose leaves cover the region.
    """
    check_shape(bounding.network, tree)
    cover = Cover(bounding, second=np.isin(np.arange(len(tree.layer)), tree.second))
    todo = np.flatnonzero(tree.layer != LEAF)
    todo = todo[np.argsort(tree.child[todo])]
    while todo.size:
        count = int((todo[:_CHUNK] < cover.pieces).argmin()) or min(_CHUNK, len(todo))  # those that exist already
        some, todo = todo[:count], todo[count:]
        cover.cut(some.tolist(), tree.layer[some], tree.index[some], tree.value[some])
    for node in np.intersect1d(tree.void, np.flatnonzero(tree.layer == LEAF)).tolist():
        weights, mine = np.zeros(bounding.starts[-1]), tree.void == node
        weights[tree.neuron[mine]] = tree.weight[mine]
        cover.drop(node, weights)
    return cover.leaves(room=False)
