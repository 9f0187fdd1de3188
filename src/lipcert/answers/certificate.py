"""Certificates: a Lipschitz bound, of what, with which hints."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lipcert.answers.saved import ROOM, Saved
from lipcert.arguments.words import upward
from lipcert.errors import ProofFailed
from lipcert.kernel.checker import Proved, lipschitz_fact
from lipcert.kernel.facts import LipschitzFact, Part
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.hints import Curved, Hints, LayerReport, Tree


@dataclass(frozen=True, eq=False)
class Certificate(Saved):
    """A certified upper bound on a Lipschitz constant.

    Attributes
    ----------
    bound : ‖f(x) - f(y)‖ ≤ bound · ‖x - y‖ for all x, y of the region, in the norms of ``part``; ℓ2 by default.
    method : the method that found it, a value such as ``Scalar()``; read from a file, its printed form.
    region : the inputs it holds for.
    network : digest of the network.
    part : the part of the network it is about, and the norms at its ends.
    layers : per hidden layer of that part: intervals, slopes, multipliers.
    sweeps : the hints from which the whole network's bound can be derived again.
    part_sweeps : the same for the part, where the certificate is about less than the whole network.
    seconds : wall-clock time.
    facts : the kernel's fact that shows the bound; none where it was not proved, or comes from a file.
    tree : the pieces, where the region was cut; the largest of their bounds counts.
    witness : an input at which the Jacobian's norm comes near the bound, where the search met one; no proof needs it.
    found_by : the method that found the bound, by name, where ``method`` tries several; no proof needs it.
    curved : hints to second order, where there are any; the smaller of their bound and that of the sweeps counts.
    names : what its inputs and outputs are called, where they have names; nothing is proved of them.
    note : what had to be repaired of the method's choices, if anything; no proof needs it, and files do not keep it.
    """

    bound: float
    method: object
    region: Region
    network: str
    part: Part
    layers: tuple[LayerReport, ...]
    sweeps: tuple[Hints, ...]
    part_sweeps: tuple[Hints, ...]
    seconds: float
    facts: tuple[LipschitzFact, ...] = ()
    tree: Tree | None = None
    witness: Array | None = None
    found_by: str = ""
    curved: Curved | None = None
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    note: str = ""

    @staticmethod
    def of(proved: Proved, method: object) -> Certificate:
        """The certificate of a fact."""
        fact = proved.fact
        hints = tuple(one.bare for one in proved.sweeps), tuple(one.bare for one in proved.part_sweeps)
        bound, about = ROOM * fact.bound, (fact.region, fact.network, fact.part)
        return Certificate(bound, method, *about, proved.layers, *hints, 0.0, (fact,))

    kind = "bound"

    @property
    def flaw(self) -> str:
        finite = 0.0 <= self.bound < np.inf
        return "" if finite else f"a certificate must have a finite bound of at least 0, got {self.bound}"

    @property
    def verified(self) -> bool:
        """Whether the kernel proved the bound, in floating point with outward rounding."""
        return any(fact.shows(self.network, self.region, self.part, self.bound) for fact in self.facts)

    @property
    def declared(self) -> bool:
        """Whether the bound rests on facts about an activation that were declared, not proved."""
        return self.network.startswith("declared:")

    def __repr__(self) -> str:
        norms = "" if self.part.norms.plain else f" from {self.part.norms}"
        claim = f"bound={upward(self.bound)}{norms}, region={self.region!r}, method={self.method!s}"
        declared = ", declared=True" if self.declared else ""
        return f"Certificate({claim}, seconds={self.seconds:.3g}, verified={self.verified}{declared})"


def recheck_certificate(network: Network, claim: Certificate) -> Certificate:
    """The certificate with the bound that its hints prove now, or ProofFailed; nothing in it is believed."""
    if claim.network != network.digest:
        raise ProofFailed(
            f"the certificate is about another network: its digest is {claim.network[:12]}…, "
            f"this network's is {network.digest[:12]}…"
        )
    hints = claim.sweeps, claim.part_sweeps, claim.tree, claim.curved
    fact = lipschitz_fact(network, claim.region, claim.part, *hints)
    if not fact.shows(claim.network, claim.region, claim.part, claim.bound):
        raise ProofFailed(f"the certificate claims {claim.bound!r}, its hints prove no better than {fact.bound!r}")
    return replace(claim, bound=fact.bound, facts=(fact,))
