"""The one linear matrix inequality behind LipSDP, GeoLIP and the Eclipse family, and who solves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array, dense

OWN = "interior"
"""The name of lipcert's own interior-point method."""


class SolverFailed(ProofFailed):
    """A solver did not reach its accuracy; the message says what it reported."""


@dataclass(frozen=True, eq=False)
class Inequality:
    """Maximise c subject to K + Σ_k x_g(k)·(a_k b_kᵀ + b_k a_kᵀ)/2 - c·YYᵀ ≽ 0, x ≥ 0 and, if given, budget·x ≤ 1.

    ``left`` and ``right`` (n, k) hold the a and b as columns, ``groups`` (k,) the variable that multiplies each,
    ``start`` (g,) values of x for which the matrix is positive definite at c = 0 and the budget is not used up.
    """

    constant: Array
    left: sparse.csc_array
    right: sparse.csc_array
    output: Array
    groups: Array
    start: Array
    budget: Array | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """The largest c found, the x (g,) that goes with it, and an x nearly as good that is farther from the edge."""

    c: float
    x: Array
    roomy: Array


def solve(problem: Inequality, solver: str, tolerance: float = 1e-7) -> Solution:
    """Solve with lipcert's own interior-point method, or with a solver that cvxpy knows by that name.

    ``tolerance`` is what lipcert's own method may leave of c, relatively; cvxpy's solvers have settings of their own.
    """
    if not problem.output.any():
        return Solution(np.inf, problem.start, problem.start)
    from lipcert.published import conic, interior

    scaled = _Scaled.of(problem)
    found = interior.maximise(scaled.problem, tolerance) if solver == OWN else conic.maximise(scaled.problem, solver)
    return Solution(found.c * scaled.gain, found.x * problem.start, found.roomy * problem.start)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The same inequality with x = 1 at the start, unit diagonal there, and c = 1 half of what the start allows."""

    problem: Inequality
    gain: float

    @staticmethod
    def of(problem: Inequality) -> _Scaled:
        left = sparse.csc_array(problem.left * problem.start[problem.groups])
        matrix = problem.constant + symmetric_sum(left, problem.right, np.ones(problem.groups.size))
        diagonal = np.diagonal(matrix)
        if not (np.isfinite(diagonal).all() and (diagonal > 0.0).all()):
            raise SolverFailed("the inequality has no interior: the start is not feasible")
        size = np.sqrt(diagonal)
        shrink = sparse.diags_array(1.0 / size)
        output = problem.output / size[:, None]
        try:
            factor = linalg.cholesky(matrix / size / size[:, None], lower=True)
        except linalg.LinAlgError:
            raise SolverFailed("the inequality has no interior: the start is not feasible") from None
        reach = np.linalg.norm(linalg.solve_triangular(factor, output, lower=True), 2)
        gain = 0.5 / float(reach) ** 2
        scaled = Inequality(
            problem.constant / size / size[:, None],
            sparse.csc_array(shrink @ left),
            sparse.csc_array(shrink @ problem.right),
            output * np.sqrt(gain),
            problem.groups,
            np.ones(problem.start.size),
            None if problem.budget is None else problem.budget * problem.start,
        )
        return _Scaled(scaled, gain)


def symmetric_sum(left: Any, right: Any, x: Array) -> Array:
    """Σ_k x_k (a_k b_kᵀ + b_k a_kᵀ)/2, dense."""
    product = dense((left * x) @ right.T)
    return 0.5 * (product + product.T)


def check_solver(name: str) -> None:
    """Raise unless a solver of that name is at hand."""
    if name == OWN:
        return
    from lipcert.published.conic import installed

    known = installed()
    if name not in known:
        raise InvalidInput(f"solver must be {OWN!r} or one that cvxpy finds ({', '.join(known)}), got {name!r}")
