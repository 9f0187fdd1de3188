"""Names and errors from files, made harmless and short, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def shown(text: str, longest: int = 200) -> str:
    """The beginning of a text; what cannot be printed is spelled out."""
    return (text if text.isprintable() else ascii(text))[:longest]


def few(names: Iterable[Any], most: int = 6, between: str = ", ") -> str:
    """The first names of a list, and how many more there are."""
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return (between.join(shown(name, 120) for name in every[:most]) + more) or "nothing"


def line(error: BaseException) -> str:
    """What an error says first, or its type where it says nothing."""
    return shown((str(error).strip().splitlines() or [type(error).__name__])[0])
