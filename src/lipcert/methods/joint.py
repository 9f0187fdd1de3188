"""All multipliers together (beyond the paper): LipSDP's optimum, each iteration linear in depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.hints import Linear
from lipcert.methods.anytime import Anytime
from lipcert.methods.chain import STILL, Chain, Value
from lipcert.methods.closed_form import closed_form
from lipcert.methods.descent import follow
from lipcert.methods.method import Candidate, Problem, Stage
from lipcert.methods.scalar import Scalar
from lipcert.model.arrays import Array
from lipcert.runtime.clock import OutOfTime, clock

LOG4 = float(np.log(4.0))
_AWAY = (0.1, 1.0, 3.0)
"""How far (in x) the path starts from the edge of the feasible set, where greedy methods end; the first that fits."""
WIDEST_MU, WARM_MU = 2e-2, 1e-3
"""The first μ from greedy multipliers, and from joint ones of a similar problem."""
_FEW, _FEW_MU, _FEW_AWAY = 60, 1e-4, 0.02
"""With time for fewer evaluations, the path starts at this μ and this near the edge: there would be no time to make up
for what a larger μ costs."""
_NEGLIGIBLE = 1e-4
"""Layers whose multipliers together add less than this to log L² are left to the closed form."""
_TILTS = (0.25, 0.75)
"""Where on the interval the lines of later rounds touch the activation; those of the first touch in the middle."""
_WIDE = 1000
"""From so many open neurons in a layer, limited time is better spent on gradients than on Scalar and more rounds."""
_SCALAR = 3.0
"""A Scalar pass takes at most about so many times as long as a ClosedForm pass: it finds all eigenvectors."""
_FLAT = 0.1
"""Share of the mean that is added to second derivatives, so that none is far below the others."""
_WORTH = 1e-3
"""A round's intervals are kept if they take away at least this share of the slope ranges."""


@dataclass(frozen=True)
class Joint(Anytime):
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
        How long the whole may take, proof included; then the best so far counts. None is no limit.
    """

    tolerance: float = 3e-5
    iterations: int = 16
    rounds: int = len(_TILTS)
    seconds: float | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """A Scalar pass, then what further rounds and joint multipliers make of it."""
        open_ = [int((layer.beta > layer.alpha).sum()) for layer in start.layers]
        if max(open_, default=0) >= _WIDE and clock().end < np.inf:
            yield from self.optimised(problem, start)
            return
        if not clock().allows(_SCALAR * clock().sweep):
            return
        first = replace(problem.sweep(Scalar().choose, "scalar", hurried=True), found_by="Scalar")
        yield first
        yield from self.improved(problem, first)

    def improved(self, problem: Problem, candidate: Candidate, mu: float = WIDEST_MU) -> Iterator[Candidate]:
        """What further rounds and joint multipliers make of a candidate, path started at mu."""
        narrower = self.narrow(problem, candidate)
        yield narrower
        yield from self.optimised(problem, narrower, mu)

    def narrow(self, problem: Problem, candidate: Candidate) -> Candidate:
        """A candidate with narrower slopes, where other lines find them and time allows.

        Multipliers stay feasible when slopes get narrower, so the bound can only fall.
        """
        if not problem.region.bounded or not problem.enclosures:
            return candidate
        now = clock()
        for tilt in _TILTS[: self.rounds]:
            if not now.allows(now.sweep):
                break
            try:
                again = problem.knowing(candidate, Linear(tilt=tilt)).sweep(repeated(candidate), "joint", hurried=True)
            except (OutOfTime, ProofFailed):
                break
            if again.bound <= candidate.bound and _ranges(again) < (1.0 - _WORTH) * _ranges(candidate):
                candidate = replace(again, found_by="Joint")
        return candidate

    def optimised(self, problem: Problem, candidate: Candidate, mu: float = WIDEST_MU) -> Iterator[Candidate]:
        """The same intervals and slopes with joint multipliers, path started at mu, if that is better."""
        now, interrupt = clock(), None
        best, least, chain = np.zeros(0), np.inf, None
        with now.keeping(now.sweep):  # for the sweep that follows
            try:
                chain, start, mu, away = _essential(problem, candidate, mu)
                before = time.perf_counter()
                path = follow(chain, start, away, mu, self.tolerance, 0.5, self.iterations, _bends)
                for x, value in path if chain.size else ():
                    if value.log_bound < least:
                        best, least = x, value.log_bound
                        now.say(f"bound {np.exp(least):.4g} (joint)")
                    after = time.perf_counter()
                    if not now.allows(after - before):
                        break
                    before = after
            except np.linalg.LinAlgError:  # far too ill-scaled to differentiate
                return
            except OutOfTime:
                now.say("joint: time is up")
            except KeyboardInterrupt as error:
                interrupt = error
        if chain is not None and np.isfinite(least):
            found = replace(problem.knowing(candidate), start=chain.started(best)).sweep(chosen(chain, best))
            yield replace(found, found_by="Joint") if found.bound < candidate.bound else candidate
        if interrupt is not None:
            raise interrupt


def _bends(value: Value) -> Array:
    """About the second derivatives in x, none of them far below the others."""
    return np.asarray(value.bends + _FLAT * float(value.bends.mean()))


def _essential(problem: Problem, candidate: Candidate, mu: float) -> tuple[Chain, Array, float, tuple[float, ...]]:
    """The layers whose multipliers matter as a chain, where on it the candidate is, and where the path starts."""
    given, kept, before = log_multipliers(candidate), list(candidate.kept), time.perf_counter()
    first, ends = problem.network.layers[0].weight, (problem.norms, candidate.sweeps[-1].start)
    chain = Chain(first, kept, *ends)
    x = chain.coordinates(given)
    away: tuple[float, ...] = _AWAY
    if not clock().allows(_FEW * (time.perf_counter() - before)):
        mu, away = min(mu, _FEW_MU), (_FEW_AWAY, *_AWAY)
    value = chain(x + away[0], mu) if chain.size else None
    if value is None:
        return chain, x, mu, away
    order = np.argsort(value.effect)
    small = order[np.cumsum(value.effect[order]) < _NEGLIGIBLE]
    if not value.effect[small].any():
        return chain, x, mu, away
    for layer in small:
        middle = 0.5 * (kept[layer].alpha + kept[layer].beta)
        kept[layer] = replace(kept[layer], alpha=middle, beta=middle)
    chain = Chain(first, kept, *ends)
    return chain, chain.coordinates(given), mu, away


def _ranges(candidate: Candidate) -> float:
    """How wide all slope ranges are together."""
    return float(sum((layer.beta - layer.alpha).sum() for layer in candidate.layers))


def log_multipliers(candidate: Candidate) -> list[Array]:
    """Log T of all neurons, at true scale; that of T = 0 is a very small number."""
    tiny = np.finfo(float).tiny
    return [np.log(np.maximum(layer.multiplier, tiny)) + layer.exponent * LOG4 for layer in candidate.layers]


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


def repeated(candidate: Candidate) -> Callable[[Stage], Array]:
    """The multipliers of a candidate again, for slopes inside the ones it had."""

    def choose(stage: Stage) -> Array:
        layer = candidate.layers[stage.index]
        T = np.exp(LOG4 * (layer.exponent - stage.exponent)) * stage.narrow(layer.multiplier)
        return np.where(stage.beta > stage.alpha, T, 0.0)

    return choose
