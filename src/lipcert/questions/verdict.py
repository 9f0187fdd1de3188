"""What is certified of the class of a point over balls around it: one path for single points and for campaigns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norm
from lipcert.model.regions import Ball, Everywhere
from lipcert.proof.broken import nearest_broken
from lipcert.proof.classes import CertifiedRadius, ClassBounds, margins_of
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import OutputBounds, output_at, outputs_by_norms
from lipcert.questions.establish import establish_many
from lipcert.runtime.clock import OutOfTime
from lipcert.runtime.threads import suited_to
from lipcert.search import bowls
from lipcert.search.breaking import walked_back
from lipcert.search.closed_form import ClosedForm
from lipcert.search.margins import MarginSearch, affordable
from lipcert.search.method import Method
from lipcert.search.second_order import PairSearch, suits

_STEPS: Final = 3
"""How often an input of another class is looked for before a bound to second order is tried."""
_PIECES: Final = 64
"""Into so many pieces a ball may be cut for value functions, if time allows."""
_MORE: Final = 12
"""The same before value functions are tried, which take longer."""


_everywhere: WeakKeyDictionary[Network, OutputBounds | None] = WeakKeyDictionary()
"""What is proved of networks for all inputs."""


@dataclass(frozen=True, eq=False)
class Rules:
    """What may be used to certify radii. The parameters are those of :func:`certified_radius`.

    Value functions have two: over balls of given radii, and in searches.
    """

    clip: Any = None
    enclosures: tuple[Enclosure, ...] = BOTH
    pairwise: bool = True
    relaxation: bool = True
    curvature: bool | None = None
    norm: Norm = PLAIN.input
    values: bool = False
    farther: bool = False
    everywhere: bool = False

    def ball(self, point: Array, radius: float) -> Ball:
        """The ball around a point."""
        return Ball(point, radius, self.clip, self.norm)

    def second_order(self, network: Network, *, searching: bool = False) -> bool:
        """Whether pairs of classes may be settled to second order: over balls of given radii, or in a search."""
        if not self.pairwise or not (self.curvature is None or self.curvature) or self.norm != PLAIN.input:
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
        balls = [self.rules.ball(self.point, radius) for radius in radii]
        answers: list[Verdict | ProofFailed] = []
        known = [self._everywhere(ball) for ball in balls] if self.rules.everywhere else [None] * len(balls)
        rest = [ball for ball, verdict in zip(balls, known, strict=True) if verdict is None]
        found = iter(establish_many(self.network, rest, self.method, self.rules.enclosures) if rest else ())
        for verdict in known:
            facts = next(found) if verdict is None else verdict.proved.facts
            if verdict is not None:
                answers.append(verdict)
            elif isinstance(facts, ProofFailed):
                answers.append(facts)
            elif not (np.isfinite(facts.value) & np.isfinite(facts.error)).all():
                answers.append(ProofFailed("the output at the point is too large for floating point"))
            else:
                options = self.rules.pairwise, self.rules.relaxation
                answers.append(Verdict(self, ClassBounds(facts, self.label, self.predicted, *options)))
        return answers

    def _everywhere(self, ball: Ball) -> Verdict | None:
        """The verdict over a ball that bounds for all inputs settle; they are found once for a network."""
        if not ball.plain or not self.rules.pairwise:
            return None
        if self.network not in _everywhere:
            (found,) = establish_many(self.network, [Everywhere()], ClosedForm())
            _everywhere[self.network] = None if isinstance(found, ProofFailed) else found
        facts = _everywhere[self.network]
        if facts is None or facts.network is not self.network:
            return None
        with np.errstate(all="ignore"):
            verdict = Verdict(self, ClassBounds(facts.around(ball), self.label, self.predicted))
            return verdict if verdict.first_order().radius >= verdict.proved.size else None

    def at(self, radius: float) -> Verdict | ProofFailed:
        """The verdict for one ball, proved by itself."""
        return self.over([radius])[0]

    def settles_by_values(self, *, searching: bool = False) -> bool:
        """Whether value functions may settle pairs of classes: over balls of given radii, or in a search."""
        allowed = self.rules.farther if searching else self.rules.values
        return allowed and self.rules.pairwise and self.network.depth > 1

    @cached_property
    def straight(self) -> bool:
        """Whether the neurons are straight but for kinks, so that parabolas of any slope see most."""
        return bowls.straight(self.network)

    @cached_property
    def nothing(self) -> CertifiedRadius:
        """What is said where nothing is proved: the margin to the nearest class, or to the one that was computed."""
        value, error = output_at(self.network, self.point[None])
        rivals, margins = margins_of(value[0], error[0], self.label)
        which = int(np.argmin(np.where(rivals == self.predicted, -np.inf, margins)))
        margin = float(margins[which])
        return CertifiedRadius(0.0, np.inf, margin, self.label, self.predicted, int(rivals[which]), 0.0, "")

    def by_norms(self) -> Verdict | None:
        """The verdict that the product of norms of the network gives, over as large a ball as it settles."""
        try:
            with np.errstate(all="ignore"):
                size, facts = 1.0, None
                for _ in range(2):
                    facts = outputs_by_norms(self.network, self.rules.ball(self.point, size), facts)
                    proved = ClassBounds(facts, self.label, self.predicted, self.rules.pairwise, relaxation=False)
                    size = float(proved.distances.min())
                    if not 0.0 < size < np.inf:
                        return None
        except ProofFailed:
            return None
        return Verdict(self, proved)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is certified over one ball."""

    judge: Judge
    proved: ClassBounds

    def first_order(self) -> CertifiedRadius:
        """By Lipschitz bounds and linear relaxation."""
        return self.proved.first_order()

    def answer(self) -> CertifiedRadius:
        """By parabolas, to second order and by value functions too, where the rules allow it for given radii."""
        found, rules = self.first_order(), self.judge.rules
        with suppress(OutOfTime):  # what was found before stands
            curved, valued = rules.second_order(self.judge.network), self.judge.settles_by_values()
            seen = self._downhill(_MORE if valued else _STEPS) if curved or valued else None
            if seen is not None and len(seen):
                found = self._denied(found, seen)
            elif seen is not None:
                if self.judge.straight or not curved:
                    found = self.bent()
                if curved and found.radius < self.proved.size:
                    found = self.searched(PairSearch())
                if valued and found.radius < self.proved.size and affordable(self.proved.facts):
                    found = self.valued(MarginSearch(_PIECES))
        return found

    def score(self) -> float:
        """About log(ε*/ε) for the largest ball ε* that first-order bounds would settle; a suggestion for a search.

        For a class with margin m, Lipschitz bound L and a rise of at most F over the ball, it is the logarithm of
        m/(L·ε) or of m/(m + F), whichever is larger; L and (m + F)/ε do not fall as ε grows.
        """
        proved = self.proved
        with np.errstate(all="ignore"):
            best = np.log(proved.distances / proved.size)
            if proved.pairwise and proved.relaxation:
                best = np.fmax(best, np.log(proved.margins / np.maximum(proved.margins + proved.falls, 0.0)))
        return float(np.where(proved.margins > 0, np.nan_to_num(best, nan=-np.inf, posinf=np.inf), -np.inf).min())

    def searched(self, search: PairSearch) -> CertifiedRadius:
        """To second order too, with what was learned from other balls around the point."""
        with suited_to(max(self.judge.network.sizes)), np.errstate(all="ignore"):
            return self.proved.second_order(search)

    def bent(self) -> CertifiedRadius:
        """By parabolas of any slope too."""
        with suited_to(max(self.judge.network.sizes)), np.errstate(all="ignore"):
            return self.proved.parabolas(bowls.suggest)

    def valued(self, search: MarginSearch) -> CertifiedRadius:
        """By value functions too, with what was learned from other balls around the point."""
        with suited_to(max(self.judge.network.sizes)), np.errstate(all="ignore"):
            search.broken = None
            found = self.proved.value_functions(search.leaves)
            return found if search.broken is None else self._denied(found, search.broken[None])

    def _denied(self, found: CertifiedRadius, points: Array) -> CertifiedRadius:
        """The same with the nearest input of another class on the way to some points, if one is proved to be that."""
        network, ball, label = self.judge.network, self.proved.facts.region, self.judge.label
        assert isinstance(ball, Ball)
        tried = np.concatenate([points, *walked_back(network, ball.center, label, points)])
        return replace(found, broken=nearest_broken(network, ball, label, tried))

    def _downhill(self, steps: int) -> Array | None:
        """Inputs that seem to be of another class a few steps downhill, (k, inputs); None where nothing is open."""
        network, label, proved = self.judge.network, self.judge.label, self.proved
        if label != self.judge.predicted or not proved.open.any():
            return None
        rows, start = proved.rows[proved.open], self.judge.point
        points = np.tile(start, (len(rows), 1))
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            for _ in range(steps):
                downhill = -np.einsum("kj,kji->ki", rows, network.jacobian(points))
                unit = downhill / np.maximum(np.linalg.norm(downhill, axis=1), 1e-300)[:, None]
                points = proved.facts.region.project(start + proved.size * unit)
                other = network(points).argmax(axis=1) != label
                if other.any():
                    return points[other]
        return points[:0]
