"""How far a point is from other classes, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.bowls import Bowls
from lipcert.exact.check import with_enough_bits
from lipcert.exact.curvature import Cap, Curvature, Place
from lipcert.exact.enclose import Centre
from lipcert.exact.functions import least
from lipcert.exact.linear import column
from lipcert.exact.margins import stays_negative
from lipcert.exact.model import inputs_of, read
from lipcert.exact.whole import Evidence, Whole, number
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball


@dataclass(frozen=True)
class ClaimedRadius:
    """f_label(z) > f_j(z) for all other classes j and all z of the ball closer to its centre than ``radius``.

    ``margin`` is at most f_label - f_rival at the centre, ``bound`` at least the Lipschitz constant of this difference
    over the ball, or of all outputs if not ``pairwise``.
    """

    radius: float
    bound: float
    margin: float
    label: int
    rival: int
    pairwise: bool


def verify_radius(
    network: Network,
    region: Ball,
    claim: ClaimedRadius,
    told: Evidence,
    stages: Sequence[Any] = (),
    margins: Sequence[Any] = (),
    parabolas: Sequence[Any] = (),
) -> None:
    """Prove a certified radius again, every rounding error inside a ball; ProofFailed if that fails.

    ``stages`` are hints for pairs of classes that it takes second order to settle: of each the ``row`` of the outputs,
    how often the ball was made smaller (``stage``), multipliers of ellipsoids (``ellipsoids``) and those of the bound
    (``hints``). ``margins`` are hints for those that it takes value functions to settle, ``parabolas``
    those for parabolas of any slope. If this returns, the claim
    holds for every network whose weights and biases each differ from the given ones by at most 2⁻⁵⁰ of their size.
    """
    outputs = range(network.outputs)
    if claim.label not in outputs or claim.rival not in outputs or claim.label == claim.rival:
        raise ProofFailed("the classes are not those of the network")
    with_enough_bits(lambda: _Proof(network, region, claim, told).run(stages, margins, parabolas))


class _Proof:
    """Each class is kept away in one way after the other, the cheapest first."""

    def __init__(self, network: Network, region: Ball, claim: ClaimedRadius, told: Evidence) -> None:
        self.claim, self.model, self.plain = claim, read(network), region.plain
        inputs = inputs_of(region, network.inputs)
        if inputs is None or inputs.radius is None:
            raise ProofFailed("a certified radius is about a ball")
        self.radius, self.bound = number(claim.radius), number(claim.bound)
        if not 0 < self.radius <= inputs.radius:
            raise ProofFailed("the radius is not one of the ball that it was proved for")
        self.whole = Whole(self.model, inputs, told)
        centre = Centre(self.model, column(inputs.center))
        centers = [centre.step(index) for index in range(len(self.model))]
        self.place = Place(self.model, inputs, region.clip is not None, centers, self.whole.known)
        self.known: dict[bytes, Curvature] = {}
        self.others = [j for j in range(network.outputs) if j != claim.label]
        value, error = centers[-1]
        label, S = claim.label, self.whole.S
        # at most f_label - f_j at the centre, and at least the constant of this difference
        self.margins = {j: (value[label] - value[j] - error[label] - error[j]).lower() for j in self.others}
        squares = {j: (S[label, label] + S[j, j] - 2 * S[label, j]).upper() for j in self.others}
        self.rates = {j: (x if x > 0 else arb(0)).sqrt().upper() for j, x in squares.items()}

    def run(self, stages: Sequence[Any], margins: Sequence[Any], parabolas: Sequence[Any]) -> None:
        claim = self.claim
        if not number(claim.margin) <= self.margins[claim.rival]:
            raise ProofFailed("the margin is larger than what is proved at the point")
        near = [j for j in self.others if not self._far(j)]
        near = [j for j in near if not self._falls(j) < 0]
        settled = {np.asarray(one.row, dtype=float).tobytes() for one in stages}
        curved = [j for j in near if self._row(j).tobytes() in settled]
        near = [j for j in near if j not in curved]
        near = [j for j in near if not self._negative(j, margins) and not self._bent(j, parabolas)]
        self._pieces(near)
        if not (self.rates[claim.rival] if claim.pairwise else self.whole.bound) <= self.bound:
            raise ProofFailed("the Lipschitz bound is smaller than what its hints prove")
        if any(not self._far(j) for j in near) or not all(self._stays(j, stages) for j in curved):
            raise ProofFailed("the radius is larger than what its hints prove")

    def _far(self, j: int) -> bool:
        """Whether a Lipschitz bound keeps class j away: f_label - f_j ≥ margin - rate·‖z - centre‖ > 0."""
        return bool(self.margins[j] > 0) and bool(self.rates[j] * self.radius <= self.margins[j])

    def _row(self, j: int) -> Array:
        """What takes f_label - f_j from the outputs."""
        eye = np.eye(len(self.others) + 1)
        return np.asarray(eye[self.claim.label] - eye[j])

    def _falls(self, j: int) -> arb:
        """At least max of f_j - f_label over the ball, by linear relaxation."""
        last = self.model[-1]
        row = arb_mat([(-self._row(j)).tolist()])
        offset = (row * last.bias)[0, 0]
        found = [
            (trace.above(len(self.model) - 1, row * last.weight)[0] + offset).upper() for trace in self.whole.traces
        ]
        return least([arb.pos_inf(), *(x for x in found if not x.is_nan())])

    def _negative(self, j: int, margins: Sequence[Any]) -> bool:
        """Whether f_j - f_label is negative all over the ball by value functions."""
        row = -self._row(j)
        leaves = [one for one in margins if np.array_equal(one.row, row)]
        assert self.whole.inputs is not None
        return (
            self.plain and bool(leaves) and stays_negative(self.model, self.whole.inputs, self.whole.known, row, leaves)
        )

    def _bent(self, j: int, parabolas: Sequence[Any]) -> bool:
        """Whether f_j - f_label is negative all over the ball by parabolas of any slope."""
        told = [one for one in parabolas if np.array_equal(one.row, -self._row(j))]
        if not told or not self.plain:
            return False
        found = Bowls(self.place, self.whole.last.spreads)
        return any(bool(found.above(one) < 0) for one in told)

    def _pieces(self, near: Sequence[int]) -> None:
        """A bound L of all outputs by pieces, where it is needed: √2·L bounds every difference of two of them."""
        claim, root = self.claim, arb(2).sqrt()
        targets = [(self.margins[j] / (root * self.radius)).lower() for j in near]
        if claim.pairwise and not self.rates[claim.rival] <= self.bound:
            targets.append((self.bound / root).lower())
        if not claim.pairwise and not self.whole.bound <= self.bound:
            targets.append(self.bound)
        if not targets or self.whole.told.tree is None:
            return
        found = self.whole.by_pieces(least(targets))
        self.whole.bound = least([self.whole.bound, found])
        self.rates = {j: least([rate, (root * found).upper()]) for j, rate in self.rates.items()}

    def _curvature(self, hints: Sequence[Array], cap: Cap | None) -> Curvature:
        """Of the ball it is found once: the same hints serve all classes."""
        if cap is not None:
            return Curvature(self.place, hints, cap)
        name = b"|".join(np.asarray(T, dtype=float).tobytes() for T in hints)
        if name not in self.known:
            self.known[name] = Curvature(self.place, hints)
        return self.known[name]

    def _stays(self, j: int, stages: Sequence[Any]) -> bool:
        """Whether f_label - f_j is positive all over the ball, or on caps that hold all inputs where it may not be."""
        row = self._row(j)
        mine = {int(one.stage): one for one in stages if np.array_equal(one.row, row)}
        limit = self.margins[j]
        cap: Cap | None = None
        if not limit > 0:
            return False
        for stage in range(len(mine)):
            if stage not in mine:
                return False
            hints = mine[stage].hints
            curvature = self._curvature(mine[stage].ellipsoids, cap)
            fall = curvature.rise([arb(x) for x in (-row).tolist()])
            if hints.hopeful:
                return bool(curvature.above(fall, hints.multipliers, hints.mu) < limit)
            cap = curvature.where(fall, hints.multipliers, limit)
        return False
