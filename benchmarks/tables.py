"""Every cell of the paper's local tables: the best of all published methods, Auto, and a lower bound.

Run: python benchmarks/tables.py                                  the paper's radius √5·δ, all 61 cells
     python benchmarks/tables.py --radius 1 --seconds 30          the radius δ = 1, Tables 1 and 2
     python benchmarks/tables.py --case relu --seconds 5          Table 1a; also elu (Table 2a) and radius (the study)

Each cell may take about --seconds (default 10), so all of them take ten minutes. A cell is marked where our bound is
above the best published figure by more than that figure's rounding; the exit code is then 1. Nothing is written; for
files and figures of all methods see ``lipcert reproduce``.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import lipcert as lc
from lipcert.reproduce.cells import AUTODIFF, STUDIES, paper_center
from lipcert.reproduce.printed import paper_table


@dataclass(frozen=True)
class Cell:
    name: str
    network: lc.Network
    delta: float
    published: dict[str, float]

    @property
    def best(self) -> tuple[float, str]:
        """The smallest published figure and whose it is."""
        return min((value, name) for name, value in self.published.items())


def paper_cells(study: str) -> Iterator[Cell]:
    printed = paper_table(study)
    for cell in sorted(STUDIES[study].cells, key=lambda cell: (cell.width, cell.layers, -cell.delta)):
        known = {
            name: figure.value
            for (name, width, layers, delta), figure in printed.items()
            if (width, layers) == (cell.width, cell.layers) and delta in (cell.delta, None) and name != AUTODIFF
        }
        published = {name: value for name, value in known.items() if value is not None}
        name = f"{cell.width} × {cell.layers}" + (f", δ = {cell.delta:g}" if study == "radius" else "")
        yield Cell(name, cell.network(), cell.delta, published)


def rounding(value: float) -> float:
    """Half a unit of the last printed digit: the tables have three decimals, or three or four digits."""
    digits = Decimal(f"{value:.6g}").normalize().as_tuple()
    assert isinstance(digits.exponent, int)
    unit = 10.0**digits.exponent
    return 0.5 * (min(unit, 1e-3) if value >= 1e-2 and unit < 1.0 else unit)


def run(title: str, cells: Iterator[Cell], paper_radius: bool, seconds: float) -> tuple[list[float], int, float]:
    """Ratios of upper and lower bound, number of cells above the paper's best, and the longest time."""
    print(f"\n{title}")
    print(f"{'cell':>22} {'best published':>32} {'Auto':>11} {'lower':>11} {'upper/lower':>12} {'seconds':>8}")
    ratios, above, longest = [], 0, 0.0
    for cell in cells:
        radius = cell.delta * math.sqrt(5.0) if paper_radius else cell.delta
        ball = lc.Ball(paper_center(), radius)
        certificate = lc.certify(cell.network, ball, lc.Auto(seconds=seconds))
        lower = lc.lower_bound(cell.network, ball, points=certificate.witness).value
        best, who = cell.best
        ratios.append(certificate.bound / lower)
        longest = max(longest, certificate.seconds)
        looser = paper_radius and certificate.bound > best + rounding(best)
        above += looser
        print(
            f"{cell.name:>22} {best:11.4g} {who if paper_radius else '(radius √5)':>20} {certificate.bound:11.4g}"
            f" {lower:11.4g} {ratios[-1]:12.3f} {certificate.seconds:8.1f}{'  ABOVE' if looser else ''}",
            flush=True,
        )
    return ratios, above, longest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radius", choices=["paper", "1"], default="paper")
    parser.add_argument("--case", choices=["relu", "elu", "radius", "all"], default="all")
    parser.add_argument("--seconds", type=float, default=lc.Auto().seconds)
    options = parser.parse_args()
    paper = options.radius == "paper"
    cases = {
        "relu": ("Table 1a (ReLU)", paper_cells("table1")),
        "elu": ("Table 2a (ELU)", paper_cells("table2")),
        "radius": ("Radius study (LeakyReLU)", paper_cells("radius")),
    }
    ratios: list[float] = []
    above, longest = 0, 0.0
    for name, (title, cells) in cases.items():
        if options.case in (name, "all") and (paper or name != "radius"):
            title += ", radius √5·δ" if paper else ", radius 1"
            found, over, slowest = run(title, cells, paper, options.seconds)
            print(f"upper/lower: median {statistics.median(found):.3f}, worst {max(found):.3g}")
            ratios, above, longest = ratios + found, above + over, max(longest, slowest)
    print(
        f"\nall {len(ratios)} cells: upper/lower median {statistics.median(ratios):.3f}, worst {max(ratios):.3g};",
        end="",
    )
    print(f" longest {longest:.1f} s" + (f"; {above} above the best published figure" if paper else ""))
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
