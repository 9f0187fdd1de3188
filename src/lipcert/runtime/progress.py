"""A progress line for people: on stderr, only when someone is watching and it takes a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lipcert.runtime.clock import Progress as Report
from lipcert.runtime.clock import silent, timed

__all__ = ["Report", "silent", "watched"]


@contextmanager
def watched() -> Iterator[Report]:
    """Whoever listens to the question that is being answered, or else the terminal."""
    with timed() as clock:
        yield clock.say
