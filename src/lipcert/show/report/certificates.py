"""The part of a report about bounds."""

from __future__ import annotations

from collections.abc import Sequence

from lipcert.proof.certificate import Certificate
from lipcert.show import plots
from lipcert.show.report.examined import Examined, in_words, standing, verdict
from lipcert.show.report.page import Block, Card, Cell, Figure, Section, Table
from lipcert.show.wording import brief_region, describe_region, downward, measured, restrictions, upward, whom


def certificate_section(found: Sequence[Examined[Certificate]], models: bool) -> Section:
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
    blocks += [_card(item, models) for item in found]
    return Section("Certificates", _summary(found, models), blocks)


def _summary(found: Sequence[Examined[Certificate]], models: bool) -> str:
    what = "1 certificate" if len(found) == 1 else f"{len(found)} certificates"
    networks = len({item.claim.network for item in found})
    text = f"{what} of {'1 network' if networks == 1 else f'{networks} networks'}. {in_words(found, models)}"
    ratios = [ratio for ratio in map(_ratio, found) if ratio is not None]
    if ratios:
        most = upward(max(ratios), 3)
        text += f" Where there is a lower bound too, the bound is at most {most} times the true constant."
    return text


def _ratio(item: Examined[Certificate]) -> float | None:
    """Upper bound over lower bound."""
    return item.claim.bound / item.lower.value if item.lower is not None and item.lower.value > 0.0 else None


def _table(found: Sequence[Examined[Certificate]]) -> Table:
    headings = ("file", "bound", "lower bound", "ratio", "region", "method", "network", "seconds", "proved")
    rows = [
        (
            Cell(item.path.name),
            Cell(f"{upward(item.claim.bound)}{_norms(item.claim)}", item.claim.bound),
            Cell.below(None if item.lower is None else item.lower.value, 6),
            Cell.bound(_ratio(item)),
            Cell(brief_region(item.claim.region)),
            Cell(str(item.claim.method).split("(")[0]),
            Cell(f"{item.claim.network[:12]}…", kind="digest"),
            Cell.number(item.claim.seconds, 3),
            Cell(standing(item)),
        )
        for item in found
    ]
    return Table("All certificates", headings, rows)


def _card(item: Examined[Certificate], models: bool) -> Card:
    claim = item.claim
    depth = None if item.network is None else item.network.depth
    left_out = "".join(f", {which}" for which in restrictions(claim.part, depth))
    stated = claim.part.norms.formula(upward(claim.bound))
    about = "" if item.model is None else f", where f is {item.model}"
    facts = [
        ("How tight", _tightness(item)),
        ("Region", describe_region(claim.region)),
        ("Part", _part(item)),
        ("Method", f"{claim.method}, as the file says"),
        ("Time", f"{claim.seconds:.3g} s to find and prove, as the file says"),
        ("Proof", _proof(claim)),
        ("Network", item.described),
        ("SHA-256", claim.network),
    ]
    return Card(item.path.name, verdict(item, models), f"For {whom(claim)}{left_out}{about}:", stated, facts)


def _norms(claim: Certificate) -> str:
    return "" if claim.part.norms.plain else f", {measured(claim.part.norms)}"


def _tightness(item: Examined[Certificate]) -> str:
    upper = upward(item.claim.bound)
    if item.refuted:
        return "unknown, since the claim is not proved"
    if item.network is None:
        return f"only the upper side, {upper}, is in the file; with the model at hand a lower bound can be found"
    if item.lower is None:
        return f"at most {upper}; no lower bound is offered for this region or part"
    text = f"{downward(item.lower.value)} ≤ true constant ≤ {upper}"
    ratio = _ratio(item)
    return text if ratio is None else f"{text}, a factor of {upward(ratio, 4)} apart"


def _part(item: Examined[Certificate]) -> str:
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
