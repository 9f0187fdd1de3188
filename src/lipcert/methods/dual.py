"""Multipliers of the semidefinite dual bound, by an interior-point method.

With the first row of M of :mod:`lipcert.kernel.quadratic_form` and the rest R, the bound is b(λ) = gᵀR⁻¹g - M_00, a
convex function of the multipliers where R is definite. Along μ → 0 the sum

    b(λ)/μ - log det R - Σ log λ

over the multipliers that must be positive is minimised by Newton's method. All products are of rank two, so the second
derivatives of log det R are products of entries of Gram matrices, ½(l_i R⁻¹l_j · r_i R⁻¹r_j + l_i R⁻¹r_j · r_i R⁻¹l_j),
and those of b are the same with one factor replaced by values at the maximiser y. The gradient of b is q(y). On the
path the bound is within μ times the number of barriers of the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.quadratic_form import DualBound
from lipcert.model.arrays import Array, dense
from lipcert.model.regions import Ball
from lipcert.runtime.clock import clock
from lipcert.suggest.hints import DualHints

_STEPS: Final = 60
"""Most Newton steps of one search."""
_CENTERED, _FALL, _FIRST = 1.5, 0.2, 0.4
"""μ falls by the second factor at this Newton decrement; the first μ makes the gap this share of the bound."""
_SHARE: Final = 0.6
"""Longest step, as a share of the distance to where a multiplier or a form ceases to be positive."""
_REGULAR: Final = 1e-4
"""Price of the multipliers relative to their natural size; without it some would grow forever."""
_ENOUGH: Final = 1e-3
"""A gap, relative to the bound, that is not worth closing."""
_ROOM: Final = 1e-7
"""How far below zero a bound must be, relative to its objective, so that rounding does not spoil the proof."""
_CLIMB, _STRIDE = 12, 0.25
"""Steps of the ascent that looks for a counterexample, and the length of each relative to the radius."""
_LARGEST: Final = 800
"""Entries of y for which a step takes about a second; nothing larger is tried."""
_LEAST: Final = 1e-280
"""Keeps quotients finite."""


def affordable(facts: OutputBounds) -> bool:
    """Whether the region is an ℓ2 ball and y has few enough entries."""
    if not isinstance(facts.region, Ball) or not facts.region.plain:
        return False
    network = facts.network
    size = 1 + min(network.inputs, network.layers[0].size)
    for layer, ends in zip(network.layers[:-1], facts.intervals, strict=True):
        assert layer.neurons is not None
        alpha, beta = layer.neurons.slope_range(*ends)
        size += int(np.count_nonzero(alpha < beta))
    return size <= _LARGEST


@dataclass(eq=False)
class DualSearch:
    """Looks for multipliers that bound rows of the outputs over balls around one point.

    ``center`` is a point on the central path of an earlier row, with its μ: the next search starts there. ``broken`` is
    a counterexample: an input of the ball where a row seems to be positive.
    """

    center: tuple[Array, float] | None = None
    broken: Array | None = None

    def suggest(self, facts: OutputBounds, row: Array) -> DualHints | None:
        """Multipliers that seem to show that row·v_N < 0; None if there seem to be none."""
        found = self.find(facts, row)
        if found is None or found[1] < 0.0:
            return None if found is None else found[0]
        self.broken = _uphill(facts, found[0])
        return None

    def find(self, facts: OutputBounds, row: Array, *, best: bool = False) -> tuple[DualHints, float] | None:
        """The first multipliers with a negative bound, or else the best, and the bound; None if no form is definite.

        best=True: the search does not stop where zero is reached or out of reach.
        """
        if not affordable(facts):
            return None
        with np.errstate(all="ignore"):
            try:
                path = _Path(facts.dual_bound, row, self.center)
            except ProofFailed:  # not of such neurons
                return None
            goal = -_ROOM * path.scale
            for _ in range(_STEPS):
                clock().check()
                if not path.step() or path.gap < _ENOUGH * min(abs(path.bound), path.scale):
                    break
                if not best and (path.bound < goal or path.least > goal):
                    break
        self.center = path.center or self.center
        x, bound = path.best
        return (DualHints(row, x[:-1], float(x[-1])), bound) if np.isfinite(bound) else None


def _uphill(facts: OutputBounds, hints: DualHints) -> Array | None:
    """A counterexample, found by ascent from the inputs of the y that attains the bound; None if none is seen.

    If the network has more inputs than the form, W_1 W_1ᵀ ≈ R Rᵀ, and W_1ᵀR⁻ᵀ leads back.
    """
    network, ball, margins, row = facts.network, facts.region, facts.dual_bound, hints.row
    M = _form(margins, margins.objective(row).value[0], hints.multipliers, hints.ball)
    inner = -np.linalg.solve(M[1:, 1:], M[1:, 0])[: margins.inputs]
    if margins.inputs < network.inputs:
        inner = dense(network.layers[0].weight).T @ np.linalg.solve(margins.first.T, inner)
    point = ball.project(ball.center + float(ball.radius) * inner)
    for _ in range(_CLIMB):
        if not np.isfinite(point).all():
            return None
        if row @ network(point) > 0.0:
            return np.asarray(point)
        way = row @ network.jacobian(point)
        point = ball.project(point + _STRIDE * float(ball.radius) * way / max(float(np.linalg.norm(way)), 1e-300))
    return None


def _form(margins: DualBound, c: Array, multipliers: Array, ball: float) -> Array:
    """M, (size, size)."""
    G = (margins.left.value.T * multipliers) @ margins.right.value
    G[0] += c
    squares = np.full(1 + margins.inputs, -ball)
    squares[0] = ball
    G[np.arange(len(squares)), np.arange(len(squares))] += squares
    return np.asarray(-0.5 * (G + G.T))


@np.errstate(all="ignore")  # of sizes that are next to nothing
def _natural(margins: DualBound) -> Array:
    """Multipliers to begin with, up to a common factor: one over the squared sum of a product's factors, their size."""
    sums = np.maximum(np.abs((margins.left.value + margins.right.value)[:, 0]), _LEAST)
    return np.where(margins.free, 0.0, 1.0 / (sums * sums))


class _Path:
    """A point on the way to the best: multipliers x (all products, then the ball), their form M, and μ."""

    def __init__(self, margins: DualBound, row: Array, center: tuple[Array, float] | None = None) -> None:
        self.margins = margins
        self.c = margins.objective(row).value[0]
        self.scale = float(np.linalg.norm(self.c)) or 1.0
        self.positive = np.append(~margins.free, True)
        self.count = margins.size + int(self.positive.sum())
        natural = np.append(_natural(margins), 0.0)
        self.price = np.where(self.positive & (natural > 0), _REGULAR / np.where(natural > 0, natural, 1.0), 0.0)
        self._features()
        self.center: tuple[Array, float] | None = None
        self.least, self.decrement, self.bound = -np.inf, np.inf, np.inf
        if center is not None and center[0].shape == natural.shape:
            self.x, self.mu = center
            self.M = _form(margins, self.c, self.x[:-1], float(self.x[-1]))
            self.bound = self._value(self.M)[1]
        if not np.isfinite(self.bound):
            self._start(natural)
        self.best = self.x, self.bound

    def _features(self) -> None:
        """The factors without their constants, up to sign: each distinct one, and which one each factor is."""
        tails = np.concatenate([self.margins.left.value, self.margins.right.value])[:, 1:]
        lead = tails[np.arange(len(tails)), (tails != 0.0).argmax(axis=1)]
        self.sign = np.where(lead < 0.0, -1.0, 1.0)
        self.rows, self.which = np.unique(tails * self.sign[:, None] + 0.0, axis=0, return_inverse=True)
        self.which = self.which.ravel()

    @property
    def gap(self) -> float:
        return self.mu * self.count

    def _start(self, natural: Array) -> None:
        """The natural weights times the best factors, for them and for the ball, of a small grid."""
        products = _form(self.margins, 0.0 * self.c, natural[:-1], 0.0)
        ball = _form(self.margins, 0.0 * self.c, 0.0 * natural[:-1], 1.0)
        row = _form(self.margins, self.c, 0.0 * natural[:-1], 0.0)
        self.x, self.M, self.bound = natural, row, np.inf
        for factor in 8.0 * self.scale / self.count * 4.0 ** np.arange(-2.0, 4.0):
            for outer in self.scale * 4.0 ** np.arange(-3.0, 2.0):
                M = row + factor * products + outer * ball
                bound = self._value(M)[1]
                if bound < self.bound:
                    self.x, self.M, self.bound = np.append(factor * natural[:-1], outer), M, bound
        self.mu = _FIRST * (abs(self.bound) + 0.01 * self.scale) / self.count

    def _value(self, M: Array) -> tuple[float, float]:
        """The logarithm of det R and the bound, which is infinite where R is not definite."""
        try:
            L = linalg.cholesky(M[1:, 1:], lower=True, check_finite=False)
        except linalg.LinAlgError:
            return -np.inf, np.inf
        y = linalg.solve_triangular(L, M[1:, 0], lower=True, check_finite=False)
        bound = float(y @ y - M[0, 0])
        return 2.0 * float(np.log(np.diagonal(L)).sum()), bound if np.isfinite(bound) else np.inf

    def _merit(self, x: Array, M: Array) -> tuple[float, float]:
        """What is minimised, and the bound."""
        if not (x[self.positive] > 0).all():
            return np.inf, np.inf
        volume, bound = self._value(M)
        barriers = volume + float(np.log(x[self.positive]).sum())
        return (bound + float(self.price @ x)) / self.mu - barriers, bound

    def step(self) -> bool:
        """One Newton step; False if there is none."""
        if not np.isfinite(self.bound):
            return False
        barrier, of_bound, of_barrier, curved = self._derivatives()
        way = self._newton(barrier + of_bound / self.mu, of_barrier + curved / self.mu)
        if way is None:
            return False
        decrement = _root(-float((barrier + of_bound / self.mu) @ way))
        if decrement < 1.0:
            self.least = max(self.least, self.bound - 1.3 * self.gap)
        slow = decrement > 0.9 * self.decrement and decrement < 2.0 * _CENTERED
        self.decrement = decrement
        if decrement < _CENTERED or slow:
            self.decrement = np.inf
            self.center = self.center or (self.x, self.mu)
            self.mu *= _FALL
            way = self._newton(barrier + of_bound / self.mu, of_barrier + curved / self.mu)
            if way is None:
                return False
        return self._move(way, float((barrier + of_bound / self.mu) @ way), decrement < 4.0)

    def _move(self, way: Array, fall: float, near: bool) -> bool:
        """Line search for a sufficient decrease, at most a share of the distance to any boundary."""
        change = _form(self.margins, 0.0 * self.c, way[:-1], float(way[-1]))
        down = self.positive & (way < 0)
        farthest = _SHARE * float((self.x[down] / -way[down]).min(initial=np.inf))
        length, (start, _) = min(1.0, farthest), self._merit(self.x, self.M)

        def at(length: float) -> tuple[float, float]:
            if not np.isfinite(self._value(self.M + length / _SHARE * change)[1]):
                return np.inf, np.inf
            return self._merit(self.x + length * way, self.M + length * change)

        merit, bound = at(length)
        while not merit <= start + 0.1 * length * fall:
            length *= 0.6
            if length < 1e-6:
                return False
            merit, bound = at(length)
        while near and length >= 1.0 and 2.0 * length <= farthest:  # some multipliers have far to go
            longer, then = at(2.0 * length)
            if not longer < merit:
                break
            length, merit, bound = 2.0 * length, longer, then
        self.x, self.M, self.bound = self.x + length * way, self.M + length * change, bound
        if self.bound < self.best[1]:
            self.best = self.x, self.bound
        return True

    def _newton(self, gradient: Array, H: Array) -> Array | None:
        """-H⁻¹·gradient, H scaled to ones on its diagonal; None where it is not definite."""
        diagonal = np.diagonal(H)
        if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
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
        """Gradients of the barriers and of the bound with its price, and the Hessians of both."""
        margins, x, n, few = self.margins, self.x, len(self.x) - 1, self.margins.inputs
        L = linalg.cholesky(self.M[1:, 1:], lower=True, check_finite=False)
        inverse, _ = linalg.lapack.dtrtri(L, lower=1)
        y = np.append(1.0, -(inverse.T @ (inverse @ self.M[1:, 0])))  # where the bound is attained
        half = self.rows @ inverse.T
        G = half @ half.T
        first, second = self.which[:n], self.which[n:]
        plus, minus = self.sign[:n], self.sign[n:]
        ll = G[first[:, None], first] * np.outer(plus, plus)
        rr = G[second[:, None], second] * np.outer(minus, minus)
        lr = G[first[:, None], second] * np.outer(plus, minus)
        one, two = margins.left.value @ y, margins.right.value @ y
        inner = half @ inverse[:, :few]  # features·R⁻¹, for the inputs
        seen = (inner[first] * plus[:, None], inner[second] * minus[:, None])
        along = y[1 : 1 + few]  # the ball's form is the square of this, less one
        barriers, curved = np.empty((2, n + 1, n + 1))
        barriers[:n, :n] = 0.5 * (ll * rr + lr * lr.T)
        across = lr * np.outer(two, one)
        curved[:n, :n] = 0.5 * (ll * np.outer(two, two) + rr * np.outer(one, one) + across + across.T)
        barriers[n, :n] = barriers[:n, n] = -np.einsum("ij,ij->i", *seen)
        curved[n, :n] = curved[:n, n] = -(one * (seen[1] @ along) + two * (seen[0] @ along))
        S = inverse[:, :few].T @ inverse[:, :few]
        barriers[n, n] = float(np.einsum("ij,ij->", S, S))
        curved[n, n] = 2.0 * float(along @ (S @ along))
        of_bound = np.append(one * two, 1.0 - float(along @ along))
        barrier = np.append(np.diagonal(lr), -float(np.trace(S)))
        at = np.flatnonzero(self.positive)
        barrier[at] -= 1.0 / x[at]
        barriers[at, at] += 1.0 / (x[at] * x[at])
        return barrier, of_bound + self.price, barriers, curved


def _root(x: float) -> float:
    return float(np.sqrt(max(x, 0.0)))
