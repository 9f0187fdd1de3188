"""The section of a report about a campaign."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from lipcert.errors import InvalidInput
from lipcert.questions.campaign import Results, Row, Summary, summarise
from lipcert.show import plots
from lipcert.show.report.page import Block, Cell, Figure, Section, Table, Text

LISTED = 300
"""Most rows in the table of points; a page with more would be slow to open."""


def campaign_section(results: Results) -> Section:
    """For each network: certified shares as a figure and a table, and the points with the smallest radii."""
    if not results.rows:
        raise InvalidInput(f"{results.path} holds no results yet; lipcert robust fills it")
    results = _with_short_names(results)
    summaries, attacked = summarise(results), bool(results.about.get("attack"))
    blocks: list[Block] = [Text(_about(results))]
    for network, rows in groupby(results.rows, key=lambda row: row.network):
        mine = list(rows)
        caption = (
            "Share of the points certified up to a radius: no input closer than that is of another class. Dashed: by"
            " the plain rule, margin/(√2·bound). A curve ends at the largest ball that was looked at."
        )
        blocks.append(_table(_network(results, network), [part for part in summaries if part.network == network]))
        blocks.append(Figure.of(plots.certified_share(mine, attacked=attacked), caption))
        blocks.append(_points(mine))
    return Section(f"Campaign {results.path.name}", _in_words(results, summaries), blocks)


def _network(results: Results, digest: str) -> str:
    """The network by its digest, and by the name of its file if the campaign has it."""
    model = results.about.get("model")
    return f"{model}, network {digest}" if isinstance(model, str) else f"Network {digest}"


def _with_short_names(results: Results) -> Results:
    """The results with methods named without options, if that distinguishes them."""
    short = {row.method: row.method.split("(")[0] for row in results.rows}
    if len(set(short.values())) < len(short):
        return results
    return replace(results, rows=tuple(replace(row, method=short[row.method]) for row in results.rows))


def _in_words(results: Results, summaries: list[Summary]) -> str:
    """The main result in sentences: the best method at each radius."""
    points = len({row.point for row in results.rows})
    files = [results.about.get(name) for name in ("model", "data")]
    named = " on ".join(str(name) for name in files if isinstance(name, str))
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
    """The meaning of the columns."""
    clip = results.about.get("clip")
    inside = f" Only inputs between {clip[0]:g} and {clip[1]:g} count." if isinstance(clip, list) else ""
    norm = results.about.get("norm")
    if isinstance(norm, dict):
        inside += f" Distances are in the {norm['name']} norm" + (
            ", in units of their own." if "scale" in norm else "."
        )
    bent = " Bounds to second order were not used." if results.about.get("curvature") is False else ""
    return (
        "Correct: classified as labelled. Certified: proved, with every rounding error accounted for, that the whole"
        " ball around the point is of the labelled class. Plain: the same by the rule margin/(√2·bound). Unbroken:"
        f" classified as labelled, and no attack succeeded, so nobody can certify more.{inside}{bent}"
    )


def _table(caption: str, summaries: list[Summary]) -> Table:
    attacked = any(part.unbroken is not None for part in summaries)
    failed = any(part.problems for part in summaries)
    headings = ["method", "radius", "points", "correct", "certified", "plain"]
    headings += ["unbroken"] * attacked + ["mean radius", "mean bound"] + ["without bound"] * failed
    rows = []
    for part in summaries:
        unbroken = (
            part.unbroken if part.radius else None
        )  # without a radius, every point has a counterexample somewhere
        shares = [part.correct, part.certified, part.plain, *([unbroken] if attacked else [])]
        rows.append(
            (
                Cell(part.method),
                Cell.number(part.radius) if part.radius else Cell("searched", 0.0),
                Cell(str(part.points), part.points),
                *(Cell.percent(share) for share in shares),
                Cell.below(part.mean_radius),
                Cell.bound(part.bound),
                *([Cell(str(part.problems), part.problems)] if failed else []),
            )
        )
    return Table(caption, headings, rows)


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
            Cell(str(row.point), row.point),
            Cell(row.method),
            Cell.number(row.radius),
            Cell(str(row.label), row.label),
            Cell(str(row.predicted), row.predicted),
            Cell.below(row.margin),
            Cell.bound(row.bound) if row.problem is None else Cell(row.problem),
            Cell.below(row.certified),
            Cell(row.basis),
            Cell.below(row.plain),
            Cell.bound(row.broken),
            Cell.number(row.seconds, 3),
        )
        for row in order[:LISTED]
    ]
    return Table(caption, headings, cells, folded=True)
