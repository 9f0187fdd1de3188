"""The default method: it runs one method after the other while they pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lipcert.kernel.taylor import MOST_INPUTS
from lipcert.methods.joint import Anytime, Joint
from lipcert.methods.method import Candidate, Problem
from lipcert.methods.second_order_jacobian import improved, suits
from lipcert.methods.split import FEW_INPUTS, Split, affordable, can_cut
from lipcert.runtime.clock import clock

_SHARE = 0.5
"""Share of the time that Joint gets if Split comes after it."""


@dataclass(frozen=True)
class Auto(Anytime):
    """The best bound that fits into a time: ClosedForm at once, then Scalar, Joint and Split while time is left.

    Networks with smooth slopes and many inputs also get a second-order bound over a ball, after Joint.

    It ends early if neither another method nor more pieces are expected to help. ``found_by`` of the certificate says
    which method found the bound.

    Parameters
    ----------
    seconds
        How long it may take, proof included; the first bound is computed however long it takes.
    pieces
        Pieces that Split may cut the region into, about; None is no limit. With ``seconds=inf`` what is found does not
        depend on the machine.
    """

    seconds: float = 10.0
    pieces: int | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """The candidates of one method after the other, while there is time."""
        best, now = start, clock()
        few = can_cut(problem) and problem.network.inputs <= FEW_INPUTS
        pieces = few and affordable(problem, 1.0 - _SHARE)
        with now.sharing(_SHARE * now.left if pieces else np.inf):
            for candidate in Joint().candidates(problem, start):
                yield candidate
                best = min(best, candidate, key=lambda found: found.bound)
        if problem.network.inputs > MOST_INPUTS and suits(problem, best):
            for candidate in improved(problem, best):
                yield candidate
                return  # pieces of many inputs hardly bend less
        if can_cut(problem):
            yield from Split(pieces=self.pieces).refined(problem, best, impatient=True)
