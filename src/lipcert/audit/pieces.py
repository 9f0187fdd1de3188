"""A region cut into pieces: something is shown on every leaf of a tree, or the leaf is shown to have no input.

A cut leaves two pieces that both contain the cut, so the leaves cover the region whatever the cuts are. On a convex
region the Lipschitz constant is at most the largest norm of a Jacobian W_N D_{N-1} … D_1 W_1, so the largest bound of a
piece counts. Lines and multipliers are not stored; they are chosen here, and a leaf that needs it is cut further.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb
from scipy import linalg

from lipcert.audit import balls as ba
from lipcert.audit import couplings, engine
from lipcert.audit.balls import Balls, Interval
from lipcert.audit.engine import Inputs, Layer, Model, Trace
from lipcert.audit.taylor import MOST_INPUTS, MOST_NEURONS, Expansion
from lipcert.definitions.functions import ball, jet
from lipcert.definitions.rows import function
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.model.regions import PLAIN, Norms
from lipcert.suggest.chain import Chain

_LEAF, _AXIS = -2, -1
_EXTRA, _CURVED = 60, 8
"""So many cuts beyond those of the tree, and one for every leaf; or so many for every leaf, with Taylor models."""
_FEW, _FEW_INPUTS = 4, 16
"""With few open neurons, or many inputs, a neuron is cut rather than the box."""
_SKIPPED = 6
"""Of the nodes that the tree cuts, those of every sixth depth are looked at: their intervals serve what is below."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Slopes:
    """All that is known of a piece of all of space."""

    slopes: list[Interval]


def no_input(model: Model, intervals: Sequence[Interval], multipliers: Sequence[Balls]) -> bool:
    """Whether no input of all of space keeps all intervals, by multipliers λ of the neurons, layer by layer.

    Behind layers of straight arcs v_j is a_j·x + c_j. If Σ u_j λ_j a_j = 0 and Σ u_j λ_j (c_j - t_j) < 0 for some
    u_j > 0, t_j the low end where λ_j > 0 and else the high end, the intervals contradict each other. All u_j but as
    many as there are equations are one. Pre-activations of a layer may stand for x if no layer before has a λ_j ≠ 0.
    """
    used = [index for index, row in enumerate(multipliers) if (row != 0).any()]
    starts = range(used[0] + 2) if used else ()
    tables = (_table(model, intervals[: used[-1] + 1], multipliers, start) for start in starts)
    return any(_contradict(table) for table in tables if table is not None)


def _table(model: Model, intervals: Sequence[Interval], multipliers: Sequence[Balls], start: int) -> Balls | None:
    """A row λ_j (a_j, c_j - t_j) for each λ_j ≠ 0; None if an arc before is not straight, or an end is infinite."""
    n = model[start].weight.shape[1] if not start else model[start - 1].size
    v, rows = np.hstack([ba.balls(np.eye(n)), ba.zeros(n, 1)]), []
    for index in range(max(start - 1, 0), len(intervals)):
        layer, told = model[index], multipliers[index]
        if index >= start:
            v = ba.dot(layer.weight, v)
            v[:, n] += layer.bias
        some = np.flatnonzero(told != 0)
        ends = np.where(told > 0, *intervals[index])[some]
        row = v[some].copy()
        row[:, n] -= ends
        rows.append(row * told[some, None])
        if index == len(intervals) - 1:
            break
        views = layer.views(intervals[index])
        if any(len(view.arcs) > 1 or view.arcs[0].bend for view in views):
            return None
        at = [ba.larger(view.low, ba.smaller(view.high, arb(0))) for view in views]
        jets = np.array([jet(view.arcs[0].formula, x) for view, x in zip(views, at, strict=True)], dtype=object)
        v = v * jets[:, 1:]
        v[:, n] += jets[:, 0] - jets[:, 1] * at
    table = np.vstack(rows)
    return table if ba.is_finite(table).all() else None


def _contradict(table: Balls) -> bool:
    """Whether factors u > 0 of the rows make their sum zero, but for its last entry, which is negative."""
    met = np.flatnonzero((table[:, :-1] != 0).any(axis=0))  # a ball without radius around zero is zero
    if not 0 < len(met) < len(table):
        return bool(not len(met) and table[:, -1].sum() < 0)
    order = linalg.qr(ba.floats(table[:, met]).T, mode="r", pivoting=True)[1]
    basis, rest = order[: len(met)], order[len(met) :]
    try:
        u = ba.solve(table[np.ix_(basis, met)].T, -table[np.ix_(rest, met)].sum(axis=0)[:, None])[:, 0]
    except ProofFailed:
        return False
    return bool((u > 0).all() and (u * table[basis, -1]).sum() + table[rest, -1].sum() < 0)


def elementwise(model: Model, known: Sequence[Interval]) -> tuple[Model, list[Interval]]:
    """The same function without products and softmax, and what is known of its hidden pre-activations.

    xy is a difference of squares, of sx/2 ± y/(2s); a softmax value is one over one and all other exp(v_j - v_l).
    """
    layers, ends = list[Layer](), list[Interval]()
    seen = [(k, 1) for k in range(model[0].weight.shape[1])]

    def add(rows: Sequence[dict[int, Any]], names: Sequence[str]) -> None:
        """A layer with such entries in its rows; of reciprocals the sum begins with one."""
        weight, least = ba.zeros(len(rows), layers[-1].size), ba.unbounded(len(rows))[0]
        for k, row in enumerate(rows):
            weight[k, list(row)] = [arb(entry) for entry in row.values()]
        bias = np.array([arb(int(name == "reciprocal")) for name in names])
        layers.append(Layer(weight, bias, tuple(function(name, ()) for name in names), Neurons.of(names, len(names))))
        ends.append((np.where(bias == 1, bias, least), -least))

    for layer, (low, high) in zip(model, [*known, ba.unbounded(model[-1].size)], strict=True):
        coupling = layer.coupling
        layer = replace(layer, weight=np.array([layer.weight[:, k] * sign for k, sign in seen]).T)
        seen = [(k, 1) for k in range(layer.size)]
        if coupling is None or layer.neurons is None:
            layers.append(layer)
            ends.append((low, high))
            continue
        n, softmaxes, terms = coupling.plain, [row.tolist() for row in couplings.rows_of(coupling)], list[Any]()
        for product, place in coupling.sums():
            columns = product.one, product.two, np.broadcast_to(place[:, None], product.one.shape)
            terms += zip(*(column.ravel().tolist() for column in columns), strict=True)
        used = sorted({*itertools.chain(*softmaxes, *(term[:2] for term in terms))})
        at, taken = {k: n + number for number, k in enumerate(used)}, np.array([*range(n), *used])
        plain = *layer.plain, *(function("identity", ()) for _ in used)
        same = Neurons.of("identity", 1).groups[0][0], np.arange(n, len(taken))
        neurons = Neurons(len(taken), (*layer.neurons.groups, same))
        layers.append(Layer(layer.weight[taken], layer.bias[taken], plain, neurons))
        ends.append((low[taken], high[taken]))
        wide = ba.floats(high - low)
        with np.errstate(all="ignore"):
            powers = [np.rint(0.5 * np.log2(wide[y] / wide[x])) for x, y, _ in terms]
        scales = [arb(2) ** (int(np.clip(power, -60, 60)) if np.isfinite(power) else 0) for power in powers]
        stay: list[dict[int, Any]] = [{k: 1} for k in range(n)]
        apart = [{at[j]: 1, at[k]: -1} for row in softmaxes for k in row for j in row if j != k]
        halves = [
            {at[x]: s / 2, at[y]: sign / (2 * s)}
            for sign in (1, -1)
            for (x, y, _), s in zip(terms, scales, strict=True)
        ]
        add([*stay, *apart, *halves], ["identity"] * n + ["exp"] * len(apart) + ["square"] * len(halves))
        if softmaxes:
            counts = np.cumsum([n, *(len(row) - 1 for row in softmaxes for _ in row)])
            sums = [dict.fromkeys(range(a, b), 1) for a, b in itertools.pairwise(counts.tolist())]
            rest = [{n + len(apart) + k: 1} for k in range(len(halves))]
            add([*stay, *sums, *rest], ["identity"] * n + ["reciprocal"] * len(sums) + ["identity"] * len(rest))
        seen = [(k, 1) for k in range(coupling.factors)] + [(z, sign) for sign in (1, -1) for *_, z in terms]
    return tuple(layers), ends[:-1]


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
            low[index], high[index] = ba.larger(at, low[index]), ba.smaller(at, high[index])
            parts[0][layer], parts[1][layer] = (self.intervals[layer][0], high), (low, self.intervals[layer][1])
        return [Piece(box, ends, node, self.depth + 1) for box, ends, node in zip(boxes, parts, nodes, strict=True)]


class Cuts:
    """The cuts of a tree; its leaves are shown to cover the region."""

    def __init__(self, tree: Any) -> None:
        cuts, voids = (tree.layer, tree.index, tree.value, tree.child), (tree.void, tree.neuron, tree.weight)
        if any(len({np.shape(column) for column in group}) != 1 for group in (cuts, voids)):
            raise ba.Exhausted("the columns of the tree differ in length")
        rows = zip(*(column.tolist() for column in cuts), strict=True)
        self.nodes = {node: row for node, row in enumerate(rows) if row[0] != _LEAF}
        children = [child for *_, first in self.nodes.values() for child in (first, first + 1)]
        later = all(node < first for node, (*_, first) in self.nodes.items())
        if not later or sorted(children) != list(range(1, len(tree.layer))):
            raise ba.Exhausted("the pieces do not cover the region: a node lacks a child, or has more than one parent")
        self.voids: dict[int | None, dict[int, float]] = {}
        for node, neuron, weight in zip(*voids, strict=True):
            self.voids.setdefault(int(node), {})[int(neuron)] = float(weight)

    def halves(self, piece: Piece) -> list[Piece]:
        """The two children that the tree names."""
        assert piece.node is not None
        layer, index, value, child = self.nodes[piece.node]
        limits = [len(piece.inputs.lower), *(len(low) for low, _ in piece.intervals)]
        if not -1 <= layer < len(limits) - 1 or not 0 <= index < limits[layer + 1] or not np.isfinite(value):
            raise ba.Exhausted("the tree cuts something that the network does not have")
        return piece.halves(layer, index, ball(value), (child, child + 1))

    def weights(self, piece: Piece) -> list[Balls] | None:
        """The weights of all neurons for a void leaf, layer by layer."""
        told = self.voids.get(piece.node)
        if told is None:
            return None
        sizes = [len(low) for low, _ in piece.intervals]
        row = ba.balls([told.get(neuron, 0.0) for neuron in range(sum(sizes))])
        return np.split(row, np.cumsum(sizes)[:-1]) if ba.is_finite(row).all() else None


class Cover:
    """The walk over a tree: a leaf is settled by its Taylor model, to first order, or because it has no input.

    ``settles`` says whether what is found of a leaf does: Taylor models, back-substitution or slopes alone. Leaves are
    cut further by the ``shares`` of their neurons, which it may set. No ``inputs`` are all of space: then nothing but
    the intervals of neurons is known of a piece.
    """

    def __init__(
        self, model: Model, inputs: Inputs | None, known: Sequence[Interval], tree: Any, what: str,
        settles: Callable[[Any], bool],
    ) -> None:  # fmt: skip
        model, known = elementwise(model, known)
        self.model, self.cuts, self.what, self.bounded = model, Cuts(tree), what, inputs is not None
        self.settles, self.shares = settles, list[Array]()
        count = model[0].weight.shape[1]
        inputs = inputs or Inputs(ba.zeros(count), *ba.unbounded(count))
        self.root = Piece(inputs, list(known))
        curved = self.bounded and any(any(f.bends) for layer in model for f in layer.functions)
        few = len(inputs.center) <= MOST_INPUTS and all(layer.size <= MOST_NEURONS for layer in model)
        self.smooth = curved and few and len(model) > 1
        self.kinked = not self.smooth or any(len(set(f.formulas)) > 1 for layer in model for f in layer.functions)
        self.ways = [self._by_taylor, self._by_lines] if self.smooth else [self._by_lines]
        self.ways = self.ways if self.bounded else [self._by_half_spaces]
        count = len(self.cuts.nodes) + 1
        self.extra = _EXTRA + (_CURVED * count if self.smooth else count)

    def prove(self, say: Say | None = None) -> None:
        """Show it on every leaf that may have an input; one for which that fails is cut further."""
        todo, seen = [self.root], 0
        while todo:
            piece, seen = todo.pop(), seen + 1
            if say is not None:
                say(f"ball arithmetic: piece {seen} of about {2 * len(self.cuts.nodes) + 1}")
            if piece.inputs.empty():
                continue
            piece = replace(piece, inputs=piece.inputs.snug())
            if piece.node in self.cuts.nodes:
                skipped = self.smooth or (piece.depth + 1) % _SKIPPED
                if skipped or not self.bounded or engine.relaxed(self.model, piece.inputs, piece.intervals) is not None:
                    todo += self.cuts.halves(piece)
                continue
            with np.errstate(all="ignore"):  # what overflows proves nothing
                settled = self._leaf(piece)
            if not settled:
                self.extra -= 1
                if self.extra < 0:
                    raise ba.Exhausted(f"{self.what}, which the second opinion cannot prove for a leaf of its tree")
                todo += self._further(piece)

    def _leaf(self, piece: Piece) -> bool:
        """Whether a leaf is settled; the way that settled the last one comes first."""
        for way in self.ways:
            if way(piece):
                self.ways = sorted(self.ways, key=lambda one: one != way)
                return True
        return False

    def _by_taylor(self, piece: Piece) -> bool:
        taylor = Expansion(self.model, piece.inputs, piece.intervals)
        piece.intervals[: len(taylor.intervals)] = taylor.intervals
        return taylor.empty or self.settles(taylor)

    def _by_lines(self, piece: Piece) -> bool:
        trace = engine.relaxed(self.model, piece.inputs, piece.intervals)
        return trace is None or self.settles(trace) or self._void(piece, trace)

    def _by_half_spaces(self, piece: Piece) -> bool:
        hollow = any((low > high).any() for low, high in piece.intervals)
        slopes = [layer.slopes(interval) for layer, interval in zip(self.model[:-1], piece.intervals, strict=True)]
        rows = self.cuts.weights(piece)
        void = rows is not None and no_input(self.model, piece.intervals, rows)
        return hollow or void or self.settles(Slopes(slopes))

    def _further(self, piece: Piece) -> list[Piece]:
        """At the kink of the open neuron with the largest share, or across the longest side."""
        shares = [(float(x), index, k) for index, row in enumerate(self.shares) for k, x in enumerate(row) if x > 0]
        few = not self.bounded or len(piece.inputs.lower) > _FEW_INPUTS or len(shares) <= _FEW
        if shares and self.kinked and few:
            _, index, k = max(shares)
            low, high = (side[k] for side in piece.intervals[index])
            inner = [mark for mark in self.model[index].functions[k].on(low, high).marks if low < mark < high]
            return piece.halves(index, k, inner[0].mid() if inner else ((low + high) / 2).mid())
        ba.require(self.bounded, f"{self.what}, which the second opinion cannot prove for a leaf of its tree")
        low, high = piece.inputs.lower, piece.inputs.upper
        axis = int(np.argmax(ba.floats(high - low)))
        return piece.halves(_AXIS, axis, ((low[axis] + high[axis]) / 2).mid())

    def _void(self, piece: Piece, trace: Trace) -> bool:
        """Whether the stored weights λ prove that no input obeys the intervals of a piece.

        They ask for λ·v ≥ Σ λ_j (low_j where λ_j > 0, else high_j); back-substitution bounds λ·v from above.
        """
        rows = self.cuts.weights(piece)
        if rows is None:
            return False
        asked = arb(0)
        for row, (low, high) in zip(rows, piece.intervals, strict=True):
            some = np.flatnonzero(row != 0)
            asked += (row[some] * np.where(row[some] > 0, low[some], high[some])).sum() if some.size else 0
        above = trace.above(len(rows), ba.zeros(1, len(rows[-1])), [row[None] for row in rows])
        return bool(above[0] < asked)


class Lipschitz:
    """A Lipschitz bound by the leaves of a tree, at most the claim."""

    def __init__(
        self, model: Model, inputs: Inputs | None, known: Sequence[Interval], tree: Any, claim: arb,
        norms: Norms = PLAIN, start: Any = ba.ONE,
    ) -> None:  # fmt: skip
        self.norms, self.claim, self.worst = norms, claim, arb(0)
        model, known = elementwise(model, known)
        first = model[0].weight
        self.model, self.factor = model, engine.gain(norms, start, first.shape[1])
        self.carried = (replace(model[0], weight=first * start), *model[1:])
        self.chain = Chain.of([ba.floats(layer.weight) for layer in self.carried])
        self.multipliers: list[Array] | None = None
        what = f"the certificate claims {float(claim)!r}"
        self.cover = Cover(model, inputs, known, tree, what, self._settles)

    def bound(self) -> arb:
        """The largest bound of a leaf."""
        self.cover.prove()
        return self.worst

    def _settles(self, found: Any) -> bool:
        return self._noted(found.bound(self.norms)) if isinstance(found, Expansion) else self._by_slopes(found.slopes)

    def _noted(self, bound: arb) -> bool:
        """Whether a bound of a leaf is at most the claim."""
        if not bound <= self.claim:
            return False
        self.worst = ba.larger(self.worst, bound)
        return True

    def _by_slopes(self, slopes: list[Interval]) -> bool:
        """By ellipsoids with suggested multipliers, or by an interval for each entry of the Jacobian."""
        about = [(ba.floats(a), ba.floats(b)) for a, b in slopes]
        settled = all((alpha == beta).all() for alpha, beta in slopes)
        goal = float(self.claim) / float(self.factor)
        found, self.multipliers, self.cover.shares = self.chain.suggest(
            about, self.multipliers, engine.ROUNDS, goal - 1e-9 * goal
        )
        hope = found <= goal * (1.0 + 1e-9) or settled or self.norms.output.name != "l2"
        if hope and self._noted(self._carried(slopes)):
            return True
        if not settled and self.norms.plain:
            return False
        return self._noted(ba.induced_norm(engine.jacobian(self.model, slopes), self.norms))

    def _carried(self, slopes: list[Interval]) -> arb:
        S = engine.carry(self.carried, slopes, self.chain, self.multipliers)
        return (ba.ellipsoid_norm(S, self.norms.output) * self.factor).upper()
