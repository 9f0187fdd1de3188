"""How tight against how long: every method on the same networks and balls, as a figure and a table.

Run: python benchmarks/trade_off.py        (about ten minutes; with --draw, only the figure from the measurements there)

For 12 of the paper's random networks and balls of two radii: the ratio of each bound to the attained lower bound, and
the seconds, proof included. Writes docs/figures/trade-off.csv, every measurement, and trade-off.svg,
and prints geometric means.
"""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert import published
from lipcert.methods.method import Method
from lipcert.model.regions import Ball
from lipcert.reproduce.cells import paper_center, paper_network

WIDTHS, LAYERS, ACTIVATIONS, RADII = (20, 40), (5, 10), ("relu", "elu", "tanh"), (0.1, 1.0)
OWN: dict[str, Method] = {
    "ClosedForm": lc.ClosedForm(),
    "Scalar": lc.Scalar(),
    "Diagonal": lc.Diagonal(),
    "Joint": lc.Joint(),
    "Split, 3 s": lc.Split(seconds=3.0),
    "Auto, 10 s": lc.Auto(),
}
LITERATURE: dict[str, Method] = {
    "trivial": published.Trivial(),
    "ECLipsE-Fast": published.EclipseFast(),
    "LipSDP": published.LipSDP("neuron"),
    "Gen-Local CF": published.EclipseGenLocal("CF"),
    "Gen-Local Fast": published.EclipseGenLocal("Fast"),
    "Gen-Local Acc": published.EclipseGenLocal("Acc"),
}
COLUMNS = ("width", "layers", "activation", "radius", "method", "bound", "lower", "seconds")
Row = dict[str, Any]


def measure(file: Path) -> None:
    """Every method on every network and ball; a method of the literature counts with the number it publishes."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for width, layers, activation, radius in itertools.product(WIDTHS, LAYERS, ACTIVATIONS, RADII):
            network, ball = paper_network(width, layers, activation), Ball(paper_center(), radius)
            lower = lc.lower_bound(network, ball).value
            for name, method in (LITERATURE | OWN).items():
                certificate = lc.certify(network, ball, method)
                bound = certificate.bound
                if isinstance(method, published.Published):
                    bound = max(bound, method.value(network, ball))
                seconds = f"{certificate.seconds:.4g}"
                writer.writerow((width, layers, activation, radius, name, repr(bound), repr(lower), seconds))
            stream.flush()
            print(f"{width} × {layers} {activation}, radius {radius}", flush=True)


def read(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as stream:
        numbers = ("radius", "bound", "lower", "seconds")
        return [row | {name: float(row[name]) for name in numbers} for row in csv.DictReader(stream)]


def means(rows: list[Row], name: str, radius: float) -> tuple[float, float]:
    """Geometric means of seconds and of bound over lower bound."""
    mine = [row for row in rows if row["method"] == name and row["radius"] == radius]
    ratios = [row["bound"] / row["lower"] for row in mine]
    return geometric([row["seconds"] for row in mine]), geometric(ratios)


def geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def draw(rows: list[Row], file: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.0), layout="constrained")
    for ax, radius in zip(figure.subplots(1, 2, sharey=True), RADII, strict=True):
        for place, name in enumerate(LITERATURE | OWN):
            own, marker = name in OWN, "os^vDPX*<>hp"[place]
            mine = [row for row in rows if row["method"] == name and row["radius"] == radius]
            color = "tab:blue" if own else "tab:orange"
            each = [(row["seconds"], row["bound"] / row["lower"]) for row in mine]
            ax.plot(*zip(*each), marker, color=color, alpha=0.25, markersize=3, markeredgewidth=0)
            face = color if own else "white"
            look = {"markersize": 9, "markeredgecolor": "black", "markerfacecolor": face, "linestyle": "none"}
            ax.plot(*means(rows, name, radius), marker, label=name if own else f"{name} (lit.)", **look)
        ax.axhline(1.0, color="black", linewidth=1, linestyle="--")
        ax.set(xscale="log", yscale="log", xlabel="seconds", title=f"balls of radius {radius:g}")
        ax.grid(True, alpha=0.3)
    figure.axes[0].set_ylabel("bound ÷ lower bound")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize=9, ncols=3)
    with rc_context({"svg.hashsalt": "lipcert"}):
        figure.savefig(file, metadata={"Date": None})


def table(rows: list[Row]) -> None:
    print("| method | " + " | ".join(f"radius {radius:g}: bound ÷ lower | seconds" for radius in RADII) + " |")
    print("|---|" + "---:|---:|" * len(RADII))
    for name in LITERATURE | OWN:
        cells = []
        for radius in RADII:
            seconds, ratio = means(rows, name, radius)
            cells += [f"{ratio:.3g}", f"{seconds:.2g}"]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    folder = Path(__file__).resolve().parents[1] / "docs" / "figures"
    if "--draw" not in sys.argv:
        measure(folder / "trade-off.csv")
    found = read(folder / "trade-off.csv")
    draw(found, folder / "trade-off.svg")
    table(found)
