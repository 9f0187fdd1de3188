"""An equation solved by conjugate gradients, for a proof that bounds what is left of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from lipcert.model.arrays import Array, Weight
from lipcert.proof.rounding import spread

_ROUNDS: Final = 400
_ENOUGH: Final = 1e-13
"""What is left of the right-hand side, relatively, when it is good enough."""


def solved(weight: Weight, bend: Array, row: Array, mu: float) -> Array:
    """Nearly (μ - WᵀBW)⁻¹row, B = diag(bend); a poor answer costs tightness only."""
    turned = weight.T
    y, rest, way = np.zeros(len(row)), np.array(row), np.array(row)
    left = float(rest @ rest)
    goal = _ENOUGH * _ENOUGH * left
    for _ in range(_ROUNDS):
        image = mu * way - spread(turned, bend * spread(weight, way))
        curve = float(way @ image)
        if not (left > goal and curve > 0.0):
            break
        step = left / curve
        y, rest = y + step * way, rest - step * image
        now = float(rest @ rest)
        way, left = rest + (now / left) * way, now
    return np.where(np.isfinite(y), y, 0.0)
