"""Certified radii: how far a point may be moved before its class changes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from lipcert.answers.radius import CertifiedRadius, ClassBounds, Counterexample, Suggest, nearest_counterexample
from lipcert.arguments.numbers import numbers
from lipcert.errors import Interrupted, InvalidInput, ProofFailed
from lipcert.kernel.outputs import OutputBounds, at_points, outputs_hinted, pairs
from lipcert.methods import quadratic
from lipcert.methods.counterexample import bisected
from lipcert.methods.dual import DualSearch
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Method
from lipcert.methods.second_order import SecondOrderSearch, suits
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Ball, Norm, norm_in
from lipcert.questions.certify import method_of
from lipcert.questions.classifiers import classifier
from lipcert.questions.prove_outputs import prove_outputs_many
from lipcert.runtime.clock import OutOfTime, Progress, clock, timed
from lipcert.runtime.machine import enclosing_seconds, suited_to
from lipcert.suggest.hints import BOTH, Enclosure

TOLERANCE: Final = 1e-3
"""Default relative tolerance of a search."""
_STEPS, _MORE_STEPS = 3, 12
"""Gradient steps towards a counterexample before the stronger proofs; more where value functions are among them."""
_ROUNDS: Final = 60
_WIDE: Final = 2000
"""From this layer width on, the product of norms comes first."""
_START: Final = 0.3
"""The first radius tried, as a share of the radius at which the linearised network changes its class."""
_STEEP: Final = 1.5
"""Assumed slope of log(m/L(ε)) - log ε against log ε, with the sign reversed, until two balls are known."""
_FARTHEST, _NEAREST = 1e6, 1e-12
"""The search stops beyond these multiples of the same radius."""
_GROWTH: Final = 1.25
"""Factor from the best radius to the next one tried by a stronger proof."""
_DEARER: Final = 1.5
"""The next ball is assumed to take this many times as long as the last one."""


def certified_radius(
    network: Network,
    x: Any,
    label: int | None = None,
    method: Method | str | None = None,
    *,
    clip: Any = None,
    norm: Norm | str | None = None,
    radii: Iterable[float] | float | None = None,
    curvature: bool | None = None,
    values: bool | None = None,
    tolerance: float = TOLERANCE,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CertifiedRadius:
    """A radius around a point within which the class does not change, proved with outward rounding.

    Over a ball of radius ε around the point, let L_j bound the Lipschitz constant of f_label - f_j, and let m_j be the
    value of that function at the point. Then no input closer than min(ε, m_j/L_j) is of class j. If f_label - f_j is
    proved to be positive on the whole ball, ε itself is certified for class j. Proofs of that are linear relaxation, a
    bound to second order (the gradient at the point and a bound of the curvature), and value functions. The smallest
    radius over j counts, and the best ε is searched.

    Parameters
    ----------
    network
        The class is the largest output. Of a single output f it is the sign: class 1 is where f is positive.
    x
        The point, (inputs,), or in the shape of the model's inputs, such as (1, 28, 28).
    label
        Its class; default: the predicted class.
    method
        How multipliers are chosen; default ``ClosedForm()``.
    clip
        A pair (lower, upper): only inputs between them count, as in ``clip=(0, 1)`` for images.
    norm
        Norm of the radius: ``L1()``, ``L2()`` or ``LInf()``, with a ``scale`` where units differ; default ℓ2. Bounds to
        second order exist for ℓ2 without units only.
    radii
        Try only these ε, as the rows of a :func:`campaign` do, and return the largest radius; default: search ε.
    curvature
        Whether bounds to second order may be used. They take most of the time. They need at most ten hidden layers of
        150 neurons or three of 250. Default: always in a search; for given ``radii`` up to ten layers of 110 neurons or
        three of 150.
    values
        Whether value functions may be used. They take seconds per pair of classes, and suit networks with up to some
        hundred open neurons. Default: only if ``seconds`` and ``radii`` are given. A counterexample that they meet is
        in ``broken`` of the answer.
    tolerance
        Relative tolerance of the search for ε.
    enclosures
        As for :func:`certify`.
    seconds
        Time limit; the best radius so far is returned. The first ball is always finished, but for networks wider than
        some thousand neurons: there the product of norms comes first, and a ball only if it should fit in the time.
    progress
        Called with a line of text for each ball.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``best`` is the best radius so far.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], activation="relu")
    >>> round(lc.certified_radius(net, [5.0, 3.0]).radius, 2)  # the line where both are equal is √2 away
    1.41
    """
    network = classifier(network)
    if not np.asarray(tolerance).dtype.kind == "f" or not 0.0 < tolerance < np.inf:
        raise InvalidInput(f"tolerance must be a positive number, got {tolerance!r}")
    point = network.point("x", x)
    point = point.reshape(-1) if point.size == network.inputs else point
    if point.ndim != 1:
        raise InvalidInput(f"x must be one point, ({network.inputs},); got shape {point.shape}. For many, see campaign")
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        predicted = int(np.argmax(network(point)))
    chosen = class_of(network, predicted if label is None else label)
    valued = (seconds is not None if values is None else bool(values)), bool(values)
    rules = Rules(clip, tuple(enclosures), curvature, norm_in("norm", norm), *valued)
    here = rules.ball(point, 0.0)  # checks the clip and the norm
    method = ClosedForm() if method is None else method_of(method)
    certifier = RadiusCertifier(network, point, chosen, predicted, method, rules)
    if predicted != chosen:
        return certifier.nothing
    grid = None if radii is None else _grid(radii)
    with timed(seconds, progress), suited_to(max(network.sizes)), np.errstate(all="ignore"):
        search = RadiusSearch(certifier, tolerance)
        try:
            search.search() if grid is None else search.over(grid)
        except KeyboardInterrupt:
            raise Interrupted(search.answer.about(network, here)) from None
    return search.answer.about(network, here)


def _grid(radii: Any) -> list[float]:
    several = isinstance(radii, Iterable) and not isinstance(radii, (str, np.ndarray))
    grid = np.atleast_1d(numbers("radii", list(radii) if several else radii)).tolist()
    if not grid or np.ndim(grid) != 1 or min(grid) <= 0:
        raise InvalidInput("radii must be positive numbers, at least one")
    return sorted(grid)


def class_of(network: Network, label: Any) -> int:
    """The label as an integer, checked against the outputs of the network."""
    value = np.asarray(label)
    if value.ndim or value.dtype.kind not in "iuf" or value not in range(network.outputs):
        raise InvalidInput(f"label must be from 0 to {network.outputs - 1}, got {label!r}")
    return int(value)


@dataclass(frozen=True, eq=False)
class Rules:
    """Which proofs may be used. The fields are parameters of :func:`certified_radius`.

    ``values`` is for balls of given radii, ``values_in_search`` for the search of the largest radius.
    """

    clip: Any = None
    enclosures: tuple[Enclosure, ...] = BOTH
    curvature: bool | None = None
    norm: Norm = PLAIN.input
    values: bool = False
    values_in_search: bool = False

    def ball(self, point: Array, radius: float) -> Ball:
        """The ball around a point."""
        return Ball(point, radius, self.clip, self.norm)


@dataclass(frozen=True, eq=False)
class RadiusCertifier:
    """Certifies balls around one point. The result for a ball does not depend on the other balls."""

    network: Network
    point: Array
    label: int
    predicted: int
    method: Method
    rules: Rules

    def over(self, radii: Sequence[float]) -> list[ClassBounds | ProofFailed]:
        """What first-order bounds prove over the ball of each radius, or why there is no proof."""
        balls = [self.rules.ball(self.point, radius) for radius in radii]
        return [*map(self._classes, prove_outputs_many(self.network, balls, self.method, self.rules.enclosures))]

    def _classes(self, facts: OutputBounds | ProofFailed) -> ClassBounds | ProofFailed:
        if isinstance(facts, ProofFailed):
            return facts
        if not np.isfinite(facts.output.size).all():
            return ProofFailed("the output at the point is too large for floating point")
        return ClassBounds(facts, self.label, self.predicted)

    def rungs(self, searching: bool = False) -> list[tuple[str, Suggest]]:
        """Searches beyond first order that the rules allow, the cheapest first; they start from what they learned."""
        rules, network = self.rules, self.network
        second = (rules.curvature is None or rules.curvature) and rules.norm == PLAIN.input
        second = second and suits(network, quick=rules.curvature is None and not searching)
        dual = (rules.values_in_search if searching else rules.values) and network.depth > 1
        found: list[tuple[str, Suggest]] = []
        if (second and quadratic.straight(network)) or (dual and not second):
            found.append(("parabolas", quadratic.suggest))
        if second:
            found.append(("second order", SecondOrderSearch().suggest))
        if dual:
            found.append(("value functions", DualSearch().suggest))
        return found

    @cached_property
    def nothing(self) -> CertifiedRadius:
        """The answer where nothing is proved: radius 0, and the margin to the nearest class or to the predicted one."""
        rivals = np.flatnonzero(np.arange(self.network.outputs) != self.label)
        (fact,) = at_points(self.network, self.point[None], -pairs(self.network.outputs, self.label))
        margins = -fact.limits[0]
        which = int(np.argmin(np.where(rivals == self.predicted, -np.inf, margins)))
        margin = float(margins[which])
        return CertifiedRadius(0.0, np.inf, margin, self.label, self.predicted, int(rivals[which]), 0.0, "")

    def answer(self, proved: ClassBounds) -> CertifiedRadius:
        """What every proof that the rules allow for given radii certifies over a ball, the cheapest first."""
        found, rungs = proved.first_order(), self.rungs()
        with suppress(OutOfTime):  # what was found before stands
            steps = _MORE_STEPS if rungs and rungs[-1][0] == "value functions" else _STEPS
            suspects = self._descend(proved, steps) if rungs else None
            if suspects is None:
                return found
            if len(suspects):
                return self._with_counterexample(found, proved, suspects)
            for _, suggest in rungs:
                if found.radius < proved.size:
                    found = self.beyond(proved, suggest)
        return found

    def beyond(self, proved: ClassBounds, suggest: Suggest) -> CertifiedRadius:
        """By a stronger proof; a counterexample that its search met is kept."""
        found, search = proved.beyond(suggest), getattr(suggest, "__self__", None)
        if not isinstance(search, DualSearch) or search.broken is None:
            return found
        point, search.broken = search.broken, None
        return self._with_counterexample(found, proved, point[None])

    def _with_counterexample(self, found: CertifiedRadius, proved: ClassBounds, points: Array) -> CertifiedRadius:
        """The same, with the nearest counterexample between the centre and the points, if one can be proved."""
        ball = proved.facts.region
        assert isinstance(ball, Ball)
        tried = np.concatenate([points, *bisected(self.network, ball.center, self.label, points)])
        return replace(found, broken=nearest_counterexample(self.network, ball, self.label, tried))

    def _descend(self, proved: ClassBounds, steps: int) -> Array | None:
        """Inputs (k, inputs) that gradient descent on the margins takes to another class; None if nothing is open."""
        if self.label != self.predicted or not proved.open.any():
            return None
        rows = proved.rows[proved.open]
        points = np.tile(self.point, (len(rows), 1))
        for _ in range(steps):
            descent = -np.einsum("kj,kji->ki", rows, self.network.jacobian(points))
            unit = descent / np.maximum(np.linalg.norm(descent, axis=1), 1e-300)[:, None]
            points = proved.facts.region.project(self.point + proved.size * unit)
            other = self.network(points).argmax(axis=1) != self.label
            if other.any():
                return points[other]
        return points[:0]


class RadiusSearch:
    """The best radius found so far, and ways to find a better one. It can be stopped at any time.

    Attributes
    ----------
    best : the largest certified radius.
    proved : the class bounds over its ball; None if there is none.
    failure : why the last ball had no proof; None if all had one.
    counterexample : the nearest input that is proved to be of another class; None if none was met.
    """

    def __init__(self, certifier: RadiusCertifier, tolerance: float) -> None:
        self.certifier, self.tolerance = certifier, tolerance
        self.best: CertifiedRadius = certifier.nothing
        self.proved: ClassBounds | None = None
        self.failure: ProofFailed | None = None
        self.counterexample: Counterexample | None = None
        self._begun = 0.0

    @property
    def answer(self) -> CertifiedRadius:
        """The best radius, with the nearest counterexample."""
        return replace(self.best, broken=self.counterexample)

    def over(self, grid: Sequence[float]) -> None:
        """The largest radius over a sorted grid of ε. Stronger proofs are tried only where they could improve it."""
        clock().say(f"{len(grid)} balls, up to radius {grid[-1]:.4g}")
        several = [proved for proved in self.certifier.over(grid) if isinstance(proved, ClassBounds)]
        for proved in several:
            self._note(proved, proved.first_order())
        for proved in reversed(several):
            if proved.size <= self.best.radius or clock().left < 0.0:
                break
            self._note(proved, self.certifier.answer(proved))

    def search(self) -> None:
        """The largest radius over all ε, up to the tolerance, until time is up."""
        try:
            guess = first_guess(self.certifier)
            self._product_of_norms(guess)
            self._first_order(guess)
            for name, suggest in self.certifier.rungs(searching=True):
                self._extend(name, suggest)
        except OutOfTime:
            clock().say("time is up")

    def _note(self, proved: ClassBounds, found: CertifiedRadius) -> None:
        mine, nearest = found.broken, self.counterexample
        if mine is not None and (nearest is None or mine.distance < nearest.distance):
            self.counterexample = mine
        if found.radius > self.best.radius:
            self.best, self.proved = found, proved

    def _product_of_norms(self, guess: float) -> None:
        """For a wide network: what its Lipschitz constant over all inputs certifies, without a proof over a ball."""
        certifier, network = self.certifier, self.certifier.network
        if max(network.sizes) < _WIDE:
            return
        clock().say("product of norms")
        with suppress(ProofFailed):
            facts = outputs_hinted(network, certifier.rules.ball(certifier.point, guess), ())
            proved = ClassBounds(facts, certifier.label, certifier.predicted)
            self._note(proved, proved.first_order())
            if not clock().allows(enclosing_seconds(network)):
                raise OutOfTime

    def _first_order(self, guess: float) -> None:
        """By Lipschitz bounds and linear relaxation: the certified radius is ε up to some ε*, and falls from there on.

        The score falls with log ε and is zero at ε*, which is found by false position. A step stays at least an eighth
        of the bracket away from its ends.
        """
        at = math.log(_START * guess)
        low: tuple[float, float] | None = None
        high: tuple[float, float] | None = None
        close = math.log1p(self.tolerance)
        for _ in range(_ROUNDS):
            size = math.exp(at)
            self._begin(f"radius {size:.4g}")
            (proved,) = self.certifier.over([size])
            score, whole = -math.inf, False
            if isinstance(proved, ProofFailed):
                self.failure = proved
            else:
                found, score = proved.first_order(), _score(proved)
                self._note(proved, found)
                whole = found.radius >= found.ball
            if whole:
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

    def _extend(self, name: str, suggest: Suggest) -> None:
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
            (proved,) = self.certifier.over([size])
            if isinstance(proved, ClassBounds):
                found = self.certifier.beyond(proved, suggest)
                self._note(proved, found)
                if found.radius >= size:
                    grown = True
                    continue
            failed = size if self.counterexample is None else min(size, self.counterexample.distance)

    def _begin(self, what: str) -> None:
        """Raise OutOfTime if there is no time for another ball. The first ball is always tried."""
        now = time.perf_counter()
        if self._begun and not clock().allows(_DEARER * (now - self._begun)):
            raise OutOfTime
        self._begun = now
        clock().say(f"{what}; certified so far: {self.best.radius:.4g}")


def _score(proved: ClassBounds) -> float:
    """An estimate of log(ε*/ε), where ε* is the largest radius that first-order bounds certify.

    For a class with margin m, Lipschitz bound L and a rise of at most F over the ball, it is the larger of
    log(m/(L·ε)) and log(m/(m + F)). L and (m + F)/ε do not fall as ε grows.
    """
    best = np.log(proved.distances / proved.size)
    best = np.fmax(best, np.log(proved.margins / np.maximum(proved.margins + proved.falls, 0.0)))
    return float(np.where(proved.margins > 0, np.nan_to_num(best, nan=-np.inf, posinf=np.inf), -np.inf).min())


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
