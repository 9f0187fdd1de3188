"""Counterexamples near a point, by bisection; nothing here is proved."""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network

_HALVINGS: Final = 30
"""Bisections; they leave 1e-9 of the distance."""
_BEYOND: Final = np.array([0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0 - 1e-9])
"""Shares of the segment from the class boundary to the point given: very near the boundary no class can be proved."""


def bisected(network: Network, center: Array, label: int | Array, points: Array) -> Array:
    """Candidates (k, shares, inputs) on the segments from the centre to points (k, inputs) of another class.

    There may be one centre and one class for all points, or one for each.
    """
    way = points - center
    near, far = np.zeros(len(points)), np.ones(len(points))
    with np.errstate(all="ignore"):
        for _ in range(_HALVINGS):
            middle = 0.5 * near + 0.5 * far
            other = network(center + middle[:, None] * way).argmax(axis=-1) != label
            near, far = np.where(other, near, middle), np.where(other, middle, far)
    shares = far[:, None] + (1.0 - far[:, None]) * _BEYOND
    return np.asarray(center[..., None, :] + shares[:, :, None] * way[:, None])
