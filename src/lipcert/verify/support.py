"""Regions as seen by a proof: their size and their support functions, rounded up."""

from __future__ import annotations

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.regions import Ball, Box, Everywhere, Region, split_rate
from lipcert.typing import Array
from lipcert.verify.rounding import TINY, UP, apply, down, gamma, norm_above, stretched, up


def check_region(region: Region, inputs: int) -> None:
    """Raise unless the region is one that is understood here: a single one, of the right dimension."""
    if isinstance(region, Everywhere):
        return
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed(f"no rule for a region of type {type(region).__name__}")
    if region.dimension != inputs:
        raise ProofFailed(f"the region has {region.dimension} coordinates, the network has {inputs} inputs")
    box = region if isinstance(region, Box) else region.clip
    corners = [region.center] if box is None else [region.center, box.lower, box.upper]
    if np.ndim(region.radius) or any(np.ndim(corner) != 1 for corner in corners):
        raise ProofFailed("a proof is about one region, not about a stack of them")


def reach_above(region: Box) -> Array:
    """At least the largest distance from the centre along each axis, (inputs,)."""
    return up(np.maximum(region.upper - region.center, region.center - region.lower))


def radius_above(region: Region) -> Array:
    """At least ‖z - center‖₂ for every z of a bounded region."""
    if isinstance(region, Box):
        return norm_above(reach_above(region))
    return np.asarray(region.radius)


def sizes_above(region: Region) -> Array:
    """At least |z_j| for every z of a bounded region, (inputs,)."""
    if isinstance(region, Box):
        return np.maximum(np.abs(region.lower), np.abs(region.upper))
    return up(np.abs(region.center) + region.radius)


def support_above(region: Region, rows: Array) -> tuple[Array, Array]:
    """A value and an error with max over z in the region of rows·z ≤ value + error, for rows (k, n)."""
    g = gamma(rows.shape[-1] + 4)
    size = np.abs(rows)
    value = rows @ region.center
    error = g * apply(size, np.abs(region.center))
    if isinstance(region, Box):
        return value, stretched(error * UP + apply(size, reach_above(region)), rows.shape[-1] + 3)
    if not isinstance(region, Ball):
        raise ProofFailed(f"no rule for the support function of {type(region).__name__}")
    reach = stretched(region.radius * norm_above(rows), 2)
    if region.clip is not None:
        reach = np.fmin(reach, _clipped(region, rows))
    return value, stretched(error * UP + reach, 2)


def _clipped(region: Ball, rows: Array) -> Array:
    assert region.clip is not None
    return clipped_above(region.radius, region.clip.lower - region.center, region.clip.upper - region.center, rows)


def clipped_above(radius: Array, below: Array, above: Array, rows: Array, halvings: int = 24) -> Array:
    """At least max rows·(z - center) over a ball clipped to a box, from ``below`` to ``above`` around its centre.

    Split each row a into any two parts, a = q + (a - q): the ball bounds the first by δ‖q‖, the box the second by its
    own support function, term by term. A search supplies q. Differences from the centre have one rounding, made good
    here.
    """
    below, above = down(below), up(above)
    rate = split_rate(rows, radius, below, above, halvings)[..., None]
    y = np.where(rate > 0, np.clip(rows / np.where(rate > 0, rate, 1.0), below, above), 0.0)
    pull = rate * y
    rest = rows - pull
    box = np.maximum(rest * below, rest * above)
    error = gamma(rows.shape[-1] + 4) * (np.abs(rest) * np.maximum(np.abs(below), np.abs(above))).sum(axis=-1)
    # the rounding of the difference, charged with the box's reach
    total = stretched(radius * norm_above(pull), 2) + box.sum(axis=-1)
    return np.asarray(up(total + (error + gamma(4) * np.abs(total)) * UP + TINY))
