"""The figure of the landing page: bound and lower bound against the radius, for a network of the paper.

Run: python benchmarks/landing.py        (half a minute; writes docs/figures/radius.csv and radius.svg)
     python benchmarks/landing.py --draw (draws what radius.csv holds)
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.arguments.words import upward
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.show import plots

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
WIDTH, LAYERS = 40, 20


def measure(file: Path) -> None:
    network = paper_network(WIDTH, LAYERS, "relu")
    rows = lc.sweep(network, paper_center(), np.geomspace(0.02, 20.0, 13))
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["radius", "bound", "lower", "trivial", "everywhere"])
        everywhere = lc.certify(network, method=lc.Joint()).bound
        table.writerows([row.radius, row.bound, row.lower, row.trivial, everywhere] for row in rows)


def draw(file: Path) -> Any:
    """Two curves, the room between them, and the two bounds that know no region."""
    with file.open(newline="", encoding="utf-8") as stream:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(stream)]
    rows.sort(key=lambda row: row["radius"])
    radii, bounds, lowers = ([row[name] for row in rows] for name in ("radius", "bound", "lower"))
    ax = plots.figure(6.4, 4.4).subplots()
    ax.set(xscale="log", yscale="log", xlabel="radius of the ball", ylabel="Lipschitz constant")
    ax.plot(radii, bounds, "o-", markersize=4, color="tab:blue")
    ax.plot(radii, lowers, "o--", markersize=6, markerfacecolor="none", color="tab:orange")
    ax.fill_between(radii, lowers, bounds, color="tab:blue", alpha=0.12, linewidth=0)
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9}
    lines = ("trivial", "product of norms", "tab:gray"), ("everywhere", "global bound", "tab:green")
    for name, label, color in lines:
        ax.axhline(rows[0][name], color=color, linewidth=1.2, linestyle=":")
        ax.annotate(f"{label}, {upward(rows[0][name], 4)}", (radii[0], rows[0][name]), (0, 4), color=color, **look)
    middle = len(radii) // 2
    ax.annotate("proved: never above", (radii[middle], bounds[middle]), (-12, 8), ha="right", color="tab:blue", **look)
    ax.annotate("attained: never below", (radii[middle], lowers[middle]), (12, -12), color="tab:orange", **look)
    ax.set_ylim(min(lowers) / 30.0, 30.0 * rows[0]["trivial"])
    ax.grid(True, which="major", alpha=0.3)
    return ax


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw what was measured before")
    file = FOLDER / "radius.csv"
    if not parser.parse_args().draw:
        measure(file)
    plots.save(draw(file), FOLDER / "radius.svg")


if __name__ == "__main__":
    main()
