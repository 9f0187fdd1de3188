"""Multipliers of the layers of networks with softmax rows or products, greedily, with an eye on the outputs.

Layers of such networks carry values of very different sizes past each other, so λmax(W⁺PW⁺ᵀ) says little about what
counts in the end. With J the Jacobian of the outputs by the results of the layer, at the centre of the region, the
objective is the trace of JPJᵀ:

    f(T) = const + tr(G(I - HSHᵀ)⁻¹Gᵀ) + Σ_o E_o‖J_o‖²,    D = HᵀH,  G = JMSHᵀ.

A common factor τ of all multipliers is found along f, which is convex in it. Then each unit has the multiplier at which
its two terms balance: τ_k² Σ_o weights‖J_o‖² = tr(YᵀQ_kY), Y = (S⁻¹ - D)⁻¹MᵀJᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.kernel.coupling import Form
from lipcert.model.arrays import Array, times
from lipcert.model.network import Network
from lipcert.suggest.hints import View

_GRID, _LOOKS = np.geomspace(1e-4, 1e4, 400), 3
"""Tried values of τ/s - 1, s the least feasible one; of large layers only few are looked at."""
_LARGE = 700
"""Coordinates from which a layer is large."""
_FLOOR = 1e-3
"""Least share of the mean that an output counts, and of the largest multiplier that one is."""
_HARDLY = 0.999
"""From this λmax(HSHᵀ) on multipliers are too small to say what their balance is."""

_onward: WeakKeyDictionary[Network, tuple[bytes, list[Array]]] = WeakKeyDictionary()


def onward(network: Network, values: Sequence[Array]) -> list[Array]:
    """The Jacobians of the outputs by the results of each hidden layer, at pre-activations, (outputs, width)."""
    key = values[-1].tobytes()
    known = _onward.get(network)
    if known is None or known[0] != key:
        back = network.layers[-1].weight
        found = [times(np.eye(network.outputs), back)]
        for layer, v in zip(network.layers[-2:0:-1], values[:0:-1], strict=True):
            found.append(times(layer.pulled(v, 1, found[-1]), layer.weight))
        known = key, [np.nan_to_num(J, posinf=0.0, neginf=0.0) for J in found[::-1]]
        _onward[network] = known
    return known[1]


def coupled_multipliers(view: View, rounds: int) -> Array:
    """Multipliers of the results of a layer, (1, width); ``rounds`` times each unit gets one of its own."""
    form = view.form
    assert form is not None
    assert view.network is not None
    T = form.base
    if not form.units or not len(view.values):
        return T[None]
    J = onward(view.network, view.values)[view.index]
    sizes = (J * J).sum(axis=0)
    objective = _Objective(form, view.S[0], times(form.M.value.T, J.T), sizes + _FLOOR * sizes.mean() + 1e-300)
    try:
        T = objective.scaled(T)
        for _ in range(rounds):
            T = objective.scaled(objective.balanced(T))
    except (ProofFailed, ValueError):  # then it is what was found so far; the proof says what is wrong
        T = np.where(np.isfinite(T), T, 0.0)
    return np.asarray(T)[None]


class _Objective:
    """f for one layer: S, MᵀJᵀ and ‖J_o‖²."""

    def __init__(self, form: Form, S: Array, pulled: Array, sizes: Array) -> None:
        self.form, self.S, self.pulled, self.sizes = form, S, pulled, sizes

    def scaled(self, T: Array) -> Array:
        """The best multiple of T."""
        factor, coords, E = self.form.factor(T)
        rows = times(factor, self.S[coords])
        R, G, cost = _usable(rows[:, coords] @ factor.T), rows @ self.pulled, float(self.sizes @ E)
        if len(R) <= _LARGE:
            rho, V = np.linalg.eigh(R)
            tau = max(float(rho[-1]), 1e-300) * (1.0 + _GRID)
            gain = ((V.T @ G) ** 2).sum(axis=1)
            value = (gain[:, None] / (tau - rho[:, None])).sum(axis=0) + tau * cost
            return T * tau[np.argmin(value)]
        least, over = max(_top(R), 1e-300), 1.0
        for _ in range(_LOOKS):  # as if all of G met the largest eigenvalue: tr(Gᵀ(τ - R)⁻²G) = cost at the best τ
            over = float(np.clip(over * np.sqrt(_slope(R, G, least * (1.0 + over)) / cost), _GRID[0], _GRID[-1]))
        return T * (least * (1.0 + over))

    def balanced(self, T: Array) -> Array:
        """Each unit's multiplier half of the way to its balance, in logarithms."""
        factor, coords, _ = self.form.factor(T)
        rows = times(factor, self.S[coords])
        R = _usable(rows[:, coords] @ factor.T)
        shrink = max(_top(R) / _HARDLY, 1.0)
        Y = self.S @ self.pulled
        Y = (
            Y
            + rows.T
            @ linalg.solve(np.eye(len(R)) - R / shrink, np.nan_to_num(rows @ self.pulled), assume_a="pos")
            / shrink
        )
        new = np.array(T)
        for unit, tau in zip(self.form.units, self.form.taken(T), strict=True):
            y = Y[unit.coords]
            gain = np.maximum((y * (unit.Q @ y)).sum(axis=(1, 2)), 0.0)
            best = np.sqrt(gain / (unit.weights * self.sizes[unit.outputs]).sum(axis=1))
            new[unit.outputs] = np.sqrt((best + _FLOOR * best.max() + 1e-300) * tau)[:, None] * unit.weights
        return new


def _usable(R: Array) -> Array:
    if not np.isfinite(R).all():
        raise ProofFailed("a layer with products or softmax is too large for floating point")
    return R


def _top(R: Array) -> float:
    n = len(R)
    return float(linalg.eigh(R, eigvals_only=True, subset_by_index=[n - 1, n - 1])[0]) if n <= _LARGE else _power(R)


def _power(R: Array) -> float:
    """A little above the largest eigenvalue, by powers."""
    x, value = np.random.default_rng(0).standard_normal(len(R)), 0.0
    for _ in range(40):
        x = R @ x
        value = float(np.linalg.norm(x)) or 1e-300
        x = x / value
    return 1.01 * value


def _slope(R: Array, G: Array, tau: float) -> float:
    """tr(Gᵀ(τ - R)⁻²G)."""
    L = np.linalg.cholesky(tau * np.eye(len(R)) - R)
    inner = linalg.solve_triangular(L, G, lower=True, check_finite=False)
    return float((linalg.solve_triangular(L, inner, lower=True, trans="T", check_finite=False) ** 2).sum())
