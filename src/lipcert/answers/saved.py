"""What all answers have in common: facts, the rules these rest on, and a way to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from lipcert.kernel.facts import Fact

ROOM: Final = 1.0 + 2.0**-40
"""A bound of an answer exceeds what was proved by this factor, so that another machine's rounding can confirm it."""


class Saved:
    """An answer that can be written to a file, with what proves it, and read again.

    Attributes
    ----------
    facts : what the kernel proved, if it did so in this process; an answer from a file has none before it is verified.
    """

    facts: tuple[Fact, ...]
    writer: ClassVar[Callable[[Any, str | os.PathLike[str]], None]]
    reader: ClassVar[Callable[[type, str | os.PathLike[str]], Any]]
    """Both are set by :mod:`lipcert.questions.answers`."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the kernel that the facts rest on, in the order of the alphabet."""
        return tuple(sorted(frozenset[str]().union(*(fact.rules for fact in self.facts))))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, with what proves it; :func:`lipcert.verify` checks it from there."""
        Saved.writer(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it from a file. Nothing in it is believed before :func:`lipcert.verify` has passed it."""
        found: Self = Saved.reader(cls, path)
        return found
