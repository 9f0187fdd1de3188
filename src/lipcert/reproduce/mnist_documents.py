"""The MNIST study as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.files import write_whole
from lipcert.reproduce.documents import markdown, shown, write_csv
from lipcert.reproduce.mnist import PAPER_METHOD, RULES, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII, PaperModel, paper_model
from lipcert.show.wording import describe_network

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
_INTRODUCTION = """\
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


def summary(study: Study) -> str:
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
    introduction = _INTRODUCTION.format(layers=layers, data=data[study.images.name], count=len(first.margins))
    models = {sample.classifier.name: sample.classifier for sample in study.samples}
    facts = [(n, f"{one.accuracy:.2%}", f"{one.epochs}", shown(study.trivial[n], "up")) for n, one in models.items()]
    parts = [f"# {TITLE}", introduction, summary(study)]
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
