"""Answers of any kind: to a file, from there, and proved again by the trusted package or by ball arithmetic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lipcert.answers.certificate import Certificate, recheck_certificate
from lipcert.answers.radius import CertifiedRadius, recheck_radius
from lipcert.answers.reach import Reach, recheck_reach
from lipcert.answers.saved import Saved, check
from lipcert.answers.sensitivity import Sensitivity, recheck_sensitivity
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.files import documents
from lipcert.files.codec import Kind
from lipcert.kernel.facts import CORE, OPTIONAL, Part
from lipcert.kernel.fourier import by_channel
from lipcert.model.network import Network
from lipcert.questions.classifiers import classifier
from lipcert.questions.loops.contraction import Contraction, recheck_contraction
from lipcert.questions.loops.discrepancy import Discrepancy, recheck_discrepancy
from lipcert.questions.loops.invariant import InvariantEllipsoid, recheck_invariant
from lipcert.questions.loops.tube import Tube, recheck_tube
from lipcert.questions.sweep import SweepRow
from lipcert.runtime.clock import clock, timed
from lipcert.runtime.machine import suited_to

Answer: TypeAlias = Saved | tuple[SweepRow, ...]
"""What can be saved and verified."""
_LOOPS: tuple[type[Saved], ...] = (Tube, Contraction, InvariantEllipsoid)
_SINGLE: tuple[type[Saved], ...] = (Certificate, Reach, Sensitivity, CertifiedRadius, *_LOOPS, Discrepancy)
_KINDS: dict[str, Kind] = {**{kind.kind: kind for kind in _SINGLE}, "sweep": [SweepRow]}
Rules: TypeAlias = str | Iterable[str] | None
Path: TypeAlias = str | os.PathLike[str]
_WIDE_KERNELS = 1000
"""Neurons in a layer of convolutions up to which ball arithmetic takes their matrices: 800 take 40 seconds."""


def save_answer(answer: Answer | Sequence[SweepRow], path: Path) -> None:
    """Write an answer of whatever kind to a file, with what proves it.

    All but the rows of a sweep have a method ``save`` that does the same.

    Parameters
    ----------
    answer
        What ``certify``, ``reach``, ``tube``, ``sweep`` or another question returned.
    path
        A JSON file; it appears whole or not at all.
    """
    if are_rows(answer):
        _check(answer)
        documents.write(path, "sweep", _KINDS["sweep"], answer)
    elif type(answer) in _SINGLE and isinstance(answer, Saved):
        answer.save(path)
    else:
        raise InvalidInput(f"answer must be what a question returned, got {type(answer).__name__}")


def load_answer(path: Path) -> Answer:
    """The answer that a file holds, of whatever kind; nothing in it is believed before :func:`verify`.

    Of a sweep only the certificates can be verified; lower and trivial bounds are what the file says.

    Parameters
    ----------
    path
        What :func:`save_answer`, a method ``save`` or ``--certificate`` of a command wrote.

    Raises
    ------
    UnreadableCertificate
        If the file is none of these, or damaged.
    """
    found: Answer = documents.read(path, _KINDS, _check)
    return found


def are_rows(answer: Any) -> bool:
    """Whether an answer is the rows of a sweep."""
    return isinstance(answer, Sequence) and len(answer) > 0 and all(isinstance(row, SweepRow) for row in answer)


def _check(answer: Any) -> None:
    if not isinstance(answer, Saved) and not are_rows(answer):
        raise InvalidInput("a sweep must have rows")
    for one in [answer] if isinstance(answer, Saved) else [row.certificate for row in answer]:
        check(one)


def verify(
    network: Network, answer: Any, exact: bool = False, rules: Rules = None, other: Network | None = None
) -> Any:
    """Derive an answer again from its hints.

    Parameters
    ----------
    network
        The network that the answer is about; the step of a tube, contraction or invariant ellipsoid.
    answer
        What a question returned, or :func:`load_answer` read from a file; or the path of such a file. Nothing in it is
        believed.
    exact
        Ask for a second opinion: the proof is made in ball arithmetic, by other code, which takes longer. It needs
        python-flint, ``pip install "lipcert[exact]"``. Of what is no bound, both arithmetics must prove it.
    rules
        The rules of the kernel that are accepted: ``"core"``, or names such as ``["step", "back-substitution"]``;
        :mod:`lipcert.kernel.facts` lists them. Default: all. The ones that are not core are "fourier", "taylor",
        "norms" and "discrepancy".
    other
        The second network of a difference.

    Returns
    -------
    float, tuple of float, or an answer of the same kind
        What is proved now, in real arithmetic, for the function given by the network's float64 weights. For a
        certificate the bound: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of its region; for a sweep those of its
        certificates, each over the region of its own; for a certified radius the radius; for others, sets and bounds
        that are at least as tight as the claim.

    Raises
    ------
    ProofFailed
        If the network is another one, or the hints do not prove what the answer claims.
    """
    return proved(network, answer, exact, rules, other)[0]


def proved(
    network: Network, answer: Any, exact: bool = False, rules: Rules = None, other: Network | None = None
) -> tuple[Any, tuple[str, ...]]:
    """What :func:`verify` returns, and the rules that it rests on; a second opinion has none of the kernel's."""
    if isinstance(answer, (str, os.PathLike)):
        answer = load_answer(answer)
    if not isinstance(network, Network) or not (are_rows(answer) or isinstance(answer, Saved)):
        raise InvalidInput(
            f"verify takes a Network and an answer, got {type(network).__name__} and {type(answer).__name__};"
            " read them with load and load_answer"
        )
    accepted = _accepted(rules)
    if are_rows(answer):
        rows = [proved(network, _of_row(network, row), exact, rules) for row in answer]
        return tuple(value for value, _ in rows), tuple(sorted({rule for _, names in rows for rule in names}))
    if exact:
        return _audited(network, answer, accepted, other), ()
    found = derived(network, answer, accepted, other)
    if isinstance(found, Certificate):
        return found.bound, found.rules
    return found.radius if isinstance(found, CertifiedRadius) else found, found.rules


def derived(
    network: Network, answer: Saved, rules: frozenset[str] | None = None, other: Network | None = None
) -> Saved:
    """An answer of the same kind with the facts that its hints prove now, or ProofFailed; its own claims at most."""
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        if isinstance(answer, CertifiedRadius):
            found: Saved = recheck_radius(classifier(network), answer)
        elif isinstance(answer, Reach):
            found = recheck_reach(network, answer)
        elif isinstance(answer, Sensitivity):
            found = recheck_sensitivity(network, answer)
        elif isinstance(answer, Tube):
            found = recheck_tube(network, answer)
        elif isinstance(answer, Contraction):
            found = recheck_contraction(network, answer)
        elif isinstance(answer, InvariantEllipsoid):
            found = recheck_invariant(network, answer)
        elif isinstance(answer, Discrepancy):
            found = recheck_discrepancy(network, answer, other)
        else:
            assert isinstance(answer, Certificate)
            found = recheck_certificate(network, answer)
    refused = [] if rules is None else [rule for rule in found.rules if rule not in rules]
    if refused:
        raise ProofFailed(f"the answer rests on rules that are not accepted here: {', '.join(refused)}")
    return found


def _accepted(rules: Rules) -> frozenset[str] | None:
    if rules is None:
        return None
    named = CORE if rules == "core" else frozenset([rules] if isinstance(rules, str) else rules)
    unknown = ", ".join(sorted(map(repr, named - CORE - OPTIONAL)))
    if unknown or not named:
        known = ", ".join(sorted(CORE | OPTIONAL))
        raise InvalidInput(f"rules must be 'core' or names among {known}; got {unknown or 'none'}")
    return named


def _audited(network: Network, answer: Any, rules: frozenset[str] | None, other: Network | None) -> Any:
    """A single answer in ball arithmetic; what is no bound must be proved by both arithmetics."""
    import lipcert.audit as audit

    wide = max(network.sizes) > _WIDE_KERNELS
    if wide and isinstance(answer, Certificate) and any(by_channel(network, sweep) for sweep in answer.sweeps):
        raise InvalidInput(
            "a second opinion is not there for bounds of convolutions with one multiplier per channel"
            f" and more than {_WIDE_KERNELS:,} neurons in a layer, got {max(network.sizes):,}"
        )
    with timed():
        if isinstance(answer, Certificate):
            if rules is not None:
                derived(network, answer, rules)
            return audit.verify(network, answer)
        derived(network, answer, rules, other)
        with suited_to(max(network.sizes)):
            if isinstance(answer, Reach):
                audit.verify_reach(network, answer, clock().say)
            elif isinstance(answer, Tube):
                for segment in answer.segments:
                    audit.verify_reach(segment.unrolled(network), segment.answer, clock().say)
            elif isinstance(answer, (Contraction, InvariantEllipsoid)):
                inside = answer if isinstance(answer, Contraction) else answer.contraction
                there = inside.moved(network)
                audit.verify(there, inside.certificate)
                if isinstance(answer, InvariantEllipsoid):
                    audit.verify_reach(there, answer.center, clock().say)
            elif isinstance(answer, Discrepancy):
                audit.verify_discrepancy(network, answer, other, clock().say)
            elif isinstance(answer, Sensitivity):
                audit.verify_sensitivity(network, answer, clock().say)
            elif answer.radius != 0.0:  # a radius of 0 says nothing
                audit.verify_radius(classifier(network), answer)
    return answer.radius if isinstance(answer, CertifiedRadius) else answer


def _of_row(network: Network, row: SweepRow) -> Certificate:
    """The certificate of a row of a sweep, which must be about the whole network and claim no more than the row."""
    if not row.bound >= row.certificate.bound:
        raise ProofFailed(f"the row of radius {row.radius:g} claims less than its certificate")
    if row.certificate.part != Part((0, network.depth)):
        raise ProofFailed(
            f"the row of radius {row.radius:g} is about a part of the network; sweeps are about all of it"
        )
    return row.certificate
