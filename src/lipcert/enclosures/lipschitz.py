"""The paper's enclosure: what a neuron can do within δ of the centre, by its own Lipschitz constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.condense import Image
from lipcert.enclosures.base import Enclosure, Interval, Pass
from lipcert.network import Network
from lipcert.regions import Region
from lipcert.typing import Array


@dataclass(frozen=True)
class Lipschitz(Enclosure):
    """v_l ∈ v_l(centre) ± δ·sqrt(S_ll)."""

    def start(self, network: Network, region: Region) -> Pass:
        return _Run(network.preactivations(region.center), region.radius)


@dataclass(frozen=True, eq=False)
class _Run(Pass):
    centers: list[Array]
    radius: Array

    def tighten(self, layer: int, S: Image, known: Interval) -> Interval:
        reach = self.radius[..., None] * S.axes()
        center = self.centers[layer]
        return np.maximum(known[0], center - reach), np.minimum(known[1], center + reach)

    def settle(self, layer: int, interval: Interval) -> None:
        """Nothing to remember: the ellipsoid carries it all."""

    def line_slopes(self) -> list[tuple[Array, Array]]:
        return []
