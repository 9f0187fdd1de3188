"""Results of the studies as CSV files, and the same tables in Markdown."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.files.whole import write_whole
from lipcert.model.arrays import Array
from lipcert.questions.certify import OWN
from lipcert.questions.tables import Cell, Table
from lipcert.reproduce.cells import STUDIES, origin
from lipcert.reproduce.mnist import PAPER_METHOD, RULES, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII, PaperModel, paper_model
from lipcert.reproduce.tables import Line, Plan
from lipcert.show.report.writing import csv_table
from lipcert.show.wording import describe_network


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A file with a line of names and a line a row; None is empty, numbers have all their digits."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_whole(path, text.getvalue())


def markdown(table: Table) -> str:
    """A Markdown table; numbers are aligned to the right.

    Examples
    --------
    >>> print(markdown(Table("", ("cell", "bound"), [(Cell("10 × 5"), Cell.bound(4.943))])))
    | cell | bound |
    |---|---:|
    | 10 × 5 | 4.943 |
    """
    sides = ["---:" if right else "---" for right in table.numeric]
    lines = [table.headings, *([cell.text for cell in row] for row in table.rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], f"|{'|'.join(sides)}|", *text[1:]])


def _write(path: Path, *parts: str) -> None:
    write_whole(path, "\n\n".join(part.strip() for part in parts) + "\n")


HEADER = (
    *("table", "width", "layers", "radius", "method", "origin", "paper", "value", "difference", "agrees"),
    *("paper_seconds", "seconds", "status", "lower", "best_paper", "ours", "ratio"),
)
_TABLE = """\
The networks are the paper's, regenerated from their seeds; the ball has radius √5·δ, with which its tables were
computed. *Paper* is what is printed, *value* what came out on this machine: of methods of the literature the number as
published, of lipcert's own a bound that is proved with rounding accounted for. Seconds of the paper are of its machine.
A method that took longer than {timeout:g} s has *timeout*, and is *not started* on networks wider and deeper still.
"""


def write_table(folder: Path, plan: Plan, found: Sequence[Line]) -> None:
    """The files NAME.csv and NAME.md of a study."""
    file = folder / f"{plan.study}.csv"
    write_csv(file, HEADER, map(_record, found))
    whole = csv_table(file).without("table", "origin", "lower", "best paper", "ours", "ratio")
    parts = [f"# {STUDIES[plan.study].title}", _TABLE.format(timeout=plan.timeout), table_summary(found)]
    parts += ["## Bounds, cell by cell", markdown(_cells(found)), "## Every method", markdown(whole)]
    _write(folder / f"{plan.study}.md", *parts)


def _record(line: Line) -> tuple[object, ...]:
    cell, result = line.cell, line.result
    agreement = {True: "yes", False: "no", None: None}[line.agreement]
    return (
        *(cell.study, cell.width, cell.layers, f"{cell.delta * math.sqrt(5.0):.6g}", line.method, origin(line.method)),
        *(line.printed.bound, result.value, line.difference, agreement, line.printed.seconds, result.seconds),
        *(result.status, line.lower, line.best_paper, line.ours, line.ratio),
    )


def table_summary(found: Sequence[Line]) -> str:
    """What the table shows, in a sentence or three."""
    firsts = [next(group) for _, group in groupby(found, key=lambda line: line.cell)]
    ratios = [line.ratio for line in firsts if line.ratio is not None]
    gaps = [line.ours / line.lower for line in firsts if line.ours is not None and line.lower]
    compared = [line for line in found if line.agreement is not None]
    text = []
    if ratios:
        below = sum(line.below is True for line in firsts)
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


def _cells(found: Sequence[Line]) -> Table:
    """A row per cell: the best printed figure, lipcert's bounds, the lower bound."""
    names = [name for name in OWN if any(line.method == name for line in found)]
    rows = []
    for cell, group in groupby(found, key=lambda line: line.cell):
        values, place = {}, f"{cell.width} × {cell.layers}"
        for line in group:
            values[line.method] = line.result.value
        place += f", δ = {cell.delta:g}" if cell.study == "radius" else ""
        own = (Cell.bound(values.get(name)) for name in names)
        ends = Cell.below(line.lower), Cell.number(line.ratio, ".3g")
        rows.append((Cell(place), Cell.number(line.best_paper), *own, *ends))
    headings = ("width × layers", "best printed", *names, "lower bound", "best of ours / best printed")
    return Table("", headings, rows)


TITLE: Final = "A plain and a regularised classifier"
MEANING: Final = {
    "trivial": "margin/(√2·L), L the product of the layers' norms",
    "paper": "the paper's rule with its bounds: max over ε of min(ε, margin/(√2·L(ε)))",
    "plain": "the same rule with lipcert's bounds (joint)",
    "pairs": "a bound for every pair of classes, the same ε",
    "search": "pairs of classes, linear relaxation, ε searched for",
    "curved": "the same, and a bound to second order",
    "valid": "the same, where only inputs with pixels in [0, 1] count, as for attacks",
}
"""What the rules of certified radii are."""
_CHOICES: Final = {"random": "random points", "images": "test images"}
_BOUNDS = (
    *("model", "points", "radius", "method", "mean", "deviation", "paper_mean", "paper_deviation"),
    *("failure", "paper_failure", "seconds"),
)
_RADII = ("model", "points", "rule", "mean", "ratio", "paper_ratio", "attacked")
_STUDY = """\
Two classifiers, {layers} with ELU neurons: *baseline* trained with cross-entropy, *regularised* with the squared norm
of the Jacobian added to it. {data} Bounds hold over balls of radius ε around {count} points: *random* in
all of [0, 1]ⁿ, as in the paper's code, or *images* of the test set. Failures are in percent of the test set, under
attack within ε.
"""
_DATA = {"mnist": "They are trained on MNIST.", "digits": "They are trained on scikit-learn's digits, not on MNIST."}


def write_study(folder: Path, study: Study) -> None:
    """The files mnist.csv, mnist_radii.csv, mnist_points.csv and mnist.md."""
    bounds, radii = folder / "mnist.csv", folder / "mnist_radii.csv"
    write_csv(bounds, _BOUNDS, _bounds(study))
    write_csv(radii, _RADII, [row for sample in study.samples for row in _radii(study, sample)])
    header = ("model", "points", "point", "predicted", "margin", *RULES, "attacked")
    write_csv(folder / "mnist_points.csv", header, [row for sample in study.samples for row in _points(sample)])
    models = {sample.classifier.name: sample.classifier for sample in study.samples}
    facts = [
        (Cell(n), Cell(f"{one.accuracy:.2%}"), Cell.number(one.epochs, "d"), Cell.bound(study.trivial[n]))
        for n, one in models.items()
    ]
    first = study.samples[0]
    layers = describe_network(first.classifier.network).removesuffix(", elu")
    _write(
        folder / "mnist.md",
        f"# {TITLE}",
        _STUDY.format(layers=layers, data=_DATA[study.images.name], count=len(first.margins)),
        study_summary(study),
        markdown(Table("", ("model", "accuracy", "epochs", "trivial bound"), facts)),
        "## Local bounds, and failures in percent",
        markdown(csv_table(bounds)),
        "## Certified radii",
        markdown(csv_table(radii)),
        "\n".join(f"* {rule}: {meaning}" for rule, meaning in MEANING.items()),
    )


def _printed(study: Study, name: str) -> PaperModel | None:
    return paper_model(name) if study.images.name == "mnist" else None


def _bounds(study: Study) -> Iterator[tuple[object, ...]]:
    for sample in study.samples:
        name = sample.classifier.name
        printed = _printed(study, name)
        for method, bounds in sample.bounds.items():
            same = printed if (method, sample.choice) == (PAPER_METHOD, "random") else None
            for number, radius in enumerate(PAPER_RADII):
                theirs = (None, None) if same is None else _spread(same.bounds[:, number])
                failure = float(study.failures[name][number])
                paper_failure = None if printed is None else float(printed.failures[number])
                yield (
                    *(name, sample.choice, radius, method, *_spread(bounds[:, number]), *theirs),
                    *(failure, paper_failure, sample.seconds[method]),
                )


def _spread(column: Array) -> tuple[float, float]:
    return float(column.mean()), float(column.std())


def _radii(study: Study, sample: Sample) -> Iterator[tuple[object, ...]]:
    printed = _printed(study, sample.classifier.name)
    broken = sample.broken[np.isfinite(sample.broken)]
    attacked = float(broken.mean()) if broken.size else None
    for rule, radii in sample.radii.items():
        paper = printed.ratio if printed is not None and (rule, sample.choice) == ("paper", "random") else None
        yield sample.classifier.name, sample.choice, rule, float(radii.mean()), ratio(sample, rule), paper, attacked


def ratio(sample: Sample, rule: str) -> float:
    """Mean certified radius over that of the trivial bound."""
    return float(sample.radii[rule].mean() / sample.radii["trivial"].mean())


def _points(sample: Sample) -> Iterator[tuple[object, ...]]:
    for number, (predicted, margin, broken) in enumerate(
        zip(sample.predicted.tolist(), sample.margins.tolist(), sample.broken.tolist(), strict=True)
    ):
        radii = [float(sample.radii[rule][number]) if rule in sample.radii else None for rule in RULES]
        away = broken if np.isfinite(broken) else None
        yield (sample.classifier.name, sample.choice, number, predicted, margin, *radii, away)


def study_summary(study: Study) -> str:
    """What the study shows, in a few sentences."""
    models = {sample.classifier.name: sample.classifier for sample in study.samples}
    right = ", ".join(f"{one.accuracy:.2%} ({name})" for name, one in models.items())
    text = [f"Accuracy on the test set: {right}."]
    for sample in study.samples:
        if sample.classifier.name == "regularised" and "paper" in sample.radii:
            ours, theirs = ratio(sample, "curved"), ratio(sample, "paper")
            text.append(
                f"Regularised model, {_CHOICES[sample.choice]}: certified radii are {ours:.3g} times those of the"
                f" trivial bound, {theirs:.3g} times by the paper's rule (lipcert / paper's rule: {ours / theirs:.3g});"
                f" {ratio(sample, 'valid'):.3g} times where only inputs with pixels in [0, 1] count."
            )
    return " ".join(text)
