"""Search the largest certified radius around one point, with as few balls as possible."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lipcert.answers.radius import CertifiedRadius, ClassBounds
from lipcert.errors import ProofFailed
from lipcert.kernel.counterexample import Counterexample
from lipcert.kernel.outputs import pairs
from lipcert.questions.radius_certifier import BallResult, RadiusCertifier, Rung
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.runtime.costs import enclosing_seconds

TOLERANCE = 1e-3
"""Default relative tolerance of a search."""
_ROUNDS = 60
_WIDE = 2000
"""From this layer width on, the product of norms comes first."""
_START = 0.3
"""The first radius tried, as a share of the radius at which the linearised network changes its class."""
_STEEP = 1.5
"""Assumed slope of log(m/L(ε)) - log ε against log ε, with the sign reversed, until two balls are known."""
_FARTHEST, _NEAREST = 1e6, 1e-12
"""The search stops beyond these multiples of the same radius."""
_GROWTH = 1.25
"""Factor from the best radius to the next one tried by a stronger proof."""
_DEARER = 1.5
"""The next ball is assumed to take this many times as long as the last one."""


class RadiusSearch:
    """The best radius found so far, and ways to find a better one. It can be stopped at any time.

    Attributes
    ----------
    best : the largest certified radius.
    proved : the class bounds over its ball; None if there is none.
    failure : why the last ball had no proof; None if all had one.
    counterexample : the nearest input that is proved to be of another class; None if none was met.
    unfinished : whether the search ended because time was up.
    """

    def __init__(self, certifier: RadiusCertifier, tolerance: float) -> None:
        self.certifier, self.tolerance = certifier, tolerance
        self.best: CertifiedRadius = certifier.nothing
        self.proved: ClassBounds | None = None
        self.failure: ProofFailed | None = None
        self.counterexample: Counterexample | None = None
        self.unfinished = False
        self._begun = 0.0

    @property
    def answer(self) -> CertifiedRadius:
        """The best radius, with the nearest counterexample."""
        return replace(self.best, broken=self.counterexample)

    def over(self, grid: Sequence[float]) -> None:
        """The largest radius over a sorted grid of ε. Stronger proofs are tried only where they could improve it."""
        clock().say(f"{len(grid)} balls, up to radius {grid[-1]:.4g}")
        results = [found for found in self.certifier.over(grid) if isinstance(found, BallResult)]
        for result in results:
            self._note(result, result.first_order())
        for result in reversed(results):
            if result.proved.size <= self.best.radius or clock().left < 0.0:
                break
            self._note(result, result.answer())

    def search(self) -> None:
        """The largest radius over all ε, up to the tolerance, until time is up."""
        try:
            self._product_of_norms()
            self._first_order()
            for name, prove in self.certifier.rungs(searching=True):
                self._extend(name, prove)
        except OutOfTime:
            self.unfinished = True
            clock().say("time is up")

    def _note(self, result: BallResult, found: CertifiedRadius) -> None:
        if found.broken is not None and (
            self.counterexample is None or found.broken.distance < self.counterexample.distance
        ):
            self.counterexample = found.broken
        if found.radius > self.best.radius:
            self.best, self.proved = found, result.proved

    def _product_of_norms(self) -> None:
        """For a wide network: the radius that the product of norms certifies, without a proof over a ball."""
        if max(self.certifier.network.sizes) < _WIDE:
            return
        clock().say("product of norms")
        result = self.certifier.by_norms()
        if result is not None:
            self._note(result, result.first_order())
            if not clock().allows(enclosing_seconds(self.certifier.network)):
                raise OutOfTime

    def _first_order(self) -> None:
        """By Lipschitz bounds and linear relaxation: the certified radius is ε up to some ε*, and falls from there on.

        The score falls with log ε and is zero at ε*, which is found by false position. A step stays at least an eighth
        of the bracket away from its ends.
        """
        guess = first_guess(self.certifier)
        at = math.log(_START * guess)
        if self.best.radius > 0.0:  # proofs of a wide network over a large ball take long
            at = min(at, 0.5 * (at + math.log(self.best.radius)))
        low: tuple[float, float] | None = None
        high: tuple[float, float] | None = None
        close = math.log1p(self.tolerance)
        for _ in range(_ROUNDS):
            size = math.exp(at)
            self._begin(f"radius {size:.4g}")
            result = self.certifier.at(size)
            score = -math.inf
            if isinstance(result, BallResult):
                found, score = result.first_order(), result.score()
                self._note(result, found)
            else:
                self.failure = result
            if isinstance(result, BallResult) and found.radius >= found.ball:
                before, low = low, (at, max(score, 0.0))
                if score <= close:  # no larger ball could be certified
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

    def _extend(self, name: str, prove: Rung) -> None:
        """Enlarge the best radius with a stronger proof.

        A ball that cannot be certified takes much longer than one that can. So after the first failure, the smallest
        radius that would be an improvement is tried: if that fails too, the proof has nothing to add.
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
            if self._certifies(size, prove):
                grown = True
            else:
                failed = size if self.counterexample is None else min(size, self.counterexample.distance)

    def _certifies(self, size: float, prove: Rung) -> bool:
        result = self.certifier.at(size)
        if isinstance(result, ProofFailed):
            return False
        found = prove(result)
        self._note(result, found)
        return found.radius >= size

    def _begin(self, what: str) -> None:
        """Raise OutOfTime if there is no time for another ball. The first ball is always tried."""
        now = time.perf_counter()
        if self._begun and not clock().allows(_DEARER * (now - self._begun)):
            raise OutOfTime
        self._begun = now
        clock().say(f"{what}; certified so far: {self.best.radius:.4g}")


def _root(low: tuple[float, float] | None, high: tuple[float, float], known: float) -> float:
    """Where the score is zero: it is negative at ``high``, and not negative at ``low``, if given, or at ``known``."""
    if not math.isfinite(high[1]) or (low is not None and not math.isfinite(low[1])):
        return 0.5 * (known + high[0])
    if low is None:
        return high[0] + high[1] / _STEEP
    return low[0] + (high[0] - low[0]) * low[1] / (low[1] - high[1])


def first_guess(certifier: RadiusCertifier) -> float:
    """The radius at which the linearised network changes its class."""
    rows = pairs(certifier.network.outputs, certifier.label)
    slopes = certifier.rules.ball(certifier.point, 1.0).norm_dual(rows @ certifier.network.jacobian(certifier.point))
    margins = rows @ certifier.network(certifier.point)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmin(np.where(slopes > 0, margins / slopes, np.nan), initial=np.inf))
    return ratio if 0.0 < ratio < np.inf else 1.0
