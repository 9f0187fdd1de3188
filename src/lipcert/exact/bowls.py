"""Parabolas of any slope again, in ball arithmetic: a row of the outputs is negative all over a ball.

For neurons that are straight but for one kink, at 0: row·φ(v) ≤ g·v + ½b(v - c)² + h with the larger h of both sides,
and Σ bΔv² ≤ ‖Δx‖² λmax(B^½ S B^½).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.curvature import Place
from lipcert.exact.functions import ball, most
from lipcert.exact.linear import at_least, largest_eigenvalue, norm, plus_diagonal, scaled


class Bowls:
    """One network over one ball; ``spreads`` are the S of ΔvΔvᵀ ≼ ‖Δx‖²S, layer by layer."""

    def __init__(self, place: Place, spreads: Sequence[arb_mat]) -> None:
        self.place, self.model, self.spreads = place, place.model, spreads
        self.centers = [[v + arb(0, e) for v, e in zip(*pair, strict=True)] for pair in place.centers]

    def above(self, hints: Any) -> arb:
        """At least max of row·v_N over the ball, for hints (``row``, ``slopes``, ``bends``, ``mu``)."""
        last, radius = self.model[-1], self.place.radius
        row = arb_mat([[ball(x) for x in hints.row.tolist()]])
        total, row = (row * last.bias)[0, 0], row * last.weight
        bends: list[arb] = []
        for index in reversed(range(len(self.model) - 1)):
            layer = self.model[index]
            if {np.shape(hints.slopes[index]), np.shape(hints.bends[index])} != {(layer.size,)}:
                raise ProofFailed("the hints are for other layers")
            g, bends, height = self._replaced(index, row.entries(), hints)
            total += height + (arb_mat([g]) * layer.bias)[0, 0]
            if index:
                total += radius * radius * self._most(index, bends) / 2
            row = arb_mat([g]) * layer.weight
        along = sum((a * b for a, b in zip(row.entries(), self.place.inputs.center, strict=True)), arb(0))
        gradient, boxed = self.place.split(row.entries())
        top = self._most(0, bends)
        if top.is_zero():
            return (total + along + boxed + radius * norm(gradient)).upper()
        B = plus_diagonal(arb_mat(len(bends), len(bends)), bends)
        return (total + along + boxed + self.place.over_ball(gradient, B, top, ball(float(hints.mu)))).upper()

    def _replaced(self, index: int, row: list[arb], hints: Any) -> tuple[list[arb], list[arb], arb]:
        """What row·z of a layer becomes: slopes, bends and the sum of heights."""
        slopes, bends, height = [], [], arb(0)
        told = zip(hints.slopes[index].tolist(), hints.bends[index].tolist(), strict=True)
        neurons = zip(
            self.model[index].functions, *self.place.known[index], self.centers[index], row, told, strict=True
        )
        for function, low, high, center, r, (slope, bend) in neurons:
            view = function.on(low, high)
            alpha, beta = view.slopes()
            if alpha == beta:
                value, _ = view.arcs[0].first
                slopes.append(r * alpha)
                bends.append(arb(0))
                height += r * (value - alpha * low)
                continue
            g, b = ball(slope), most([ball(bend), arb(0)])
            sides = zip(function.kink(low, high), ((low, arb(0)), (arb(0), high)), strict=True)
            height += most([_height(r * tilt - g, b, center, *ends) for tilt, ends in sides])
            slopes.append(g)
            bends.append(b)
        return slopes, bends, height

    def _most(self, index: int, bends: list[arb]) -> arb:
        """At least λmax(B^½ S B^½)."""
        some = [k for k, b in enumerate(bends) if b > 0]
        if not some:
            return arb(0)
        S = self.spreads[index]
        root = [bends[k].sqrt() for k in some]
        return largest_eigenvalue(at_least(scaled(arb_mat([[S[i, k] for k in some] for i in some]), root, root)))


def _height(a: arb, b: arb, c: arb, start: arb, stop: arb) -> arb:
    """At least max of a·v - ½b(v - c)² for v between two ends, which is concave."""
    ends = [a * v - b * (v - c) ** 2 / 2 for v in (start, stop)]
    if not b > 0:
        return most([x.upper() for x in ends])
    if a - b * (start - c) < 0:  # it falls from the start on
        return ends[0].upper()
    if a - b * (stop - c) > 0:
        return ends[1].upper()
    return (a * c + a * a / (2 * b)).upper()
