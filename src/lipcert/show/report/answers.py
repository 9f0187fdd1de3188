"""The sections of a report about saved answers: each is checked against the models, and shown as it was proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius, subject_of
from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.arguments.words import downward, upward
from lipcert.errors import ProofFailed
from lipcert.methods.lower import LowerBound, lower_bound_of
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.loops.contraction import Contraction
from lipcert.questions.loops.discrepancy import Discrepancy
from lipcert.questions.loops.invariant import InvariantEllipsoid
from lipcert.questions.loops.tube import Tube
from lipcert.questions.sweep import SweepRow
from lipcert.questions.tables import Cell, Table
from lipcert.questions.verify import load_answer, proved
from lipcert.runtime.clock import clock
from lipcert.show import plots, wording
from lipcert.show.report.page import Block, Card, Figure, Section

LISTED = 300
"""Most rows of a table; a page with more would be slow to open."""
_SECONDS = 5.0
"""Time limit for the lower bounds of one file."""


@dataclass(frozen=True, eq=False)
class Examined:
    """A file with an answer, and the result of its check.

    Name and network of its model are None if that model was not given; ``refuted`` says why the claim could not be
    proved; ``lowers`` are lower bounds for a certificate or each row of a sweep; ``rules`` those of the proof.
    """

    path: Path
    claim: Any
    model: str | None = None
    network: Network | None = None
    refuted: str = ""
    lowers: tuple[LowerBound | None, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the claim was proved again."""
        return self.network is not None and not self.refuted

    @property
    def lower(self) -> LowerBound | None:
        """The lower bound for a certificate; None if there is none."""
        return self.lowers[0] if self.lowers else None

    @property
    def ratio(self) -> float | None:
        """Bound of a certificate divided by its lower bound."""
        return self.claim.bound / self.lower.value if self.lower is not None and self.lower.value > 0.0 else None


def examine(paths: Sequence[Path], models: Mapping[str, Network]) -> list[Examined]:
    """Read files with answers. Those about one of the named models are proved again, and bounds get a lower bound."""
    claims = [(path, load_answer(path)) for path in paths]
    others = {network.digest: network for network in models.values()}
    found = []
    for number, (path, claim) in enumerate(claims, 1):
        clock().say(f"certificate {number} of {len(claims)}: {path.name}")
        about = [(name, network) for name, network in models.items() if _is_about(claim, network)]
        found.append(_checked(path, claim, *about[0], others) if about else Examined(path, claim))
    return found


def _is_about(claim: Any, network: Network) -> bool:
    if isinstance(claim, CertifiedRadius):
        return claim.proof is not None and claim.subject == subject_of(network, claim.proof.ball)
    return bool((claim[0].certificate if isinstance(claim, tuple) else claim).network == network.digest)


def _checked(path: Path, claim: Any, name: str, network: Network, others: Mapping[str, Network]) -> Examined:
    try:
        _, rules = proved(network, claim, other=others.get(getattr(claim, "other", "")))
    except ProofFailed as error:
        return Examined(path, claim, name, network, str(error))
    bounds = [claim] if isinstance(claim, Certificate) else []
    if isinstance(claim, tuple):
        bounds = [replace(row.certificate, region=wording.region_of(row)) for row in claim]
    lowers = tuple(lower_bound_of(network, one, _SECONDS / len(bounds)) for one in bounds)
    return Examined(path, claim, name, network, lowers=lowers, rules=rules)


def answer_sections(found: Sequence[Examined], models: bool) -> list[Section]:
    """A section for each kind of answer."""
    sections = []
    for kind, (title, blocks_of) in _KINDS.items():
        mine = [item for item in found if isinstance(item.claim, kind)]
        if not mine:
            continue
        blocks = [block for item in mine for block in blocks_of(item, models)]
        text = _in_words(mine, models)
        ratios = [item.ratio for item in mine if kind is Certificate and item.ratio is not None]
        if ratios:
            text += f" With a lower bound, the bound is at most {upward(max(ratios), 3)} times the true constant."
        sections.append(Section(title, text, blocks))
    return sections


def _in_words(found: Sequence[Examined], models: bool) -> str:
    count, proved, refuted = len(found), sum(item.proved for item in found), sum(bool(item.refuted) for item in found)
    if not models:
        return "Not checked: no model was given."
    text = f"Proved again for this report: {proved} of {count}."
    if refuted:
        text += f" Not provable: {refuted}. Do not rely on those."
    if count - proved - refuted:
        text += f" About other models, not checked: {count - proved - refuted}."
    return text


def _card(item: Examined, models: bool, formula: str, facts: Mapping[str, str], subject: str, where: str = "") -> Card:
    if item.refuted:
        standing, verdict = "bad", f"Not proved: {item.refuted}"
    elif item.proved:
        standing, verdict = "good", "Proved again for this report, with every rounding error accounted for"
    else:
        given = "none of the models given has this digest" if models else "no model was given; give it with --model"
        standing, verdict = "open", f"Not checked: {given}"
    where = where or wording.statement(item.claim, None if item.network is None else item.network.depth)[0]
    network = "not given" if item.network is None else f"{item.model}: {wording.describe_network(item.network)}"
    rules = {"Rules of the proof": ", ".join(item.rules)} if item.rules else {}
    about = {**facts, **rules, "Network": network, "SHA-256": subject}
    return Card(item.path.name, standing, verdict, where[0].upper() + where[1:], formula, list(about.items()))


def _time(claim: Any) -> dict[str, str]:
    return {"Time": f"{claim.seconds:.3g} s to find and prove, as the file says"}


def _certificate(item: Examined, models: bool) -> list[Block]:
    claim, depth = item.claim, None if item.network is None else item.network.depth
    where, (formula,) = wording.statement(claim, depth)
    parts = [where, *wording.restrictions(claim, depth), *([f"where f is {item.model}"] if item.model else [])]
    upper, ratio = upward(claim.bound), "" if item.ratio is None else f", a factor of {upward(item.ratio, 4)} apart"
    tight = "no lower bound is known"
    if item.lower is not None:
        tight = f"{downward(item.lower.value)} ≤ true constant ≤ {upper}{ratio}"
    facts = {"How tight": tight, "Method": f"{claim.method}, as the file says", **_time(claim)}
    return [_card(item, models, formula, facts, claim.network, f"{', '.join(parts)}:")]


def _reach(item: Examined, models: bool) -> list[Block]:
    claim: Reach = item.claim
    count, pieces = len(claim.lower), len(claim.hull[0])
    facts = {
        "Widest side": upward(float(np.nextafter(claim.upper - claim.lower, np.inf).max())),
        "Lipschitz bound": f"{upward(claim.bound)}, of the same proof",
        "Pieces": f"{pieces}, each with a box of its own" if pieces > 1 else "the region was not cut",
        **_time(claim),
    }
    card = _card(item, models, "output k in [lower, upper], as in the table", facts, claim.network)
    table = wording.reach_table(_listed(f"Outputs, {item.path.name}", count), claim, LISTED)
    if not item.proved or item.network is None:
        return [card, table]
    sets = "the interval" if count == 1 else "the box, and in the ellipsoid whose shadow is dashed"
    caption = f"{item.path.name}: the outputs lie in {sets}. Outputs of random inputs are grey."
    return [card, table, Figure.of(plots.reach_set(claim, item.network), caption)]


def _sensitivity(item: Examined, models: bool) -> list[Block]:
    claim: Sensitivity = item.claim
    facts = {
        "Largest": upward(float(claim.matrix.max())),
        "Lipschitz bound": f"{upward(claim.bound)}, of all inputs and outputs together",
        **_time(claim),
    }
    formula = "‖change of output i‖ ≤ bound(i, k) · ‖change of input k‖"
    blocks: list[Block] = [_card(item, models, formula, facts, claim.network)]
    if not item.refuted:
        caption = f"{item.path.name}: bounds for each output (down) and input (across)."
        blocks.append(Figure.of(plots.sensitivity_map(claim), caption))
    order = np.argsort(-claim.matrix, axis=None, kind="stable")[:LISTED]
    pairs = zip(*np.unravel_index(order, claim.matrix.shape), strict=True)
    rows = [
        (
            Cell(wording.group_in_words(claim.outputs[i], claim.names[1]), claim.outputs[i][0]),
            Cell(wording.group_in_words(claim.inputs[k], claim.names[0]), claim.inputs[k][0]),
            Cell.bound(float(claim.matrix[i, k]), 6),
        )
        for i, k in pairs
    ]
    caption = _listed(f"Pairs, largest bound first, {item.path.name}", claim.matrix.size)
    return [*blocks, Table(caption, ("output", "input", "bound"), rows, folded=True)]


def _radius(item: Examined, models: bool) -> list[Block]:
    claim: CertifiedRadius = item.claim
    assert claim.proof is not None  # a file has one
    bounded = f"f_{claim.label} − f_{claim.rival}"
    facts = {
        "Radius": f"{downward(claim.radius)} of {claim.ball:g}, the radius of the ball of the proof",
        "Class": f"{claim.label}; the one that limits the radius is {claim.rival}, as the file says",
        "Rests on": f"{claim.basis}, as the file says",
        "Lipschitz bound": f"{upward(claim.bound)} of {bounded}" if np.isfinite(claim.bound) else "none",
    }
    said = " ".join(wording.statement(claim, None)[1]).rstrip(",")
    return [_card(item, models, said, facts, f"{claim.subject}, of network, point, clip and norm")]


def _sweep(item: Examined, models: bool) -> list[Block]:
    rows: tuple[SweepRow, ...] = item.claim
    lowers = [row.lower for row in rows]
    if item.proved:
        lowers = [0.0 if lower is None else lower.value for lower in item.lowers]
    shown = []
    for row, lower in zip(rows, lowers, strict=True):  # what the certificate proves
        region = wording.region_of(row)
        radius = float(region.radius) if isinstance(region, Ball) else row.radius
        shown.append(replace(row, radius=radius, bound=row.certificate.bound, lower=lower))
    source = "found for this report" if item.proved else "as the file says"
    facts = {"Rows": f"{len(shown)}, each with a certificate of its own", "Lower bounds": source}
    norms = rows[0].certificate.part.norms
    where = ", ".join(["for any two inputs x, y in the region of a row", *wording.unit_notes(norms)]) + ":"
    card = _card(item, models, wording.formula(norms), facts, rows[0].certificate.network, where)
    blocks: list[Block] = [card, wording.sweep_table(f"Rows, {item.path.name}", shown)]
    if not item.refuted:
        caption = (
            f"{item.path.name}: certified bounds against the radius, lower bounds {source}. The trivial bound is what"
            " the file says."
        )
        blocks.append(Figure.of(plots.radius_curve(shown), caption))
    return blocks


def _tube(item: Examined, models: bool) -> list[Block]:
    claim: Tube = item.claim
    parts = "one proof" if len(claim.segments) == 1 else f"{len(claim.segments)} proofs, one after the other"
    facts = {
        "Steps": f"{claim.steps}, in {parts}; nothing is said of the time between steps",
        "Widest side at the end": upward(float(np.nextafter(claim.upper[-1] - claim.lower[-1], np.inf).max())),
        **_time(claim),
    }
    card = _card(item, models, "state k in [lower, upper] after each step, as in the table", facts, claim.network)
    blocks: list[Block] = [card]
    if not item.refuted:
        named = "" if item.network is None else ", and states of random trajectories"
        blocks.append(Figure.of(plots.tube(claim, item.network), f"{item.path.name}: proved boxes over time{named}."))
        if claim.lower.shape[1] > 1:
            plane = plots.tube(claim, item.network, (0, 1))
            blocks.append(Figure.of(plane, f"{item.path.name}: the same in the plane of the first two states."))
    return [*blocks, wording.tube_table(_listed(f"Boxes, {item.path.name}", claim.steps), claim, LISTED)]


def _shaped(item: Examined, models: bool) -> list[Block]:
    """A contraction or an invariant ellipsoid."""
    claim, (where, (*said, shape)) = item.claim, wording.statement(item.claim, None)
    facts = {"Rate": f"{upward(claim.rate)} in each step" + ("" if claim.rate < 1.0 else ": no contraction is proved")}
    facts |= {"M": shape.removeprefix("with M = "), **_time(claim)}
    if isinstance(claim, InvariantEllipsoid):
        widths = claim.ball.radius * np.linalg.norm(claim.shape, axis=1)
        about = ", ".join(f"{x:.6g} ± {width:.3g}" for x, width in zip(claim.middle, widths, strict=True))
        facts |= {"Volume": downward(claim.volume), "States, about": about}
    elif claim.forced is not None:
        facts["Gain"] = f"{upward(claim.gain)} from disturbances to states"
    blocks: list[Block] = [_card(item, models, " ".join(said), facts, claim.network, f"{where}:")]
    if isinstance(claim, InvariantEllipsoid) and item.proved and item.network is not None and len(claim.shape) > 1:
        blocks.append(Figure.of(plots.ellipsoid(claim, item.network), f"{item.path.name}: points of its edge move in."))
    return blocks


def _discrepancy(item: Examined, models: bool) -> list[Block]:
    claim: Discrepancy = item.claim
    facts = {"At most": ", ".join(upward(bound) for bound in claim.bound.tolist()), **_time(claim)}
    if claim.other:
        facts["Network g"] = claim.other
    else:
        sums = " in float32" if claim.precision == "float16" else ""
        facts["Assumed"] = (
            f"inputs, weights and values are rounded to {claim.precision}; sums are made{sums} in any order;"
            f" activations other than ReLU are within {claim.ulps:g} units of roundoff"
        )
    said = "output k in [lower, upper], as in the table"
    rows = [
        (Cell(wording.called(k, claim.names[1]), k), Cell.below(low, 6), Cell.bound(high, 6))
        for k, (low, high) in list(enumerate(zip(claim.lower.tolist(), claim.upper.tolist(), strict=True)))[:LISTED]
    ]
    caption = _listed(f"Outputs, {item.path.name}", len(claim.lower))
    return [_card(item, models, said, facts, claim.network), Table(caption, ("output", "lower", "upper"), rows)]


def _listed(caption: str, count: int) -> str:
    return caption if count <= LISTED else f"{caption}: the first {LISTED} of {count}"


_KINDS: dict[type[Any], tuple[str, Callable[[Examined, bool], list[Block]]]] = {
    Certificate: ("Certificates", _certificate),
    Reach: ("Reach sets", _reach),
    Sensitivity: ("Sensitivities", _sensitivity),
    CertifiedRadius: ("Certified radii", _radius),
    tuple: ("Sweeps", _sweep),
    Tube: ("Tubes of closed loops", _tube),
    Contraction: ("Contraction", _shaped),
    InvariantEllipsoid: ("Invariant ellipsoids", _shaped),
    Discrepancy: ("Differences of evaluations", _discrepancy),
}
"""Kinds of answers: the title of their section, and the blocks of one file."""
