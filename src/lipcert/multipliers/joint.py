"""All multipliers at once (beyond the paper): LipSDP's optimum at a cost per iteration that is linear in depth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lipcert.enclosures import Linear
from lipcert.multipliers.base import Method, Stage
from lipcert.multipliers.chain import Chain
from lipcert.multipliers.descent import descend
from lipcert.multipliers.scalar import Scalar
from lipcert.typing import Array

if TYPE_CHECKING:
    from lipcert.certificate import Proof
    from lipcert.certify import Problem

LOG4 = float(np.log(4.0))
_AWAY = 0.7
"""The start is moved this far (in log T) from the edge of the feasible set, where greedy methods end."""
_WIDEST_MU = 1e-2
_TILTS = (0.25, 0.75)
"""Where on the interval the lines of later rounds touch the activation; the first round's touch in the middle."""


@dataclass(frozen=True)
class Joint(Method):
    """The multipliers of all layers together.

    For the slopes of a Scalar sweep it minimises f(x) = log τ + μ·barrier (see :class:`Chain`) for a falling
    sequence of μ, each from the minimiser before. Rounds follow: other bounding lines tighten intervals and slopes,
    and the multipliers are improved for those. The bound never rises from round to round.

    Parameters
    ----------
    tolerance
        The last μ; the bound ends about that many times the width above LipSDP's.
    iterations
        Most steps for each μ.
    rounds
        Most rounds of re-enclosing; they end early when one gains less than a percent. Only local bounds have them.
    seconds
        Stop after about this long and keep the best so far; None is no limit.
    """

    tolerance: float = 3e-5
    iterations: int = 150
    rounds: int = len(_TILTS)
    seconds: float | None = None

    def solve(self, problem: Problem) -> Proof:
        end = np.inf if self.seconds is None else time.perf_counter() + self.seconds
        return self.improve(problem, problem.sweep(Scalar().choose), end)

    def improve(self, problem: Problem, proof: Proof, end: float = np.inf) -> Proof:
        """The best of a proof and what joint multipliers and further rounds make of it."""
        best = self.optimise(problem, proof, _WIDEST_MU, end)
        if not problem.region.bounded or not problem.enclosures:
            return best
        for tilt in _TILTS[: self.rounds]:
            if time.perf_counter() > end:
                break
            # narrower slopes keep the multipliers feasible, so the bound can only fall
            again = problem.knowing(best, Linear(tilt=tilt)).sweep(kept(best))
            if again.bound > 0.99 * best.bound:
                break
            best = self.optimise(problem, again, 10.0 * self.tolerance, end)
        return best

    def optimise(self, problem: Problem, proof: Proof, mu: float, end: float = np.inf) -> Proof:
        """The better of a proof and the same intervals and slopes with joint multipliers, path started at mu."""
        chain = Chain(problem.network, moving_slopes(proof))
        if not chain.size:
            return proof
        x = self._minimise(chain, log_multipliers(proof), mu, end)
        return min(proof, problem.knowing(proof).sweep(chosen(chain, x)), key=lambda found: found.bound)

    def _minimise(self, chain: Chain, start: Array, mu: float, end: float) -> Array:
        best, least = start, np.inf
        x = start + _AWAY if mu == _WIDEST_MU else start
        while True:
            path = descend(lambda y, mu=mu: chain(y, mu), x, 0.05 * mu)  # type: ignore[misc]
            for step, (x, value) in enumerate(path):
                if value.log_bound < least:
                    best, least = x, value.log_bound
                if step >= self.iterations or time.perf_counter() > end:
                    break
            if mu <= self.tolerance or time.perf_counter() > end:
                return best
            mu = max(0.1 * mu, self.tolerance)


def log_multipliers(proof: Proof) -> Array:
    """The x of a proof: log T, true scale, active neurons of all layers in a row."""
    parts = [np.log(layer.multiplier[layer.multiplier > 0]) + layer.exponent * LOG4 for layer in proof.layers]
    return np.concatenate([np.zeros(0), *parts])


def moving_slopes(proof: Proof) -> list[tuple[Array, Array]]:
    """The slope ranges of a proof, one slope for neurons without a multiplier: those are affine or do not move."""
    slopes = []
    for layer in proof.layers:
        middle, still = 0.5 * (layer.alpha + layer.beta), layer.multiplier <= 0
        slopes.append((np.where(still, middle, layer.alpha), np.where(still, middle, layer.beta)))
    return slopes


def chosen(chain: Chain, x: Array) -> Callable[[Stage], Array]:
    """The choice of multipliers that x stands for."""
    parts = chain.split(x)

    def choose(stage: Stage) -> Array:
        T = np.zeros(stage.size)
        T[chain.neurons[stage.index]] = np.exp(parts[stage.index] - stage.exponent * LOG4)
        return stage.narrow(T)

    return choose


def kept(proof: Proof) -> Callable[[Stage], Array]:
    """The multipliers of a proof again, for slopes inside the ones it had."""

    def choose(stage: Stage) -> Array:
        layer = proof.layers[stage.index]
        T = np.exp(LOG4 * (layer.exponent - stage.exponent)) * stage.narrow(layer.multiplier)
        return np.where(stage.beta > stage.alpha, T, 0.0)

    return choose
