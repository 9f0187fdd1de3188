"""The methods by their names on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import typer

from lipcert.questions.names import OWN
from lipcert.search.auto import Auto
from lipcert.search.joint import Joint
from lipcert.search.method import Method
from lipcert.search.split import Split

METHODS: Final = OWN


def method(name: str | Method) -> Method:
    """The method of that name with its default options."""
    if isinstance(name, Method):
        return name
    if name not in METHODS:
        raise typer.BadParameter(f"unknown method {name!r}; known are {', '.join(METHODS)}")
    return METHODS[name]()


def timed(chosen: Method | None, seconds: float | None, default: Method | None = None) -> Method | None:
    """The method, or else the default one; one that has a time limit gets the one that is asked for."""
    chosen = default if chosen is None else chosen
    if seconds is None:
        return chosen
    chosen = Auto() if chosen is None else chosen
    return replace(chosen, seconds=seconds) if isinstance(chosen, (Auto, Joint, Split)) else chosen
