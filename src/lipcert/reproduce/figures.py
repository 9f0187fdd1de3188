"""The paper's figures, drawn from what was found here (extra ``plot``).

Methods look as in :func:`lipcert.show.plots.look`; those of the literature have thin dashed lines, lipcert's own thick
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lipcert.questions.certify import PUBLISHED
from lipcert.reproduce.cells import AUTODIFF, LOWER, REFERENCES, STUDIES, origin
from lipcert.reproduce.mnist import PAPER_METHOD, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII
from lipcert.reproduce.tables import Line, Plan
from lipcert.show import plots

Drawn: TypeAlias = tuple[str, str]
"""A file of a figure, without its ending, and what it shows."""


def draw_table(folder: Path, plan: Plan, found: Sequence[Line]) -> list[Drawn]:
    """The figures of a table or of the radius study, as SVG."""
    if plan.study == "radius":
        return [_draw_radii(folder, found, layers) for layers in sorted({line.cell.layers for line in found})]
    facts, figures = STUDIES[plan.study], []
    for name, axis, size, other, preferred, unit in (
        ("depth", "layers", "layers", "width", facts.fixed[0], "neurons per layer"),
        ("width", "neurons per layer", "width", "layers", facts.fixed[1], "layers"),
    ):
        # the other size is the one that most cells have; the paper's choice if there is no better one
        counts = Counter(getattr(cell, other) for cell in {line.cell for line in found})
        fixed = max(counts, key=lambda value: (counts[value], value == preferred))
        part = [line for line in found if getattr(line.cell, other) == fixed]
        figure = _panels(part, size, axis, f"{facts.title}, {fixed} {unit}")
        figure.savefig(folder / f"{plan.study}_{name}.svg", bbox_inches="tight")
        caption = f"{facts.title}; {fixed} {unit}: bounds over the trivial bound, and seconds, against {axis}."
        figures.append((f"{plan.study}_{name}", caption))
    return figures


def _panels(found: Sequence[Line], name: str, axis: str, title: str) -> Any:
    """Two panels: bounds and seconds against a size, with a red cross where a method took too long."""
    figure = plots.figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    trivial = {line.cell: line.result.value for line in found if line.method == "trivial"}

    def line_of(ax: Any, part: Iterable[Line], value: Callable[[Line], float | None], *form: str, **look: Any) -> None:
        points = sorted((getattr(line.cell, name), y) for line in part if (y := value(line)) is not None)
        ax.plot([x for x, _ in points], [y for _, y in points], *form, **look)

    def share(line: Line) -> float | None:
        most = trivial.get(line.cell)
        return line.result.value / most if line.result.value and most else None

    for method in _methods(found, ("trivial", AUTODIFF)):
        part = [line for line in found if line.method == method]
        line_of(left, part, share, label=method, **_style(method))
        if method not in REFERENCES:
            done = [line for line in part if line.result.value is not None]
            late = [line for line in part if line.result.status == "timeout"]
            line_of(right, done, lambda line: line.result.seconds, **_style(method))
            line_of(right, late, lambda line: line.result.seconds, "rx", markersize=9, markeredgewidth=2)
    for ax, label in ((left, "bound / trivial bound"), (right, "seconds (× over the limit)")):
        ax.set(yscale="log", xlabel=axis, ylabel=label, xticks=sorted({getattr(line.cell, name) for line in found}))
        ax.grid(True, which="major", alpha=0.3)
    figure.suptitle(title, fontsize=11)
    if left.get_legend_handles_labels()[0]:
        figure.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False, handlelength=3.5)
    figure.tight_layout()
    return figure


def _methods(found: Sequence[Line], without: Sequence[str] = ()) -> list[str]:
    """The methods that have something to show: lipcert's, the references, then the others."""
    names = dict.fromkeys(line.method for line in found if line.result.value and line.method not in without)
    return sorted(names, key=lambda name: ("lipcert", "reference", "published").index(origin(name)))


def _style(method: str) -> dict[str, Any]:
    if method == LOWER:
        return {"color": "black", "linestyle": ":", "linewidth": 1.5, "marker": "_", "markersize": 10}
    if method == AUTODIFF:
        return {"color": "#777777", "linestyle": "-", "linewidth": 1.0}
    if method == "auto":  # it often ends where joint does, so it is drawn broad and pale underneath
        return plots.look(method) | {"linewidth": 5.0, "markersize": 13, "zorder": 1.5}
    return plots.look(method) | ({"linewidth": 1.0, "linestyle": "--"} if method in PUBLISHED else {"linewidth": 2.0})


def _draw_radii(folder: Path, found: Sequence[Line], layers: int) -> Drawn:
    ax = plots.figure().subplots()
    part = [line for line in found if line.cell.layers == layers]
    for method in _methods(part):
        points = sorted((line.cell.delta, line.result.value or 0.0) for line in part if line.method == method)
        radii, values = zip(*(point for point in points if point[1]), strict=True)
        flat = {"marker": None} if method in ("trivial", AUTODIFF, "eclipse-fast") else {}
        label = "Jacobian at the centre" if method == AUTODIFF else method
        ax.plot(radii, values, label=label, **(_style(method) | flat))
    ax.set(xscale="log", yscale="log", xlabel="radius δ (the ball has √5·δ)", ylabel="Lipschitz bound")
    ax.set_title(f"{layers} layers of 128 neurons, LeakyReLU", fontsize=11)
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, handlelength=3.5)
    ax.figure.savefig(folder / f"radius_{layers}.svg", bbox_inches="tight")
    return f"radius_{layers}", f"Bounds against the radius, {layers} layers of 128 neurons."


def draw_study(folder: Path, study: Study) -> list[Drawn]:
    """The figures of the MNIST study: one for each way to choose points."""
    figures = []
    for choice, points in (("random", "random points"), ("images", "test images")):
        samples = [sample for sample in study.samples if sample.choice == choice]
        names = [name for name in (PAPER_METHOD, "joint") if name in samples[0].bounds]
        if not names:
            continue
        figure = plots.figure(5.5 * len(names), 4.6)
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        handles = [_draw_bounds(ax, study, samples, method) for ax, method in zip(panels, names, strict=True)][-1]
        data = {"mnist": "MNIST", "digits": "digits"}[study.images.name]
        figure.suptitle(f"{data}: local bounds around {points}, and failures under attack", fontsize=11)
        figure.tight_layout()
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 4}
        figure.legend(handles=handles, fontsize=9, frameon=False, **below)
        figure.savefig(folder / f"mnist_{choice}.svg", bbox_inches="tight")
        caption = f"Mean local bounds around {points} ± one standard deviation; failures in percent."
        figures.append((f"mnist_{choice}", caption))
    return figures


def _draw_bounds(ax: Any, study: Study, samples: Sequence[Sample], method: str) -> list[Any]:
    """Bounds on a logarithmic axis, failures on a second one; returns what the legend shows."""
    radii, second = np.array(PAPER_RADII), ax.twinx()
    for sample, color, marker in zip(samples, ("#1f4e9c", "#d95f02"), "os", strict=True):
        name, style = sample.classifier.name, {"color": color, "marker": marker}
        mean, spread = sample.bounds[method].mean(axis=0), sample.bounds[method].std(axis=0)
        ax.plot(radii, mean, linewidth=2.0, label=f"{name}: bound", **style)
        least = np.maximum(mean - spread, 0.05 * mean)
        ax.fill_between(radii, least, mean + spread, color=color, alpha=0.2, linewidth=0)
        light = style | {"linestyle": "--", "markerfacecolor": "none"}
        second.plot(radii, study.failures[name], linewidth=1.0, label=f"{name}: failures", **light)
    plots.logarithmic(ax)
    ax.set_xscale("log", base=2)
    ax.set_xticks(radii, [f"1/{round(1 / radius)}" for radius in radii], fontsize=8)
    ax.set(xlabel="radius ε", ylabel="local Lipschitz bound, mean ± deviation")
    second.set(ylim=(0.0, None), ylabel="failures, percent of the test set")
    ax.set_title(method, fontsize=10)
    ax.grid(True, which="major", alpha=0.3)
    return [*ax.get_legend_handles_labels()[0], *second.get_legend_handles_labels()[0]]
