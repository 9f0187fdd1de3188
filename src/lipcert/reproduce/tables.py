"""Tables 1 and 2 and the radius study: compute what is missing, and compare it with what the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from lipcert import __version__
from lipcert.methods.split import Auto
from lipcert.questions.certify import OWN
from lipcert.questions.compare import supervised
from lipcert.reproduce.cells import AUTODIFF, LOWER, REFERENCES, STUDIES, Cell, measure
from lipcert.reproduce.printed import Printed, agrees, paper_table
from lipcert.reproduce.store import Key, Store
from lipcert.runtime.clock import clock

Status = Literal["ok", "timeout", "does not apply", "failed", "not started", "not run"]
_AUTO_SHARE: Final = 0.1
"""Auto takes its default time, or this share of the limit if that is less."""


@dataclass(frozen=True)
class Result:
    """What one method gave on one cell; ``note`` says why there is no value."""

    status: Status = "not run"
    value: float | None = None
    seconds: float | None = None
    note: str = ""


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
            smaller = next((other for other in stopped if other.within(cell)), None)
            if smaller is None:
                result = _answer(plan, cell, method, store)
            else:
                note = f"{smaller.width} × {smaller.layers} took longer than {plan.timeout:g} s"
                result = Result("not started", note=note)
            if result.status == "timeout":
                stopped.append(cell)
            results[cell, method] = result
        done(results)
    return results


def _answer(plan: Plan, cell: Cell, method: str, store: Store) -> Result:
    budget = min(Auto().seconds, _AUTO_SHARE * plan.timeout)
    key: Key = {"study": cell.study, "width": cell.width, "layers": cell.layers, "delta": cell.delta}
    key |= {"method": method, "lipcert": __version__}
    if method == "auto":
        key["budget"] = budget
    found = store.find(key)
    if found is None or (found["status"] == "timeout" and found["limit"] < plan.timeout):
        row = supervised(method, plan.timeout, measure, cell, method, budget)
        status = "ok" if row.bound is not None else row.status
        found = {"status": status, "value": row.bound, "seconds": row.seconds, "note": row.note, "limit": plan.timeout}
        store.add(key, found)
    result = Result(found["status"], found["value"], found["seconds"], found["note"])
    if result.status == "ok" and result.seconds is not None and result.seconds > plan.timeout:
        return Result("timeout", seconds=plan.timeout, note=f"took {result.seconds:.0f} s in another run")
    return result


@dataclass(frozen=True)
class Line:
    """A cell and a method: what is printed, what came out here, and what lipcert's best is in that cell.

    Attributes
    ----------
    difference : how far the value here is from the printed one, relative to that.
    agreement : whether the value here rounds to every printed digit; None where one of them is missing.
    best_paper, ours : the smallest printed figure of the cell, and the smallest of lipcert's.
    ratio : ours / best_paper.
    below : whether lipcert's best is at most the smallest printed figure, or rounds to it.
    """

    cell: Cell
    method: str
    printed: Printed
    result: Result
    difference: float | None
    agreement: bool | None
    lower: float | None
    best_paper: float | None
    ours: float | None
    ratio: float | None
    below: bool | None


def lines(plan: Plan, results: Results) -> Iterator[Line]:
    """A line for each cell and method, cell by cell."""
    table = paper_table(plan.study)
    for cell in sorted(plan.cells, key=lambda cell: (cell.width, cell.layers, -cell.delta)):

        def printed(method: str, cell: Cell = cell) -> Printed:
            """What is printed; numbers without a radius are the same for all radii."""
            place = method, cell.width, cell.layers
            return table.get((*place, cell.delta), table.get((*place, None), Printed()))

        theirs = [printed(name) for name in {name for name, *_ in table} - {AUTODIFF}]
        best = min((one for one in theirs if one.value), key=lambda one: one.value or 0.0, default=Printed())
        here = {method: results.get((cell, method), Result()) for method in plan.methods}
        proved = (here[name].value for name in plan.methods if name in OWN)
        ours = min((value for value in proved if value is not None), default=None)
        ratio = None if ours is None or best.value is None else ours / best.value
        below = None if ratio is None else ratio <= 1.0 or agrees(ours or 0.0, best.bound)
        lower = here[LOWER].value if LOWER in here else None
        for method in plan.methods:
            paper, value, difference, agreement = printed(method), here[method].value, None, None
            if paper.value is not None and value is not None:
                difference, agreement = value / paper.value - 1.0, agrees(value, paper.bound)
            compared = difference, agreement, lower, best.value, ours, ratio, below
            yield Line(cell, method, paper, here[method], *compared)
