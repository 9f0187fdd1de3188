"""Methods that may be stopped at any moment, and then have an answer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from lipcert.runtime.clock import OutOfTime, timed
from lipcert.search.candidate import Candidate
from lipcert.search.closed_form import ClosedForm
from lipcert.search.method import Method
from lipcert.search.problem import Problem

_PROVED = 2.0
"""A sweep takes about so many times as long with its proof."""


class Anytime(Method):
    """A method that goes on improving its answer for as long as it is given.

    ``seconds``, a field of the methods themselves, limits the whole question, the proof included. The first bound,
    that of ClosedForm, is computed however long it takes.
    """

    seconds: float | None

    @abstractmethod
    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """What is found after the start, one candidate after the other, until nothing is left to gain or time is up.

        An interrupt is raised after the candidate that was being worked on.
        """

    def solve(self, problem: Problem) -> Candidate:
        with timed(self.seconds) as clock:
            started = time.perf_counter()
            start = replace(problem.sweep(ClosedForm().choose), found_by="ClosedForm")
            clock.sweep = _PROVED * (time.perf_counter() - started)
            return best_of(self.candidates(problem, start), start)


def best_of(candidates: Iterator[Candidate], best: Candidate) -> Candidate:
    """The candidate with the least bound; the end of the time ends them."""
    try:
        for candidate in candidates:
            best = candidate if candidate.bound < best.bound else best
    except OutOfTime:
        return best
    return best
