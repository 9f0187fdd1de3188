"""Parabolas and multipliers that bound the squares of all layers together, by descent.

For smooth activations. The start are parabolas that touch at the centre of the ball, with the slope there, and
multipliers in closed form. Then slopes, bends and multipliers are improved together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import linalg, sparse

from lipcert.kernel.domain import split_by_box
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.quadratic_form import KnownLayer, QuadraticRelaxation
from lipcert.methods.greedy import closed_form, top
from lipcert.methods.joint import descend
from lipcert.methods.method import Stage, symmetric
from lipcert.methods.quadratic import Parabolas, full
from lipcert.model.arrays import Array, dense, times
from lipcert.model.network import Network
from lipcert.runtime.clock import clock
from lipcert.suggest.hints import QuadraticHints

_LARGEST: Final = 1e8
"""Most cubes of the widths, summed: the cost of a trial is proportional to that."""
_QUICK: Final = 2.2e7
"""The same for many balls: settling one takes about 0.1 s then, giving one up several times that."""
_TRIALS, _PATIENCE = 80, 12
"""Most trials; the search is given up when so many steps close less than a fifth of the gap."""
_BARRIER: Final = 1e-3
"""What the barrier may cost, relative to the margin."""
_EVEN: Final = 1e-2
"""The same for the smoothing of heights, per cell that counts."""
_OTHERS: Final = 3.0
"""Second derivatives of what is not a height are about this over μδ², for moves as far as intervals reach."""
_FLAT: Final = 1e-6
"""Least second derivative that is believed, relative to the largest."""
_MARGIN: Final = 1e-9
"""Room for what the proof loses to rounding, relative to the margin."""
_MARKS: Final = np.linspace(0.0, 1.0, 25)[1:]
"""Where parabolas are compared with the activation, as shares of the way from the centre to an end."""


def suits(network: Network, *, quick: bool = False) -> bool:
    """Whether the network has a hidden layer and is small enough for second-order bounds."""
    first, sizes = network.layers[0], [float(layer.size) for layer in network.layers]
    inputs = network.inputs if sparse.issparse(first.weight) else min(network.inputs, 1.5 * first.size)
    return (
        network.depth > 1
        and not network.coupled
        and sum(size**3 for size in (inputs, *sizes)) <= (_QUICK if quick else _LARGEST)
    )


@dataclass(frozen=True, eq=False)
class _Known:
    """Slopes and bends of all neurons relative to the row, T/r² (r: half-widths of the secants), and μ."""

    tilts: list[Array]
    rates: list[Array]
    multipliers: list[Array]
    mu: float


@dataclass(eq=False)
class SecondOrderSearch:
    """Hints for balls around one point, one after the other; those of one ball are the start for the next.

    ``known`` is what was found last, by row of the outputs.
    """

    known: dict[bytes, _Known] = field(default_factory=dict)

    def suggest(self, facts: OutputBounds, row: Array) -> QuadraticHints | None:
        """Hints that seem to show that row·v_N < 0; None if there seem to be none."""
        with suppress(np.linalg.LinAlgError), np.errstate(all="ignore"):  # far too ill-scaled
            return self._found(facts.quadratic_relaxation, row)
        return None

    def _found(self, relaxation: QuadraticRelaxation, row: Array) -> QuadraticHints | None:
        objective, name = _Objective(relaxation, row), row.tobytes()
        start = objective.coordinates(self.known[name]) if name in self.known else None
        if start is None or objective(start) is None:
            start = objective.start()
        bounds: list[float] = []
        best, goal = start, -_MARGIN * objective.scale
        for x, value in descend(objective, start, 0.0, bends=lambda value: value.bends):
            clock().check()
            best = x if not bounds or value.total < bounds[-1] else best
            bounds.append(min([value.total, *bounds[-1:]]))
            slow = len(bounds) > _PATIENCE and bounds[-1 - _PATIENCE] - bounds[-1] < 0.2 * (bounds[-1] - goal)
            if bounds[-1] < goal or slow or objective.trials > _TRIALS:
                break
        if not bounds:
            return None
        self.known[name] = objective.known(best)
        return objective.hints(best) if bounds[-1] < goal else None


def _touching(stage: KnownLayer, row: Array) -> tuple[Array, Array]:
    """Slope and bend, both relative to the row's entry, of the parabola on its side of φ that touches at the centre."""
    neurons, center = stage.neurons, stage.center.value
    slope, value = neurons.slope(center), neurons.value(center)
    ends = np.stack([stage.low, stage.high])
    away = (_MARKS[:, None, None] * (ends - center)).reshape(-1, center.size)
    steep = np.zeros(center.size)
    steep[stage.open] = 2.0 * (stage.beta - stage.alpha)
    with np.errstate(all="ignore"):  # an end may be the centre
        bend = 2.0 * (neurons.value(center + away) - value - slope * away) / (away * away)
        bend = np.nan_to_num(np.clip(bend, -steep / np.abs(away), steep / np.abs(away)))  # more is noise
    return slope, np.where(row > 0.0, bend.max(axis=0), -bend.min(axis=0))


@dataclass(frozen=True, eq=False)
class _Value:
    """The smooth bound with its barrier, the gradient of that, about its second derivatives, and the bound itself."""

    f: float
    gradient: Array
    bends: Array
    total: float


class _Objective:
    """½(gᵀ(μ - H)⁻¹g + μδ²) + constant - κ·log det(μ - H) as a function of parabolas, log T, and log μ.

    The coordinates are: of each layer the slopes of open neurons, as shares of their slope ranges; the bends, in units;
    log T of all layers but the last, the deepest first; log μ. H is that of :mod:`lipcert.kernel.quadratic_form`,
    without rounding errors, and the heights are smooth maxima. With s = r·T^-½ the step is P = D_m K D_m + T,
    K = (A⁻¹ - D_s²)⁻¹; its adjoint is that of an ellipsoid. The adjoint of H is ½yyᵀ + κ(μ - H)⁻¹ for y = (μ - H)⁻¹g,
    the direction in which the bound is attained; that of D_k is the diagonal of the adjoint of B_k.
    """

    def __init__(self, relaxation: QuadraticRelaxation, row: Array) -> None:
        network, self.stages = relaxation.network, relaxation.stages
        self.relaxation, self.row, self.ball, self.delta = relaxation, row, relaxation.ball, relaxation.radius
        *others, _ = range(len(self.stages))
        self.layers = others[::-1]
        last, first, R = network.layers[-1], network.layers[0].weight, relaxation.first
        self.through, self.constant = times(row[None], last.weight)[0], float(row @ last.bias)
        self.scale = abs(float(row @ network(self.ball.center)))
        self.weights = [R, *(dense(layer.weight) for layer in network.layers[1:-1])]
        self.Q = None if R.shape == first.shape else linalg.solve_triangular(R, dense(first), lower=True)
        secants = [stage.secants for stage in self.stages[:-1]]
        self.m, self.r = [0.5 * (low + high) for low, high in secants], [0.5 * (high - low) for low, high in secants]
        self.active = [np.flatnonzero(r > 0) for r in self.r]
        self.sizes = [stage.open.size for stage in self.stages]
        self.ways = [0.5 * (stage.high - stage.low)[stage.open] for stage in self.stages]
        self.units = [(stage.beta - stage.alpha) / way for stage, way in zip(self.stages, self.ways, strict=True)]
        self.kappa = _BARRIER * self.scale / R.shape[1]
        self.even = _EVEN * self.scale / max(sum(self.sizes), 1)
        self.trials = 0

    def start(self) -> Array:
        """Parabolas that touch at the centre, and multipliers in closed form, layer by layer."""
        row, tilts, rates = self.through, list[Array](), list[Array]()
        for stage in reversed(self.stages):
            tilt, rate = _touching(stage, row)
            tilts.insert(0, tilt)
            rates.insert(0, rate)
            row = times((row * tilt)[None], stage.layer.weight)[0]
        parabolas = self._coordinates(tilts, rates)
        count = len(self.stages)
        steps, g, _ = self._drawn(parabolas[:count], parabolas[count:])
        A, parts = self._top(steps[-1]), []
        for k in self.layers:
            on, r = self.active[k], self.r[k]
            T = closed_form(Stage(0, A, 0, self.m[k] - r, self.m[k] + r, self.weights[k].T))[on]
            least = 1e-6 * float((np.abs(np.diagonal(A)) * r * r).max(initial=0.0)) + 1e-200
            parts.append(np.log(np.maximum(1.1 * T, least)))
            A = self._through(k, A, parts[-1], steps[k]).A
        steep = float(np.linalg.norm(g)) / self.delta if self.delta > 0 else 1.0
        mu = 1.05 * max(top(symmetric(A))[0], 0.0) + steep + 1e-200
        return np.concatenate([*parabolas, *parts, [np.log(mu)]])

    def _coordinates(self, tilts: Sequence[Array], rates: Sequence[Array]) -> list[Array]:
        """Those of parabolas of all neurons, relative to the row."""
        shares = [
            np.clip((tilt[stage.open] - stage.alpha) / (stage.beta - stage.alpha), 0.0, 1.0)
            for stage, tilt in zip(self.stages, tilts, strict=True)
        ]
        bends = [rate[s.open] / unit for s, rate, unit in zip(self.stages, rates, self.units, strict=True)]
        return [*shares, *bends]

    def coordinates(self, known: _Known) -> Array:
        """The x of what is known; neurons without a known multiplier get the median."""
        parts = self._coordinates(known.tilts, known.rates)
        for k in self.layers:
            t, on = known.multipliers[k], self.active[k]
            usual = float(np.median(t[t > 0])) if (t > 0).any() else 1.0
            parts.append(np.log(np.where(t > 0, t, usual)[on] * self.r[k][on] ** 2))
        return np.concatenate([*parts, [np.log(known.mu)]])

    def known(self, x: Array) -> _Known:
        """What to begin the next search with."""
        shares, rates, logs, mu = self._split(x)
        tilts, bends = [np.array(stage.slope) for stage in self.stages], []
        for tilt, stage, share, rate, unit in zip(tilts, self.stages, shares, rates, self.units, strict=True):
            tilt[stage.open] = stage.alpha + share * (stage.beta - stage.alpha)
            bends.append(full(stage, rate * unit))
        multipliers = [T / np.where(r > 0, r * r, 1.0) for T, r in zip(self._multipliers(logs), self.r, strict=True)]
        return _Known(tilts, bends, multipliers, mu)

    def hints(self, x: Array) -> QuadraticHints:
        """The hints at x."""
        shares, rates, logs, mu = self._split(x)
        steps, _, _ = self._drawn(shares, rates)
        slopes, bends = (tuple(full(step.stage, getattr(step, name)) for step in steps) for name in ("own", "bend"))
        return QuadraticHints(self.row, slopes, bends, mu, multipliers=tuple(self._multipliers(logs)))

    def _multipliers(self, logs: Sequence[Array]) -> list[Array]:
        """T of all layers but the last, in order."""
        found = [np.zeros(len(r)) for r in self.r]
        for k, part in zip(self.layers, logs, strict=True):
            found[k][self.active[k]] = np.exp(part)
        return found

    def _split(self, x: Array) -> tuple[list[Array], list[Array], list[Array], float]:
        """Shares, bends in units, log T, and μ."""
        sizes, count = [*self.sizes, *self.sizes, *(self.active[k].size for k in self.layers)], len(self.sizes)
        parts = np.split(x[:-1], np.cumsum(sizes)[:-1])
        return parts[:count], parts[count : 2 * count], parts[2 * count :], float(np.exp(x[-1]))

    def _drawn(self, shares: Sequence[Array], rates: Sequence[Array]) -> tuple[list[Parabolas], Array, float]:
        """The parabolas, what is left of the row at the inputs, and a constant; without the heights."""
        row, constant, steps = self.through, self.constant, []
        for stage, share, rate, unit in reversed(list(zip(self.stages, shares, rates, self.units, strict=True))):
            step = Parabolas(stage, row, share, rate * unit, self.even)
            constant += float(step.g @ stage.layer.bias + row @ stage.offset.value)
            row = times(step.g[None], stage.layer.weight)[0]
            steps.append(step)
        return steps[::-1], row, constant

    def __call__(self, x: Array) -> _Value | None:
        self.trials += 1
        shares, rates, logs, mu = self._split(x)
        if not 0.0 < mu < np.inf:
            return None
        drawn, row, constant = self._drawn(shares, rates)
        (g,), (boxed,) = split_by_box(self.ball, row[None])
        A, steps = self._top(drawn[-1]), []
        try:
            for k, part in zip(self.layers, logs, strict=True):
                steps.append(self._through(k, A, part, drawn[k]))
                A = steps[-1].A
            L = np.linalg.cholesky(mu * np.eye(len(A)) - A)
        except np.linalg.LinAlgError:
            return None
        inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        R = inverse.T @ inverse
        fewer = g if self.Q is None else self.Q @ g
        y = R @ fewer
        d = y if self.Q is None else self.Q.T @ y + (g - self.Q.T @ fewer) / mu
        total = constant + float(row @ self.ball.center) + float(boxed)
        total += 0.5 * (float(d @ g) + self.delta * (self.delta * mu))
        f = total + sum(float(one.soft.sum()) for one in drawn) - 2.0 * self.kappa * float(np.log(np.diagonal(L)).sum())
        if not np.isfinite(f):
            return None
        by_mu = 0.5 * (self.delta * self.delta - float(d @ d)) - self.kappa * float(np.trace(R))
        back, by_T, size_T, squares = 0.5 * np.outer(y, y) + self.kappa * R, [], [], []
        for k, step in zip(reversed(self.layers), reversed(steps), strict=True):
            W, m, on, s = self.weights[k], self.m[k], self.active[k], step.s
            P = W @ back @ W.T
            squares.append(2.0 * np.diagonal(P))
            K = m[:, None] * P * m
            across = step.K[on] @ K
            size_T.append(step.T * np.diagonal(P)[on])
            by_T.append(size_T[-1] - s * s * np.einsum("ij,ij->i", across, step.K[on]))
            H = step.X.T @ linalg.solve_triangular(step.L, np.diag(s), lower=True, check_finite=False)
            back = np.array(K)
            right = K @ H
            back[:, on] += right
            back[on] += right.T
            back[np.ix_(on, on)] += H.T @ right
        squares.append(2.0 * np.einsum("ij,ij->i", self.weights[-1] @ back, self.weights[-1]))
        gradient, bends = [np.zeros(0)] * (2 * len(drawn)), [np.zeros(0)] * (2 * len(drawn))
        z, others = self.ball.center + d, _OTHERS / (mu * self.delta * self.delta)
        for k, (stage, one, square) in enumerate(zip(self.stages, drawn, squares, strict=True)):
            v, unit, way, rate = stage.layer.weight @ z + stage.layer.bias, self.units[k], self.ways[k], len(drawn) + k
            z = stage.slope * v + stage.offset.value
            z[stage.open], gradient[k], by_rate = one.derivatives(v[stage.open], square[stage.open])
            gradient[rate] = unit * by_rate
            of_places, of_squares = one.variances()
            bends[k] = (one.row * unit * way) ** 2 * (of_places / one.even + others * way**2)
            bends[rate] = (0.5 * one.row * unit) ** 2 * (of_squares / one.even + others * way**4)
        gradient += [*by_T[::-1], np.array([mu * by_mu])]
        seconds = np.concatenate([*bends, *size_T[::-1], [0.5 * self.delta * (self.delta * mu)]])
        seconds = np.maximum(seconds, _FLAT * seconds.max() + 1e-300)
        return _Value(f, np.concatenate(gradient), seconds, total + sum(float(one.height.sum()) for one in drawn))

    def _top(self, last: Parabolas) -> Array:
        """What the squares of the last hidden layer are, one layer down."""
        W = self.weights[-1]
        return W.T @ (full(last.stage, last.bend)[:, None] * W)

    def _through(self, k: int, A: Array, log_T: Array, drawn: Parabolas) -> _Step:
        """One layer down; LinAlgError where the multipliers are too small."""
        on, m, T = self.active[k], self.m[k], np.exp(log_T)
        s = self.r[k][on] / np.sqrt(T)
        scaled = s[:, None] * A[on]
        L = np.linalg.cholesky(np.eye(on.size) - scaled[:, on] * s)
        X = linalg.solve_triangular(L, scaled, lower=True, check_finite=False)
        K = A + X.T @ X
        B = m[:, None] * K * m
        B[on, on] += T
        at = drawn.stage.open
        B[at, at] += drawn.bend
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
