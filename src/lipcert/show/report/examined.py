"""Saved answers, checked against the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from lipcert.errors import ProofFailed
from lipcert.kernel.certificate import Certificate
from lipcert.kernel.classes import CertifiedRadius
from lipcert.kernel.counterexample import subject_of
from lipcert.methods.lower import LowerBound, lower_bound, lower_bound_of
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Region
from lipcert.questions.answers import Answer, load_answer
from lipcert.questions.sweep import SweepRow
from lipcert.questions.verify import verify
from lipcert.runtime.clock import Progress, silent
from lipcert.show.report.page import Verdict
from lipcert.show.wording import describe_network

Claim = TypeVar("Claim", bound=Answer)
_SECONDS = 5.0
"""Time limit for the lower bounds of one file."""


@dataclass(frozen=True, eq=False)
class Examined(Generic[Claim]):
    """A file with an answer, and the result of its check.

    Attributes
    ----------
    path, claim : the file and its answer.
    model, network : name and network of its model; None if that model was not given.
    refuted : why the claim could not be proved; empty if it was proved or not checked.
    lowers : lower bounds for a certificate or for each row of a sweep; empty if there was no search.
    """

    path: Path
    claim: Claim
    model: str | None = None
    network: Network | None = None
    refuted: str = ""
    lowers: tuple[LowerBound | None, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the claim was proved again."""
        return self.network is not None and not self.refuted

    @property
    def lower(self) -> LowerBound | None:
        """The lower bound for a certificate; None if there is none."""
        return self.lowers[0] if self.lowers else None

    @property
    def described(self) -> str:
        """The model in a few words."""
        return "not given" if self.network is None else f"{self.model}: {describe_network(self.network)}"


def examine(paths: Sequence[Path], models: Mapping[str, Network], report: Progress = silent) -> list[Examined[Any]]:
    """Read files with answers. Those about one of the named models are proved again, and bounds get a lower bound."""
    claims = [(path, load_answer(path)) for path in paths]
    found: list[Examined[Any]] = []
    for number, (path, claim) in enumerate(claims, 1):
        report(f"certificate {number} of {len(claims)}: {path.name}")
        about = next(((name, network) for name, network in models.items() if _is_about(claim, network)), None)
        found.append(Examined(path, claim) if about is None else _checked(path, claim, *about))
    return found


def _is_about(claim: Answer, network: Network) -> bool:
    if isinstance(claim, CertifiedRadius):
        return claim.proof is not None and claim.subject == subject_of(network, claim.proof.ball)
    return (claim[0].certificate if isinstance(claim, tuple) else claim).network == network.digest


def _checked(path: Path, claim: Any, name: str, network: Network) -> Examined[Any]:
    try:
        verify(network, claim)
    except ProofFailed as error:
        return Examined(path, claim, name, network, str(error))
    lowers: list[LowerBound | None] = []
    if isinstance(claim, Certificate):
        lowers = [lower_bound_of(network, claim, _SECONDS)]
    elif isinstance(claim, tuple):
        regions, seconds = map(region_of, claim), _SECONDS / len(claim)
        lowers = [_lower(network, row, region, seconds) for row, region in zip(claim, regions, strict=True)]
    return Examined(path, claim, name, network, lowers=tuple(lowers))


def _lower(network: Network, row: SweepRow, region: Region, seconds: float) -> LowerBound | None:
    norms = row.certificate.part.norms
    if not region.bounded or norms.shaped:
        return None
    return lower_bound(network, region, input_norm=norms.input, output_norm=norms.output, seconds=seconds)


def region_of(row: SweepRow) -> Region:
    """The region where the bound of a row is proved: the row's ball, if it is inside that of the certificate.

    The radius in the file is not proved. If it is too large, the ball of the certificate counts.
    """
    region = row.certificate.region
    if isinstance(region, Ball) and 0.0 <= row.radius < float(region.radius):
        return Ball(region.center, row.radius, region.clip, region.norm)
    return region


def in_words(found: Sequence[Examined[Claim]], models: bool) -> str:
    """How many claims hold, in a sentence."""
    count, proved, refuted = len(found), sum(item.proved for item in found), sum(bool(item.refuted) for item in found)
    if not models:
        return "Not checked: no model was given."
    text = f"Proved again for this report: {proved} of {count}."
    if refuted:
        text += f" Not provable: {refuted}. Do not rely on those."
    if count - proved - refuted:
        text += f" About other models, not checked: {count - proved - refuted}."
    return text


def verdict(item: Examined[Claim], models: bool) -> Verdict:
    """Whether a claim holds."""
    if item.refuted:
        return Verdict("bad", f"Not proved: {item.refuted}")
    if item.proved:
        return Verdict("good", "Proved again for this report, with every rounding error accounted for")
    if models:
        return Verdict("open", "Not checked: none of the models given has this digest")
    return Verdict("open", "Not checked: no model was given; lipcert report CERT --model MODEL checks it")


def standing(item: Examined[Claim]) -> str:
    """Whether a claim holds, in a word for tables."""
    return "yes" if item.proved else "no" if item.refuted else "not checked"
