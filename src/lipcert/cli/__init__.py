"""The command ``lipcert``: its verbs, and the exit codes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from lipcert import __version__
from lipcert.cli.answers import bound, reach, sensitivity, sweep, verify
from lipcert.cli.campaigns import results, robust
from lipcert.cli.inspect import inspect
from lipcert.cli.loops import contraction, tube
from lipcert.cli.methods import compare, demo
from lipcert.cli.options import expanded
from lipcert.cli.pages import report, reproduce
from lipcert.errors import CampaignStopped, Interrupted, LipcertError, ProofFailed

NOT_CERTIFIED = 1
WRONG_USE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

app = typer.Typer(
    name="lipcert",
    help="Certified Lipschitz bounds for neural networks.",
    epilog="Exit codes: 0 certified, 1 not certified, 2 wrong use or a file that cannot be written, 130 interrupted;"
    " an interrupt prints the best answer so far. Begin with: lipcert demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ABOUT_NETWORKS = bound, verify, sweep, compare, inspect, reach, sensitivity, tube, contraction
for verb in (*ABOUT_NETWORKS, robust, results, reproduce, report, demo):
    app.command()(expanded(verb))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lipcert {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Certified Lipschitz bounds for neural networks."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process: 0 certified, 1 not certified, 2 wrong use, 130 interrupted."""
    try:
        try:
            app(args=None if arguments is None else list(arguments), prog_name="lipcert")
        except SystemExit as ended:
            cause: BaseException | None = ended
            while cause is not None:  # typer turns an interrupt or a broken pipe into an exit
                if isinstance(cause, (KeyboardInterrupt, BrokenPipeError)):
                    raise cause from None
                cause = cause.__cause__ or cause.__context__
            _flush()
            raise
    except (LipcertError, OSError, MemoryError, KeyboardInterrupt) as error:
        sys.exit(_report(error))


def _report(error: BaseException) -> int:
    with suppress(OSError):  # the pipe is closed
        _flush()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    sentence, code = str(error), WRONG_USE
    if isinstance(error, KeyboardInterrupt):
        sentence = "interrupted" if isinstance(error, Interrupted) else sentence or "interrupted"
        code = INTERRUPTED
    elif isinstance(error, MemoryError):
        sentence, code = "memory ran out; a smaller region, or --method closed-form, needs less", NOT_CERTIFIED
    elif isinstance(error, (ProofFailed, CampaignStopped)):
        code = NOT_CERTIFIED
    elif isinstance(error, OSError) and error.strerror:
        sentence = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}"
    with suppress(OSError):  # the pipe is closed
        for line in (sentence, *getattr(error, "__notes__", ())):
            typer.echo(f"lipcert: {line}", err=True)
    return code


def _flush() -> None:
    """Flush standard output. If that fails, redirect it, so that the end of the process does not fail again."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
