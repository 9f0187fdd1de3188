"""The parts of a report about reach sets, sensitivities, certified radii and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lipcert.model.norms import Norms
from lipcert.model.regions import Ball
from lipcert.proof.classes import CertifiedRadius
from lipcert.proof.reach import Reach
from lipcert.proof.sensitivity import Sensitivity
from lipcert.questions.sweep import SweepRow
from lipcert.show import plots
from lipcert.show.report.examined import Examined, in_words, of_kind, region_of, standing, verdict
from lipcert.show.report.page import Block, Card, Cell, Figure, Section, Table
from lipcert.show.wording import describe_region, downward, unit_notes, upward

LISTED = 300
"""How many rows a table has at most."""


def answer_sections(found: Sequence[Examined[Any]], models: bool) -> list[Section]:
    """A section for each kind of answer, with a card, tables and figures for each file."""
    kinds: list[tuple[type[Any], str, str, Callable[[Any, bool], list[Block]]]] = [
        (Reach, "Reach sets", "reach set", _reach),
        (Sensitivity, "Sensitivities", "matrix of sensitivities", _sensitivity),
        (CertifiedRadius, "Certified radii", "certified radius", _radius),
        (tuple, "Sweeps", "sweep", _sweep),
    ]
    sections = []
    for kind, title, one, blocks_of in kinds:
        mine = of_kind(found, kind)
        if mine:
            blocks: list[Block] = [_radii(mine)] if kind is CertifiedRadius and len(mine) > 1 else []
            blocks += [block for item in mine for block in blocks_of(item, models)]
            what = f"1 {one}." if len(mine) == 1 else f"{len(mine)} {_many(one)}."
            sections.append(Section(title, f"{what} {in_words(mine, models)}", blocks))
    return sections


def _many(one: str) -> str:
    irregular = {"matrix of sensitivities": "matrices of sensitivities", "certified radius": "certified radii"}
    return irregular.get(one, f"{one}s")


def _reach(item: Examined[Reach], models: bool) -> list[Block]:
    claim, count, pieces = item.claim, len(item.claim.lower), len(item.claim.hull[0])
    widths = np.nextafter(claim.upper - claim.lower, np.inf)
    # the depth is known only where the network is
    output = item.network is not None and claim.layer == item.network.depth
    what = "f(x)" if output else f"what layer {claim.layer} computes before its activation"
    facts = [
        ("Widest side", upward(float(widths.max()))),
        ("Lipschitz bound", f"{upward(claim.bound)}, of the same proof"),
        ("Pieces", f"{pieces}, each with a box of its own" if pieces > 1 else "the region was not cut"),
        *_common(item, claim),
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
        one = "the proved interval, over a histogram of the outputs of random inputs."
        caption = (
            f"{item.path.name}: {one}"
            if count == 1
            else (
                f"{item.path.name}: two outputs. All lie in the box, and in the ellipsoid whose shadow is dashed;"
                " the dots are outputs of random inputs."
            )
        )
        blocks.append(Figure.of(plots.reach_set(claim, item.network, _widest(claim)), caption))
    return blocks


def _widest(claim: Reach) -> tuple[int, int]:
    """The two outputs with the widest sides, in order."""
    order = sorted(np.argsort(claim.lower - claim.upper, kind="stable")[:2].tolist())
    return order[0], order[-1]


def _sensitivity(item: Examined[Sensitivity], models: bool) -> list[Block]:
    claim = item.claim
    facts = [
        ("Largest", upward(float(claim.matrix.max()))),
        ("Lipschitz bound", f"{upward(claim.bound)}, of all inputs and outputs together"),
        *_common(item, claim),
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


def _radius(item: Examined[CertifiedRadius], models: bool) -> list[Block]:
    claim = item.claim
    assert claim.proof is not None  # a file has one
    bounded = f"f_{claim.label} − f_{claim.rival}" if claim.proof.pairwise else "the whole network"
    facts = [
        ("Radius", f"{downward(claim.radius)} of {claim.ball:g}, the radius of the ball of the proof"),
        ("Class", f"{claim.label}; the one that limits the radius is {claim.rival}, as the file says"),
        ("Rests on", f"{_BASES[claim.basis]}, as the file says"),
        ("Lipschitz bound", f"{upward(claim.bound)} of {bounded}" if np.isfinite(claim.bound) else "none"),
        ("Network", item.described),
        ("SHA-256", f"{claim.subject}, of network, point, clip and norm"),
    ]
    where = f"For every input x of the {describe_region(claim.proof.ball)}:"
    bar = Norms(input=claim.proof.ball.norm).formula().rsplit("‖", 1)[1]
    stated = f"‖x − centre‖{bar} < {downward(claim.radius)}  ⟹  f(x) is largest at output {claim.label}"
    return [Card(item.path.name, verdict(item, models), where, stated, facts)]


_BASES = {
    "lipschitz": "a Lipschitz bound",
    "relaxation": "linear relaxation",
    "second order": "bounds to second order",
    "value functions": "value functions",
    "parabolas": "parabolas of chosen slopes",
}


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


def _sweep(item: Examined[tuple[SweepRow, ...]], models: bool) -> list[Block]:
    shown = [_shown(row, lower) for row, lower in zip(item.claim, _lowers(item), strict=True)]
    source = "found for this report" if item.proved else "as the file says"
    facts = [
        ("Rows", f"{len(shown)}, each with a certificate of its own"),
        ("Lower bounds", source),
        ("Network", item.described),
        ("SHA-256", item.claim[0].certificate.network),
    ]
    where = "For any two inputs x, y in the region of a row:"
    norms = item.claim[0].certificate.part.norms
    where = ", ".join([where.removesuffix(":"), *unit_notes(norms)]) + ":"
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


def _shown(row: SweepRow, lower: float) -> SweepRow:
    """A row with the radius and the bound of its certificate, whatever the file says."""
    region = region_of(row)
    radius = float(region.radius) if isinstance(region, Ball) else row.radius
    return replace(row, radius=radius, bound=row.certificate.bound, lower=lower)


def _lowers(item: Examined[tuple[SweepRow, ...]]) -> list[float]:
    if not item.proved:
        return [row.lower for row in item.claim]
    return [0.0 if lower is None else lower.value for lower in item.lowers]


def _common(item: Examined[Any], claim: Reach | Sensitivity) -> list[tuple[str, str]]:
    count = len(claim.proofs)
    return [
        ("Time", f"{claim.seconds:.3g} s to find and prove, as the file says"),
        ("Proof", f"hints of {count} derivation{'' if count == 1 else 's'} through the layers"),
        ("Network", item.described),
        ("SHA-256", claim.network),
    ]


def _listed(caption: str, count: int) -> str:
    return caption if count <= LISTED else f"{caption}: the first {LISTED} of {count}"
