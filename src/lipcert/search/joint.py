"""All multipliers at once (beyond the paper): LipSDP's optimum at a cost per iteration that is linear in depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lipcert.model.arrays import Array
from lipcert.proof.hints import Linear
from lipcert.runtime.progress import Report, silent
from lipcert.search.candidate import Candidate
from lipcert.search.chain import STILL, Chain, Slopes, Value
from lipcert.search.closed_form import closed_form
from lipcert.search.descent import descend, no_moves
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.scalar import Scalar
from lipcert.search.stage import Stage

LOG4 = float(np.log(4.0))
_AWAY = (0.1, 1.0, 3.0)
"""How far (in x) to move the start from the edge of the feasible set, where greedy methods end; the first that fits."""
WIDEST_MU = 2e-2
"""Where the path starts from multipliers that were chosen layer by layer."""
WARM_MU = 1e-3
"""Where it starts from multipliers that were joint ones for a similar problem."""
_NEGLIGIBLE = 1e-4
"""Layers whose multipliers together add less than this to log L² are left to the closed form."""
_TILTS = (0.25, 0.75)
"""Where on the interval the lines of later rounds touch the activation; the first round's touch in the middle."""
_WORTH = 1e-3
"""Least share of the slope ranges that a round must take away for its intervals to be kept."""


class Interrupted(KeyboardInterrupt):
    """An interrupt that brings along what was found before it."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__()
        self.candidate = candidate


@dataclass(frozen=True)
class Joint(Method):
    """The multipliers of all layers together.

    First a Scalar sweep; for a bounded region rounds follow in which other bounding lines tighten intervals and
    slopes. For those slopes the method minimises f(x) = log τ + μ·barrier (see :class:`Chain`), with μ halved every
    few steps. The bound never rises from one to the next.

    Parameters
    ----------
    tolerance
        The last μ; the bound ends about that many times the width above LipSDP's.
    iterations
        Most steps for each μ.
    rounds
        Most rounds of re-enclosing, at most 2. A global bound has none.
    seconds
        Stop after about this long and keep the best so far; None is no limit.
    """

    tolerance: float = 3e-5
    iterations: int = 16
    rounds: int = len(_TILTS)
    seconds: float | None = None

    def solve(self, problem: Problem) -> Candidate:
        end = np.inf if self.seconds is None else time.perf_counter() + self.seconds
        return self.improve(problem, problem.sweep(Scalar().choose), end)

    def improve(
        self, problem: Problem, candidate: Candidate, end: float, mu: float = WIDEST_MU, report: Report = silent
    ) -> Candidate:
        """The best of a candidate and what further rounds and joint multipliers make of it, path started at mu."""
        return self.optimise(problem, self.narrow(problem, candidate, end), end, mu, report)

    def narrow(self, problem: Problem, candidate: Candidate, end: float) -> Candidate:
        """A candidate with narrower slopes, where other lines find them.

        Multipliers stay feasible when slopes get narrower, so the bound can only fall.
        """
        if not problem.region.bounded or not problem.enclosures:
            return candidate
        for tilt in _TILTS[: self.rounds]:
            if time.perf_counter() > end:
                break
            again = problem.knowing(candidate, Linear(tilt=tilt)).sweep(kept(candidate))
            if again.bound <= candidate.bound and _ranges(again) < (1.0 - _WORTH) * _ranges(candidate):
                candidate = again
        return candidate

    def optimise(self, problem: Problem, candidate: Candidate, end: float, mu: float, report: Report) -> Candidate:
        """The better of a candidate and the same intervals and slopes with joint multipliers, path started at mu."""
        try:
            chain, start = _essential(problem, candidate)
        except np.linalg.LinAlgError:  # far too ill-scaled to differentiate
            return candidate
        best, least = start, np.inf
        try:
            for x, value in self._path(chain, start, mu):
                if value.log_bound < least:
                    best, least = x, value.log_bound
                    report(f"bound {np.exp(least):.4g} (joint)")
                if time.perf_counter() > end:
                    break
        except KeyboardInterrupt:
            raise Interrupted(_better(problem, candidate, chain, best)) from None
        return _better(problem, candidate, chain, best) if np.isfinite(least) else candidate

    def _path(self, chain: Chain, start: Array, mu: float) -> Iterator[tuple[Array, Value]]:
        """Points along the path of minimisers for falling μ."""
        if not chain.size:
            return
        x, moves = start, no_moves()
        for away in _AWAY:
            if chain(start + away, mu) is not None:
                x = start + away
                break
        while True:
            last = mu <= self.tolerance
            descent = descend(lambda y, mu=mu: chain(y, mu), x, 0.05 * mu, moves)  # type: ignore[misc]
            for x, value in islice(descent, self.iterations + 1):
                yield x, value
            if last:
                return
            mu = max(0.5 * mu, self.tolerance)


def _essential(problem: Problem, candidate: Candidate) -> tuple[Chain, Array]:
    """The layers whose multipliers matter as a chain, and where on it the candidate is."""
    given, slopes = log_multipliers(candidate), moving_slopes(candidate)
    chain = Chain(problem.network, slopes)
    x = chain.coordinates(given)
    value = chain(x + _AWAY[0], WIDEST_MU) if chain.size else None
    if value is None:
        return chain, x
    order = np.argsort(value.effect)
    small = order[np.cumsum(value.effect[order]) < _NEGLIGIBLE]
    if not value.effect[small].any():
        return chain, x
    for layer in small:
        middle = 0.5 * (slopes[layer][0] + slopes[layer][1])
        slopes[layer] = middle, middle
    chain = Chain(problem.network, slopes)
    return chain, chain.coordinates(given)


def _better(problem: Problem, candidate: Candidate, chain: Chain, x: Array) -> Candidate:
    found = problem.knowing(candidate).sweep(chosen(chain, x))
    return found if found.bound < candidate.bound else candidate


def _ranges(candidate: Candidate) -> float:
    """How wide all slope ranges are together."""
    return float(sum((layer.beta - layer.alpha).sum() for layer in candidate.layers))


def log_multipliers(candidate: Candidate) -> list[Array]:
    """Log T of all neurons, at true scale; that of T = 0 is a very small number."""
    tiny = np.finfo(float).tiny
    return [np.log(np.maximum(layer.multiplier, tiny)) + layer.exponent * LOG4 for layer in candidate.layers]


def moving_slopes(candidate: Candidate) -> list[Slopes]:
    """The slope ranges of a candidate, one slope for neurons without a multiplier: those are affine or do not move."""
    slopes = []
    for layer in candidate.layers:
        middle, still = 0.5 * (layer.alpha + layer.beta), layer.multiplier <= 0
        slopes.append((np.where(still, middle, layer.alpha), np.where(still, middle, layer.beta)))
    return slopes


def chosen(chain: Chain, x: Array) -> Callable[[Stage], Array]:
    """The choice of multipliers that x stands for; the closed form in layers that are not links of the chain."""
    parts = {link.layer: part for link, part in zip(chain.links, chain.split(x), strict=True)}

    def choose(stage: Stage) -> Array:
        part = parts.get(stage.index)
        if part is None or part.size != stage.active.size:
            return closed_form(stage)
        T = np.zeros(stage.alpha.shape)
        variance = np.diagonal(stage.S)
        base = np.maximum(variance[stage.active], STILL * variance.mean())
        T[stage.active] = np.exp(part) * stage.r[stage.active] ** 2 * base
        return T

    return choose


def kept(candidate: Candidate) -> Callable[[Stage], Array]:
    """The multipliers of a candidate again, for slopes inside the ones it had."""

    def choose(stage: Stage) -> Array:
        layer = candidate.layers[stage.index]
        T = np.exp(LOG4 * (layer.exponent - stage.exponent)) * stage.narrow(layer.multiplier)
        return np.where(stage.beta > stage.alpha, T, 0.0)

    return choose
