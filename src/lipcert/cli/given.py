"""Options for models of several inputs or outputs: which are held, and which one is meant."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from lipcert.cli import options
from lipcert.errors import InvalidInput

FixedOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fixed",
        metavar="NAME=FILE|NUMBERS",
        help="Where the model has several inputs: the value of one, as in mask=1,0,1 or mask=mask.npy; once for each"
        " that is held.",
    ),
]
OutputOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--output", metavar="NAME|N", help="Where the model has several outputs: the name of one, or its place."
    ),
]


def values(texts: list[str] | None) -> dict[str, Any] | None:
    """The values of inputs by name; numbers without a file take the type and the shape of the model's input."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (name and sign and value):
            raise InvalidInput(f"--fixed must be NAME=FILE or NAME=NUMBERS, as in mask=1,0,1; got {text!r}")
        if name in found:
            raise InvalidInput(f"--fixed gives {name} twice")
        array = options.listed(f"--fixed {name}", value)
        assert array is not None
        found[name] = array if options.is_file(value) else array.tolist()
    return found or None
