"""What a method is: a value that turns a problem into a candidate, or guides a proof layer by layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norms
from lipcert.proof.domain import Domain
from lipcert.proof.guide import Guide, View
from lipcert.proof.hints import Enclosure, Interval, Linear
from lipcert.runtime.clock import clock
from lipcert.runtime.costs import require_memory
from lipcert.search.candidate import Candidate
from lipcert.search.problem import Problem
from lipcert.search.stage import Stage
from lipcert.suggest.ellipsoids import start_near
from lipcert.suggest.lines import suggested_lines


class Method(ABC):
    """A way to obtain a certified bound. Methods are frozen values; their options are their fields."""

    @abstractmethod
    def solve(self, problem: Problem) -> Candidate:
        """Bound the problem's Lipschitz constant."""


class Greedy(Method):
    """A method that chooses the multipliers of each layer from what lies before it and the next weight.

    formula=True: the choice is a formula, and is asked for during the proof. Other methods search in floating point, to
    a tolerance, and what they find is proved afterwards.
    """

    formula: ClassVar[bool] = False

    @abstractmethod
    def choose(self, stage: Stage) -> Array:
        """Multipliers T ≥ 0, (n,), zero on neurons that are exactly affine, with T - D_r S D_r ≻ 0 on the others."""

    def choose_all(self, view: View) -> Array:
        """The same for a stack of regions, (count, n)."""
        stages = (Stage.single(view, which) for which in range(len(view.S)))
        return np.stack([self.choose(stage) for stage in stages])

    def solve(self, problem: Problem) -> Candidate:
        return problem.sweep(self.choose)


def hurried(choose: Callable[[Stage], Array], name: str) -> Callable[[Stage], Array]:
    """The same choice; it stops when time is up, and reports every layer."""

    def inner(stage: Stage) -> Array:
        now = clock()
        now.check()
        now.say(f"{name}, layer {stage.index + 1}: {stage.active.size} open slopes")
        return choose(stage)

    return inner


_CENTERS = 16
"""Regions of a stack whose Jacobians decide the first ellipsoid; all would take too long."""


@dataclass(frozen=True, eq=False)
class MethodGuide(Guide):
    """A greedy method as the guide of a proved sweep: it is asked for multipliers layer by layer."""

    method: Greedy
    enclosures: tuple[Enclosure, ...]

    def start(
        self, network: Network, domain: Domain | None, norms: Norms, moving: int, known: Sequence[Interval]
    ) -> Array | None:
        points = [] if domain is None or known else list(domain.center[:_CENTERS])
        one = [
            (low[..., 0, :] if low.ndim > 1 else low, high[..., 0, :] if high.ndim > 1 else high) for low, high in known
        ]
        return start_near(network, points, norms, one, moving)

    def multipliers(self, view: View) -> Array:
        return self.method.choose_all(view)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        tilts = [enclosure.tilt for enclosure in self.enclosures if isinstance(enclosure, Linear)]
        return suggested_lines(neurons, interval, tilts[which])

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        clock().say(f"{type(self.method).__name__}, layer {index + 1}: {size} neurons to carry")
        require_memory(size, index + 1, open_, ahead)
