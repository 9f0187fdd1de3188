"""The Lipschitz constant of a small ReLU network over a box, by brute force over its activation patterns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog

import lipcert as lc
from lipcert.model.arrays import Array, dense

_THIN = 1e-9
"""A set that holds no ball of this radius has no interior."""


def true_constant(network: lc.Network, box: lc.Box) -> float:
    """The largest Jacobian norm over the patterns that are realised on a set with interior."""
    return max(float(np.linalg.norm(jacobian, 2)) for jacobian in jacobians(network, box))


def jacobians(network: lc.Network, box: lc.Box) -> Iterator[Array]:
    """One Jacobian a realised pattern: neuron by neuron, sides that the region does not reach are left out."""
    points = box.sample(3000, np.random.default_rng(0))
    eye = np.eye(len(box.center))
    sides = (np.concatenate([eye, -eye]), np.r_[box.upper, -box.lower])
    first = network.layers[0]
    yield from _walk(network, 0, dense(first.weight), first.bias, np.zeros(0), sides, points)


def _walk(
    network: lc.Network, layer: int, A: Array, c: Array, pattern: Array, sides: tuple[Array, Array], points: Array
) -> Iterator[Array]:
    """Every cell below this one; v = A z + c is what the layer sees, ``sides`` (G, h) is the cell G z ≤ h."""
    if layer == network.depth - 1:
        yield A
        return
    if len(pattern) == len(c):
        ahead = network.layers[layer + 1]
        weight = dense(ahead.weight) * pattern
        yield from _walk(network, layer + 1, weight @ A, weight @ c + ahead.bias, np.zeros(0), sides, points)
        return
    row, offset = A[len(pattern)], c[len(pattern)]
    value = points @ row + offset
    for slope, sign in ((1.0, -1.0), (0.0, 1.0)):  # sign·v ≤ 0
        cell = (np.concatenate([sides[0], sign * row[None]]), np.r_[sides[1], -sign * offset])
        inside = points[sign * value < -1e-6]
        if len(inside) or _has_interior(*cell):
            yield from _walk(network, layer, A, c, np.r_[pattern, slope], cell, inside)


def _has_interior(G: Array, h: Array) -> bool:
    """Whether G z ≤ h contains a ball that counts: the largest one is a linear program."""
    lengths = np.linalg.norm(G, axis=1)
    count = G.shape[1]
    found = linprog(
        np.r_[np.zeros(count), -1.0], A_ub=np.c_[G, lengths], b_ub=h, bounds=[(None, None)] * count + [(None, 1.0)]
    )
    return bool(found.status == 0 and found.x[-1] > _THIN)
