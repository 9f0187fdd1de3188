"""Whether the parts of a piece should be bounded to second order only; either way their bounds are proved."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region

_POWER: Final = 2.5
"""About the power of the width of a piece with which a bound to second order approaches the truth."""
_PRODUCTS: Final = 10.0
"""About how many products of square matrices a step to first order takes."""
_PARTS: Final = 64.0
"""Into so many parts a piece is cut in the end, at least about, where slopes are smooth and a bound is coarse."""
_COARSE: Final = 2.0
"""A bound to first order is coarse from so many times a norm that is met on."""
_POINTS: Final = 64
"""At so many points norms are met."""
_HALF: Final = 0.5
"""Share of the values that must be better."""


def patience(network: Network, region: Region, bound: float) -> float:
    """By which factor a bound to second order may be further from the truth than one to first order, (bound).

    For the same work pieces to second order are so many times as many, and so much narrower. Where slopes are smooth
    and the bound of the whole region is coarse, pieces become narrower still.
    """
    d = network.inputs
    columns = d + comb(d + 1, 2) + comb(d + 2, 3) + 2 * d * network.outputs  # that a weight is multiplied with
    more = max(1.0, _PRODUCTS * max(network.sizes[1:-1], default=1) / columns)
    groups = [group for layer in network.layers[:-1] if layer.neurons for group in layer.neurons.groups]
    if all(row.row.smooth and not row.row.kinks for row, _ in groups) and _is_coarse(network, region, bound):
        more *= _PARTS
    return float(np.exp2(np.log2(more) * _POWER / max(d, 1)))


def _is_coarse(network: Network, region: Region, bound: float) -> bool:
    """Whether a bound of the whole region is far above the norms that are met at some of its points."""
    with np.errstate(all="ignore"):
        met = np.nan_to_num(network.jacobian(region.sample(_POINTS, np.random.default_rng(0))))
        return bool(bound > _COARSE * np.linalg.norm(met, 2, axis=(-2, -1)).max())


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
