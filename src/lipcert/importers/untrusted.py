"""What files may ask for, and what is shown of them: sizes are bounded, names and errors made harmless and short."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

ALWAYS = 2**30
"""Bytes that any file may unpack to."""

TIMES = 20
"""Beyond that, so many times its own size; numbers that were computed do not compress so well."""

LARGEST_INPUT = 2**22
"""Numbers in one input of a model; more is taken for a mistake."""


def room(size: int) -> int:
    """Bytes that a file of the given size may unpack to."""
    return max(ALWAYS, TIMES * size)


def check_archive(path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless the members of a zip file differ in name and have room together.

    Readers take a member's size from the same directory that is added up here, and read no further.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    total, most = sum(member.file_size for member in members), room(os.path.getsize(path))
    if total > most:
        raise ValueError(f"it would unpack to {total} bytes, more than {most}; store it without compression")
    twice = [name for name, count in Counter(m.filename.removesuffix(".npy") for m in members).items() if count > 1]
    if twice:
        raise ValueError(f"it has {twice[0][:40]!a} twice")


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
