"""Multipliers for pieces of a region: a closed form where nothing is known, and better ones for a piece's own parts.

Suggestions only: the step proves whatever multipliers it is given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg

from lipcert.model.arrays import Array, Weight, dense

_TOP, _SHARPNESS = 5, 10.0
"""So many top directions advise, weighted by a power of their share of the norm, so that close ones count alike."""
_POWERS = 8
"""Steps of the power method where a norm need not be exact."""
_PACE, _STRIDE = 0.5, 0.25
"""The share of the way to a stationary multiplier that is advised, and its limit in powers of two."""
_MATTERS = 1e-8
"""Neurons with a smaller share of the bound keep their multipliers: what they wish for is noise."""
_TINY = 1e-280


def closed_form(S: Array, m: Array, r: Array, ahead: Weight, neurons: Array | None) -> Array:
    """Multipliers t = s + sqrt(s σ/e), the same for all neurons of a region, (count, 1).

    s = ‖D_r S D_r‖, σ = ‖A D_m S D_m Aᵀ‖ for the next weight A, and e = ‖A Aᵀ‖ over the open neurons: the best t for an
    upper bound of ‖A P Aᵀ‖, as in :class:`lipcert.ClosedForm`. ``neurons`` tells which of a layer's neurons these are;
    what comes out for a region does not depend on the others of its stack.
    """
    A = dense(ahead)
    rows = np.broadcast_to(np.arange(A.shape[-2]), (len(S), A.shape[-2]))
    here = np.broadcast_to(np.arange(S.shape[-1]), S.shape[:-1]) if neurons is None else neurons
    s = _norm(here, lambda x: r * _apply(S, r * x))
    sigma = _norm(rows, lambda x: _apply(A, m * _apply(S, m * _apply(_turned(A), x))))
    e = _norm(rows, lambda x: _apply(A, (r > 0.0) * _apply(_turned(A), x)))
    return np.asarray(1.05 * s + np.sqrt(s * sigma / np.maximum(e, _TINY)))


def _apply(matrix: Array, x: Array) -> Array:
    return np.asarray(x @ matrix.T if matrix.ndim == 2 else (matrix @ x[..., None])[..., 0])


def _turned(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


def _norm(numbers: Array, image: Callable[[Array], Array]) -> Array:
    """About the largest eigenvalue of a positive semidefinite map, (count, 1)."""
    x = 1.0 + 0.5 * np.cos(numbers + 1.0)  # rows often add up to zero: no ones
    value = np.zeros((len(x), 1))
    for _ in range(_POWERS):
        x = image(x)
        value = np.linalg.norm(x, axis=-1, keepdims=True)
        x = x / np.maximum(value, _TINY)
    return value


def directions(S: Array) -> Array:
    """The directions in which an ellipsoid S (count, n, n) is largest, (count, few, n), for :func:`advice`.

    Their lengths are the roots of weights that add up to one.
    """
    values, vectors = np.linalg.eigh(S)
    top, values = _turned(vectors[..., -_TOP:]), np.maximum(values[..., -_TOP:, None], _TINY)
    weights = (values / values[:, -1:]) ** _SHARPNESS
    return np.asarray(top * np.sqrt(weights / weights.sum(axis=1, keepdims=True)))


def advice(
    a: Array, m: Array, active: Array, h: Array, L: Array, X: Array, current: Array, scale: Array
) -> tuple[Array, Array, Array, Array]:
    """How to change the multipliers of one step for directions a (count, d, n) after it.

    With x = D_m a and K = (S⁻¹ - D_r² T⁻¹)⁻¹ the derivative of the squared norm by log T_j is proportional to
    T_j a_j² - r_j² (K x)_j²/T_j; it vanishes at T_j = r_j |(K x)_j|/|a_j|. With q = C⁻¹ D_h S x, h = r T^-½, that is
    (K x)_j = q_j/h_j. Over several directions the squares add up. ``current`` is log2(T/(r·scale)) of the active
    neurons.

    Returns
    -------
    The change of ``current``; Σ a_j² and Σ q_j² of the active neurons; the directions before the step, (count, d, n).
    """
    back = m[:, None, :] * a
    if not active.shape[-1]:
        none = np.zeros(active.shape)
        return none, none, none, back
    solved = a @ _turned(X)  # (count, d, active)
    pairs = zip(L, solved, strict=True)
    q = np.stack([linalg.lapack.dtrtrs(one.T, two.T, lower=0, trans=0)[0].T for one, two in pairs])
    pull = np.zeros(a.shape)
    np.put_along_axis(pull, np.broadcast_to(active[:, None, :], q.shape), h[:, None, :] * q, -1)
    arrived = (np.take_along_axis(a, active[:, None, :], -1) ** 2).sum(axis=1)
    pushed = (q**2).sum(axis=1)
    with np.errstate(all="ignore"):
        wish = 0.5 * np.log2(pushed / arrived) - np.log2(h * scale[:, None])
        change = np.clip(_PACE * (wish - current), -_STRIDE, _STRIDE)
    return np.where(np.isfinite(change), change, 0.0), arrived, pushed, back + pull


def matters(share: Array) -> Array:
    """Whether a neuron's share of the squared bound is more than noise."""
    return np.asarray(share > _MATTERS)
