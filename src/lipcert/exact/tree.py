"""A region cut into pieces: every leaf of the certificate's tree is bounded again, or shown to have no input.

A cut leaves two pieces that both contain the cut, so the leaves cover the region whatever the cuts are. On a convex
region the Lipschitz constant is at most the largest norm of a Jacobian W_N D_{N-1} … D_1 W_1, so the largest bound of a
piece counts. Lines and multipliers are not stored; they are chosen here, and a leaf that needs it is cut further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb, arb_mat

from lipcert.certificate import Certificate
from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes, product_norm, rest_norms
from lipcert.exact.enclose import Interval, Lines, Trace, slopes_on, suggested_lines, views_on
from lipcert.exact.functions import Function, View, ball, most
from lipcert.exact.model import Inputs, Model
from lipcert.exact.search import Chain
from lipcert.typing import Array

_LEAF, _AXIS = -2, -1
_GLANCE, _LOOK, _STARE = 3, 20, 150
"""Rounds of the search for multipliers: of a piece that is cut in the tree, of a leaf, of a leaf that needs more."""
_NEAR = 1.05
"""A leaf whose bound is not within this factor of the claim after a look is not worth a stare."""
_FEW, _FEW_INPUTS = 4, 16
"""With few open neurons, or many inputs, a neuron is cut rather than the box."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the region, by a box and by intervals that hidden neurons are confined to; a node of the tree, or none."""

    inputs: Inputs
    intervals: list[Interval]
    multipliers: list[Array] | None
    node: int | None


@dataclass(frozen=True, eq=False)
class Enclosed:
    """A piece with its intervals made smaller, its slopes, and its lines; ``empty`` if no input is left."""

    piece: Piece
    trace: Trace
    slopes: list[Slopes]
    empty: bool = False


class Pieces:
    """The walk over the tree of one certificate."""

    def __init__(self, model: Model, inputs: Inputs, tree: object, claim: float, known: list[Interval]) -> None:
        self.model, self.claim, self.target = model, claim, ball(claim)
        self.layer, self.index, self.child = (
            [int(x) for x in getattr(tree, name)] for name in ("layer", "index", "child")
        )
        self.value = [float(x) for x in getattr(tree, "value")]
        self.voids: dict[int, dict[int, float]] = {}
        for node, neuron, weight in zip(*(getattr(tree, name) for name in ("void", "neuron", "weight")), strict=True):
            self.voids.setdefault(int(node), {})[int(neuron)] = float(weight)
        self.chain = Chain([layer.near for layer in model])
        self.extra = 100 + self.layer.count(_LEAF)
        """So many cuts beyond those of the tree, at most."""
        self.root = Piece(inputs, known, None, 0)
        whole = [slopes_on(views_on(layer.functions, ends)) for layer, ends in zip(model, known)]
        self.rest = rest_norms(model, whole)
        self.seen: set[int] = set()

    def prove(self) -> arb:
        """The largest bound of a leaf, at most the claim."""
        worst = arb(0)
        todo = [self.root]
        while todo:
            piece = todo.pop()
            self._visit(piece)
            enclosed = self._enclose(piece)
            if enclosed.empty:
                continue
            leaf = piece.node is None or self.layer[piece.node] == _LEAF
            bound, tried = self._bound(enclosed, _LOOK if leaf else _GLANCE)
            if bound is None and leaf and self._void(enclosed):
                continue
            if bound is not None:
                worst = most([worst, bound])
                continue
            piece = replace(enclosed.piece, multipliers=tried.multipliers)
            todo += self._cut_again(piece, enclosed, tried) if leaf else self._cut(piece)
        return worst

    def _visit(self, piece: Piece) -> None:
        if piece.node is None:
            return
        if not 0 <= piece.node < len(self.layer) or piece.node in self.seen:
            raise ProofFailed("the pieces do not cover the region: a node lacks a child, or has more than one parent")
        self.seen.add(piece.node)

    def _enclose(self, piece: Piece) -> Enclosed:
        """Intervals by back-substitution, layer by layer, for neurons whose slope is open or that may have no value left."""
        trace = Trace(self.model, piece.inputs)
        found, slopes = list(piece.intervals), []
        nothing = Enclosed(piece, trace, [], empty=True)
        if piece.inputs.empty():
            return nothing
        for index, layer in enumerate(self.model[:-1]):
            views = views_on(layer.functions, found[index])
            rows = [k for k, f in enumerate(layer.functions) if _undecided(f, views[k])]
            found[index] = trace.interval(index, found[index], rows)
            if any(low > high for low, high in zip(*found[index], strict=True)):
                return nothing
            views = views_on(layer.functions, found[index])
            slopes.append(slopes_on(views))
            lines = [suggested_lines(*one) for one in zip(layer.functions, views, *slopes[-1], strict=True)]
            trace.lines.append(Lines(layer, views, [a for a, _ in lines], [b for _, b in lines]))
        return Enclosed(replace(piece, intervals=found), trace, slopes)

    def _bound(self, enclosed: Enclosed, rounds: int) -> tuple[arb | None, _Tried]:
        """A proved bound of the piece that is at most the claim, if there is one."""
        near = [tuple(np.array([float(x) for x in side]) for side in pair) for pair in enclosed.slopes]
        start = enclosed.piece.multipliers
        enough = float(np.ldexp(self.claim, -sum(self.chain.powers))) * (1.0 - 1e-9)
        with np.errstate(all="ignore"):
            for more in (rounds, _STARE):
                try:
                    about, multipliers, shares = self.chain.suggest(near, start, more, enough)
                except np.linalg.LinAlgError:
                    about, multipliers, shares = np.inf, start or [], []
                tried = _Tried(multipliers or None, shares)
                if about <= self.claim * (1.0 + 1e-9) or (not multipliers and more == _STARE):
                    bound = product_norm(self.model, enclosed.slopes, self._exact(multipliers), self.rest)
                    if bound <= self.target:
                        return bound, tried
                if rounds == _GLANCE or about > _NEAR * self.claim:
                    break
                start = multipliers
        return None, tried

    def _exact(self, multipliers: list[Array]) -> list[list[arb] | None]:
        powers = np.cumsum(self.chain.powers)
        if not multipliers:
            return [None] * (len(self.model) - 1)
        return [[ball(t) * arb(4) ** int(power) for t in T] for T, power in zip(multipliers, powers)]

    def _void(self, enclosed: Enclosed) -> bool:
        """Whether the stored weights λ prove that no input obeys the intervals.

        They ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        node = enclosed.piece.node
        weights = self.voids.get(node, {}) if node is not None else {}
        if not weights:
            return False
        asked, rows, start = arb(0), [], 0
        for low, high in enclosed.piece.intervals:
            mine = [ball(weights.get(start + k, 0.0)) for k in range(len(low))]
            asked += sum((x * (a if x > 0 else b) for x, a, b in zip(mine, low, high) if not x.is_zero()), arb(0))
            rows.append(arb_mat([mine]))
            start += len(low)
        above = enclosed.trace.above(len(rows), arb_mat(1, rows[-1].ncols()), rows)
        return bool(above[0] < asked)

    def _cut(self, piece: Piece) -> list[Piece]:
        """The two children that the tree names."""
        assert piece.node is not None
        layer, index, value, child = (column[piece.node] for column in (self.layer, self.index, self.value, self.child))
        limits = [len(piece.inputs.lower), *(len(low) for low, _ in piece.intervals)]
        if not -1 <= layer < len(limits) - 1 or not 0 <= index < limits[layer + 1] or not np.isfinite(value):
            raise ProofFailed("the tree cuts something that the network does not have")
        return _halves(piece, layer, index, ball(value), (child, child + 1))

    def _cut_again(self, piece: Piece, enclosed: Enclosed, tried: _Tried) -> list[Piece]:
        """Two parts of a leaf: at the kink of the open neuron with the largest share, or across its longest side."""
        self.extra -= 1
        if self.extra < 0:
            where = f"leaf {piece.node}" if piece.node is not None else "part of a leaf"
            raise ProofFailed(
                f"the certificate claims {self.claim!r}, which exact cannot prove for a {where} of its tree"
            )
        shares = [
            (float(x), index, k) for index, share in enumerate(tried.shares) for k, x in enumerate(share) if x > 0
        ]
        widths = [float(u - low) for low, u in zip(piece.inputs.lower, piece.inputs.upper, strict=True)]
        if shares and (len(widths) > _FEW_INPUTS or len(shares) <= _FEW):
            _, index, k = max(shares)
            low, high = piece.intervals[index][0][k], piece.intervals[index][1][k]
            inner = self.model[index].functions[k].on(low, high).marks
            at = inner[0].mid() if inner and low < inner[0] < high else ((low + high) / 2).mid()
            return _halves(piece, index, k, at, (None, None))
        axis = int(np.argmax(widths))
        at = ((piece.inputs.lower[axis] + piece.inputs.upper[axis]) / 2).mid()
        return _halves(piece, _AXIS, axis, at, (None, None))


@dataclass(frozen=True, eq=False)
class _Tried:
    """The multipliers of the search, and the share of the squared bound that each open neuron is to blame for."""

    multipliers: list[Array] | None
    shares: list[Array]


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
        return [replace(piece, inputs=box, node=node) for box, node in zip(boxes, nodes, strict=True)]
    low, high = piece.intervals[layer]
    below, above = list(high), list(low)
    below[index] = at if at < high[index] else high[index]
    above[index] = at if at > low[index] else low[index]
    parts = []
    for interval, node in zip(((low, below), (above, high)), nodes, strict=True):
        intervals = [*piece.intervals[:layer], interval, *piece.intervals[layer + 1 :]]
        parts.append(replace(piece, intervals=intervals, node=node))
    return parts


def prove_tree(model: Model, inputs: Inputs, certificate: Certificate, known: Sequence[Interval]) -> arb:
    """At least the constant over the whole region, by the pieces of the certificate's tree."""
    everything = [([arb.neg_inf()] * layer.size, [arb.pos_inf()] * layer.size) for layer in model[:-1]]
    return Pieces(model, inputs, certificate.tree, certificate.bound, list(known) or everything).prove()
