"""Results of the studies as files: CSV, and a page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from lipcert.files.whole import write_whole
from lipcert.model.arrays import Array
from lipcert.questions.tables import Cell, Table
from lipcert.reproduce.mnist import PAPER_METHOD, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII, agrees, paper_model
from lipcert.show.report.page import Figure, Section, page


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file with a line of names and a line a row; what a row lacks is empty, numbers have all their digits."""
    text, names = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def table_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the rows of a table show, in a sentence or three."""
    cells = list({(row["width"], row["layers"], row["radius"]): row for row in rows}.values())
    known = [row for row in cells if row["ratio"] is not None]
    gaps = [row["ours"] / row["lower"] for row in cells if row["ours"] and row["lower"]]
    same = [row["agrees"] == "yes" for row in rows if row["agrees"]]
    text = []
    if known:
        below = sum(row["ratio"] <= 1.0 or agrees(row["ours"], row["best_paper"]) for row in known)
        text.append(
            f"lipcert's best bound is at or below the smallest printed figure in {below} of {len(known)} cells, by a"
            f" median factor of {1.0 / median(row['ratio'] for row in known):.3g}."
        )
    if gaps:
        text.append(f"It is {median(gaps):.3g} times the lower bound in the median, {max(gaps):.3g} at most.")
    if same:
        text.append(f"Of {len(same)} printed numbers computed again, {sum(same)} agree in every printed digit.")
    return " ".join(text)


def write_study(folder: Path, study: Study) -> None:
    """The files mnist.csv, with local bounds and failures by radius, and mnist_radii.csv, with certified radii."""
    bounds, certified = list[dict[str, Any]](), list[dict[str, Any]]()
    for sample in study.samples:
        name, broken = sample.classifier.name, sample.broken[np.isfinite(sample.broken)]
        about, paper = (
            {"model": name, "points": sample.choice},
            paper_model(name) if study.images.name == "mnist" else {},
        )
        for method, found in sample.bounds.items():
            same = paper.get("bound") if (method, sample.choice) == (PAPER_METHOD, "random") else None
            for k, radius in enumerate(PAPER_RADII):
                row = {**about, "radius": radius, "method": method, "seconds": sample.seconds[method]}
                row |= _spread("", found[:, k]) | ({} if same is None else _spread("paper_", same[:, k]))
                row |= {"failure": study.failures[name][k]} | ({"paper_failure": paper["failure"][k]} if paper else {})
                bounds.append(row)
        for rule, radii in sample.radii.items():
            row = {**about, "rule": rule, "mean": radii.mean(), "ratio": ratio(sample, rule)}
            row |= {"attacked": broken.mean()} if broken.size else {}
            printed = rule == "paper" and sample.choice == "random" and "ratio" in paper
            certified.append(row | ({"paper_ratio": paper["ratio"][0]} if printed else {}))
    write_csv(folder / "mnist.csv", bounds)
    write_csv(folder / "mnist_radii.csv", certified)


def _spread(start: str, column: Array) -> dict[str, float]:
    return {f"{start}mean": column.mean(), f"{start}deviation": column.std()}


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
"""Columns of upper bounds, rounded up."""
_PRINTED: Final = ("paper", "best_paper", "paper_seconds")
"""Columns shown as they are written."""


def csv_table(file: Path) -> Table:
    """The columns of a CSV file that are not empty, with numbers rounded for people: bounds up, lower bounds down."""
    records = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    columns = [column for column in (records[0] if records else ()) if any(record[column] for record in records)]
    radii = "rule" in columns  # safe when rounded down, as lower bounds are
    rows = [
        [_cell(column, record[column], radii or record.get("origin") == "reference") for column in columns]
        for record in records
    ]
    return Table(file.name, [column.replace("_", " ") for column in columns], rows, folded=len(rows) > _FOLDED)


def _cell(column: str, text: str, down: bool) -> Cell:
    try:
        value = float(text)
    except ValueError:
        return Cell(text)
    if not math.isfinite(value) or len(text) <= 5 or column in _PRINTED:
        return Cell(text, value if math.isfinite(value) else None)
    if column == "lower" or (down and column not in ("ours", "ratio")):
        return Cell.below(value, 4)
    return Cell.bound(value, 4) if column in _UP else Cell.number(value)


def write_page(folder: Path, run: Mapping[str, Any]) -> None:
    """The file report.html: summaries, figures and tables of all sections, and how they were run."""
    sections = []
    for part in run["sections"].values():
        drawn = [Figure((folder / one["file"]).read_bytes(), one["caption"], wide=True) for one in part["figures"]]
        blocks = [part["summary"], *drawn, *(csv_table(folder / name) for name in part["csv"])]
        sections.append(Section(part["title"], part["summary"], blocks))
    rows = [(Cell(name), Cell(fact)) for name, fact in {"machine": run["machine"], **run["versions"]}.items()]
    text = (
        f"The {'quick' if run['quick'] else 'full'} selection, at most {run['timeout']:g} s a cell and method; started"
        f" {run['started']}, finished {run['finished']}. Images: {run['data'] or 'none'}."
    )
    sections.append(Section("How this was run", text, [Table("Versions and machine", ("what", "which"), rows)]))
    write_whole(folder / "report.html", page("The paper, reproduced", sections, f"Finished {run['finished']}"))
