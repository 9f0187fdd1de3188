"""Tables 1 and 2 and the radius study as CSV and Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from lipcert.model.files import write_whole
from lipcert.questions.names import OWN
from lipcert.reproduce.cells import STUDIES, Cell, origin
from lipcert.reproduce.documents import markdown, shown, write_csv
from lipcert.reproduce.tables import Line, Plan

HEADER = (
    *("table", "width", "layers", "radius", "method", "origin", "paper", "value", "difference", "agrees"),
    *("paper_seconds", "seconds", "status", "lower", "best_paper", "ours", "ratio"),
)
_INTRODUCTION = """\
The networks are the paper's, regenerated from their seeds; the ball has radius √5·δ, with which its tables were
computed. *Paper* is what is printed, *here* what came out on this machine: of methods of the literature the number as
published, of lipcert's own a bound that is proved with rounding accounted for. Seconds of the paper are of its machine.
A method that took longer than {timeout:g} s has *timeout*, and is *not started* on networks wider and deeper still.
"""


def write_table(folder: Path, plan: Plan, found: Sequence[Line]) -> None:
    """The files NAME.csv and NAME.md of a study."""
    write_csv(folder / f"{plan.study}.csv", HEADER, [_record(line) for line in found])
    parts = [f"# {STUDIES[plan.study].title}", _INTRODUCTION.format(timeout=plan.timeout), summary(found)]
    parts += ["## Bounds, cell by cell", _cells(found), "## Methods of the literature", _methods(plan, found)]
    parts += ["## Everything", _everything(found)]
    write_whole(folder / f"{plan.study}.md", "\n\n".join(part.strip() for part in parts) + "\n")


def _record(line: Line) -> tuple[object, ...]:
    cell, result = line.cell, line.result
    agreement = {True: "yes", False: "no", None: None}[line.agreement]
    return (
        *(cell.study, cell.width, cell.layers, f"{cell.delta * math.sqrt(5.0):.6g}", line.method, origin(line.method)),
        *(line.printed.bound, result.value, line.difference, agreement, line.printed.seconds, result.seconds),
        *(result.status, line.lower, line.best_paper, line.ours, line.ratio),
    )


def summary(found: Sequence[Line]) -> str:
    """What the table shows, in a sentence or three."""
    ratios = [ratio for group in _by_cell(found) if (ratio := group[0].ratio) is not None]
    gaps = [one.ours / one.lower for one, *_ in _by_cell(found) if one.ours is not None and one.lower]
    compared = [line for line in found if line.agreement is not None]
    text = []
    if ratios:
        below = sum(group[0].below is True for group in _by_cell(found))
        text.append(
            f"lipcert's best bound is at or below the smallest printed figure in {below} of {len(ratios)} cells, by a"
            f" median factor of {1.0 / statistics.median(ratios):.3g}."
        )
    if gaps:
        text.append(
            f"It is {statistics.median(gaps):.3g} times the lower bound in the median, {max(gaps):.3g} at most."
        )
    if compared:
        right = sum(line.agreement is True for line in compared)
        text.append(
            f"Of {len(compared)} printed numbers that were computed again, {right} agree in every printed digit."
        )
    return " ".join(text)


def _by_cell(found: Sequence[Line]) -> list[list[Line]]:
    return [list(group) for _, group in groupby(found, key=lambda line: line.cell)]


def _place(cell: Cell) -> str:
    return f"{cell.width} × {cell.layers}" + (f", δ = {cell.delta:g}" if cell.study == "radius" else "")


def _cells(found: Sequence[Line]) -> str:
    names = [name for name in OWN if any(line.method == name for line in found)]
    rows = []
    for group in _by_cell(found):
        first = group[0]
        values = {line.method: line.result.value for line in group}
        own = [shown(values.get(name), "up") for name in names]
        ends = (shown(first.lower, "down"), shown(first.ratio, digits=3))
        rows.append((_place(first.cell), shown(first.best_paper), *own, *ends))
    return markdown(("width × layers", "best printed", *names, "lower bound", "best of ours / best printed"), rows)


def _methods(plan: Plan, found: Sequence[Line]) -> str:
    rows = []
    for name in plan.methods:
        group = [line for line in found if line.method == name and line.printed.bound]
        if not group or origin(name) == "lipcert":
            continue
        compared = [line for line in group if line.agreement is not None]
        differences = [abs(line.difference) for line in compared if line.difference is not None]
        exact = sum(line.agreement is True for line in compared)
        numbers = sum(line.printed.value is not None for line in group)
        worst = f"{max(differences):.2g}" if differences else ""
        late = sum(line.result.status in ("timeout", "not started") for line in group)
        rows.append((name, f"{numbers}", f"{len(compared)}", f"{exact}", worst, f"{late or ''}"))
    header = ("method", "printed", "computed again", "agree in every digit", "largest difference", "over the limit")
    return markdown(header, rows)


def _everything(found: Sequence[Line]) -> str:
    header = ("width × layers", "method", "paper", "here", "difference", "paper s", "here s", "status")
    rows = []
    for line in found:
        rounding = {"lipcert": "up", "reference": "down", "published": "nearest"}[origin(line.method)]
        difference = "" if line.difference is None else f"{line.difference:+.1e}"
        verdict = "digits agree" if line.agreement else line.result.status
        seconds = "" if line.result.seconds is None else f"{line.result.seconds:.2f}"
        value = shown(line.result.value, rounding, 6)
        times = line.printed.seconds, seconds
        rows.append((_place(line.cell), line.method, line.printed.bound, value, difference, *times, verdict))
    return markdown(header, rows)
