"""How much a file may ask for: what it unpacks to is bounded by a constant, or by a multiple of the file's own size."""

from __future__ import annotations

import os
import zipfile
from collections import Counter

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
