"""What each kind of answer claims, proved again in ball arithmetic: bounds, reach sets, sensitivities, certified radii.

Every claim is for all networks whose weights and biases each differ from the given ones by at most 2⁻⁵⁰ of their size.
The answers themselves are only read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from flint import arb

from lipcert.answers.certificate import Certificate
from lipcert.audit import balls as ba
from lipcert.audit import engine
from lipcert.audit.balls import Balls, Interval
from lipcert.audit.engine import Inputs, Model, Pass, Trace
from lipcert.audit.pieces import Cover, Cuts, Lipschitz, Say
from lipcert.audit.second_order import Place, by_parabolas, prove_curved
from lipcert.audit.taylor import Expansion
from lipcert.definitions.functions import ball
from lipcert.errors import ProofFailed
from lipcert.kernel.facts import Part
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Norms
from lipcert.suggest.hints import Hints

_NEARBY = 1.0 + 1e-5, 1.0 - 1e-5, 1.03, 0.97
"""Multipliers of a step with products or softmax that are best for an interval may not be for a tighter one: then such
multiples are tried. Of 1,800 random networks seven were refused without, two with them, whose bounds are above 1e30."""


def verify(network: Network, certificate: Certificate) -> float:
    """Prove a certificate's bound again, every rounding error inside a ball.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖ ≤ bound·‖x - y‖ in the certificate's norms for all x, y of its region,
        for every f whose weights and biases each differ from the network's by at most 2⁻⁵⁰ of their size.

    Raises
    ------
    ProofFailed
        If the network is another one, or the claimed bound could not be proved.
    """
    digests = f"{certificate.network[:12]}…, this network's is {network.digest[:12]}…"
    ba.require(
        certificate.network == network.digest, f"the certificate is about another network: its digest is {digests}"
    )

    def proved() -> float:
        bound = _prove(network, certificate)
        if certificate.sweeps:
            found = f"its hints prove no better than {ba.upward(bound)!r}"
        else:
            found = (
                f"the second opinion's product of norms, layer by layer, is {ba.upward(bound)!r}; it knows no shorter"
                " product around skips and max pools, which lipcert.verify without exact does"
            )
        ba.require(bound <= ball(certificate.bound), f"the certificate claims {certificate.bound!r}, {found}")
        return min(ba.upward(bound), float(certificate.bound))

    return ba.with_enough_bits(proved)


def _prove(network: Network, certificate: Certificate) -> arb:
    """At least the constant that the certificate is about."""
    whole, part, claim = engine.read(network), certificate.part, ball(certificate.bound)
    (start, stop), norms, hints = part.layers, part.norms, certificate.part_sweeps
    piece = engine.in_units(engine.part_of(whole, start, stop, part.inputs, part.outputs), norms.input, norms.output)
    units, model = None, whole
    if start == 0 and part.inputs is None:  # a network in its own right, in its own units
        model, units = piece, norms.input.units(network.inputs)
    elif (start, stop) == (0, len(whole)) and (hints or not norms.has_units):  # its bound serves some of the inputs
        model = engine.part_of(whole, start, stop, None, part.outputs)
    elif not hints and certificate.sweeps:
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop}")
    inputs = engine.inputs_of(certificate.region, network.inputs, units)
    bare = norms.bare
    if not certificate.sweeps:
        ba.require(not (hints or certificate.tree is not None), "there are no multipliers to prove a bound from")
        more = arb(piece[-1].size).sqrt() if bare.output.name == "l1" else arb(1)
        bound = (engine.norm_product(piece) * engine.gain(bare, ba.ONE, piece[0].weight.shape[1]) * more).upper()
    else:
        told = Whole(model, inputs, certificate.sweeps, None if hints else certificate.tree, carry=not hints)
        bound = arb.pos_inf() if hints else engine.least_of(told.last.bounds(bare), claim)
        for sweep in hints:
            ba.require(not sweep.enclosures, "the hints of a part must not enclose it: they have no region")
            mine = Pass(piece, None, sweep, told.known[start : stop - 1])
            bound = ba.known_smaller(bound, engine.least_of(mine.bounds(bare), claim))
        if not hints and not bound <= claim:
            bound = ba.known_smaller(bound, told.otherwise(claim, bare))
    if certificate.curved is not None and not bound <= claim:
        suits = replace(part, inputs=None) == Part((0, network.depth), None, part.outputs)
        ba.require(suits, "hints to second order are about a whole network in ℓ2 norms; this certificate is not")
        bound = ba.known_smaller(bound, prove_curved(model, inputs, certificate.curved))
    return bound


class Whole:
    """What the sweeps over a whole region prove: ``known`` intervals, ``traces``, and the ``last`` of the passes."""

    def __init__(
        self, model: Model, inputs: Inputs | None, sweeps: Sequence[Hints], tree: Any = None, carry: bool = True
    ) -> None:
        ba.require(sweeps, "there are no multipliers to prove a bound from")
        self.model, self.inputs, self.tree, self.known = model, inputs, tree, list[Interval]()
        passes = list[Pass]()
        for place, hints in enumerate(sweeps, 1):
            self.before = self.known
            passes.append(Pass(model, inputs, hints, self.known, carry=carry and place == len(sweeps)))
            self.known = passes[-1].intervals
        self.last = passes[-1]
        self.traces = [trace for one in passes for trace in one.traces]
        self.bound = self.last.by_ellipsoid() if carry else arb.pos_inf()

    def otherwise(self, claim: arb, norms: Norms = PLAIN) -> arb:
        """The bound that the tree proves, at most the claim; without a tree, with products, by multipliers nearby."""
        if self.tree is None:
            nearby = itertools.product(_NEARBY, (0, len(self.model) - 2)) if self._coupled else ()
            return engine.least_of([partial(self._scaled, norms, *one) for one in nearby], claim)
        return Lipschitz(self.model, self.inputs, self.known, self.tree, claim, norms, self.last.start).bound()

    @property
    def _coupled(self) -> bool:
        return any(layer.coupling for layer in self.model)

    def _scaled(self, norms: Norms, factor: float, first: int) -> arb:
        """The bound by multipliers that are a factor larger from some layer on."""
        hints = self.last.hints
        told = tuple(T * (factor if layer >= first else 1.0) for layer, T in enumerate(hints.multipliers))
        return Pass(self.model, self.inputs, replace(hints, multipliers=told), self.before).by_ellipsoid(norms)


def least_bound(wholes: Sequence[Whole], claim: arb) -> arb:
    """The least of the bounds; trees are asked where it is above the claim."""
    bound = ba.known_smaller.reduce([one.bound for one in wholes])
    return engine.least_of([lambda: bound, *(partial(one.otherwise, claim) for one in wholes)], claim)


def wholes_of(model: Model, inputs: Inputs | None, proofs: Sequence[Any]) -> list[Whole]:
    """What the proofs about a whole region prove."""
    told = [from_unit_ball(model, inputs, one) for one in proofs if one.kind == "whole"]
    ba.require(told, "there is nothing to prove an answer from")
    return told


def from_unit_ball(model: Model, inputs: Inputs | None, proof: Any) -> Whole:
    """What sweeps prove whose ellipsoids hold for differences of inputs of at most one, as those of an answer must."""
    found = Whole(model, inputs, proof.sweeps, proof.tree)
    ba.require(found.last.hints.start is None, "ellipsoids of answers begin with a unit ball, these hints do not")
    return found


def common(wholes: Sequence[Whole]) -> list[Interval]:
    """The intervals that all of them prove together."""
    return [reduce(ba.both, ends) for ends in zip(*(one.known for one in wholes), strict=True)]


def number(x: float) -> arb:
    """A claimed number; no number proves nothing."""
    found = ball(x)
    ba.require(not found.is_nan(), "a number of the claim is none")
    return found


def verify_reach(network: Network, claim: Any, say: Say | None = None) -> None:
    """Prove a reach set again; ProofFailed if that fails.

    For every output y: lower ≤ y ≤ upper, (y - center)ᵀ shape⁻¹ (y - center) ≤ 1, y is in a box of
    the hull, and the bound is at least the Lipschitz constant of y.
    """
    n = network.outputs
    shapes = [np.shape(x) for x in (claim.lower, claim.upper, claim.center, claim.shape, *claim.hull)]
    ba.require(shapes == [(n,)] * 3 + [(n, n)] + [(len(claim.hull[0]), n)] * 2, "the set is not one of the outputs")
    ba.require(np.array_equal(claim.shape, np.transpose(claim.shape)), "the matrix of the ellipsoid is not symmetric")
    ba.with_enough_bits(lambda: _reach(network, claim, say))


def _reach(network: Network, claim: Any, say: Say | None) -> None:
    model = engine.read(network)
    inputs, n = engine.inputs_of(claim.region, network.inputs), model[-1].size
    if inputs is None:
        raise ProofFailed("the outputs of an unbounded region cannot be enclosed")
    centers = engine.centre_values(model, inputs.center)
    value, error = centers[-1]
    gap = ba.upper(np.abs(value - ba.balls(claim.center)) + error)
    box, held, shape = ba.unbounded(n), False, ba.balls(claim.shape)
    wholes = wholes_of(model, inputs, claim.proofs)
    lines = engine.relaxed(model, inputs, common(wholes))
    if lines is None:
        raise ProofFailed("the intervals of a layer are empty: the hints contradict themselves")
    box = ba.both(box, lines.boxed(len(model) - 1))
    for one in wholes:
        for trace in one.traces:
            box = trace.interval(len(model) - 1, box)
        box = ba.both(box, ba.around(value, inputs.extent() * ba.root(np.diagonal(one.last.S)) + error))
        # y - center is within δ²S, moved by at most the gap
        Q = ba.added(ba.at_least(one.last.S * (inputs.extent() * inputs.extent())), gap)
        held = held or (Q is not None and ba.positive_definite(shape - Q))
    ba.require(held, "the ellipsoid of the outputs is smaller than what its hints prove")
    bound = number(claim.bound)
    ba.require(least_bound(wholes, bound) <= bound, "the Lipschitz bound is smaller than what its hints prove")
    cuts = [one for one in claim.proofs if one.kind == "outputs"]
    ba.require(all(0 <= one.base < len(wholes) for one in cuts), "a proof rests on one that is not there")
    ba.require(cuts or _inside(box, claim), "the box of the outputs is smaller than what its hints prove")
    for one in cuts:
        known, what = wholes[one.base].known, "the reach set claims a box"
        Cover(model, inputs, known, one.tree, what, lambda found: _inside(ba.both(box, found.ends()), claim)).prove(say)


def _inside(found: Interval, claim: Any) -> bool:
    """Whether a box is in the box that is claimed, and in one of the hull."""
    low, high = (np.array([-ba.upward(-x) for x in found[0]]), np.array([ba.upward(x) for x in found[1]]))
    below, above = claim.hull
    inside = (claim.lower <= low).all() and (high <= claim.upper).all()
    return bool(inside and ((below <= low) & (high <= above)).all(axis=1).any())


def verify_sensitivity(network: Network, claim: Any, say: Say | None = None) -> None:
    """Prove sensitivities again, for any two inputs of the region; ProofFailed if that fails.

    matrix[i, k] bounds ‖change of output group i‖ / ‖change of input group k‖, the other inputs held equal; the bound
    is at least the Lipschitz constant of all outputs.
    """
    fits = np.shape(claim.matrix) == (len(claim.outputs), len(claim.inputs)) and np.size(claim.matrix)
    ba.require(fits, "the matrix of sensitivities is not one for its groups")
    for groups, count in ((claim.outputs, network.outputs), (claim.inputs, network.inputs)):
        for group in groups:
            engine.check_distinct(group, count)
    ba.with_enough_bits(lambda: _Sensitivity(network, claim).run(say))


class _Sensitivity:
    """Each pair is bounded in one way after the other, the cheapest first, until its bound is below the claim."""

    def __init__(self, network: Network, claim: Any) -> None:
        self.model, self.claim = engine.read(network), claim
        self.inputs = engine.inputs_of(claim.region, network.inputs)
        self.wholes = wholes_of(self.model, self.inputs, claim.proofs)
        pairs = itertools.product(claim.outputs, claim.inputs)
        self.open = [(*pair, number(x)) for pair, x in zip(pairs, np.ravel(claim.matrix).tolist(), strict=True)]

    def run(self, say: Say | None) -> None:
        claim, cuts = self.claim, [one for one in self.claim.proofs if one.kind == "entries"]
        for one in cuts:
            Cuts(one.tree)  # an error if leaves are missing
        bound = least_bound(self.wholes, number(claim.bound))
        ba.require(bound <= number(claim.bound), "the bound of all is smaller than what its hints prove")
        self._close([bound for _ in self.open])
        for whole in self.wholes:
            axes = ba.upper(ba.root(np.diagonal(whole.last.S)))
            self._close([ba.norm(axes[list(rows)]) for rows, *_ in self.open])
        for proof in claim.proofs:
            if proof.kind == "pair":
                self._pair(proof)
        if not self.open:
            return
        sizes = np.full((self.model[-1].size, self.model[0].weight.shape[1]), arb.pos_inf())
        if not any(layer.coupling for layer in self.model):
            slopes = [layer.slopes(ends) for layer, ends in zip(self.model[:-1], common(self.wholes), strict=True)]
            sizes = ba.sizes_within(engine.jacobian(self.model, slopes))
            self._close([_block(sizes, *pair) for *pair, _ in self.open])
            parts = [engine.part_of(self.model, 0, len(self.model), into, out) for out, into, _ in self.open]
            self._close([ba.ellipsoid_norm(engine.carry_alone(part, slopes), PLAIN.output) for part in parts])
        for proof in cuts:
            if self.open:
                if self.inputs is None or not 0 <= proof.base < len(self.wholes):
                    raise ProofFailed("the pieces rest on a proof that is not there, or have no bounds")
                known, what = self.wholes[proof.base].known, "the sensitivities claim a bound"
                Cover(self.model, self.inputs, known, proof.tree, what, partial(self._small, sizes)).prove(say)
                self.open = []
        for rows, columns, _ in self.open:
            raise ProofFailed(f"the sensitivity of outputs {rows} to {columns} is smaller than what its hints prove")

    def _close(self, bounds: Sequence[arb]) -> None:
        """Leave what is not proved by a bound for each pair."""
        self.open = [one for one, bound in zip(self.open, bounds, strict=True) if not bound <= one[2]]

    def _small(self, sizes: Balls, found: Expansion | Trace) -> bool:
        """Whether the entries of a piece prove all that is open; those of the whole region are at most ``sizes``."""
        entries = ba.known_smaller(sizes, found.entries())
        return all(_block(entries, *pair) <= claimed for *pair, claimed in self.open)

    def _pair(self, proof: Any) -> None:
        """Bound one pair by hints of its own, if it is open."""
        pair = proof.part.outputs, proof.part.inputs
        if pair not in [one[:2] for one in self.open]:
            return
        suits = 0 <= proof.base < len(self.wholes) and not any(hints.enclosures for hints in proof.sweeps)
        ba.require(suits, "the hints of a pair rest on a proof that is not there, or enclose neurons themselves")
        part = engine.part_of(self.model, 0, len(self.model), pair[1], pair[0])
        for hints in proof.sweeps:
            bound = Pass(part, None, hints, self.wholes[proof.base].known).by_ellipsoid()
            self._close([bound if one[:2] == pair else arb.pos_inf() for one in self.open])


def _block(sizes: Balls, rows: Sequence[int], columns: Sequence[int]) -> arb:
    """At least the norm of a block, by the sizes of its entries."""
    return ba.norm(sizes[np.ix_(rows, columns)].ravel())


def verify_radius(network: Network, claim: Any) -> None:
    """Prove a certified radius again; ProofFailed if that fails.

    f_label(z) > f_j(z) for all other classes j and all z of the ball closer to its centre than ``radius``. The margin
    is at most f_label - f_rival at the centre, the bound at least the Lipschitz constant of this difference over the
    ball.
    """
    outputs = range(network.outputs)
    named = claim.label in outputs and claim.rival in outputs and claim.label != claim.rival
    ba.require(named, "the classes are not those of the network")
    ba.with_enough_bits(lambda: _Radius(network, claim).run())


class _Radius:
    """Each class is kept away in one way after the other, the cheapest first."""

    def __init__(self, network: Network, claim: Any) -> None:
        self.claim, self.proof, self.model = claim, claim.proof, engine.read(network)
        region = self.proof.ball
        inputs = engine.inputs_of(region, network.inputs)
        self.radius, self.bound = number(claim.radius), number(claim.bound)
        if inputs is None or not 0 < self.radius <= number(float(region.radius)):
            raise ProofFailed("the radius is not one of the ball that it was proved for")
        # ‖z‖₂ ≤ unit·‖z‖ in the norm of the ball
        units = ba.balls(np.broadcast_to(region.units, (network.inputs,)))
        self.unit = ba.norm(units) if region.norm.name == "linf" else ba.largest(units)
        centers = engine.centre_values(self.model, inputs.center)
        self.whole = from_unit_ball(self.model, inputs, self.proof) if self.proof.sweeps else None
        ba.require(self.whole or self.proof.tree is None, "there are no multipliers to prove a bound from")
        whole = self.whole.bound if self.whole else engine.norm_product(self.model)
        self.others = [j for j in range(network.outputs) if j != claim.label]
        value, error = centers[-1]
        label = claim.label
        # at most f_label - f_j at the centre, and at least the constant of this difference
        self.margins = ba.lower(value[label] - value - error[label] - error)
        self.rates = np.full(len(value), (arb(2).sqrt() * whole * self.unit).upper())
        if self.whole:
            self.place, S = Place(self.model, inputs, centers, self.whole.known), self.whole.last.S
            diag = np.diagonal(S)
            rates = ba.root(ba.larger(ba.upper(diag[label] + diag - 2 * S[label]), arb(0))) * self.unit
            self.rates = ba.known_smaller(ba.upper(rates), self.rates)

    def run(self) -> None:
        claim = self.claim
        ba.require(number(claim.margin) <= self.margins[claim.rival], "the margin is larger than what is proved")
        near = [j for j in self.others if not self._kept_away(j)]
        self._pieces(near)
        ba.require(self.rates[claim.rival] <= self.bound, "the Lipschitz bound is smaller than what its hints prove")
        ba.require(all(self._far(j) for j in near), "the radius is larger than what its hints prove")

    def _far(self, j: int) -> bool:
        """Whether a Lipschitz bound keeps class j away: f_label - f_j ≥ margin - rate·‖z - centre‖ > 0."""
        return bool(self.margins[j] > 0) and bool(self.rates[j] * self.radius <= self.margins[j])

    def _kept_away(self, j: int) -> bool:
        """Whether class j is, without pieces: by a Lipschitz bound, linear relaxation, dual bounds or parabolas."""
        if self._far(j) or not self.whole:
            return self._far(j)
        proof, eye = self.proof, np.eye(len(self.others) + 1)
        row: Array = eye[j] - eye[self.claim.label]  # what takes f_j - f_label from the outputs
        if any(trace.outputs(ba.balls(row)[None])[0] < 0 for trace in self.whole.traces):
            return True
        if not proof.ball.plain:
            return False
        told = [one for one in proof.rows if np.array_equal(one.row, row)]
        dual, bent = ([one for one in told if hasattr(one, "ball") == wanted] for wanted in (True, False))
        if any(self.place.dual_bound.below(one, arb(0)) for one in dual):
            return True
        return any(by_parabolas(self.place, self.whole.last.spreads, one) < 0 for one in bent)

    def _pieces(self, near: Sequence[int]) -> None:
        """A bound L of all outputs by pieces, where it is needed: √2·L bounds every difference of two of them."""
        double = arb(2).sqrt() * self.unit
        targets = [(self.margins[j] / (double * self.radius)).lower() for j in near]
        if not self.rates[self.claim.rival] <= self.bound:
            targets.append((self.bound / double).lower())
        if not targets or not self.whole:
            return
        found = self.whole.otherwise(min(targets, key=float))
        self.rates = ba.known_smaller(self.rates, (double * found).upper())


def verify_discrepancy(network: Network, claim: Any, other: Network | None, say: Say | None = None) -> None:
    """Prove how far a second network, or a program, is from the network; ProofFailed if that fails.

    lower ≤ second(x) - network(x) ≤ upper for all x of the region.
    """
    names = claim.network, claim.other
    ba.require(names == (network.digest, other.digest if other else ""), "the difference is about other networks")
    fits = np.shape(claim.lower) == np.shape(claim.upper) == (network.outputs,) and len(claim.cuts) > 0
    ba.require(
        fits and 0 <= min(claim.cuts) <= max(claim.cuts) <= network.inputs,
        "the difference is not one of the outputs, or has no boxes",
    )
    ba.with_enough_bits(lambda: _Discrepancy(network, claim, other).run(say))


_PROGRAMS = {"float64": (53, 53, -1022), "float32": (24, 24, -126), "float16": (24, 11, -24)}
"""Bits of sums, of what is stored, and the exponent of the smallest number that must not be lost."""
_DEEPEST = 12
"""A box is cut so often at most, where lines of this package prove less than those of the claim."""


def _tops(terms: Balls) -> list[arb]:
    """At least the sums of the 1, 2, … largest of some terms, of those that may be positive."""
    return list(np.cumsum(ba.balls(-np.sort(np.minimum([-ba.upward(x) for x in terms], 0.0)))))


_CELLS = 8
"""So many parts of an interval tell how far slopes are from a line."""


def _around(error: Balls) -> Balls:
    """Balls around zero."""
    return np.asarray(np.frompyfunc(lambda x: arb(0, x.upper()), 1, 1)(error))


class _Discrepancy:
    """Boxes, as the claim has cut them, and halves of them where that is needed."""

    def __init__(self, network: Network, claim: Any, other: Network | None) -> None:
        self.claim, self.model = claim, engine.read(network)
        inputs = engine.inputs_of(claim.region, network.inputs)
        if inputs is None:
            raise ProofFailed("a difference over an unbounded region cannot be enclosed")
        self.inputs = replace(inputs, radius=None)  # its box
        self.program = None if other else _PROGRAMS[claim.precision]
        self.second = self.model
        if other is not None:
            self.second = engine.read(other)
            same = (one.functions == two.functions for one, two in zip(self.model, self.second, strict=True))
            ba.require(all(same), "the networks have different activations")
        else:
            stored = [(x.weight, x.bias) for x in engine.read(network, 0.0)]
            rounded = ([ba.balls(ba.floats(x).astype(claim.precision).astype(float)) for x in pair] for pair in stored)
            self.second = tuple(replace(x, weight=W, bias=b) for x, (W, b) in zip(self.model, rounded, strict=True))

    def run(self, say: Say | None) -> None:
        left = [self.inputs]
        for number, axis in enumerate(np.array(self.claim.cuts) - 1):
            box = left.pop() if left else self.inputs
            if axis < 0:
                self._prove(box, _DEEPEST)
            else:
                first, second = box.halves(axis, ba.mid((box.lower[axis] + box.upper[axis]) / 2))
                left += [replace(half, center=ba.mid((half.lower + half.upper) / 2)) for half in (second, first)]
            if say is not None:
                say(f"box {number} of {len(self.claim.cuts)}")
        for box in left:
            self._prove(box, _DEEPEST)

    def _prove(self, box: Inputs, left: int) -> None:
        low, high = self._ends(box)
        claimed = self.claim.lower, self.claim.upper
        if (ba.balls(claimed[0]) <= low).all() and (high <= ba.balls(claimed[1])).all():
            return
        ba.require(left, "the difference claims more than is proved")
        axis = int(np.argmax(ba.floats(box.upper - box.lower)))
        for half in box.halves(axis, ba.mid((box.lower[axis] + box.upper[axis]) / 2)):
            self._prove(replace(half, center=ba.mid((half.lower + half.upper) / 2)), left - 1)

    def _ends(self, box: Inputs) -> Interval:
        """Between which numbers the difference lies over a box."""
        intervals = [ba.unbounded(layer.size) for layer in self.model[:-1]]
        trace = engine.relaxed(self.model, box, intervals)
        if trace is None:
            raise ProofFailed("the intervals of a layer are empty")
        z = second = ba.hull(box.lower, box.upper)
        gap, passed = ba.zeros(len(z)), list[Any]()
        for index, (one, two) in enumerate(zip(self.model, self.second, strict=True)):
            change, shift = two.weight - one.weight, two.bias - one.bias + self._lost_in_sums(two, second)
            moved = ba.dot(two.weight, gap) + ba.dot(change, z) + shift
            below, above = (
                self._above(trace, passed, sign * two.weight, sign * change, sign * shift) for sign in (-1, 1)
            )
            e = ba.both((ba.lower(moved), ba.upper(moved)), (-below, above))
            if one.neurons is None:
                return e
            v = intervals[index]
            there = ba.lower(v[0] + e[0]), ba.upper(v[1] + e[1])
            z, second = (
                ba.hull(trace.lines[index].floor, trace.lines[index].roof),
                self._between(one, there, ba.zeros(one.size)),
            )
            lost = _around(self._lost_in_activations(one, ba.size(second)))
            passed.append((two, change, shift, lost, self._strip(one, v, there, e)))
            gap, second = second - z + lost, second + lost
        raise AssertionError("a network ends with a layer without activations")

    @staticmethod
    def _above(trace: engine.Trace, passed: list[Any], a: Balls, c: Balls, total: Balls) -> Balls:
        """At least aΔ + cz + total, Δ and z of the last layer that was passed."""
        for back in range(len(passed) - 1, -1, -1):
            two, change, shift, lost, (slope, rate, off) = passed[back]
            one, lines = trace.model[back], trace.lines[back]
            total, c = total + ba.dot(ba.rad(c), trace.seen(back + 1)), ba.mid(c)
            s, t = a * slope, a * rate + c * np.where(c > 0, lines.up, lines.down)
            total = total + (c * np.where(c > 0, lines.high, lines.low)).sum(axis=1)
            total = total + ba.dot(a, off + lost) + ba.dot(s, shift) + ba.dot(t, one.bias)
            a, c = ba.dot(s, two.weight), ba.dot(s, change) + ba.dot(t, one.weight)
        return ba.upper(total + ba.dot(ba.rad(c), trace.seen(0)) + trace.inputs.support(ba.mid(c)))

    @staticmethod
    def _between(layer: engine.Layer, interval: Interval, slope: Balls) -> Balls:
        """Where φ(v) - slope·v lies on an interval."""
        views = list(zip(layer.views(interval), slope, strict=True))
        tops = (np.array([sign * view.top(sign, sign * one) for view, one in views], dtype=object) for sign in (-1, 1))
        return ba.hull(*tops)

    def _strip(self, layer: engine.Layer, v: Interval, there: Interval, e: Interval) -> list[Balls]:
        """σ, τ and the narrowest range of φ(v + e) - φ(v) - σe - τv; kernel/discrepancy.py says which there are."""
        low, high = ba.smaller(v[0], there[0]), ba.larger(v[1], there[1])
        center, m = (ba.mid((x + y) / 2) for x, y in (v, e))
        far, near, most = ba.larger(v[1] - center, center - v[0]), ba.larger(e[1] - m, m - e[0]), ba.sizes_within(e)
        width = high - low
        marks = [low, *(ba.mid(low + k * width / _CELLS) for k in range(1, _CELLS)), high]
        cells = [(layer.slopes(pair), ba.hull(*pair) - center) for pair in itertools.pairwise(marks)]
        rise = ba.mid(ba.hull(*cells[-1][0])) - ba.mid(ba.hull(*cells[0][0]))
        strips = []
        for t in (ba.zeros(layer.size), self._share(rise, width)):
            low = reduce(ba.smaller, [ba.lower(low - t * s) for (low, _), s in cells])
            high = reduce(ba.larger, [ba.upper(high - t * s) for (_, high), s in cells])
            slope = ba.mid((low + high) / 2)
            off = ba.size(ba.hull(low, high) - slope) * most + ba.size(t) * (far * near + most**2 / 2)
            strips.append((slope, t * m, _around(off) - t * m * center))
        chords = [self._share(self._values(layer, x[1]) - self._values(layer, x[0]), x[1] - x[0]) for x in (there, v)]
        ranges = [self._between(layer, x, slope) for x, slope in zip((there, v), chords, strict=True)]
        strips.append((chords[0], chords[0] - chords[1], ranges[0] - ranges[1]))
        widths = [np.nan_to_num(ba.floats(ba.rad(off)), nan=np.inf) for _, _, off in strips]
        best = np.argmin(widths, axis=0)
        return [np.array([part[k][j] for j, k in enumerate(best)], dtype=object) for part in zip(*strips, strict=True)]

    @staticmethod
    def _share(rise: Balls, run: Balls) -> Balls:
        """About rise/run, and zero where there is no run."""
        with np.errstate(all="ignore"):
            share = ba.floats(rise) / ba.floats(run)
        return ba.balls(np.where(np.isfinite(share), share, 0.0))

    @staticmethod
    def _values(layer: engine.Layer, v: Balls) -> Balls:
        assert layer.neurons is not None
        return ba.balls(layer.neurons.value(ba.floats(v)))

    def _lost_in_sums(self, layer: engine.Layer, values: Balls) -> Balls:
        """What a program loses in the sums of a layer, as balls around 0; kernel/discrepancy.py says why."""
        if self.program is None:
            return ba.zeros(layer.size)
        sums, stored, tiny = self.program
        n, unit, found = layer.weight.shape[1] + 2, arb(2) ** -sums, ba.zeros(layer.size)
        for k in range(layer.size):
            terms = np.append(layer.weight[k] * values, layer.bias[k])
            whole = ba.size(terms.sum())
            tops = [ba.larger(*pair) for pair in zip(*(_tops(sign * terms) for sign in (1, -1)), strict=True)]
            ways = sum((ba.smaller(x, whole + y) for x, y in zip(tops[1:], tops[-2::-1], strict=True)), arb(0))
            total = ba.size(terms).sum()
            ba.require(2 * total < ball(float(np.finfo(self.claim.precision).max)), "a sum may overflow")
            lost = unit * (ways + total * (1 + n * n * unit / (1 - n * unit)))
            least = (
                arb(2) ** tiny * 4 * n * (2 + ba.largest(ba.size(values)) + ba.largest(np.ravel(ba.size(layer.weight))))
            )
            found[k] = lost + (arb(2) ** -stored * (whole + lost) if stored < sums else 0) + least
        return _around(found)

    def _lost_in_activations(self, layer: engine.Layer, sizes: Balls) -> Balls:
        if self.program is None or layer.neurons is None:
            return ba.zeros(layer.size)
        _, stored, tiny = self.program
        lost = ba.zeros(layer.size)
        for row, index in layer.neurons.groups:
            if row.name not in ("relu", "identity", "abs"):
                terms = ba.balls(np.broadcast_to(row.row.loss.value_terms(*row.parameters), index.shape))
                unit = number(self.claim.ulps) * arb(2) ** -stored
                lost[index] = ba.upper(unit * (sizes[index] + terms) + arb(2) ** tiny)
        return lost
