"""Tables 1 and 2 and the radius study: compute what is missing, and compare it with what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lipcert import __version__
from lipcert.methods.split import Auto
from lipcert.questions.certify import OWN
from lipcert.questions.compare import supervised
from lipcert.reproduce.cells import AUTODIFF, LOWER, REFERENCES, STUDIES, Cell, measure, origin
from lipcert.reproduce.printed import Printed, agrees, paper_table
from lipcert.reproduce.store import Key, Store
from lipcert.runtime.clock import clock

_AUTO_SHARE: Final = 0.1
"""Auto takes its default time, or this share of the limit if that is less."""


class Result(NamedTuple):
    """What one method gave on one cell; the status is "ok" if there is a value."""

    status: str = "not run"
    value: float | None = None
    seconds: float | None = None


Results = dict[tuple[Cell, str], Result]


@dataclass(frozen=True)
class Plan:
    """Which cells of a study with which methods, in the order they are run."""

    study: str
    cells: tuple[Cell, ...]
    methods: tuple[str, ...]
    timeout: float

    @staticmethod
    def of(study: str, *, quick: bool, methods: Sequence[str] | None, timeout: float) -> Plan:
        """The whole study or its quick part, with its methods or the given ones; references are always included."""
        facts = STUDIES[study]
        kept = facts.quick_methods if quick else facts.methods
        if methods is not None:
            known = [name for name in facts.methods if name in methods or name in REFERENCES]
            kept = (*known, *(name for name in dict.fromkeys(methods) if name not in known))
        return Plan(study, facts.quick_cells if quick else facts.cells, kept, timeout)


def run(plan: Plan, store: Store, done: Callable[[Results], None] = lambda _: None) -> Results:
    """Compute what the store does not hold, method by method; ``done`` is called after each method.

    A method that took too long on a network is not started on those that are wider and deeper.
    """
    results: Results = {}
    for method in plan.methods:
        stopped: list[Cell] = []
        for position, cell in enumerate(plan.cells, 1):
            clock().say(f"{plan.study}: {method}, cell {position} of {len(plan.cells)}")
            late = any(other.within(cell) for other in stopped)
            results[cell, method] = Result("not started") if late else _answer(plan, cell, method, store)
            if results[cell, method].status == "timeout":
                stopped.append(cell)
        done(results)
    return results


def _answer(plan: Plan, cell: Cell, method: str, store: Store) -> Result:
    budget = min(Auto().seconds, _AUTO_SHARE * plan.timeout)
    key: Key = {"study": cell.study, "width": cell.width, "layers": cell.layers, "delta": cell.delta}
    key |= {"method": method, "lipcert": __version__} | ({"budget": budget} if method == "auto" else {})
    found = store.find(key)
    if found is None or (found["status"] == "timeout" and found["limit"] < plan.timeout):
        row = supervised(method, plan.timeout, measure, cell, method, budget)
        status = "ok" if row.bound is not None else row.status
        found = {"status": status, "value": row.bound, "seconds": row.seconds, "note": row.note, "limit": plan.timeout}
        store.add(key, found)
    if found["status"] == "ok" and found["seconds"] > plan.timeout:  # in a run with a longer limit
        return Result("timeout", seconds=plan.timeout)
    return Result(found["status"], found["value"], found["seconds"])


def rows(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """For each cell and method what is printed, what came out here, and how lipcert fares in that cell.

    ``lower`` is the lower bound of the cell, ``ours`` the smallest of lipcert's bounds, ``best_paper`` the smallest
    printed one, ``ratio`` the quotient of these; ``agrees`` says whether the value here rounds to every printed digit.
    """
    table, found = paper_table(plan.study), []
    theirs = {name for name, *_ in table} - {AUTODIFF}
    for cell in sorted(plan.cells, key=lambda cell: (cell.width, cell.layers, -cell.delta)):
        place = cell.width, cell.layers
        printed = {  # numbers without a radius are the same for all radii
            name: table.get((name, *place, cell.delta), table.get((name, *place, None), Printed()))
            for name in theirs.union(plan.methods)
        }
        known = [printed[name] for name in theirs if printed[name].value]
        best = min(known, key=lambda one: one.value or 0.0, default=Printed())
        here = {method: results.get((cell, method), Result()) for method in plan.methods}
        ours = min((here[m].value or math.inf for m in plan.methods if m in OWN), default=math.inf)
        for method in plan.methods:
            paper, (status, value, seconds) = printed[method], here[method]
            difference, same = None, ""
            if value is not None and paper.value is not None:
                difference, same = value / paper.value - 1.0, "yes" if agrees(value, paper.bound) else "no"
            found.append(
                {
                    **{"table": cell.study, "width": cell.width, "layers": cell.layers, "radius": f"{cell.radius:.6g}"},
                    **{"method": method, "origin": origin(method), "paper": paper.bound, "value": value},
                    **{"difference": difference, "agrees": same, "paper_seconds": paper.seconds, "seconds": seconds},
                    **{"status": status, "lower": here.get(LOWER, Result()).value},
                    "best_paper": best.bound,
                    "ours": ours if ours < math.inf else None,
                    "ratio": ours / best.value if best.value and ours < math.inf else None,
                }
            )
    return found
