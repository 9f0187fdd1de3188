"""Write a report: a section for each source, and the page as a file."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from lipcert.errors import InvalidInput, UnreadableResults
from lipcert.files.whole import require_writable, write_whole
from lipcert.model.network import Network
from lipcert.questions.campaign import Results, Row, Summary, summarise
from lipcert.questions.campaign.results import summary_table
from lipcert.questions.tables import Cell, Table
from lipcert.runtime.clock import timed
from lipcert.show import plots
from lipcert.show.report.answers import LISTED, Examined, answer_sections, examine
from lipcert.show.report.page import Block, Figure, Section, page

KIND: Final = "lipcert reproduce"
FORMAT: Final = 1
"""What run.json says of itself."""
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, eq=False)
class Written:
    """A page that was written.

    Attributes
    ----------
    path : the file.
    certificates : each source with an answer, and the result of its check.
    """

    path: Path
    certificates: tuple[Examined, ...]


def write(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    models: Mapping[str, Network] | None = None,
    title: str | None = None,
) -> Written:
    """Write one self-contained HTML page about saved answers, campaigns and reproductions.

    Parameters
    ----------
    sources
        Any of: files with certificates, reach sets, sensitivities, certified radii or sweeps, results files of
        campaigns, and folders of ``lipcert reproduce``.
    out
        The page, an .html file, written completely or not at all.
    models
        Networks by name. Answers about one of them (by digest) are proved again, and bounds get a lower bound.
    title
        Title of the page.
    """
    paths, target, known = [Path(source) for source in sources], Path(out), dict(models or {})
    if not paths:
        raise InvalidInput("sources is empty; name certificate files, a campaign's .sqlite file, or a folder")
    if target.suffix.lower() not in (".html", ".htm") or not target.parent.is_dir():
        raise InvalidInput(f"a report must be an .html file in a folder that exists, got {target}")
    require_writable(target)
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise InvalidInput(f"there is no {', '.join(missing)}")
    claims = [path for path in paths if path.is_file() and not _is_database(path)]
    if known and not claims:
        raise InvalidInput("a model is of use for certificates only, and none is among the sources")
    sections: list[Section] = []
    with timed() as clock:
        examined = examine(claims, known)
        sections += answer_sections(examined, bool(known))
        for path in paths:
            clock.say(f"reading {path.name}")
            if path.is_dir():
                sections += _studies(path)
            elif path not in claims:
                sections.append(_campaign(Results.read(path)))
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    write_whole(target, page(title or "Certified Lipschitz bounds", sections, f"Written on {now}"))
    return Written(target, tuple(examined))


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None


def _campaign(results: Results) -> Section:
    """For each network: certified shares as a figure and a table, and the points with the smallest radii."""
    if not results.rows:
        raise InvalidInput(f"{results.path} holds no results yet; lipcert robust fills it")
    short = {row.method: row.method.split("(")[0] for row in results.rows}
    if len(set(short.values())) == len(short):  # names without options distinguish the methods
        results = replace(results, rows=tuple(replace(row, method=short[row.method]) for row in results.rows))
    summaries, attacked = summarise(results), bool(results.about.get("attack"))
    model = results.about.get("model")
    blocks: list[Block] = [_about(results)]
    for network, rows in groupby(results.rows, key=lambda row: row.network):
        mine = list(rows)
        title = f"{model}, network {network}" if isinstance(model, str) else f"Network {network}"
        blocks.append(summary_table(title, [part for part in summaries if part.network == network]))
        caption = (
            "Share of the points certified up to a radius: no input closer than that is of another class. Dashed: by"
            " the plain rule, margin/(√2·bound). A curve ends at the largest ball that was looked at."
        )
        blocks += [Figure.of(plots.certified_share(mine, attacked=attacked), caption), _points(mine)]
    return Section(f"Campaign {results.path.name}", _in_words(results, summaries), blocks)


def _in_words(results: Results, summaries: list[Summary]) -> str:
    points = len({row.point for row in results.rows})
    named = " on ".join(file for name in ("model", "data") if isinstance(file := results.about.get(name), str))
    text = f"{named}{': ' if named else ''}{points} points, {results.seconds:.3g} s of work."
    for radius in sorted({part.radius for part in summaries}):
        best = max((part for part in summaries if part.radius == radius), key=lambda part: part.certified)
        share = f"{100 * best.certified:.2f} % of {best.points}"
        reach = f"Up to distance {radius:g}" if radius else "Up to some distance that was searched for"
        text += f" {reach}, {share} are proved to keep their class"
        text += f" ({best.method})" if len({part.method for part in summaries}) > 1 else ""
        text += "." if best.unbroken is None or not radius else f"; attacks leave {100 * best.unbroken:.2f} % unbroken."
    problems = sum(part.problems for part in summaries)
    return text + (f" {problems} rows have no bound." if problems else "")


def _about(results: Results) -> str:
    text = (
        "Correct: classified as labelled. Certified: proved, with every rounding error accounted for, that the whole"
        " ball around the point is of the labelled class. Plain: the same by the rule margin/(√2·bound). Unbroken:"
        " classified as labelled, and no attack succeeded, so nobody can certify more."
    )
    clip, norm = results.about.get("clip"), results.about.get("norm")
    if isinstance(clip, list):
        text += f" Only inputs between {clip[0]:g} and {clip[1]:g} count."
    if isinstance(norm, dict):
        units = ", in units of their own" if "scale" in norm else ""
        text += f" Distances are in the {norm['name']} norm{units}."
    if results.about.get("curvature") is False:
        text += " Bounds to second order were not used."
    return text


def _points(rows: list[Row]) -> Table:
    """The points by certified radius, the smallest first; points classified wrongly come last."""
    order = sorted(rows, key=lambda row: (not row.correct, row.certified / (row.radius or 1.0), row.point))
    caption = f"The points one by one, least certified first ({len(order)} rows)"
    if len(order) > LISTED:
        caption = f"The {LISTED} rows least certified, of {len(order)}; lipcert results --export writes all"
    headings = ["point", "method", "radius", "label", "predicted", "margin"]
    headings += ["bound", "certified", "by", "plain", "broken at", "seconds"]
    cells = [
        (
            Cell.number(row.point, "d"),
            Cell(row.method),
            Cell.number(row.radius),
            Cell.number(row.label, "d"),
            Cell.number(row.predicted, "d"),
            Cell.below(row.margin),
            Cell.bound(row.bound) if row.problem is None else Cell(row.problem),
            Cell.below(row.certified),
            Cell(row.basis),
            Cell.below(row.plain),
            Cell.bound(row.broken),
            Cell.number(row.seconds, ".3g"),
        )
        for row in order[:LISTED]
    ]
    return Table(caption, headings, cells, folded=True)


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


def _studies(folder: Path) -> list[Section]:
    file = folder / "run.json"
    run = _record(file)
    sections = [_study(folder, name, part) for name, part in run["sections"].items()]
    if not sections:
        raise UnreadableResults(f"{folder} holds a run of lipcert reproduce that has not finished anything yet")
    versions = run.get("versions")
    facts = {"machine": run.get("machine", "")} | (versions if isinstance(versions, dict) else {})
    rows = [(Cell(str(name)), Cell(str(fact))) for name, fact in facts.items()]
    return [*sections, Section("How this was run", _how(run), [Table("Versions and machine", ("what", "which"), rows)])]


def _record(file: Path) -> dict[str, Any]:
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


def _study(folder: Path, name: str, part: Mapping[str, Any]) -> Section:
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
    certified = bool({"rule", "margin"} & set(columns))  # radii: safe when rounded down, as lower bounds are
    rows = [
        [_cell(column, record[column], certified or record.get("origin") == "reference") for column in columns]
        for record in records
    ]
    return Table(file.name, [column.replace("_", " ") for column in columns], rows, folded=len(rows) > _FOLDED)


def _cell(column: str, text: str, down: bool) -> Cell:
    try:
        value = float(text)
    except ValueError:
        return Cell(text)
    if not math.isfinite(value):
        return Cell(text)
    if column in _PRINTED and len(text) <= 8:
        return Cell(text, value)
    if down and column == "value":
        return Cell.below(value, 5)
    return _SHOWN.get(column, Cell.below if down else Cell.number)(value)


def _how(run: Mapping[str, Any]) -> str:
    length = "The quick selection" if run.get("quick") else "The full selection"
    ended = f"finished {run['finished']}" if run.get("finished") else "and has not finished"
    limit = f", at most {run['timeout']:g} s a cell and method" if isinstance(run.get("timeout"), (int, float)) else ""
    data = f" Images: {run['data']}." if run.get("data") else ""
    return f"{length}{limit}; started {run.get('started')}, {ended}.{data}"
