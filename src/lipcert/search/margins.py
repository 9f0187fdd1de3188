"""Multipliers of value functions, by Newton's method inside a barrier.

With M of :mod:`lipcert.proof.margins` as its first row and the rest R, the bound is b(λ) = gᵀR⁻¹g - M_00, a convex
function of the multipliers where R is definite. Along μ → 0 the sum

    b(λ)/μ - log det R - Σ log λ

over the multipliers that must be positive is minimised. All products are of rank two, so with S = (M + (b + μ)e_0e_0ᵀ)⁻¹
the second derivatives of b/μ - log det R are entries of Gram matrices, multiplied with each other:
½(l_i S l_j · r_i S r_j + l_i S r_j · r_i S l_j), less the outer product of the gradient of b/μ. On the path the bound is
within μ times the number of barriers of the best.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import linalg

from lipcert.model.arrays import Array
from lipcert.proof.margins import MarginHints, Margins
from lipcert.runtime.clock import clock

_STEPS: Final = 60
_CENTERED: Final = 6.0
"""Newton decrement from which on μ falls."""
_FALL: Final = 0.3
_FIRST: Final = 0.15
"""The first μ times the number of barriers, relative to the bound."""
_REGULAR: Final = 1e-4
"""Price of the multipliers relative to their natural size; without it some would grow forever."""
_ENOUGH: Final = 1e-3
"""A gap, relative to the size of the bound, that is not worth closing."""
_ROOM: Final = 1e-7
"""How far below zero a bound should be, relative to its objective, so that its proof does not fail for rounding."""
_LARGEST: Final = 1400
"""Entries of y for which a step takes some seconds; nothing larger is tried."""


def affordable(margins_size: int) -> bool:
    """Whether a search among so many entries of y is worth a try."""
    return margins_size <= _LARGEST


@dataclass(frozen=True, eq=False)
class Found:
    """Multipliers, the bound that they seem to give, and about the least that any would."""

    multipliers: Array
    ball: float
    bound: float
    least: float

    @property
    def settled(self) -> bool:
        return self.bound < 0.0


@dataclass(eq=False)
class MarginSearch:
    """Looks for multipliers that show rows to be negative; what was found for one row is where the next one begins."""

    known: dict[bytes, tuple[Array, float]] = field(default_factory=dict)
    last: tuple[Array, float] | None = None

    def hints(self, margins: Margins, row: Array) -> MarginHints | None:
        """Multipliers that seem to show that row·v_N < 0, or None."""
        found = search(margins, row)
        return MarginHints(row, (), found.multipliers, found.ball) if found is not None and found.settled else None


def search(margins: Margins, row: Array, *, until: float = 0.0, steps: int = _STEPS) -> Found | None:
    """The first multipliers that bring the bound below ``until``, or the best; None where no form is definite."""
    path = _Path(margins, row)
    for _ in range(steps):
        clock().check()
        if not path.step():
            break
        goal = until - _ROOM * path.scale
        if path.bound < goal or path.hopeless(goal) or path.gap < _ENOUGH * abs(path.bound):
            break
    return path.found()


class _Path:
    """Where a search is: multipliers (all products, then the ball) and μ."""

    def __init__(self, margins: Margins, row: Array) -> None:
        self.margins = margins
        self.c, _ = margins.objective(row)
        self.scale = float(np.linalg.norm(self.c)) or 1.0
        self.positive = np.append(~margins.free, True)
        self.count = margins.size + int(self.positive.sum())
        natural = np.append(margins.weights, 0.0)
        self.price = np.where(self.positive & (natural > 0), _REGULAR / np.where(natural > 0, natural, 1.0), 0.0)
        self.features = np.concatenate([margins.left, margins.right])
        self.x, self.bound = self._start(natural)
        self.mu = _FIRST * (abs(self.bound) + 0.01 * self.scale) / self.count
        self.centered = False
        self.best = self.x, self.bound

    @property
    def gap(self) -> float:
        return self.mu * self.count

    def found(self) -> Found | None:
        x, bound = self.best
        if not np.isfinite(bound):
            return None
        least = bound - self.gap if self.centered else -np.inf
        return Found(x[:-1], float(x[-1]), bound, least)

    def hopeless(self, goal: float) -> bool:
        """Whether the best bound seems to be above a goal."""
        return self.centered and self.bound - 1.5 * self.gap > goal

    def _start(self, natural: Array) -> tuple[Array, float]:
        """The natural weights, times the factors for them and for the ball that give the best bound of a grid."""
        best: tuple[Array, float] = natural, np.inf
        for factor in 4.0 ** np.arange(-4.0, 5.0):
            for ball in 4.0 ** np.arange(-3.0, 3.0):
                x = natural * (8.0 * factor * self.scale / self.count)
                x[-1] = ball * self.scale
                value = self._value(x)
                if value is not None and value[1] < best[1]:
                    best = x, value[1]
        return best

    def _value(self, x: Array) -> tuple[float, float] | None:
        """log det R and the bound, or None where R is not definite."""
        M = self.margins.form(self.c, x[:-1], float(x[-1]))
        try:
            L = linalg.cholesky(M[1:, 1:], lower=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        y = linalg.solve_triangular(L, M[1:, 0], lower=True, check_finite=False)
        return 2.0 * float(np.log(np.diagonal(L)).sum()), float(y @ y - M[0, 0])

    def _merit(self, x: Array) -> float:
        found = self._value(x) if (x[self.positive] > 0).all() else None
        if found is None or not np.isfinite(found).all():
            return np.inf
        self._bound = found[1]
        return (found[1] + float(self.price @ x)) / self.mu - found[0] - float(np.log(x[self.positive]).sum())

    def step(self) -> bool:
        """One Newton step; False if there is none."""
        if not np.isfinite(self.bound):
            return False
        try:
            barrier, of_bound, H = self._derivatives()
            size = 1.0 / np.sqrt(np.diagonal(H))
            H = size[:, None] * H * size
            H[np.diag_indices(len(H))] += 1e-12
            factor = linalg.cho_factor(H, lower=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        # the gradient at μ is barrier + of_bound/μ; H depends on μ too, but hardly where μ falls
        both = size[:, None] * linalg.cho_solve(factor, size[:, None] * np.stack([barrier, of_bound], axis=1))
        decrement = _root((barrier + of_bound / self.mu) @ (both @ [1.0, 1.0 / self.mu]))
        self.centered = decrement < 1.0
        if decrement < _CENTERED:
            self.mu *= _FALL
        way = -(both @ [1.0, 1.0 / self.mu])
        fall = float((barrier + of_bound / self.mu) @ way)
        down = self.positive & (way < 0)
        length = min(1.0, 0.95 * float((self.x[down] / -way[down]).min(initial=np.inf)))
        start = self._merit(self.x)
        while length > 1e-6:
            if self._merit(self.x + length * way) <= start + 0.1 * length * fall:
                self.x, self.bound = self.x + length * way, self._bound
                if self.bound < self.best[1]:
                    self.best = self.x, self.bound
                return True
            length *= 0.5
        return False

    def _derivatives(self) -> tuple[Array, Array, Array]:
        """The gradient of the barriers, that of the bound with its price, and the matrix of second derivatives."""
        margins, x, n = self.margins, self.x, len(self.x) - 1
        M = margins.form(self.c, x[:-1], float(x[-1]))
        M[0, 0] += self.bound + self.mu
        L = linalg.cholesky(M, lower=True, check_finite=False)
        inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        half = self.features @ inverse.T
        G = half @ half.T
        ll, rr, lr = G[:n, :n], G[n:, n:], G[:n, n:]
        H = np.empty((n + 1, n + 1))
        H[:n, :n] = 0.5 * (ll * rr + lr * lr.T)
        D = np.zeros(len(M))
        D[0], D[1 : 1 + margins.inputs] = -1.0, 1.0  # what the ball's multiplier is the factor of
        S = inverse.T @ inverse
        seen = half @ inverse  # features·S
        H[n, :n] = H[:n, n] = -np.einsum("ij,ij->i", seen[:n] * D, seen[n:])
        H[n, n] = float(np.einsum("ij,ij,i,j->", S, S, D, D))
        y = S[0] / S[0, 0]  # where the bound is attained
        q = -(margins.left @ y) * (margins.right @ y)
        of_bound = -np.append(q, float((D * y) @ y))
        barrier = -np.append(-np.diagonal(lr), float(np.diagonal(S) @ D)) - of_bound / self.mu
        # S holds yyᵀ/μ: the gradient of -log det M is that of -log det R plus that of the bound over μ
        H -= np.outer(of_bound, of_bound) / self.mu**2
        at = np.flatnonzero(self.positive)
        barrier[at] -= 1.0 / x[at]
        H[at, at] += 1.0 / x[at] ** 2
        return barrier, of_bound + self.price, H


def _root(x: float) -> float:
    return float(np.sqrt(max(x, 0.0)))
