"""Print results as one JSON object or as text, also when something fails after there is a result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Sequence
from json import dumps
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import rich.box
import rich.table
import typer
from rich.console import Console

from lipcert.errors import LipcertError
from lipcert.kernel.hints import Part
from lipcert.methods.lower import LowerBound
from lipcert.model.network import Network
from lipcert.model.norms import Norms
from lipcert.model.regions import Ball, Box, Region
from lipcert.questions.tables import Table
from lipcert.questions.verify import Answer, save_answer
from lipcert.show import plots
from lipcert.show.wording import activations

Found = TypeVar("Found")


class Later:
    """Collects errors that happen after there is an answer, so that the answer is shown first.

    A verb works in a block ``with Later() as later:``; the first error is raised at its end.
    """

    def __init__(self) -> None:
        self.troubles: list[BaseException] = []

    def best(self, question: Callable[..., Found], *arguments: Any, **options: Any) -> Found:
        """The answer to a question; on an interrupt the best answer so far, if there is one."""
        try:
            return question(*arguments, **options)
        except KeyboardInterrupt as stop:
            found: Found | None = getattr(stop, "best", None)
            if found is None:
                raise
            self.troubles.append(_stopped())
            return found

    def extra(self, question: Callable[..., Found], *arguments: Any, **options: Any) -> Found | None:
        """The answer to an optional question; None if it fails, or after an interrupt."""
        if any(isinstance(trouble, KeyboardInterrupt) for trouble in self.troubles):
            return None
        try:
            return self.best(question, *arguments, **options)
        except (LipcertError, MemoryError) as trouble:
            self.troubles.append(trouble)
        except KeyboardInterrupt:
            self.troubles.append(_stopped())
        return None

    def attempt(self, write: Callable[..., object], *arguments: Any) -> None:
        """Write a file, or print."""
        try:
            write(*arguments)
        except (LipcertError, OSError) as trouble:
            self.troubles.append(trouble)

    def save(self, answer: Answer, path: Path | None) -> None:
        """Save an answer, if a file was named."""
        if path is not None:
            self.attempt(save_answer, answer, path)

    def draw(self, path: Path | None, figure: Callable[..., Any], *arguments: Any) -> None:
        """Draw a figure and save it, if a file was named."""
        if path is not None:
            self.attempt(plots.save, figure(*arguments), path)

    def __enter__(self) -> Later:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None and self.troubles:
            first, *others = self.troubles
            for other in others:
                first.add_note(str(other))
            raise first


def _stopped() -> KeyboardInterrupt:
    return KeyboardInterrupt("interrupted; this is the best answer so far")


class _Console(Console):
    """Raises if the reader of a pipe is gone, instead of ending the process."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console() -> Console:
    """The console for text."""
    return _Console(highlight=False)


def show(json: bool, record: Callable[..., dict[str, Any]], printer: Callable[..., None], *found: Any) -> None:
    """Print a result as one JSON object, or as text."""
    if json:
        print_json(record(*found))
    else:
        printer(console(), *found)


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object, without NaN or infinity."""
    typer.echo(dumps(record, ensure_ascii=False, allow_nan=False))


def grid(facts: Sequence[tuple[str, str]]) -> rich.table.Table:
    """Facts with their names, a line for each."""
    table = rich.table.Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for fact in facts:
        table.add_row(*fact)
    return table


def ruled(table: Table, ends: Container[int] = (), compact: bool = False) -> rich.table.Table:
    """A table for the terminal, with a line after the rows ``ends``; a compact one has few lines."""
    look: dict[str, Any] = {"box": rich.box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if compact else {}
    shown = rich.table.Table(**look)
    for heading, right in zip(table.headings, table.numeric, strict=True):
        shown.add_column(heading, justify="right" if right else "left", no_wrap=right)
    for number, row in enumerate(table.rows):
        shown.add_row(*(rich.markup.escape(cell.text) for cell in row), end_section=number in ends)
    return shown


def network_record(network: Network) -> dict[str, Any]:
    """A network in JSON's types."""
    return {"digest": network.digest, "sizes": list(network.sizes), "activations": activations(network)}


def method_record(method: object) -> dict[str, Any]:
    """Name and options of a method; of a certificate from a file, the method's text in the file."""
    if isinstance(method, str):
        return {"name": method}
    known = dataclasses.is_dataclass(method) and not isinstance(method, type)
    options: dict[str, Any] = dataclasses.asdict(method) if known else {}  # type: ignore[call-overload]
    return {"name": type(method).__name__, **options}


def part_record(part: Part) -> dict[str, Any]:
    """The part of a network, and the norms of a bound if they are not plain ℓ2."""
    found = {"layers": part.layers, "inputs": part.inputs, "outputs": part.outputs}
    return {"part": found, **norms_record(part.norms)}


def norms_record(norms: Norms) -> dict[str, Any]:
    """The norms of a bound; empty if both are plain ℓ2."""
    return {} if norms.plain else {"norms": {"input": norms.input.record(), "output": norms.output.record()}}


def region_record(region: Region) -> dict[str, Any]:
    """A region in JSON's types."""
    if isinstance(region, Box):
        return {"kind": "box", "lower": region.lower.tolist(), "upper": region.upper.tolist()}
    if isinstance(region, Ball):
        clip = None if region.clip is None else region_record(region.clip)
        found = {"kind": "ball", "center": region.center.tolist(), "radius": float(region.radius), "clip": clip}
        return found if region.plain else found | {"norm": region.norm.record()}
    return {"kind": type(region).__name__.lower()}


def lower_record(bound: float, lower: LowerBound | None) -> dict[str, Any]:
    """A lower bound, where it is attained, and the ratio; None where there is none."""
    if lower is None:
        return {"lower": None, "lower_point": None, "ratio": None}
    return {"lower": lower.value, "lower_point": lower.point.tolist(), "ratio": ratio(bound, lower)}


def ratio(bound: float, lower: LowerBound) -> float | None:
    """Bound divided by lower bound; None if that is not a number."""
    found = bound / lower.value if lower.value > 0.0 else math.inf
    return found if math.isfinite(found) else None
