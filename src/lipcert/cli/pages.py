"""``lipcert report`` and ``reproduce``: answers as a page, and the paper's experiments as a folder."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lipcert.cli import options
from lipcert.cli.options import option
from lipcert.errors import ProofFailed
from lipcert.questions.certify import METHODS
from lipcert.show.report import write


def report(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE…",
            help="Saved answers of any kind, and .sqlite files of lipcert robust.",
        ),
    ],
    reading: options.ReadingOptions,
    out: Annotated[Path, option("FILE.html", "The page to write.", "--out", "-o")],
    model: Annotated[
        list[str] | None,
        option("MODEL", "Prove the answers about this model again, and search lower bounds. May be repeated."),
    ] = None,
    controller: options.ControllerOption = None,
    title: Annotated[str | None, option("TEXT", "Title of the page.")] = None,
) -> None:
    """Write one HTML page about saved answers and campaigns.

    Answers are files of --certificate of bound, sweep, reach or sensitivity, or of save in Python. The page is one file
    that loads nothing: summary, sortable tables, figures, and for each answer what is claimed, about which network and
    region, and whether it was proved again. Exit code 1: an answer could not be proved, or with --model an answer is
    about none of the models; the page says which and why.

    [bold]Example[/bold]

      lipcert report bound.json reach.json --model model.npz -o report.html

      lipcert report run.sqlite -o report.html
    """
    models = {reading.name(name, controller): reading.step(name, controller) for name in model or []}
    found = write(sources, out, models=models, title=title)
    typer.echo(out)
    refuted = [item.path.name for item in found if item.refuted]
    if refuted:
        raise ProofFailed(f"not proved: {', '.join(refuted)}; the page says why")
    strange = [item.path.name for item in found if models and item.network is None]
    if strange:
        raise ProofFailed(
            f"not checked: {', '.join(strange)}, about other networks than --model; options that change the network,"
            " such as --mean, --std and --activation, must be those of the answer"
        )


Section = StrEnum("Section", ["table1", "table2", "radius", "mnist", "all"])  # parts of the reproduction


def reproduce(
    section: Annotated[Section, typer.Argument(help="A table, the radius study, the MNIST study, or all of them.")],
    out: Annotated[Path, option("DIR", "The folder of the results, new or to be resumed.")] = Path("results"),
    quick: Annotated[bool, option(None, "A selection that takes minutes, not hours.", "--quick")] = False,
    methods: Annotated[
        str | None, option("NAME,NAME,…", f"Only these: {', '.join(METHODS)}. Default: the paper's and ours.")
    ] = None,
    timeout: Annotated[
        float | None, option("SECONDS", "Limit for each method in each cell; default 600, or 20 with --quick.")
    ] = None,
    data: Annotated[
        Path | None, option("DIR", "MNIST's four idx files, raw or .gz; default: scikit-learn's digits.")
    ] = None,
) -> None:
    """Run the paper's experiments: its networks, its methods and lipcert's, beside the printed numbers.

    Writes CSV files for each section, figures, run.json, and report.html with all of it. Results are
    stored as they come, and the same command resumes a run that was stopped. Each method runs in its own process with a
    time limit, quick methods first; a method that takes too long says so in its row.

    [bold]Example[/bold]: five minutes; then everything with the real images, which takes hours.

      lipcert reproduce all --quick --out results/quick

      lipcert reproduce all --data mnist/ --out results/full
    """
    from lipcert.reproduce.run import SECTIONS
    from lipcert.reproduce.run import reproduce as run

    sections = SECTIONS if section is Section.all else (section.value,)
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    progress = None if sys.stderr.isatty() else lambda text: typer.echo(text, err=True)  # a terminal has its own line
    record = run(sections, out, quick=quick, methods=names, timeout=timeout, data=data, progress=progress)
    for name in sections:
        part = record["sections"][name]
        typer.echo(f"{part['title']}\n{part['summary']}\n→ {out / part['csv'][0]}\n")
