"""What quadratic relaxation and the dual bound share: bounds of a row of the outputs over a ball."""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Approx, Near, congruence, factor_rows, raised
from lipcert.kernel.hints import Interval
from lipcert.kernel.neuron_bounds import relax, slope_bounds, value_error
from lipcert.model.arrays import Array, Weight, dense
from lipcert.model.network import Layer, Neurons
from lipcert.model.regions import Ball
from lipcert.suggest.lines import suggested_lines

_FACTORED: Final = 2.0**-48
"""What a factor of an n × n matrix may miss, over n² times its largest entry: more than rounding makes of it."""


def pulled(rows: Approx, weight: Weight, sizes: Array) -> tuple[Array, Array]:
    """Floats r, and numbers with rows·W z ≤ r·z + missed for every |z| ≤ sizes, for rows (k, n)."""
    through = rows @ Approx.weight(weight)
    return through.value, through.err(sizes)


def first_factor(weight: Weight) -> Array:
    """R with few columns and {W d : ‖d‖ ≤ 1} ⊂ {R u : ‖u‖ ≤ 1} for every W near the weight.

    A weight that is not wide is its own R. Else the inclusion is W Wᵀ ≼ R Rᵀ. With S ≽ W Wᵀ and R near the Cholesky
    factor of S + eI, R Rᵀ ≽ S + eI - D ≽ S, if the absolute row sums D of S + eI - R Rᵀ are at most e.
    """
    n, inputs = weight.shape
    if inputs <= n:
        return dense(weight)
    S = congruence(None, weight)
    e = _FACTORED * n * n * np.diagonal(S).max(initial=0.0)
    lifted = raised(np.array(S), e)
    R = np.linalg.cholesky(lifted)
    if not (factor_rows(Approx(lifted, symmetric=True), R) <= e).all():
        raise ProofFailed("the first layer's weight has no factor")
    return R


def radius_of(ball: Ball) -> float:
    """The radius of a single ball of the ℓ2 norm, which is positive."""
    if not ball.plain or ball.center.ndim != 1 or not 0.0 < float(ball.radius) < np.inf:
        raise ProofFailed("a row is bounded over single balls of the ℓ2 norm and of positive radius")
    return float(ball.radius)


def straight_parts(layer: Layer, interval: Interval) -> tuple[Array, Near, Array, Array, Array]:
    """What holds for the neurons of a hidden layer: slope, offset, open, alpha, beta.

    Neurons of a single slope are slope·v + offset. The others are ``open``, and in the order of these numbers their
    slopes are between alpha and beta.
    """
    neurons, (low, high) = layer.neurons, interval
    assert neurons is not None
    if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
        raise ProofFailed("a row is bounded by finite intervals of all neurons")
    alpha, beta = slope_bounds(neurons, low, high)
    closed, end = alpha == beta, neurons.value(low)
    slope, some = np.where(closed, alpha, 0.0), np.flatnonzero(~closed)
    offset = Near(end, value_error(neurons, end)) - Near.of(slope) * low
    return slope, offset.replace(~closed, 0.0), some, alpha[some], beta[some]


def lines_around(neurons: Neurons, low: Array, high: Array) -> tuple[Array, ...]:
    """Finite lines around φ on intervals, and bounds of its values: see :func:`lipcert.kernel.neuron_bounds.relax`."""
    drawn = relax(neurons, low, high, *suggested_lines(neurons, (low, high)))
    if not all(np.isfinite(part).all() for part in drawn):
        raise ProofFailed("the lines around a neuron are not finite")
    return drawn
