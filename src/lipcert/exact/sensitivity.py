"""How strongly outputs depend on inputs, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from lipcert.errors import ProofFailed
from lipcert.exact.check import with_enough_bits
from lipcert.exact.ellipsoid import Slopes
from lipcert.exact.enclose import Trace
from lipcert.exact.functions import least
from lipcert.exact.jacobian import Entries, Group, Matrix, Products
from lipcert.exact.linear import norm
from lipcert.exact.model import inputs_of, part_of, read
from lipcert.exact.sweep import Swept
from lipcert.exact.tree import Cut, Cuts, prove_leaves
from lipcert.exact.whole import Evidence, Whole, common, least_bound, number, slope_ranges
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.hints import Hints


@dataclass(frozen=True, eq=False)
class ClaimedPairs:
    """matrix[i, k] bounds ‖change of output group i‖ / ‖change of input group k‖, the other inputs held equal.

    ``bound`` is at least the Lipschitz constant of all outputs.
    """

    matrix: Array
    outputs: tuple[Group, ...]
    inputs: tuple[Group, ...]
    bound: float


@dataclass(frozen=True, eq=False)
class Pair:
    """Hints for one pair of groups, on the intervals of one of the proofs about the whole."""

    outputs: Group
    inputs: Group
    base: int
    sweeps: Sequence[Hints]


def verify_sensitivity(
    network: Network,
    region: Region,
    claim: ClaimedPairs,
    proofs: Sequence[Evidence],
    pairs: Sequence[Pair] = (),
    cut: Cut | None = None,
) -> None:
    """Prove sensitivities again, every rounding error inside a ball; ProofFailed if that fails.

    If this returns, the claim holds for any two inputs of the region, and for every network whose weights and biases
    each differ from the given ones by at most 2⁻⁵⁰ of their size.
    """
    if np.shape(claim.matrix) != (len(claim.outputs), len(claim.inputs)) or not np.size(claim.matrix):
        raise ProofFailed("the matrix of sensitivities is not one for its groups")
    for groups, size in ((claim.outputs, network.outputs), (claim.inputs, network.inputs)):
        for group in groups:
            if not group or len(set(group)) < len(group) or min(group) < 0 or max(group) >= size:
                raise ProofFailed(f"the group {group[:5]} does not name distinct coordinates of {size}")
    with_enough_bits(lambda: _Proof(network, region, claim, proofs).run(pairs, cut))


class _Proof:
    """Each pair is bounded in one way after the other, the cheapest first, until its bound is below the claim."""

    def __init__(self, network: Network, region: Region, claim: ClaimedPairs, proofs: Sequence[Evidence]) -> None:
        if not proofs:
            raise ProofFailed("there is nothing to prove sensitivities from")
        self.model, self.claim = read(network), claim
        self.inputs = inputs_of(region, network.inputs)
        self.wholes = [Whole(self.model, self.inputs, told) for told in proofs]
        self.claimed = [[number(x) for x in row] for row in np.asarray(claim.matrix).tolist()]
        self.open = [(i, k) for i in range(len(claim.outputs)) for k in range(len(claim.inputs))]

    def run(self, pairs: Sequence[Pair], cut: Cut | None) -> None:
        claim = self.claim
        if cut is not None:
            Cuts(cut.tree)  # an error if there are leaves missing, whether or not they are needed
        bound = least_bound(self.wholes, number(claim.bound))
        if not bound <= number(claim.bound):
            raise ProofFailed("the bound of all inputs and outputs is smaller than what its hints prove")
        self._note(dict.fromkeys(self.open, bound))
        for one in self.wholes:
            axes = [one.S[i, i].sqrt().upper() for i in range(self.model[-1].size)]
            self._note({(i, k): norm([axes[j] for j in claim.outputs[i]]) for i, k in self.open})
        for pair in pairs:
            self._pair(pair)
        if not self.open:
            return
        products = Products(self.model)
        sizes = products.sizes(slope_ranges(self.model, common(self.wholes)))
        self._note({place: self._block(sizes, place) for place in self.open})
        for one in self.wholes:
            self._entries(one)
        if self.open and cut is not None:
            self._pieces(products, sizes, cut)
        if self.open:
            i, k = self.open[0]
            raise ProofFailed(
                f"the sensitivity of outputs {claim.outputs[i]} to inputs {claim.inputs[k]} is smaller than what its"
                " hints prove"
            )

    def _note(self, found: dict[tuple[int, int], arb]) -> None:
        """Close what is proved."""
        self.open = [(i, k) for i, k in self.open if not ((i, k) in found and found[i, k] <= self.claimed[i][k])]

    def _block(self, sizes: Matrix, place: tuple[int, int]) -> arb:
        """At least the norm of a block, by the sizes of its entries."""
        rows, columns = self.claim.outputs[place[0]], self.claim.inputs[place[1]]
        return norm([sizes[i][k] for i in rows for k in columns])

    def _pair(self, pair: Pair) -> None:
        """Bound one pair by hints of its own, if it is open."""
        places = [
            (i, k) for i, k in self.open if (self.claim.outputs[i], self.claim.inputs[k]) == (pair.outputs, pair.inputs)
        ]
        if not places:
            return
        if not 0 <= pair.base < len(self.wholes) or any(hints.enclosures for hints in pair.sweeps):
            raise ProofFailed("the hints of a pair rest on a proof that is not there, or enclose neurons themselves")
        part = part_of(self.model, 0, len(self.model), pair.inputs, pair.outputs)
        known = self.wholes[pair.base].known
        for hints in pair.sweeps:
            bound = Swept(part, None, hints, known).bound
            self._note(dict.fromkeys(places, bound))

    def _entries(self, one: Whole) -> None:
        """The blocks that are open, by an ellipsoid around the Jacobian."""
        if not self.open:
            return
        needed = sorted({k for _, k in self.open})
        groups = [self.claim.inputs[k] for k in needed]
        hints = [one.last.multipliers(index) for index in range(len(self.model) - 1)]
        try:
            found = Entries(self.model, slope_ranges(self.model, one.known), hints, groups)
        except ProofFailed:  # then another way counts, or none
            return
        self._note({(i, k): found.block(self.claim.outputs[i], needed.index(k)) for i, k in self.open})

    def _pieces(self, products: Products, whole: Matrix, cut: Cut) -> None:
        """What is open, on every leaf of the tree."""
        if self.inputs is None or not 0 <= cut.base < len(self.wholes):
            raise ProofFailed("the pieces rest on a proof that is not there, or are those of an unbounded region")

        def holds(_: Trace, slopes: list[Slopes]) -> bool:
            mine = products.sizes(slopes)
            sizes = [[least([x, y]) for x, y in zip(*rows, strict=True)] for rows in zip(mine, whole, strict=True)]
            return all(self._block(sizes, (i, k)) <= self.claimed[i][k] for i, k in self.open)

        known = self.wholes[cut.base].known
        prove_leaves(self.model, self.inputs, known, cut, holds, "the sensitivities claim a bound")
        self.open = []
