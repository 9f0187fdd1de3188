"""How to split a row between a ball and a box."""

from __future__ import annotations

import numpy as np

from lipcert.model.arrays import Array


def split_rate(rows: Array, radius: Array, below: Array, above: Array, halvings: int = 24) -> Array:
    """The λ that makes the bound of a clipped ball's support function sharp; 0 where nothing needs splitting.

    The box reaches from ``below`` to ``above`` around the ball's centre. For any λ > 0 put y = clip(a/λ, below, above)
    and split a = λy + (a - λy): the ball bounds the first part by δλ‖y‖, and the box the second by (a - λy)·y, since
    a - λy is nonzero only where y is at the limit that its sign asks for. Bisection on λ brings ‖y‖ to δ, where the sum
    is the maximum itself.
    """
    size = np.linalg.norm(rows, axis=-1)
    live = (size > 0) & (radius > 0)
    high = np.log(np.where(live, size, 1.0) / np.where(radius > 0, radius, 1.0))
    low = high - 40.0
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        y = np.clip(rows * np.exp(-middle)[..., None], below, above)
        length = np.sqrt(np.einsum("...i,...i->...", y, y))
        short = length < radius
        high, low = np.where(short, middle, high), np.where(short, low, middle)
    return np.where(live, np.exp(0.5 * (low + high)), 0.0)
