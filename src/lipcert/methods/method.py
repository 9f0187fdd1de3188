"""What a method is: a value that turns a problem into a candidate."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lipcert.kernel.guide import View
from lipcert.methods.candidate import Candidate
from lipcert.methods.guide import one_by_one
from lipcert.methods.problem import Problem
from lipcert.methods.stage import Stage
from lipcert.model.arrays import Array


class Method(ABC):
    """A way to obtain a certified bound. Methods are frozen values; their options are their fields."""

    @abstractmethod
    def solve(self, problem: Problem) -> Candidate:
        """Bound the problem's Lipschitz constant."""


class Greedy(Method):
    """A method that chooses the multipliers of each layer from what lies before it and the next weight."""

    @abstractmethod
    def choose(self, stage: Stage) -> Array:
        """Multipliers T ≥ 0, (n,), zero on neurons that are exactly affine, with T - D_r S D_r ≻ 0 on the others."""

    def choose_all(self, view: View) -> Array:
        """The same for a stack of regions, (count, n)."""
        return one_by_one(self.choose)(view)

    def solve(self, problem: Problem) -> Candidate:
        return problem.guided(self.choose_all, type(self).__name__)
