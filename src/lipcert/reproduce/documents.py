"""Results of the studies as files: CSV, and a page."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.files.whole import write_whole
from lipcert.model.arrays import Array
from lipcert.questions.tables import Cell, Table
from lipcert.reproduce.cells import origin
from lipcert.reproduce.mnist import PAPER_METHOD, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII, paper_model
from lipcert.reproduce.tables import Line, Plan
from lipcert.show.report.page import Figure, Section, page


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file with a line of names and a line a row; None is empty, numbers have all their digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def write_table(folder: Path, plan: Plan, found: Sequence[Line]) -> None:
    """The file NAME.csv of a study."""
    write_csv(folder / f"{plan.study}.csv", list(map(_record, found)))


def _record(line: Line) -> dict[str, Any]:
    cell, result = line.cell, line.result
    return {
        "table": cell.study,
        "width": cell.width,
        "layers": cell.layers,
        "radius": f"{cell.delta * math.sqrt(5.0):.6g}",
        "method": line.method,
        "origin": origin(line.method),
        "paper": line.printed.bound,
        "value": result.value,
        "difference": line.difference,
        "agrees": {True: "yes", False: "no", None: None}[line.agreement],
        "paper_seconds": line.printed.seconds,
        "seconds": result.seconds,
        "status": result.status,
        "lower": line.lower,
        "best_paper": line.best.value,
        "ours": line.ours,
        "ratio": line.ratio,
    }


def table_summary(found: Sequence[Line]) -> str:
    """What the table shows, in a sentence or three."""
    firsts = [next(group) for _, group in groupby(found, key=lambda line: line.cell)]
    ratios = [line.ratio for line in firsts if line.ratio is not None]
    gaps = [line.ours / line.lower for line in firsts if line.ours is not None and line.lower]
    agreements = [line.agreement for line in found if line.agreement is not None]
    text = []
    if ratios:
        text.append(
            f"lipcert's best bound is at or below the smallest printed figure in {sum(line.below for line in firsts)}"
            f" of {len(ratios)} cells, by a median factor of {1.0 / statistics.median(ratios):.3g}."
        )
    if gaps:
        middle, most = statistics.median(gaps), max(gaps)
        text.append(f"It is {middle:.3g} times the lower bound in the median, {most:.3g} at most.")
    if agreements:
        text.append(
            f"Of {len(agreements)} printed numbers that were computed again, {sum(agreements)} agree in every printed"
            " digit."
        )
    return " ".join(text)


TITLE: Final = "A plain and a regularised classifier"


def write_study(folder: Path, study: Study) -> None:
    """The files mnist.csv and mnist_radii.csv."""
    write_csv(folder / "mnist.csv", list(_bounds(study)))
    write_csv(folder / "mnist_radii.csv", list(_radii(study)))


def _bounds(study: Study) -> Iterator[dict[str, Any]]:
    for sample in study.samples:
        name = sample.classifier.name
        printed = paper_model(name) if study.images.name == "mnist" else None
        for method, bounds in sample.bounds.items():
            same = printed if (method, sample.choice) == (PAPER_METHOD, "random") else None
            for number, radius in enumerate(PAPER_RADII):
                yield {
                    **{"model": name, "points": sample.choice, "radius": radius, "method": method},
                    **_spread("", bounds[:, number]),
                    **_spread("paper_", None if same is None else same.bounds[:, number]),
                    "failure": float(study.failures[name][number]),
                    "paper_failure": None if printed is None else float(printed.failures[number]),
                    "seconds": sample.seconds[method],
                }


def _spread(start: str, column: Array | None) -> dict[str, float | None]:
    mean, deviation = (None, None) if column is None else (float(column.mean()), float(column.std()))
    return {f"{start}mean": mean, f"{start}deviation": deviation}


def _radii(study: Study) -> Iterator[dict[str, Any]]:
    for sample in study.samples:
        name, choice, broken = sample.classifier.name, sample.choice, sample.broken[np.isfinite(sample.broken)]
        printed = paper_model(name).ratio if (study.images.name, choice) == ("mnist", "random") else None
        for rule, radii in sample.radii.items():
            paper = printed if rule == "paper" else None
            means = {"mean": float(radii.mean()), "ratio": ratio(sample, rule), "paper_ratio": paper}
            attacked = float(broken.mean()) if broken.size else None
            yield {"model": name, "points": choice, "rule": rule, **means, "attacked": attacked}


def ratio(sample: Sample, rule: str) -> float:
    """Mean certified radius over that of the trivial bound."""
    return float(sample.radii[rule].mean() / sample.radii["trivial"].mean())


def study_summary(study: Study) -> str:
    """What the study shows, in a few sentences."""
    models = {sample.classifier.name: sample.classifier for sample in study.samples}
    right = ", ".join(f"{one.accuracy:.2%} ({name})" for name, one in models.items())
    text = [f"Accuracy on the test set: {right}."]
    for sample in study.samples:
        if sample.classifier.name == "regularised" and "paper" in sample.radii:
            ours, theirs = ratio(sample, "curved"), ratio(sample, "paper")
            text.append(
                f"Regularised model, {'test images' if sample.choice == 'images' else 'random points'}: certified radii"
                f" are {ours:.3g} times those of the trivial bound, {theirs:.3g} times by the paper's rule (lipcert /"
                f" paper's rule: {ours / theirs:.3g}); {ratio(sample, 'valid'):.3g} times where only inputs with pixels"
                " in [0, 1] count."
            )
    return " ".join(text)


_FOLDED: Final = 24
"""Tables with more rows than this are folded."""
_UP: Final = ("value", "ours", "ratio")
"""Columns of upper bounds, rounded up; the others to four digits."""
_PRINTED: Final = ("paper", "best_paper", "paper_seconds", "width", "layers", "radius")
"""Columns shown as they are written, up to eight characters."""


def csv_table(file: Path) -> Table:
    """The columns of a CSV file that are not empty, with numbers rounded for people: bounds up, lower bounds down."""
    with file.open(newline="", encoding="utf-8") as stream:
        records = list(csv.DictReader(stream))
    columns = [column for column in (records[0] if records else ()) if any(record[column] for record in records)]
    certified = bool({"rule", "margin"} & set(columns))  # radii: safe when rounded down, as lower bounds are
    rows = [
        [_cell(column, record[column], certified or record.get("origin") == "reference") for column in columns]
        for record in records
    ]
    return Table(file.name, [column.replace("_", " ") for column in columns], rows, folded=len(rows) > _FOLDED)


def _cell(column: str, text: str, down: bool) -> Cell:
    try:
        value = float(text)
    except ValueError:
        return Cell(text)
    if not math.isfinite(value):
        return Cell(text)
    if column in _PRINTED and len(text) <= 8:
        return Cell(text, value)
    digits = 5 if column == "value" else 4
    if column == "lower" or (down and column not in ("ours", "ratio")):
        return Cell.below(value, digits)
    return Cell.bound(value, digits) if column in _UP else Cell.number(value)


def write_page(folder: Path, run: Mapping[str, Any]) -> None:
    """The file report.html: summaries, figures and tables of all sections, and how they were run."""
    sections = []
    for part in run["sections"].values():
        drawn = [Figure((folder / one["file"]).read_bytes(), one["caption"], wide=True) for one in part["figures"]]
        blocks = [part["summary"], *drawn, *(csv_table(folder / name) for name in part["csv"])]
        sections.append(Section(part["title"], part["summary"], blocks))
    facts = {"machine": run["machine"], **run["versions"]}
    rows = [(Cell(name), Cell(fact)) for name, fact in facts.items()]
    text = (
        f"The {'quick' if run['quick'] else 'full'} selection, at most {run['timeout']:g} s a cell and method; started"
        f" {run['started']}, finished {run['finished']}. Images: {run['data'] or 'none'}."
    )
    sections.append(Section("How this was run", text, [Table("Versions and machine", ("what", "which"), rows)]))
    write_whole(folder / "report.html", page("The paper, reproduced", sections, f"Finished {run['finished']}"))
