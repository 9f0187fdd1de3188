"""Networks, regions and answers in words and as tables, for the command line and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lipcert.answers.certificate import Certificate
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.arguments.words import downward, point_in_words, sizes_in_words, upward
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Norm, Norms, Region
from lipcert.questions.loops.contraction import Contraction
from lipcert.questions.loops.discrepancy import Discrepancy
from lipcert.questions.loops.invariant import InvariantEllipsoid
from lipcert.questions.loops.tube import Tube
from lipcert.questions.sweep import SweepRow
from lipcert.questions.tables import Cell, Table

__all__ = ["downward", "upward"]

_SUBSCRIPTS = {"l1": "₁", "l2": "₂", "linf": "∞"}
WHOLE = 64
"""Coordinates of a point that a theorem spells out; beyond that the file has them."""


def activations(network: Network) -> list[str]:
    """Names of the hidden layers' activations."""
    return [layer.describe() for layer in network.layers if layer.plain]


def describe_network(network: Network) -> str:
    """Sizes and activations in a few words.

    Examples
    --------
    >>> describe_network(Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0], [0.0, 1.0]], [[1.0, 2.0]]]))
    '1 → 2 ×2 → 1, relu'
    """
    sizes = sizes_in_words(network.sizes)
    return ", ".join([sizes, *dict.fromkeys(activations(network))])


def describe_region(region: Region, shown: int = 6) -> str:
    """A region in a few words; points with more than so many coordinates are cut."""
    if isinstance(region, Box):
        lower, upper = (point_in_words(end.tolist(), shown) for end in (region.lower, region.upper))
        return f"box from {lower} to {upper}"
    if isinstance(region, Ball):
        clip = "" if region.clip is None else f", within the {describe_region(region.clip, shown)}"
        kind = "" if region.plain else f"{region.norm.symbol} "
        size = f"{float(region.radius):g}{_units(region.norm)}"
        return f"{kind}ball of radius {size} around {point_in_words(region.center.tolist(), shown)}{clip}"
    return "all inputs"


def _units(norm: Norm) -> str:
    return "" if norm.scale == 1.0 else str(norm).removeprefix(norm.symbol)


def formula(norms: Norms, bound: str = "bound") -> str:
    """The inequality that a bound states.

    Examples
    --------
    >>> from lipcert import L2, LInf
    >>> formula(Norms(LInf(), L2()), "3")
    '‖f(x) − f(y)‖₂ ≤ 3 · ‖x − y‖∞'
    """
    left, right = (_SUBSCRIPTS[norm.name] for norm in (norms.output, norms.input))
    return f"‖f(x) − f(y)‖{left} ≤ {bound} · ‖x − y‖{right}"


def measured(norms: Norms) -> str:
    """The norms of a bound in a few words; empty if both are plain ℓ2."""
    return "" if norms.plain else f"from {norms.input} to {norms.output}"


def unit_notes(norms: Norms) -> list[str]:
    """The units of the norms of a bound."""
    ends = ("x − y", norms.input), ("f(x) − f(y)", norms.output)
    return [f"{what} in units of {_units(norm).removeprefix(' in units of ')}" for what, norm in ends if _units(norm)]


def statement(claim: Any, depth: int | None) -> tuple[str, list[str]]:
    """What an answer claims: which inputs it is about, and what holds for them; bounds are rounded outwards.

    ``depth`` is that of the network, or None if it is unknown.
    """
    if isinstance(claim, CertifiedRadius):
        assert claim.proof is not None  # a file has one
        closer = f"that is closer to its centre than {downward(claim.radius)} is of class {claim.label},"
        where = f"every input of the {describe_region(claim.proof.ball, WHOLE)}"
        return where, [closer, "which has the largest output of f,"]
    if isinstance(claim, (Contraction, InvariantEllipsoid)):
        return _in_shape(claim)
    there = f"in the {describe_region(claim.region, WHOLE)}"
    if isinstance(claim, Tube):
        rows = [f"step {k}: {_sides(*ends)}" for k, ends in enumerate(zip(claim.lower, claim.upper, strict=True)) if k]
        forces = "" if claim.disturbance is None else f" and disturbances in the {describe_region(claim.disturbance)}"
        return f"for every initial state {there}{forces}, the states of x⁺ = f(x) lie in", rows
    if isinstance(claim, (Reach, Discrepancy)):
        sides = zip(claim.lower, claim.upper, strict=True)
        rows = [
            f"output {called(k, claim.names[1])} in [{downward(low)}, {upward(high)}]"
            for k, (low, high) in enumerate(sides)
        ]
        return f"for every input x {there}, {'f(x)' if isinstance(claim, Reach) else second(claim)} has", rows
    if isinstance(claim, Sensitivity):
        pairs = f"any two inputs {there}" if claim.region.bounded else "any two inputs"
        rows = [
            f"output {group_in_words(one, claim.names[1])} changes by at most {upward(float(claim.matrix[i, k]))} times"
            f" the change of input {group_in_words(other, claim.names[0])}"
            for i, one in enumerate(claim.outputs)
            for k, other in enumerate(claim.inputs)
        ]
        return f"for {pairs} that differ in one coordinate, or group of them, only,", rows
    stated = formula(claim.part.norms, upward(claim.bound))
    start = claim.part.layers[0]
    who = "any two inputs x, y" if start == 0 else f"the values x, y that layer {start} puts out for any two inputs"
    return f"for {who} {there}" if claim.region.bounded else f"for {who}", [stated]


def called(which: int, names: Sequence[str] = ()) -> str:
    """An input or output by its name, or by its number where it has none."""
    return names[which] if which < len(names) else str(which)


def _sides(lower: Array, upper: Array) -> str:
    return " × ".join(f"[{downward(a)}, {upward(b)}]" for a, b in zip(lower.tolist(), upper.tolist(), strict=True))


def second(claim: Discrepancy) -> str:
    """What a difference is between."""
    if claim.other:
        return f"g(x) − f(x), g the network of SHA-256 {claim.other[:12]}…,"
    return (
        f"what a program in {claim.precision} computes, its activations within {claim.ulps:g} units of roundoff,"
        " minus f(x)"
    )


def _in_shape(claim: Contraction | InvariantEllipsoid) -> tuple[str, list[str]]:
    rows = "; ".join(", ".join(f"{entry!r}" for entry in row) for row in claim.shape.tolist())
    inside = claim if isinstance(claim, Contraction) else claim.contraction
    region = describe_region(inside.certificate.region, WHOLE)
    if inside.forced is not None:
        far = f"{upward(claim.rate)} · ‖M⁻¹(x − y)‖₂ + {upward(inside.gain)} · ‖v − w‖₂"
        where = f"for any two states x, y and disturbances v, w in the {region} of (M⁻¹x, w)"
        return where, [f"‖M⁻¹(f(x, v) − f(y, w))‖₂ ≤ {far}", f"with M = [{rows}]"]
    where = f"the {region} of the coordinates M⁻¹x"
    said = [f"‖M⁻¹(f(x) − f(y))‖₂ ≤ {upward(claim.rate)} · ‖M⁻¹(x − y)‖₂", f"with M = [{rows}]"]
    if claim is not inside:
        said.insert(0, "f(x) is in it again, and")
    return f"for any two states x, y in {where}", said


def group_in_words(which: tuple[int, ...], names: Sequence[str] = ()) -> str:
    """Inputs or outputs that count together."""
    return " + ".join(called(one, names) for one in which)


def restrictions(claim: Certificate, depth: int | None) -> list[str]:
    """What a certificate leaves out of a network of that depth; None if the depth is unknown."""
    part, (inputs, outputs) = claim.part, claim.names
    start, stop = part.layers
    notes = []
    if part.inputs is not None:
        notes.append(f"x and y differing in {_numbered('coordinate', part.inputs, inputs)} only")
    if depth is not None and (start, stop) != (0, depth):
        notes.append(f"up to what layer {stop} computes before its activation")
    if part.outputs is not None:
        notes.append(f"{_numbered('output', part.outputs, outputs)} only")
    return notes + unit_notes(part.norms)


def _numbered(what: str, which: tuple[int, ...], names: Sequence[str]) -> str:
    return f"{what}{'s' if len(which) > 1 else ''} {', '.join(called(one, names) for one in which)}"


def region_of(row: SweepRow) -> Region:
    """The region where the bound of a row is proved: the row's ball, if it is inside that of the certificate.

    The radius in the file is not proved. If it is too large, the ball of the certificate counts.
    """
    region = row.certificate.region
    if isinstance(region, Ball) and 0.0 <= row.radius < float(region.radius):
        return Ball(region.center, row.radius, region.clip, region.norm)
    return region


def sweep_table(title: str, rows: Sequence[SweepRow]) -> Table:
    """A row per radius."""
    cells = [
        (
            Cell.number(row.radius, "g"),
            Cell.bound(row.bound, 6),
            Cell.below(row.lower, 6),
            Cell.bound(row.bound / row.lower if row.lower > 0.0 else None),
            Cell(describe_region(region_of(row))),
            Cell.number(row.seconds, ".2f"),
        )
        for row in rows
    ]
    return Table(title, ("radius", "bound", "lower bound", "ratio", "region", "seconds"), cells)


def reach_table(title: str, found: Reach, most: int) -> Table:
    """The box of a reach set, a row for each of the first outputs, at most so many."""
    widths = np.nextafter(found.upper - found.lower, np.inf)
    cells = [
        (
            Cell(called(k, found.names[1]), k),
            Cell.below(float(found.lower[k]), 6),
            Cell.number(float(found.center[k]), ".6g"),
            Cell.bound(float(found.upper[k]), 6),
            Cell.bound(float(widths[k])),
        )
        for k in range(min(len(widths), most))
    ]
    return Table(title, ("output", "lower", "at the centre", "upper", "width"), cells)


def tube_table(title: str, found: Tube, most: int) -> Table:
    """The boxes of a tube after each of the first steps, at most so many."""
    cells = [
        (Cell(str(k)), *(Cell(_sides(low[None], high[None])) for low, high in zip(*ends, strict=True)))
        for k, ends in list(enumerate(zip(found.lower, found.upper, strict=True)))[1 : most + 1]
    ]
    states = (f"state {called(k, found.names)}" for k in range(found.lower.shape[1]))
    return Table(title, ("step", *states), cells)
