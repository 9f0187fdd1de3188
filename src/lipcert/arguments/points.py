"""Points of balls and boxes, for searches, samples and drawings; proofs use none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Length: TypeAlias = Callable[[Array], Array]


def into_ball(
    points: Array,
    center: Array,
    radius: Array,
    length: Length,
    reach: Array | None,
    clip: Callable[[Array], Array],
) -> Array:
    """Points of a ball, clipped to a box, near the given ones; those already inside are unchanged.

    ``length`` is the norm of the ball, ``reach`` how far it goes along each axis where that is all it says.
    """
    points = np.asarray(points, dtype=float)
    if reach is not None:  # coordinate by coordinate; then inwards by what rounding asks
        points = np.clip(points, center - reach, center + reach)
    moved = clip(points)
    for shortfall in (4e-16, 4e-15, 4e-14):
        offset = moved - center
        sizes = length(offset)
        outside = sizes > radius
        if not outside.any():
            return moved
        # towards the centre, which keeps a point of the box inside the box; rounding may ask for another try
        share = np.where(outside, radius * (1.0 - shortfall) / np.where(outside, sizes, 1.0), 1.0)
        moved = np.where(outside[..., None], clip(center + share[..., None] * offset), moved)
    # the centre is so far from the origin that its rounding matters: step in by a few ulp
    offset = moved - center
    step = 2.0 * np.spacing(np.maximum(np.abs(moved), np.abs(center)))
    inner = center + np.sign(offset) * np.maximum(np.abs(offset) - step, 0.0)
    return np.where((length(offset) > radius)[..., None], inner, moved)


def of_ball(
    count: int, rng: np.random.Generator, shape: tuple[int, ...], norm: str, length: Length
) -> tuple[Array, Array]:
    """Directions of length one in ℓ1, ℓ2 or ℓ∞, (count, *shape), and how far to go: every second time all the way."""
    shape = count, *shape
    if norm == "linf":
        direction = rng.uniform(-1.0, 1.0, shape)
        direction[::3] = np.sign(direction[::3])
    elif norm == "l1":
        direction = rng.standard_exponential(shape) ** rng.integers(1, 4, (count, *[1] * (len(shape) - 1)))
        direction *= rng.choice([-1.0, 1.0], shape)
    else:
        direction = rng.standard_normal(shape)
    direction /= length(direction)[..., None]
    share = rng.random(direction.shape[:-1]) ** (1.0 / direction.shape[-1])
    share[::2] = 1.0
    return direction, share


def of_box(count: int, rng: np.random.Generator, lower: Array, upper: Array) -> Array:
    """Points of a box, (count, ...), every third one a corner."""
    share, coin = rng.random((count, *lower.shape)), rng.random((count, *lower.shape))
    points = np.clip((1.0 - share) * lower + share * upper, lower, upper)
    points[::3] = np.where(coin < 0.5, lower, upper)[::3]
    return points
