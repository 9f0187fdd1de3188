"""Norms between ℓ1, ℓ2 and ℓ∞ of matrices, sizes of ellipsoids in them, rounded up; units of norms.

The norm of M from p to q is the largest zᵀMx with ‖x‖_p ≤ 1 and ‖z‖_q* ≤ 1, q* the dual of q. Of ℓ1 balls the corners
are ± unit vectors, so columns (p = 1) or rows (q = ∞) tell the norm. Those of ℓ∞ balls are sign vectors: all are tried
where they are few; otherwise σᵀSσ = Σd + σᵀ(S - D)σ ≤ Σd + n·λmax(S - D) for any diagonal D, which is suggested. Pairs
of sign vectors are one for [0 M; Mᵀ 0]. A pass may begin with an ellipsoid around the cube: for h > 0

    |x_i| ≤ 1 for all i   implies   ‖x/h‖₂² ≤ Σ 1/h_i².

Units are taken into the weights: a question about another network and region, in norms without. With
Δx = D_s u and Δy = D_t w, ‖Δy/t‖ ≤ L‖Δx/s‖ says ‖w‖ ≤ L‖u‖, for the network with first weight W_1 D_s and last
weight D_t⁻¹ W_N over the region of all x/s. Each of those weights is rounded once, which is part of what weights are
known to. The region is rounded outwards.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    down,
    inflate,
    largest_eigenvalue_above,
    norm_above,
    spectral_above,
    up,
)
from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Layer, Network
from lipcert.model.regions import NORMS, Ball, Box, Norm, Norms, Region
from lipcert.suggest.multipliers import diagonal_over

FEW: Final = 10
"""Coordinates of a cube up to which all of its corners are tried: 512, half of 2¹⁰, for as many products."""
_LEAST = 2.0**-800
"""Weights that are smaller after a change of units may have lost more than a rounding."""


def start_gain(norm: Norm, start: Array | None, size: int) -> float:
    """At least the largest ‖x/h‖₂ for ‖x‖ ≤ 1: what P_0 = D_h² multiplies a bound with; no start is h = 1."""
    h = np.ones(size) if start is None else start
    if norm.name == "linf":
        return float(norm_above(up(1.0 / h)))
    return float(up(np.asarray(1.0 / h.min()))) if start is not None else 1.0


def ellipsoid_above(S: Array, norm: Norm) -> Array:
    """At least the largest ‖y‖ with y yᵀ ≼ S, for each matrix of a stack (..., n, n) that is about semidefinite.

    That is the root of the largest zᵀSz over the ball of the dual norm.
    """
    if norm.name == "l2":
        square = largest_eigenvalue_above(S)
    elif norm.name == "linf":
        square = np.diagonal(S, axis1=-2, axis2=-1).max(axis=-1)
    else:
        square = _cube_above(S)
    return inflate(np.sqrt(np.maximum(square, 0.0)), 2)


def _cube_above(S: Array) -> Array:
    """At least the largest σᵀSσ = Σd + σᵀ(S - D)σ over sign vectors σ, for any d: ‖y‖₁ is σᵀy for one of them."""
    n = S.shape[-1]
    total = inflate(np.abs(S).sum(axis=-1).sum(axis=-1), 2 * n + 2)
    if n <= FEW:
        signs = _signs(n)
        return np.fmin(total, (Near.of(signs) @ S * signs).sum().above.max(axis=-1))
    if not np.isfinite(S).all():
        return total
    d = np.nan_to_num(diagonal_over(S))
    rest = largest_eigenvalue_above((Approx(S, symmetric=True) - Approx.diagonal(d)).above())
    return np.fmin(total, (Near.of(d).sum() + Near.of(rest) * n).above)


def induced_above(matrix: Near, norms: Norms) -> Array:
    """At least the norm of each matrix of a stack (..., m, n) whose entries are known to an error.

    By the sizes of entries, and where signs matter by the middle itself; the smaller counts.
    """
    middle, sizes = matrix.value, matrix.size
    p, q = norms.pair
    if (q == "l1" and p == "l2") or (p == "linf" and q == "l1" and middle.shape[-2] < middle.shape[-1]):
        turned = Norms(NORMS[norms.output.dual](), NORMS[norms.input.dual]())
        return induced_above(matrix.T, turned)  # which has the same norm
    if p == "l1":  # the largest column
        return _lengths(np.swapaxes(sizes, -1, -2), q).max(axis=-1)
    if q == "linf":  # the largest row, in the dual norm
        return _lengths(sizes, norms.input.dual).max(axis=-1)
    radius = np.broadcast_to(matrix.error, matrix.shape)
    if p == "l2":
        return np.fmin(inflate(spectral_above(middle) + spectral_above(radius), 1), spectral_above(sizes))
    every, rest = (_lengths(_lengths(part, "l1"), q) for part in (sizes, radius))
    return np.fmin(every, inflate(_corners(middle, q) + rest, 1))


def spectral_factor(norms: Norms, rows: int, columns: int) -> float:
    """At least the norm from p to q of a matrix (rows, columns) whose spectral norm is one.

    ‖x‖₂ ≤ √n‖x‖_∞ at the inputs, ‖y‖₁ ≤ √n‖y‖₂ at the outputs.
    """
    into = columns if norms.pair[0] == "linf" else 1
    out = rows if norms.pair[1] == "l1" else 1
    return float(inflate(np.sqrt(float(into * out)), 1))


def length_above(vectors: Array, norm: Norm) -> Array:
    """At least the norm of each vector, (..., n)."""
    units = norm.units(vectors.shape[-1])
    return _lengths(np.abs(vectors) if units is None else up(np.abs(vectors) / units), norm.name)


def _lengths(vectors: Array, name: str) -> Array:
    """At least the norm of each vector of numbers that are not negative, (..., n)."""
    if name == "l2":
        return norm_above(vectors)
    if name == "linf":
        return np.asarray(vectors.max(axis=-1))
    return inflate(vectors.sum(axis=-1), vectors.shape[-1])


def _corners(middle: Array, q: str) -> Array:
    """At least the norm of a matrix (..., m, n) from ℓ∞ to ℓ1 or ℓ2."""
    m, n = middle.shape[-2:]
    if n <= FEW:
        images = Near.of(middle) @ _signs(n).T  # corners last
        return _lengths(images.T.size, q).max(axis=-1)
    if q == "l2":
        return inflate(np.sqrt(_cube_above(congruence(None, np.swapaxes(middle, -1, -2)))), 1)
    both = np.zeros((*middle.shape[:-2], m + n, m + n))  # signs of outputs and inputs together
    both[..., :m, m:] = middle
    return 0.5 * _cube_above(both + np.swapaxes(both, -1, -2))


def _signs(n: int) -> Array:
    """The corners of a cube, one of each and its negative, (corners, n)."""
    return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n - 1)]).reshape(-1, n)


def in_units(network: Network, norms: Norms) -> Network:
    """The network between inputs and outputs in their own units; the same where there are none."""
    into, out = norms.input.units(network.inputs), norms.output.units(network.outputs)
    layers = list(network.layers)
    if into is not None:
        first = layers[0]
        layers[0] = replace(first, linear=_sound(first.weight, columns_times(first.weight, into)))
    if out is not None:
        last = layers[-1]
        layers[-1] = Layer(_sound(last.weight, _rows_over(last.weight, out)), last.bias / out, None)
    return Network(tuple(layers)) if norms.has_units else network


def region_in_units(region: Region, units: Array | None) -> Region:
    """At least the points x/units for x in the region."""
    if units is None or not region.bounded:
        return region
    if isinstance(region, Box):
        return _box(region, units)
    assert isinstance(region, Ball)
    center, scale = Near.of(region.center) / units, up(region.units / units)
    norm = NORMS[region.norm.name](scale)  # type: ignore[call-arg]
    radius = up(region.radius + length_above(center.error, norm))
    if (scale == scale[0]).all():
        norm, radius = norm.bare, up(radius * scale[0])
    clip = None if region.clip is None else _box(region.clip, units)
    return Ball.of(_finite(center.value), _finite(radius), clip, norm)


def _box(box: Box, units: Array) -> Box:
    return Box.of(_finite(down(box.lower / units)), _finite(up(box.upper / units)))


def _finite(x: Array) -> Array:
    if not np.isfinite(x).all():
        raise ProofFailed("the region is too large in the units of the input norm")
    return x


def columns_times(weight: Weight, units: Array) -> Weight:
    """W D_units, one rounding per entry."""
    return weight * units if isinstance(weight, np.ndarray) else sparse.csr_array(weight.multiply(units))


def _rows_over(weight: Weight, units: Array) -> Weight:
    """D_units⁻¹ W, one rounding per entry."""
    if isinstance(weight, np.ndarray):
        return weight / units[:, None]
    data = weight.data / np.repeat(units, np.diff(weight.indptr))
    return sparse.csr_array((data, weight.indices, weight.indptr), shape=weight.shape)


def sound(old: Weight, new: Weight) -> bool:
    """Whether no entry lost more than a rounding; a single layer is changed twice."""
    before, after = (np.abs(weight if isinstance(weight, np.ndarray) else weight.data) for weight in (old, new))
    return bool((np.isfinite(after) & ((before == 0.0) | (after >= _LEAST))).all())


def _sound(old: Weight, new: Weight) -> Weight:
    if not sound(old, new):
        raise InvalidInput("the scale of a norm takes weights out of the range of floats; choose other units")
    return new
