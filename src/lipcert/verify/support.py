"""Support functions of regions, rounded up."""

from __future__ import annotations

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.regions import Ball, Box, Region
from lipcert.typing import Array
from lipcert.verify.rounding import UP, apply, gamma, norm_above, stretched, up


def support_above(region: Region, rows: Array) -> tuple[Array, Array]:
    """A value and an error with max over z in the region of rows·z ≤ value + error, for rows (k, n)."""
    g = gamma(rows.shape[-1] + 4)
    size = np.abs(rows)
    value = rows @ region.center
    error = g * apply(size, np.abs(region.center))
    if isinstance(region, Box):
        reach = up(np.maximum(region.upper - region.center, region.center - region.lower))
        return value, stretched(error * UP + apply(size, reach), rows.shape[-1] + 3)
    if not isinstance(region, Ball):
        raise ProofFailed(f"no rule for the support function of {type(region).__name__}")
    ball = stretched(region.radius[..., None] * norm_above(rows), 2)
    if region.clip is None:
        return value, stretched(error * UP + ball, 2)
    return value, stretched(error * UP + np.minimum(ball, _clipped(region, rows, size)), 2)


def _clipped(region: Ball, rows: Array, size: Array) -> Array:
    """At least max rows·(z - center) over the ball clipped to its box.

    For any rate λ ≥ 0 and any y, a = λy + (a - λy): the ball bounds the first part by δλ‖y‖, the box the second by
    its own support function. The region's own search supplies λ.
    """
    assert region.clip is not None
    below = np.nextafter(region.clip.lower - region.center, -np.inf)
    above = up(region.clip.upper - region.center)
    rate = region.rate(rows)[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        y = np.where(rate > 0, np.clip(rows / np.where(rate > 0, rate, 1.0), below, above), 0.0)
    rest = rows - rate * y
    slack = 4.0 * gamma(1) * (size + np.abs(rate * y))
    box = np.maximum(rest * below, rest * above).sum(axis=-1)
    reach = np.maximum(np.abs(below), np.abs(above))
    error = apply(slack, reach) + gamma(rows.shape[-1] + 4) * apply(np.abs(rest), reach)
    return stretched(stretched(region.radius[..., None] * norm_above(rate * y), 3) + box + error * UP, 3)
