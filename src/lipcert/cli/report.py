"""``lipcert report``: one HTML page about saved answers, a campaign, or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lipcert.cli import options
from lipcert.errors import ProofFailed
from lipcert.show.report import write


def report(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE…",
            help="Saved answers of any kind, the .sqlite file of lipcert robust, or the folder of lipcert reproduce.",
        ),
    ],
    reading: options.ReadingOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Prove the answers about this model again, and search lower bounds. May be repeated.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
) -> None:
    """Write one HTML page about saved answers, a campaign, or a reproduction of the paper.

    Answers are files of --certificate of bound, sweep, reach or sensitivity, or of save in Python. The page is one file
    that loads nothing: summary, sortable tables, figures, and for each answer what is claimed, about which network and
    region, and whether it was proved again. Exit code 1: an answer could not be proved, or with --model an answer is
    about none of the models; the page says which and why.

    [bold]Example[/bold]

      lipcert bound model.npz --center zeros --radius 0.5 --certificate bound.json

      lipcert reach model.npz --center zeros --radius 0.5 --certificate reach.json

      lipcert report bound.json reach.json --model model.npz -o report.html

      lipcert report run.sqlite -o report.html
    """
    models = {reading.name(name): reading.network(name) for name in model or []}
    written = write(sources, out, models=models, title=title)
    typer.echo(written.path)
    refuted = [item.path.name for item in written.certificates if item.refuted]
    if refuted:
        raise ProofFailed(f"not proved: {', '.join(refuted)}; the page says why")
    strange = [item.path.name for item in written.certificates if models and item.network is None]
    if strange:
        raise ProofFailed(
            f"not checked: {', '.join(strange)}, about other networks than --model; options that change the network,"
            " such as --mean, --std and --activation, must be those of the answer"
        )
