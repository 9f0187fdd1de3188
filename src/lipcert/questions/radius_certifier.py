"""Certify the class of a point over balls around it, for single points and for campaigns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.answers.radius import CertifiedRadius, ClassBounds, Parabolas
from lipcert.errors import ProofFailed
from lipcert.kernel.counterexample import nearest_counterexample
from lipcert.kernel.hints import BOTH, Enclosure
from lipcert.kernel.outputs import OutputBounds, margins_of, output_at, outputs_by_norms
from lipcert.methods import quadratic
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.counterexample import bisected
from lipcert.methods.dual import DualSearch
from lipcert.methods.method import Method
from lipcert.methods.second_order import SecondOrderSearch, suits
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norm
from lipcert.model.regions import Ball, Everywhere
from lipcert.questions.prove_outputs import prove_outputs_many
from lipcert.runtime.clock import OutOfTime
from lipcert.runtime.threads import suited_to

_STEPS: Final = 3
"""Gradient steps towards a counterexample before a bound to second order is tried."""
_MORE_STEPS: Final = 12
"""The same before value functions are tried, which take longer."""
_BOXES: Final = 64
"""Most boxes that value functions may cut a ball into."""

Rung: TypeAlias = "Callable[[BallResult], CertifiedRadius]"
"""A proof of the class over a ball."""
_everywhere: WeakKeyDictionary[Network, OutputBounds | None] = WeakKeyDictionary()
"""Bounds over all inputs, found once per network."""


@dataclass(frozen=True, eq=False)
class Rules:
    """Which proofs may be used. The fields are parameters of :func:`certified_radius`.

    ``values`` is for balls of given radii, ``values_in_search`` for the search of the largest radius.
    """

    clip: Any = None
    enclosures: tuple[Enclosure, ...] = BOTH
    pairwise: bool = True
    relaxation: bool = True
    curvature: bool | None = None
    norm: Norm = PLAIN.input
    values: bool = False
    values_in_search: bool = False
    everywhere: bool = False

    def ball(self, point: Array, radius: float) -> Ball:
        """The ball around a point."""
        return Ball(point, radius, self.clip, self.norm)

    def second_order(self, network: Network, searching: bool) -> bool:
        """Whether bounds to second order may be used: over balls of given radii, or in a search."""
        if not self.pairwise or not (self.curvature is None or self.curvature) or self.norm != PLAIN.input:
            return False
        return suits(network, quick=self.curvature is None and not searching)

    def dual(self, network: Network, searching: bool) -> bool:
        """The same for the dual bound."""
        return (self.values_in_search if searching else self.values) and self.pairwise and network.depth > 1


@dataclass(frozen=True, eq=False)
class RadiusCertifier:
    """Certifies balls around one point. The result for a ball does not depend on the other balls."""

    network: Network
    point: Array
    label: int
    predicted: int
    method: Method
    rules: Rules

    def over(self, radii: Sequence[float]) -> list[BallResult | ProofFailed]:
        """One result per radius, or why there is none."""
        balls = [self.rules.ball(self.point, radius) for radius in radii]
        known = [self._from_everywhere(ball) if self.rules.everywhere else None for ball in balls]
        rest = [ball for ball, result in zip(balls, known, strict=True) if result is None]
        proofs = iter(prove_outputs_many(self.network, rest, self.method, self.rules.enclosures) if rest else ())
        return [self._result(next(proofs)) if result is None else result for result in known]

    def _result(self, facts: OutputBounds | ProofFailed) -> BallResult | ProofFailed:
        if isinstance(facts, ProofFailed):
            return facts
        if not np.isfinite(facts.output.size).all():
            return ProofFailed("the output at the point is too large for floating point")
        options = self.rules.pairwise, self.rules.relaxation
        return BallResult(self, ClassBounds(facts, self.label, self.predicted, *options))

    def _from_everywhere(self, ball: Ball) -> BallResult | None:
        """The result for a ball that bounds over all inputs certify whole; else None."""
        if not ball.plain or not self.rules.pairwise:
            return None
        if self.network not in _everywhere:
            (found,) = prove_outputs_many(self.network, [Everywhere()], ClosedForm())
            _everywhere[self.network] = None if isinstance(found, ProofFailed) else found
        facts = _everywhere[self.network]
        if facts is None or facts.network is not self.network:
            return None
        with np.errstate(all="ignore"):
            result = BallResult(self, ClassBounds(facts.around(ball), self.label, self.predicted))
            return result if result.first_order().radius >= result.proved.size else None

    def at(self, radius: float) -> BallResult | ProofFailed:
        """The result for one ball."""
        return self.over([radius])[0]

    def rungs(self, searching: bool = False) -> list[tuple[str, Rung]]:
        """Proofs beyond first order that the rules allow, the cheapest first; they start from what they learned."""
        second, dual = (allowed(self.network, searching) for allowed in (self.rules.second_order, self.rules.dual))
        found: list[tuple[str, Rung]] = []
        if (second and quadratic.straight(self.network)) or (dual and not second):
            found.append(("parabolas", lambda result: result.by_parabolas(quadratic.suggest)))
        if second:
            together = cache(lambda: SecondOrderSearch())  # made when it is needed
            found.append(("second order", lambda result: result.by_parabolas(together().suggest)))
        if dual:
            search = DualSearch(1 if searching else _BOXES)
            found.append(("value functions", lambda result: result.by_values(search)))
        return found

    @cached_property
    def nothing(self) -> CertifiedRadius:
        """The answer where nothing is proved: radius 0, and the margin to the nearest class or to the predicted one."""
        rivals, margins = margins_of(output_at(self.network, self.point[None])[0], self.label)
        which = int(np.argmin(np.where(rivals == self.predicted, -np.inf, margins)))
        margin = float(margins[which])
        return CertifiedRadius(0.0, np.inf, margin, self.label, self.predicted, int(rivals[which]), 0.0, "")

    def by_norms(self) -> BallResult | None:
        """The result of the product of norms, over the largest ball that it certifies."""
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
        return BallResult(self, proved)


@dataclass(frozen=True, eq=False)
class BallResult:
    """What is certified over one ball, and stronger proofs to try."""

    certifier: RadiusCertifier
    proved: ClassBounds

    def first_order(self) -> CertifiedRadius:
        """By Lipschitz bounds and linear relaxation."""
        return self.proved.first_order()

    def answer(self) -> CertifiedRadius:
        """By every proof that the rules allow for given radii, the cheapest first."""
        found, rungs = self.first_order(), self.certifier.rungs()
        with suppress(OutOfTime):  # what was found before stands
            steps = _MORE_STEPS if rungs and rungs[-1][0] == "value functions" else _STEPS
            suspects = self._descend(steps) if rungs else None
            if suspects is None:
                return found
            if len(suspects):
                return self._with_counterexample(found, suspects)
            for _, prove in rungs:
                if found.radius < self.proved.size:
                    found = prove(self)
        return found

    def score(self) -> float:
        """An estimate of log(ε*/ε), where ε* is the largest radius that first-order bounds certify.

        For a class with margin m, Lipschitz bound L and a rise of at most F over the ball, it is the larger of
        log(m/(L·ε)) and log(m/(m + F)). L and (m + F)/ε do not fall as ε grows.
        """
        proved = self.proved
        with np.errstate(all="ignore"):
            best = np.log(proved.distances / proved.size)
            if proved.pairwise and proved.relaxation:
                best = np.fmax(best, np.log(proved.margins / np.maximum(proved.margins + proved.falls, 0.0)))
        return float(np.where(proved.margins > 0, np.nan_to_num(best, nan=-np.inf, posinf=np.inf), -np.inf).min())

    def by_parabolas(self, suggest: Parabolas) -> CertifiedRadius:
        """By quadratic relaxation."""
        with self._computing():
            return self.proved.parabolas(suggest)

    def by_values(self, search: DualSearch) -> CertifiedRadius:
        """By value functions; ``search`` starts from what it learned on other balls."""
        with self._computing():
            search.broken = None
            found = self.proved.value_functions(search.leaves)
            return found if search.broken is None else self._with_counterexample(found, search.broken[None])

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with suited_to(max(self.certifier.network.sizes)), np.errstate(all="ignore"):
            yield

    def _with_counterexample(self, found: CertifiedRadius, points: Array) -> CertifiedRadius:
        """The same, with the nearest counterexample between the centre and the points, if one can be proved."""
        network, ball, label = self.certifier.network, self.proved.facts.region, self.certifier.label
        assert isinstance(ball, Ball)
        tried = np.concatenate([points, *bisected(network, ball.center, label, points)])
        return replace(found, broken=nearest_counterexample(network, ball, label, tried))

    def _descend(self, steps: int) -> Array | None:
        """Inputs (k, inputs) that gradient descent on the margins takes to another class; None if nothing is open."""
        network, label, proved = self.certifier.network, self.certifier.label, self.proved
        if label != self.certifier.predicted or not proved.open.any():
            return None
        rows, start = proved.rows[proved.open], self.certifier.point
        points = np.tile(start, (len(rows), 1))
        with self._computing():
            for _ in range(steps):
                descent = -np.einsum("kj,kji->ki", rows, network.jacobian(points))
                unit = descent / np.maximum(np.linalg.norm(descent, axis=1), 1e-300)[:, None]
                points = proved.facts.region.project(start + proved.size * unit)
                other = network(points).argmax(axis=1) != label
                if other.any():
                    return points[other]
        return points[:0]
