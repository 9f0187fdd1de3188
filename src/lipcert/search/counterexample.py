"""Inputs of another class, as near to a point as they are seen; nothing of it is proved."""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network

_HALVINGS: Final = 30
_BEYOND: Final = np.array([0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0 - 1e-9])
"""Shares of the way from the nearest input that seems to be of another class to the one that was found.

Where outputs are nearly equal no class is proved, and rounding may put an input of the boundary outside of the ball.
"""


def bisected(network: Network, center: Array, label: int | Array, points: Array) -> Array:
    """Inputs on the way from the centre of a ball to each of some points (k, inputs), that may be of another class.

    They come as (k, ways, inputs). There may be a centre and a class for each of the points.
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
