"""The sections of a report about answers: a card for each file, with tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lipcert.kernel.certificate import Certificate
from lipcert.kernel.classes import CertifiedRadius
from lipcert.kernel.reach import Reach
from lipcert.kernel.sensitivity import Sensitivity
from lipcert.model.norms import Norms
from lipcert.model.regions import Ball
from lipcert.questions.sweep import SweepRow
from lipcert.show import plots
from lipcert.show.report.examined import Examined, in_words, region_of, standing, verdict
from lipcert.show.report.page import Block, Card, Cell, Figure, Section, Table
from lipcert.show.wording import (
    brief_region,
    describe_region,
    downward,
    measured,
    restrictions,
    unit_notes,
    upward,
    whom,
)

LISTED = 300
"""Most rows of a table."""
_BASES = {
    "lipschitz": "a Lipschitz bound",
    "relaxation": "linear relaxation",
    "second order": "bounds to second order",
    "value functions": "value functions",
    "parabolas": "parabolas of chosen slopes",
}
Facts = list[tuple[str, str]]


def answer_sections(found: Sequence[Examined[Any]], models: bool) -> list[Section]:
    """A section for each kind of answer."""
    sections = []
    for kind in _KINDS:
        mine = [item for item in found if isinstance(item.claim, kind.answer)]
        if not mine:
            continue
        blocks: list[Block] = [kind.overview(mine)] if kind.overview is not None and len(mine) > 1 else []
        blocks += [block for item in mine for block in kind.blocks(item, models)]
        text = f"{len(mine)} {kind.one if len(mine) == 1 else kind.many}. {in_words(mine, models)}"
        ratios = [ratio for ratio in map(_ratio, mine) if ratio is not None] if kind.answer is Certificate else []
        if ratios:
            text += f" With a lower bound, the bound is at most {upward(max(ratios), 3)} times the true constant."
        sections.append(Section(kind.title, text, blocks))
    return sections


def _ratio(item: Examined[Certificate]) -> float | None:
    """Bound divided by lower bound."""
    return item.claim.bound / item.lower.value if item.lower is not None and item.lower.value > 0.0 else None


def _certificates(found: Sequence[Examined[Certificate]]) -> Table:
    rows = []
    for item in found:
        claim, norms = item.claim, item.claim.part.norms
        rows.append(
            (
                Cell(item.path.name),
                Cell(f"{upward(claim.bound)}{'' if norms.plain else f', {measured(norms)}'}", claim.bound),
                Cell.below(None if item.lower is None else item.lower.value, 6),
                Cell.bound(_ratio(item)),
                Cell(brief_region(claim.region)),
                Cell(str(claim.method).split("(")[0]),
                Cell(f"{claim.network[:12]}…", kind="digest"),
                Cell.number(claim.seconds, 3),
                Cell(standing(item)),
            )
        )
    headings = ("file", "bound", "lower bound", "ratio", "region", "method", "network", "seconds", "proved")
    return Table("All certificates", headings, rows)


def _certificate(item: Examined[Certificate], models: bool) -> list[Block]:
    claim, sweeps = item.claim, len(item.claim.sweeps) + len(item.claim.part_sweeps)
    depth = None if item.network is None else item.network.depth
    left_out = "".join(f", {which}" for which in restrictions(claim.part, depth))
    about = "" if item.model is None else f", where f is {item.model}"
    pieces = "" if claim.tree is None else f", and a cut of the region into {claim.tree.leaves} pieces"
    facts = [
        ("How tight", _tightness(item)),
        ("Method", f"{claim.method}, as the file says"),
        ("Time", f"{claim.seconds:.3g} s to find and prove, as the file says"),
        ("Proof", f"hints of {sweeps} sweep{'' if sweeps == 1 else 's'} through the layers{pieces}"),
        *_network(item, claim.network),
    ]
    where, formula = f"For {whom(claim)}{left_out}{about}:", claim.part.norms.formula(upward(claim.bound))
    return [Card(item.path.name, verdict(item, models), where, formula, facts)]


def _tightness(item: Examined[Certificate]) -> str:
    upper, ratio = upward(item.claim.bound), _ratio(item)
    if item.refuted:
        return "unknown, since the claim is not proved"
    if item.network is None:
        return f"at most {upper}; with the model, a lower bound can be found"
    if item.lower is None:
        return f"at most {upper}; no lower bound is offered for this region or part"
    apart = "" if ratio is None else f", a factor of {upward(ratio, 4)} apart"
    return f"{downward(item.lower.value)} ≤ true constant ≤ {upper}{apart}"


def _reach(item: Examined[Reach], models: bool) -> list[Block]:
    claim, count, pieces = item.claim, len(item.claim.lower), len(item.claim.hull[0])
    widths = np.nextafter(claim.upper - claim.lower, np.inf)
    # without the network its depth is unknown
    output = item.network is not None and claim.layer == item.network.depth
    what = "f(x)" if output else f"what layer {claim.layer} computes before its activation"
    facts = [
        ("Widest side", upward(float(widths.max()))),
        ("Lipschitz bound", f"{upward(claim.bound)}, of the same proof"),
        ("Pieces", f"{pieces}, each with a box of its own" if pieces > 1 else "the region was not cut"),
        *_derivations(item, claim),
    ]
    where = f"For every input x in the {describe_region(claim.region)}, {what} = y has"
    card = Card(item.path.name, verdict(item, models), where, "lower ≤ y ≤ upper", facts)
    rows = [
        (
            Cell(str(k), k),
            Cell.below(float(claim.lower[k]), 6),
            Cell.number(float(claim.center[k]), 6),
            Cell.bound(float(claim.upper[k]), 6),
            Cell.bound(float(widths[k])),
        )
        for k in range(min(count, LISTED))
    ]
    headings = ("output", "lower", "at the centre", "upper", "width")
    blocks: list[Block] = [card, Table(_listed(f"Outputs, {item.path.name}", count), headings, rows)]
    if item.proved and item.network is not None:
        drawn = np.argsort(claim.lower - claim.upper, kind="stable")[:2].tolist()  # the widest sides
        sets = "the interval" if count == 1 else "the box, and in the ellipsoid whose shadow is dashed"
        caption = f"{item.path.name}: the outputs lie in {sets}. Outputs of random inputs are grey."
        blocks.append(Figure.of(plots.reach_set(claim, item.network, (min(drawn), max(drawn))), caption))
    return blocks


def _sensitivity(item: Examined[Sensitivity], models: bool) -> list[Block]:
    claim = item.claim
    facts = [
        ("Largest", upward(float(claim.matrix.max()))),
        ("Lipschitz bound", f"{upward(claim.bound)}, of all inputs and outputs together"),
        *_derivations(item, claim),
    ]
    there = f" in the {describe_region(claim.region)}" if claim.region.bounded else ""
    where = f"For any two inputs{there} that differ in one coordinate k, or group of them, only:"
    formula = "‖change of output i‖ ≤ bound(i, k) · ‖change of input k‖"
    blocks: list[Block] = [Card(item.path.name, verdict(item, models), where, formula, facts)]
    if not item.refuted:
        caption = f"{item.path.name}: bounds for each output (down) and input (across)."
        blocks.append(Figure.of(plots.sensitivity_map(claim), caption))
    order = np.argsort(-claim.matrix, axis=None, kind="stable")[:LISTED]
    pairs = zip(*np.unravel_index(order, claim.matrix.shape), strict=True)
    rows = [
        (_group(claim.outputs[i]), _group(claim.inputs[k]), Cell.bound(float(claim.matrix[i, k]), 6)) for i, k in pairs
    ]
    caption = _listed(f"Pairs, largest bound first, {item.path.name}", claim.matrix.size)
    return [*blocks, Table(caption, ("output", "input", "bound"), rows, folded=True)]


def _group(which: tuple[int, ...]) -> Cell:
    return Cell(" + ".join(map(str, which)), which[0])


def _radii(found: Sequence[Examined[CertifiedRadius]]) -> Table:
    rows = [
        (
            Cell(item.path.name),
            Cell.below(item.claim.radius, 6),
            Cell(str(item.claim.label), item.claim.label),
            Cell(_BASES[item.claim.basis]),
            Cell.number(item.claim.ball, 6),
            Cell(standing(item)),
        )
        for item in found
    ]
    return Table("All certified radii", ("file", "radius", "class", "rests on", "ball", "proved"), rows)


def _radius(item: Examined[CertifiedRadius], models: bool) -> list[Block]:
    claim = item.claim
    assert claim.proof is not None  # a file has one
    bounded = f"f_{claim.label} − f_{claim.rival}" if claim.proof.pairwise else "the whole network"
    facts = [
        ("Radius", f"{downward(claim.radius)} of {claim.ball:g}, the radius of the ball of the proof"),
        ("Class", f"{claim.label}; the one that limits the radius is {claim.rival}, as the file says"),
        ("Rests on", f"{_BASES[claim.basis]}, as the file says"),
        ("Lipschitz bound", f"{upward(claim.bound)} of {bounded}" if np.isfinite(claim.bound) else "none"),
        *_network(item, f"{claim.subject}, of network, point, clip and norm"),
    ]
    where = f"For every input x of the {describe_region(claim.proof.ball)}:"
    bar = Norms(input=claim.proof.ball.norm).formula().rsplit("‖", 1)[1]
    stated = f"‖x − centre‖{bar} < {downward(claim.radius)}  ⟹  f(x) is largest at output {claim.label}"
    return [Card(item.path.name, verdict(item, models), where, stated, facts)]


def _sweep(item: Examined[tuple[SweepRow, ...]], models: bool) -> list[Block]:
    lowers = [row.lower for row in item.claim]
    if item.proved:
        lowers = [0.0 if lower is None else lower.value for lower in item.lowers]
    shown = [_proved_row(row, lower) for row, lower in zip(item.claim, lowers, strict=True)]
    source = "found for this report" if item.proved else "as the file says"
    facts = [
        ("Rows", f"{len(shown)}, each with a certificate of its own"),
        ("Lower bounds", source),
        *_network(item, item.claim[0].certificate.network),
    ]
    norms = item.claim[0].certificate.part.norms
    where = ", ".join(["For any two inputs x, y in the region of a row", *unit_notes(norms)]) + ":"
    card = Card(item.path.name, verdict(item, models), where, norms.formula(), facts)
    rows = [
        (
            Cell.number(row.radius, 6),
            Cell.bound(row.bound, 6),
            Cell.below(row.lower, 6),
            Cell.bound(row.bound / row.lower if row.lower > 0.0 else None),
            Cell(describe_region(region_of(row))),
            Cell.number(row.seconds, 3),
        )
        for row in shown
    ]
    headings = ("radius", "bound", "lower bound", "ratio", "region", "seconds")
    blocks: list[Block] = [card, Table(f"Rows, {item.path.name}", headings, rows)]
    if not item.refuted:
        caption = (
            f"{item.path.name}: certified bounds against the radius, lower bounds {source}. The trivial bound is what"
            " the file says."
        )
        blocks.append(Figure.of(plots.radius_curve(shown), caption))
    return blocks


def _proved_row(row: SweepRow, lower: float) -> SweepRow:
    """The row with the radius and the bound that its certificate proves."""
    region = region_of(row)
    radius = float(region.radius) if isinstance(region, Ball) else row.radius
    return replace(row, radius=radius, bound=row.certificate.bound, lower=lower)


def _derivations(item: Examined[Any], claim: Reach | Sensitivity) -> Facts:
    count = len(claim.proofs)
    return [
        ("Time", f"{claim.seconds:.3g} s to find and prove, as the file says"),
        ("Proof", f"hints of {count} derivation{'' if count == 1 else 's'} through the layers"),
        *_network(item, claim.network),
    ]


def _network(item: Examined[Any], digest: str) -> Facts:
    return [("Network", item.described), ("SHA-256", digest)]


def _listed(caption: str, count: int) -> str:
    return caption if count <= LISTED else f"{caption}: the first {LISTED} of {count}"


@dataclass(frozen=True)
class _Kind:
    """A kind of answer: its names, the blocks of one file, and a table of several files."""

    answer: type[Any]
    title: str
    one: str
    many: str
    blocks: Callable[[Any, bool], list[Block]]
    overview: Callable[[Any], Table] | None = None


_KINDS = (
    _Kind(Certificate, "Certificates", "certificate", "certificates", _certificate, _certificates),
    _Kind(Reach, "Reach sets", "reach set", "reach sets", _reach),
    _Kind(Sensitivity, "Sensitivities", "matrix of sensitivities", "matrices of sensitivities", _sensitivity),
    _Kind(CertifiedRadius, "Certified radii", "certified radius", "certified radii", _radius, _radii),
    _Kind(tuple, "Sweeps", "sweep", "sweeps", _sweep),
)
