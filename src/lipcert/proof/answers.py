"""Reach sets, sensitivities and certified radii on disk: their fields, in documents that are read strictly.

The classes use this module; what is read is not believed before it was derived again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from lipcert.errors import InvalidInput
from lipcert.model.regions import Ball
from lipcert.proof import document
from lipcert.proof.bowls import BowlHints
from lipcert.proof.document import (
    array_in,
    array_out,
    fields,
    hints_in,
    hints_out,
    items,
    mapping,
    real,
    region_in,
    region_out,
    tree_in,
    tree_out,
    whole,
)
from lipcert.proof.hints import Part
from lipcert.proof.margins import Cut, MarginHints
from lipcert.proof.together import Proof
from lipcert.suggest.pair_guide import PairHints, PairStage

_BASES = ("lipschitz", "relaxation", "second order", "value functions", "parabolas")


def save(answer: Any, kind: str, path: str | os.PathLike[str]) -> None:
    """Write a Reach, Sensitivity or CertifiedRadius as a document of that kind."""
    document.write(path, kind, _KINDS[kind][0](answer))


def load(kind: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the answer that :func:`save` wrote; raise UnreadableCertificate for anything else."""
    content = document.read(path, kind)
    with document.damages(path):
        return _KINDS[kind][1](content)


def _reach_out(reach: Any) -> dict[str, Any]:
    return {
        **{name: array_out(getattr(reach, name)) for name in ("lower", "upper", "center", "shape")},
        "hull": [array_out(side) for side in reach.hull],
        "layer": int(reach.layer),
        **_common_out(reach),
    }


def _reach_in(content: Mapping[str, Any]) -> dict[str, Any]:
    lower, upper, center, shape, hull, layer, *common = fields(
        content, "lower", "upper", "center", "shape", "hull", "layer", *_COMMON
    )
    below, above = (array_in(side, 2) for side in items(hull, 2))
    sides = {name: array_in(side, 1) for name, side in (("lower", lower), ("upper", upper), ("center", center))}
    count = sides["lower"].size
    matrix = array_in(shape, 2)
    if any(side.size != count for side in sides.values()) or matrix.shape != (count, count):
        raise ValueError("its arrays are for different numbers of outputs")
    if not (sides["lower"] <= sides["upper"]).all() or below.shape != above.shape or below.shape[1] != count:
        raise ValueError("its boxes are none")
    return {**sides, "shape": matrix, "hull": (below, above), "layer": whole(layer, 1), **_common_in(*common)}


def _sensitivity_out(found: Any) -> dict[str, Any]:
    groups = {name: [[int(k) for k in group] for group in getattr(found, name)] for name in ("outputs", "inputs")}
    return {"matrix": array_out(found.matrix), **groups, **_common_out(found)}


def _sensitivity_in(content: Mapping[str, Any]) -> dict[str, Any]:
    matrix, outputs, inputs, *common = fields(content, "matrix", "outputs", "inputs", *_COMMON)
    rows, columns = (tuple(tuple(map(whole, items(group))) for group in items(ends)) for ends in (outputs, inputs))
    entries = array_in(matrix, 2)
    if entries.shape != (len(rows), len(columns)) or not entries.size or not all(map(len, (*rows, *columns))):
        raise ValueError("its matrix is not one for its groups")
    return {"matrix": entries, "outputs": rows, "inputs": columns, **_common_in(*common)}


_COMMON = ("bound", "network", "region", "seconds", "proofs")


def _common_out(answer: Any) -> dict[str, Any]:
    if not answer.proofs:
        raise InvalidInput("an answer without what proves it cannot be saved; ask for it again")
    return {
        "bound": float(answer.bound),
        "network": answer.network,
        "region": region_out(answer.region),
        "seconds": float(answer.seconds),
        "proofs": [_proof_out(proof) for proof in answer.proofs],
    }


def _common_in(bound: Any, network: Any, region: Any, seconds: Any, proofs: Any) -> dict[str, Any]:
    return {
        "bound": real(bound),
        "network": document.digest(network),
        "region": region_in(region),
        "seconds": real(seconds),
        "proofs": tuple(map(_proof_in, items(proofs))),
    }


def _proof_out(proof: Proof) -> dict[str, Any]:
    part = proof.part
    ends = () if part is None else (part.layers, part.inputs, part.outputs)
    return {
        "kind": proof.kind,
        "sweeps": [hints_out(sweep) for sweep in proof.sweeps],
        "tree": tree_out(proof.tree),
        "part": None if part is None else [None if end is None else [int(k) for k in end] for end in ends],
        "base": int(proof.base),
        **_singles_out(proof),
    }


def _singles_out(proof: Any) -> dict[str, Any]:
    """Hints for single rows of the outputs, where there are any."""
    found = {
        "margins": [_margin_out(one) for one in proof.margins],
        "parabolas": [_bowl_out(one) for one in proof.parabolas],
    }
    return {name: hints for name, hints in found.items() if hints}


def _singles_in(parts: dict[str, Any]) -> tuple[tuple[MarginHints, ...], tuple[BowlHints, ...]]:
    """The same, taken out of the fields."""
    margins, bowls = (items(parts.pop(name, [])) for name in ("margins", "parabolas"))
    return tuple(map(_margin_in, margins)), tuple(map(_bowl_in, bowls))


def _proof_in(value: Any) -> Proof:
    parts = dict(mapping(value))
    singles = _singles_in(parts)
    kind, sweeps, tree, part, base = fields(parts, "kind", "sweeps", "tree", "part", "base")
    hints, group = tuple(map(hints_in, items(sweeps))), None if part is None else _part_in(part)
    return Proof(document.text(kind), hints, tree_in(tree), group, whole(base), *singles)


def _part_in(value: Any) -> Part:
    layers, inputs, outputs = items(value, 3)
    start, stop = (whole(end) for end in items(layers, 2))
    ends = [None if end is None else tuple(map(whole, items(end))) for end in (inputs, outputs)]
    return Part((start, stop), ends[0], ends[1])


def _radius_out(found: Any) -> dict[str, Any]:
    proof = found.proof
    if proof is None or not found.radius > 0.0:
        raise InvalidInput("a certified radius without what proves it cannot be saved; a radius of 0 has no proof")
    return {
        "radius": float(found.radius),
        "bound": float(found.bound) if math.isfinite(found.bound) else None,
        "margin": float(found.margin),
        **{name: int(getattr(found, name)) for name in ("label", "predicted", "rival")},
        "ball": float(found.ball),
        "basis": found.basis,
        "subject": found.subject,
        "proof": {
            "ball": region_out(proof.ball),
            "sweeps": [hints_out(sweep) for sweep in proof.sweeps],
            "tree": tree_out(proof.tree),
            "pairs": [_stage_out(stage) for stage in proof.pairs],
            "pairwise": bool(proof.pairwise),
            **_singles_out(proof),
        },
    }


def _radius_in(content: Mapping[str, Any]) -> dict[str, Any]:
    names = "radius", "bound", "margin", "label", "predicted", "rival", "ball", "basis", "subject", "proof"
    radius, bound, margin, label, predicted, rival, ball, basis, subject, proof = fields(content, *names)
    parts = dict(mapping(proof))
    margins, bowls = _singles_in(parts)
    where, sweeps, tree, pairs, pairwise = fields(parts, "ball", "sweeps", "tree", "pairs", "pairwise")
    region = region_in(where)
    if basis not in _BASES or not isinstance(region, Ball):
        raise ValueError("it names an unknown basis, or no ball")
    if not real(radius) > 0.0:
        raise ValueError("its radius is not positive")
    return {
        "radius": real(radius),
        "bound": math.inf if bound is None else real(bound),
        "margin": real(margin),
        "label": whole(label),
        "predicted": whole(predicted),
        "rival": whole(rival),
        "ball": real(ball),
        "basis": basis,
        "subject": document.digest(subject),
        "proof": {
            "ball": region,
            "sweeps": tuple(map(hints_in, items(sweeps))),
            "tree": tree_in(tree),
            "pairs": tuple(map(_stage_in, items(pairs))),
            "pairwise": document.truth(pairwise, "pairwise"),
            "margins": margins,
            "parabolas": bowls,
        },
    }


def _stage_out(stage: PairStage) -> dict[str, Any]:
    return {
        "stage": int(stage.stage),
        "row": array_out(stage.row),
        "ellipsoids": [array_out(T) for T in stage.ellipsoids],
        "multipliers": [array_out(T) for T in stage.hints.multipliers],
        "mu": float(stage.hints.mu),
        "hopeful": bool(stage.hints.hopeful),
    }


def _stage_in(value: Any) -> PairStage:
    names = "stage", "row", "ellipsoids", "multipliers", "mu", "hopeful"
    stage, row, ellipsoids, multipliers, mu, hopeful = fields(mapping(value), *names)
    told, asked = ([array_in(T, None) for T in items(some)] for some in (ellipsoids, multipliers))
    hints = PairHints(asked, real(mu), document.truth(hopeful, "hopeful"))
    return PairStage(whole(stage), array_in(row, 1), tuple(told), hints)


def _margin_out(hints: MarginHints) -> dict[str, Any]:
    return {
        "row": array_out(hints.row),
        "cuts": [[int(k) for k in cut] for cut in hints.cuts],
        "multipliers": array_out(hints.multipliers),
        "ball": float(hints.ball),
    }


def _margin_in(value: Any) -> MarginHints:
    row, cuts, multipliers, ball = fields(mapping(value), "row", "cuts", "multipliers", "ball")
    return MarginHints(array_in(row, 1), tuple(map(_cut_in, items(cuts))), array_in(multipliers, 1), real(ball))


def _bowl_out(hints: BowlHints) -> dict[str, Any]:
    return {
        "row": array_out(hints.row),
        "slopes": [array_out(part) for part in hints.slopes],
        "bends": [array_out(part) for part in hints.bends],
        "tops": [float(top) for top in hints.tops],
        "mu": float(hints.mu),
    }


def _bowl_in(value: Any) -> BowlHints:
    row, slopes, bends, tops, mu = fields(mapping(value), "row", "slopes", "bends", "tops", "mu")
    tilts, curves = (tuple(array_in(part, 1) for part in items(some)) for some in (slopes, bends))
    return BowlHints(array_in(row, 1), tilts, curves, tuple(map(real, items(tops))), real(mu))


def _cut_in(value: Any) -> Cut:
    layer, neuron, side = items(value, 3)
    if side not in (-1, 1):
        raise ValueError("a cut has no side")
    return whole(layer), whole(neuron), int(side)


_KINDS: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "reach": (_reach_out, _reach_in),
    "sensitivity": (_sensitivity_out, _sensitivity_in),
    "radius": (_radius_out, _radius_in),
}
