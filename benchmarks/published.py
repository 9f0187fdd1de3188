"""Does each method of the literature give the numbers of the paper's tables?

Run: python benchmarks/published.py                       Table 1a, quick methods     (about two minutes)
     python benchmarks/published.py --table 2a            Table 2a, quick methods     (about two minutes)
     python benchmarks/published.py --methods all         every method                (hours; --limit seconds a cell)
     python benchmarks/published.py --methods LipSDP-neuron,GLipSDP --limit 600 --cells 10x5,20x10

The tables are read from paper_tables.json beside the repository (--tables says where). Local methods use the radius √5,
with which the tables were computed. A value agrees when it rounds to the printed digits; 1e-9 is allowed for the
rounding errors of the two computations. Seconds are of the processor, the limit is of the clock. The exit code is 1 if
a method that should agree does not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lipcert as lc
from lipcert.errors import LipcertError
from lipcert.limits import within
from lipcert.published import (
    AAO,
    Eclipse,
    EclipseFast,
    EclipseGenLocal,
    GeoLIP,
    GLipSDP,
    LipDiff,
    LipSDP,
    Published,
    SeqLip,
    Trivial,
)
from lipcert.reproduce.networks import paper_center, paper_network

TABLES = Path(__file__).resolve().parents[2] / "shared" / "paper_tables.json"
DIGITS, PERCENT, SHOWN = 0.0, 0.005, math.inf
"""What is asked of a method: every printed digit, half a percent, or nothing (the difference is shown)."""

Make = Callable[[], Published]
SMALL: dict[str, tuple[Make, float]] = {
    "Trivial": (Trivial, DIGITS),
    "EClipsE-Fast": (EclipseFast, DIGITS),
    "EClipsE-Gen-Local-CF": (lambda: EclipseGenLocal("CF"), DIGITS),
    "EClipsE-Gen-Local-Fast": (lambda: EclipseGenLocal("Fast"), DIGITS),
    "AAO": (AAO, SHOWN),
    "SeqLip": (SeqLip, SHOWN),
    "EClipsE": (Eclipse, PERCENT),
    "EClipsE-Gen-Local-Acc": (lambda: EclipseGenLocal("Acc"), SHOWN),
    "LipSDP-layer": (lambda: LipSDP("layer"), PERCENT),
    "LipSDP-neuron": (lambda: LipSDP("neuron"), PERCENT),
    "GeoLIP": (GeoLIP, SHOWN),
    "LipDiff": (LipDiff, SHOWN),
    "GLipSDP": (GLipSDP, PERCENT),
}
LARGE: dict[str, tuple[Make, float]] = {
    "Trivial": (Trivial, DIGITS),
    "EClipsE-Fast": (EclipseFast, DIGITS),
    "EClipsE-Gen-Local-CF": (lambda: EclipseGenLocal("CF"), DIGITS),
    "EClipsE-Gen-Local-Fast": (lambda: EclipseGenLocal("Fast"), SHOWN),
    "EClipsE": (Eclipse, PERCENT),
    "EClipsE-Gen-Local-Acc": (lambda: EclipseGenLocal("Acc"), SHOWN),
    "LipSDP-layer": (lambda: LipSDP("layer", split=10), SHOWN),
    "LipSDP-neuron": (lambda: LipSDP("neuron", split=10), SHOWN),
    "LipDiff": (LipDiff, SHOWN),
    "GLipSDP": (GLipSDP, PERCENT),
}
QUICK = {"1a": list(SMALL)[:8], "2a": list(LARGE)[:3]}


def unit(printed: float, table: str) -> float:
    """The last printed digit: thousandths, or the fourth figure where Table 2a uses powers of ten."""
    if table == "1a" or 1e-2 <= printed < 1e7:
        return 1e-3
    return float(10.0 ** (math.floor(math.log10(printed)) - 3))


def agrees(value: float, printed: float, allowed: float, table: str) -> bool:
    if math.isinf(allowed):
        return True
    return abs(value - printed) <= 0.5 * unit(printed, table) * (1 + 1e-6) + max(allowed, 1e-9) * printed


def compute(table: str, name: str, width: int, layers: int) -> tuple[float, float]:
    """The published number and the processor seconds it took."""
    methods, activation = (SMALL, "relu") if table == "1a" else (LARGE, "elu")
    network = paper_network(width, layers, activation)
    ball = lc.Ball(paper_center(), math.sqrt(5.0))
    started = time.process_time()
    value = methods[name][0]().value(network, ball)
    return value, time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("1a", "2a"), default="1a")
    parser.add_argument("--methods", default="quick")
    parser.add_argument("--cells", help="such as 10x5,20x10 (width x layers); default: all")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--tables", type=Path, default=TABLES)
    given = parser.parse_args()
    if not given.tables.exists():
        print(f"the paper's tables are not at {given.tables}")
        return 1
    bounds = json.loads(given.tables.read_text())["case1_relu" if given.table == "1a" else "case2_elu"]["bounds"]
    methods = SMALL if given.table == "1a" else LARGE
    names = {"quick": QUICK[given.table], "all": list(methods)}.get(given.methods, given.methods.split(","))
    wanted = given.cells and {tuple(map(int, cell.split("x"))) for cell in given.cells.split(",")}
    return sum(check(given.table, name, bounds[name], methods[name][1], wanted, given.limit) for name in names) > 0


def check(table: str, name: str, printed: dict[str, Any], allowed: float, wanted: Any, limit: float) -> int:
    """One method on all cells; the number of cells that should agree and do not."""
    asked = {DIGITS: "every printed digit", PERCENT: "half a percent", SHOWN: "shown"}[allowed]
    print(f"\n{name} (asked: {asked})")
    reached, right, wrong, worst = 0, 0, 0, 0.0
    for width, row in printed.items():
        for layers, number in row.items():
            if wanted and (int(width), int(layers)) not in wanted:
                continue
            cell = f"  {width:>3} x {layers:>2}  table {number!s:>14}"
            try:
                value, seconds = within(limit, compute, table, name, int(width), int(layers))
            except (TimeoutError, LipcertError) as error:
                print(f"{cell}  {error}", flush=True)
                continue
            if not isinstance(number, float):
                print(f"{cell}  here {value:14.6g}  {seconds:8.2f} s", flush=True)
                continue
            reached += 1
            exact = agrees(value, number, DIGITS, table)
            right += exact
            worst = max(worst, abs(value / number - 1.0))
            good = agrees(value, number, allowed, table)
            wrong += not good
            verdict = "digits agree" if exact else f"{value / number - 1.0:+.2%}"
            print(f"{cell}  here {value:14.9g}  {seconds:8.2f} s  {verdict}{'' if good else '  WRONG'}", flush=True)
    print(f"  {right} of {reached} cells reached agree in every printed digit, the largest difference is {worst:.2g}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
