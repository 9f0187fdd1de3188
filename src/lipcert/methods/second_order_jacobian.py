"""Second-order Jacobian bounds over a ball, for smooth slopes and many inputs: multipliers by descent.

The equations are those of :mod:`lipcert.kernel.second_order_jacobian`, here in floating point and with their gradient.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.quadratic_form import first_factor
from lipcert.kernel.second_order_jacobian import prove_second_order_jacobian
from lipcert.kernel.sweep import proving
from lipcert.methods.greedy import top
from lipcert.methods.joint import descend, no_moves
from lipcert.methods.method import Candidate, Problem, symmetric
from lipcert.model.activations import STRAIGHT
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Ball
from lipcert.runtime.clock import clock
from lipcert.suggest.hints import Curved

_LARGEST: Final = 1e9
"""Most hidden neurons, cubed: the cost of a trial is proportional to that."""
_WORTH: Final = 0.5
"""Share of the open neurons' slope ranges that must belong to smooth activations."""
_ROUNDS: Final = (8, 6, 6, 6, 6, 6, 8, 8, 12, 16, 24)
"""Steps of each round; after a round parabolas are fitted again, on the intervals that the multipliers give."""
_PROGRESS, _PROMISE = 1e-3, 3.0
"""The search ends after three rounds that gain less than the first share, or at this many times the known bound."""
_FLATTER: Final = (0.05, 0.25, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1)
"""Shares of a parabola's rise and curvature that are tried."""
_POINTS, _CELLS = 65, 1024
"""Points of a fit, and cells of its proof: the error grows by about the rise of the slope over one cell."""
_SOFT: Final = 1e-2
"""Eigenvalues within this share of the largest are averaged, so that the bound is smooth."""
_SHARES: Final = np.log([0.12, 0.03, 0.12, 0.2, 0.2, 3.0])
"""Where the descent starts: c1, c2, a2, a3, over what is left for the others; a; and the odds of the share s·μ."""
_PROOFS: Final = 6.0
"""The two proofs that follow take about so many times as long as the first trial."""


def suits(problem: Problem, start: Candidate) -> bool:
    """Whether there is a second-order bound: an ℓ2 ball, a network that is not too large, smooth slopes."""
    hidden = problem.network.layers[:-1]
    if (
        not isinstance(problem.region, Ball)
        or not problem.region.plain
        or not problem.norms.plain
        or not problem.enclosures
        or not hidden
        or problem.network.coupled
        or not problem.region.radius > 0.0
    ):
        return False
    if sum(layer.size for layer in hidden) ** 3 > _LARGEST or problem.network.outputs > 2 * hidden[0].size:
        return False
    smooth = total = 0.0
    for layer, seen in zip(hidden, start.layers, strict=True):
        assert layer.neurons is not None
        width = seen.beta - seen.alpha
        for row, places in layer.neurons.groups:
            bent = any(shape != STRAIGHT for shape in row.shape)
            smooth += float(width[places].sum()) if bent else 0.0
        total += float(width.sum())
    return total > 0.0 and smooth >= _WORTH * total


def improved(problem: Problem, best: Candidate) -> Iterator[Candidate]:
    """A candidate with second-order hints, if they prove less than the best known bound."""
    now, interrupt = clock(), None
    assert isinstance(problem.region, Ball)
    found, least, started, each = None, np.inf, time.perf_counter(), 0.0
    try:
        search = _Search.of(problem.network, problem.region)
        for x, value in search.descent(best.bound):
            each = each or time.perf_counter() - started
            if value.bound < least:
                least, found = value.bound, search.hints(x, value.share)
                now.say(f"bound {min(least, best.bound):.4g} (second order)")
            if not now.allows(_PROOFS * each):
                break
    except np.linalg.LinAlgError:  # far too ill-scaled to differentiate
        now.say("second order: no more is found")
    except KeyboardInterrupt as error:
        interrupt = error
    if found is not None and least < best.bound:
        try:
            with proving():
                bound = prove_second_order_jacobian(problem.network, problem.region, found)
        except ProofFailed:
            bound = np.inf
        if bound < best.bound:
            yield replace(best, bound=bound, curved=found, cover=None, found_by="SecondOrder")
    if interrupt is not None:
        raise interrupt


@dataclass(frozen=True, eq=False)
class _Value:
    """log L² and its gradient, the bound L, and the share s·λmax(Θ)."""

    f: float
    gradient: Array
    bound: float
    share: float


@dataclass(frozen=True, eq=False)
class _Pass:
    """The matrices of one pass through the layers; names are those of the equations."""

    K: Array
    F: Array
    E: Array
    Y: Array
    Q: Array
    M: Array
    H: Array
    A: Array
    lam: float
    w: Array
    Theta: Array
    mu: float


class _Search:
    """The bound as a function of the logarithms of the shares, of the metric's eigenvalues κ, and of t."""

    def __init__(self, weights: list[Array], neurons: list[Neurons], values: list[Array], radius: float) -> None:
        self.weights, self.neurons, self.values, self.r = weights, neurons, values, radius
        self.ends = [0, *np.cumsum([len(value) for value in values]).tolist()]
        self.d, self.q = weights[0].shape[1], min(weights[0].shape[1], weights[-1].shape[0])
        self.count = self.ends[-1]
        start = [neuron.slope(value) for neuron, value in zip(neurons, values, strict=True)]
        self.slopes, self.fits = np.zeros((3, self.count)), np.zeros(self.count)
        self.slopes[0] = np.concatenate(start)
        self.shape, self.reach = np.ones((2, self.count)), np.zeros(self.count)
        self._map()

    @staticmethod
    def of(network: Network, ball: Ball) -> _Search:
        """The search for a network and a ball."""
        values = network.preactivations(ball.center)[:-1]
        neurons = [layer.neurons for layer in network.layers if layer.neurons is not None]
        first = first_factor(network.layers[0].weight)
        weights = [first, *(dense(layer.weight) for layer in network.layers[1:])]
        return _Search(weights, neurons, list(values), float(ball.radius))

    def descent(self, known: float) -> Iterator[tuple[Array, _Value]]:
        """Points of falling bounds."""
        lengths = np.linalg.norm(self.B, axis=1) / np.maximum(np.linalg.norm(self.G, axis=0), 1e-100)
        x = np.concatenate([_SHARES, np.zeros(self.q), np.log(np.clip(5.0 * lengths, 1e-9, 1e9))])
        moves, least, idle = no_moves(), np.inf, 0
        for number, steps in enumerate(_ROUNDS):
            if number:
                self._flatten()
            self.fit(x)
            before = least
            for point, value in islice(descend(self, x, 1e-5, moves), steps + 1):
                yield point, value
                x, least = point, min(least, value.bound)
                if not value.bound < _PROMISE * known:
                    return
            idle = 0 if least < (1.0 - _PROGRESS) * before else idle + 1
            if idle > 2:
                return

    def hints(self, x: Array, share: float) -> Curved:
        """Hints for the proof at x."""
        shares, kappa, t = self._split(x)
        mix = np.zeros((self.weights[-1].shape[0],) * 2)
        seen = self.sizes > 1e-12 * self.sizes[0]
        mix[: self.q][seen] = (np.sqrt(kappa[seen]) / self.sizes[seen])[:, None] * self.U.T[seen]
        c1, c2, _, a2, a3, a, _ = shares
        return Curved(self.slopes.copy(), t, mix, np.array([c1, c2, a2, a3, a, share]))

    def fit(self, x: Array) -> None:
        """Parabolas for the slopes, on intervals that follow from them, layer after layer."""
        done: _Pass | None = None
        for k, (neurons, value) in enumerate(zip(self.neurons, self.values, strict=True)):
            start, end = self.ends[k], self.ends[k + 1]
            self._map()
            Q = self._before(k, done)[1]
            reach = self.r * np.sqrt(np.diagonal(self.S)[start:end]) + np.sqrt(np.maximum(np.diagonal(Q)[start:], 0.0))
            self.reach[start:end] = reach
            self.slopes[:, start:end], self.fits[start:end] = _parabola(neurons, value, reach, self.shape[:, start:end])
            done = self._pass(k, done, x)
        self._map()

    def _flatten(self) -> None:
        """Flatter parabolas where rise and curvature cost more than a larger error would."""
        *costs, by_fit = self.blame
        moved = self.shape.copy()
        for which, by_share in enumerate(costs):
            best, now = np.zeros(self.count), self.shape[which]
            for share in _FLATTER:
                tried = self.shape.copy()
                tried[which] = share
                cost = by_share * (share / now - 1.0) + by_fit * (self._errors(tried) / self.fits - 1.0)
                better = cost < best
                best, moved[which] = np.where(better, cost, best), np.where(better, share, moved[which])
        self.shape = np.sqrt(self.shape * moved)

    def _errors(self, shape: Array) -> Array:
        """About how far parabolas of that shape are off."""
        ends = zip(self.neurons, self.values, np.split(self.reach, self.ends[1:-1]), strict=True)
        parts = zip(ends, np.split(shape, self.ends[1:-1], axis=1), strict=True)
        return np.concatenate([_parabola(*one, share)[1] for one, share in parts])

    def __call__(self, x: Array) -> _Value | None:
        passes: list[_Pass] = []
        for k in range(len(self.values)):
            passes.append(self._pass(k, passes[-1] if passes else None, x))
        last, share = passes[-1], self._split(x)[0][-1]
        s = share / last.mu
        R = np.linalg.inv(np.eye(self.d) - s * last.Theta)
        Z = symmetric(self.J0 @ R @ self.J0.T + self.G @ last.F @ self.G.T / s)
        if not np.isfinite(Z).all():
            return None
        value, back = _soft(Z)
        if not value > 0.0:
            return None
        gradient = self._backwards(x, passes, R, back / value)
        bound, share = np.sqrt(np.linalg.eigvalsh(Z)[-1]), s * np.linalg.eigvalsh(last.Theta)[-1]
        return _Value(float(np.log(value)), gradient, float(bound), float(share))

    def _split(self, x: Array) -> tuple[Array, Array, Array]:
        """The shares c1, c2, 1 - c1 - c2, a2, a3, a, s·μ; κ; t."""
        e = np.exp(x[:6])
        c, a = e[:2] / (1.0 + e[:2].sum()), e[2:4] / (1.0 + e[2:4].sum())
        shares = np.array([*c, 1.0 - c.sum(), *a, e[4], e[5] / (1.0 + e[5])])
        return shares, np.exp(x[6 : 6 + self.q]), np.exp(x[6 + self.q :])

    def _map(self) -> None:
        """B, K, J0, G for the slopes as they are, S, and the directions of the metric."""
        middle = np.hstack([self.weights[0], np.zeros((self.ends[1], self.count))])
        rows = [middle]
        for k, weight in enumerate(self.weights[1:]):
            middle = weight @ (self.slopes[0, self.ends[k] : self.ends[k + 1], None] * middle)
            middle[:, self.d + self.ends[k] : self.d + self.ends[k + 1]] += weight
            rows.append(middle)
        *hidden, last = rows
        stack = np.vstack(hidden)
        self.B, self.K, self.J0, self.G = stack[:, : self.d], stack[:, self.d :], last[:, : self.d], last[:, self.d :]
        self.S = self.B @ self.B.T
        if not np.isfinite(self.J0).all():  # LAPACK's singular value decomposition may never return from infinities
            raise np.linalg.LinAlgError("the Jacobian at the centre is too large for floating point")
        self.U, self.sizes, right = np.linalg.svd(self.J0, full_matrices=False)
        self.V = right.T
        self.P = self.B @ self.V

    def _before(self, k: int, done: _Pass | None) -> tuple[Array, Array]:
        end = self.ends[k + 1]
        if done is None:
            return np.zeros((end, end)), np.zeros((end, end))
        K = self.K[:end, : self.ends[k]]
        Y = K @ done.F @ K.T
        Q = self.r * self.r * done.mu / 3.0 * (Y + 2.0 * (K * done.E) @ K.T)
        return Y, Q

    def _pass(self, k: int, done: _Pass | None, x: Array) -> _Pass:
        (c1, c2, rest, a2, a3, a, _), kappa, t = self._split(x)
        end, rr = self.ends[k + 1], self.r * self.r
        (_, tau, psi), fits, t = self.slopes[:, :end], self.fits[:end], t[:end]
        B, S, P = self.B[:end], self.S[:end, :end], self.P[:end]
        Y, Q = self._before(k, done)
        M = (1.0 + a) * rr * S + (1.0 + 1.0 / a) * Q
        H = tau[:, None] * (rr / (1.0 - a2 - a3) * S + Q / a2) * tau + psi[:, None] * (M * M) * psi / (4.0 * a3)
        A = S + (P * kappa) @ P.T + Y / c1
        g = np.sqrt(fits / t)
        lam, w = (0.0, g) if done is None else top(g[:, None] * Y * g)
        E = (1.0 + lam / c2) * t * fits
        F = H * A
        F.flat[:: len(F) + 1] += E
        spread = B.T @ ((fits / t)[:, None] * B)
        Theta = (np.eye(self.d) - (self.V * (kappa / (1.0 + kappa))) @ self.V.T + spread) / rest
        return _Pass(self.K[:end, : self.ends[k]], F, E, Y, Q, M, H, A, lam, g * w, Theta, _soft(Theta)[0])

    def _backwards(self, x: Array, passes: list[_Pass], R: Array, back: Array) -> Array:
        """The gradient of log λmax by x; ``back`` is that by Z."""
        (c1, c2, rest, a2, a3, a, share), kappa, t = self._split(x)
        rr, last = self.r * self.r, passes[-1]
        s, a1 = share / last.mu, 1.0 - a2 - a3
        by_c, by_a = np.zeros(2), np.zeros(3)
        by_moved, by_kappa, by_t = 0.0, np.zeros(self.q), np.zeros(self.count)
        by_rise, by_bend, by_fit = np.zeros((3, self.count))
        F_ = self.G.T @ back @ self.G / s
        w = R @ self.J0.T
        Theta_ = s * (w @ back @ w.T)
        by_s = (float((Theta_ * last.Theta).sum()) - float((F_ * last.F).sum())) / s
        E_, mu_ = np.zeros(self.count), -by_s * s / last.mu
        for k in range(len(passes) - 1, -1, -1):
            here, end = passes[k], self.ends[k + 1]
            (_, tau, psi), fits, some = self.slopes[:, :end], self.fits[:end], t[:end]
            B, P, S = self.B[:end], self.P[:end], self.S[:end, :end]
            Theta_ = Theta_ + mu_ * _soft(here.Theta)[1]
            along = np.einsum("id,de,ie->i", B, Theta_, B, optimize=True)
            by_t[:end] -= fits / some * along / rest
            by_fit[:end] += fits / some * along / rest
            by_kappa -= (
                kappa * np.einsum("di,de,ei->i", self.V, Theta_, self.V, optimize=True) / (1.0 + kappa) ** 2 / rest
            )
            by_c += float((Theta_ * here.Theta).sum()) / rest
            H_, A_ = F_ * here.A, F_ * here.H
            E_ = E_ + np.diagonal(F_)
            by_t[:end] += E_ * here.E
            by_fit[:end] += E_ * here.E
            lam_ = float((E_ * some * fits).sum()) / c2
            by_c[1] -= lam_ * here.lam / c2
            by_kappa += kappa * np.einsum("id,ij,jd->d", P, A_, P, optimize=True)
            M_ = psi[:, None] * (H_ * here.M) * psi / (2.0 * a3)
            by_bend[:end] += (M_ * here.M).sum(axis=1)
            Q_ = tau[:, None] * H_ * tau
            by_rise[:end] += 2.0 * (Q_ * (rr / a1 * S + here.Q / a2)).sum(axis=1)
            by_a[0] -= rr * float((Q_ * S).sum()) / (a1 * a1)
            by_a[1] -= float((Q_ * here.Q).sum()) / (a2 * a2)
            by_a[2] -= float((M_ * here.M).sum()) / (2.0 * a3)
            by_moved += rr * float((M_ * S).sum()) - float((M_ * here.Q).sum()) / (a * a)
            if not k:
                break
            Q_ = Q_ / a2 + (1.0 + 1.0 / a) * M_
            by_c[0] -= float((A_ * here.Y).sum()) / (c1 * c1)
            by_t[:end] -= lam_ * here.w * (here.Y @ here.w)
            by_fit[:end] += lam_ * here.w * (here.Y @ here.w)
            mean = rr * passes[k - 1].mu / 3.0
            Y_ = A_ / c1 + lam_ * np.outer(here.w, here.w) + mean * Q_
            F_ = here.K.T @ Y_ @ here.K
            E_ = 2.0 * mean * np.einsum("ij,ij->j", here.K, Q_ @ here.K)
            mu_ = float((Q_ * here.Q).sum()) / passes[k - 1].mu
            Theta_ = np.zeros(Theta_.shape)
        self.blame = by_rise, by_bend, by_fit
        c, shares = np.array([c1, c2]), np.array([a2, a3])
        by_a = by_a[1:] - by_a[0]
        gradient = [c * (by_c - by_c @ c), shares * (by_a - by_a @ shares)]
        return np.concatenate([*gradient, [a * by_moved, by_s / last.mu * share * (1.0 - share)], by_kappa, by_t])


def _soft(matrix: Array) -> tuple[float, Array]:
    """A little more than λmax, smooth, and its gradient."""
    values, vectors = np.linalg.eigh(matrix)
    width = _SOFT * float(values[-1])
    if not width > 0.0:
        return float(values[-1]), np.outer(vectors[:, -1], vectors[:, -1])
    weights = np.exp((values - values[-1]) / width)
    total = float(weights.sum())
    share = weights / total
    log = np.log(total)
    # width depends on λmax: d(λmax + width·log Σ) has the part that comes with it
    part = share + np.eye(len(values))[-1] * (_SOFT * log - _SOFT * float(share @ (values - values[-1])) / width)
    return float(values[-1]) + width * float(log), np.asarray((vectors * part) @ vectors.T)


def _parabola(neurons: Neurons, center: Array, reach: Array, shape: Array) -> tuple[Array, Array]:
    """σ, τ, ψ for slopes at most ``reach`` from the centre, (3, n), and about how far they are off.

    Of the rise and the curvature of least squares the shares ``shape`` are taken, (2, n).
    """
    nodes = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS)
    near = neurons.slope(center + nodes[:, None] * reach)
    powers = nodes[:, None] ** np.arange(3)
    flat, rise, bend = np.linalg.lstsq(powers, near, rcond=None)[0]
    rise, bend = shape * (rise, bend)
    nodes = np.linspace(-1.0, 1.0, 4 * _POINTS)[:, None]
    off = neurons.slope(center + nodes * reach) - (flat + rise * nodes + bend * nodes * nodes)
    most, least = off.max(axis=0), off.min(axis=0)
    size = np.where(reach > 0.0, reach, 1.0)
    slopes = np.stack([flat + 0.5 * (most + least), rise / size, 2.0 * bend / (size * size)])
    return slopes, 0.5 * (most - least) + 2.0 * (np.abs(rise) + 2.0 * np.abs(bend)) / _CELLS + 1e-12
