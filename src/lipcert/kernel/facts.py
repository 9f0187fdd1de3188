"""Facts: what the kernel has proved. Nothing else is verified, and only this package makes them.

A fact is a theorem about real numbers. It names its network by digest, its region, and the rules that it rests on.
Answers (certificates, reach sets, sensitivities, certified radii) are bundles of facts and may claim less than these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from lipcert.kernel.domain import same_region
from lipcert.kernel.norms import in_units, region_in_units
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Network
from lipcert.model.regions import PLAIN, Norms, Region


@dataclass(frozen=True)
class Part:
    """What a bound speaks of: from z_p to v_i of a network, some coordinates at each end, and the norms there."""

    layers: tuple[int, int]
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    norms: Norms = PLAIN

    def is_whole(self, network: Network) -> bool:
        """Whether it is all of the network, in norms without units."""
        everything = self.layers == (0, network.depth) and self.inputs is None and self.outputs is None
        return everything and not self.norms.has_units

    def reduced(self, network: Network) -> tuple[Network, Part]:
        """The smallest network with the same inputs that has this part, and the part of it that is meant.

        A part that starts at the input and takes all of it is a network in its own right, in its own units. With
        some of the inputs it is one of the network with the chosen outputs.
        """
        if not self._is_network:
            if self.layers != (0, network.depth) or self.outputs is None:
                return network, self
            return network.select(outputs=self.outputs), replace(self, outputs=None)
        return self.of(network), Part(self.layers, norms=self.norms.bare)

    def place(self, region: Region) -> Region:
        """The region of the inputs of the reduced network."""
        if not self._is_network or not region.bounded:
            return region
        return region_in_units(region, self.norms.input.units(region.center.shape[-1]))

    @property
    def _is_network(self) -> bool:
        return not (self.layers[0] or self.inputs is not None)

    def of(self, network: Network) -> Network:
        """The part of the network as a network, in its own units."""
        if self.is_whole(network):
            return network
        piece = network.slice(*self.layers).select(self.inputs, self.outputs)
        self.check(network)
        return in_units(piece, self.norms)

    def known(self, intervals: Sequence[Interval]) -> Sequence[Interval]:
        """The intervals of the part's hidden layers, among those of the network's."""
        return intervals[self.layers[0] : self.layers[1] - 1]

    def check(self, network: Network) -> None:
        """An error unless the norms are such of the coordinates at the two ends."""
        ends = ("input_norm", self.norms.input, self.inputs), ("output_norm", self.norms.output, self.outputs)
        start, stop = self.layers
        sizes = network.layers[start].linear.shape[1], network.sizes[stop]  # products and softmax have other widths
        for (name, norm, chosen), size in zip(ends, sizes, strict=True):
            norm.check(size if chosen is None else len(chosen), name)


CORE: Final = frozenset(
    {
        "step",
        "back-substitution",
        "product of norms",
        "branch and bound",
        "second order",
        "quadratic relaxation",
        "dual",
    }
)
"""The rules of the kernel that every proof may use; a step includes slopes, interval arithmetic and its ellipsoid."""
OPTIONAL: Final = frozenset({"fourier", "taylor", "norms", "discrepancy"})
"""Rules that a reader may refuse: convolutions in Fourier space, Taylor models of pieces, norms other than ℓ2, and how
far two evaluations are apart."""


@dataclass(frozen=True, eq=False)
class Fact:
    """Proved of a network over a region, by some rules."""

    network: str
    region: Region
    rules: frozenset[str]


@dataclass(frozen=True, eq=False)
class LipschitzFact(Fact):
    """‖f(x) - f(y)‖ ≤ bound·‖x - y‖ for all x, y of the region, f and the norms being those of the part."""

    part: Part
    bound: float

    def shows(self, network: str, region: Region, part: Part, bound: float) -> bool:
        """Whether a claim says no more than this."""
        same = network == self.network and part == self.part and same_region(region, self.region)
        return same and self.bound <= bound


@dataclass(frozen=True, eq=False)
class PairsFact(Fact):
    """‖change of the outputs i‖ ≤ limits[i, k]·‖change of the inputs k‖ for groups of both, other inputs held equal."""

    outputs: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    limits: Array


@dataclass(frozen=True, eq=False)
class SlopesFact(Fact):
    """|row·(f(x) - f(y))| ≤ limit·‖x - y‖ for each row (k, outputs), in the norm of the ball or ℓ2."""

    rows: Array
    limits: Array


@dataclass(frozen=True, eq=False)
class RowsFact(Fact):
    """The region has pieces, and rows·f ≤ limits[piece] on each, (pieces, k)."""

    rows: Array
    limits: Array


@dataclass(frozen=True, eq=False)
class EllipsoidFact(Fact):
    """(f(x) - center)(f(x) - center)ᵀ ≼ shape for all x of the region."""

    center: Array
    shape: Array


@dataclass(frozen=True, eq=False)
class DiscrepancyFact(Fact):
    """lower ≤ g(x) - f(x) ≤ upper for all x of the region, (outputs,).

    g is the network of digest ``other``, or if that is empty, what a program of some ``precision`` computes whose
    activations are within ``ulps`` units.
    """

    other: str
    precision: str
    ulps: float
    lower: Array
    upper: Array
