"""Any-time bounds: what to run next."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lipcert.multipliers import ClosedForm, Joint, Method, Scalar
from lipcert.progress import watched
from lipcert.split import Split

if TYPE_CHECKING:
    from lipcert.certificate import Proof
    from lipcert.certify import Problem

_SCALAR_COST = 4.0
"""A Scalar sweep takes about this many ClosedForm sweeps."""


@dataclass(frozen=True)
class Auto(Method):
    """The best bound that fits into a time: ClosedForm at once, then Scalar, Joint and Split while time is left.

    An interrupt (Ctrl-C) after the first bound returns the best so far.

    Parameters
    ----------
    seconds
        About how long it may take; the first bound is computed however long it takes.
    """

    seconds: float = 10.0

    def solve(self, problem: Problem) -> Proof:
        started = time.perf_counter()
        end = started + self.seconds
        with watched() as report:
            best = problem.sweep(ClosedForm().choose)
            sweep = time.perf_counter() - started
            try:
                report(f"bound {best.bound:.4g} (closed form); Scalar next")
                if time.perf_counter() + _SCALAR_COST * sweep > end:
                    return best
                best = _better(best, problem.sweep(Scalar().choose))
                report(f"bound {best.bound:.4g} (scalar); Joint next")
                if time.perf_counter() < end:
                    best = _better(best, Joint().improve(problem, best, end))
                if time.perf_counter() < end and problem.region.bounded:
                    best = Split().refine(problem, best, end)
            except KeyboardInterrupt:
                report(f"interrupted; bound {best.bound:.4g} kept")
        return best


def _better(one: Proof, two: Proof) -> Proof:
    return one if one.bound <= two.bound else two
