"""``lipcert results``: what a campaign has found so far."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from lipcert.cli import options
from lipcert.cli.output import Later, as_json, console
from lipcert.questions.campaign import Results, Summary, summarise
from lipcert.questions.campaign.results import export as write
from lipcert.show.wording import downward, upward


def results(
    file: Annotated[Path, typer.Argument(metavar="FILE.sqlite", help="What lipcert robust wrote.")],
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows to a .csv or .json file.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Show what a campaign has found, also while it is running.

    certified: the whole ball is proved to be of one class. plain: the same by the rule margin/(√2·bound). unbroken: no
    attack succeeded, so this is an upper limit for certified. broken: an attack, or the search for a proof, found a
    counterexample. undecided: neither certified nor broken. An export has a row per point, with the kind of proof
    (column basis) and the time (column seconds).

    [bold]Example[/bold]

      lipcert results run.sqlite

      lipcert results run.sqlite --export run.csv
    """
    options.check_output("--export", export, file)
    found = Results.read(file)
    with Later() as later:
        later.attempt(show, found, json)
        if export is not None:
            later.attempt(write, found, export)


def show(found: Results, json: bool) -> None:
    """Print the summary as tables, or as JSON."""
    summaries = summarise(found)
    if json:
        record = {"about": found.about, "seconds": found.seconds, "rows": len(found.rows)}
        typer.echo(as_json({**record, "summary": [asdict(summary) for summary in summaries]}))
        return
    out = console()
    for (network, method), part in groupby(summaries, key=lambda summary: (summary.network, summary.method)):
        out.print(f"[bold]{escape(method)}[/bold], network {network[:12]}…")
        out.print(_table(list(part)))
    for summary in summaries:
        out.print(_counts(summary), soft_wrap=True)
    problems = sum(summary.problems for summary in summaries)
    out.print(f"{len(found.rows)} rows in {found.path}, {found.seconds:.3g} s of work", soft_wrap=True)
    norm = found.about.get("norm")
    if isinstance(norm, dict):
        units = ", in units of their own" if "scale" in norm else ""
        out.print(f"radii and bounds in the {norm['name']} norm of inputs{units}")
    if problems:
        out.print(f"{problems} rows have no bound; --export says why in the column problem")


def _counts(summary: Summary) -> str:
    """How many points of one radius are certified, by which proof, broken and undecided."""
    size = f"radius {summary.radius:g}" if summary.radius > 0.0 else "searched"
    ways = ", ".join(f"{count} by {basis}" for basis, count in sorted(summary.bases.items())) or "none"
    took = f"{summary.seconds:.3g} s a point, {summary.longest:.3g} s at most"
    if summary.broken is None or summary.undecided is None:
        return f"{size}: certified {ways}; {took}"
    rest = f"broken {100 * summary.broken:.2f}%, undecided {100 * summary.undecided:.2f}%"
    return f"{size}: certified {ways}; {rest}; {took}"


def _table(summaries: list[Summary]) -> Table:
    """The radii of one network and method."""
    attacked = any(summary.unbroken is not None for summary in summaries)
    shares = ("correct", "certified", "plain", *(["unbroken"] if attacked else []))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("radius", "points", *shares, "mean radius", "mean bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    for summary in summaries:
        table.add_row(
            f"{summary.radius:g}" if summary.radius > 0.0 else "searched",
            str(summary.points),
            *(f"{100 * getattr(summary, share):.2f}%" for share in shares),
            downward(summary.mean_radius, 4),
            "none" if summary.bound is None else upward(summary.bound, 4),
        )
    return table
