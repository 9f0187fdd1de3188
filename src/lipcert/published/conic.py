"""Semidefinite programs through cvxpy: what is asked of a solver, and what counts as an answer."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput
from lipcert.published.inequality import Inequality, Solution, SolverFailed

ACCURACY: Final[dict[str, dict[str, Any]]] = {
    "CLARABEL": {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9},
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000},
    "MOSEK": {
        "mosek_params": {
            "MSK_DPAR_INTPNT_CO_TOL_REL_GAP": 1e-9,
            "MSK_DPAR_INTPNT_CO_TOL_PFEAS": 1e-9,
            "MSK_DPAR_INTPNT_CO_TOL_DFEAS": 1e-9,
        }
    },
}
"""Settings tight enough that a bound read from the answer holds to six digits; other solvers run with their own."""


def cvxpy() -> Any:
    """The module, or an error that says how to get it."""
    try:
        import cvxpy as module
    except ImportError:
        raise InvalidInput(
            "this solver needs cvxpy: pip install 'lipcert[sdp]'; solver='interior' comes with lipcert"
        ) from None
    return module


def installed() -> list[str]:
    """Names of the solvers at hand that know semidefinite cones."""
    known: list[str] = cvxpy().installed_solvers()
    capable = ("CLARABEL", "SCS", "MOSEK", "COPT", "SDPA", "CVXOPT")
    return [name for name in capable if name in known]


def answer(program: Any, solver: str) -> None:
    """Solve a cvxpy problem; anything short of ``optimal`` is an error."""
    module = cvxpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an inaccurate answer is an error below, not a warning
        try:
            program.solve(solver=solver, **ACCURACY.get(solver, {}))
        except module.error.SolverError as error:
            raise SolverFailed(f"{solver} failed: {error}; try solver='interior' or another one") from error
    if program.status != module.OPTIMAL:
        raise SolverFailed(
            f"{solver} ended with status {program.status!r}, so there is no bound; try solver='interior' or another one"
        )


def maximise(problem: Inequality, solver: str) -> Solution:
    """The inequality as a cvxpy problem."""
    module = cvxpy()
    size, count = problem.output.shape[0], problem.start.size
    x, c = module.Variable(count, nonneg=True), module.Variable()
    matrix = problem.constant - c * (problem.output @ problem.output.T)
    if count:
        matrix = matrix + module.reshape(_entries(problem) @ x, (size, size), order="C")
    constraints = [matrix >> 0]
    if problem.budget is not None:
        constraints.append(problem.budget @ x <= 1.0)
    program = module.Problem(module.Maximize(c), constraints)
    answer(program, solver)
    if not float(c.value) > 0.0:
        raise SolverFailed(f"{solver} found no positive c; try solver='interior' or another one")
    found = np.maximum(np.atleast_1d(x.value), 0.0)
    return Solution(float(c.value), found, found)


def _entries(problem: Inequality) -> Any:
    """The matrices that x multiplies, flattened, as columns (n², g)."""
    size = problem.output.shape[0]
    rows, columns, values = [], [], []
    for k, group in enumerate(problem.groups):
        a, b = problem.left[:, [k]], problem.right[:, [k]]
        outer = sparse.coo_array(0.5 * (a @ b.T + b @ a.T))
        rows.append(outer.coords[0] * size + outer.coords[1])
        columns.append(np.full(outer.nnz, group))
        values.append(outer.data)
    place = np.concatenate(rows), np.concatenate(columns)
    return sparse.csr_array((np.concatenate(values), place), shape=(size * size, problem.start.size))
