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
from lipcert.exact.enclose import Interval
from lipcert.exact.functions import Function, ball, most
from lipcert.exact.linear import at_least, largest_eigenvalue, norm, scaled
from lipcert.exact.model import Inputs, Layer, Model, split_rows
from lipcert.model.arrays import Array


class Bowls:
    """One network over one ball, from what is known of its pre-activations.

    ``centers`` are those at the middle of the ball with their errors, ``spreads`` the S of ΔvΔvᵀ ≼ ‖Δx‖²S, layer by
    layer.
    """

    def __init__(
        self,
        model: Model,
        inputs: Inputs,
        clipped: bool,
        centers: Sequence[tuple[list[arb], list[arb]]],
        known: Sequence[Interval],
        spreads: Sequence[arb_mat],
    ) -> None:
        self.model, self.inputs, self.clipped, self.known, self.spreads = model, inputs, clipped, known, spreads
        self.centers = [[v + arb(0, e) for v, e in zip(*pair, strict=True)] for pair in centers]

    def above(self, hints: Any) -> arb:
        """At least max of row·v_N over the ball, for hints (``row``, ``slopes``, ``bends``, ``mu``)."""
        last, radius = self.model[-1], self.inputs.radius
        assert radius is not None
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
        along = sum((a * b for a, b in zip(row.entries(), self.inputs.center, strict=True)), arb(0))
        if self.clipped:
            row, boxed = split_rows(self.inputs, row)
            total += boxed[0]
        return (total + along + self._over_ball(row.entries(), bends, ball(float(hints.mu)))).upper()

    def _replaced(self, index: int, row: list[arb], hints: Any) -> tuple[list[arb], list[arb], arb]:
        """What row·z of a layer becomes: slopes, bends and the sum of heights."""
        slopes, bends, height = [], [], arb(0)
        told = zip(hints.slopes[index].tolist(), hints.bends[index].tolist(), strict=True)
        neurons = zip(self.model[index].functions, *self.known[index], self.centers[index], row, told, strict=True)
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
            sides = _sides(function, low, high)
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

    def _over_ball(self, row: list[arb], bends: list[arb], mu: arb) -> arb:
        """At least max of row·d + ½Σ bend·(Wd)² over the ball, by a y that is nearly (μ - WᵀBW)⁻¹row."""
        layer, radius, top = self.model[0], self.inputs.radius, self._most(0, bends)
        assert radius is not None
        if top.is_zero():
            return radius * norm(row)
        if not mu > top:
            raise ProofFailed("the multiplier of the ball is too small")
        y = [arb(x) for x in _nearly(layer, bends, row, mu)]
        moved = (layer.weight * arb_mat([[x] for x in y])).entries()
        back = (arb_mat([[b * x for b, x in zip(bends, moved, strict=True)]]) * layer.weight).entries()
        rest = [r - mu * x + z for r, x, z in zip(row, y, back, strict=True)]
        left = sum((abs(x) * abs(e) for x, e in zip(y, rest, strict=True)), arb(0)) + norm(rest) ** 2 / (mu - top)
        return (sum((r * x for r, x in zip(row, y, strict=True)), arb(0)) + left + mu * radius * radius) / 2


def _nearly(layer: Layer, bends: list[arb], row: list[arb], mu: arb) -> Array:
    """About (μ - WᵀBW)⁻¹row, in floating point."""
    W, B = layer.near, np.array([float(b) for b in bends])
    inner = float(mu) * np.eye(W.shape[1]) - W.T @ (B[:, None] * W)
    return np.asarray(np.linalg.solve(inner, np.array([float(r.mid()) for r in row])))


def _sides(function: Function, low: arb, high: arb) -> list[tuple[arb, tuple[arb, arb]]]:
    """The slopes on both sides of a kink at 0, and where they hold."""
    zero, found = arb(0), []
    if low < 0 < high and function.value(zero) == 0:
        for ends in ((low, zero), (zero, high)):
            alpha, beta = function.on(*ends).slopes()
            found += [(alpha, ends)] if alpha == beta else []
    if len(found) < 2:
        raise ProofFailed("parabolas of curved neurons are not repeated in ball arithmetic; verify without exact")
    return found


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
