"""A network as linear forms: every neuron in terms of the inputs and of the neurons that are not affine.

With ξ = (Δx, Δz of all neurons without a single slope), each Δv is a linear form in ξ, and a neuron with slopes in
[α, β] obeys (Δz - αΔv)(Δz - βΔv) ≤ 0. These quadratic constraints are all that LipSDP, GeoLIP and LipDiff know of
the network. Affine neurons are substituted, so no multiplier ever has to be infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from lipcert.model.arrays import Array, dense
from lipcert.proof.certificate import LayerReport
from lipcert.published.base import Multipliers, require
from lipcert.search.ellipsoid import largest
from lipcert.search.problem import Problem
from lipcert.search.stage import Stage

_MATRICES = 20
"""Dense matrices in all coordinates that a semidefinite program needs at once."""


@dataclass(frozen=True, eq=False)
class Forms:
    """The quadratic constraints of a network: (a_k·ξ)(b_k·ξ) ≤ 0 for the columns of ``left`` and ``right``.

    ``inputs`` of the coordinates ξ are the inputs; ``output`` (size, outputs) reads the output, ‖outputᵀξ‖ = ‖Δy‖.
    ``layer`` says to which hidden layer each constraint belongs, ``neuron`` to which of its neurons.
    ``start`` are strictly feasible multipliers Λ.
    """

    inputs: int
    left: sparse.csc_array
    right: sparse.csc_array
    output: Array
    layer: Array
    neuron: Array
    start: Array
    slopes: tuple[tuple[Array, Array], ...]

    @property
    def size(self) -> int:
        return int(self.output.shape[0])

    def spread(self, Lambda: Array) -> tuple[Multipliers, ...]:
        """The multipliers of each hidden layer from those of the constraints."""
        kept = []
        for index, (alpha, beta) in enumerate(self.slopes):
            T, r = np.zeros(alpha.shape), np.zeros(alpha.shape)
            mine = self.layer == index
            where = self.neuron[mine]
            T[where] = 1.0 / Lambda[mine]
            r[where] = 0.5 * (beta - alpha)[where]
            kept.append(Multipliers(T, r))
        return tuple(kept)


def forms(problem: Problem, isotropic: bool = True) -> Forms:
    """The constraints for the problem's slopes.

    With ``isotropic``, inputs beyond the first layer's width are folded away: directions that W_1 does not see
    cannot matter when all directions weigh the same.
    """
    candidate = problem.sweep(safe)
    first = dense(problem.network.layers[0].weight)
    if isotropic and first.shape[1] > first.shape[0]:
        first = linalg.qr(first.T, mode="economic")[1].T
    weights = [first, *(layer.weight for layer in problem.network.layers[1:])]
    moving = [moves(layer) for layer in candidate.layers]
    size = first.shape[1] + sum(int(part.sum()) for part in moving)
    require(size * size, _MATRICES)
    state: Any = sparse.csr_array(sparse.eye_array(first.shape[1], size))
    offset = first.shape[1]
    left, right, start = [sparse.csr_array((0, size))], [sparse.csr_array((0, size))], [np.zeros(0)]
    for weight, layer, free in zip(weights, candidate.layers, moving):
        v = sparse.csr_array(weight) @ state
        count = int(free.sum())
        unit = sparse.csr_array((np.ones(count), (np.arange(count), offset + np.arange(count))), shape=(count, size))
        offset += count
        start.append(1.0 / np.ldexp(layer.multiplier[free], 2 * layer.exponent))
        left.append(unit - sparse.diags_array(layer.alpha[free]) @ v[free])
        right.append(unit - sparse.diags_array(layer.beta[free]) @ v[free])
        # rows in the order of the neurons: z is the new coordinate, or the slope times v
        place = sparse.csr_array((np.ones(count), (np.flatnonzero(free), np.arange(count))), shape=(free.size, count))
        middle = np.where(free, 0.0, 0.5 * (layer.alpha + layer.beta))
        state = sparse.csr_array(sparse.diags_array(middle) @ v + place @ unit)
    places = [np.flatnonzero(free) for free in moving]
    columns = [sparse.csc_array(sparse.vstack(rows, format="csr").T) for rows in (left, right)]
    return Forms(
        first.shape[1],
        columns[0],
        columns[1],
        (sparse.csr_array(weights[-1]) @ state).toarray().T,
        np.concatenate([np.zeros(0, dtype=int), *(np.full(part.size, index) for index, part in enumerate(places))]),
        np.concatenate([np.zeros(0, dtype=int), *places]),
        np.concatenate(start),
        tuple(candidate.slopes),
    )


def moves(layer: LayerReport) -> Array:
    """Which neurons move and have more than one slope, (n,)."""
    return (layer.multiplier > 0) & (layer.beta > layer.alpha)


def safe(stage: Stage) -> Array:
    """Multipliers well inside the feasible set: T = 2 λmax(R) on the neurons that move."""
    T = np.zeros(stage.alpha.shape)
    if stage.active.size:
        r = stage.r[stage.active]
        T[stage.active] = max(2.0 * float(largest(r[:, None] * stage.S[np.ix_(stage.active, stage.active)] * r)), 0.0)
    return T
