"""Whether intervals of pre-activations leave any input at all, over all of space.

Where the slopes of all layers before are single numbers, a pre-activation is an affine function a·x + c of the inputs,
and an end t of its interval is a half-space. Take multipliers λ, positive for lower ends, negative for upper ones.
Where an input keeps all intervals, Σ λ_j (a_j·x + c_j - t_j) ≥ 0. So none does (Farkas) if

    Σ λ_j a_j = 0   and   Σ λ_j (c_j - t_j) < 0.

The a_j are products of weights, each known up to an error, and the equation must hold exactly, in each of the networks
that a certificate speaks of. So hints λ are made to hold by factors u_j > 0: as many of them as there are equations
solve Σ u_j λ_j a_j = 0, the others are one, and the solution is enclosed for all of these networks together.

Pre-activations of a layer may take the place of the inputs, where no earlier layer has a multiplier: as if they could
be any numbers. That serves layers with fewer neurons than there are inputs, whose a_j depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import linalg

from lipcert.kernel.arithmetic import Near
from lipcert.kernel.neuron_bounds import slope_bounds, value_error
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network


def no_input(network: Network, intervals: Sequence[Interval], multipliers: Sequence[Array]) -> bool:
    """Whether multipliers, (neurons,) per hidden layer, prove that no input keeps all intervals, (neurons,) each."""
    used = [index for index, row in enumerate(multipliers) if row.any()]
    starts = range(used[0] + 2) if used else ()
    return any(_contradict(network, intervals[: used[-1] + 1], multipliers, start) for start in starts)


def _contradict(network: Network, intervals: Sequence[Interval], multipliers: Sequence[Array], start: int) -> bool:
    """The same in terms of the inputs, or of the pre-activations of the layer before ``start``."""
    n = network.sizes[start]
    v, constant = Near.of(np.eye(n + 1, n)), np.eye(1, n + 1, n).T  # a column per neuron: its a, and below it its c
    paths, terms, met = np.eye(n), [], np.zeros(n, dtype=bool)
    for index in range(max(start - 1, 0), len(intervals)):
        layer, (low, high), row = network.layers[index], intervals[index], multipliers[index]
        assert layer.neurons is not None
        if index >= start:
            v = v.through(layer.weight) + constant * Near.weights(layer.bias)
            paths = paths @ (dense(layer.weight).T != 0.0)
        some = np.flatnonzero(row)
        terms.append((v[:, some] - constant * np.where(row > 0.0, low, high)[some]) * row[some])
        met |= paths[:, some].any(axis=-1)  # elsewhere a_j is zero, whatever the weights are
        alpha, beta = slope_bounds(layer.neurons, low, high)
        at = np.clip(0.0, low, high)
        value = layer.neurons.value(at)
        offset = Near(value, value_error(layer.neurons, value)) - Near.of(alpha) * at
        v = v * Near(alpha, np.where(alpha < beta, np.inf, 0.0)) + constant * offset
        paths = paths * ((alpha != 0.0) | (beta != 0.0))
    errors = [np.broadcast_to(term.error, term.shape) for term in terms]
    table = Near(np.concatenate([term.value for term in terms], axis=1), np.concatenate(errors, axis=1))
    if met.sum() >= table.shape[1] or not np.isfinite(table.error).all():
        return False
    order = linalg.qr(table.value[:n][met], mode="r", pivoting=True)[1]
    rest, basis = order[met.sum() :], order[: met.sum()]
    A, gaps = table[:n][met], table[n]
    try:
        u = solution(A[:, basis], -A[:, rest].sum())
    except np.linalg.LinAlgError:
        return False
    return bool((u.below > 0.0).all() and ((u * gaps[basis]).sum() + gaps[rest].sum()).above < 0.0)


def solution(A: Near, b: Near) -> Near:
    """The x with Ax = b, for every A and b within their errors; the error is NaN or infinite if an A may be singular.

    With X near A⁻¹, x̂ = Xb and E = I - XA: x - x̂ = (I - E)⁻¹y for y = X(b - Ax̂), and |(I - E)⁻¹y| is at most
    |y| + |E|1·max|y|/(1 - q), where q < 1 is at least the largest row sum of |E|.
    """
    X = np.linalg.inv(A.value)
    found = X @ b.value
    y = (Near.of(X) @ (b - (A @ found[:, None])[:, 0])[:, None])[:, 0].size
    E = Near.of((np.eye(len(X)) - Near.of(X) @ A).size).sum().above
    largest = Near.of(y.max(initial=0.0)) / (1.0 - Near.of(E.max(initial=0.0)))
    return Near(found, np.where(E.max(initial=0.0) < 1.0, (y + E * largest).above, np.inf))
