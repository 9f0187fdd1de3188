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

from lipcert.kernel.arithmetic import Near
from lipcert.kernel.neuron_bounds import slope_bounds, value_error
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network


def contradict(network: Network, intervals: Sequence[Interval], multipliers: Array, ends: Array, of: Array) -> Array:
    """Which multipliers prove that no input keeps the intervals of a piece and some ends, (count,).

    The intervals, (pieces, neurons) per hidden layer, make layers affine. Rows of multipliers and ends (count, neurons)
    are about all hidden neurons in a row and one piece each, ``of`` (count,): no input has v_j ≥ end where λ_j > 0 and
    v_j ≤ end where λ_j < 0 besides.
    """
    proved = np.zeros(len(multipliers), dtype=bool)
    begin = 0  # of the first neuron that may have a multiplier
    for start in range(len(intervals) + 1):
        if proved.all():
            break
        rows, paths = _affine(network, intervals, start)
        used = slice(begin, begin + rows.shape[2])
        told = ~proved & ~multipliers[:, : used.start].any(axis=1) & ~multipliers[:, used.stop :].any(axis=1)
        met = ((multipliers[:, None, used] != 0.0) & (paths[of] > 0.0)).any(axis=2)  # elsewhere a_j is zero
        for pattern in np.unique(met[told], axis=0):
            some, kept = told & (met == pattern).all(axis=1), np.append(pattern, True)
            proved[some] = _alike(rows[:, kept], multipliers[some, used], ends[some, used], of[some])
        begin += network.sizes[start] if start else 0
    return proved


def _affine(network: Network, intervals: Sequence[Interval], start: int) -> tuple[Near, Array]:
    """Below a of neurons their c, (pieces, n + 1, neurons), and on which inputs a depends.

    In terms of the inputs, or of the pre-activations of the layer before ``start``, and from that layer on. After a
    layer with open slopes a and c are not numbers.
    """
    n, count = network.sizes[start], len(intervals[0][0])
    v, constant = Near.of(np.broadcast_to(np.eye(n + 1, n), (count, n + 1, n))), np.eye(1, n + 1, n).T
    paths, found, ways = np.broadcast_to(np.eye(n), (count, n, n)), [], []
    for index in range(max(start - 1, 0), len(intervals)):
        layer, (low, high) = network.layers[index], intervals[index]
        assert layer.neurons is not None
        if index >= start:
            v = v.through(layer.weight) + constant * Near.weights(layer.bias)
            paths = np.minimum(paths @ (dense(layer.weight).T != 0.0), 1.0)
        found.append(v)
        ways.append(paths)
        alpha, beta = slope_bounds(layer.neurons, low, high)
        known = np.where((alpha < beta).any(axis=1), np.nan, 1.0)[:, None, None]
        if np.isnan(known).all():
            break
        at = np.clip(0.0, low, high)
        value = layer.neurons.value(at)
        at, alpha, value, error = (x[:, None, :] for x in (at, alpha, value, value_error(layer.neurons, value)))
        v = (v * alpha + constant * (Near(value, error) - Near.of(alpha) * at)) * known
        paths = paths * (alpha != 0.0)
    errors = [np.broadcast_to(v.error, v.shape) for v in found]
    return Near(np.concatenate([v.value for v in found], 2), np.concatenate(errors, 2)), np.concatenate(ways, 2)


def _alike(rows: Near, multipliers: Array, ends: Array, of: Array) -> Array:
    """Which multipliers (count, neurons) prove it, all of which meet each of the coordinates."""
    n, zero = rows.shape[1] - 1, multipliers == 0.0
    order = np.argsort(zero, axis=1, kind="stable")[:, : max(int((~zero).sum(axis=1).max()), n + 1)]
    factors, ends = (np.take_along_axis(x, order, 1)[:, None] for x in (multipliers, np.where(zero, 0.0, ends)))
    columns = (np.swapaxes(x[of[:, None], :, order], 1, 2) for x in (rows.value, rows.error))
    table = (Near(*columns) - np.eye(1, n + 1, n).T * ends) * factors  # (count, n + 1, used)
    table = table.replace(factors == 0.0, 0.0)
    if table.shape[2] <= n:
        return np.zeros(len(multipliers), dtype=bool)
    rest = table[:, :, n:].sum()
    u = solution(table[:, :n, :n], -rest[:, :n])
    total = (u * table[:, n, :n]).sum() + rest[:, n]
    return np.asarray((u.below > 0.0).all(axis=1) & (total.above < 0.0))


def solution(A: Near, b: Near) -> Near:
    """The x with Ax = b of a stack, for every A and b within their errors; NaN or infinite errors prove nothing.

    With X near A⁻¹, x̂ = Xb and E = I - XA: x - x̂ = (I - E)⁻¹y for y = X(b - Ax̂), and |(I - E)⁻¹y| is at most
    |y| + |E|1·max|y|/(1 - q), where q < 1 is at least the largest row sum of |E|.
    """
    eye = np.eye(A.shape[-1])
    usable = np.isfinite(A.value).all(axis=(1, 2)) & (np.linalg.slogdet(np.nan_to_num(A.value))[0] != 0.0)
    X = np.linalg.inv(np.where(usable[:, None, None], A.value, eye))
    found = (X @ b.value[:, :, None])[:, :, 0]
    y = (X @ (b[:, :, None] - A @ found[:, :, None]))[:, :, 0].size
    E = Near.of((eye - X @ A).size).sum().above
    q = E.max(axis=1, initial=0.0, keepdims=True)
    largest = Near.of(y.max(axis=1, initial=0.0, keepdims=True)) / (1.0 - Near.of(q))
    return Near(found, np.where(q < 1.0, (y + E * largest).above, np.inf))
