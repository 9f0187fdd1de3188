"""Two parabolas around an activation on an interval, and its secants, seen from a point of it, in ball arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from lipcert.definitions.functions import Function, least, most

_CELLS, _SHRINK = 120, 0.95
"""Cells on each side of the point, and how the distances of their ends shrink towards it."""
_FAR = 2**20
"""A side is cut into cells if it is so many times longer than the point is uncertain."""


@dataclass(frozen=True)
class Parabola:
    """What holds for every v of the interval and Δ = v - c, c the point that the neuron is seen from.

    below·Δ²/2 - slack ≤ φ(v) - φ(c) - slope·Δ ≤ above·Δ²/2 + slack, alpha ≤ (φ(v) - φ(c))/Δ ≤ beta, |Δ| ≤ reach.
    """

    slope: arb
    below: arb
    above: arb
    slack: arb
    alpha: arb
    beta: arb
    reach: arb

    @property
    def moved(self) -> arb:
        """At least |φ(v) - φ(c)|."""
        return (most([abs(self.alpha).upper(), abs(self.beta).upper()]) * self.reach).upper()


@dataclass(frozen=True)
class _Side:
    """On one side: bends beyond the distance ``near``, if there is anything; at least |E| up to there; and secants."""

    bends: tuple[arb, arb] | None
    slack: arb
    near: arb
    alpha: arb
    beta: arb


def parabola(f: Function, low: arb, high: arb, center: arb, error: arb) -> Parabola:
    """For every c with |c - center| ≤ error; all are numbers without radius.

    With E(v) = φ(v) - φ(center) - slope·(v - center) and D at least |φ' - slope| wherever it counts,
    φ(v) - φ(c) - slope·Δ = E(v) - E(c), |E(c)| ≤ D·error, and (v - center)² differs from Δ² by at most
    2·reach·error + error².
    """
    low, high = least([low, center]), most([high, center])
    start, stop = least([low, (center - error).lower()]), most([high, (center + error).upper()])
    alpha, beta = f.on(start, stop).slopes()
    reach = (most([(high - center).upper(), (center - low).upper()]) + error).upper()
    if alpha == beta:  # a straight line
        return Parabola(alpha, arb(0), arb(0), arb(0), alpha, beta, reach)
    here = f.on(center, center).slopes()
    slope = ((here[0] + here[1]) / 2).mid()
    sides = [_side(f, center, end, error, slope, sign) for end, sign in ((high, 1), (low, -1))]
    bends = [side.bends for side in sides if side.bends is not None] or [(arb(0), arb(0))]
    below, above = least([low for low, _ in bends]), most([high for _, high in bends])
    size = most([abs(above).upper(), abs(below).upper()])
    steep = most([(beta - slope).upper(), (slope - alpha).upper()])
    slack = most([(side.slack + size * side.near * side.near / 2).upper() for side in sides])
    slack = (slack + steep * error + size * error * (2 * reach + error) / 2).upper()
    alpha = most([alpha, least([side.alpha for side in sides])])
    beta = least([beta, most([side.beta for side in sides])])
    return Parabola(slope, below, above, slack, alpha, beta, reach)


def _side(f: Function, center: arb, end: arb, error: arb, slope: arb, sign: int) -> _Side:
    """From the point up (sign 1) or down (-1) to the end; t is the distance, and rise(t) = sign·(φ(v) - φ(center)).

    On a cell l ≤ t ≤ r with slopes in [α, β], rise(t) is between rise(l) + α(t - l) and rise(l) + β(t - l). The
    quotient of such a line by t is monotone, that of the line less slope·t by t² is a quadratic in 1/t.
    """
    whole = abs(end - center)
    fine = bool(whole > _FAR * error) and bool(whole > 0)
    shares = [arb(_SHRINK) ** k for k in range(_CELLS - 1, 0, -1)] if fine else []
    points = [*((center + sign * share * whole).mid() for share in shares), end]
    ends = ((center - error).lower(), points[0]) if sign > 0 else (points[0], (center + error).upper())
    least_slope, most_slope = f.on(*ends).slopes()
    near = abs(points[0] - center).upper()
    steep = most([(most_slope - slope).upper(), (slope - least_slope).upper()])
    if not fine:
        return _Side(None, (steep * near).upper(), near, least_slope, most_slope)
    size = most([abs(least_slope).upper(), abs(most_slope).upper()])
    alphas, betas = [least_slope], [most_slope]
    bends: tuple[list[arb], list[arb]] = ([], [])
    begin = f.value(center)
    for one, two in pairwise(points):
        left, right = abs(one - center), abs(two - center)
        rise = sign * (f.value(one) - begin)
        ends = (one, two) if sign > 0 else (two, one)
        rates = f.on(*ends).slopes()
        for rate, picked, found, upwards in zip(rates, (alphas, betas), bends, (-1, 1), strict=True):
            for secant in (rise / left, (rise + rate * (right - left)) / right):
                # of c within error of the centre: (N + a)/(D + b) - N/D = (aD - Nb)/(D(D + b)), |a| ≤ size·error
                room = 2 * (size + abs(secant)) * error / left
                picked.append((secant + room).upper() if upwards > 0 else (secant - room).lower())
            over = rate - slope
            base = rise - slope * left - over * left
            found.append(upwards * _highest(upwards * base, upwards * over, 1 / right, 1 / left))
    below, above = least(bends[0]), most(bends[1])
    if sign < 0:
        below, above = -above, -below
    return _Side((below, above), (steep * near).upper(), near, least(alphas), most(betas))


def _highest(base: arb, rate: arb, low: arb, high: arb) -> arb:
    """At least the largest 2(base·w + rate)·w for low ≤ w ≤ high; its vertex is at -rate/(2·base)."""
    found = [(2 * (base * w + rate) * w).upper() for w in (low, high)]
    if base < 0:
        vertex = -rate / (2 * base)
        if not (vertex < low or vertex > high):
            found.append((rate * vertex).upper())
    elif not base > 0:
        w = low.union(high)
        found.append((2 * (base * w + rate) * w).upper())
    return most(found)
