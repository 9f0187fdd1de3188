"""Results as CSV and Markdown."""

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
from lipcert.questions.names import OWN
from lipcert.reproduce.cells import STUDIES, Cell, origin
from lipcert.reproduce.mnist import PAPER_METHOD, RULES, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII, PaperModel, paper_model
from lipcert.reproduce.tables import Line, Plan
from lipcert.show.wording import describe_network, downward, upward


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A file with a line of names and a line a row; None is empty, numbers have all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns but the first are aligned to the right.

    Examples
    --------
    >>> print(markdown(("cell", "bound"), [("10 × 5", "4.943")]))
    | cell | bound |
    |---|---:|
    | 10 × 5 | 4.943 |
    """
    lines = [header, *rows]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([text[0], "|---" + "|---:" * (len(header) - 1) + "|", *text[1:]])


def shown(value: float | None, rounding: str = "nearest", digits: int = 4) -> str:
    """A number for people: rounded "up" (bounds), "down" (lower bounds) or to the "nearest"; nothing for None."""
    if value is None:
        return ""
    if rounding == "nearest":
        return f"{value:.{digits}g}"
    return upward(value, digits) if rounding == "up" else downward(value, digits)


HEADER = (
    *("table", "width", "layers", "radius", "method", "origin", "paper", "value", "difference", "agrees"),
    *("paper_seconds", "seconds", "status", "lower", "best_paper", "ours", "ratio"),
)
_TABLE = """\
The networks are the paper's, regenerated from their seeds; the ball has radius √5·δ, with which its tables were
computed. *Paper* is what is printed, *here* what came out on this machine: of methods of the literature the number as
published, of lipcert's own a bound that is proved with rounding accounted for. Seconds of the paper are of its machine.
A method that took longer than {timeout:g} s has *timeout*, and is *not started* on networks wider and deeper still.
"""


def write_table(folder: Path, plan: Plan, found: Sequence[Line]) -> None:
    """The files NAME.csv and NAME.md of a study."""
    write_csv(folder / f"{plan.study}.csv", HEADER, [_record(line) for line in found])
    parts = [f"# {STUDIES[plan.study].title}", _TABLE.format(timeout=plan.timeout), table_summary(found)]
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


def table_summary(found: Sequence[Line]) -> str:
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


def write_study(folder: Path, study: Study) -> None:
    """The files mnist.csv, mnist_radii.csv, mnist_points.csv and mnist.md."""
    write_csv(folder / "mnist.csv", _BOUNDS, _bounds(study))
    write_csv(folder / "mnist_radii.csv", _RADII, [row for sample in study.samples for row in _radii(study, sample)])
    header = ("model", "points", "point", "predicted", "margin", *RULES, "attacked")
    write_csv(folder / "mnist_points.csv", header, [row for sample in study.samples for row in _points(sample)])
    write_whole(folder / "mnist.md", _text(study))


def _printed(study: Study, name: str) -> PaperModel | None:
    """What the paper prints of a model; only of MNIST."""
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


def _radii(study: Study, sample: Sample) -> Iterator[tuple[Any, ...]]:
    printed = _printed(study, sample.classifier.name)
    broken = sample.broken[np.isfinite(sample.broken)]
    for rule, radii in sample.radii.items():
        paper = printed.ratio if printed is not None and (rule, sample.choice) == ("paper", "random") else None
        mean = float(radii.mean())
        attacked = float(broken.mean()) if broken.size else None
        yield (sample.classifier.name, sample.choice, rule, mean, ratio(sample, rule), paper, attacked)


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


def _text(study: Study) -> str:
    data = {"mnist": "They are trained on MNIST.", "digits": "They are trained on scikit-learn's digits, not on MNIST."}
    first = study.samples[0]
    layers = describe_network(first.classifier.network).removesuffix(", elu")
    introduction = _STUDY.format(layers=layers, data=data[study.images.name], count=len(first.margins))
    models = {sample.classifier.name: sample.classifier for sample in study.samples}
    facts = [(n, f"{one.accuracy:.2%}", f"{one.epochs}", shown(study.trivial[n], "up")) for n, one in models.items()]
    parts = [f"# {TITLE}", introduction, study_summary(study)]
    parts += [markdown(("model", "accuracy", "epochs", "trivial bound"), facts)]
    parts += ["## Attacks: failures in percent", _failures(study), "## Mean local bounds", _means(study)]
    parts += ["## Certified radii", _certified(study)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


_AXIS = tuple(f"1/{round(1 / radius)}" for radius in PAPER_RADII)


def _failures(study: Study) -> str:
    rows = []
    for name, rates in study.failures.items():
        rows.append((name, *(f"{rate:.2f}" for rate in rates)))
        printed = _printed(study, name)
        if printed is not None:
            rows.append((f"{name}, paper", *(f"{rate:.2f}" for rate in printed.failures)))
    return markdown(("ε", *_AXIS), rows)


def _means(study: Study) -> str:
    rows = []
    for sample in study.samples:
        name = sample.classifier.name
        for method, bounds in sample.bounds.items():
            means = (shown(float(mean)) for mean in bounds.mean(axis=0))
            rows.append((f"{name}, {sample.choice}", method, *means, f"{sample.seconds[method]:.2f}"))
        printed = _printed(study, name)
        if printed is not None and sample.choice == "random":
            means = (shown(float(mean)) for mean in printed.bounds.mean(axis=0))
            rows.append((f"{name}, {sample.choice}, paper", PAPER_METHOD, *means, ""))
    return markdown(("model, points", "method", *_AXIS, "seconds each"), rows)


def _certified(study: Study) -> str:
    rows = []
    for sample in study.samples:
        for name, points, rule, mean, *others in _radii(study, sample):
            rows.append((f"{name}, {points}", rule, shown(mean, "down"), *(shown(other, digits=3) for other in others)))
    header = ("model, points", "rule", "mean radius", "ratio to trivial", "paper's ratio", "broken by attack at")
    rules = "\n".join(f"* {rule}: {meaning}" for rule, meaning in MEANING.items())
    return f"{markdown(header, rows)}\n\n{rules}"
