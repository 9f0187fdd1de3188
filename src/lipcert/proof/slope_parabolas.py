"""Parabolas for slopes: how far φ' is from σ + τΔ + ½ψΔ², proved."""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.proof.neuron_bounds import slope_bounds
from lipcert.proof.rounding import TINY, UP, U, down, up

_CELLS: Final = 1024
"""Cells of an interval; on each of them φ' is only known to lie between its least and its largest value."""


def fit_error(neurons: Neurons, center: Array, error: Array, reach: Array, slopes: Array) -> Array:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ reach and |c - center| ≤ error, (neurons,); σ, τ, ψ = slopes.

    A cell [low, high] has the middle m over ``center``, and every Δ with c + Δ in it is within w of m. So the parabola
    stays within |τ + ψm|w + ½|ψ|w² of its value at m, and φ' within its range on the cell.
    """
    sigma, tau, psi = slopes
    extent = up(reach + error)
    points = center + np.linspace(-1.0, 1.0, _CELLS + 1)[:, None] * extent
    points[0], points[-1] = (
        down(down(points[0] - 4.0 * U * np.abs(center))),
        up(up(points[-1] + 4.0 * U * np.abs(center))),
    )
    low, high = points[:-1], points[1:]
    alpha, beta = slope_bounds(neurons, low, high)
    m = 0.5 * (low - center) + 0.5 * (high - center)
    w = 0.5 * (high - low) + error + 8.0 * U * (np.abs(center) + extent)
    bow, wide = psi * m, np.abs(psi) * w
    value = sigma + tau * m + 0.5 * bow * m
    size = np.abs(sigma) + np.abs(tau * m) + np.abs(bow * m) + np.maximum(np.abs(alpha), np.abs(beta))
    away = np.maximum(beta - value, value - alpha)
    bend = np.abs(tau + bow) * w + wide * w + 4.0 * U * (np.abs(tau) + np.abs(bow)) * w
    return np.asarray((away + bend + 16.0 * U * size).max(axis=0) * UP + TINY)
