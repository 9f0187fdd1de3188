"""A region cut into pieces: something is shown on every leaf of a tree, or the leaf is shown to have no input.

A cut leaves two pieces that both contain the cut, so the leaves cover the region whatever the cuts are. On a convex
region the Lipschitz constant is at most the largest norm of a Jacobian W_N D_{N-1} … D_1 W_1, so the largest bound of a
piece counts. Lines and multipliers are not stored; they are chosen here, and a leaf that needs it is cut further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    Balls,
    Exhausted,
    Interval,
    balls,
    ellipsoid_norm,
    floats,
    image,
    induced_norm,
    is_finite,
    larger,
    smaller,
    zeros,
)
from lipcert.audit.engine import Lines, Products, Trace, advance, gain, slopes_on, suggested_lines, views_on
from lipcert.audit.model import Inputs, Model, along_rays
from lipcert.audit.taylor import MOST_INPUTS, Expansion
from lipcert.definitions.functions import Function, View, ball
from lipcert.model.arrays import Array
from lipcert.model.norms import PLAIN, Norms
from lipcert.suggest.chain import Chain

_LEAF, _AXIS = -2, -1
_LOOK, _STARE = 20, 150
"""Rounds of the search for multipliers: of a leaf, of a leaf that needs more."""
_NEAR = 1.05
"""A leaf whose bound is not within this factor of the claim after a look is not worth a stare."""
_EXTRA = 12
"""So many cuts beyond those of the tree, and one more for every eight leaves."""
_CURVED = 24
"""So many more for every leaf, and as many again, where activations are curved: Taylor models here are of lower degree
than those that the tree may rest on."""
_FEW, _FEW_INPUTS = 4, 16
"""With few open neurons, or many inputs, a neuron is cut rather than the box."""
_HOPEFUL = 1.5
"""A leaf whose Taylor model is within this factor of the claim is cut further rather than bounded to first order."""
_SKIPPED = 3
"""Of the nodes that the tree cuts, those of every third depth are looked at: their intervals serve what is below."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the region: a box, and intervals that hidden neurons are confined to; ``node``: where in the tree."""

    inputs: Inputs
    intervals: list[Interval]
    node: int | None = 0
    depth: int = 0

    def halves(
        self, layer: int, index: int, at: arb, nodes: tuple[int | None, int | None] = (None, None)
    ) -> list[Piece]:
        """The parts below and above a value of an axis, or of a neuron's pre-activation."""
        boxes, parts = (self.inputs, self.inputs), [list(self.intervals), list(self.intervals)]
        if layer == _AXIS:
            boxes = self.inputs.halves(index, at)
        else:
            low, high = (end.copy() for end in self.intervals[layer])
            low[index], high[index] = larger(at, low[index]), smaller(at, high[index])
            parts[0][layer], parts[1][layer] = (self.intervals[layer][0], high), (low, self.intervals[layer][1])
        return [Piece(box, ends, node, self.depth + 1) for box, ends, node in zip(boxes, parts, nodes, strict=True)]

    def across(self, axis: int | None = None) -> list[Piece]:
        """Two parts, cut across an axis, by default the longest side of the box."""
        low, high = self.inputs.lower, self.inputs.upper
        axis = int(np.argmax(floats(high - low))) if axis is None else axis
        return self.halves(_AXIS, axis, ((low[axis] + high[axis]) / 2).mid())


class Cuts:
    """The cuts of a tree; its leaves are shown to cover the region. ``extra``: how many more may be made."""

    def __init__(self, tree: Any, extra: int = 0) -> None:
        cuts, voids = (tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight)
        if any(len({np.shape(column) for column in group}) != 1 for group in (cuts, voids)):
            raise Exhausted("the columns of the tree differ in length")
        rows = zip(*(column.tolist() for column in cuts), strict=True)
        self.nodes = {node: row for node, row in enumerate(rows) if row[0] != _LEAF}
        children = [child for *_, first in self.nodes.values() for child in (first, first + 1)]
        later = all(node < first for node, (*_, first) in self.nodes.items())
        if not later or sorted(children) != list(range(1, len(tree.layer))):
            raise Exhausted("the pieces do not cover the region: a node lacks a child, or has more than one parent")
        self.extra = _EXTRA + (len(self.nodes) + 1) // 8 + extra * (len(self.nodes) + 2)
        self.voids: dict[int | None, dict[int, float]] = {}
        for node, neuron, weight in zip(*voids, strict=True):
            self.voids.setdefault(int(node), {})[int(neuron)] = float(weight)

    def halves(self, piece: Piece) -> list[Piece]:
        """The two children that the tree names."""
        assert piece.node is not None
        layer, index, value, child = self.nodes[piece.node]
        limits = [len(piece.inputs.lower), *(len(low) for low, _ in piece.intervals)]
        if not -1 <= layer < len(limits) - 1 or not 0 <= index < limits[layer + 1] or not np.isfinite(value):
            raise Exhausted("the tree cuts something that the network does not have")
        return piece.halves(layer, index, ball(value), (child, child + 1))


Holds = Callable[[Piece, Trace, list[Interval]], bool]
"""Whether something is proved of a piece with an input, from its lines and its slopes."""


def prove_leaves(
    model: Model,
    root: Piece,
    cuts: Cuts,
    holds: Holds,
    what: str,
    done: Callable[[Piece], bool] = lambda piece: piece.inputs.empty(),
    say: Callable[[str], None] | None = None,
    again: Callable[[Piece], list[Piece]] = Piece.across,
    void: Callable[[Piece, Trace], bool] | None = None,
) -> None:
    """Show that something holds on every leaf that may have an input; one for which it does not is cut further."""
    todo, seen = [root], 0
    while todo:
        piece, seen = todo.pop(), seen + 1
        if say is not None:
            say(f"ball arithmetic: piece {seen} of about {2 * len(cuts.nodes) + 1}")
        if done(piece):
            continue
        inner = piece.node in cuts.nodes
        if inner and (piece.depth + 1) % _SKIPPED:
            todo += cuts.halves(piece)
            continue
        piece = replace(piece, inputs=piece.inputs.snug())
        trace = Trace(model, piece.inputs)
        slopes = enclosed(piece, trace)
        if slopes is None:
            continue
        if inner:
            todo += cuts.halves(piece)
        elif not holds(piece, trace, slopes) and not (void or voided(cuts))(piece, trace):
            cuts.extra -= 1
            if cuts.extra < 0:
                raise Exhausted(f"{what}, which the second opinion cannot prove for a leaf of its tree")
            todo += again(piece)


def enclosed(piece: Piece, trace: Trace) -> list[Interval] | None:
    """The slopes of a piece, None if it has no input. Its intervals become smaller, in place.

    Back-substitution is asked about neurons whose slope is open, or that may have no value left.
    """
    slopes = []
    for index, layer in enumerate(trace.model[:-1]):
        views = views_on(layer.functions, piece.intervals[index])
        rows = np.array([k for k, f in enumerate(layer.functions) if _undecided(f, views[k])], dtype=int)
        low, high = piece.intervals[index] = trace.interval(index, piece.intervals[index], rows)
        if (low > high).any():
            return None
        for k in rows:
            views[k] = layer.functions[k].on(low[k], high[k])
        slopes.append(slopes_on(views))
        down, up = suggested_lines(layer, (low, high), slopes[-1], least_area=False)
        trace.lines.append(Lines(views, slopes[-1], down, up))
    return slopes


def _undecided(f: Function, view: View) -> bool:
    """Whether back-substitution can tell something of a neuron: its slope is open, or its interval ends at a mark."""
    alpha, beta = view.slopes()
    if alpha < beta or not (view.low.is_finite() and view.high.is_finite()):
        return True
    return any(not (mark < view.low or mark > view.high) for mark in f.marks)


def voided(cuts: Cuts) -> Callable[[Piece, Trace], bool]:
    """Whether the stored weights λ prove that no input obeys the intervals of a piece.

    They ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
    """

    def void(piece: Piece, trace: Trace) -> bool:
        rows = weights_of(cuts, piece)
        if rows is None:
            return False
        asked = arb(0)
        for row, (low, high) in zip(rows, piece.intervals, strict=True):
            some = np.flatnonzero(row != 0)
            asked += (row[some] * np.where(row[some] > 0, low[some], high[some])).sum() if some.size else 0
        above = trace.above(len(rows), zeros(1, len(rows[-1])), [row[None] for row in rows])
        return bool(above[0] < asked)

    return void


def weights_of(cuts: Cuts, piece: Piece) -> list[Balls] | None:
    """The weights of all neurons for a void leaf, layer by layer."""
    told, start, rows = cuts.voids.get(piece.node), 0, []
    if told is None:
        return None
    for low, _ in piece.intervals:
        rows.append(balls([told.get(start + k, 0.0) for k in range(len(low))]))
        start += len(low)
    return rows if all(is_finite(row).all() for row in rows) else None


class LipschitzTree:
    """The walk over a tree for a Lipschitz bound; of a region without bounds, over the rays of a box."""

    def __init__(
        self,
        model: Model,
        inputs: Inputs | None,
        known: Sequence[Interval],
        tree: Any,
        claim: float,
        norms: Norms = PLAIN,
        start: Balls | None = None,
    ) -> None:
        self.norms, self.claim, self.worst = norms, claim, arb(0)
        self.moving = None if inputs is not None else model[0].weight.shape[1]
        if inputs is None:
            model, inputs = along_rays(model)
            known = [(np.full(x.size, arb.neg_inf()), np.full(x.size, arb.pos_inf())) for x in model[:-1]]
        self.model, self.root = model, Piece(inputs, list(known))
        first = model[0].weight[:, : self.moving]
        self.factor = gain(norms, start, first.shape[1])
        self.carried = (replace(model[0], weight=first if start is None else first * start), *model[1:])
        self.chain = Chain.of([floats(layer.weight) for layer in self.carried])
        self.products = Products((replace(model[0], weight=first), *model[1:]))
        self.curved = any(any(f.bends) for layer in model for f in layer.functions)
        self.cuts = Cuts(tree, _CURVED if self.curved else 0)
        self.kinked = any(len(set(f.formulas)) > 1 for layer in model for f in layer.functions)
        self.multipliers: list[Array] | None = None
        self.hopeless = False
        self.axis: int | None = None
        self.shares: Sequence[Array] = ()
        self.smooth = self.curved and len(inputs.center) <= MOST_INPUTS and len(model) > 1

    def prove(self) -> arb:
        """The largest bound of a leaf, at most the claim."""
        what = f"the certificate claims {self.claim!r}"
        prove_leaves(self.model, self.root, self.cuts, self._holds, what, self._done, None, self._again, self._void)
        return self.worst

    def _no_face(self, piece: Piece) -> bool:
        """Whether no coordinate of a piece has size one."""
        return bool((larger(-piece.inputs.lower, piece.inputs.upper) < 1).all())

    def _done(self, piece: Piece) -> bool:
        """Whether a piece has no input, or a leaf is settled by a Taylor model."""
        if piece.inputs.empty() or (self.moving is not None and self._no_face(piece)):
            return True
        if not self.smooth or piece.node in self.cuts.nodes:
            return False
        found = Expansion(self.model, piece.inputs.snug(), piece.intervals)
        piece.intervals[: len(found.intervals)] = found.intervals
        if found.empty:
            return True
        bound = found.bound(self.norms, ball(self.claim), self.moving)
        self.axis = found.axis()
        self.hopeless = self.kinked or not bound <= _HOPEFUL * ball(self.claim)
        return self._noted(bound)

    def _noted(self, bound: arb) -> bool:
        """Whether a bound of a leaf is at most the claim."""
        if not bound <= ball(self.claim):
            return False
        self.worst = larger(self.worst, bound)
        return True

    def _holds(self, _: Piece, trace: Trace, slopes: list[Interval]) -> bool:
        if self.smooth and not self.hopeless:
            return False
        bound = self._by_slopes(slopes, ball(self.claim))
        settled = all((alpha == beta).all() for alpha, beta in slopes)
        if bound is None and (settled or not self.norms.plain):
            bound = induced_norm(self.products.entries(slopes), self.norms)
        return bound is not None and self._noted(bound)

    def _by_slopes(self, slopes: list[Interval], limit: arb) -> arb | None:
        """A bound by ellipsoids that is at most a limit, if one is found."""
        about = [(floats(a), floats(b)) for a, b in slopes]
        settled = all((a == b).all() for a, b in about)
        goal = self.claim / float(self.factor)
        for rounds in (_LOOK, _STARE):
            found, multipliers, self.shares = self.chain.suggest(about, self.multipliers, rounds, goal * (1.0 - 1e-9))
            self.multipliers = multipliers
            if found <= goal * (1.0 + 1e-9) or settled or self.norms.output.name != "l2":
                bound = self._carry(slopes, multipliers)
                if bound <= limit:
                    return bound
            if settled or found > _NEAR * goal or self.curved:
                break
        return None

    def _carry(self, slopes: list[Interval], multipliers: list[Array] | None) -> arb:
        P: Balls | None = None
        for index, layer in enumerate(self.carried):
            S = image(layer.weight, P)
            if index < len(slopes):
                scale = arb(4) ** int(sum(self.chain.powers[: index + 1]))
                P = advance(S, slopes[index], None if multipliers is None else balls(multipliers[index]) * scale)
        return (ellipsoid_norm(S, self.norms.output) * self.factor).upper()

    def _again(self, piece: Piece) -> list[Piece]:
        """Two parts of a leaf: at the kink of the open neuron with the largest share, or across its longest side."""
        shares = [(float(x), index, k) for index, row in enumerate(self.shares) for k, x in enumerate(row) if x > 0]
        few = len(piece.inputs.lower) > _FEW_INPUTS or len(shares) <= _FEW
        if shares and (self.kinked or not self.smooth) and few:
            _, index, k = max(shares)
            low, high = (side[k] for side in piece.intervals[index])
            inner = [mark for mark in self.model[index].functions[k].on(low, high).marks if low < mark < high]
            return piece.halves(index, k, inner[0].mid() if inner else ((low + high) / 2).mid())
        return piece.across(self.axis)

    def _void(self, piece: Piece, trace: Trace) -> bool:
        return voided(self.cuts)(piece, trace) or (self.moving is not None and self._only_at_infinity(piece))

    def _only_at_infinity(self, piece: Piece) -> bool:
        """Whether weights λ prove that no point with t > 0 has its neurons in their intervals.

        A positive λ_j counts where v_j ≥ 0 is asked for, a negative one where v_j ≤ 0 is, so Σ λ_j v_j ≥ 0. From the
        last layer on the sum is written in what comes before, as row·z. Where no term can be positive, all but that of
        t are left out, which makes the sum larger. If row_t·t with row_t < 0 is all that is left, there is no t > 0.
        """
        weights = weights_of(self.cuts, piece)
        if weights is None:
            return False
        row = zeros(len(weights[-1]))
        for layer, (low, high), weight in zip(self.model[-2::-1], piece.intervals[::-1], weights[::-1], strict=True):
            above, below = low >= 0, high <= 0
            if ((weight > 0) & ~above).any() or ((weight < 0) & ~below).any():
                return False
            ends = [f.on(arb(a), arb(b)).slopes()[0] for a, b in ((-1, 0), (0, 1)) for f in layer.functions]
            left, right = balls(np.zeros(2 * layer.size)).reshape(2, -1)
            left[:], right[:] = ends[: layer.size], ends[layer.size :]
            plus, minus = (
                (below | sign(right)) & (above | other(left))
                for sign, other in ((_at_least_zero, _at_most_zero), (_at_most_zero, _at_least_zero))
            )
            gone = (plus & (row <= 0)) | (minus & (row >= 0)) | (plus & minus)
            gone = gone if gone[:-1].all() else plus & minus
            gone[-1] = False
            row = np.where(gone, zeros(len(row)), row)
            if (~(row == 0) & ~(above | below | (left == right))).any():
                return False
            row = _times(np.where(above, right, left) * row + weight, layer.weight)
        return bool((row[:-1] == 0).all() and row[-1] < 0)


def _at_least_zero(x: Balls) -> Array:
    return np.asarray(x >= 0)


def _at_most_zero(x: Balls) -> Array:
    return np.asarray(x <= 0)


def _times(row: Balls, weight: Balls) -> Balls:
    return (row[:, None] * weight).sum(axis=0)
