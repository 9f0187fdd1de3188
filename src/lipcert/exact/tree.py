"""A region cut into pieces: every leaf of the certificate's tree is bounded again, or shown to have no input.

A cut leaves two pieces that both contain the cut, so the leaves cover the region whatever the cuts are. On a convex
region the Lipschitz constant is at most the largest norm of a Jacobian W_N D_{N-1} … D_1 W_1, so the largest bound of a
piece counts. Lines and multipliers are not stored; they are chosen here, and a leaf that needs it is cut further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes, product_norm, rest_norms
from lipcert.exact.enclose import Interval, Lines, Trace, slopes_on, suggested_lines, views_on
from lipcert.exact.functions import Function, View, ball, most
from lipcert.exact.model import Inputs, Model
from lipcert.exact.search import Chain
from lipcert.model.arrays import Array

_LEAF, _AXIS = -2, -1
_GLANCE, _LOOK, _STARE = 3, 20, 150
"""Rounds of the search for multipliers: of a piece that the tree cuts, of a leaf, of a leaf that needs more."""
_NEAR = 1.05
"""A leaf whose bound is not within this factor of the claim after a look is not worth a stare."""
_EXTRA = 12
"""So many cuts beyond those of the tree, and one more for every eight leaves."""
_CURVED = 24
"""So many more for every leaf, and as many again, where activations are curved: the certificate may rest on bounds to
second order, and here there are those to first order only."""
_FEW, _FEW_INPUTS = 4, 16
"""With few open neurons, or many inputs, a neuron is cut rather than the box."""


class Exhausted(ProofFailed):
    """A piece has no proof, and more bits would not help."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the region: a box, and intervals that hidden neurons are confined to; ``node``: where in the tree."""

    inputs: Inputs
    intervals: list[Interval]
    node: int | None = 0
    multipliers: list[Array] | None = None
    shares: Sequence[Array] = ()
    """About what part of the squared bound each open neuron is to blame for."""


class Cuts:
    """The cuts of a tree; its leaves are shown to cover the region. ``extra``: how many more may be made."""

    def __init__(self, tree: Any) -> None:
        cuts, voids = (tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight)
        if any(len({np.shape(column) for column in group}) != 1 for group in (cuts, voids)):
            raise Exhausted("the columns of the tree differ in length")
        rows = zip(*(column.tolist() for column in cuts), strict=True)
        self.nodes = {node: row for node, row in enumerate(rows) if row[0] != _LEAF}
        children = [child for *_, first in self.nodes.values() for child in (first, first + 1)]
        later = all(node < first for node, (*_, first) in self.nodes.items())
        if not later or sorted(children) != list(range(1, len(tree.layer))):
            raise Exhausted("the pieces do not cover the region: a node lacks a child, or has more than one parent")
        self.leaves = len(self.nodes) + 1
        self.extra = _EXTRA + self.leaves // 8

    def halves(self, piece: Piece) -> list[Piece]:
        """The two children that the tree names."""
        assert piece.node is not None
        layer, index, value, child = self.nodes[piece.node]
        limits = [len(piece.inputs.lower), *(len(low) for low, _ in piece.intervals)]
        if not -1 <= layer < len(limits) - 1 or not 0 <= index < limits[layer + 1] or not np.isfinite(value):
            raise Exhausted("the tree cuts something that the network does not have")
        return _halves(piece, layer, index, ball(value), (child, child + 1))

    def again(self, what: str) -> None:
        """Count a cut of a leaf; an error if there were too many."""
        self.extra -= 1
        if self.extra < 0:
            raise Exhausted(f"{what}, which exact cannot prove for a leaf of its tree")


class Pieces:
    """The walk over the tree of one certificate."""

    def __init__(self, model: Model, inputs: Inputs, tree: Any, claim: float, known: list[Interval]) -> None:
        self.model, self.claim = model, claim
        self.root = Piece(inputs, list(known))
        self.cuts = Cuts(tree)
        if any(any(f.bends) for layer in model for f in layer.functions):
            self.cuts.extra += _CURVED + _CURVED * self.cuts.leaves
        self.voids: dict[int | None, dict[int, float]] = {}
        for node, neuron, weight in zip(tree.void, tree.neuron, tree.weight, strict=True):
            self.voids.setdefault(int(node), {})[int(neuron)] = float(weight)
        self.chain = Chain.of([layer.near for layer in model])
        whole = [slopes_on(views_on(layer.functions, ends)) for layer, ends in zip(model, known)]
        self.rest = rest_norms(model, whole)

    def prove(self) -> arb:
        """The largest bound of a leaf, at most the claim."""
        worst, todo = arb(0), [self.root]
        while todo:
            piece = todo.pop()
            leaf = piece.node not in self.cuts.nodes
            trace = Trace(self.model, piece.inputs)
            slopes = enclosed(piece, trace, _suggested)
            if slopes is None:
                continue
            bound, piece = self._bound(piece, slopes, leaf)
            if bound is not None:
                worst = most([worst, bound])
            elif not leaf:
                todo += self.cuts.halves(piece)
            elif not self._void(piece, trace):
                todo += self._cut_again(piece)
        return worst

    def _bound(self, piece: Piece, slopes: list[Slopes], leaf: bool) -> tuple[arb | None, Piece]:
        """A proved bound that is at most the claim, if there is one; and the piece with what the search has found."""
        near = [(np.array([float(x) for x in a]), np.array([float(x) for x in b])) for a, b in slopes]
        settled = leaf and all((a == b).all() for a, b in near)
        for rounds in (_LOOK, _STARE) if leaf else (_GLANCE,):
            about, multipliers, shares = self.chain.suggest(near, piece.multipliers, rounds, self.claim * (1.0 - 1e-9))
            piece = replace(piece, multipliers=multipliers, shares=shares)
            if about <= self.claim * (1.0 + 1e-9) or settled:
                bound = product_norm(self.model, slopes, self._hints(multipliers), self.rest)
                if bound <= ball(self.claim):
                    return bound, piece
            if settled or about > _NEAR * self.claim:
                break
        return None, piece

    def _hints(self, multipliers: list[Array] | None) -> list[list[arb] | None]:
        if multipliers is None:
            return [None] * (len(self.model) - 1)
        scales = [arb(4) ** int(power) for power in np.cumsum(self.chain.powers)]
        return [[ball(t) * scale for t in T] for T, scale in zip(multipliers, scales)]

    def _void(self, piece: Piece, trace: Trace) -> bool:
        """Whether the stored weights λ prove that no input obeys the intervals.

        They ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        weights = self.voids.get(piece.node, {})
        if not weights:
            return False
        asked, rows, start = arb(0), [], 0
        for low, high in piece.intervals:
            mine = [ball(weights.get(start + k, 0.0)) for k in range(len(low))]
            asked += sum((x * (a if x > 0 else b) for x, a, b in zip(mine, low, high) if not x.is_zero()), arb(0))
            rows.append(arb_mat([mine]))
            start += len(low)
        above = trace.above(len(rows), arb_mat(1, rows[-1].ncols()), rows)
        return bool(above[0] < asked)

    def _cut_again(self, piece: Piece) -> list[Piece]:
        """Two parts of a leaf: at the kink of the open neuron with the largest share, or across its longest side."""
        self.cuts.again(f"the certificate claims {self.claim!r}")
        shares = [(float(x), index, k) for index, row in enumerate(piece.shares) for k, x in enumerate(row) if x > 0]
        if shares and (len(piece.inputs.lower) > _FEW_INPUTS or len(shares) <= _FEW):
            _, index, k = max(shares)
            low, high = (side[k] for side in piece.intervals[index])
            inner = [mark for mark in self.model[index].functions[k].on(low, high).marks if low < mark < high]
            at = inner[0].mid() if inner else ((low + high) / 2).mid()
            return _halves(piece, index, k, at, (None, None))
        return across(piece)


Drawing = Callable[[int, Sequence[Function], Sequence[View], Slopes], Slopes]
"""Slopes of the lower and the upper lines of a layer, for its number, functions, their views and slope ranges."""


def enclosed(piece: Piece, trace: Trace, draw: Drawing, every: bool = False) -> list[Slopes] | None:
    """The slopes of a piece, None if it has no input. Its intervals become smaller, in place.

    Back-substitution is asked about neurons whose slope is open, or that may have no value left; or ``every`` one.
    """
    if piece.inputs.empty():
        return None
    slopes = []
    for index, layer in enumerate(trace.model[:-1]):
        views = views_on(layer.functions, piece.intervals[index])
        rows = [k for k, f in enumerate(layer.functions) if every or _undecided(f, views[k])]
        piece.intervals[index] = trace.interval(index, piece.intervals[index], rows)
        if any(low > high for low, high in zip(*piece.intervals[index], strict=True)):
            return None
        views = views_on(layer.functions, piece.intervals[index])
        slopes.append(slopes_on(views))
        trace.lines.append(Lines(layer, views, *draw(index, layer.functions, views, slopes[-1])))
    return slopes


def _suggested(_: int, functions: Sequence[Function], views: Sequence[View], slopes: Slopes) -> Slopes:
    lines = [suggested_lines(*one) for one in zip(functions, views, *slopes, strict=True)]
    return [a for a, _ in lines], [b for _, b in lines]


def across(piece: Piece) -> list[Piece]:
    """Two parts of a piece, cut across the longest side of its box."""
    lower, upper = piece.inputs.lower, piece.inputs.upper
    axis = int(np.argmax([float(u - low) for low, u in zip(lower, upper, strict=True)]))
    return _halves(piece, _AXIS, axis, ((lower[axis] + upper[axis]) / 2).mid(), (None, None))


def _undecided(f: Function, view: View) -> bool:
    """Whether back-substitution can tell something of a neuron: its slope is open, or its interval ends at a mark."""
    alpha, beta = view.slopes()
    if alpha < beta or not (view.low.is_finite() and view.high.is_finite()):
        return True
    return any(not (mark < view.low or mark > view.high) for mark in f.marks)


def _halves(piece: Piece, layer: int, index: int, at: arb, nodes: tuple[int | None, int | None]) -> list[Piece]:
    """The parts below and above a value of an axis, or of a neuron's pre-activation."""
    if layer == _AXIS:
        boxes = piece.inputs.halves(index, at)
        parts = [(box, list(piece.intervals)) for box in boxes]
    else:
        low, high = piece.intervals[layer]
        below, above = list(high), list(low)
        below[index] = at if at < high[index] else high[index]
        above[index] = at if at > low[index] else low[index]
        parts = [(piece.inputs, list(piece.intervals)) for _ in nodes]
        parts[0][1][layer], parts[1][1][layer] = (low, below), (above, high)
    return [
        replace(piece, inputs=box, intervals=ends, node=node) for (box, ends), node in zip(parts, nodes, strict=True)
    ]


Suggested = Callable[[int, Array, Array], tuple[Array, Array]]
"""Slopes for the lower and the upper lines of a hidden layer, on intervals of its neurons; not believed."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A tree, which of the proofs about the whole region it starts from, and who suggests lines.

    ``first`` takes the place of the first weight where the tree cuts a region of fewer inputs. ``say`` is told how far
    the work has come.
    """

    tree: Any
    base: int
    suggest: Suggested
    first: Array | None = None
    say: Callable[[str], None] | None = None


def prove_leaves(
    model: Model,
    inputs: Inputs,
    known: Sequence[Interval],
    cut: Cut,
    holds: Callable[[Trace, list[Slopes]], bool],
    what: str,
) -> None:
    """Show that something holds on every leaf that may have an input; one for which it does not is cut further."""

    def draw(index: int, functions: Sequence[Function], views: Sequence[View], slopes: Slopes) -> Slopes:
        alpha, beta = slopes
        low, high = (np.array([float(x) for x in side]) for side in zip(*((v.low, v.high) for v in views)))
        told = cut.suggest(index, low, high)
        return tuple(  # type: ignore[return-value]
            [ball(x) if a < b and np.isfinite(x) else a for x, a, b in zip(line, alpha, beta, strict=True)]
            for line in told
        )

    cuts, seen = Cuts(cut.tree), 0
    todo = [Piece(inputs, list(known))]
    while todo:
        piece, seen = todo.pop(), seen + 1
        if cut.say is not None:
            cut.say(f"ball arithmetic: piece {seen} of about {2 * len(cuts.nodes) + 1}")
        trace = Trace(model, piece.inputs)
        slopes = enclosed(piece, trace, draw, every=True)
        if slopes is None:
            continue
        if piece.node in cuts.nodes:
            todo += cuts.halves(piece)
        elif not holds(trace, slopes):
            cuts.again(what)
            todo += across(piece)
