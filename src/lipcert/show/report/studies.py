"""The part of a report about a run of ``lipcert reproduce``: its folder, as ``run.json`` there describes it."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from lipcert.errors import UnreadableResults
from lipcert.show.report.page import Block, Cell, Figure, Section, Table, Text

KIND: Final = "lipcert reproduce"
FORMAT: Final = 1
FOLDED: Final = 24
"""Tables with more rows than this are folded."""

Record = Mapping[str, str]


def study_sections(folder: Path) -> list[Section]:
    """A section for each study that was run, and one about the run itself."""
    run = _described(folder)
    parts = run["sections"]
    if not parts:
        raise UnreadableResults(f"{folder} holds a run of lipcert reproduce that has not finished anything yet")
    sections = [_section(folder, name, part) for name, part in parts.items()]
    return [*sections, Section("How this was run", _how(run), [_versions(run)])]


def _described(folder: Path) -> dict[str, Any]:
    file = folder / "run.json"
    if not file.is_file():
        raise UnreadableResults(f"{folder} has no run.json; name a folder that lipcert reproduce --out wrote")
    try:
        run = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableResults(f"{file} cannot be read: {error}") from None
    if not isinstance(run, dict) or run.get("kind") != KIND:
        raise UnreadableResults(f"{file} does not say that it is of a run of lipcert reproduce")
    if run.get("format") != FORMAT:
        raise UnreadableResults(f"{file} is of format {run.get('format')}; this program reads format {FORMAT}")
    sections = run.get("sections")
    if not isinstance(sections, dict) or not all(isinstance(part, dict) for part in sections.values()):
        raise UnreadableResults(f"{file} is damaged: it has no list of sections")
    return run


def _section(folder: Path, name: str, part: Mapping[str, Any]) -> Section:
    blocks: list[Block] = []
    for figure in part.get("figures", []):
        if not isinstance(figure, dict):
            raise UnreadableResults(f"{folder / 'run.json'} is damaged: a figure of {name} is not described")
        file = _inside(folder, figure.get("file"))
        drawing = file.read_bytes()
        if b"<svg" not in drawing[:5000]:
            raise UnreadableResults(f"{file} is not an SVG drawing")
        blocks.append(Figure(drawing, str(figure.get("caption", file.stem)), wide=True))
    names = part.get("csv", [])
    for file in (_inside(folder, name) for name in ([names] if isinstance(names, str) else names)):
        blocks += _tables(file.name, _records(file))
    summary = str(part.get("summary", ""))
    return Section(str(part.get("title", name)), summary, [Text(summary), *blocks])


def _inside(folder: Path, name: Any) -> Path:
    """A file of the folder; a report must not take in others because a text says so."""
    file = folder / str(name)
    if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
        raise UnreadableResults(f"{folder / 'run.json'} names a file that the folder does not hold: {name}")
    return file


def _records(file: Path) -> list[Record]:
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records: list[Record] = [dict(record) for record in csv.DictReader(stream, strict=True)]
    except (OSError, ValueError, csv.Error) as error:
        raise UnreadableResults(f"{file} cannot be read: {error}") from None
    if any(None in record or None in record.values() for record in records):
        raise UnreadableResults(f"{file} is damaged: its lines differ in length")
    return records


def _tables(name: str, records: Sequence[Record]) -> list[Table]:
    """What a file says: a comparison in short before the long list."""
    if not records:
        return []
    if not {"width", "layers", "radius", "method", "origin", "status", "ours", "best_paper"} <= set(records[0]):
        return [_whole(name, records, folded=len(records) > FOLDED)]
    return [_by_network(records), _by_method(records), _whole(name, records, folded=True)]


def _by_network(records: Sequence[Record]) -> Table:
    """Ours beside the best of the paper, a row a network and radius."""
    headings = ("width", "layers", "radius", "best printed", "ours", "ours ÷ printed", "lower bound", "ours ÷ lower")
    firsts = {(row["width"], row["layers"], row["radius"]): row for row in records}
    rows = []
    for row in firsts.values():
        ours, lower = _number(row["ours"]), _number(row.get("lower", ""))
        apart = ours / lower if ours is not None and lower else None
        names = ("width", "layers", "radius", "best_paper", "ours", "ratio")
        shown = [_cell(name, row.get(name, "")) for name in names]
        rows.append((*shown, Cell.below(lower), Cell.bound(apart)))
    return Table("The smallest bound that the paper prints, and ours", headings, rows)


def _by_method(records: Sequence[Record]) -> Table:
    """How far each method was run, and how it agrees with what is printed."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in records:
        if row["status"] != "not run":
            groups[row["method"], row["origin"]].append(row)
    headings = ("method", "origin", "bounds", "timeouts", "printed digits agree", "median s printed", "median s here")
    rows = []
    for (method, origin), mine in groups.items():
        statuses = [row["status"] for row in mine]
        counts = [Cell.number(statuses.count(status)) for status in ("ok", "timeout")]
        agrees = [row.get("agrees", "") for row in mine if row.get("agrees")]
        yes = agrees.count("yes")
        agreeing = Cell(f"{yes} of {len(agrees)}", yes / len(agrees)) if agrees else Cell()
        printed = _middle(row.get("paper_seconds", "") for row in mine)
        here = _middle(row.get("seconds", "") for row in mine if row["status"] == "ok")
        rows.append((Cell(method), Cell(origin), *counts, agreeing, printed, here))
    return Table("The methods", headings, rows)


def _middle(texts: Any) -> Cell:
    values = [value for value in map(_number, texts) if value is not None]
    return Cell.number(median(values), 3) if values else Cell()


def _whole(name: str, records: Sequence[Record], folded: bool) -> Table:
    columns = [column for column in records[0] if any(row[column] for row in records)]
    certified = bool({"rule", "margin"} & set(columns))  # radii: safe when rounded down
    rows = [[_cell(column, row[column], certified) for column in columns] for row in records]
    caption = f"{name}, all {len(rows)} rows" if folded else name
    return Table(caption, [column.replace("_", " ") for column in columns], rows, folded=folded)


_SHOWN: Final[Mapping[str, Callable[[float], Cell]]] = {
    "value": lambda value: Cell.bound(value, 5),
    "ours": Cell.bound,
    "ratio": Cell.bound,
    "lower": Cell.below,
    "difference": lambda value: Cell(f"{100.0 * value:+.2g} %", value),
    "seconds": lambda value: Cell.number(value, 3),
    "attacked": Cell.number,
}
"""How the numbers of a column are shown; the others to four digits."""
_PRINTED: Final = ("paper", "best_paper", "paper_seconds", "width", "layers", "radius")
"""Columns that are shown as they are written, as long as that is short."""
_SHORT: Final = 8


def _cell(column: str, text: str, certified: bool = False) -> Cell:
    value = _number(text)
    if value is None or (column in _PRINTED and len(text) <= _SHORT):
        return Cell(text, value)
    return _SHOWN.get(column, Cell.below if certified else Cell.number)(value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _how(run: Mapping[str, Any]) -> str:
    length = "The quick selection" if run.get("quick") else "The full selection"
    ended = f"finished {_moment(run['finished'])}" if run.get("finished") else "and has not finished"
    limit = f", at most {run['timeout']:g} s a cell and method" if isinstance(run.get("timeout"), (int, float)) else ""
    data = f" Images: {run['data']}." if run.get("data") else ""
    return f"{length}{limit}; started {_moment(run.get('started'))}, {ended}.{data}"


def _moment(text: Any) -> str:
    """A time of day in UTC; what is none is shown as it is."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return str(text)


def _versions(run: Mapping[str, Any]) -> Table:
    facts = {"machine": run.get("machine", "")}
    versions = run.get("versions")
    facts |= versions if isinstance(versions, dict) else {}
    return Table("Versions and machine", ("what", "which"), [(Cell(str(k)), Cell(str(v))) for k, v in facts.items()])
