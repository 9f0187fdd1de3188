"""An answer again: by the trusted package, or by ball arithmetic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel import checker
from lipcert.kernel.certificate import Certificate
from lipcert.kernel.classes import CertifiedRadius, recheck_radius
from lipcert.kernel.fourier import by_channel
from lipcert.kernel.hints import Part
from lipcert.kernel.reach import Reach, recheck_reach
from lipcert.kernel.saved import Saved
from lipcert.kernel.sensitivity import Sensitivity, recheck_sensitivity
from lipcert.model.network import Network
from lipcert.questions.answers import are_rows, load_answer
from lipcert.questions.sweep import SweepRow
from lipcert.runtime.clock import clock, timed
from lipcert.runtime.threads import suited_to


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
            return _audited(network, answer)
    with suited_to(max(network.sizes)):
        if isinstance(answer, Reach):
            return recheck_reach(network, answer)
        if isinstance(answer, Sensitivity):
            return recheck_sensitivity(network, answer)
        if isinstance(answer, CertifiedRadius):
            recheck_radius(network, answer)
            return answer.radius
        return checker.verify(network, answer)


def _audited(network: Network, answer: Any) -> Any:
    """A single answer in ball arithmetic; what is no bound must be proved by both arithmetics."""
    import lipcert.audit as audit

    if isinstance(answer, Certificate):
        return audit.verify(network, answer)
    with suited_to(max(network.sizes)):
        if isinstance(answer, CertifiedRadius):
            recheck_radius(network, answer)
            if answer.radius != 0.0:  # which says nothing
                audit.verify_radius(network, answer)
            return answer.radius
        if isinstance(answer, Reach):
            recheck_reach(network, answer)
            audit.verify_reach(network, answer, clock().say)
        else:
            recheck_sensitivity(network, answer)
            audit.verify_sensitivity(network, answer, clock().say)
    return answer


def _row(network: Network, row: SweepRow, exact: bool) -> float:
    if not row.bound >= row.certificate.bound:
        raise ProofFailed(f"the row of radius {row.radius:g} claims less than its certificate")
    if row.certificate.part != Part((0, network.depth)):
        raise ProofFailed(
            f"the row of radius {row.radius:g} is about a part of the network; sweeps are about all of it"
        )
    return verify(network, row.certificate, exact)
