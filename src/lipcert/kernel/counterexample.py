"""Inputs of another class near a point, proved to be what they are said to be."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from lipcert.kernel.arithmetic import up
from lipcert.kernel.norms import length_above
from lipcert.kernel.outputs import output_at
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input that is not of the class that it should be of: f_rival > f_label there, in real arithmetic.

    Attributes
    ----------
    point : the input, (inputs,).
    distance : at least how far it is from the centre of the ball, in the norm of the ball.
    label, rival : the class that it should be of, and one whose output is larger.
    subject : digest of the network, the centre, the clip and the norm that it is about.
    """

    point: Array
    distance: float
    label: int
    rival: int
    subject: str = field(repr=False)


def subject_of(network: Network, ball: Ball) -> str:
    """SHA-256 of what a certified radius is about: network, point, the box that inputs are clipped to, and the norm."""
    box = [] if ball.clip is None else [ball.clip.lower, ball.clip.upper]
    if not ball.plain:
        box += [np.frombuffer(ball.norm.name.encode(), dtype=np.uint8), ball.units]
    parts = (np.ascontiguousarray(part).tobytes() for part in (ball.center, *box))
    found = hashlib.sha256(b"|".join([network.digest.encode(), *parts])).hexdigest()
    return f"declared:{found}" if network.declared else found


def nearest_counterexample(network: Network, ball: Ball, label: int, points: Array) -> Counterexample | None:
    """The nearest of some inputs (k, inputs) that are in the ball and proved not to be of a class; None if none is."""
    with np.errstate(all="ignore"):
        away = length_above(up(np.abs(points - ball.center)), ball.norm)
        away = np.where((points == ball.center).all(axis=-1), 0.0, away)
        inside = away <= float(ball.radius)
        if ball.clip is not None:
            inside &= ((ball.clip.lower <= points) & (points <= ball.clip.upper)).all(axis=-1)
        if not inside.any():
            return None
        points, away = points[inside], away[inside]
        output = output_at(network, points)
        larger = (output - output[:, [label]]).below  # f_j - f_label; an overflow gives NaN, which says nothing
        larger[:, label] = np.nan
        proved = np.flatnonzero((larger > 0.0).any(axis=-1))
        if not proved.size:
            return None
    first = proved[np.argmin(away[proved])]
    rival = int(np.nanargmax(larger[first]))
    return Counterexample(points[first].copy(), float(away[first]), int(label), rival, subject_of(network, ball))
