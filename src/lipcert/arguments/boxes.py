"""Corners, radii, limits and scales as users hand them in, and points of balls and boxes for searches and drawings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lipcert.arguments.numbers import Array, numbers, scaled
from lipcert.arguments.words import scale_in_words
from lipcert.errors import InvalidInput


def corners(lower: Any, upper: Any) -> tuple[Array, Array]:
    """The ends of a box, in one shape."""
    low, high = _alike(("lower", scaled("lower", lower)), ("upper", scaled("upper", upper)))
    if (low > high).any():
        where = np.argwhere(low > high)[0]
        raise InvalidInput(
            f"lower must not exceed upper; at index {where.tolist()} lower is {low[tuple(where)]},"
            f" upper is {high[tuple(where)]}"
        )
    return low, high


def radii(radius: Any, center: Array) -> Array:
    """A radius for each of the centres (..., inputs)."""
    size = numbers("radius", radius)
    if (size < 0).any():
        raise InvalidInput(f"radius must be at least 0, got {radius}")
    if size.shape not in ((), center.shape[:-1]) and size.size != 1:
        raise InvalidInput(
            f"radius must be one number, or one per center of shape {center.shape[:-1]}; got shape {size.shape}"
        )
    return np.array(np.broadcast_to(size.reshape(()) if size.size == 1 else size, center.shape[:-1]))


def clip_of(clip: Any, center: Array) -> tuple[Array, Array]:
    """The ends of the box, or the pair, that a ball is clipped to, with as many coordinates as its centre has."""
    n = center.shape[-1]
    if hasattr(clip, "lower"):
        low, high = clip.lower, clip.upper
        if clip.uniform:
            low, high = np.full(n, low[0]), np.full(n, high[0])
    else:
        try:
            low, high = clip
        except (TypeError, ValueError):
            raise InvalidInput(f"clip must be a pair (lower, upper), got {clip!r}") from None
        low, high = (_alike(("center", center), ("clip", numbers("clip", side)))[1] for side in (low, high))
        if (low > high).all():
            raise InvalidInput(f"clip must be (lower, upper); the limits are swapped in {clip!r}")
        corners(low, high)
    if low.shape[-1] != n:
        raise InvalidInput(f"clip has {low.shape[-1]} coordinates, center has {n}")
    if not ((low <= center) & (center <= high)).all():
        raise InvalidInput("center must lie inside clip; project it there first, for example with numpy.clip")
    return low, high


def scale_of(scale: Any) -> float | tuple[float, ...]:
    """The scale of a norm, a number or one per coordinate; None is 1."""
    found = numbers("scale", 1.0 if scale is None else scale)
    if found.ndim > 1 or not found.size or (found <= 0.0).any():
        raise InvalidInput(f"scale must be a positive number, or one per coordinate; got {scale_in_words(scale)}")
    return tuple(found.tolist()) if found.ndim else float(found)


def shape_of(shape: Any, scale: float | tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """The shape of a norm, a square matrix, in rows."""
    matrix = numbers("shape", shape)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InvalidInput(f"shape must be a square matrix, got one of shape {matrix.shape}")
    if scale != 1.0:
        raise InvalidInput("give a scale or a shape, not both; scale the rows of the shape instead")
    return tuple(map(tuple, matrix.tolist()))


def _alike(one: tuple[str, Array], two: tuple[str, Array]) -> tuple[Array, Array]:
    """Two arrays brought to one shape."""
    try:
        first, second = np.broadcast_arrays(one[1], two[1])
    except ValueError:
        shapes = f"{one[0]} has shape {one[1].shape}, {two[0]} has shape {two[1].shape}"
        raise InvalidInput(f"{one[0]} and {two[0]} must have as many coordinates: {shapes}") from None
    return first, second


def into_ball(
    points: Array,
    center: Array,
    radius: Array,
    length: Callable[[Array], Array],
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
    count: int, rng: np.random.Generator, shape: tuple[int, ...], norm: str, length: Callable[[Array], Array]
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
