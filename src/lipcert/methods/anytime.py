"""Anytime methods: stopped at any moment, they have a proved bound."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.method import Candidate, Method, Problem
from lipcert.runtime.clock import OutOfTime, timed


class Anytime(Method):
    """A method that improves its answer until its time is up.

    ``seconds`` limits the whole question, the proof included. The first bound, that of ClosedForm, is always computed.
    """

    seconds: float | None

    @abstractmethod
    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """Better candidates than the start, until no more gain is expected or time is up.

        At an interrupt the current candidate still comes, then the interrupt is raised again.
        """

    def solve(self, problem: Problem) -> Candidate:
        with timed(self.seconds) as clock:
            started = time.perf_counter()
            start = replace(ClosedForm().solve(problem), found_by="ClosedForm")
            clock.sweep = time.perf_counter() - started
            return best_of(self.candidates(problem, start), start)


def best_of(candidates: Iterator[Candidate], best: Candidate) -> Candidate:
    """The candidate with the least bound among those found before time is up."""
    try:
        for candidate in candidates:
            best = candidate if candidate.bound < best.bound else best
    except OutOfTime:
        return best
    return best
