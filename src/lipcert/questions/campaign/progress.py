"""How far a campaign has come: a bar with rate and time left, where someone is watching."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeRemainingColumn
from rich.text import Text

from lipcert.runtime.clock import clock


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s")


@dataclass(eq=False)
class Meter:
    """Counts rows."""

    bar: Progress | None = None
    task: TaskID | None = None
    total: int = 0
    done: int = 0

    def advance(self, rows: int) -> None:
        """Some more rows are stored."""
        self.done += rows
        clock().say(f"{self.done} of {self.total} rows")
        if self.bar is not None and self.task is not None:
            self.bar.advance(self.task, rows)


@contextmanager
def metered(total: int, done: int, wanted: bool | None) -> Iterator[Meter]:
    """A meter on standard error; by default only where that is a terminal."""
    console = Console(stderr=True)
    if not (console.is_terminal if wanted is None else wanted):
        yield Meter()
        return
    columns = (BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(elapsed_when_finished=True))
    with Progress("certified balls", *columns, console=console) as bar:
        yield Meter(bar, bar.add_task("rows", total=total, completed=done))
