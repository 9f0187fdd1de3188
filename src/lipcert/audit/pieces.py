"""A region cut into pieces: something is shown on every leaf of a tree, or the leaf is shown to have no input.

A cut leaves two pieces that both contain the cut, so the leaves cover the region whatever the cuts are. On a convex
region the Lipschitz constant is at most the largest norm of a Jacobian W_N D_{N-1} … D_1 W_1, so the largest bound of a
piece counts. Lines and multipliers are not stored; they are chosen here, and a leaf that needs it is cut further.

Taylor models over a box c ± h: x = c + h∘δ with |δ_i| ≤ 1, and everything is a polynomial in δ. What is cut off, and
what is known of no polynomial, is bounded by ``rest``. On the interval of a pre-activation v its φ and φ' are near
polynomials (:func:`remainder`), and ∂z/∂δ_j = φ'(v)·∂v/∂δ_j.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    Balls,
    Exhausted,
    Interval,
    balls,
    both,
    corners,
    dot,
    ellipsoid_norm,
    floats,
    hull,
    image,
    induced_norm,
    is_finite,
    known_smaller,
    larger,
    largest,
    lower,
    mid,
    norm,
    rad,
    size,
    smaller,
    unbounded,
    upper,
    zeros,
)
from lipcert.audit.engine import Lines, Products, Trace, advance, gain, slopes_on, suggested_lines, views_on
from lipcert.audit.model import Inputs, Layer, Model, along_rays
from lipcert.audit.remainder import remainder
from lipcert.definitions.functions import Function, View, ball
from lipcert.model.arrays import Array
from lipcert.model.norms import PLAIN, Norms
from lipcert.suggest.chain import Chain

MOST_INPUTS, _DEGREE, _CELLS = 8, 3, 4
"""Inputs of a box at most; the degree of polynomials; cells of an interval on which a fit is bounded."""


class Basis:
    """The monomials of d variables up to degree three, in the order of their degrees.

    Each is near a multiple of the product of ``odd`` ones of its variables, all different: δ² = ½ ± ½, δ³ = ¾δ ± ¼.
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.monomials = [
            one for n in range(_DEGREE + 1) for one in itertools.combinations_with_replacement(range(d), n)
        ]
        places = {one: k for k, one in enumerate(self.monomials)}
        pairs = itertools.product(enumerate(self.monomials), repeat=2)
        table = [(places[tuple(sorted(a + b))], i, k) for (i, a), (k, b) in pairs if len(a + b) <= _DEGREE]
        target, self.left, self.right = np.array(sorted(table)).T
        self.first = np.flatnonzero(np.diff(target, prepend=-1))
        degrees = np.array([len(one) for one in self.monomials])
        self.starts = np.searchsorted(degrees, np.arange(_DEGREE + 1))
        powers = [[one.count(i) for i in set(one)] for one in self.monomials]
        self.even = np.array([k > 0 and all(p % 2 == 0 for p in one) for k, one in enumerate(powers)])
        shares = {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.75}
        self.shares = np.array([shares[max(one, default=0)] for one in powers])
        every = np.concatenate([corners(d), -corners(d)])
        self.corners = np.array(
            [[np.prod(at[[i for i in set(one) if one.count(i) % 2]]) for one in self.monomials] for at in every]
        )


_basis = cache(Basis)


@dataclass(frozen=True, eq=False)
class Taylor:
    """Polynomials with coefficients (monomials, ...), up to ``rest`` (...)."""

    basis: Basis
    terms: Balls
    rest: Balls

    def __add__(self, other: Taylor) -> Taylor:
        return Taylor(self.basis, self.terms + other.terms, upper(self.rest + other.rest))

    def times(self, factor: Balls) -> Taylor:
        """Each polynomial times a number."""
        return Taylor(self.basis, self.terms * factor, upper(self.rest * size(factor)))

    def plus(self, constant: Balls) -> Taylor:
        terms = self.terms.copy()
        terms[0] = terms[0] + constant
        return Taylor(self.basis, terms, self.rest)

    @cached_property
    def sizes(self) -> Balls:
        """At least the sizes of the terms of each degree."""
        return upper(np.add.reduceat(size(self.terms), self.basis.starts))

    def __mul__(self, other: Taylor) -> Taylor:
        basis, one, two = self.basis, self.sizes, other.sizes
        terms = np.add.reduceat(self.terms[basis.left] * other.terms[basis.right], basis.first)
        cut = sum(one[n] * two[_DEGREE + 1 - n :].sum(axis=0) for n in range(1, _DEGREE + 1))
        rest = cut + one.sum(axis=0) * other.rest + self.rest * (two.sum(axis=0) + other.rest)
        return Taylor(basis, terms, upper(rest))

    def through(self, weight: Balls) -> Taylor:
        """What a matrix makes of them, along the last axis."""
        flat = dot(self.terms.reshape(-1, weight.shape[1]), weight.T)
        rest = dot(np.atleast_2d(self.rest), size(weight).T)
        shape = (*self.terms.shape[:-1], len(weight))
        return Taylor(self.basis, flat.reshape(shape), upper(rest.reshape(shape[1:])))

    def ends(self) -> Interval:
        """Between which numbers they lie: even monomials are between 0 and 1, the others between -1 and 1."""
        even = self.basis.even
        others = upper(size(self.terms[1:][~even[1:]]).sum(axis=0) + self.rest)
        own, none = self.terms[even], arb(0)
        low, high = (pick(end(own), none).sum(axis=0) for pick, end in ((smaller, lower), (larger, upper)))
        return lower(self.terms[0] + low - others), upper(self.terms[0] + high + others)


class Expansion:
    """The pre-activations ``v`` of the last layer over a box, and their derivatives ``J`` (inputs, outputs) by δ.

    ``known`` are intervals of the hidden layers; ``intervals`` are smaller ones. ``empty`` boxes have no input.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval]) -> None:
        d = len(inputs.center)
        self.basis = _basis(d)
        center = mid((inputs.lower + inputs.upper) / 2)
        self.half = larger(upper(inputs.upper - center), upper(center - inputs.lower))
        self.half = larger(self.half, largest(self.half) * arb(2) ** -40 + arb(2) ** -500)  # a larger box is no mistake
        count = len(self.basis.monomials)
        z = Taylor(self.basis, zeros(count, d), zeros(d))
        z.terms[0], z.terms[np.arange(d) + 1, np.arange(d)] = center, self.half
        slopes = Taylor(self.basis, zeros(count, d, d), zeros(d, d))
        slopes.terms[0, np.arange(d), np.arange(d)] = self.half
        self.intervals: list[Interval] = []
        self.empty, self.first = False, model[0].weight
        for layer, interval in zip(model, [*known, None]):
            v, self.J = z.through(layer.weight).plus(layer.bias), slopes.through(layer.weight)
            self.v = v
            if interval is None:
                return
            interval = both(interval, v.ends())
            self.intervals.append(interval)
            self.empty = self.empty or bool((interval[0] > interval[1]).any())
            if self.empty:
                return
            z, slope = _activated(layer, v, interval)
            slopes = Taylor(self.basis, slope.terms[:, None], slope.rest[None]) * self.J

    def bound(self, norms: Norms, limit: arb, moving: int | None = None) -> arb:
        """At least the norm of the Jacobian, or more than a limit: products of different δ are largest at a corner."""
        basis, terms = self.basis, self.J.terms / self.half[:, None]
        shares = basis.shares[:, None, None]
        rest = self.J.rest / self.half[:, None] + (size(terms) * (1.0 - shares)).sum(axis=0) + rad(terms).sum(axis=0)
        rest, middle = upper(rest)[:moving], (mid(terms) * shares)[:, :moving]
        values = dot(balls(basis.corners), middle.reshape(len(middle), -1))
        sizes = norm(values)
        if norms.plain and len(rest) > 1 < rest.shape[1]:  # those of small Frobenius norm need no look
            values, sizes = values[order := np.argsort(-floats(sizes))], sizes[order]
        more, worst = induced_norm(hull(-rest, rest).T, norms), arb(0)
        for there, length in zip(values, sizes, strict=True):
            if norms.plain and length <= worst:
                continue
            worst = larger(worst, induced_norm(there.reshape(rest.shape).T, norms))
            if not worst + more <= limit:
                break
        return (worst + more).upper()

    def axis(self) -> int:
        """The axis across which the Jacobian changes most, or where little is known of it, what enters the network."""
        sizes = np.abs(floats(self.J.terms / self.half[:, None])).sum(axis=(1, 2))
        if sizes[1:].sum() < floats(self.J.rest / self.half[:, None]).sum():
            return int(np.argmax(floats(self.half * size(self.first).sum(axis=0))))
        shares = [sum(x for x, one in zip(sizes, self.basis.monomials) if i in one) for i in range(self.basis.d)]
        return int(np.argmax(shares))

    def entries(self) -> Balls:
        """At least the size of each entry of the Jacobian, (outputs, inputs)."""
        low, high = self.J.ends()
        return upper(larger(size(low), size(high)) / self.half[:, None]).T


def _activated(layer: Layer, v: Taylor, interval: Interval) -> tuple[Taylor, Taylor]:
    """φ(v) and φ'(v), by polynomials in s = (v - m)/h on the interval m ± h; which ones is only a suggestion."""
    assert layer.neurons is not None
    low, high = interval
    middle = mid((low + high) / 2)
    half = larger(upper(high - middle), upper(middle - low)) + arb(2) ** -200  # a larger interval is no mistake
    count = _DEGREE + 1
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    at, fit = floats(middle) + np.multiply.outer(nodes, floats(half)), np.linalg.inv(np.vander(nodes, increasing=True))
    told = np.stack([fit @ layer.neurons.value(at), fit @ layer.neurons.slope(at)])
    found, rests = balls(np.where(np.isfinite(told), told, 0.0)), zeros(2, len(middle))
    ends = (lower(middle - half), upper(middle + half))
    for k, (f, m, h, view) in enumerate(
        zip(layer.functions, middle, half, views_on(layer.functions, ends), strict=True)
    ):
        alpha, beta = view.slopes()
        slope, value = ((alpha + beta) / 2).mid(), f.value(m)
        steep = larger(upper(beta - slope), upper(slope - alpha))
        wanted = [(order, arb(1), [x / h**n for n, x in enumerate(found[order, :, k])]) for order in (0, 1)]
        left = [larger(-low, high) for low, high in remainder(view, m, wanted, _CELLS)]
        crude = ([value.mid(), (slope * h).mid()], (steep * h + value.rad()).upper()), ([slope], steep)
        for order, (line, rest) in enumerate(crude):
            rests[order, k] = known_smaller(left[order], rest)
            if not left[order] < rest:
                found[order, :, k] = [*line, *[arb(0)] * (count - len(line))]
    s = v.plus(-middle).times(1 / half)
    power, results = s, [s.times(a[1]).plus(a[0]) for a in found]
    for n in range(2, count):
        power = power * s
        results = [one + power.times(a[n]) for one, a in zip(results, found, strict=True)]
    z, slopes = (replace(one, rest=upper(one.rest + rest)) for one, rest in zip(results, rests, strict=True))
    return z, slopes


_LEAF, _AXIS = -2, -1
_ROUNDS = (20, 150)
"""Of the search for multipliers: of a leaf, of a leaf that needs more."""
_NEAR = 1.05
"""A leaf whose bound is not within this factor of the claim after a look is not worth more rounds."""
_EXTRA, _CURVED = 60, 8
"""So many cuts beyond those of the tree, and one for every leaf; or so many for every leaf, with Taylor models."""
_FEW, _FEW_INPUTS = 4, 16
"""With few open neurons, or many inputs, a neuron is cut rather than the box."""
_HOPEFUL = 1.5
"""A leaf whose Taylor model is within this factor of the claim is cut further rather than bounded to first order."""
_SKIPPED = 3
"""Of the nodes that the tree cuts, those of every third depth are looked at: their intervals serve what is below."""

Say = Callable[[str], None]


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
    """The cuts of a tree; its leaves are shown to cover the region."""

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

    def weights(self, piece: Piece) -> list[Balls] | None:
        """The weights of all neurons for a void leaf, layer by layer."""
        told, start, rows = self.voids.get(piece.node), 0, []
        if told is None:
            return None
        for low, _ in piece.intervals:
            rows.append(balls([told.get(start + k, 0.0) for k in range(len(low))]))
            start += len(low)
        return rows if all(is_finite(row).all() for row in rows) else None


class Cover:
    """The walk over a tree. A leaf is settled by its Taylor model, to first order, or because it has no input."""

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval], tree: Any, what: str) -> None:
        self.model, self.root, self.cuts, self.what = model, Piece(inputs, list(known)), Cuts(tree), what
        self.curved = any(any(f.bends) for layer in model for f in layer.functions)
        self.smooth = self.curved and len(inputs.center) <= MOST_INPUTS and len(model) > 1
        count = len(self.cuts.nodes) + 1
        self.extra = _EXTRA + (_CURVED * count if self.smooth else count)

    def prove(self, say: Say | None = None) -> None:
        """Show it on every leaf that may have an input; one for which that fails is cut further."""
        todo, seen = [self.root], 0
        while todo:
            piece, seen = todo.pop(), seen + 1
            if say is not None:
                say(f"ball arithmetic: piece {seen} of about {2 * len(self.cuts.nodes) + 1}")
            if self.outside(piece):
                continue
            inner = piece.node in self.cuts.nodes
            if inner and (piece.depth + 1) % _SKIPPED:
                todo += self.cuts.halves(piece)
                continue
            piece = replace(piece, inputs=piece.inputs.snug())
            settled, axis = self._leaf(piece) if not inner else (self._trace(piece) is None, None)
            if inner and not settled:
                todo += self.cuts.halves(piece)
            elif not settled:
                self.extra -= 1
                if self.extra < 0:
                    raise Exhausted(f"{self.what}, which the second opinion cannot prove for a leaf of its tree")
                todo += self.further(piece, axis)

    def _leaf(self, piece: Piece) -> tuple[bool, int | None]:
        """Whether a leaf is settled; if not, an axis across which it had better be cut."""
        axis = None
        if self.smooth:
            taylor = Expansion(self.model, piece.inputs, piece.intervals)
            piece.intervals[: len(taylor.intervals)] = taylor.intervals
            if taylor.empty or self.by_taylor(taylor):
                return True, None
            axis = taylor.axis()
            if self.hopeful(taylor):
                return False, axis
        traced = self._trace(piece)
        return traced is None or self.by_slopes(*traced) or self.void(piece, traced[0]), axis

    def _trace(self, piece: Piece) -> tuple[Trace, list[Interval]] | None:
        """Lines and slopes of a piece, None if it has no input. Its intervals become smaller, in place.

        Back-substitution is asked about neurons whose slope is open, or that may have no value left.
        """
        trace, slopes = Trace(self.model, piece.inputs), []
        for index, layer in enumerate(self.model[:-1]):
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
        return trace, slopes

    def outside(self, piece: Piece) -> bool:
        """Whether a piece has no input at first sight."""
        return piece.inputs.empty()

    def by_taylor(self, found: Expansion) -> bool:
        """Whether a Taylor model shows it."""
        raise NotImplementedError

    def hopeful(self, found: Expansion) -> bool:
        """Whether a Taylor model that does not show it would show it of smaller pieces."""
        return False

    def by_slopes(self, trace: Trace, slopes: list[Interval]) -> bool:
        """Whether lines or slopes show it."""
        raise NotImplementedError

    def further(self, piece: Piece, axis: int | None) -> list[Piece]:
        """Two parts of a leaf."""
        return piece.across(axis)

    def void(self, piece: Piece, trace: Trace) -> bool:
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
        above = trace.above(len(rows), zeros(1, len(rows[-1])), [row[None] for row in rows])
        return bool(above[0] < asked)


def _undecided(f: Function, view: View) -> bool:
    """Whether back-substitution can tell something of a neuron: its slope is open, or its interval ends at a mark."""
    alpha, beta = view.slopes()
    if alpha < beta or not (view.low.is_finite() and view.high.is_finite()):
        return True
    return any(not (mark < view.low or mark > view.high) for mark in f.marks)


class LipschitzCover(Cover):
    """A Lipschitz bound; of a region without bounds, over the rays of a box."""

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
            known = [unbounded(layer.size) for layer in model[:-1]]
        super().__init__(model, inputs, known, tree, f"the certificate claims {claim!r}")
        first = model[0].weight[:, : self.moving]
        self.factor = gain(norms, start, first.shape[1])
        self.carried = (replace(model[0], weight=first if start is None else first * start), *model[1:])
        self.chain = Chain.of([floats(layer.weight) for layer in self.carried])
        self.products = Products((replace(model[0], weight=first), *model[1:]))
        self.kinked = any(len(set(f.formulas)) > 1 for layer in model for f in layer.functions)
        self.multipliers: list[Array] | None = None
        self.shares: Sequence[Array] = ()
        self.near = arb(0)

    def bound(self) -> arb:
        """The largest bound of a leaf, at most the claim."""
        self.prove()
        return self.worst

    def outside(self, piece: Piece) -> bool:
        """Also where no coordinate has size one, and rays do not begin there."""
        missed = self.moving is not None and (larger(-piece.inputs.lower, piece.inputs.upper) < 1).all()
        return bool(missed) or piece.inputs.empty()

    def by_taylor(self, found: Expansion) -> bool:
        self.near = found.bound(self.norms, ball(self.claim), self.moving)
        return self._noted(self.near)

    def hopeful(self, found: Expansion) -> bool:
        return not self.kinked and bool(self.near <= _HOPEFUL * ball(self.claim))

    def _noted(self, bound: arb) -> bool:
        """Whether a bound of a leaf is at most the claim."""
        if not bound <= ball(self.claim):
            return False
        self.worst = larger(self.worst, bound)
        return True

    def by_slopes(self, trace: Trace, slopes: list[Interval]) -> bool:
        """By ellipsoids with suggested multipliers, or by an interval for each entry of the Jacobian."""
        about = [(floats(a), floats(b)) for a, b in slopes]
        settled = all((alpha == beta).all() for alpha, beta in slopes)
        goal = self.claim / float(self.factor)
        for rounds in _ROUNDS:
            found, self.multipliers, self.shares = self.chain.suggest(
                about, self.multipliers, rounds, goal * (1.0 - 1e-9)
            )
            hope = found <= goal * (1.0 + 1e-9) or settled or self.norms.output.name != "l2"
            if hope and self._noted(self._carry(slopes, self.multipliers)):
                return True
            if settled or found > _NEAR * goal or self.curved:
                break
        if not settled and self.norms.plain:
            return False
        return self._noted(induced_norm(self.products.entries(slopes), self.norms))

    def _carry(self, slopes: list[Interval], multipliers: list[Array] | None) -> arb:
        P: Balls | None = None
        for index, layer in enumerate(self.carried):
            S = image(layer.weight, P)
            if index < len(slopes):
                scale = arb(4) ** int(sum(self.chain.powers[: index + 1]))
                P = advance(S, slopes[index], None if multipliers is None else balls(multipliers[index]) * scale)
        return (ellipsoid_norm(S, self.norms.output) * self.factor).upper()

    def further(self, piece: Piece, axis: int | None) -> list[Piece]:
        """At the kink of the open neuron with the largest share, or across an axis."""
        shares = [(float(x), index, k) for index, row in enumerate(self.shares) for k, x in enumerate(row) if x > 0]
        few = len(piece.inputs.lower) > _FEW_INPUTS or len(shares) <= _FEW
        if shares and (self.kinked or not self.smooth) and few:
            _, index, k = max(shares)
            low, high = (side[k] for side in piece.intervals[index])
            inner = [mark for mark in self.model[index].functions[k].on(low, high).marks if low < mark < high]
            return piece.halves(index, k, inner[0].mid() if inner else ((low + high) / 2).mid())
        return piece.across(axis)

    def void(self, piece: Piece, trace: Trace) -> bool:
        return super().void(piece, trace) or (self.moving is not None and self._only_at_infinity(piece))

    def _only_at_infinity(self, piece: Piece) -> bool:
        """Whether weights λ prove that no point with t > 0 has its neurons in their intervals.

        A positive λ_j counts where v_j ≥ 0 is asked for, a negative one where v_j ≤ 0 is, so Σ λ_j v_j ≥ 0. From the
        last layer on the sum is written in what comes before, as row·z. Where no term can be positive, all but that of
        t are left out, which makes the sum larger. If row_t·t with row_t < 0 is all that is left, there is no t > 0.
        """
        weights = self.cuts.weights(piece)
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
            plus = (below | (right >= 0)) & (above | (left <= 0))
            minus = (below | (right <= 0)) & (above | (left >= 0))
            gone = (plus & (row <= 0)) | (minus & (row >= 0)) | (plus & minus)
            gone = gone if gone[:-1].all() else plus & minus
            gone[-1] = False
            row = np.where(gone, zeros(len(row)), row)
            if (~(row == 0) & ~(above | below | (left == right))).any():
                return False
            row = ((np.where(above, right, left) * row + weight)[:, None] * layer.weight).sum(axis=0)
        return bool((row[:-1] == 0).all() and row[-1] < 0)
