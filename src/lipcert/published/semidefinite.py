"""The one linear matrix inequality behind LipSDP, GeoLIP and the Eclipse family, and how it is solved.

General conic solvers factor systems of the size of the matrix squared. Here only the multipliers x and c are unknowns,
so each step of a primal-dual interior-point method factors a matrix of their number, filled by products of small ones
because every coefficient matrix has rank two. This is the search direction of Helmberg, Rendl, Vanderbei and Wolkowicz
(SIAM J. Optim. 6, 1996) with Mehrotra's predictor and corrector.

The iterates (x, c) are feasible throughout, so the c returned is never too large; the matrix X of the dual problem

    minimise tr(KX) + h·s   subject to   tr(YYᵀX) = 1,   tr(F_k X) + (Rᵀs)_k = 0,   X ≽ 0, s ≥ 0

says how far it is from the best. R and h collect x ≥ 0 and the budget as h + Rx ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from lipcert.errors import ProofFailed
from lipcert.methods.eigenvalues import inverse_of
from lipcert.model.arrays import Array, dense

_ROOMY = 1e-4
"""Distance at which x is kept as the roomy one: nearer the optimum the matrix nears the edge of its cone."""
_ENOUGH = 1e-6
"""What is still an answer when rounding ends the progress: a bound sqrt(1/c) good to six digits."""
_ITERATIONS = 120
"""Most steps; LipSDP takes 16 to 21 for the paper's networks of 10 × 5 to 10 × 10."""
_PATIENCE = 8
"""Steps without progress that are taken for the end of it."""
_LANCZOS = 200
"""Matrix size from which the step to the boundary is found by Lanczos instead of a full decomposition."""


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


def symmetric_sum(left: Any, right: Any, x: Array) -> Array:
    """Σ_k x_k (a_k b_kᵀ + b_k a_kᵀ)/2, dense."""
    product = dense((left * x) @ right.T)
    return 0.5 * (product + product.T)


def solve(problem: Inequality, tolerance: float = 1e-7) -> Solution:
    """The largest c, to the relative tolerance or what rounding allows, six digits at least."""
    if not problem.output.any():
        return Solution(np.inf, problem.start, problem.start)
    scaled, gain = _scaled(problem)
    found = _maximise(scaled, tolerance)
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


def _maximise(problem: Inequality, tolerance: float) -> Solution:
    """The same for a problem that is scaled so that x = 1, c = 1 is well inside."""
    if not problem.start.size:
        return Solution(2.0, problem.start, problem.start)
    program = _Program.of(problem)
    step = best = _Step(program, program.begin())
    roomy, idle = None, 0
    for _ in range(_ITERATIONS):
        if roomy is None and step.gap <= _ROOMY:
            roomy = step.point.x
        best, idle = (step, 0) if step.gap < 0.9 * best.gap or roomy is None else (best, idle + 1)
        point = None if step.gap <= tolerance or idle > _PATIENCE else step.take()
        if point is None:
            break
        step = _Step(program, point)
    if roomy is None or best.gap > _ENOUGH:
        raise SolverFailed(
            f"the interior-point method stopped {best.gap:.1e} from the optimum, short of six digits;"
            " the weights may be ill-scaled"
        )
    return Solution(best.point.c, best.point.x, roomy)


@dataclass(frozen=True, eq=False)
class _Program:
    """The inequality, with what every step needs of it."""

    problem: Inequality
    A: Any  # a as columns, (n, k); sparse if that pays
    B: Any
    left: Any  # the same as rows
    right: Any
    square: Array  # YYᵀ
    R: Array
    h: Array

    @staticmethod
    def of(problem: Inequality) -> _Program:
        count = problem.start.size
        R, h = np.eye(count), np.zeros(count)
        if problem.budget is not None:
            R, h = np.vstack([R, -problem.budget]), np.append(h, 1.0)
        A, B = (part.toarray() if _crowded(part) else part for part in (problem.left, problem.right))
        left, right = (part.T.tocsr() if sparse.issparse(part) else part.T for part in (A, B))
        return _Program(problem, A, B, left, right, problem.output @ problem.output.T, R, h)

    def matrix(self, x: Array, c: float) -> Array:
        return self.problem.constant + self.change(x, c)

    def change(self, x: Array, c: float) -> Array:
        """Σ x F - c YYᵀ."""
        return symmetric_sum(self.A, self.B, x[self.problem.groups]) - c * self.square

    def pairing(self, X: Array) -> Array:
        """tr(F_k X) for each variable, (g,)."""
        product = self.left @ X
        if sparse.issparse(self.right):
            return self.collect(np.asarray(self.right.multiply(product).sum(axis=1)).ravel())
        return self.collect(np.einsum("ij,ij->i", self.right, product))

    def collect(self, pairs: Array) -> Array:
        """Sums over the pairs that share a variable, (k,) to (g,)."""
        return np.bincount(self.problem.groups, weights=pairs, minlength=self.problem.start.size)

    def begin(self) -> _Point:
        x, c = self.problem.start, 1.0
        factor = linalg.cholesky(self.matrix(x, c), lower=True)
        X = inverse_of(factor)
        weight = 1.0 / float(np.sum(self.square * X))
        return _Point(x, c, factor, weight * X, weight / (self.h + self.R @ x))


def _crowded(matrix: sparse.csc_array) -> bool:
    """Whether a matrix is small or full enough that a dense one is faster."""
    return bool(matrix.shape[0] <= 150 or matrix.nnz > 0.2 * matrix.shape[0] * matrix.shape[1])


@dataclass(frozen=True, eq=False)
class _Point:
    """x, c with the Cholesky factor of their matrix; X and s of the dual problem."""

    x: Array
    c: float
    factor: Array
    X: Array
    s: Array


@dataclass(frozen=True, eq=False)
class _Move:
    """A direction in all unknowns; ``matrix`` is what (x, c) do to the inequality's matrix."""

    x: Array
    c: float
    matrix: Array
    X: Array
    s: Array


class _Step:
    """One predictor-corrector step from a point."""

    def __init__(self, program: _Program, point: _Point) -> None:
        self.program, self.point = program, point
        self.inverse = inverse_of(point.factor)
        self.slack = program.h + program.R @ point.x
        self.matrix = program.matrix(point.x, point.c)
        self.order = self.matrix.shape[0] + self.slack.size
        self.mu = (float(np.sum(point.X * self.matrix)) + float(point.s @ self.slack)) / self.order
        astray = np.abs(program.pairing(point.X) + program.R.T @ point.s) @ point.x
        astray += abs(1.0 - float(np.sum(program.square * point.X))) * point.c
        self.gap = (self.order * self.mu + float(astray)) / point.c

    def take(self) -> _Point | None:
        """The next point, or None where rounding allows no further step."""
        try:
            self._factorise()
            root = linalg.cholesky(self.point.X, lower=True, check_finite=False)
            guess = self._direction(0.0, None)
            dual, primal = (min(1.0, 0.98 * length) for length in self._lengths(guess, root))
            sigma = self._centring(guess, dual, primal)
            move = self._direction(sigma * self.mu, guess)
            dual, primal = (min(1.0, 0.95 * length) for length in self._lengths(move, root))
        except (linalg.LinAlgError, ArpackError):
            return None
        if move.c < 0.0:
            primal = min(primal, -0.9 * self.point.c / move.c)
        return self._moved(move, dual, primal)

    def _factorise(self) -> None:
        """The system for (x, c): entries tr(F_j X F_k G⁻¹) and s/slack, scaled to unit diagonal."""
        p, X, G = self.program, self.point.X, self.inverse
        Xa, Xb, Ga, Gb = p.left @ X, p.right @ X, p.left @ G, p.right @ G
        A, B, Y = p.A, p.B, p.problem.output
        Xab, Gab = Xa @ B, Ga @ B
        pairs = 0.25 * ((Xa @ A) * (Gb @ B) + Xab * Gab.T + Xab.T * Gab + (Xb @ B) * (Ga @ A))
        count = self.point.x.size
        system = np.empty((count + 1, count + 1))
        if count < p.problem.groups.size:
            pairs = np.apply_along_axis(p.collect, 0, np.apply_along_axis(p.collect, 1, pairs))
        system[:count, :count] = 0.5 * (pairs + pairs.T) + (p.R.T * (self.point.s / self.slack)) @ p.R
        XY, GY = X @ Y, G @ Y
        mixed = (p.left @ XY) * (p.right @ GY) + (p.right @ XY) * (p.left @ GY)
        system[:count, count] = system[count, :count] = -0.5 * p.collect(mixed.sum(axis=1))
        system[count, count] = float(np.sum((Y.T @ XY) * (Y.T @ GY)))
        self.system = system
        self.unit = 1.0 / np.sqrt(np.diagonal(system))
        scaled = self.unit[:, None] * system * self.unit
        for jitter in (0.0, 1e-15, 1e-13, 1e-11):
            try:
                self.root = linalg.cho_factor(scaled + jitter * np.eye(count + 1), check_finite=False)
                return
            except linalg.LinAlgError:
                continue
        raise linalg.LinAlgError("the step's system is singular to working precision")

    def _direction(self, target: float, guess: _Move | None) -> _Move:
        """Towards X G = target·I; a guess adds the second-order term that it lets us foresee."""
        p, point = self.program, self.point
        aim, level = target * self.inverse, target / self.slack
        if guess is not None:
            bend = guess.X @ guess.matrix @ self.inverse
            aim = aim - 0.5 * (bend + bend.T)
            level = level - guess.s * (p.R @ guess.x) / self.slack
        wanted = np.append(p.pairing(aim) + p.R.T @ level, 1.0 - float(np.sum(p.square * aim)))
        move = np.zeros(wanted.size)
        for _ in range(3):  # with iterative refinement
            rest = wanted - self.system @ move
            move = move + self.unit * linalg.cho_solve(self.root, self.unit * rest, check_finite=False)
        x, c = move[:-1], float(move[-1])
        matrix = p.change(x, c)
        turn = point.X @ matrix @ self.inverse
        s = level - point.s - (point.s / self.slack) * (p.R @ x)
        return _Move(x, c, matrix, aim - point.X - 0.5 * (turn + turn.T), s)

    def _lengths(self, move: _Move, root: Array) -> tuple[float, float]:
        """How far X and s, and x and c, may go before they leave their cones."""
        dual = min(_reach(root, move.X), _ratio(self.point.s, move.s))
        return dual, min(_reach(self.point.factor, move.matrix), _ratio(self.slack, self.program.R @ move.x))

    def _centring(self, guess: _Move, dual: float, primal: float) -> float:
        if min(dual, primal) < 0.1:
            return 0.8
        X, s = self.point.X + dual * guess.X, self.point.s + dual * guess.s
        after = float(np.sum(X * (self.matrix + primal * guess.matrix)))
        after += float(s @ (self.slack + primal * (self.program.R @ guess.x)))
        return float(np.clip((after / self.order / self.mu) ** 3, 1e-6, 1.0))

    def _moved(self, move: _Move, dual: float, primal: float) -> _Point | None:
        """The point after the move, shortened until both matrices are positive definite in floating point."""
        point = self.point
        while primal > 1e-10:
            x, c = point.x + primal * move.x, point.c + primal * move.c
            factor, failed = linalg.lapack.dpotrf(self.program.matrix(x, c), lower=1, clean=1)
            if not failed:
                break
            primal *= 0.8
        else:
            return None
        while dual > 1e-10:
            X = point.X + dual * move.X
            X = 0.5 * (X + X.T)
            if not linalg.lapack.dpotrf(X, lower=1)[1]:
                return _Point(x, c, factor, X, point.s + dual * move.s)
            dual *= 0.8
        return None


def _ratio(values: Array, move: Array) -> float:
    falling = move < 0
    return float(np.min(-values[falling] / move[falling])) if falling.any() else np.inf


def _reach(root: Array, move: Array) -> float:
    """About the largest t for which root·rootᵀ + t·move stays positive semidefinite."""
    size = len(root)

    def apply(vector: Array) -> Array:
        inner = linalg.solve_triangular(root, vector, lower=True, trans="T", check_finite=False)
        return np.asarray(linalg.solve_triangular(root, move @ inner, lower=True, check_finite=False))

    if size < _LANCZOS:
        half = linalg.solve_triangular(root, move, lower=True, check_finite=False)
        whole = linalg.solve_triangular(root, half.T, lower=True, check_finite=False)
        least = float(linalg.eigh(0.5 * (whole + whole.T), eigvals_only=True, subset_by_index=[0, 0])[0])
    else:
        operator = LinearOperator((size, size), matvec=apply, dtype=float)
        found = eigsh(operator, k=1, which="SA", tol=1e-3, ncv=30, v0=np.ones(size), return_eigenvectors=False)
        least = float(found[0]) - 0.01 * abs(float(found[0]))
    return np.inf if least >= 0.0 else -1.0 / least
