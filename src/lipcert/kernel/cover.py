"""The ledger of a region that is cut into pieces: it alone says what was cut where, and what is proved of each piece.

A search suggests where to cut and which pieces have no input. Every suggestion is safe: whatever is cut, the leaves
cover the region, and their values are those that were proved here. So the values of a cover hold even if the search is
wrong. What a value bounds is the matter of a :class:`Bounding`: a Lipschitz constant, outputs, entries of a Jacobian.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.domain import same_region
from lipcert.kernel.hints import Hints
from lipcert.kernel.piece_bounds import Bounding, PieceBounds
from lipcert.kernel.pieces import LEAF, Bounds, Pieces
from lipcert.kernel.rounding import up
from lipcert.kernel.tree import Tree, check_cuts, check_shape, confined
from lipcert.model.arrays import Array, frozen
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region

_CHUNK = 128
"""Pieces that are bounded together when a tree is proved again."""
_AGAIN = 2.0**-24
"""verify() batches pieces differently, so they round differently: room for that, relative to a value."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """One piece: its number in the tree, its proved values (rows,), where it lies, and each neuron's share."""

    node: int
    values: Array
    piece: Pieces
    shares: Array

    @property
    def bound(self) -> float:
        """The largest of the values."""
        return float(self.values.max())


_UNCUT = (LEAF, 0, 0.0, 0)


@dataclass(eq=False)
class _Node:
    """One row of the tree: its proved values (rows,), how it was bounded, and layer, index, value, child of its cut."""

    values: Array
    second: bool
    passed: bool
    cut: tuple[int, int, float, int] = _UNCUT


class Cover:
    """A region and the pieces that it was cut into; make one with :func:`covering`.

    Rows are written before they count: ``_whole`` says how many nodes belong to a finished tree, so an interrupt at any
    moment leaves a cover.
    """

    def __init__(self, bounding: Bounding, pool: Executor | None, workers: int) -> None:
        self.bounding, self._pool, self._workers = bounding, pool, workers
        self._nodes: list[_Node] = []
        self._leaves: dict[int, Leaf] = {}
        self._void: dict[int, Array] = {}
        self._whole = 0
        self._first: Pieces | None = None
        self._add(bounding.root, self._bounded(bounding.root))

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

    @property
    def pieces(self) -> int:
        """How many pieces were bounded so far."""
        return self._whole

    def leaf(self, node: int) -> Leaf:
        """A piece that is neither cut nor known to have no input."""
        return self._leaves[node]

    def leaves(self) -> Array:
        """The values of all pieces that may have an input, (pieces, rows), in the order of their nodes."""
        found = [values for values in self._uncut() if (values > self.bounding.least).any()]
        return roomy(np.array(found).reshape(len(found), self.bounding.rows), self.bounding.slack)

    def cut(self, nodes: Sequence[int], layer: Array, index: Array, value: Array, passing: bool = False) -> list[Leaf]:
        """Cut some leaves, each along an axis or by a neuron; the halves that may have an input are returned.

        With ``passing`` the halves are not bounded: they are to be cut again, and what is known of the whole serves.
        """
        check_cuts(self.bounding.network, layer, index, value)
        if len(set(nodes)) != len(nodes):
            raise ProofFailed("a piece cannot be cut twice at once")
        pieces = Pieces.stack([self._leaves[node].piece for node in nodes])
        halves = self.bounding.halves(pieces, layer, index, value)
        first, cuts = self._whole, list(zip(layer.tolist(), index.tolist(), value.tolist(), strict=True))
        if passing:
            shares = np.repeat(np.stack([self._leaves[node].shares for node in nodes]), 2, axis=0)
            added = self._add(halves, self.bounding.passed(halves, shares), nodes, cuts, passing)
        else:
            added = self._add(halves, self._bounded(halves), nodes, cuts)
        for node in nodes:
            del self._leaves[node]
        return [self._leaves[first + k] for k in range(added) if first + k in self._leaves]

    def drop(self, node: int, weights: Array) -> bool:
        """Whether weights of the neurons prove that a leaf has no input; then it counts no more."""
        if not np.isfinite(weights).all() or not self.bounding.is_void(self._leaves[node].piece, weights):
            return False
        self._void[node] = np.array(weights)
        self._nodes[node].values = np.full(self.bounding.rows, self.bounding.least)
        del self._leaves[node]
        return True

    def tree(self) -> Tree:
        """The cuts as arrays, for a certificate."""
        nodes = self._nodes[: self._whole]
        rows = [node.cut if self._is_cut(node) else _UNCUT for node in nodes]
        layer, index, value, child = (np.array(column) for column in zip(*rows, strict=True))
        void = {node: weights for node, weights in self._void.items() if node < self._whole}
        table = np.array(list(void.values())).reshape(len(void), sum(self.bounding.network.sizes[1:-1]))
        row, neuron = np.nonzero(table)
        columns = np.array(list(void), dtype=int)[row], neuron, table[row, neuron]
        second, passed = (np.flatnonzero([getattr(node, mark) for node in nodes]) for mark in ("second", "passed"))
        return Tree(layer, index, value, child, max(self.bound, 0.0), *columns, second, passed)

    def _is_cut(self, node: _Node) -> bool:
        """Whether the halves of a node belong to the finished tree."""
        return 0 < node.cut[3] < self._whole

    def _uncut(self) -> list[Array]:
        """The values of the nodes that were not cut."""
        return [node.values for node in self._nodes[: self._whole] if not self._is_cut(node)]

    def _add(
        self,
        pieces: Pieces,
        found: Bounds,
        parents: Sequence[int] = (),
        cuts: Sequence[tuple[int, int, float]] = (),
        passing: bool = False,
    ) -> int:
        """New leaves, then the cuts that made them; all of it counts from the last line on."""
        check_values(self.bounding, found.values)
        proved, first = confined(pieces, found), self._whole
        del self._nodes[first:]  # what an interrupt left behind
        for number, values in enumerate(frozen(np.array(found.values))):
            self._nodes.append(_Node(values, bool(pieces.second[number]), passing))
            if (values > self.bounding.least).any():
                piece = proved.take(slice(number, number + 1)).copy(self._first)
                self._first = piece if self._first is None else self._first
                self._leaves[first + number] = Leaf(first + number, values, piece, frozen(found.open[number].copy()))
        for number, (parent, cut) in enumerate(zip(parents, cuts, strict=True)):
            self._nodes[parent].cut = (*cut, first + 2 * number)
        self._whole = len(self._nodes)
        return len(found.values)

    def _bounded(self, pieces: Pieces) -> Bounds:
        """Values of pieces, proved in this process or shared among workers."""
        if self._pool is None or len(pieces) < 2 * self._workers:
            return self.bounding.bound(pieces)
        parts = [pieces.take(part) for part in np.array_split(np.arange(len(pieces)), self._workers)]
        return Bounds.stack(list(self._pool.map(_work, parts)))


def check_values(bounding: Bounding, values: Array) -> None:
    """Raise unless every value is a number, and none is less than that of nothing."""
    if not (values >= bounding.least).all():
        raise ProofFailed("the bound of a piece is no number")


def roomy(values: Array, slack: Array) -> Array:
    """Values enlarged by what may become of them when pieces are batched differently."""
    return np.asarray(up(np.where(values > 0.0, values * (1.0 + _AGAIN), values * (1.0 - _AGAIN)) + slack))


@contextmanager
def covering(bounding: Bounding, workers: int = 1, setup: Callable[[], None] | None = None) -> Iterator[Cover]:
    """The region as one piece; ``setup`` is called in each of the worker processes."""
    if workers <= 1:
        yield Cover(bounding, None, 1)
        return
    with ProcessPoolExecutor(workers, initializer=_prepare, initargs=(bounding, setup)) as pool:
        yield Cover(bounding, pool, workers)


_shared: dict[str, Bounding] = {}


def _prepare(bounding: Bounding, setup: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that has the tree
    if setup is not None:
        setup()
    _shared["bounding"] = bounding


def _work(pieces: Pieces) -> Bounds:
    return _shared["bounding"].bound(pieces)


def prove_tree(
    network: Network, region: Region, tree: Tree, sweeps: Sequence[Hints] = (), norms: Norms = PLAIN
) -> float:
    """The largest Lipschitz bound of a leaf, derived again from the cuts, and from hints for the whole region."""
    return float(prove_leaves(PieceBounds(network, region, sweeps, norms), tree).max(initial=0.0))


def prove_leaves(bounding: Bounding, tree: Tree) -> Array:
    """The values of the leaves that may have an input, (pieces, rows), derived again from the cuts.

    Raises
    ------
    ProofFailed
        If the cuts do not describe a tree whose leaves cover the region.
    """
    check_shape(bounding.network, tree)
    proved: dict[int, Array] = {}
    second, passed = (np.isin(np.arange(len(tree.layer)), marked) for marked in (tree.second, tree.passed))
    todo: list[tuple[Array, Pieces]] = [(np.zeros(1, dtype=int), replace(bounding.root, second=second[:1]))]
    seen = 0
    while todo:
        nodes, pieces = todo.pop()
        by = passed[nodes]
        parts = np.array_split(np.arange(len(nodes)), -(-len(nodes) // _CHUNK))
        if by.any() and not by.all():
            parts = [np.flatnonzero(by), np.flatnonzero(~by)]
        if len(parts) > 1:
            todo += [(nodes[part], pieces.take(part)) for part in parts]
            continue
        seen += len(nodes)
        found = bounding.passed(pieces, np.zeros((len(pieces), 0))) if by.all() else bounding.bound(pieces)
        leaf = tree.layer[nodes] == LEAF
        check_values(bounding, found.values[leaf])
        void = _void(bounding, tree, nodes, confined(pieces, found)) & leaf
        counts = leaf & ~void & (found.values > bounding.least).any(axis=-1)
        proved |= {int(nodes[number]): found.values[number] for number in np.flatnonzero(counts)}
        cut = np.flatnonzero(~leaf)
        if cut.size:
            at = nodes[cut]
            below = confined(pieces, found).take(cut)
            below = bounding.halves(below, tree.layer[at], tree.index[at], tree.value[at])
            below_them = np.stack([tree.child[at], tree.child[at] + 1], axis=1).ravel()
            todo.append((below_them, replace(below, second=second[below_them])))
    if seen != len(tree.layer):
        raise ProofFailed("the tree has nodes that do not belong to it")
    return np.array([proved[node] for node in sorted(proved)]).reshape(len(proved), bounding.rows)


def _void(bounding: Bounding, tree: Tree, nodes: Array, pieces: Pieces) -> Array:
    """Which of the pieces are proved to contain no input."""
    void = np.isin(nodes, tree.void)
    for number in np.flatnonzero(void):
        weights = np.zeros(pieces.low.shape[-1])
        mine = tree.void == nodes[number]
        weights[tree.neuron[mine]] = tree.weight[mine]
        void[number] = bounding.is_void(pieces.take(np.array([number])), weights)
    return void
