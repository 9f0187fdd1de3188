"""The part of a report about certificate files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lipcert.errors import ProofFailed
from lipcert.model.network import Network
from lipcert.proof.certificate import Certificate
from lipcert.questions.verify import verify
from lipcert.runtime.progress import Report, silent
from lipcert.search.lower import LowerBound, lower_bound_of
from lipcert.show import plots
from lipcert.show.report.page import Block, Card, Cell, Figure, Section, Table, Verdict
from lipcert.show.wording import brief_region, describe_network, describe_region, downward, restrictions, upward, whom


@dataclass(frozen=True, eq=False)
class Examined:
    """A certificate file, and what was found out about it with the model at hand.

    Attributes
    ----------
    path, claim : the file and what it says.
    model, network : name and network of the model with that digest; None where none was given.
    refuted : why the claim could not be proved again; empty where it could, or was not tried.
    lower : a lower bound of the same constant; None where there is none.
    """

    path: Path
    claim: Certificate
    model: str | None = None
    network: Network | None = None
    refuted: str = ""
    lower: LowerBound | None = None

    @property
    def proved(self) -> bool:
        """Whether the claim was proved again just now."""
        return self.network is not None and not self.refuted

    @property
    def ratio(self) -> float | None:
        """Upper bound over lower bound."""
        return self.claim.bound / self.lower.value if self.lower is not None and self.lower.value > 0.0 else None


def examine(paths: Sequence[Path], models: Mapping[str, Network], report: Report = silent) -> list[Examined]:
    """Read certificate files; those about one of the models (by name) are proved again, and get a lower bound."""
    claims = [(path, Certificate.load(path)) for path in paths]
    named = {network.digest: (name, network) for name, network in models.items()}
    found = []
    for number, (path, claim) in enumerate(claims, 1):
        report(f"certificate {number} of {len(claims)}: {path.name}")
        name, network = named.get(claim.network, (None, None))
        found.append(Examined(path, claim) if name is None or network is None else _tried(path, claim, name, network))
    return found


def _tried(path: Path, claim: Certificate, name: str, network: Network) -> Examined:
    try:
        verify(network, claim)
    except ProofFailed as error:
        return Examined(path, claim, name, network, str(error))
    return Examined(path, claim, name, network, lower=lower_bound_of(network, claim))


def certificate_section(found: Sequence[Examined], models: Mapping[str, Network]) -> Section:
    """A table, a figure where there are several, and a card for each."""
    blocks: list[Block] = []
    if len(found) > 1:
        names = [item.path.name for item in found]
        lowers = [None if item.lower is None else item.lower.value for item in found]
        ax = plots.intervals(names, lowers, [item.claim.bound for item in found])
        caption = "Certified bounds (right end) and lower bounds (left end); the true constant lies in between."
        if not any(lowers):
            caption = "Certified bounds; the true constant is at most that."
        blocks += [_table(found), Figure.of(ax, caption)]
    blocks += [_card(item, bool(models)) for item in found]
    return Section("Certificates", _summary(found, bool(models)), blocks)


def _summary(found: Sequence[Examined], models: bool) -> str:
    count = len(found)
    proved, refuted = sum(item.proved for item in found), sum(bool(item.refuted) for item in found)
    what = "1 certificate" if count == 1 else f"{count} certificates"
    networks = len({item.claim.network for item in found})
    text = f"{what} of {'1 network' if networks == 1 else f'{networks} networks'}."
    if not models:
        return f"{text} Claims as the files make them: no model was given to check them against."
    text += f" Proved again for this report: {proved} of {count}."
    if refuted:
        text += f" Not provable: {refuted}. Do not rely on those."
    if count - proved - refuted:
        text += f" About other models than those given, and so not checked: {count - proved - refuted}."
    ratios = [item.ratio for item in found if item.ratio is not None]
    if ratios:
        most = upward(max(ratios), 3)
        text += f" Where there is a lower bound too, the bound is at most {most} times the true constant."
    return text


def _table(found: Sequence[Examined]) -> Table:
    headings = ("file", "bound", "lower bound", "ratio", "region", "method", "network", "seconds", "proved")
    rows = [
        (
            Cell(item.path.name),
            Cell.bound(item.claim.bound, 6),
            Cell.below(None if item.lower is None else item.lower.value, 6),
            Cell.bound(item.ratio),
            Cell(brief_region(item.claim.region)),
            Cell(str(item.claim.method).split("(")[0]),
            Cell(f"{item.claim.network[:12]}…", kind="digest"),
            Cell.number(item.claim.seconds, 3),
            Cell("yes" if item.proved else "no" if item.refuted else "not checked"),
        )
        for item in found
    ]
    return Table("All certificates", headings, rows)


def _card(item: Examined, models: bool) -> Card:
    claim = item.claim
    depth = None if item.network is None else item.network.depth
    left_out = "".join(f", {which}" for which in restrictions(claim.part, depth))
    formula = f"‖f(x) − f(y)‖₂ ≤ {upward(claim.bound)} · ‖x − y‖₂"
    described = f"{item.model}: {describe_network(item.network)}" if item.network is not None else "not at hand"
    facts = [
        ("How tight", _tightness(item)),
        ("Region", describe_region(claim.region)),
        ("Part", _part(item)),
        ("Method", f"{claim.method}, as the file says"),
        ("Time", f"{claim.seconds:.3g} s to find and prove, as the file says"),
        ("Proof", _proof(claim)),
        ("Network", described),
        ("SHA-256", claim.network),
    ]
    return Card(item.path.name, _verdict(item, models), f"For {whom(claim)}{left_out}:", formula, facts)


def _verdict(item: Examined, models: bool) -> Verdict:
    if item.refuted:
        return Verdict("bad", f"Not proved: {item.refuted}")
    if item.proved:
        return Verdict("good", "Proved again for this report, with every rounding error accounted for")
    if models:
        return Verdict("open", "Not checked: none of the models given has this digest")
    return Verdict("open", "Not checked: no model was given; lipcert report CERT --model MODEL checks it")


def _tightness(item: Examined) -> str:
    upper = upward(item.claim.bound)
    if item.refuted:
        return "unknown, since the claim is not proved"
    if item.network is None:
        return f"only the upper side, {upper}, is in the file; with the model at hand a lower bound can be found"
    if item.lower is None:
        return f"at most {upper}; no lower bound is offered for this region or part"
    text = f"{downward(item.lower.value)} ≤ true constant ≤ {upper}"
    return text if item.ratio is None else f"{text}, a factor of {upward(item.ratio, 4)} apart"


def _part(item: Examined) -> str:
    start, stop = item.claim.part.layers
    whole = item.network is not None and (start, stop) == (0, item.network.depth)
    begin = "the input" if start == 0 else f"what layer {start} puts out"
    text = "the whole network" if whole else f"from {begin} to what layer {stop} computes before its activation"
    for name, chosen in (("inputs", item.claim.part.inputs), ("outputs", item.claim.part.outputs)):
        if chosen is not None:
            text += f", {name} {', '.join(map(str, chosen))}"
    return text


def _proof(claim: Certificate) -> str:
    sweeps = len(claim.sweeps) + len(claim.part_sweeps)
    text = f"hints of {sweeps} sweep{'' if sweeps == 1 else 's'} through the layers"
    if claim.tree is not None:
        text += f", and a cut of the region into {claim.tree.leaves} pieces"
    return text
