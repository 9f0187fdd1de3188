"""What all answers have in common: facts, the rules these rest on, and a way to a file."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final, Self

from lipcert.errors import InvalidInput
from lipcert.files import documents
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
    kind: ClassVar[str]
    """What a file calls such an answer."""

    @property
    def flaw(self) -> str:
        """Why there is nothing to prove it from, or its parts do not fit together; empty if all is well."""
        return ""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the kernel that the facts rest on, in the order of the alphabet."""
        return tuple(sorted(frozenset[str]().union(*(fact.rules for fact in self.facts))))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, with what proves it; :func:`lipcert.verify` checks it from there."""
        check(self)
        documents.write(path, self.kind, type(self), self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it from a file. Nothing in it is believed before :func:`lipcert.verify` has passed it."""
        found: Self = documents.read(path, {cls.kind: cls}, check)
        return found


def check(answer: Any) -> None:
    """An error unless the parts of an answer fit together and something is there to prove it from."""
    if answer.flaw:
        raise InvalidInput(answer.flaw)
