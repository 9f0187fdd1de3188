"""The hints of answers that are more than one bound, and the facts that they prove again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lipcert.errors import ProofFailed
from lipcert.kernel.branch_and_bound import Cover
from lipcert.kernel.facts import Part
from lipcert.kernel.outputs import OutputBounds, outputs_hinted
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.hints import Hints, Tree

Pieces: TypeAlias = tuple[int, Cover | Tree]
"""The pieces of a region, and the number of the proof whose intervals they start from: a cover that was just made, or
its cuts, to be proved again."""


@dataclass(frozen=True, eq=False)
class Proof:
    """What a part of an answer can be derived from again; nothing in it is believed.

    Attributes
    ----------
    kind : "whole", about all inputs and outputs; "outputs", about outputs over pieces; "entries", about entries of the
        Jacobian over pieces; "pair", about some inputs and outputs. Those about the whole come first.
    sweeps : hints, each sweep starting from the intervals of the ones before; none where a tree says it all.
    tree : the pieces that the region was cut into, if it was; of the whole, for its Lipschitz bound.
    part : the group of inputs and the group of outputs of a pair.
    base : which of the answer's proofs, one about the whole, the others take their intervals from.
    """

    kind: str
    sweeps: tuple[Hints, ...] = ()
    tree: Tree | None = None
    part: Part | None = None
    base: int = 0


def all_hints(
    proofs: Sequence[OutputBounds], others: Sequence[Proof], kind: str, pieces: Pieces | None
) -> tuple[Proof, ...]:
    """The hints of everything, as an answer keeps them; the pieces are of a kind."""
    whole = [Proof("whole", one.sweeps, one.tree) for one in proofs]
    if pieces is None:
        return (*whole, *others)
    base, cuts = pieces
    return (*whole, Proof(kind, tree=cuts.tree() if isinstance(cuts, Cover) else cuts, base=base), *others)


def derived(
    network: Network, region: Region, proofs: Sequence[Proof], by_pieces: str, kind: str = ""
) -> tuple[list[OutputBounds], list[Proof], Pieces | None]:
    """What the proofs about the whole region prove again; the proofs of a kind, and the pieces, that rest on them."""
    count = next((number for number, one in enumerate(proofs) if one.kind != "whole"), len(proofs))
    others = list(proofs[count:])
    pieces = [(one.base, one.tree) for one in others if one.kind == by_pieces and one.tree is not None]
    others = [one for one in others if one.kind == kind]
    if not count or len(pieces) > 1 or count + len(pieces) + len(others) < len(proofs):
        raise ProofFailed("there is no proof about the whole region, or one of an unknown kind")
    if not all(0 <= base < count for base in (*(one.base for one in others), *(base for base, _ in pieces))):
        raise ProofFailed("a proof rests on another that does not come before it")
    again = [outputs_hinted(network, region, one.sweeps, one.tree) for one in proofs[:count]]
    return again, others, pieces[0] if pieces else None
