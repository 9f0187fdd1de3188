"""Multipliers of value functions, by Newton's method inside a barrier.

With M of :mod:`lipcert.proof.margins` as its first row and the rest R, the bound is b(λ) = gᵀR⁻¹g - M_00, a convex
function of the multipliers where R is definite. Along μ → 0 the sum

    b(λ)/μ - log det R - Σ log λ

over the multipliers that must be positive is minimised. All products are of rank two, so the second derivatives of
log det R are products of entries of Gram matrices, ½(l_i R⁻¹l_j · r_i R⁻¹r_j + l_i R⁻¹r_j · r_i R⁻¹l_j), and those of b
are the same with one factor replaced by values at the y where the bound is attained. The gradient of b is q(y). On
the path the bound is within μ times the number of barriers of the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import linalg

from lipcert.model.arrays import Array
from lipcert.model.regions import Ball
from lipcert.proof.margins import Cut, MarginHints, Margins
from lipcert.proof.outputs import OutputBounds, projected
from lipcert.runtime.clock import clock

_STEPS: Final = 60
_CENTERED: Final = 1.5
"""Newton decrement from which on μ falls."""
_SHARE: Final = 0.6
"""Of the way to where a multiplier or a form ceases to be positive, so much is gone at once."""
_FALL: Final = 0.2
_FIRST: Final = 0.4
"""The first μ times the number of barriers, relative to the bound."""
_REGULAR: Final = 1e-4
"""Price of the multipliers relative to their natural size; without it some would grow forever."""
_ENOUGH: Final = 1e-3
"""A gap, relative to the size of the bound, that is not worth closing."""
_ROOM: Final = 1e-7
"""How far below zero a bound should be, relative to its objective, so that its proof does not fail for rounding."""
_LARGEST: Final = 1400
"""Entries of y for which a step takes some seconds; nothing larger is tried."""


def affordable(facts: OutputBounds) -> bool:
    """Whether y has few enough entries for a search to be worth a try."""
    ball = Ball(facts.region.center, facts.region.radius)
    network, _ = projected(facts.network, ball)
    size = 1 + network.inputs
    for layer, ends in zip(network.layers[:-1], facts.intervals, strict=True):
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(*ends)
        size += int(np.count_nonzero(alpha < beta))
    return size <= _LARGEST


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
    """Looks for multipliers that show rows to be negative, on the whole ball or on both sides of some neurons.

    ``center`` is a point on the path of an earlier row, with its μ: where the next one begins.
    """

    pieces: int = 1
    center: tuple[Array, float] | None = None

    def leaves(self, facts: OutputBounds, row: Array) -> list[MarginHints]:
        """Multipliers that seem to show that row·v_N < 0, for pieces that cover the ball; none if there is no hope.

        A piece that is not settled is cut in two, if the ball may be cut into so many pieces.
        """
        if not affordable(facts):
            return []
        found: list[MarginHints] = []
        waiting: list[tuple[Cut, ...]] = [()]
        while waiting:
            cuts = waiting.pop()
            margins = facts.margins(cuts)
            seen = self.find(margins, row)
            if seen is None:
                return []
            if seen.settled:
                found.append(MarginHints(row, cuts, seen.multipliers, seen.ball))
                continue
            cut = _cut(margins, row, seen, cuts) if len(found) + len(waiting) + 2 <= self.pieces else None
            if cut is None:
                return []
            waiting += [(*cuts, (*cut, side)) for side in (-1, 1)]
        return found

    def find(self, margins: Margins, row: Array, *, best: bool = False) -> Found | None:
        """The first multipliers that bring the bound below zero, or else the best; None where no form is definite.

        A search ends where zero seems to be out of reach, unless the ``best`` is asked for in any case.
        """
        with np.errstate(all="ignore"):
            path = _Path(margins, row, self.center)
            goal = -_ROOM * path.scale
            for _ in range(_STEPS):
                clock().check()
                if not path.step() or path.gap < _ENOUGH * min(abs(path.bound), path.scale):
                    break
                if not best and (path.bound < goal or path.hopeless(goal)):
                    break
        self.center = path.center or self.center
        return path.found()


def _cut(margins: Margins, row: Array, seen: Found, cuts: tuple[Cut, ...]) -> tuple[int, int] | None:
    """The neuron whose products the bound owes most to: what is exactly zero, and seems not to be where it is attained.

    None if no neuron has such a product, or if the bound is so far from zero that cutting would take too long.
    """
    done = {(layer, neuron) for layer, neuron, _ in cuts}
    M = margins.form(margins.objective(row)[0], seen.multipliers, seen.ball)
    y = np.append(1.0, -np.linalg.solve(M[1:, 1:], M[1:, 0]))
    owed = np.abs(seen.multipliers * (margins.left @ y) * (margins.right @ y)) * margins.free
    for k in np.argsort(-owed)[: len(done) + 1]:
        name = int(margins.layer[k]), int(margins.neuron[k])
        if owed[k] > 0.0 and name not in done:
            return name
    return None


class _Path:
    """Where a search is: multipliers (all products, then the ball) and μ."""

    def __init__(self, margins: Margins, row: Array, center: tuple[Array, float] | None = None) -> None:
        self.margins = margins
        self.c, _ = margins.objective(row)
        self.scale = float(np.linalg.norm(self.c)) or 1.0
        self.positive = np.append(~margins.free, True)
        self.count = margins.size + int(self.positive.sum())
        natural = np.append(margins.weights, 0.0)
        self.price = np.where(self.positive & (natural > 0), _REGULAR / np.where(natural > 0, natural, 1.0), 0.0)
        self.features = np.concatenate([margins.left, margins.right])
        value = self._value(center[0]) if center is not None and center[0].shape == natural.shape else None
        if center is not None and value is not None:
            (self.x, self.mu), self.bound = center, value[1]
        else:
            self.x, self.bound = self._start(natural)
            self.mu = _FIRST * (abs(self.bound) + 0.01 * self.scale) / self.count
        self.center: tuple[Array, float] | None = None
        self.centered = False
        self.decrement = np.inf
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
        for factor in 4.0 ** np.arange(-2.0, 4.0):
            for ball in 4.0 ** np.arange(-3.0, 2.0):
                x = natural * (8.0 * factor * self.scale / self.count)
                x[-1] = ball * self.scale
                value = self._value(x)
                if value is not None and value[1] < best[1]:
                    best = x, value[1]
        return best

    def _value(self, x: Array) -> tuple[float, float] | None:
        """The logarithm of det R and the bound, or None where R is not definite."""
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
        barrier, of_bound, of_barrier, curved = self._derivatives()
        way = self._newton(barrier + of_bound / self.mu, of_barrier + curved / self.mu)
        if way is None:
            return False
        decrement = _root(-float((barrier + of_bound / self.mu) @ way))
        self.centered = decrement < 1.0
        slow = decrement > 0.9 * self.decrement and decrement < 2.0 * _CENTERED
        self.decrement = decrement
        if decrement < _CENTERED or slow:
            self.decrement = np.inf
            self.center = self.center or (self.x, self.mu)
            self.mu *= _FALL
            way = self._newton(barrier + of_bound / self.mu, of_barrier + curved / self.mu)
            if way is None:
                return False
        fall = float((barrier + of_bound / self.mu) @ way)
        down = self.positive & (way < 0)
        farthest = _SHARE * min(float((self.x[down] / -way[down]).min(initial=np.inf)), self._inside(way))
        length, start = min(1.0, farthest), self._merit(self.x)
        merit = self._merit(self.x + length * way)
        while not merit <= start + 0.1 * length * fall:
            length *= 0.5
            if length < 1e-6:
                return False
            merit = self._merit(self.x + length * way)
        while decrement < 4.0 and length >= 1.0 and 2.0 * length <= farthest:  # some multipliers have far to go
            longer = self._merit(self.x + 2.0 * length * way)
            if not longer < merit:
                break
            length, merit = 2.0 * length, longer
        self.x = self.x + length * way
        self._merit(self.x)
        self.bound = self._bound
        if self.bound < self.best[1]:
            self.best = self.x, self.bound
        return True

    def _inside(self, way: Array) -> float:
        """How far R stays definite along a way."""
        change = self.margins.form(0.0 * self.c, way[:-1], float(way[-1]))[1:, 1:]
        least = float(
            linalg.eigvalsh(self._inverse @ change @ self._inverse.T, check_finite=False, subset_by_index=[0, 0])[0]
        )
        return -1.0 / least if least < 0.0 else np.inf

    def _newton(self, gradient: Array, H: Array) -> Array | None:
        """-H⁻¹·gradient, H scaled to ones on its diagonal; None where it is not definite."""
        diagonal = np.diagonal(H)
        if not (np.isfinite(H).all() and (diagonal > 0).all()):
            return None
        size = 1.0 / np.sqrt(diagonal)
        H = size[:, None] * H * size
        H[np.diag_indices(len(H))] += 1e-12
        try:
            factor = linalg.cho_factor(H, lower=True, check_finite=False, overwrite_a=True)
        except linalg.LinAlgError:
            return None
        way = -size * linalg.cho_solve(factor, size * gradient, check_finite=False)
        return way if np.isfinite(way).all() else None

    def _derivatives(self) -> tuple[Array, Array, Array, Array]:
        """Gradients of the barriers and of the bound with its price, and the matrices of second derivatives of both."""
        margins, x, n = self.margins, self.x, len(self.x) - 1
        M = margins.form(self.c, x[:-1], float(x[-1]))
        L = linalg.cholesky(M[1:, 1:], lower=True, check_finite=False)
        self._inverse = inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        y = np.append(1.0, -(inverse.T @ (inverse @ M[1:, 0])))  # where the bound is attained
        half = self.features[:, 1:] @ inverse.T
        G = half @ half.T
        ll, rr, lr = G[:n, :n], G[n:, n:], G[:n, n:]
        one, two = margins.left @ y, margins.right @ y
        D = np.zeros(len(y))
        D[1 : 1 + margins.inputs] = 1.0  # the ball's multiplier is the factor of this, less one at the constant
        seen = half @ inverse  # features·R⁻¹
        pulled = D * y  # the ball's form at y
        barriers, curved = np.empty((2, n + 1, n + 1))
        barriers[:n, :n] = 0.5 * (ll * rr + lr * lr.T)
        across = lr * np.outer(two, one)
        curved[:n, :n] = 0.5 * (ll * np.outer(two, two) + rr * np.outer(one, one) + across + across.T)
        inner = D[1:]
        barriers[n, :n] = barriers[:n, n] = -np.einsum("ij,ij->i", seen[:n] * inner, seen[n:])
        curved[n, :n] = curved[:n, n] = -(one * (seen[n:] @ pulled[1:]) + two * (seen[:n] @ pulled[1:]))
        S = inverse.T @ inverse
        few = S[: margins.inputs, : margins.inputs]
        barriers[n, n] = float(np.einsum("ij,ij->", few, few))
        curved[n, n] = 2.0 * float(pulled[1:] @ (S @ pulled[1:]))
        of_bound = np.append(one * two, 1.0 - float(pulled @ y))
        barrier = np.append(np.diagonal(lr), -float(np.trace(few)))
        at = np.flatnonzero(self.positive)
        barrier[at] -= 1.0 / x[at]
        barriers[at, at] += 1.0 / x[at] ** 2
        return barrier, of_bound + self.price, barriers, curved


def _root(x: float) -> float:
    return float(np.sqrt(max(x, 0.0)))
