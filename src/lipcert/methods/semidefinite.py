"""The one linear matrix inequality behind Diagonal, LipSDP, GeoLIP and the Eclipse family, and how it is solved.

General conic solvers factor systems of the size of the matrix squared. Here only the multipliers x and c are unknowns,
so each step of a primal-dual interior-point method factors a matrix of their number, filled by products of small ones
because every coefficient matrix has rank two. This is the search direction of Helmberg, Rendl, Vanderbei and Wolkowicz
(SIAM J. Optim. 6, 1996) with Mehrotra's predictor and corrector.

The iterates (x, c) are feasible throughout, so the c returned is never too large; the matrix X of the dual problem

    minimise tr(KX) + h·s   subject to   tr(YYᵀX) = 1,   tr(F_k X) + (Rᵀs)_k = 0,   X ≽ 0, s ≥ 0

says how far it is from the best. R and h collect x ≥ 0 and the budget as h + Rx ≥ 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import ProofFailed
from lipcert.methods.method import inverse_of, symmetric
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
    program = _Program(problem)
    if not problem.start.size:
        return Solution(2.0 * program.gain, problem.start, problem.start)
    point = best = program.begin()
    roomy, idle, least = None, 0, np.inf
    for _ in range(_ITERATIONS):
        gap = program.gap(point)
        if roomy is None and gap <= _ROOMY:
            roomy = point.x
        idle += 1
        if roomy is None or gap < 0.9 * least:
            best, least, idle = point, gap, 0
        if gap <= tolerance or idle > _PATIENCE:
            break
        try:
            point = program.step(point)
        except linalg.LinAlgError:  # rounding allows no further step
            break
    if roomy is None or least > _ENOUGH:
        told = f"the interior-point method stopped {least:.1e} from the optimum, short of six digits"
        raise SolverFailed(f"{told}; the weights may be ill-scaled")
    return Solution(best.c * program.gain, best.x * problem.start, roomy * problem.start)


class _Point(NamedTuple):
    """x and c, their matrix K + Σ x F - c YYᵀ and slack h + Rx, and the dual X and s; or a change of all of these."""

    x: Array
    c: float
    matrix: Array
    slack: Array
    X: Array
    s: Array


class _Program:
    """The inequality in units in which the start is x = 1, with unit diagonal, and c = 1 is half of what it allows."""

    def __init__(self, problem: Inequality) -> None:
        self.groups, count = problem.groups, problem.start.size
        left = sparse.csc_array(problem.left * problem.start[self.groups])
        matrix = problem.constant + symmetric_sum(left, problem.right, np.ones(self.groups.size))
        size = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
        try:
            if not (np.isfinite(matrix).all() and size.all()):
                raise linalg.LinAlgError
            factor = linalg.cholesky(matrix / size / size[:, None], lower=True)
        except linalg.LinAlgError:
            raise SolverFailed("the inequality has no interior: the start is not feasible") from None
        shrink, output = sparse.diags_array(1.0 / size), problem.output / size[:, None]
        self.gain = 0.5 / float(np.linalg.norm(linalg.solve_triangular(factor, output, lower=True), 2)) ** 2
        self.constant, self.Y = problem.constant / size / size[:, None], output * np.sqrt(self.gain)
        self.A, self.B = (_dense_if_faster(sparse.csc_array(shrink @ part)) for part in (left, problem.right))
        self.left, self.right = (part.T.tocsr() if sparse.issparse(part) else part.T for part in (self.A, self.B))
        self.square = self.Y @ self.Y.T
        self.R, self.h = np.eye(count), np.zeros(count)
        if problem.budget is not None:
            self.R, self.h = np.vstack([self.R, -problem.budget * problem.start]), np.append(self.h, 1.0)
        self.order = len(self.square) + self.h.size

    def change(self, x: Array, c: float) -> Array:
        """Σ x F - c YYᵀ."""
        return symmetric_sum(self.A, self.B, x[self.groups]) - c * self.square

    def pairing(self, X: Array) -> Array:
        """tr(F_k X) for each variable, (g,)."""
        product = self.left @ X
        if sparse.issparse(self.right):
            return self.collect(np.asarray(self.right.multiply(product).sum(axis=1)).ravel())
        return self.collect(np.einsum("ij,ij->i", self.right, product))

    def collect(self, pairs: Array) -> Array:
        """Sums over the pairs that share a variable, (k,) to (g,)."""
        return np.bincount(self.groups, weights=pairs, minlength=self.R.shape[1])

    def begin(self) -> _Point:
        x = np.ones(self.R.shape[1])
        X = inverse_of(linalg.cholesky(self.constant + self.change(x, 1.0), lower=True))
        weight = 1.0 / float(np.sum(self.square * X))
        return self.point(x, 1.0, weight * X, weight / (self.h + self.R @ x))

    def point(self, x: Array, c: float, X: Array, s: Array) -> _Point:
        return _Point(x, c, self.constant + self.change(x, c), self.h + self.R @ x, X, s)

    def mu(self, at: _Point) -> float:
        """The mean of the products X·matrix and s·slack, zero at the best point."""
        return (float(np.sum(at.X * at.matrix)) + float(at.s @ at.slack)) / self.order

    def gap(self, at: _Point) -> float:
        """How far c is from the best, relatively, and X and s from fulfilling their equations."""
        astray = np.abs(self.pairing(at.X) + self.R.T @ at.s) @ at.x
        astray += abs(1.0 - float(np.sum(self.square * at.X))) * at.c
        return (self.order * self.mu(at) + float(astray)) / at.c

    def step(self, at: _Point) -> _Point:
        """One predictor-corrector step; LinAlgError where rounding allows none."""
        direction = self.linearised(at)
        guess = direction(0.0, None)
        dual, primal = _lengths(at, guess)
        sigma = 0.8
        if min(dual, primal) >= 0.1:
            X, s = at.X + dual * guess.X, at.s + dual * guess.s
            after = _Point(at.x, at.c, at.matrix + primal * guess.matrix, at.slack + primal * guess.slack, X, s)
            sigma = float(np.clip((self.mu(after) / self.mu(at)) ** 3, 1e-6, 1.0))
        move = direction(sigma * self.mu(at), guess)
        dual, primal = _lengths(at, move)
        if move.c < 0.0:
            primal = min(primal, -0.9 * at.c / move.c)
        X = at.X + dual * move.X
        return self.point(at.x + primal * move.x, at.c + primal * move.c, 0.5 * (X + X.T), at.s + dual * move.s)

    def linearised(self, at: _Point) -> Callable[[float, _Point | None], _Point]:
        """The step to X·matrix = target·I, for any target; with the second-order term that a guess foresees."""
        if not (np.isfinite(at.matrix).all() and np.isfinite(at.X).all()):
            raise linalg.LinAlgError("the numbers of a step are not finite")
        G = inverse_of(linalg.cholesky(at.matrix, lower=True))
        system = self.system(at, G)
        unit = 1.0 / np.sqrt(np.diagonal(system))
        root = _factor(unit[:, None] * system * unit)

        def direction(target: float, guess: _Point | None) -> _Point:
            aim, level = target * G, target / at.slack
            if guess is not None:
                aim = aim - symmetric(guess.X @ guess.matrix @ G)
                level = level - guess.s * guess.slack / at.slack
            wanted = np.append(self.pairing(aim) + self.R.T @ level, 1.0 - float(np.sum(self.square * aim)))
            move = np.zeros(wanted.size)
            for _ in range(3):  # with iterative refinement
                move = move + unit * linalg.cho_solve(root, unit * (wanted - system @ move), check_finite=False)
            x, c = move[:-1], float(move[-1])
            matrix, slack = self.change(x, c), self.R @ x
            s = level - at.s - at.s / at.slack * slack
            return _Point(x, c, matrix, slack, aim - at.X - symmetric(at.X @ matrix @ G), s)

        return direction

    def system(self, at: _Point, G: Array) -> Array:
        """The system for (x, c): entries tr(F_j X F_k G) and s/slack."""
        A, B, Y, X = self.A, self.B, self.Y, at.X
        Xa, Xb, Ga, Gb = self.left @ X, self.right @ X, self.left @ G, self.right @ G
        Xab, Gab = Xa @ B, Ga @ B
        pairs = 0.25 * ((Xa @ A) * (Gb @ B) + Xab * Gab.T + Xab.T * Gab + (Xb @ B) * (Ga @ A))
        count = at.x.size
        if count < self.groups.size:
            pairs = np.apply_along_axis(self.collect, 0, np.apply_along_axis(self.collect, 1, pairs))
        system = np.empty((count + 1, count + 1))
        system[:count, :count] = 0.5 * (pairs + pairs.T) + (self.R.T * (at.s / at.slack)) @ self.R
        XY, GY = X @ Y, G @ Y
        mixed = (self.left @ XY) * (self.right @ GY) + (self.right @ XY) * (self.left @ GY)
        system[:count, count] = system[count, :count] = -0.5 * self.collect(mixed.sum(axis=1))
        system[count, count] = float(np.sum((Y.T @ XY) * (Y.T @ GY)))
        return system


def _factor(matrix: Array) -> Any:
    for jitter in (0.0, 1e-15, 1e-13, 1e-11):
        with contextlib.suppress(linalg.LinAlgError):
            return linalg.cho_factor(matrix + jitter * np.eye(len(matrix)), check_finite=False)
    raise linalg.LinAlgError("the step's system is singular to working precision")


def _dense_if_faster(matrix: sparse.csc_array) -> Any:
    """A matrix that is small or full enough as a dense one."""
    return matrix.toarray() if matrix.shape[0] <= 150 or matrix.nnz > 0.2 * math.prod(matrix.shape) else matrix


def _lengths(at: _Point, move: _Point) -> tuple[float, float]:
    """How far X and s, and x and c, may go, with a little room to the edges of their cones."""
    return _length(at.X, move.X, at.s, move.s), _length(at.matrix, move.matrix, at.slack, move.slack)


def _length(matrix: Array, change: Array, values: Array, move: Array) -> float:
    """A share of the step, at most one, after which the matrix is positive definite and the values are positive."""
    falling = move < 0.0
    length = min(1.0, float(np.min(-values[falling] / move[falling], initial=np.inf)))
    while linalg.lapack.dpotrf(matrix + length * change, lower=1)[1]:
        length *= _SHORTER
        if length < _SHORTEST:
            raise linalg.LinAlgError("no step stays inside the cone")
    return 0.95 * length
