"""What a method is: a value that turns a problem into a candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from lipcert.model.arrays import Array
from lipcert.proof.guide import View
from lipcert.runtime.clock import clock
from lipcert.search.candidate import Candidate
from lipcert.search.problem import Problem
from lipcert.search.stage import Stage


class Method(ABC):
    """A way to obtain a certified bound. Methods are frozen values; their options are their fields."""

    @abstractmethod
    def solve(self, problem: Problem) -> Candidate:
        """Bound the problem's Lipschitz constant."""


class Greedy(Method):
    """A method that chooses the multipliers of each layer from what lies before it and the next weight.

    ``formula`` says that the choice is a formula: asked during the proof it leads to the same bound. Others search to a
    tolerance, so they search in floating point, and what they find is proved afterwards.
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
    """The same choice, given up when time is up, with a word on every layer."""

    def inner(stage: Stage) -> Array:
        now = clock()
        now.check()
        now.say(f"{name}, layer {stage.index + 1}: {stage.active.size} open slopes")
        return choose(stage)

    return inner
