"""What is certified of the class of a point over balls around it: one path for single points and for campaigns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import down, gamma, stretched
from lipcert.questions.establish import establish_many
from lipcert.runtime.threads import suited_to
from lipcert.search.method import Method
from lipcert.search.second_order import Bends, suits

Basis: TypeAlias = Literal["", "lipschitz", "relaxation", "second order"]
_BASES: Final[tuple[Basis, ...]] = ("lipschitz", "relaxation", "second order")
_HOPELESS: Final = 1.5
"""Pairs are given up if relaxation allows f_rival - f_label to be larger than this multiple of the margin; second order
settled none of those in trials."""


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
    """

    radius: float
    bound: float
    margin: float
    label: int
    predicted: int
    rival: int
    ball: float
    basis: Basis


@dataclass(frozen=True, eq=False)
class Rules:
    """What may be used to certify radii. The parameters are those of :func:`certified_radius`."""

    clip: Any = None
    enclosures: tuple[Enclosure, ...] = BOTH
    pairwise: bool = True
    relaxation: bool = True
    curvature: bool | None = None

    def second_order(self, network: Network, *, searching: bool = False) -> bool:
        """Whether pairs of classes may be settled to second order: over balls of given radii, or in a search."""
        if not self.pairwise or not (self.curvature is None or self.curvature):
            return False
        return suits(network, quick=self.curvature is None and not searching)


@dataclass(frozen=True, eq=False)
class Judge:
    """Says what is certified around one point; its answer for a ball does not depend on the other balls asked for."""

    network: Network
    point: Array
    label: int
    predicted: int
    method: Method
    rules: Rules

    def over(self, radii: Sequence[float]) -> list[Verdict | ProofFailed]:
        """One verdict per radius, or why there is none."""
        balls = [Ball(self.point, radius, self.rules.clip) for radius in radii]
        found = establish_many(self.network, balls, self.method, self.rules.enclosures)
        return [facts if isinstance(facts, ProofFailed) else self._verdict(facts) for facts in found]

    def _verdict(self, facts: OutputBounds) -> Verdict | ProofFailed:
        if not (np.isfinite(facts.value) & np.isfinite(facts.error)).all():
            return ProofFailed("the output at the point is too large for floating point")
        rivals, margins = pair_margins(facts, self.label)
        if self.rules.pairwise:
            bounds = facts.lipschitz(pairs(self.network, self.label))
            ratios = _ratios(margins, bounds)
        else:
            bounds, ratios = np.full(rivals.shape, facts.bound), plain_ratios(facts, margins)
        return Verdict(self, facts, float(facts.region.radius), rivals, margins, bounds, ratios)

    @property
    def nothing(self) -> CertifiedRadius:
        """What is said where nothing is proved."""
        return CertifiedRadius(0.0, np.inf, 0.0, self.label, self.predicted, self.predicted, 0.0, "")


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is proved about the class over one ball. Arrays are over the other classes.

    Attributes
    ----------
    size : ε, of the ball.
    rivals, margins : the other classes j, and at most f_label - f_j at the point.
    bounds, ratios : Lipschitz bounds, and the distances within which they keep each class away.
    """

    judge: Judge
    facts: OutputBounds
    size: float
    rivals: Array
    margins: Array
    bounds: Array
    ratios: Array

    def first_order(self) -> CertifiedRadius:
        """By Lipschitz bounds and linear relaxation."""
        return self._answer(self._how)

    def answer(self) -> CertifiedRadius:
        """To second order too, where the rules allow it over balls of given radii."""
        if not self.judge.rules.second_order(self.judge.network) or self._hopeless():
            return self.first_order()
        return self.searched(Bends())

    def searched(self, bends: Bends) -> CertifiedRadius:
        """To second order too, with what was learned from other balls around the point."""
        if not self._open.any():
            return self.first_order()
        network = self.judge.network
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            done = bends.stay_positive(self.facts, pairs(network, self.judge.label)[self._open])
        return self._answer(np.where(self._open, 2, self._how)) if done else self.first_order()

    @cached_property
    def _falls(self) -> Array:
        """At least max of f_j - f_label over the ball, by linear relaxation."""
        return self.facts.above(-pairs(self.judge.network, self.judge.label))

    @cached_property
    def _how(self) -> Array:
        """How each rival is kept away, as a position in _BASES: 1 where only relaxation does so all over the ball."""
        rules, beyond = self.judge.rules, self.ratios < self.size
        if not (rules.pairwise and rules.relaxation and self._classified and beyond.any()):
            return np.zeros(len(self.rivals), dtype=int)
        return np.where(beyond & (self._falls < 0.0), 1, 0)

    @property
    def _classified(self) -> bool:
        return self.judge.label == self.judge.predicted

    @cached_property
    def _open(self) -> Array:
        """The rivals that first order does not keep away from the whole ball; none for a point of another class."""
        return np.asarray((self._how == 0) & (self.ratios < self.size) & self._classified)

    def _hopeless(self) -> bool:
        """Whether second order is not worth a try: an input of another class is seen, or relaxation is far off."""
        network, label, open_ = self.judge.network, self.judge.label, self._open
        if not open_.any():
            return False
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            if (self._falls[open_] > _HOPELESS * self.margins[open_]).any():
                return True
            downhill = -pairs(network, label)[open_] @ network.jacobian(self.judge.point)
            steps = self.size * downhill / np.maximum(np.linalg.norm(downhill, axis=1), 1e-300)[:, None]
            seen = network(self.facts.region.project(self.judge.point + steps))
            return bool((seen.argmax(axis=1) != label).any())

    def _answer(self, how: Array) -> CertifiedRadius:
        judge, radii = self.judge, np.where(how > 0, self.size, np.minimum(self.ratios, self.size))
        radius = max(float(radii.min()), 0.0) if self._classified else 0.0
        needed = int(how.max()) if radius >= self.size else 0
        worst = int(np.argmin(np.where(how == needed, self.ratios, np.inf)))
        margin, bound, rival = float(self.margins[worst]), float(self.bounds[worst]), int(self.rivals[worst])
        basis = _BASES[needed] if radius > 0.0 else ""
        return CertifiedRadius(radius, bound, margin, judge.label, judge.predicted, rival, self.size, basis)


def pairs(network: Network, label: int) -> Array:
    """Rows that take f_label - f_j from the outputs, for all other classes j."""
    eye = np.eye(network.outputs)
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


def plain_ratios(facts: OutputBounds, margins: Array) -> Array:
    """margin/(√2·L) for each of the margins, with the bound L of the whole network, rounded down."""
    return _ratios(margins, np.full(margins.shape, stretched(np.sqrt(2.0) * np.asarray(facts.bound), 3)))


def _ratios(margins: Array, bounds: Array) -> Array:
    """margin/bound, rounded down; 0 where the margin is not positive."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(margins > 0, down(down(margins / bounds)), 0.0)
