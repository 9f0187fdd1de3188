"""Write a report: a section for each source, and the page as a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from lipcert.errors import InvalidInput
from lipcert.files.whole import require_writable, write_whole
from lipcert.model.network import Network
from lipcert.questions.campaign import Results, Summary, summarise
from lipcert.questions.campaign.results import summary_table
from lipcert.runtime.clock import timed
from lipcert.show import plots
from lipcert.show.report.answers import Examined, answer_sections, examine
from lipcert.show.report.page import Block, Figure, Section, page

_SQLITE = b"SQLite format 3\x00"


def write(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    models: Mapping[str, Network] | None = None,
    title: str | None = None,
) -> tuple[Examined, ...]:
    """Write one self-contained HTML page about saved answers and campaigns.

    Parameters
    ----------
    sources
        Any of: files with certificates, reach sets, sensitivities, certified radii or sweeps, and results files of
        campaigns.
    out
        The page, an .html file, written completely or not at all.
    models
        Networks by name. Answers about one of them (by digest) are proved again, and bounds get a lower bound.
    title
        Title of the page.

    Returns
    -------
    tuple of Examined
        Each source with an answer, and the result of its check.
    """
    paths, target, known = [Path(source) for source in sources], Path(out), dict(models or {})
    if not paths:
        raise InvalidInput("sources is empty; name files of answers, or the .sqlite file of a campaign")
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"a report must be an .html file, got {target}")
    require_writable(target)
    claims = [path for path in paths if not _is_database(path)]
    if known and not claims:
        raise InvalidInput("a model is of use for certificates only, and none is among the sources")
    with timed():
        examined = examine(claims, known)
        sections = answer_sections(examined, bool(known))
        sections += [_campaign(Results.read(path)) for path in paths if path not in claims]
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    write_whole(target, page(title or "Certified Lipschitz bounds", sections, f"Written on {now}"))
    return tuple(examined)


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
        blocks += [Figure.of(plots.certified_share(mine, attacked=attacked), caption)]
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
        text += " Second-order bounds were not used."
    return text
