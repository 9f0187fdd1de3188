"""The rows of a campaign, their summaries, and their export."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, UnreadableResults
from lipcert.files.whole import write_whole
from lipcert.model.arrays import Array
from lipcert.questions.campaign.store import COLUMNS, Row, Store
from lipcert.questions.tables import Cell, Table


@dataclass(frozen=True, eq=False)
class Results:
    """The rows of a campaign's file.

    Attributes
    ----------
    path : the file.
    rows : one per point, radius and method, sorted by method, radius and point.
    about : digest of the points, clip and other settings.
    seconds : time that workers have spent.

    ``results["certified"]`` is a column as an array; columns are the fields of :class:`Row`. ``len`` counts rows, and
    iteration yields them.
    """

    path: Path
    rows: tuple[Row, ...]
    about: dict[str, Any]
    seconds: float

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Results:
        """Read a results file; raise UnreadableResults for anything else."""
        store = Store(path)
        try:
            return Results(store.path, tuple(store.rows()), store.about(), store.seconds())
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            raise UnreadableResults(f"{path} is damaged: {error}") from None
        finally:
            store.close()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Array:
        if name not in COLUMNS:
            raise InvalidInput(f"there is no column {name!r}; columns are {', '.join(COLUMNS)}")
        return np.array([getattr(row, name) for row in self.rows])

    def columns(self) -> dict[str, list[Any]]:
        """Each column as a list, by its name."""
        return {name: [getattr(row, name) for row in self.rows] for name in COLUMNS}

    def to_pandas(self) -> Any:
        """All rows as a ``pandas.DataFrame`` (extra ``pandas``)."""
        try:
            import pandas
        except ImportError:
            raise InvalidInput("a DataFrame needs pandas: pip install 'lipcert[pandas]'") from None
        return pandas.DataFrame(self.columns())

    def __repr__(self) -> str:
        many = {"point": "points", "radius": "radii", "method": "methods"}
        counts = {name: len({getattr(row, name) for row in self.rows}) for name in many}
        words = [f"{count} {name if count == 1 else many[name]}" for name, count in counts.items()]
        return f"Results({str(self.path)!r}, {len(self.rows)} rows: {', '.join(words)})"

    def _repr_html_(self) -> str:
        return summary_table(repr(self), summarise(self)).html()


@dataclass(frozen=True)
class Summary:
    """All points of one network, method and radius.

    Attributes
    ----------
    network, method, radius : which rows; radius 0 means that the largest radius was searched.
    points : number of points.
    correct : share classified correctly.
    certified : share for which the whole ball is certified.
    plain : the same by the rule margin/(√2·bound).
    unbroken : share classified correctly for which an attack found nothing; None without attacks.
    bound : mean of the Lipschitz bounds; None if no row has one.
    mean_radius, mean_plain : means of the certified radii, each at most ``radius``.
    problems : rows without a bound.
    bases : number of certified balls by kind of proof, as in :class:`CertifiedRadius`.
    broken : share classified correctly with a counterexample in the ball; None without attacks if none was met.
    undecided : share classified correctly that is neither certified nor broken; None where ``broken`` is.
    seconds, longest : mean and maximum of the time per point.
    """

    network: str
    method: str
    radius: float
    points: int
    correct: float
    certified: float
    plain: float
    unbroken: float | None
    bound: float | None
    mean_radius: float
    mean_plain: float
    problems: int
    bases: dict[str, int]
    broken: float | None
    undecided: float | None
    seconds: float
    longest: float


def summarise(results: Results) -> list[Summary]:
    """One summary a network, method and radius."""

    def group(row: Row) -> tuple[str, str, float]:
        return row.network, row.method, row.radius

    attacked = bool(results.about.get("attack"))
    met = attacked or any(row.broken is not None for row in results.rows)
    found = []
    for key, part in groupby(sorted(results.rows, key=group), key=group):
        rows = list(part)
        bounds = [row.bound for row in rows if row.bound is not None]
        unbroken = [row.correct and row.broken is None for row in rows]
        open_ = [held and not row.robust for held, row in zip(unbroken, rows, strict=True)]
        summary = Summary(
            *key,
            points=len(rows),
            correct=_mean(row.correct for row in rows),
            certified=_mean(row.robust for row in rows),
            plain=_mean(row.plain >= row.radius if row.radius > 0.0 else row.plain > 0.0 for row in rows),
            unbroken=_mean(unbroken) if attacked else None,
            bound=_mean(bounds) if bounds else None,
            mean_radius=_mean(row.certified for row in rows),
            mean_plain=_mean(row.plain for row in rows),
            problems=len(rows) - len(bounds),
            bases=dict(Counter(row.basis for row in rows if row.robust)),
            broken=_mean(row.correct and row.broken is not None for row in rows) if met else None,
            undecided=_mean(open_) if met else None,
            seconds=_mean(row.seconds for row in rows),
            longest=max(row.seconds for row in rows),
        )
        found.append(summary)
    return found


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def summary_table(title: str, summaries: Sequence[Summary]) -> Table:
    """A row per summary."""
    attacked = any(part.unbroken is not None for part in summaries)
    failed = any(part.problems for part in summaries)
    headings = ("method", "radius", "points", "correct", "certified", "plain", *["unbroken"] * attacked)
    rows = []
    for part in summaries:
        shares: list[float | None] = [part.correct, part.certified, part.plain]
        # without a radius, every point has a counterexample somewhere
        shares += [part.unbroken if part.radius else None] * attacked
        rows.append(
            (
                Cell(part.method),
                Cell.number(part.radius, "g") if part.radius else Cell("searched", 0.0),
                Cell.number(part.points, "d"),
                *map(Cell.percent, shares),
                Cell.below(part.mean_radius),
                Cell("none") if part.bound is None else Cell.bound(part.bound),
                *[Cell.number(part.problems, "d")] * failed,
            )
        )
    return Table(title, (*headings, "mean radius", "mean bound", *["without bound"] * failed), rows)


def export(results: Results, path: str | Path) -> None:
    """Write all rows to a .csv or .json file."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".csv", ".json") or not file.parent.is_dir():
        raise InvalidInput(f"export needs a .csv or .json file in a folder that exists, got {file}")
    if suffix == ".json":
        # JSON has no infinity, which the margin of outputs that overflow may be
        rows = [asdict(row) | {"margin": row.margin if math.isfinite(row.margin) else None} for row in results.rows]
        write_whole(file, json.dumps({"about": results.about, "rows": rows}, indent=1, allow_nan=False))
        return
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([COLUMNS, *map(astuple, results.rows)])
    write_whole(file, stream.getvalue())
