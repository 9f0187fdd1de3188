"""How strongly outputs depend on inputs: a matrix of bounds for pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lipcert.answers.proofs import Pieces, Proof, all_hints, derived
from lipcert.answers.saved import ROOM, Saved
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import norm_above
from lipcert.kernel.facts import Fact, PairsFact
from lipcert.kernel.outputs import Group, OutputBounds, derivatives, derivatives_by_pieces, pair_bound
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region


@dataclass(frozen=True, eq=False)
class Sensitivity(Saved):
    """Certified bounds for pairs of an output, or group of outputs, and an input, or group of inputs.

    Attributes
    ----------
    matrix : matrix[i, k] bounds ‖change of output group i‖ / ‖change of input group k‖, the other inputs held equal,
        for any two such inputs of the region; (output groups, input groups).
    outputs, inputs : the groups, as tuples of coordinates.
    bound : of the whole network, all inputs and all outputs together.
    network : digest of the network.
    region : the inputs it holds for.
    seconds : wall-clock time.
    names : what inputs and outputs are called, where they have names; nothing is proved of them.
    proofs : what all of this can be derived from again, by :func:`recheck_sensitivity`.
    """

    matrix: Array
    outputs: tuple[Group, ...]
    inputs: tuple[Group, ...]
    bound: float
    network: str
    region: Region
    seconds: float
    proofs: tuple[Proof, ...] = ()
    facts: tuple[Fact, ...] = ()
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    kind = "sensitivity"

    @property
    def flaw(self) -> str:
        if not self.proofs:
            return "an answer in a file must have what proves it; ask for it again"
        fits = self.matrix.size > 0 and self.matrix.shape == (len(self.outputs), len(self.inputs))
        fits = fits and all((*self.outputs, *self.inputs))
        return "" if fits else "the arrays of an answer are for different numbers of inputs or outputs"

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        return f"Sensitivity({rows} × {columns}, largest={self.matrix.max():.6g}, bound={self.bound:.6g})"


def pair_facts(
    proofs: Sequence[OutputBounds],
    out: tuple[Group, ...],
    into: tuple[Group, ...],
    pairs: Sequence[Proof] = (),
    pieces: Pieces | None = None,
    all_pairs: bool = True,
) -> list[PairsFact]:
    """What all that is proved says of groups; ``pairs`` are hints for single ones. ``all_pairs`` takes longest."""
    facts = [derivatives(one) for one in proofs if not one.network.coupled]  # slopes alone say little of products
    if pieces is not None:
        facts.append(derivatives_by_pieces(proofs[pieces[0]], pieces[1]))
    for one in proofs if all_pairs else ():
        with suppress(ProofFailed, np.linalg.LinAlgError):  # then the others count
            facts.append(derivatives(one, by_ellipsoids=True))
    for pair in pairs:
        part = pair.part
        if part is None or part.outputs not in out or part.inputs not in into:
            raise ProofFailed("the hints of a pair are about groups that are not asked for")
        facts.append(pair_bound(proofs[pair.base], part.outputs, part.inputs, pair.sweeps))
    return facts


def sensitivities(
    proofs: Sequence[OutputBounds],
    out: tuple[Group, ...],
    into: tuple[Group, ...],
    facts: Sequence[PairsFact],
    pairs: Sequence[Proof] = (),
    pieces: Pieces | None = None,
    room: float = ROOM,
) -> Sensitivity:
    """The least of all bounds for groups of outputs and groups of inputs; ``pairs`` and ``pieces`` are hints."""
    network, bound = proofs[0].network, room * min(one.bound for one in proofs)
    matrix = np.min([_rows(one, out) for one in proofs], axis=0)[:, None] + np.zeros(len(into))
    for fact in facts:
        matrix = np.fmin(matrix, _limits(fact, out, into))
    matrix = np.fmin(room * matrix, bound)
    if not np.isfinite(matrix).all():
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    about = bound, network.digest, proofs[0].region, 0.0, all_hints(proofs, pairs, "entries", pieces)
    return Sensitivity(matrix, out, into, *about, (*(one.fact for one in proofs), *facts))


def recheck_sensitivity(network: Network, claim: Sensitivity) -> Sensitivity:
    """What the proofs of sensitivities prove now; ProofFailed if that is less than they say. Nothing is believed."""
    if claim.network != network.digest:
        raise ProofFailed("the sensitivities are about another network")
    for groups, size in ((claim.outputs, network.outputs), (claim.inputs, network.inputs)):
        if not all(group and set(group) <= set(range(size)) and len(set(group)) == len(group) for group in groups):
            raise ProofFailed("the sensitivities name groups that the network does not have, or an index twice")
    proofs, pairs, pieces = derived(network, claim.region, claim.proofs, "entries", "pair")
    facts = pair_facts(proofs, claim.outputs, claim.inputs, pairs, pieces)
    found = sensitivities(proofs, claim.outputs, claim.inputs, facts, room=1.0)
    same = np.shape(claim.matrix) == found.matrix.shape
    if not (same and (found.matrix <= claim.matrix).all() and found.bound <= claim.bound):
        raise ProofFailed("the sensitivities claim more than their proofs show")
    return found


def _limits(fact: PairsFact, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """What a fact says of each pair of groups: of these very groups, of one pair, or of entries, block by block."""
    if (fact.outputs, fact.inputs) == (out, into):
        return fact.limits
    if fact.limits.size == 1:
        there = np.ix_([group == fact.outputs[0] for group in out], [group == fact.inputs[0] for group in into])
        found = np.full((len(out), len(into)), np.inf)
        found[there] = fact.limits[0, 0]
        return found
    if all(len(group) == 1 for group in (*out, *into)):
        return fact.limits[np.ix_([group[0] for group in out], [group[0] for group in into])]
    blocks = [[norm_above(fact.limits[np.ix_(rows, columns)].ravel()) for columns in into] for rows in out]
    return np.array(blocks)


def _rows(outputs: OutputBounds, out: tuple[Group, ...]) -> Array:
    """Bounds of each group of outputs for all inputs together, which bound any of them."""
    single = outputs.lipschitz(np.eye(outputs.network.outputs))
    return np.array([min(outputs.bound, float(norm_above(single[list(group)]))) for group in out])
