"""How far other classes are kept away from a point: certified radii.

All of this follows from what is proved of the outputs over a ball around the point. Multipliers for bounds to second
order are suggested by a guide; any answer of the right shape is safe.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import down, gamma, stretched
from lipcert.proof.second_order import Rise, SecondOrder

Basis: TypeAlias = Literal["", "lipschitz", "relaxation", "second order"]
_BASES: Final[tuple[Basis, ...]] = ("lipschitz", "relaxation", "second order")
_CAPS: Final = 2
"""How often the part of the ball that is in question is made smaller."""
_SHALLOW: Final = 0.1
"""Caps whose level is less than this, relative to their height, are no gain."""


@dataclass(frozen=True)
class CertifiedRadius:
    """No input closer than ``radius`` is classified differently; true in real arithmetic.

    What proves it is named by ``basis``:

    * ``"lipschitz"``: the bound of f_label - f_rival over the ball. Then radius = min(ball, margin/bound), rounded
      down; without ``pairwise``, min(ball, margin/(√2·bound)). Classes that this rule would let come closer are kept
      out of the whole ball by linear relaxation.
    * ``"relaxation"``: f_label - f_j is positive all over the ball for every j, and for ``rival`` at least it takes
      linear relaxation to show this. Then radius = ball, and margin/bound is less.
    * ``"second order"``: the same, and for ``rival`` it takes a bound to second order.
    * ``""``: nothing is certified, and the radius is 0.

    Attributes
    ----------
    radius : in the ℓ2 norm; 0 where the point is not classified as it should be.
    bound : a Lipschitz bound over the ball: of f_label - f_rival, or of the whole network without ``pairwise``.
        Infinite where none was proved.
    margin : at most f_label - f_rival at the point, rounded down.
    label, predicted, rival : the class asked for, the class computed, and the class that limits the radius. Of several
        classes that need what ``basis`` names, it is the one whose margin/bound is smallest.
    ball : radius of the ball over which all this was proved.
    basis : what the radius rests on.
    subject : digest of the network, the point and the clip that it is about.
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

    def about(self, network: Network, ball: Ball) -> CertifiedRadius:
        """The radius itself, or an error if it is that of another network or point."""
        if self.radius > 0.0 and self.subject != subject_of(network, ball):
            raise ProofFailed("what was proved is about another network or point")
        return self


def subject_of(network: Network, ball: Ball) -> str:
    """SHA-256 of what a certified radius is about: the network, the point and the box that inputs are clipped to."""
    box = [] if ball.clip is None else [ball.clip.lower, ball.clip.upper]
    parts = (np.ascontiguousarray(part).tobytes() for part in (ball.center, *box))
    return hashlib.sha256(b"|".join([network.digest.encode(), *parts])).hexdigest()


@dataclass(frozen=True, eq=False)
class PairHints:
    """Suggested multipliers of the hidden layers but the last, and μ; ``hopeful`` if they should settle the pair."""

    multipliers: list[Array]
    mu: float
    hopeful: bool


class PairGuide(ABC):
    """Where the multipliers of bounds to second order come from; any answer of the right shape is safe."""

    @abstractmethod
    def ellipsoids(self, S: Array, alpha: Array, beta: Array, ahead: Weight) -> Array:
        """Multipliers for the ellipsoids of the layers, with a leading axis of length one."""

    @abstractmethod
    def hints(self, curvature: SecondOrder, name: tuple[int, bytes], rise: Rise, limit: float) -> PairHints | None:
        """Multipliers to show that a rise is less than a limit; None if there is no hope.

        The name is of the row, and says how often the ball was made smaller.
        """


@dataclass(frozen=True, eq=False)
class ClassBounds:
    """What is proved of the class of a point over a ball around it. Arrays are over the other classes, in order.

    Parameters
    ----------
    facts
        What is proved of the outputs.
    label
        The class that should be kept.
    predicted
        The class computed at the point; passed on.
    pairwise
        Use the bounds of f_label - f_j, not that of the whole network.
    relaxation
        Use linear relaxation too; it needs ``pairwise``.
    """

    facts: OutputBounds
    label: int
    predicted: int
    pairwise: bool = True
    relaxation: bool = True

    @property
    def size(self) -> float:
        """ε, of the ball."""
        return float(self.facts.region.radius)

    @cached_property
    def rows(self) -> Array:
        """What takes f_label - f_j from the outputs."""
        return pairs(self.facts.network.outputs, self.label)

    @cached_property
    def margins(self) -> Array:
        """At most f_label - f_j at the point."""
        return pair_margins(self.facts, self.label)[1]

    @cached_property
    def bounds(self) -> Array:
        """At least the Lipschitz constant of f_label - f_j over the ball; of the network if not ``pairwise``."""
        return self.facts.lipschitz(self.rows) if self.pairwise else np.full(len(self.rows), self.facts.bound)

    @cached_property
    def distances(self) -> Array:
        """No input of the ball that is closer than this is of class j: margin/bound, rounded down."""
        return _ratios(self.margins, self.bounds) if self.pairwise else self.plain

    @cached_property
    def plain(self) -> Array:
        """The same by the bound L of the whole network: margin/(√2·L), rounded down."""
        return _ratios(self.margins, stretched(np.sqrt(2.0) * np.full(len(self.rows), self.facts.bound), 3))

    @cached_property
    def falls(self) -> Array:
        """At least max of f_j - f_label over the ball, by linear relaxation."""
        return self.facts.above(-self.rows)

    @cached_property
    def _how(self) -> Array:
        """What keeps each class away, as a position in _BASES: 1 where only relaxation does so all over the ball."""
        near = self.distances < self.size
        if not (self.pairwise and self.relaxation and self.label == self.predicted and near.any()):
            return np.zeros(len(near), dtype=int)
        return np.where(near & (self.falls < 0.0), 1, 0)

    @cached_property
    def open(self) -> Array:
        """The classes that first-order bounds do not keep out of the whole ball."""
        return np.asarray((self._how == 0) & (self.distances < self.size))

    def first_order(self) -> CertifiedRadius:
        """What Lipschitz bounds and linear relaxation certify."""
        return self._certified(self._how)

    def second_order(self, guide: PairGuide) -> CertifiedRadius:
        """The same where bounds to second order keep out all classes that are open; else as before."""
        if not self.open.any() or not stay_positive(self.facts, self.rows[self.open], guide):
            return self.first_order()
        return self._certified(np.where(self.open, 2, self._how))

    def _certified(self, how: Array) -> CertifiedRadius:
        radii = np.where(how > 0, self.size, np.minimum(self.distances, self.size))
        radius = max(float(radii.min()), 0.0) if self.label == self.predicted else 0.0
        needed = int(how.max()) if radius >= self.size else 0
        worst = int(np.argmin(np.where(how == needed, self.distances, np.inf)))
        margin, bound, rival = float(self.margins[worst]), float(self.bounds[worst]), worst + (worst >= self.label)
        basis = _BASES[needed] if radius > 0.0 else ""
        subject = subject_of(self.facts.network, self.facts.region) if isinstance(self.facts.region, Ball) else ""
        ends = self.label, self.predicted, rival, self.size, basis, subject
        return CertifiedRadius(radius, bound, margin, *ends)


def stay_positive(facts: OutputBounds, rows: Array, guide: PairGuide) -> bool:
    """Whether rows·v_N are proved to be positive all over a ball by bounds to second order, for rows (k, outputs)."""
    try:
        with np.errstate(all="ignore"):
            curvature = facts.second_order(guide.ellipsoids)
            limits, falls = curvature.least(rows), curvature.rises(-rows)
            steep = np.array([np.linalg.norm(fall.gradient) for fall in falls])
            worst_first = np.argsort(limits / np.maximum(steep, 1e-300))
            return all(_stays_positive(facts, curvature, rows[k], falls[k], limits[k], guide) for k in worst_first)
    except (ProofFailed, np.linalg.LinAlgError):
        return False


def _stays_positive(
    facts: OutputBounds, curvature: SecondOrder, row: Array, fall: Rise, limit: float, guide: PairGuide
) -> bool:
    """Whether a row stays positive on the ball, or else on the cap that holds all inputs for which it does not."""
    limit = float(limit)
    if not limit > 0.0:
        return False
    for stage in range(_CAPS + 1):
        hints = guide.hints(curvature, (stage, row.tobytes()), fall, limit)
        if hints is None:
            return False
        if hints.hopeful:
            return curvature.above(fall, hints.multipliers, hints.mu) < limit
        cap = curvature.where(fall, hints.multipliers, limit)
        if not cap.level > _SHALLOW * curvature.radius * float(np.linalg.norm(cap.gradient)):
            return False
        curvature = facts.second_order(guide.ellipsoids, cap)
        (fall,) = curvature.rises(-row[None])
    return False


def pairs(outputs: int, label: int) -> Array:
    """Rows that take f_label - f_j from the outputs, for all other classes j."""
    eye = np.eye(outputs)
    return np.delete(eye[label] - eye, label, axis=0)


def pair_margins(facts: OutputBounds, label: int) -> tuple[Array, Array]:
    """The other classes j, and at most f_label - f_j at the centre."""
    return margins_of(facts.value, facts.error, label)


def margins_of(value: Array, error: Array, label: int) -> tuple[Array, Array]:
    """The other classes j, and at most f_label - f_j, for outputs as computed and their errors."""
    rivals = np.flatnonzero(np.arange(len(value)) != label)
    gap = value[label] - value[rivals]
    slack = stretched(error[label] + error[rivals] + 2.0 * gamma(1) * np.abs(gap), 3)
    return rivals, np.fmax(down(gap - slack), -np.inf)  # an overflow gives NaN, which says nothing


def _ratios(margins: Array, bounds: Array) -> Array:
    """margin/bound, rounded down; 0 where the margin is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(margins > 0, down(down(margins / bounds)), 0.0)
