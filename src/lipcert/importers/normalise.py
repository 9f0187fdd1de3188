"""Normalisation in front of a model, (x - mean)/std, folded into its first layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from lipcert.arguments.numbers import numbers
from lipcert.errors import InvalidInput
from lipcert.importers.precise import Precise, PreciseMatrix
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons


def normalised(network: Network, mean: Any = None, std: Any = None, apart: bool = False) -> Network:
    """The network that takes x and computes what the given one computes of (x - mean)/std.

    Each weight is within 2⁻⁵⁰ of the quotient, and each bias of the whole sum, relatively. Where that cannot be shown,
    or ``apart`` asks for it, the normalisation is a layer of its own, with neurons of the identity.

    Parameters
    ----------
    network
        What was read from a model.
    mean, std
        One number for all inputs, one per channel (channels first), or one per input.
    apart
        Always a layer of its own: for weights that may have been rounded already.
    """
    if mean is None and std is None:
        return network
    m = _each("mean", 0.0 if mean is None else mean, network)
    s = _each("std", 1.0 if std is None else std, network)
    if (s <= 0.0).any():
        raise InvalidInput(f"std must be positive, got {s[s <= 0.0][0]:g}")
    rate = Precise.of(s).reciprocal()
    if apart:
        return replace(network, layers=(_apart(rate, m), *network.layers))
    first = network.layers[0]
    weight = PreciseMatrix.of(first.weight) @ PreciseMatrix.diagonal_of(rate)
    bias = weight.times(Precise.of(-m)) + first.bias
    if weight.values.good.all() and bias.good.all():
        matrix = weight.nearest if sparse.issparse(first.weight) else np.asarray(weight.nearest.toarray())
        layer = Layer(matrix, bias.high + 0.0, first.neurons)
        return replace(network, layers=(layer, *network.layers[1:]))
    return replace(network, layers=(_apart(rate, m), *network.layers))


def _apart(rate: Precise, mean: Array) -> Layer:
    size = len(mean)
    shift = rate * Precise.of(-mean)
    if not (rate.good.all() and shift.good.all()):
        raise InvalidInput("mean and std are out of the range of floats; choose other units")
    return Layer(sparse.csr_array(sparse.diags_array(rate.high)), shift.high + 0.0, Neurons.of("identity", size))


def _each(name: str, value: Any, network: Network) -> Array:
    given, size, shape = numbers(name, value), network.inputs, network.input_shape
    channels = shape[0] if shape and len(shape) > 1 else given.size  # of a flat input they are not known
    if given.ndim > 1 or not given.size or size % given.size or given.size not in (1, channels, size):
        raise InvalidInput(
            f"{name} must be one number, one per channel or one per input; got {given.size} for {size} inputs"
            + (f" of shape {shape}" if shape else "")
        )
    return np.repeat(np.atleast_1d(given), size // given.size)
