"""Certified radii: how far other classes are kept away from a point.

All of it follows from facts about the outputs over a ball around the point.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from lipcert.answers.saved import ROOM, Saved
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import down, inflate, up
from lipcert.kernel.facts import Fact, RowsFact, SlopesFact
from lipcert.kernel.norms import length_above
from lipcert.kernel.outputs import OutputBounds, at_points, outputs_hinted, pairs
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.suggest.hints import Hints, QuadraticHints, RowHints, Tree

Basis: TypeAlias = Literal["", "lipschitz", "relaxation", "second order", "value functions", "parabolas"]
_BASES: Final[tuple[Basis, ...]] = ("lipschitz", "relaxation", "second order", "value functions", "parabolas")
Suggest: TypeAlias = Callable[[OutputBounds, Array], RowHints | None]
"""Hints that show a row of the outputs to be negative; none where there is no hope."""


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input that is not of the class that it should be of: f_rival > f_label there, in real arithmetic.

    Attributes
    ----------
    point : the input, (inputs,).
    distance : at least how far it is from the centre of the ball, in the norm of the ball.
    label, rival : the class that it should be of, and one whose output is larger.
    subject : digest of the network, the centre, the clip and the norm that it is about.
    fact : how large f_label - f_j is at most there, for the other classes j.
    """

    point: Array
    distance: float
    label: int
    rival: int
    subject: str = field(repr=False)
    fact: RowsFact = field(repr=False)


def subject_of(network: Network, ball: Ball) -> str:
    """SHA-256 of what a certified radius is about: network, point, the box that inputs are clipped to, and the norm."""
    box = [] if ball.clip is None else [ball.clip.lower, ball.clip.upper]
    if not ball.plain:
        box += [np.frombuffer(ball.norm.name.encode(), dtype=np.uint8), ball.units]
    parts = (np.ascontiguousarray(part).tobytes() for part in (ball.center, *box))
    found = hashlib.sha256(b"|".join([network.digest.encode(), *parts])).hexdigest()
    return f"declared:{found}" if network.declared else found


def nearest_counterexample(network: Network, ball: Ball, label: int, points: Array) -> Counterexample | None:
    """The nearest of some inputs (k, inputs) that are in the ball and proved not to be of a class; None if none is."""
    with np.errstate(all="ignore"):
        away = length_above(up(np.abs(points - ball.center)), ball.norm)
        away = np.where((points == ball.center).all(axis=-1), 0.0, away)
        inside = away <= float(ball.radius)
        if ball.clip is not None:
            inside &= ((ball.clip.lower <= points) & (points <= ball.clip.upper)).all(axis=-1)
    order = np.flatnonzero(inside)[np.argsort(away[inside], kind="stable")]
    for k, fact in zip(order, at_points(network, points[order], pairs(network.outputs, label)), strict=True):
        place = int(np.argmin(fact.limits[0]))
        if fact.limits[0, place] < 0.0:
            rival, subject = place + (place >= label), subject_of(network, ball)
            return Counterexample(points[k].copy(), float(away[k]), int(label), rival, subject, fact)
    return None


@dataclass(frozen=True, eq=False)
class RadiusProof:
    """What a certified radius can be derived from again; nothing in it is believed.

    Attributes
    ----------
    ball : where it was proved, with its clip.
    sweeps : hints of the sweeps over the ball, each with the intervals of those before.
    tree : the pieces, where the ball was cut for a bound.
    rows : hints for the pairs of classes that it takes more than first-order bounds to settle.
    """

    ball: Ball
    sweeps: tuple[Hints, ...]
    tree: Tree | None = None
    rows: tuple[RowHints, ...] = ()


@dataclass(frozen=True)
class CertifiedRadius(Saved):
    """No input closer than ``radius`` is classified differently; true in real arithmetic.

    What proves it is named by ``basis``:

    * ``"lipschitz"``: the bound of f_label - f_rival over the ball. Then radius = min(ball, margin/bound), rounded
      down. Classes that this rule would let come closer are kept out of the whole ball by linear relaxation.
    * ``"relaxation"``: f_label - f_j is positive all over the ball for every j, and for ``rival`` at least it takes
      linear relaxation to show this. Then radius = ball, and margin/bound is less.
    * ``"second order"``: the same, and for ``rival`` it takes a bound to second order.
    * ``"value functions"``: the same, and for ``rival`` it takes the semidefinite dual bound.
    * ``"parabolas"``: the same, and for ``rival`` it takes quadratic relaxation.
    * ``""``: nothing is certified, and the radius is 0.

    Attributes
    ----------
    radius : in the norm of the ball, ℓ2 by default; 0 where the point is not classified as it should be.
    bound : a Lipschitz bound of f_label - f_rival over the ball, in that norm. Infinite where none was proved.
    margin : at most f_label - f_rival at the point, rounded down.
    label, predicted, rival : the class asked for, the class computed, and the class that limits the radius. Of several
        classes that need what ``basis`` names, it is the one whose margin/bound is smallest.
    ball : radius of the ball over which all this was proved.
    basis : what the radius rests on.
    subject : digest of the network, the point, the clip and the norm that it is about.
    proof : what :func:`recheck_radius` derives it from again; None where the radius is 0.
    broken : the nearest input of another class that was met on the way and proved to be one; None where none was. It is
        not saved.
    """

    radius: float
    bound: float
    margin: float
    label: int
    predicted: int
    rival: int
    ball: float
    basis: Basis
    subject: str = field(default="", repr=False, compare=False)
    proof: RadiusProof | None = field(default=None, repr=False, compare=False)
    broken: Counterexample | None = field(default=None, repr=False, compare=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False, compare=False)

    kind = "radius"

    @property
    def flaw(self) -> str:
        proved = self.proof is not None and self.radius > 0.0 and self.basis
        return "" if proved else "a certified radius in a file must be positive and have a proof"

    def about(self, network: Network, ball: Ball) -> CertifiedRadius:
        """The radius itself, or an error if it is that of another network or point; so for the input that breaks it."""
        mine, broken = subject_of(network, ball), self.broken
        if self.radius > 0.0 and self.subject != mine:
            raise ProofFailed("what was proved is about another network or point")
        if broken is not None and (broken.subject, broken.label) != (mine, self.label):
            raise ProofFailed("the input of another class is about another network or point")
        return self


@dataclass(frozen=True, eq=False)
class ClassBounds:
    """What is proved of the class of a point over a ball around it. Arrays are over the other classes, in order.

    Attributes
    ----------
    facts : what is proved of the outputs.
    label, predicted : the class that should be kept, and the class computed at the point.
    room : margins and bounds are this much worse, relatively, than what was proved: a machine that rounds differently
        proves them as well.
    """

    facts: OutputBounds
    label: int
    predicted: int
    room: float = ROOM - 1.0

    @property
    def size(self) -> float:
        """ε, of the ball."""
        return float(self.facts.region.radius)

    @cached_property
    def rows(self) -> Array:
        """What takes f_label - f_j from the outputs."""
        return pairs(self.facts.network.outputs, self.label)

    @cached_property
    def _leads(self) -> RowsFact:
        return self.facts.leads(self.label)

    @cached_property
    def _slopes(self) -> SlopesFact:
        return self.facts.slopes(self.rows)

    @cached_property
    def _falls(self) -> RowsFact:
        return self.facts.rows(-self.rows)

    @cached_property
    def margins(self) -> Array:
        """At most f_label - f_j at the point."""
        margins = -self._leads.limits[0]
        return np.asarray(down(margins - self.room * np.abs(margins))) if self.room else margins

    @cached_property
    def bounds(self) -> Array:
        """At least the Lipschitz constant of f_label - f_j over the ball."""
        return self._roomy(self._slopes.limits)

    @cached_property
    def distances(self) -> Array:
        """No input of the ball that is closer than this is of class j: margin/bound, rounded down."""
        return _ratios(self.margins, self.bounds)

    @cached_property
    def plain(self) -> Array:
        """The same by the bound L of the whole network, the rule of the literature: margin/(√2·L), rounded down."""
        return _ratios(self.margins, inflate(np.sqrt(2.0) * np.full(len(self.rows), self.whole), 3))

    @property
    def whole(self) -> float:
        """At least the Lipschitz constant of all outputs, from the norm of the ball to ℓ2."""
        return float(self._roomy(self.facts.measured(np.asarray(self.facts.bound))))

    def _roomy(self, bounds: Array) -> Array:
        return np.asarray(up(bounds * (1.0 + self.room))) if self.room else bounds

    @property
    def falls(self) -> Array:
        """At least max of f_j - f_label over the ball, by linear relaxation."""
        return self._falls.limits[0]

    @cached_property
    def _how(self) -> Array:
        """What keeps each class away, as a position in _BASES: 1 where only relaxation does so all over the ball."""
        near = self.distances < self.size
        if self.label != self.predicted or not near.any():
            return np.zeros(len(near), dtype=int)
        return np.where(near & (self.falls < 0.0), 1, 0)

    @cached_property
    def open(self) -> Array:
        """The classes that first-order bounds do not keep out of the whole ball."""
        return np.asarray((self._how == 0) & (self.distances < self.size))

    @property
    def _rising(self) -> Array:
        """f_j - f_label of the classes that are open, the highest first."""
        return -self.rows[self.open][np.argsort(-self.falls[self.open])]

    def first_order(self) -> CertifiedRadius:
        """What Lipschitz bounds and linear relaxation certify."""
        return self._certified(self._how)

    def beyond(self, suggest: Suggest) -> CertifiedRadius:
        """The same where hints keep out all classes that are open, one after the other; else as before."""
        told: list[RowHints] = []
        facts: list[RowsFact] = []
        for row in self._rising:
            try:
                found = suggest(self.facts, row)
                if found is None:
                    return self.first_order()
                told.append(found)
                facts.append(self.facts.hinted([found]))
            except (ProofFailed, np.linalg.LinAlgError):
                return self.first_order()
            if not (np.array_equal(found.row, row) and facts[-1].limits[0, 0] < 0.0):
                return self.first_order()
        if not told:
            return self.first_order()
        how = max(_BASES.index(_basis_of(one)) for one in told)
        return self._certified(np.where(self.open, how, self._how), facts, tuple(told))

    def _certified(self, how: Array, facts: Sequence[Fact] = (), rows: tuple[RowHints, ...] = ()) -> CertifiedRadius:
        radii = np.where(how > 0, self.size, np.minimum(self.distances, self.size))
        radius = max(float(radii.min()), 0.0) if self.label == self.predicted else 0.0
        needed = int(how.max()) if radius >= self.size else 0
        worst = int(np.argmin(np.where(how == needed, self.distances, np.inf)))
        margin, bound, rival = float(self.margins[worst]), float(self.bounds[worst]), worst + (worst >= self.label)
        ball, ends = self.facts.region, (self.label, self.predicted, rival, self.size)
        if not isinstance(ball, Ball) or not radius > 0.0:
            return CertifiedRadius(radius, bound, margin, *ends, _BASES[needed] if radius > 0.0 else "")
        facts = (self._leads, self._slopes, *facts)
        facts = (*facts, self._falls) if (how == 1).any() else facts
        proof = RadiusProof(ball, self.facts.sweeps, self.facts.tree, rows)
        subject = subject_of(self.facts.network, ball)
        return CertifiedRadius(radius, bound, margin, *ends, _BASES[needed], subject, proof, None, facts)


def recheck_radius(network: Network, found: CertifiedRadius) -> CertifiedRadius:
    """Derive a certified radius again from the hints that it keeps, and from nothing else.

    If this returns, then in real arithmetic no z of the ball's clip with ‖z - centre‖ < radius has f_j(z) ≥ f_label(z)
    for a j other than the label, ``margin`` is at most f_label - f_rival at the centre, and ``bound`` is at least the
    Lipschitz constant that it is said to be. A radius of 0 says nothing.

    Raises
    ------
    ProofFailed
        If the hints do not prove it.
    """
    if found.radius == 0.0:
        return found
    proof = found.proof
    if proof is None:
        raise ProofFailed("the radius keeps no proof")
    if found.subject != subject_of(network, proof.ball):
        raise ProofFailed("the radius is about another network or point")
    if not 0.0 < found.radius <= float(proof.ball.radius) or found.ball != float(proof.ball.radius):
        raise ProofFailed("the radius is not one of the ball that it was proved for")
    label, rival, outputs = found.label, found.rival, network.outputs
    if not (label in range(outputs) and rival in range(outputs) and label != rival and found.predicted == label):
        raise ProofFailed("the classes are not those of the network, or the point is not of the class")
    facts = outputs_hinted(network, proof.ball, proof.sweeps, proof.tree)
    proved = ClassBounds(facts, label, label, room=0.0)
    again = proved.first_order()
    if proof.rows:
        again = proved.beyond(lambda _, row: next((one for one in proof.rows if np.array_equal(one.row, row)), None))
    place = rival - (rival > label)
    if not found.margin <= proved.margins[place]:
        raise ProofFailed(f"the hints prove a margin of {proved.margins[place]:.17g}, not {found.margin:.17g}")
    bound = proved.bounds[place]
    if not (again.radius >= found.radius and found.bound >= bound):
        raise ProofFailed(
            f"the hints prove a radius of {again.radius:.17g} and a bound of {bound:.17g}, not {found.radius:.17g} and"
            f" {found.bound:.17g}"
        )
    return again


def _basis_of(hints: RowHints) -> Basis:
    if not isinstance(hints, QuadraticHints):
        return "value functions"
    return "parabolas" if hints.multipliers is None else "second order"


def _ratios(margins: Array, bounds: Array) -> Array:
    """margin/bound, rounded down; 0 where the margin is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(margins > 0, down(down(margins / bounds)), 0.0)
