"""``lipcert reproduce``: the paper's tables, figures and MNIST study on this machine."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lipcert.questions.names import METHODS


class Section(StrEnum):
    """The parts of the reproduction."""

    TABLE1 = "table1"
    TABLE2 = "table2"
    RADIUS = "radius"
    MNIST = "mnist"
    ALL = "all"


def reproduce(
    section: Annotated[Section, typer.Argument(help="A table, the radius study, the MNIST study, or all of them.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the results, new or to be resumed.")] = Path(
        "results"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A selection that takes minutes, not hours.")] = False,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME,…", help=f"Only these: {', '.join(METHODS)}. Default: the paper's and ours."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Limit for each method in each cell; default 600, or 20 with --quick."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="MNIST's four idx files, raw or .gz; default: scikit-learn's digits."),
    ] = None,
) -> None:
    """Run the paper's experiments: its networks, its methods and lipcert's, beside the printed numbers.

    Writes a CSV and a Markdown file for each section, figures, and run.json. Results are stored as they come, and the
    same command resumes a run that was stopped. Each method runs in its own process with a time limit, quick methods
    first; a method that takes too long says so in its row.

    [bold]Example[/bold]: five minutes; then the MNIST study with the real images; then everything, which takes hours.

      lipcert reproduce all --quick --out results/quick

      lipcert reproduce mnist --data mnist/ --out results/mnist

      lipcert reproduce all --data mnist/ --out results/full
    """
    from lipcert.reproduce.run import SECTIONS
    from lipcert.reproduce.run import reproduce as run

    sections = SECTIONS if section is Section.ALL else (section.value,)
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    progress = None if sys.stderr.isatty() else _line  # a terminal shows its own line
    record = run(sections, out, quick=quick, methods=names, timeout=timeout, data=data, progress=progress)
    for name in sections:
        part = record["sections"][name]
        typer.echo(f"{part['title']}\n{part['summary']}\n→ {out / part['markdown']}\n")


def _line(text: str) -> None:
    typer.echo(text, err=True)
