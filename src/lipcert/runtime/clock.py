"""The clock of a question: its time limit, and progress reports."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lipcert.errors import InvalidInput

Progress: TypeAlias = Callable[[str], None]
"""A listener: it gets short lines that say what is being done."""


class OutOfTime(Exception):
    """Time is up; raised by :meth:`Clock.check`, caught by whoever already has an answer."""


@dataclass(eq=False)
class Clock:
    """A time limit and a listener.

    Attributes
    ----------
    end : when time is up, by :func:`time.perf_counter`; infinite without a limit.
    say : the listener.
    held : seconds before the end that are reserved for what must follow, such as a proof.
    sweep : measured seconds of a proved sweep through the network; zero before that is known.
    """

    end: float
    say: Progress
    held: float = 0.0
    sweep: float = 0.0

    @property
    def left(self) -> float:
        """Seconds until work must stop; negative after that."""
        return self.end - self.held - time.perf_counter()

    def check(self) -> None:
        """Stop here if time is up."""
        if self.left < 0.0:
            raise OutOfTime

    def allows(self, seconds: float) -> bool:
        """Whether work of so many seconds would end in time."""
        return self.left >= seconds

    @contextmanager
    def keeping(self, seconds: float) -> Iterator[None]:
        """Within the block, so many more seconds are reserved for what follows it."""
        self.held += seconds
        try:
            yield
        finally:
            self.held -= seconds

    @contextmanager
    def sharing(self, seconds: float) -> Iterator[None]:
        """Within the block, at most so many seconds are left."""
        end = self.end
        self.end = min(end, time.perf_counter() + self.held + seconds)
        try:
            yield
        finally:
            self.end = end


@contextmanager
def timed(seconds: float | None = None, progress: Progress | None = None) -> Iterator[Clock]:
    """The clock of a question. One inside another ends no later and has the same listener.

    Without a listener, progress is shown on one line of the terminal, if stderr is one.
    """
    outer = _clock.get()
    end = min(outer.end - outer.held, time.perf_counter() + checked_seconds(seconds))
    if outer is not _ENDLESS and progress is None:
        now, line = Clock(end, outer.say, sweep=outer.sweep), None
    else:
        line = _Line() if progress is None and sys.stderr.isatty() else None
        now = Clock(end, progress or line or silent)
    token = _clock.set(now)
    try:
        yield now
    finally:
        _clock.reset(token)
        if line is not None:
            line.clear()


def clock() -> Clock:
    """The clock of the current question; outside of one there is no limit and no listener."""
    return _clock.get()


def checked_seconds(seconds: Any) -> float:
    """A time limit; None is no limit."""
    if seconds is None:
        return math.inf
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0.0:
        raise InvalidInput(f"seconds must be a number of at least 0, or None for no limit; got {seconds!r}")
    return float(seconds)


def silent(text: str) -> None:
    """A listener that ignores everything."""


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


_ENDLESS = Clock(math.inf, silent)
_clock: ContextVar[Clock] = ContextVar("clock", default=_ENDLESS)
