"""Whether the parts of a piece should be bounded to second order only; either way their bounds are proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network

_HALF: Final = 0.5
"""Share of the values that must be better."""


def mostly_below(second: Array, first: Array) -> Array:
    """Whether most values of a piece are at least as good to second order, (count, rows) → (count,)."""
    return np.asarray((second <= first).mean(axis=-1) >= _HALF)


def kinked(network: Network, low: Sequence[Array], high: Sequence[Array]) -> Array:
    """Whether a slope may jump inside each piece: to second order such a jump is never resolved."""
    found = np.zeros(len(low[0]) if low else 0, dtype=bool)
    for layer, below, above in zip(network.layers, low, high, strict=False):
        for row, index in layer.neurons.groups if layer.neurons else ():
            found |= row.jumps_inside(below[:, index], above[:, index]).any(axis=-1)
    return found
