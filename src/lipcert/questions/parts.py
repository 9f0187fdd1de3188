"""What a method finds step by step for a network, or for some of its inputs, outputs or layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from lipcert.model.regions import Ball
from lipcert.proof.hints import Part
from lipcert.runtime.clock import clock
from lipcert.search.anytime import Anytime
from lipcert.search.auto import Auto
from lipcert.search.candidate import Candidate
from lipcert.search.closed_form import ClosedForm
from lipcert.search.joint import Joint
from lipcert.search.lower import jacobian_norms
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.split import Split, affordable, can_cut

_POINTS = 32
"""Points at which the whole network's Jacobian is looked at before a bound of it is tried for a part."""


def is_bounded_by_whole(part: Part, problem: Problem) -> bool:
    """Whether a bound of the whole network is one of the part: ‖Δx‖ is the same there, and ‖Δf‖ is no larger."""
    return part.layers == (0, problem.network.depth) and part.norms.plain


def candidates(
    problem: Problem, part: Part, method: Anytime, start: Candidate
) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs: a candidate of the whole network, whose intervals count, and one of the part that rests on it.

    They are the same if the part is all of the network, and where a bound of the whole network is tried for the part.
    Regions are cut for whole networks only, so methods that cut get half of the time for that, unless points show that
    it leads nowhere.
    """
    if part.is_whole(problem.network):
        yield start, start
        for found in method.candidates(problem, start):
            yield found, found
        return
    whole, now = start, clock()
    for found in islice(Joint().candidates(problem, start), 2):
        whole = found
    piece = problem.restrict(part, whole)
    first = replace(piece.sweep(ClosedForm().choose), found_by="ClosedForm")
    yield whole, first
    least = first.bound
    cuts = is_bounded_by_whole(part, problem) and _cuts(method, problem)
    with now.sharing(0.5 * now.left if cuts else np.inf):
        for found in method.candidates(piece, first):
            yield whole, found
            least = min(least, found.bound)
    if cuts and not _exceeded(problem, least):
        for found in method.candidates(problem, whole):
            yield found, found


def _cuts(method: Method, problem: Problem) -> bool:
    """Whether a method would cut the region of a whole network."""
    return isinstance(method, (Auto, Split)) and can_cut(problem) and affordable(problem, 0.5)


def _exceeded(problem: Problem, bound: float) -> bool:
    """Whether the whole network's Jacobian is larger somewhere, so that no bound of the whole is smaller."""
    region = problem.region if problem.region.bounded else Ball(np.zeros(problem.network.inputs), 1.0)
    return bool(jacobian_norms(problem.network, region.sample(_POINTS, np.random.default_rng(0))).max() >= bound)
