"""Fewer inputs: a first layer that is narrower than the input sees only a projection of it.

With W_1 = R Q, R square and triangular and the rows of Q orthonormal, the network is f(x) = f'(Qx), where f' begins
with R; a ball around c becomes a ball of the same radius around Qc. In floating point R is any invertible matrix, Q is
*defined* as R⁻¹W_1, which is never formed, and its norm is proved to exceed one by rounding errors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lipcert.kernel.near import Near
from lipcert.kernel.rounding import inflate, norm_above
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network
from lipcert.model.regions import Ball
from lipcert.suggest.algebra import triangular_factor

_WORTH = 1.5
"""Inputs a first-layer neuron from which the change pays."""
_TOLERANCE = 1e-9
"""How far the proved norm of Q may exceed one."""


@dataclass(frozen=True, eq=False)
class Projection:
    """f(x) = network(Qx) for a real matrix Q with ‖Q‖ ≤ stretch, near the float matrix ``rows``.

    ``rest`` is at least ‖Q - rows‖.
    """

    network: Network
    rows: Array
    stretch: float
    rest: float

    def image(self, ball: Ball) -> Ball:
        """A ball that contains Qx for every x of a ball."""
        center = Near.of(self.rows) @ ball.center
        missed = inflate(norm_above(center.error) + self.rest * norm_above(ball.center), 3)
        return Ball(center.value, inflate(self.stretch * ball.radius + missed, 3))


def projection(network: Network) -> Projection | None:
    """The network on fewer inputs, where that pays and can be proved."""
    first, *others = network.layers
    weight = first.weight
    if sparse.issparse(weight) or weight.shape[1] < _WORTH * weight.shape[0]:
        return None
    found = triangular_factor(weight)
    if found is None:
        return None
    R, rows, inverse = found
    stretch, rest = _proved(weight, R, rows, inverse)
    if not stretch <= 1.0 + _TOLERANCE:
        return None
    return Projection(Network((Layer(R, first.bias, first.neurons), *others)), rows, stretch, rest)


def _proved(weight: Array, R: Array, rows: Array, inverse: Array) -> tuple[float, float]:
    """At least ‖Q‖ and ‖Q - rows‖ for Q = R⁻¹W; infinite where nothing can be said.

    With F = W - R·rows: Q - rows = R⁻¹F, and ‖R⁻¹‖ ≤ ‖B‖/(1 - ‖I - B R‖) for any B. ‖rows‖² ≤ 1 + ‖rows rowsᵀ - I‖.
    Norms of matrices are bounded by Frobenius norms.
    """
    eye = np.eye(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        F = _frobenius(Near.weights(weight) - Near.of(R) @ rows)
        E = _frobenius(eye - Near.of(inverse) @ R)
        G = _frobenius(eye - Near.of(rows) @ rows.T)
        if not E < 0.5:
            return np.inf, np.inf
        rest = float(inflate(_frobenius(Near.of(inverse)) / (1.0 - E) * F, 6))
        return float(inflate(np.sqrt(1.0 + G) + rest, 4)), rest


def _frobenius(matrix: Near) -> Array:
    """At least the Frobenius norm."""
    return norm_above(matrix.size.ravel())
