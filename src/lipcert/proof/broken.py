"""Inputs of another class near a point, proved to be what they are said to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import L1, LInf
from lipcert.model.regions import Ball
from lipcert.proof.outputs import output_at
from lipcert.proof.rounding import down, gamma, norm_above, stretched, up


@dataclass(frozen=True, eq=False)
class Broken:
    """An input that is not of the class that it should be of: f_rival > f_label there, in real arithmetic.

    Attributes
    ----------
    point : the input, (inputs,).
    distance : at least how far it is from the centre of the ball, in the norm of the ball.
    rival : a class whose output is larger than that of the label.
    """

    point: Array
    distance: float
    rival: int


def nearest_broken(network: Network, ball: Ball, label: int, points: Array) -> Broken | None:
    """The nearest of some inputs (k, inputs) that are in the ball and proved not to be of a class; None if none is."""
    with np.errstate(all="ignore"):
        away = _away(ball, points)
        inside = away <= float(ball.radius)
        if ball.clip is not None:
            inside &= ((ball.clip.lower <= points) & (points <= ball.clip.upper)).all(axis=-1)
        if not inside.any():
            return None
        points, away = points[inside], away[inside]
        value, error = output_at(network, points)
        gap = value - value[:, [label]]
        slack = stretched(error + error[:, [label]] + 2.0 * gamma(1) * np.abs(gap), 3)
        larger = down(gap - slack)  # at most f_j - f_label; an overflow gives NaN, which says nothing
    larger[:, label] = np.nan
    proved = np.flatnonzero((larger > 0.0).any(axis=-1))
    if not proved.size:
        return None
    first = proved[np.argmin(away[proved])]
    return Broken(points[first].copy(), float(away[first]), int(np.nanargmax(larger[first])))


def _away(ball: Ball, points: Array) -> Array:
    """At least the distance of each point from the centre, in the norm of the ball."""
    scaled = up(up(np.abs(points - ball.center)) / ball.units)
    if isinstance(ball.norm, LInf):
        return np.asarray(scaled.max(axis=-1))
    return stretched(scaled.sum(axis=-1), scaled.shape[-1]) if isinstance(ball.norm, L1) else norm_above(scaled)
