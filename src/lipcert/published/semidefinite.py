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
_SHORTER, _SHORTEST = 0.8, 1e-10
"""Steps that leave a cone are shortened by the first until they stay, and given up below the second."""


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
    try:
        if not (np.isfinite(diagonal).all() and (diagonal > 0.0).all()):
            raise linalg.LinAlgError
        size = np.sqrt(diagonal)
        factor = linalg.cholesky(matrix / size / size[:, None], lower=True)
    except linalg.LinAlgError:
        raise SolverFailed("the inequality has no interior: the start is not feasible") from None
    shrink, output = sparse.diags_array(1.0 / size), problem.output / size[:, None]
    gain = 0.5 / float(np.linalg.norm(linalg.solve_triangular(factor, output, lower=True), 2)) ** 2
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
    program = _Program(problem)
    point = best = program.begin()
    roomy, idle = None, 0
    for _ in range(_ITERATIONS):
        if roomy is None and point.gap <= _ROOMY:
            roomy = point.x
        best, idle = (point, 0) if point.gap < 0.9 * best.gap or roomy is None else (best, idle + 1)
        if point.gap <= tolerance or idle > _PATIENCE:
            break
        try:
            point = _Step(program, point).take()
        except linalg.LinAlgError:  # rounding allows no further step
            break
    if roomy is None or best.gap > _ENOUGH:
        raise SolverFailed(
            f"the interior-point method stopped {best.gap:.1e} from the optimum, short of six digits;"
            " the weights may be ill-scaled"
        )
    return Solution(best.c, best.x, roomy)


@dataclass(frozen=True, eq=False)
class _Point:
    """x, c with the Cholesky factor of their matrix; X and s of the dual problem; how far they are from the best."""

    x: Array
    c: float
    matrix: Array
    factor: Array
    slack: Array  # h + R x
    X: Array
    s: Array
    mu: float
    gap: float


class _Program:
    """The inequality, with what every step needs of it."""

    def __init__(self, problem: Inequality) -> None:
        self.problem, count = problem, problem.start.size
        self.R, self.h = np.eye(count), np.zeros(count)
        if problem.budget is not None:
            self.R, self.h = np.vstack([self.R, -problem.budget]), np.append(self.h, 1.0)
        self.A, self.B = (part.toarray() if _crowded(part) else part for part in (problem.left, problem.right))
        self.left, self.right = (part.T.tocsr() if sparse.issparse(part) else part.T for part in (self.A, self.B))
        self.square = problem.output @ problem.output.T
        self.order = len(self.square) + self.h.size

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
        x = self.problem.start
        X = inverse_of(linalg.cholesky(self.problem.constant + self.change(x, 1.0), lower=True))
        weight = 1.0 / float(np.sum(self.square * X))
        return self.point(x, 1.0, weight * X, weight / (self.h + self.R @ x))

    def point(self, x: Array, c: float, X: Array, s: Array) -> _Point:
        matrix, slack = self.problem.constant + self.change(x, c), self.h + self.R @ x
        mu = (float(np.sum(X * matrix)) + float(s @ slack)) / self.order
        astray = np.abs(self.pairing(X) + self.R.T @ s) @ x + abs(1.0 - float(np.sum(self.square * X))) * c
        gap = (self.order * mu + float(astray)) / c
        return _Point(x, c, matrix, linalg.cholesky(matrix, lower=True), slack, X, s, mu, gap)


def _crowded(matrix: sparse.csc_array) -> bool:
    """Whether a matrix is small or full enough that a dense one is faster."""
    return bool(matrix.shape[0] <= 150 or matrix.nnz > 0.2 * matrix.shape[0] * matrix.shape[1])


@dataclass(frozen=True, eq=False)
class _Move:
    """A direction in all unknowns; ``matrix`` and ``slack`` are what (x, c) do to the inequality."""

    x: Array
    c: float
    matrix: Array
    slack: Array
    X: Array
    s: Array


class _Step:
    """One predictor-corrector step from a point; LinAlgError where rounding allows none."""

    def __init__(self, program: _Program, point: _Point) -> None:
        self.program, self.point = program, point
        self.inverse = inverse_of(point.factor)
        self._factorise()

    def take(self) -> _Point:
        point, order = self.point, self.program.order
        guess = self._direction(0.0, None)
        dual, primal = self._lengths(guess)
        sigma = 0.8
        if min(dual, primal) >= 0.1:
            X, s = point.X + dual * guess.X, point.s + dual * guess.s
            after = float(np.sum(X * (point.matrix + primal * guess.matrix)))
            after += float(s @ (point.slack + primal * guess.slack))
            sigma = float(np.clip((after / order / point.mu) ** 3, 1e-6, 1.0))
        move = self._direction(sigma * point.mu, guess)
        dual, primal = self._lengths(move)
        if move.c < 0.0:
            primal = min(primal, -0.9 * point.c / move.c)
        X = point.X + dual * move.X
        x, c = point.x + primal * move.x, point.c + primal * move.c
        return self.program.point(x, c, 0.5 * (X + X.T), point.s + dual * move.s)

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
        system[:count, :count] = 0.5 * (pairs + pairs.T) + (p.R.T * (self.point.s / self.point.slack)) @ p.R
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
        aim, level = target * self.inverse, target / point.slack
        if guess is not None:
            bend = guess.X @ guess.matrix @ self.inverse
            aim = aim - 0.5 * (bend + bend.T)
            level = level - guess.s * guess.slack / point.slack
        wanted = np.append(p.pairing(aim) + p.R.T @ level, 1.0 - float(np.sum(p.square * aim)))
        move = np.zeros(wanted.size)
        for _ in range(3):  # with iterative refinement
            rest = wanted - self.system @ move
            move = move + self.unit * linalg.cho_solve(self.root, self.unit * rest, check_finite=False)
        x, c = move[:-1], float(move[-1])
        matrix, slack = p.change(x, c), p.R @ x
        turn = point.X @ matrix @ self.inverse
        s = level - point.s - point.s / point.slack * slack
        return _Move(x, c, matrix, slack, aim - point.X - 0.5 * (turn + turn.T), s)

    def _lengths(self, move: _Move) -> tuple[float, float]:
        """How far X and s, and x and c, may go, with a little room to the edges of their cones."""
        point = self.point
        return _length(point.X, move.X, point.s, move.s), _length(point.matrix, move.matrix, point.slack, move.slack)


def _length(matrix: Array, change: Array, values: Array, move: Array) -> float:
    """A share of the step, at most one, after which the matrix is positive definite and the values are positive."""
    falling = move < 0.0
    length = min(1.0, float(np.min(-values[falling] / move[falling], initial=np.inf)))
    while linalg.lapack.dpotrf(matrix + length * change, lower=1)[1]:
        length *= _SHORTER
        if length < _SHORTEST:
            raise linalg.LinAlgError("no step stays inside the cone")
    return 0.95 * length
