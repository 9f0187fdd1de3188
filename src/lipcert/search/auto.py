"""Any-time bounds: what to run next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from lipcert.runtime.progress import Report, watched
from lipcert.search.candidate import Candidate
from lipcert.search.closed_form import ClosedForm
from lipcert.search.joint import WIDEST_MU, Interrupted, Joint
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.scalar import Scalar
from lipcert.search.split import Split

_SCALAR_COST = 4.0
"""A Scalar sweep takes about this many ClosedForm sweeps."""
_JOINT_COST = 4.0
"""So many ClosedForm sweeps are the least that Joint takes to be of use."""
_PROOF_COST = 2.0
"""So many ClosedForm sweeps are left for the proof that follows."""


@dataclass(frozen=True)
class Auto(Method):
    """The best bound that fits into a time: ClosedForm at once, then Scalar, Joint and Split while time is left.

    An interrupt (Ctrl-C) after the first bound returns the best so far.

    Parameters
    ----------
    seconds
        About how long it may take; the first bound is computed however long it takes.
    pieces
        Pieces that Split may cut the region into, about; None is no limit. With ``seconds=inf`` what is found does not
        depend on the machine.
    """

    seconds: float = 10.0
    pieces: int | None = None

    def solve(self, problem: Problem) -> Candidate:
        started = time.perf_counter()
        with watched() as report:
            best = problem.sweep(ClosedForm().choose)
            sweep = time.perf_counter() - started
            report(f"bound {best.bound:.4g} (closed form)")
            end = started + self.seconds - _PROOF_COST * sweep
            return _last(best, _climb(problem, best, sweep, end, self.pieces, report))

    def improve(self, problem: Problem, candidate: Candidate, mu: float = WIDEST_MU) -> Candidate:
        """The best of a candidate and what Joint and Split make of it in the time."""
        end = time.perf_counter() + self.seconds
        with watched() as report:
            return _last(candidate, _finish(problem, candidate, mu, end, self.pieces, report))


def _last(best: Candidate, candidates: Iterator[Candidate]) -> Candidate:
    """The best of all; an interrupt ends them."""
    try:
        for candidate in candidates:
            best = min(best, candidate, key=lambda found: found.bound)
    except Interrupted as interrupt:
        best = min(best, interrupt.candidate, key=lambda found: found.bound)
    except KeyboardInterrupt:
        pass
    return best


def _climb(
    problem: Problem, best: Candidate, sweep: float, end: float, pieces: int | None, report: Report
) -> Iterator[Candidate]:
    """The candidates of one rung after the other, while the predicted time of the next fits.

    The cost per layer is constant, so the time of one ClosedForm sweep tells that of the others.
    """
    if time.perf_counter() + _SCALAR_COST * sweep > end:
        return
    scalar = problem.sweep(Scalar().choose)
    yield scalar
    best = min(best, scalar, key=lambda found: found.bound)
    report(f"bound {best.bound:.4g} (scalar)")
    if time.perf_counter() + _JOINT_COST * sweep < end:
        yield from _finish(problem, best, WIDEST_MU, end, pieces, report)


def _finish(
    problem: Problem, best: Candidate, mu: float, end: float, pieces: int | None, report: Report
) -> Iterator[Candidate]:
    """Joint, then Split where the region can be cut."""
    best = Joint().improve(problem, best, end, mu, report)
    yield best
    if time.perf_counter() < end and problem.region.bounded:
        yield Split(pieces=pieces).refine(problem, best, end)
