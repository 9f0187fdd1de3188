"""``lipcert report``: one HTML page about saved answers, a campaign, or a reproduction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lipcert.cli import given, options
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
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A model that answers are about: they are proved again, bounds get a lower bound. May be repeated.",
        ),
    ] = None,
    activation: options.ActivationOption = None,
    input_shape: options.InputShapeOption = None,
    drop_softmax: options.DropSoftmaxOption = False,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    fixed: given.FixedOption = None,
    output: given.OutputOption = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")] = None,
) -> None:
    """Write one HTML page about saved answers, a campaign, or a reproduction of the paper.

    Answers are what --certificate of bound, sweep, reach or sensitivity wrote, or save in Python. The page holds
    everything it shows and fetches nothing: summary, tables that sort, figures, and for each answer what was proved, of
    which network, on which region, and whether it still stands. Exit code 1: an answer could not be proved again; the
    page says which and why. With --model that also holds for answers about none of the models given.

    [bold]Example[/bold]

      lipcert bound model.npz --center zeros --radius 0.5 --certificate bound.json

      lipcert reach model.npz --center zeros --radius 0.5 --certificate reach.json

      lipcert report bound.json reach.json --model model.npz -o report.html

      lipcert report run.sqlite -o report.html
    """
    models = {
        options.model_name(name, mean, std): options.network(
            name, activation, input_shape, drop_softmax, mean, std, given.values(fixed), output
        )
        for name in model or []
    }
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
