"""Candidates of an anytime method, for a network or for some of its inputs, outputs or layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from lipcert.kernel.hints import Part
from lipcert.methods.anytime import Anytime
from lipcert.methods.auto import Auto
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.joint import Joint
from lipcert.methods.lower import jacobian_norms
from lipcert.methods.method import Candidate, Method, Problem
from lipcert.methods.split import Split, affordable, can_cut
from lipcert.model.regions import Ball
from lipcert.runtime.clock import clock

_POINTS = 32
"""Points at which the Jacobian of the whole network is computed before its bound is tried for a part."""


def is_bounded_by_whole(part: Part, problem: Problem) -> bool:
    """Whether a bound of the whole network also holds for the part: same ‖Δx‖, and ‖Δf‖ is no larger."""
    return part.layers == (0, problem.network.depth) and part.norms.plain


def candidates(problem: Problem, part: Part, method: Anytime) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs: a candidate of the whole network, which gives the intervals, and a candidate of the part.

    The first is that of ClosedForm. Both are the same if the part is the whole network, and where a bound of the whole
    network is tried for the part. Only whole networks are split. So a method that splits spends half of its time on the
    whole network, unless the Jacobian at some point shows that its bound would be too large.
    """
    whole, now = _closed_form(problem), clock()
    if part.is_whole(problem.network):
        yield whole, whole
        for found in method.candidates(problem, whole):
            yield found, found
        return
    yield whole, _closed_form(problem.restrict(part, whole))
    for found in islice(Joint().candidates(problem, whole), 2):
        whole = found
    piece = problem.restrict(part, whole)
    first = _closed_form(piece)
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


def _closed_form(problem: Problem) -> Candidate:
    return replace(ClosedForm().solve(problem), found_by="ClosedForm")


def _cuts(method: Method, problem: Problem) -> bool:
    """Whether a method splits the region of a whole network."""
    return isinstance(method, (Auto, Split)) and can_cut(problem) and affordable(problem, 0.5)


def _exceeded(problem: Problem, bound: float) -> bool:
    """Whether the Jacobian of the whole network exceeds the bound somewhere; then no bound of it is smaller."""
    region = problem.region if problem.region.bounded else Ball(np.zeros(problem.network.inputs), 1.0)
    return bool(jacobian_norms(problem.network, region.sample(_POINTS, np.random.default_rng(0))).max() >= bound)
