"""An answer again: by the trusted package, or by ball arithmetic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof import checker
from lipcert.proof.certificate import Certificate
from lipcert.proof.classes import CertifiedRadius, recheck_radius
from lipcert.proof.hints import Part
from lipcert.proof.outputs import projected
from lipcert.proof.piece_bounds import RowLines
from lipcert.proof.reach import Reach, recheck_reach
from lipcert.proof.saved import Saved
from lipcert.proof.sensitivity import Sensitivity, recheck_sensitivity
from lipcert.proof.symbols import by_channel
from lipcert.proof.together import Proof, derived
from lipcert.questions.answers import are_rows, load_answer
from lipcert.questions.sweep import SweepRow
from lipcert.runtime.clock import clock, timed
from lipcert.runtime.threads import suited_to

if TYPE_CHECKING:
    from lipcert.exact import Cut, Evidence


@overload
def verify(network: Network, answer: str | os.PathLike[str], exact: bool = False) -> Any: ...
@overload
def verify(network: Network, answer: Certificate | CertifiedRadius, exact: bool = False) -> float: ...
@overload
def verify(network: Network, answer: Reach, exact: bool = False) -> Reach: ...
@overload
def verify(network: Network, answer: Sensitivity, exact: bool = False) -> Sensitivity: ...
@overload
def verify(network: Network, answer: Sequence[SweepRow], exact: bool = False) -> tuple[float, ...]: ...
def verify(network: Network, answer: Any, exact: bool = False) -> Any:
    """Derive an answer again from its hints.

    Parameters
    ----------
    network
        The network that the answer is about.
    answer
        A certificate, reach set, sensitivity, certified radius, or the rows of a sweep, as a question returned it or
        :func:`load_answer` read it from a file; or the path of such a file. Nothing in it is believed.
    exact
        Ask for a second opinion: the proof is made in ball arithmetic, by other code, which takes longer. It needs
        python-flint, ``pip install "lipcert[exact]"``. Of what is no bound, both arithmetics must prove it.

    Returns
    -------
    float, Reach, Sensitivity or tuple of float
        What is proved now, in real arithmetic, for the function given by the network's float64 weights. For a
        certificate the bound: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of its region; for a sweep those of its
        certificates, each over the region of its own; for a reach set or sensitivities, sets and bounds that are at
        least as tight as the claim; for a certified radius the radius.

    Raises
    ------
    ProofFailed
        If the network is another one, or the hints do not prove what the answer claims.
    """
    if isinstance(answer, (str, os.PathLike)):
        answer = load_answer(answer)
    rows = are_rows(answer)
    if not isinstance(network, Network) or not (rows or isinstance(answer, Saved)):
        raise InvalidInput(
            f"verify takes a Network and an answer, got {type(network).__name__} and {type(answer).__name__};"
            " read them with load and load_answer"
        )
    if isinstance(answer, CertifiedRadius):
        network = network.classifier
    if rows:
        return tuple(_row(network, row, exact) for row in answer)
    if exact:
        if isinstance(answer, Certificate) and any(by_channel(network, sweep) for sweep in answer.sweeps):
            raise InvalidInput(
                "a second opinion is not there yet for bounds of convolutions with one multiplier per channel"
            )
        with timed():
            return _exact(network, answer)
    with suited_to(max(network.sizes)):
        if isinstance(answer, Reach):
            return recheck_reach(network, answer)
        if isinstance(answer, Sensitivity):
            return recheck_sensitivity(network, answer)
        if isinstance(answer, CertifiedRadius):
            recheck_radius(network, answer)
            return answer.radius
        return checker.verify(network, answer)


def _exact(network: Network, answer: Any) -> Any:
    """A single answer in ball arithmetic."""
    if isinstance(answer, Reach):
        return _exact_reach(network, answer)
    if isinstance(answer, Sensitivity):
        return _exact_sensitivity(network, answer)
    if isinstance(answer, CertifiedRadius):
        return _exact_radius(network, answer)
    from lipcert.exact import verify as second_opinion

    return second_opinion(network, answer)


def _exact_radius(network: Network, claim: CertifiedRadius) -> float:
    """The radius, if both arithmetics prove it; a radius of 0 says nothing."""
    from lipcert.exact import ClaimedRadius, Evidence, verify_radius

    with suited_to(max(network.sizes)):
        recheck_radius(network, claim)
    proof = claim.proof
    if claim.radius == 0.0:
        return 0.0
    if proof is None:
        raise ProofFailed("the radius keeps no proof")
    told = Evidence(proof.sweeps, proof.tree, _first_weight(network, proof.ball))
    ends = claim.radius, claim.bound, claim.margin, claim.label, claim.rival, proof.pairwise
    verify_radius(network, proof.ball, ClaimedRadius(*ends), told, proof.pairs, proof.margins, proof.parabolas)
    return claim.radius


def _exact_reach(network: Network, claim: Reach) -> Reach:
    """The claim, if both arithmetics prove it: the first also tells which lines to draw for the second."""
    from lipcert.exact import Claimed, verify_outputs

    with suited_to(max(network.sizes)):
        recheck_reach(network, claim)
        part = network if claim.layer == network.depth else network.slice(0, claim.layer)
        together, pieces = derived(part, claim.region, claim.proofs)
        if any(one.kind == "values" for one in pieces):
            raise ProofFailed("value functions of outputs are not repeated in ball arithmetic; verify without exact")
        lines = [together.lines(count) for count in range(1, len(together.proofs) + 1)]
    first = _first_weight(part, claim.region)
    sets = Claimed(claim.layer, claim.lower, claim.upper, claim.center, claim.shape, claim.bound, claim.hull)
    cut = _cut(part, pieces[0], first) if pieces else None
    verify_outputs(network, claim.region, sets, _evidence(claim.proofs, first), lines, cut)
    return claim


def _exact_sensitivity(network: Network, claim: Sensitivity) -> Sensitivity:
    """The claim, if both arithmetics prove it."""
    from lipcert.exact import ClaimedPairs, Pair, verify_sensitivity

    with suited_to(max(network.sizes)):
        recheck_sensitivity(network, claim)
    pairs = [
        Pair(one.part.outputs or (), one.part.inputs or (), one.base, one.sweeps) for one in claim.proofs if one.part
    ]
    cuts = [_cut(network, one, None) for one in claim.proofs if one.kind == "entries"]
    told = _evidence(claim.proofs, _first_weight(network, claim.region))
    matrix = ClaimedPairs(claim.matrix, claim.outputs, claim.inputs, claim.bound)
    verify_sensitivity(network, claim.region, matrix, told, pairs, cuts[0] if cuts else None)
    return claim


def _evidence(proofs: Sequence[Proof], first: Array | None) -> list[Evidence]:
    """The proofs about the whole region."""
    from lipcert.exact import Evidence

    return [Evidence(one.sweeps, one.tree, first) for one in proofs if one.kind == "whole"]


def _cut(network: Network, proof: Proof, first: Array | None) -> Cut:
    """The pieces of a proof, with what tells ball arithmetic about lines and fewer inputs."""
    from lipcert.exact import Cut

    return Cut(proof.tree, proof.base, partial(_lines, network), first, clock().say)


def _first_weight(network: Network, region: Region) -> Array | None:
    """What takes the place of the first weight where a proof is made on fewer inputs."""
    target, _ = projected(network, region)
    return None if target is network else dense(target.layers[0].weight)


def _lines(network: Network, index: int, lower: Array, upper: Array) -> tuple[Array, Array]:
    neurons = network.layers[index].neurons
    assert neurons is not None
    with np.errstate(all="ignore"):
        return RowLines().lines(0, index, neurons, np.arange(len(lower)), (lower, upper))


def _row(network: Network, row: SweepRow, exact: bool) -> float:
    if not row.bound >= row.certificate.bound:
        raise ProofFailed(f"the row of radius {row.radius:g} claims less than its certificate")
    if row.certificate.part != Part((0, network.depth)):
        raise ProofFailed(
            f"the row of radius {row.radius:g} is about a part of the network; sweeps are about all of it"
        )
    return verify(network, row.certificate, exact)
