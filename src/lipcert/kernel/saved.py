"""Answers that can be written to files. No proof needs a file: how it is done is set from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Self


class Saved:
    """An answer that can be written to a file, with what proves it, and read again."""

    writer: ClassVar[Callable[[Any, str | os.PathLike[str]], None]]
    reader: ClassVar[Callable[[type, str | os.PathLike[str]], Any]]
    """Both are set by :mod:`lipcert.questions.answers`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, with what proves it; :func:`lipcert.verify` checks it from there."""
        Saved.writer(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it from a file. Nothing in it is believed before :func:`lipcert.verify` has passed it."""
        found: Self = Saved.reader(cls, path)
        return found
