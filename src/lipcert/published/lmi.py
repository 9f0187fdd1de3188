"""Who solves the linear matrix inequalities of the literature."""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import InvalidInput
from lipcert.published.inequality import Inequality, Solution, SolverFailed, symmetric_sum

OWN = "interior"
"""The name of lipcert's own interior-point method."""


def solve(problem: Inequality, solver: str, tolerance: float = 1e-7) -> Solution:
    """Solve with lipcert's own interior-point method, or with a solver that cvxpy knows by that name.

    ``tolerance`` is what lipcert's own method may leave of c, relatively; cvxpy's solvers have settings of their own.
    """
    if not problem.output.any():
        return Solution(np.inf, problem.start, problem.start)
    from lipcert.published import conic, interior

    scaled, gain = _scaled(problem)
    found = interior.maximise(scaled, tolerance) if solver == OWN else conic.maximise(scaled, solver)
    return Solution(found.c * gain, found.x * problem.start, found.roomy * problem.start)


def _scaled(problem: Inequality) -> tuple[Inequality, float]:
    """The same with x = 1 at the start, unit diagonal there, and c = 1 half of what the start allows; and c's unit."""
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
    return scaled, gain


def check_solver(name: str) -> None:
    """Raise unless a solver of that name is at hand."""
    if name == OWN:
        return
    from lipcert.published.conic import installed

    known = installed()
    if name not in known:
        raise InvalidInput(f"solver must be {OWN!r} or one that cvxpy finds ({', '.join(known)}), got {name!r}")
