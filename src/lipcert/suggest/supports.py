"""Support functions of regions in floating point, and how to split a row between a ball and a box."""

from __future__ import annotations

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.norms import LInf
from lipcert.model.regions import Ball, Box, Region


def support(region: Region, rows: Array) -> Array:
    """About max over z in Z of rows·(z - center), for rows (..., k, inputs)."""
    if isinstance(region, Ball):
        return _of_ball(region, rows)
    if isinstance(region, Box):
        reach = np.maximum(region.upper - region.center, region.center - region.lower)
        return np.einsum("...kd,...d->...k", np.abs(rows), reach)
    return np.where(np.any(rows != 0.0, axis=-1), np.inf, 0.0)


def _of_ball(ball: Ball, rows: Array) -> Array:
    radius = ball.radius[..., None]
    if not ball.plain:
        plain = radius * ball.norm_dual(rows)
        if ball.clip is None:
            return np.asarray(plain)
        reach = radius * ball.units if isinstance(ball.norm, LInf) else np.inf
        below, above = ((side - ball.center) for side in (ball.clip.lower, ball.clip.upper))
        low, high = np.maximum(below, -reach)[..., None, :], np.minimum(above, reach)[..., None, :]
        return np.minimum(plain, (rows * np.where(rows > 0, high, low)).sum(axis=-1))
    if ball.clip is None:
        return np.asarray(radius * np.linalg.norm(rows, axis=-1))
    below, above = ((side - ball.center)[..., None, :] for side in (ball.clip.lower, ball.clip.upper))
    corner = (rows * np.where(rows > 0, above, below)).sum(axis=-1)
    plain = np.minimum(corner, radius * np.linalg.norm(rows, axis=-1))
    rate = split_rate(rows, radius, below, above)
    y = np.clip(rows / np.where(rate > 0, rate, 1.0)[..., None], below, above)
    length = np.linalg.norm(y, axis=-1)
    split = rate * length * (radius - length) + (rows * y).sum(axis=-1)
    return np.where(rate > 0, np.minimum(split, plain), plain)


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
