"""The command ``lipcert``: one verb a file, and the one place where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from lipcert import __version__
from lipcert.cli.bound import bound
from lipcert.cli.compare import compare
from lipcert.cli.demo import demo
from lipcert.cli.inspect import inspect
from lipcert.cli.reach import reach
from lipcert.cli.report import report
from lipcert.cli.reproduce import reproduce
from lipcert.cli.results import results
from lipcert.cli.robust import robust
from lipcert.cli.sensitivity import sensitivity
from lipcert.cli.sweep import sweep
from lipcert.cli.verify import verify
from lipcert.errors import CampaignStopped, LipcertError, ProofFailed

NOT_CERTIFIED = 1
WRONG_USE = 2

app = typer.Typer(
    name="lipcert",
    help="Certified ℓ2 Lipschitz bounds for neural networks.",
    epilog="Exit codes: 0 certified, 1 not certified, 2 wrong use. Begin with: lipcert demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (bound, verify, sweep, compare, inspect, reach, sensitivity, robust, results, reproduce, report, demo):
    app.command()(verb)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lipcert {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Certified ℓ2 Lipschitz bounds for neural networks."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process: 0 certified, 1 not certified, 2 wrong use."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="lipcert")
    except LipcertError as error:
        typer.echo(f"lipcert: {error}", err=True)
        sys.exit(NOT_CERTIFIED if isinstance(error, (ProofFailed, CampaignStopped)) else WRONG_USE)
