"""Normalisation in front of a model, (x - mean)/std, folded into its first layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lipcert.arguments.numbers import numbers
from lipcert.errors import InvalidInput
from lipcert.importers.builder import Builder
from lipcert.importers.lowering import lower
from lipcert.model.arrays import Array
from lipcert.model.network import Network


def normalised(network: Network, mean: Any = None, std: Any = None, apart: bool = False) -> Network:
    """The network that takes x and computes what the given one computes of (x - mean)/std.

    ``mean`` and ``std`` are one number for all inputs, one per channel (channels first), or one per input. Each weight
    is within 2⁻⁵⁰ of the quotient, and each bias of the whole sum, relatively. Where that cannot be shown, or ``apart``
    asks for it since weights may have been rounded already, the normalisation is a layer of its own, with neurons of
    the identity.
    """
    if mean is None and std is None:
        return network
    m, s = _each("mean", 0.0 if mean is None else mean, network), _each("std", 1.0 if std is None else std, network)
    if (s <= 0.0).any():
        raise InvalidInput(f"std must be positive, got {s[s <= 0.0][0]:g}")
    first, build = network.layers[0], Builder((network.inputs,))
    x = build.divide(build.scale(build.input, 1.0, -m), s)
    x = build.activate(x, "identity") if apart else build.affine(x, first.weight, first.bias, (first.size,))
    made = lower(build.finish(x)).network.layers
    made = made[:-1] if apart else (*made[:-1], replace(made[-1], plain=first.plain, coupling=first.coupling))
    return replace(network, layers=(*made, *network.layers[0 if apart else 1 :]))


def _each(name: str, value: Any, network: Network) -> Array:
    given, size, shape = numbers(name, value), network.inputs, network.input_shape
    channels = shape[0] if shape and len(shape) > 1 else given.size  # of a flat input they are not known
    if given.ndim > 1 or not given.size or size % given.size or given.size not in (1, channels, size):
        raise InvalidInput(
            f"{name} must be one number, one per channel or one per input; got {given.size} for {size} inputs"
            + (f" of shape {shape}" if shape else "")
        )
    return np.repeat(np.atleast_1d(given), size // given.size)
