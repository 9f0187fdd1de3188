"""The search for the largest certified radius around one point: few balls, the next one chosen from the last ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.proof.broken import Broken
from lipcert.proof.classes import CertifiedRadius, ClassBounds, pairs
from lipcert.questions.verdict import Judge, Verdict
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.runtime.costs import enclosing_seconds
from lipcert.search.dual import DualSearch
from lipcert.search.second_order import PairSearch

TOLERANCE = 1e-3
"""Relative, of searches that are not told otherwise."""
_ROUNDS = 60
_WIDE = 2000
"""Neurons of a layer from which the product of norms is asked first."""
_START = 0.3
"""Where a search looks first, as a share of the radius at which the linearised network would change its mind."""
_STEEP = 1.5
"""How fast log(m/L(ε)) - log ε falls with log ε, before that is known."""
_FARTHEST, _NEAREST = 1e6, 1e-12
"""Where a search gives up, relative to the same radius."""
_GROWTH = 1.25
"""How far a search with curvature goes at once beyond what is known without it."""
_DEARER = 1.5
"""The next ball may take so much longer than the last."""


class Hunt:
    """The best radius found so far, and ways to find a better one. Whatever stops it, the best stands.

    Attributes
    ----------
    best : the largest certified radius.
    proved : what is proved of the classes over its ball; None where there is none.
    broken : the nearest input of another class that was met, proved to be one; None where none was.
    unfinished : whether a search ended because time was up.
    """

    def __init__(self, judge: Judge, tolerance: float) -> None:
        self.judge, self.tolerance = judge, tolerance
        self.best: CertifiedRadius = judge.nothing
        self.proved: ClassBounds | None = None
        self.problem: ProofFailed | None = None
        self.broken: Broken | None = None
        self.unfinished = False
        self._begun = 0.0

    @property
    def answer(self) -> CertifiedRadius:
        """The best, with the nearest input of another class."""
        return replace(self.best, broken=self.broken)

    def over(self, grid: Sequence[float]) -> None:
        """The largest of the answers for each ε of a sorted grid; those that cannot be larger are not completed."""
        clock().say(f"{len(grid)} balls, up to radius {grid[-1]:.4g}")
        verdicts = [found for found in self.judge.over(grid) if isinstance(found, Verdict)]
        for verdict in verdicts:
            self._note(verdict, verdict.first_order())
        for verdict in reversed(verdicts):
            if verdict.proved.size <= self.best.radius or clock().left < 0.0:
                break
            self._note(verdict, verdict.answer())

    def search(self) -> None:
        """The best over all ε, nearly; until time is up."""
        try:
            self._by_norms()
            self._first_order()
            curved, values = PairSearch(), DualSearch()
            by_curvature = self.judge.rules.second_order(self.judge.network, searching=True)
            by_values = self.judge.settles_by_values(searching=True)
            if (self.judge.straight and by_curvature) or (by_values and not by_curvature):
                self._beyond("parabolas", Verdict.bent)
            if by_curvature:
                self._beyond("curvature", lambda verdict: verdict.searched(curved))
            if by_values:
                self._beyond("value functions", lambda verdict: verdict.valued(values))
        except OutOfTime:
            self.unfinished = True
            clock().say("time is up")

    def _note(self, verdict: Verdict, found: CertifiedRadius) -> None:
        if found.broken is not None and (self.broken is None or found.broken.distance < self.broken.distance):
            self.broken = found.broken
        if found.radius > self.best.radius:
            self.best, self.proved = found, verdict.proved

    def _by_norms(self) -> None:
        """Of a wide network: what its product of norms certifies, before any ball is looked at."""
        if max(self.judge.network.sizes) < _WIDE:
            return
        clock().say("product of norms")
        verdict = self.judge.by_norms()
        if verdict is not None:
            self._note(verdict, verdict.first_order())
            if not clock().allows(enclosing_seconds(self.judge.network)):
                raise OutOfTime

    def _first_order(self) -> None:
        """The largest radius over ε: it is ε itself up to some point, and falls from there on.

        ``score`` falls with log ε and is zero where ε is the radius: false position, with steps of at least a quarter
        of what is left.
        """
        guess = first_guess(self.judge)
        at = math.log(_START * guess)
        if self.best.radius > 0.0:  # proofs of a wide network over a large ball take long
            at = min(at, 0.5 * (at + math.log(self.best.radius)))
        low: tuple[float, float] | None = None
        high: tuple[float, float] | None = None
        close = math.log1p(self.tolerance)
        for _ in range(_ROUNDS):
            size = math.exp(at)
            self._begin(f"radius {size:.4g}")
            verdict = self.judge.at(size)
            score = -math.inf
            if isinstance(verdict, Verdict):
                found, score = verdict.first_order(), verdict.score()
                self._note(verdict, found)
            else:
                self.problem = verdict
            if isinstance(verdict, Verdict) and found.radius >= found.ball:
                before, low = low, (at, max(score, 0.0))
                if score <= close:  # no larger ball could be settled
                    return
                step = score / _STEEP if before is None else max(score / _STEEP, 2.0 * (at - before[0]))
            else:
                before, high = high, (at, min(score, 0.0))
                step = score / _STEEP if before is None else min(score / _STEEP, 2.0 * (at - before[0]))
            if high is not None and self.best.radius > 0.0:
                known = math.log(self.best.radius)
                if high[0] <= known + close:
                    return
                root = _root(low if low is not None and low[0] >= known else None, high, known)
                if root <= known + 0.5 * close:
                    return
                width = high[0] - known
                at = known + min(max(root - 0.3 * close - known, 0.125 * width), 0.875 * width)
                at = high[0] - 0.99 * close if width <= 1.9 * close else at  # one more ball is enough
                continue
            if not math.log(_NEAREST * guess) < at < math.log(_FARTHEST * guess):
                return
            at += float(np.clip(step, -math.log(100.0), math.log(1e3)))

    def _beyond(self, name: str, settle: Callable[[Verdict], CertifiedRadius]) -> None:
        """The largest ε beyond what is known for which second order, parabolas or value functions settle all pairs.

        A ball that is not settled takes much longer than one that is. So after the first that is not, the smallest
        that would count says whether there is anything to be gained.
        """
        failed = math.inf
        grown = False
        for _ in range(_ROUNDS):
            low = self.best.radius
            least = low * (1.0 + self.tolerance)
            if not failed > least or not 0.0 < low < math.inf:
                break
            size = _GROWTH * low if math.isinf(failed) else math.sqrt(low * failed) if grown else least
            self._begin(f"{name}, radius {size:.4g}")
            if self._settled(size, settle):
                grown = True
            else:
                failed = size if self.broken is None else min(size, self.broken.distance)

    def _settled(self, size: float, settle: Callable[[Verdict], CertifiedRadius]) -> bool:
        verdict = self.judge.at(size)
        if isinstance(verdict, ProofFailed):
            return False
        found = settle(verdict)
        self._note(verdict, found)
        return found.radius >= size

    def _begin(self, what: str) -> None:
        """Go on, if there is time for another ball; there always is for the first."""
        now = time.perf_counter()
        if self._begun and not clock().allows(_DEARER * (now - self._begun)):
            raise OutOfTime
        self._begun = now
        clock().say(f"{what}; certified so far: {self.best.radius:.4g}")


def _root(low: tuple[float, float] | None, high: tuple[float, float], known: float) -> float:
    """Where a score vanishes that is negative at one place, and positive at another or by then known not to be."""
    if not math.isfinite(high[1]) or (low is not None and not math.isfinite(low[1])):
        return 0.5 * (known + high[0])
    if low is None:
        return high[0] + high[1] / _STEEP
    return low[0] + (high[0] - low[0]) * low[1] / (low[1] - high[1])


def first_guess(judge: Judge) -> float:
    """Where the linearised network would change its mind."""
    rows = pairs(judge.network.outputs, judge.label)
    slopes = judge.rules.ball(judge.point, 1.0).norm_dual(rows @ judge.network.jacobian(judge.point))
    margins = rows @ judge.network(judge.point)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmin(np.where(slopes > 0, margins / slopes, np.nan), initial=np.inf))
    return ratio if 0.0 < ratio < np.inf else 1.0
