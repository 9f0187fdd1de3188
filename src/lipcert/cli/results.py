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
from lipcert.questions.campaign.results import Difference, difference
from lipcert.questions.campaign.results import export as write
from lipcert.show.wording import downward, upward


def results(
    file: Annotated[Path, typer.Argument(metavar="FILE.sqlite", help="What lipcert robust wrote.")],
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all rows: .csv, .json or .parquet (extra: parquet).")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE.sqlite", help="Say what has changed since another campaign.")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Show what a campaign has found, also while it is running.

    certified: the whole ball is proved to be of one class. plain: the same by the rule margin/(√2·bound). unbroken: no
    attack succeeded, an upper limit for what could be certified; broken: an attack, or the search for a proof, met an
    input of another class; undecided: neither. What each radius rests on, and the seconds that it took, are in the
    columns basis and seconds of an export.

    [bold]Example[/bold]

      lipcert results run.sqlite

      lipcert results run.sqlite --export run.csv

      lipcert results run.sqlite --against earlier.sqlite
    """
    options.output("--export", export, file)
    found = Results.read(file)
    changed = None if against is None else difference(Results.read(against), found)
    with Later() as later:
        later.attempt(show, found, json, changed)
        if export is not None:
            later.attempt(write, found, export)


def show(found: Results, json: bool, changed: Difference | None = None) -> None:
    """The summary, as a table or as JSON, and what has changed."""
    summaries = summarise(found)
    if json:
        record = {"about": found.about, "seconds": found.seconds, "rows": len(found.rows)}
        record |= {} if changed is None else {"against": asdict(changed)}
        typer.echo(as_json({**record, "summary": [asdict(summary) for summary in summaries]}))
        return
    out = console()
    for (network, method), part in groupby(summaries, key=lambda summary: (summary.network, summary.method)):
        out.print(f"[bold]{escape(method)}[/bold], network {network[:12]}…")
        out.print(_table(list(part)))
    for summary in summaries:
        out.print(_settled(summary), soft_wrap=True)
    if changed is not None:
        out.print(
            f"of {changed.rows} rows in both, {changed.gained} are certified only now and {changed.lost} only then;"
            f" mean radius {changed.grown:+.4g}",
            soft_wrap=True,
        )
    problems = sum(summary.problems for summary in summaries)
    out.print(f"{len(found.rows)} rows in {found.path}, {found.seconds:.3g} s of work", soft_wrap=True)
    norm = found.about.get("norm")
    if isinstance(norm, dict):
        units = ", in units of their own" if "scale" in norm else ""
        out.print(f"radii and bounds in the {norm['name']} norm of inputs{units}")
    if problems:
        out.print(f"{problems} rows have no bound; --export says why in the column problem")


def _settled(summary: Summary) -> str:
    """What became of the points of one radius, in a sentence."""
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
