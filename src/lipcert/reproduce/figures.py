"""The paper's figures, drawn from what was found here (extra ``plot``).

Methods look as in :func:`lipcert.show.plots.look`; those of the literature have thin dashed lines, lipcert's own thick
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lipcert.questions.certify import PUBLISHED
from lipcert.reproduce.cells import AUTODIFF, LOWER, REFERENCES, STUDIES
from lipcert.reproduce.mnist import PAPER_METHOD, Sample, Study
from lipcert.reproduce.printed import PAPER_RADII
from lipcert.show import plots

Drawn: TypeAlias = dict[str, str]
"""The file of a figure in the folder of results, and a caption."""
Row: TypeAlias = dict[str, Any]


def draw_table(folder: Path, name: str, rows: Sequence[Row]) -> list[Drawn]:
    """The figures of a table or of the radius study, as SVG."""
    if name == "radius":
        return [_draw_radii(folder, [row for row in rows if row["layers"] == n]) for n in _values(rows, "layers")]
    title, figures = STUDIES[name].title, []
    for stem, axis, other, preferred in (("depth", "layers", "width", 0), ("width", "width", "layers", 1)):
        # the other size is the one that most cells have; the paper's choice if there is no better one
        counts = Counter(row[other] for row in rows)
        fixed = max(counts, key=lambda value: (counts[value], value == STUDIES[name].fixed[preferred]))
        what = f"{title}; {other} {fixed}"
        figure = _panels([row for row in rows if row[other] == fixed], axis, what)
        caption = f"{what}: bounds over the trivial bound, and seconds, against {axis}."
        figures.append(_saved(folder, f"{name}_{stem}", figure, caption))
    return figures


def _saved(folder: Path, stem: str, figure: Any, caption: str) -> Drawn:
    figure.savefig(folder / "figures" / f"{stem}.svg", bbox_inches="tight")
    return {"file": f"figures/{stem}.svg", "caption": caption}


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    return sorted({row[name] for row in rows})


def _panels(rows: Sequence[Row], axis: str, title: str) -> Any:
    """Two panels: bounds and seconds against a size, with a red cross where a method took too long."""
    figure = plots.figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    trivial = {row[axis]: row["value"] for row in rows if row["method"] == "trivial" and row["value"]}
    for method in _methods(rows, ("trivial", AUTODIFF)):
        mine = sorted((row for row in rows if row["method"] == method), key=lambda row: row[axis])
        shares = [
            (row[axis], row["value"] / trivial[row[axis]]) for row in mine if row["value"] and row[axis] in trivial
        ]
        left.plot(*np.reshape(shares, (-1, 2)).T, label=method, **_style(method))
        if method not in REFERENCES:
            for status, look in (
                ("ok", _style(method)),
                ("timeout", {"color": "r", "marker": "x", "linestyle": "none"}),
            ):
                times = [(row[axis], row["seconds"]) for row in mine if row["status"] == status]
                right.plot(*np.reshape(times, (-1, 2)).T, **look)
    for ax, label in ((left, "bound / trivial bound"), (right, "seconds (× over the limit)")):
        ax.set(yscale="log", xlabel=axis, ylabel=label, xticks=_values(rows, axis))
        ax.grid(True, which="major", alpha=0.3)
    figure.suptitle(title, fontsize=11)
    if left.get_legend_handles_labels()[0]:
        figure.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False, handlelength=3.5)
    figure.tight_layout()
    return figure


def _methods(rows: Sequence[Row], without: Sequence[str] = ()) -> list[str]:
    """The methods that have something to show: lipcert's, the references, then the others."""
    names = {row["method"]: row["origin"] for row in rows if row["value"] and row["method"] not in without}
    return sorted(names, key=lambda name: ("lipcert", "reference", "published").index(names[name]))


def _style(method: str) -> dict[str, Any]:
    if method in REFERENCES:
        return {"color": "black" if method == LOWER else "#777777", "linestyle": ":", "linewidth": 1.5}
    return plots.look(method) | ({"linewidth": 1.0, "linestyle": "--"} if method in PUBLISHED else {"linewidth": 2.0})


def _draw_radii(folder: Path, rows: Sequence[Row]) -> Drawn:
    layers, ax = rows[0]["layers"], plots.figure().subplots()
    for method in _methods(rows):
        points = sorted(
            (float(row["radius"]), row["value"]) for row in rows if row["method"] == method and row["value"]
        )
        label = "Jacobian at the centre" if method == AUTODIFF else method
        ax.plot(*np.transpose(points), label=label, **_style(method))
    ax.set(xscale="log", yscale="log", xlabel="radius of the ball, √5·δ", ylabel="Lipschitz bound")
    ax.set_title(f"{layers} layers of 128 neurons, LeakyReLU", fontsize=11)
    ax.grid(True, which="major", alpha=0.3)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, handlelength=3.5)
    caption = f"Bounds against the radius, {layers} layers of 128 neurons."
    return _saved(folder, f"radius_{layers}", ax.figure, caption)


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
        figure.suptitle(f"{study.images.name}: local bounds around {points}, and failures under attack", fontsize=11)
        figure.tight_layout()
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 4}
        figure.legend(handles=handles, fontsize=9, frameon=False, **below)
        caption = f"Mean local bounds around {points} ± one standard deviation; failures in percent."
        figures.append(_saved(folder, f"mnist_{choice}", figure, caption))
    return figures


def _draw_bounds(ax: Any, study: Study, samples: Sequence[Sample], method: str) -> list[Any]:
    """Bounds on a logarithmic axis, failures on a second one; returns what the legend shows."""
    radii, second = np.array(PAPER_RADII), ax.twinx()
    for sample, color, marker in zip(samples, ("#1f4e9c", "#d95f02"), "os", strict=True):
        name, style = sample.classifier.name, {"color": color, "marker": marker}
        mean, spread = sample.bounds[method].mean(axis=0), sample.bounds[method].std(axis=0)
        ax.plot(radii, mean, linewidth=2.0, label=f"{name}: bound", **style)
        ax.fill_between(radii, np.maximum(mean - spread, 0.05 * mean), mean + spread, color=color, alpha=0.2)
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
