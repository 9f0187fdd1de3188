"""Units and shapes of norms, taken into the weights: a question about another network and region, in norms without.

With Δx = D_s u and Δy = D_t w, ‖Δy/t‖ ≤ L‖Δx/s‖ says ‖w‖ ≤ L‖u‖, for the network with first weight W_1 D_s and last
weight D_t⁻¹ W_N over the region of all x/s. Each of those weights is rounded once, which is part of what weights are
known to. The region is rounded outwards. A shape M, Δx = M u, is a layer of its own, with neurons of the
identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.induced import length_above
from lipcert.kernel.near import Approx, Near
from lipcert.kernel.rounding import down, inflate, up
from lipcert.model.arrays import Array, Weight
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.norms import NORMS, Norms
from lipcert.model.regions import Ball, Box, Region

_LEAST = 2.0**-800
"""Weights that are smaller after a change of units may have lost more than a rounding."""


def in_units(network: Network, norms: Norms) -> Network:
    """The network between inputs and outputs in their own units; the same where there are none."""
    into, out = norms.input.units(network.inputs), norms.output.units(network.outputs)
    layers = list(network.layers)
    if into is not None:
        first = layers[0]
        layers[0] = Layer(_sound(first.weight, columns_times(first.weight, into)), first.bias, first.neurons)
    if out is not None:
        last = layers[-1]
        layers[-1] = Layer(_sound(last.weight, _rows_over(last.weight, out)), last.bias / out, None)
    found = Network(tuple(layers)) if into is not None or out is not None else network
    return _shaped(found, norms)


def region_in_units(region: Region, units: Array | None) -> Region:
    """At least the points x/units for x in the region."""
    if units is None or not region.bounded:
        return region
    if isinstance(region, Box):
        return _box(region, units)
    assert isinstance(region, Ball)
    center, radius = Near.of(region.center) / units, region.radius
    scale = np.where(_exact(region.units, units), region.units / units, up(region.units / units))
    norm = NORMS[region.norm.name](scale)  # type: ignore[call-arg]
    if not _exact(region.center, units).all():
        radius = up(radius + length_above(center.error, norm))
    clip = None if region.clip is None else _box(region.clip, units)
    if (scale == scale[0]).all():
        norm, radius = norm.bare, radius if scale[0] == 1.0 else up(radius * scale[0])
    if not np.isfinite(radius):
        raise ProofFailed("the region is too large in the units of the input norm")
    return Ball(center.value, radius, clip, norm)


def _box(box: Box, units: Array) -> Box:
    lower, upper = box.lower / units, box.upper / units
    lower = np.where(_exact(box.lower, units), lower, down(lower))
    upper = np.where(_exact(box.upper, units), upper, up(upper))
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("the region is too large in the units of the input norm")
    return Box(lower, upper)


def _exact(numbers: Array, units: Array) -> Array:
    """Where numbers/units is known to have no rounding error: powers of two, and a number over itself."""
    quotient = numbers / units
    normal = (np.abs(quotient) >= _LEAST) | (numbers == 0.0)
    return np.asarray(((np.frexp(units)[0] == 0.5) & normal) | (numbers == units) | (numbers == 0.0))


def columns_times(weight: Weight, units: Array) -> Weight:
    """W D_units, one rounding per entry."""
    if isinstance(weight, np.ndarray):
        return weight * units
    return _with(weight, weight.data * units[weight.indices])


def _rows_over(weight: Weight, units: Array) -> Weight:
    """D_units⁻¹ W, one rounding per entry."""
    if isinstance(weight, np.ndarray):
        return weight / units[:, None]
    return _with(weight, weight.data / np.repeat(units, np.diff(weight.indptr)))


def _with(weight: Any, data: Array) -> Weight:
    return sparse.csr_array((data, weight.indices, weight.indptr), shape=weight.shape)


def sound(old: Weight, new: Weight) -> bool:
    """Whether no entry lost more than a rounding; a single layer is changed twice."""
    before, after = (np.abs(weight if isinstance(weight, np.ndarray) else weight.data) for weight in (old, new))
    return bool((np.isfinite(after) & ((before == 0.0) | (after >= _LEAST))).all())


def _sound(old: Weight, new: Weight) -> Weight:
    if not sound(old, new):
        raise InvalidInput("the scale or shape of a norm takes weights out of the range of floats; choose other units")
    return new


def _shaped(network: Network, norms: Norms) -> Network:
    """With a layer for each shape: M before the first, about M⁻¹ after the last."""
    layers = list(network.layers)
    into, out = norms.input.matrix, norms.output.matrix
    if into is not None:
        n = len(into)
        layers.insert(0, Layer(into, np.zeros(n), Neurons.of("identity", n)))
    if out is not None:
        m, last = len(out), layers[-1]
        layers[-1] = Layer(last.weight, last.bias, Neurons.of("identity", m))
        layers.append(Layer(_inverse(out), np.zeros(m), None))
    return network if into is None and out is None else Network(tuple(layers))


def _inverse(matrix: Array) -> Array:
    """B with ‖M⁻¹y‖₂ ≤ ‖By‖₂ for all y, near M⁻¹.

    For any float B with ‖BM - I‖ ≤ f < 1, M⁻¹ = (BM)⁻¹B, so ‖M⁻¹y‖ ≤ ‖By‖/(1 - f). The norm of the residual is at most
    the root of its largest row sum times its largest column sum. Each entry of the result is rounded once.
    """
    with np.errstate(all="ignore"):
        try:
            B = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise InvalidInput("the shape of output_norm cannot be inverted; give an ellipsoid with interior") from None
        off = Approx(B) @ Approx(matrix) - Approx(np.eye(len(B)))
        f = inflate(np.sqrt(off.rows().max() * off.T.rows().max()), 2)
    if not f < 0.5 or not np.isfinite(B).all():
        raise InvalidInput("the shape of output_norm is too ill-conditioned to be inverted; give a rounder ellipsoid")
    return np.asarray(_sound(B, B * (1.0 / (1.0 - Near.of(f))).above))
