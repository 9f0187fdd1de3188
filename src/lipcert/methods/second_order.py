"""Parabolas that touch at the centre of a ball, and multipliers that bound the squares of all layers together.

For smooth activations: a parabola through the value at the centre, with the slope there, leaves no height. Multipliers
are found by descent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy import linalg, sparse

from lipcert.kernel.quadratic_relaxation import QuadraticRelaxation, SecondOrderHints
from lipcert.methods.closed_form import closed_form
from lipcert.methods.descent import descend
from lipcert.methods.eigenvalues import symmetric, top
from lipcert.methods.method import Stage
from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Network
from lipcert.runtime.clock import clock

_LARGEST: Final = 1e8
"""Most cubes of the widths, summed: the cost of a trial is proportional to that."""
_QUICK: Final = 2.2e7
"""The same for many balls: settling one takes about 0.1 s then, giving one up several times that."""
_TRIALS, _PATIENCE = 120, 15
"""Most trials; the search is given up when so many steps close less than a fifth of the gap."""
_BARRIER: Final = 1e-3
"""What the barrier may cost, relative to the margin."""
_MARGIN: Final = 1e-9
"""Room for what the proof loses to rounding, relative to the margin."""
_MARKS: Final = np.linspace(0.0, 1.0, 25)[1:]
"""Where parabolas are compared with the activation, as shares of the way from the centre to an end."""


def suits(network: Network, *, quick: bool = False) -> bool:
    """Whether the network has a hidden layer and is small enough for second-order bounds."""
    first, sizes = network.layers[0], [float(layer.size) for layer in network.layers]
    inputs = network.inputs if sparse.issparse(first.weight) else min(network.inputs, 1.5 * first.size)
    return network.depth > 1 and sum(size**3 for size in (inputs, *sizes)) <= (_QUICK if quick else _LARGEST)


@dataclass(eq=False)
class SecondOrderSearch:
    """Hints for balls around one point, one after the other; those of one ball are the start for the next.

    ``known`` holds T/r² (r: half-widths of the secants) and μ, by row of the outputs.
    """

    known: dict[bytes, tuple[list[Array], float]] = field(default_factory=dict)

    def suggest(self, relaxation: QuadraticRelaxation, row: Array) -> SecondOrderHints | None:
        """Hints that seem to show that row·v_N < 0; None if there seem to be none."""
        with suppress(np.linalg.LinAlgError):  # far too ill-scaled
            return self._found(relaxation, row)
        return None

    def _found(self, relaxation: QuadraticRelaxation, row: Array) -> SecondOrderHints | None:
        objective, name = _Objective(relaxation, row), row.tobytes()
        start = objective.coordinates(*self.known[name]) if name in self.known else None
        if start is None or objective(start) is None:
            start = objective.start()
        totals: list[float] = []
        best, goal = start, -_MARGIN * objective.scale
        for x, value in descend(objective, start, 0.0):
            clock().check()
            best = x
            totals.append(value.total)
            slow = len(totals) > _PATIENCE and totals[-1 - _PATIENCE] - value.total < 0.2 * (value.total - goal)
            if value.total < goal or slow or objective.trials > _TRIALS:
                break
        if not totals:
            return None
        self.known[name] = objective.known(best)
        return objective.hints(best) if totals[-1] < goal else None


def _touching(relaxation: QuadraticRelaxation, row: Array) -> SecondOrderHints:
    """Slopes and bends of the parabolas that touch at the centre; no multipliers."""
    row, slopes, bends = times(row[None], relaxation.network.layers[-1].weight)[0], [], []
    for stage in reversed(relaxation.stages):
        neurons, center = stage.layer.neurons, stage.center
        assert neurons is not None
        slope, value = neurons.slope(center), neurons.value(center)
        ends = np.stack([stage.low, stage.high])
        away = (_MARKS[:, None, None] * (ends - center)).reshape(-1, center.size)
        steep = np.zeros(center.size)
        steep[stage.open] = 2.0 * (stage.beta - stage.alpha)
        with np.errstate(all="ignore"):  # an end may be the centre
            bend = 2.0 * (neurons.value(center + away) - value - slope * away) / (away * away)
            bend = np.nan_to_num(np.clip(bend, -steep / np.abs(away), steep / np.abs(away)))  # more is noise
        slopes.append(row * slope)
        bends.append(row * np.where(row > 0.0, bend.max(axis=0), bend.min(axis=0)))
        row = times(slopes[-1][None], stage.layer.weight)[0]
    return SecondOrderHints(row, tuple(slopes[::-1]), tuple(bends[::-1]), (), 0.0)


@dataclass(frozen=True, eq=False)
class _Value:
    """The bound with its barrier, the gradient of that, and the bound itself."""

    f: float
    gradient: Array
    total: float


class _Objective:
    """½(gᵀ(μ - H)⁻¹g + μδ²) + constant - κ·log det(μ - H) as a function of log T of all layers but the last, and log μ.

    H is that of :mod:`lipcert.kernel.quadratic_relaxation`, without rounding errors. With s = r·T^-½ the step is
    P = D_m K D_m + T, K = (A⁻¹ - D_s²)⁻¹; its adjoint is that of an ellipsoid. The adjoint of H is
    ½yyᵀ + κ(μ - H)⁻¹ for y = (μ - H)⁻¹g, the direction in which the bound is attained.
    """

    def __init__(self, relaxation: QuadraticRelaxation, row: Array) -> None:
        network, stages = relaxation.network, relaxation.stages
        *others, last = range(len(stages))
        drawn = _touching(relaxation, row)
        self.drawn = replace(drawn, row=row, multipliers=tuple(np.zeros(network.sizes[k + 1]) for k in others))
        g, self.curvatures, constant = relaxation.replaced(self.drawn)
        self.constant, self.delta = float(constant.above), relaxation.radius
        self.scale = abs(float(row @ network(relaxation.ball.center)))
        weights = [dense(layer.weight) for layer in network.layers[1:-1]]
        self.weights = [relaxation.first, *weights]
        self.layers = others[::-1]
        self.top = self.weights[last].T @ (self.curvatures[last][:, None] * self.weights[last])
        secants = [stage.secants for stage in stages[:-1]]
        self.m, self.r = [0.5 * (low + high) for low, high in secants], [0.5 * (high - low) for low, high in secants]
        self.active = [np.flatnonzero(r > 0) for r in self.r]
        weight, R = network.layers[0].weight, relaxation.first
        self.g = g if R.shape == weight.shape else linalg.solve_triangular(R, weight @ g, lower=True)
        self.rest = max(0.0, float(g @ g - self.g @ self.g))
        self.kappa = _BARRIER * self.scale / len(self.g)
        self.trials = 0

    def start(self) -> Array:
        """Multipliers in closed form, layer by layer."""
        A, parts = self.top, []
        for k in self.layers:
            on, r = self.active[k], self.r[k]
            T = closed_form(Stage(0, A, 0, self.m[k] - r, self.m[k] + r, self.weights[k].T))[on]
            least = 1e-6 * float((np.abs(np.diagonal(A)) * r * r).max(initial=0.0)) + 1e-200
            parts.append(np.log(np.maximum(1.1 * T, least)))
            A = self._through(k, A, parts[-1]).A
        steep = float(np.linalg.norm(self.g)) / self.delta if self.delta > 0 else 1.0
        mu = 1.05 * max(top(symmetric(A))[0], 0.0) + steep + 1e-200
        return np.concatenate([*parts, [np.log(mu)]])

    def hints(self, x: Array) -> SecondOrderHints:
        """The hints at x."""
        multipliers, mu = self._multipliers(x)
        return replace(self.drawn, multipliers=tuple(multipliers), mu=mu)

    def _multipliers(self, x: Array) -> tuple[list[Array], float]:
        """The multipliers of each layer, in order, and μ."""
        found = [np.zeros(len(self.r[k])) for k in self.layers]
        for k, T, part in zip(self.layers, found, self._split(x), strict=False):
            T[self.active[k]] = np.exp(part)
        return found[::-1], float(np.exp(x[-1]))

    def known(self, x: Array) -> tuple[list[Array], float]:
        """The same, multipliers over r²."""
        multipliers, mu = self._multipliers(x)
        return [T / np.where(r > 0, r * r, 1.0) for T, r in zip(multipliers, self.r, strict=True)], mu

    def coordinates(self, multipliers: list[Array], mu: float) -> Array:
        """The x for known T/r² and μ; neurons without a known multiplier get the median."""
        parts = []
        for k in self.layers:
            t = multipliers[k]
            usual = float(np.median(t[t > 0])) if (t > 0).any() else 1.0
            parts.append(np.log(np.where(t > 0, t, usual)[self.active[k]] * self.r[k][self.active[k]] ** 2))
        return np.concatenate([*parts, [np.log(mu)]])

    def __call__(self, x: Array) -> _Value | None:
        self.trials += 1
        parts, steps, A = self._split(x), [], self.top
        mu = float(np.exp(x[-1]))
        if not 0.0 < mu < np.inf:
            return None
        try:
            for k, part in zip(self.layers, parts, strict=False):
                steps.append(self._through(k, A, part))
                A = steps[-1].A
            L = np.linalg.cholesky(mu * np.eye(len(A)) - A)
        except np.linalg.LinAlgError:
            return None
        inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        R = inverse.T @ inverse
        y = R @ self.g
        total = 0.5 * (float(y @ self.g) + self.rest / mu + self.delta * (self.delta * mu)) + self.constant
        f = total - 2.0 * self.kappa * float(np.log(np.diagonal(L)).sum())
        if not np.isfinite(f):
            return None
        change = 0.5 * (self.delta * self.delta - float(y @ y) - self.rest / mu / mu) - self.kappa * float(np.trace(R))
        gradient = [np.array([mu * change])]
        back = 0.5 * np.outer(y, y) + self.kappa * R
        for k, step in zip(reversed(self.layers), reversed(steps), strict=True):
            W, m, on, s = self.weights[k], self.m[k], self.active[k], step.s
            P = W @ back @ W.T
            K = m[:, None] * P * m
            across = step.K[on] @ K
            gradient.append(step.T * np.diagonal(P)[on] - s * s * np.einsum("ij,ij->i", across, step.K[on]))
            H = step.X.T @ linalg.solve_triangular(step.L, np.diag(s), lower=True, check_finite=False)
            back = np.array(K)
            right = K @ H
            back[:, on] += right
            back[on] += right.T
            back[np.ix_(on, on)] += H.T @ right
        return _Value(f, np.concatenate(gradient[::-1]), total)

    def _split(self, x: Array) -> list[Array]:
        return np.split(x, np.cumsum([self.active[k].size for k in self.layers]))

    def _through(self, k: int, A: Array, log_T: Array) -> _Step:
        """One layer down; LinAlgError where the multipliers are too small."""
        on, m, T = self.active[k], self.m[k], np.exp(log_T)
        s = self.r[k][on] / np.sqrt(T)
        scaled = s[:, None] * A[on]
        L = np.linalg.cholesky(np.eye(on.size) - scaled[:, on] * s)
        X = linalg.solve_triangular(L, scaled, lower=True, check_finite=False)
        K = A + X.T @ X
        B = m[:, None] * K * m
        B[on, on] += T
        diagonal = np.arange(len(B))
        B[diagonal, diagonal] += self.curvatures[k]
        W = self.weights[k]
        return _Step(T, s, K, L, X, W.T @ B @ W)


@dataclass(frozen=True, eq=False)
class _Step:
    T: Array
    s: Array
    K: Array
    L: Array
    X: Array
    A: Array
    """The matrix before the next layer down."""
