"""The sections of a report about a folder of ``lipcert reproduce``, as its ``run.json`` describes it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lipcert.errors import UnreadableResults
from lipcert.questions.tables import Cell, Table
from lipcert.show.report.page import Block, Figure, Section

KIND: Final = "lipcert reproduce"
FORMAT: Final = 1
_FOLDED: Final = 24
"""Tables with more rows than this are folded."""
_SHOWN: Final[Mapping[str, Callable[[float], Cell]]] = {
    "value": lambda value: Cell.bound(value, 5),
    "ours": Cell.bound,
    "ratio": Cell.bound,
    "lower": Cell.below,
    "difference": lambda value: Cell(f"{100.0 * value:+.2g} %", value),
    "seconds": lambda value: Cell.number(value, ".3g"),
    "attacked": Cell.number,
}
"""How the numbers of a column are shown; the others to four digits."""
_PRINTED: Final = ("paper", "best_paper", "paper_seconds", "width", "layers", "radius")
"""Columns shown as they are written, up to eight characters."""


def study_sections(folder: Path) -> list[Section]:
    """A section for each study that was run, and one about the run itself."""
    file = folder / "run.json"
    run = _record(file)
    sections = [_section(folder, name, part) for name, part in run["sections"].items()]
    if not sections:
        raise UnreadableResults(f"{folder} holds a run of lipcert reproduce that has not finished anything yet")
    versions = run.get("versions")
    facts = {"machine": run.get("machine", "")} | (versions if isinstance(versions, dict) else {})
    rows = [(Cell(str(name)), Cell(str(fact))) for name, fact in facts.items()]
    return [*sections, Section("How this was run", _how(run), [Table("Versions and machine", ("what", "which"), rows)])]


def _record(file: Path) -> dict[str, Any]:
    """What run.json says; an error if it is not the record of a run."""
    if not file.is_file():
        raise UnreadableResults(f"{file.parent} has no run.json; name a folder that lipcert reproduce --out wrote")
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
    summary = str(part.get("summary", ""))
    blocks: list[Block] = [summary]
    for figure in part.get("figures", []):
        if not isinstance(figure, dict):
            raise UnreadableResults(f"{folder / 'run.json'} is damaged: a figure of {name} is not described")
        file = _inside(folder, figure.get("file"))
        drawing = file.read_bytes()
        if b"<svg" not in drawing[:5000]:
            raise UnreadableResults(f"{file} is not an SVG drawing")
        blocks.append(Figure(drawing, str(figure.get("caption", file.stem)), wide=True))
    names = part.get("csv", [])
    blocks += [csv_table(_inside(folder, file)) for file in ([names] if isinstance(names, str) else names)]
    return Section(str(part.get("title", name)), summary, blocks)


def _inside(folder: Path, name: Any) -> Path:
    """A file of the folder. A file outside it is refused, whatever run.json says."""
    file = folder / str(name)
    if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
        raise UnreadableResults(f"{folder / 'run.json'} names a file that the folder does not hold: {name}")
    return file


def csv_table(file: Path) -> Table:
    """The columns of a CSV file that are not empty, with numbers rounded for people: bounds up, lower bounds down."""
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records = list(csv.DictReader(stream, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise UnreadableResults(f"{file} cannot be read: {error}") from None
    if any(None in record or None in record.values() for record in records):
        raise UnreadableResults(f"{file} is damaged: its lines differ in length")
    columns = [column for column in (records[0] if records else ()) if any(record[column] for record in records)]
    certified = bool({"rule", "margin"} & set(columns))  # radii: safe when rounded down
    rows = [[_cell(column, record[column], certified) for column in columns] for record in records]
    return Table(file.name, [column.replace("_", " ") for column in columns], rows, folded=len(rows) > _FOLDED)


def _cell(column: str, text: str, certified: bool) -> Cell:
    try:
        value = float(text)
    except ValueError:
        return Cell(text)
    if not math.isfinite(value):
        return Cell(text)
    if column in _PRINTED and len(text) <= 8:
        return Cell(text, value)
    return _SHOWN.get(column, Cell.below if certified else Cell.number)(value)


def _how(run: Mapping[str, Any]) -> str:
    length = "The quick selection" if run.get("quick") else "The full selection"
    ended = f"finished {_moment(run['finished'])}" if run.get("finished") else "and has not finished"
    limit = f", at most {run['timeout']:g} s a cell and method" if isinstance(run.get("timeout"), (int, float)) else ""
    data = f" Images: {run['data']}." if run.get("data") else ""
    return f"{length}{limit}; started {_moment(run.get('started'))}, {ended}.{data}"


def _moment(text: Any) -> str:
    """A moment in UTC; a text that is no moment stays as it is."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return str(text)
