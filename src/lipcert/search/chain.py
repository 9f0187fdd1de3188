"""The bound as one smooth function of all multipliers, with its gradient.

For fixed slopes the whole sweep is a function of T_1 … T_{N-1}. Its value takes one forward sweep and its
gradient one backward sweep, so both cost O(layers · width³) time and O(layers · width²) memory.

The variables are x = log(T / (r² diag S)), S the ellipsoid that arrives at the layer. Then D_r T^-½ S T^-½ D_r is
e^(-x/2) C e^(-x/2), C the correlation matrix of S. Multipliers thus follow what earlier layers do to S: a step
rarely leaves the feasible set, and scale appears nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import linalg

from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.network import Network
from lipcert.runtime.clock import clock
from lipcert.search.ellipsoid import inverse_of, symmetric
from lipcert.search.folding import condensed

Slopes = tuple[Array, Array]

STILL = 1e-14
"""A neuron that moves less than this share of its layer's mean (squared) is treated as if it moved that much."""


@dataclass(frozen=True, eq=False)
class Value:
    """f(x), its gradient, and the logarithm of the bound at x (without the barrier).

    ``effect`` says for each hidden layer what its multipliers add to log L², to first order: the rise from T itself
    and the rise from its finiteness, both positive and about equal where T is well chosen.
    """

    f: float
    gradient: Array
    log_bound: float
    effect: Array


@dataclass(frozen=True, eq=False)
class _Map:
    """An affine map, its weight brought near one, and the logarithm of the squared factor taken out."""

    weight: Weight
    log_scale: float = 0.0

    @staticmethod
    def of(weight: Weight, log_scale: float = 0.0) -> _Map:
        size = float(abs(weight).max()) or 1.0
        return _Map(weight / size, log_scale + 2.0 * float(np.log(size)))


@dataclass(frozen=True, eq=False)
class _Link:
    """One hidden layer, what is kept of it, and the map from there to the next link or to the output."""

    layer: int
    m: Array
    r: Array  # of the active neurons
    active: Array  # among what is kept
    neurons: Array  # the same among the layer's neurons
    ahead: _Map


@dataclass(frozen=True, eq=False)
class _Step:
    """What the backward sweep needs of one link; matrices are relative to ``scale``."""

    T: Array
    s: Array  # r T^-½ on the active neurons
    base: Array  # max(S_jj, STILL)
    scaled: Array  # D_s S, (active, n)
    factor: Array  # Cholesky factor of C = I - D_s S D_s
    K: Array  # S + S D_s C⁻¹ D_s S
    scale: float


class Chain:
    """f(x) = log τ + μ·barrier in x, the active neurons of all layers in a row.

    barrier = -Σ_i logdet(I - D_s S_i D_s) - logdet(I - S_N/τ),  s = r T^-½,

    with τ > λmax(S_N) at its minimising value, where μ·tr(S_N (τ - S_N)⁻¹) = 1. As μ → 0, f tends to log L².

    Parameters
    ----------
    network
        Its weights count.
    slopes
        The range (α, β) of each hidden layer. Layers where all slopes are single numbers merge with their neighbours.
    """

    def __init__(self, network: Network, slopes: Sequence[Slopes]) -> None:
        self.layers = len(slopes)
        self.links: list[_Link] = []
        kept = condensed(network.layers, list(slopes))
        weights = [*(part.weight for part in kept), kept[-1].ahead if kept else network.layers[0].weight]
        self.first = pending = _Map.of(weights[0])
        for index, (part, ahead) in enumerate(zip(kept, weights[1:], strict=True)):
            m, r = 0.5 * (part.alpha + part.beta), 0.5 * (part.beta - part.alpha)
            active = np.flatnonzero(r > 0)
            if active.size or not _mergeable(ahead, pending.weight):
                pending = _Map.of(ahead)
                self.links.append(_Link(index, m, r[active], active, part.neurons[active], pending))
                continue
            pending = _Map.of(ahead @ (m[:, None] * dense(pending.weight)), pending.log_scale)
            if self.links:
                self.links[-1] = replace(self.links[-1], ahead=pending)
            else:
                self.first = pending
        self.cuts = np.cumsum([0] + [link.active.size for link in self.links])

    @property
    def size(self) -> int:
        """Number of variables."""
        return int(self.cuts[-1])

    def split(self, x: Array) -> list[Array]:
        """The part of x that belongs to each link."""
        return [x[start:stop] for start, stop in pairwise(self.cuts)]

    def _begin(self) -> Array:
        return dense(self.first.weight @ self.first.weight.T)

    def __call__(self, x: Array, mu: float) -> Value | None:
        """The value f and its gradient, or None where some T - D_r S D_r is not positive definite."""
        tape: list[_Step] = []
        S, log_scale, barrier = self._begin(), self.first.log_scale, 0.0
        for link, part in zip(self.links, self.split(x), strict=True):
            clock().check()
            scale = float(np.trace(S)) / len(S) or 1.0
            base = np.maximum(np.diagonal(S)[link.active] / scale, STILL)
            step = _forward(link, S / scale, base, np.exp(part) * link.r**2 * base, scale)
            if step is None:
                return None
            tape.append(step)
            log_scale += np.log(scale) + link.ahead.log_scale
            barrier -= 2.0 * np.log(np.diagonal(step.factor)).sum()
            S = _push(link, step)
        values, vectors = np.linalg.eigh(S)
        top = float(values[-1])
        if not (np.isfinite(top) and top > 0.0):
            return None
        share = np.maximum(values / top, 0.0)
        tau = _level(share, mu)
        f = np.log(tau) + np.log(top) + log_scale + mu * (barrier - np.log1p(-share / tau).sum())
        adjoint = (vectors * (mu / (top * (tau - share)))) @ vectors.T
        gradient, effect = self._backward(tape, adjoint, mu)
        return Value(float(f), gradient, 0.5 * float(np.log(top) + log_scale), effect)

    def _backward(self, tape: list[_Step], adjoint: Array, mu: float) -> tuple[Array, Array]:
        """Gradient in x and effect of each layer. With K̄ = D_m P̄ D_m, H = I + S D_s C⁻¹ D_s, and g = ∂f/∂log T:

        g_j = T_j P̄_jj - s_j² (K K̄ K)_jj + μ(1 - (C⁻¹)_jj),   S̄ = Hᵀ K̄ H + μ D_s C⁻¹ D_s + diag(g / diag S),

        the last term because T moves with the diagonal of S.
        """
        parts: list[Array] = []
        effect = np.zeros(self.layers)
        for step, link in zip(tape[::-1], self.links[::-1], strict=True):
            clock().check()
            active = link.active
            P_bar = times(times(adjoint, link.ahead.weight).T, link.ahead.weight)
            K_bar = link.m[:, None] * P_bar * link.m
            adjoint = K_bar.copy()
            if active.size:
                inverse = inverse_of(step.factor)
                rows = step.K[active]
                rise = step.T * np.diagonal(P_bar)[active]
                fall = step.s**2 * np.einsum("ij,ij->i", rows @ K_bar, rows)
                gradient = rise - fall + mu * (1.0 - np.diagonal(inverse))
                effect[link.layer] = (rise + fall).sum()
                H = (step.scaled.T @ inverse) * step.s  # the active columns of H - I
                KH = K_bar @ H
                adjoint[:, active] += KH
                adjoint[active, :] += KH.T
                adjoint[np.ix_(active, active)] += H.T @ KH + mu * (step.s[:, None] * inverse * step.s)
                adjoint[active, active] += np.where(step.base > STILL, gradient / step.base, 0.0)
                parts.append(gradient)
            adjoint = adjoint / step.scale
        return np.concatenate([np.zeros(0), *parts[::-1]]), effect

    def coordinates(self, log_multipliers: Sequence[Array]) -> Array:
        """The x that stands for log T, given for all neurons of each hidden layer at true scale.

        Neurons that do not move need no more than a small T, so theirs is not taken over. Multipliers on the edge of
        the feasible set are moved inside.
        """
        parts: list[Array] = []
        S, log_scale = self._begin(), self.first.log_scale
        for link in self.links:
            scale = float(np.trace(S)) / len(S) or 1.0
            log_scale += np.log(scale)
            base = np.maximum(np.diagonal(S)[link.active] / scale, STILL)
            log_base = np.log(base) + 2.0 * np.log(link.r)
            part = log_multipliers[link.layer][link.neurons] - log_scale - log_base
            part = np.where(base > STILL, part, np.log(4.0 * max(link.active.size, 1)))
            for inward in (0.0, 1e-9, 1e-6, 1e-3, 1.0):
                step = _forward(link, S / scale, base, np.exp(part + inward + log_base), scale)
                if step is not None:
                    break
            else:
                raise np.linalg.LinAlgError("multipliers far outside the feasible set")
            parts.append(part + inward)
            log_scale += link.ahead.log_scale
            S = _push(link, step)
        return np.concatenate([np.zeros(0), *parts])


def _forward(link: _Link, S: Array, base: Array, T: Array, scale: float) -> _Step | None:
    """K and what belongs to it for one link, or None outside the feasible set."""
    active = link.active
    s = link.r / np.sqrt(T)
    scaled = s[:, None] * S[active]
    if not active.size:
        return _Step(T, s, base, scaled, np.eye(0), S, scale)
    core = -scaled[:, active] * s
    core.flat[:: active.size + 1] += 1.0
    factor, failed = linalg.lapack.dpotrf(core, lower=1, clean=1)
    if failed:
        return None
    X = linalg.solve_triangular(factor, scaled, lower=True, check_finite=False)
    return _Step(T, s, base, scaled, factor, S + X.T @ X, scale)


def _push(link: _Link, step: _Step) -> Array:
    """The S of the next link: P = D_m K D_m + T through the affine map."""
    P = link.m[:, None] * step.K * link.m
    P[link.active, link.active] += step.T
    return symmetric(times(times(P, link.ahead.weight.T).T, link.ahead.weight.T))


def _mergeable(after: Weight, before: Weight) -> bool:
    """Whether one product is no more work than two: S = W P Wᵀ takes (entries of W) · (rows + columns)."""
    rows, columns = after.shape[0], before.shape[1]
    apart = sum(_entries(weight) * sum(weight.shape) for weight in (after, before))
    return rows * columns * (rows + columns) <= apart


def _entries(weight: Weight) -> int:
    return weight.size if isinstance(weight, np.ndarray) else int(weight.nnz)


def _level(share: Array, mu: float) -> float:
    """The τ > 1 with μ Σ share/(τ - share) = 1, for eigenvalues relative to the largest."""
    low, high = 1.0 + mu, 1.0 + mu * share.size
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mu * (share / (middle - share)).sum() > 1.0 else (low, middle)
    return 0.5 * (low + high)
