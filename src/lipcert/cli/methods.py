"""The methods by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import typer

from lipcert.auto import Auto
from lipcert.multipliers import ClosedForm, Diagonal, Joint, Method, Scalar
from lipcert.split import Split

METHODS: Final[Mapping[str, Callable[[], Method]]] = {
    "closed-form": ClosedForm,
    "scalar": Scalar,
    "diagonal": Diagonal,
    "joint": Joint,
    "auto": Auto,
    "split": Split,
}


def method(name: str | Method) -> Method:
    """The method of that name with its default options."""
    if isinstance(name, Method):
        return name
    if name not in METHODS:
        raise typer.BadParameter(f"unknown method {name!r}; known are {', '.join(METHODS)}")
    return METHODS[name]()
