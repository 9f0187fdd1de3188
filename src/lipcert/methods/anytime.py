"""Anytime methods: they can be stopped at any moment and then have an answer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from lipcert.methods.candidate import Candidate
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.method import Method
from lipcert.methods.problem import Problem
from lipcert.runtime.clock import OutOfTime, timed


class Anytime(Method):
    """A method that improves its answer until its time is up.

    ``seconds`` limits the whole question, the proof included. The first bound, that of ClosedForm, is always computed.
    """

    seconds: float | None

    @abstractmethod
    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """What is found after the start, until nothing is left to gain or time is up.

        An interrupt is raised again after the current candidate.
        """

    def solve(self, problem: Problem) -> Candidate:
        with timed(self.seconds) as clock:
            started = time.perf_counter()
            start = replace(ClosedForm().solve(problem), found_by="ClosedForm")
            clock.sweep = time.perf_counter() - started
            return best_of(self.candidates(problem, start), start)


def best_of(candidates: Iterator[Candidate], best: Candidate) -> Candidate:
    """The candidate with the least bound; the end of the time ends them."""
    try:
        for candidate in candidates:
            best = candidate if candidate.bound < best.bound else best
    except OutOfTime:
        return best
    return best
