"""Facts: what the kernel has proved. Nothing else is verified, and only this package makes them.

A fact is a theorem about real numbers. It names its network by digest, its region, and the rules that it rests on.
Answers (certificates, reach sets, sensitivities, certified radii) are bundles of facts and may claim less than these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lipcert.kernel.domain import same_region
from lipcert.kernel.hints import Part
from lipcert.model.arrays import Array
from lipcert.model.regions import Region

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
