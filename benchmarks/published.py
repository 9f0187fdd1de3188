"""Does each method of the literature give the numbers of the paper's tables?

Run: python benchmarks/published.py                       Table 1, quick methods     (about two minutes)
     python benchmarks/published.py --table table2        Table 2, quick methods     (about two minutes)
     python benchmarks/published.py --methods all         every method               (hours; --limit seconds a cell)
     python benchmarks/published.py --methods lipsdp-neuron,glipsdp --limit 600 --cells 10x5,20x10

The same path as ``lipcert reproduce``, with a demand: a value agrees when it rounds to the printed digits, or is within
half a percent of them where only that is asked. Local methods use the radius √5, with which the tables were computed.
The exit code is 1 if a method that should agree does not. Nothing is kept unless --out names a folder.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lipcert.reproduce.cells import STUDIES, origin
from lipcert.reproduce.store import Store
from lipcert.reproduce.tables import Line, Plan, lines, run
from lipcert.runtime.clock import timed

DIGITS, PERCENT, SHOWN = 0.0, 0.005, math.inf
"""What is asked of a method: every printed digit, half a percent, or nothing (the difference is shown)."""

ASKED = {
    "table1": {
        "trivial": DIGITS,
        "eclipse-fast": DIGITS,
        "eclipse-gen-local-cf": DIGITS,
        "eclipse-gen-local-fast": DIGITS,
        "eclipse": PERCENT,
        "lipsdp-layer": PERCENT,
        "lipsdp-neuron": PERCENT,
        "glipsdp": PERCENT,
    },
    "table2": {
        "trivial": DIGITS,
        "eclipse-fast": DIGITS,
        "eclipse-gen-local-cf": DIGITS,
        "eclipse": PERCENT,
        "glipsdp": PERCENT,
    },
}
QUICK = {
    "table1": ("trivial", "eclipse-fast", "eclipse-gen-local-cf", "eclipse-gen-local-fast", "seqlip", "eclipse"),
    "table2": ("trivial", "eclipse-fast", "eclipse-gen-local-cf"),
}


def good(line: Line, allowed: float) -> bool:
    """Whether a line is as asked for; without two numbers to compare there is nothing to ask."""
    return line.difference is None or line.agreement is True or abs(line.difference) <= allowed


def difference(line: Line) -> str:
    if line.difference is None:
        return ""
    return "  digits agree" if line.agreement else f"  {line.difference:+.2%}"


def check(name: str, found: Sequence[Line], allowed: float) -> int:
    """Print one method on all cells; the number of cells that should agree and do not."""
    asked = {DIGITS: "every printed digit", PERCENT: "half a percent", SHOWN: "shown"}[allowed]
    print(f"\n{name} (asked: {asked})")
    for line in found:
        cell, result = line.cell, line.result
        verdict = result.note or result.status if result.value is None else f"here {result.value:14.9g}"
        seconds = "" if result.seconds is None else f"  {result.seconds:8.2f} s"
        wrong = "" if good(line, allowed) else "  WRONG"
        place = f"{cell.width:>3} x {cell.layers:>2}  table {line.printed.bound:>14}"
        print(f"  {place}  {verdict}{seconds}{difference(line)}{wrong}")
    reached = [line for line in found if line.difference is not None]
    right = sum(line.agreement is True for line in reached)
    worst = max((abs(line.difference or 0.0) for line in reached), default=0.0)
    print(f"  {right} of {len(reached)} cells reached agree in every printed digit, largest difference {worst:.2g}")
    return sum(not good(line, allowed) for line in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("table1", "table2"), default="table1")
    parser.add_argument("--methods", default="quick")
    parser.add_argument("--cells", help="such as 10x5,20x10 (width x layers); default: all")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--out", type=Path, help="keep what is found in this folder, and go on from it")
    given = parser.parse_args()
    every = tuple(name for name in STUDIES[given.table].methods if origin(name) == "published")
    names = {"quick": QUICK[given.table], "all": every}.get(given.methods, tuple(given.methods.split(",")))
    plan = Plan.of(given.table, quick=False, methods=names, timeout=given.limit)
    plan = replace(plan, methods=tuple(name for name in plan.methods if name in names))
    if given.cells:
        wanted = {tuple(map(int, cell.split("x"))) for cell in given.cells.split(",")}
        plan = replace(plan, cells=tuple(cell for cell in plan.cells if (cell.width, cell.layers) in wanted))
    with tempfile.TemporaryDirectory() as scratch, timed():
        store = Store((given.out or Path(scratch)) / "results.jsonl")
        found = list(lines(plan, run(plan, store)))
    wrong = 0
    for name in plan.methods:
        part = [line for line in found if line.method == name]
        wrong += check(name, part, ASKED[given.table].get(name, SHOWN))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
