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
    """What one method gave on one cell."""

    status: Status = "not run"
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
    key |= {"method": method, "lipcert": __version__}
    if method == "auto":
        key["budget"] = budget
    found = store.find(key)
    if found is None or (found["status"] == "timeout" and found["limit"] < plan.timeout):
        row = supervised(method, plan.timeout, measure, cell, method, budget)
        status = "ok" if row.bound is not None else row.status
        found = {"status": status, "value": row.bound, "seconds": row.seconds, "note": row.note, "limit": plan.timeout}
        store.add(key, found)
    if found["status"] == "ok" and found["seconds"] > plan.timeout:  # in a run with a longer limit
        return Result("timeout", seconds=plan.timeout)
    return Result(found["status"], found["value"], found["seconds"])


@dataclass(frozen=True)
class Line:
    """A cell and a method: what is printed, what came out here, and how lipcert fares in that cell.

    Attributes
    ----------
    lower, ours : the lower bound of the cell, and the smallest of lipcert's bounds.
    best : what is printed of the best method.
    """

    cell: Cell
    method: str
    printed: Printed
    result: Result
    lower: float | None
    ours: float | None
    best: Printed

    @property
    def difference(self) -> float | None:
        """How far the value here is from the printed one, relative to that."""
        value, printed = self.result.value, self.printed.value
        return None if value is None or printed is None else value / printed - 1.0

    @property
    def agreement(self) -> bool | None:
        """Whether the value here rounds to every printed digit."""
        value = None if self.printed.value is None else self.result.value
        return None if value is None else agrees(value, self.printed.bound)

    @property
    def ratio(self) -> float | None:
        """The smallest bound of lipcert over the smallest printed one."""
        return None if self.ours is None or self.best.value is None else self.ours / self.best.value

    @property
    def below(self) -> bool:
        """Whether lipcert's best is at most the smallest printed figure, or rounds to it."""
        return self.ratio is not None and (self.ratio <= 1.0 or agrees(self.ours or 0.0, self.best.bound))


def lines(plan: Plan, results: Results) -> Iterator[Line]:
    """A line for each cell and method, cell by cell."""
    table = paper_table(plan.study)
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
        ours = [value for name in plan.methods if name in OWN and (value := here[name].value) is not None]
        lower = here.get(LOWER, Result()).value
        for method in plan.methods:
            yield Line(cell, method, printed[method], here[method], lower, min(ours, default=None), best)
