"""A progress line for people: on stderr, only when someone is watching and it takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Report(Protocol):
    """Something that can be told how far the work has come."""

    def __call__(self, text: str) -> None:
        """Show one short line."""


@dataclass
class _Line:
    """Rewrites one terminal line, at most ten times a second, from a second after the start."""

    started: float = field(default_factory=time.monotonic)
    last: float = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now - self.started < 1.0 or now - self.last < 0.1:
            return
        self.last = now
        sys.stderr.write("\r\x1b[2K" + text[:110])
        sys.stderr.flush()

    def clear(self) -> None:
        if self.last:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def silent(text: str) -> None:
    """A report that nobody reads."""


@contextmanager
def watched() -> Iterator[Report]:
    """A report that writes to the terminal if there is one, and cleans up after itself."""
    if not sys.stderr.isatty():
        yield silent
        return
    line = _Line()
    try:
        yield line
    finally:
        line.clear()
