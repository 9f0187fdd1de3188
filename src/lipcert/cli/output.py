"""Print results as one JSON object or as text, also when something fails after there is a result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Sequence
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import rich.box
import rich.table
import typer
from rich.console import Console

from lipcert.answers.certificate import Certificate
from lipcert.answers.sensitivity import Sensitivity
from lipcert.errors import LipcertError
from lipcert.methods.lower import LowerBound
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Norms, Region
from lipcert.questions.loops.contraction import Contraction
from lipcert.questions.loops.discrepancy import Discrepancy
from lipcert.questions.loops.invariant import InvariantEllipsoid
from lipcert.questions.loops.tube import Tube
from lipcert.questions.tables import Table
from lipcert.questions.verify import Answer, save_answer
from lipcert.show import plots
from lipcert.show.wording import activations

Found = TypeVar("Found")
Step: TypeAlias = Callable[[], object]
_BEST_SO_FAR = "interrupted; this is the best answer so far"


def ask(question: Callable[..., Found], *arguments: Any, **options: Any) -> tuple[Found, list[BaseException]]:
    """The answer to a question; after an interrupt the best answer so far, if there is one, and the interrupt."""
    try:
        return question(*arguments, **options), []
    except KeyboardInterrupt as stop:
        found: Found | None = getattr(stop, "best", None)
        if found is None:
            raise
        return found, [KeyboardInterrupt(_BEST_SO_FAR)]


def ask_also(troubles: list[BaseException], question: Callable[..., Found], *arguments: Any) -> Found | None:
    """The answer to a second question; None if it fails, which joins the troubles, or after an interrupt."""
    try:
        found, stopped = ask(question, *arguments) if not troubles else (None, [])
    except KeyboardInterrupt:
        found, stopped = None, [KeyboardInterrupt(_BEST_SO_FAR)]
    except (LipcertError, MemoryError) as trouble:
        found, stopped = None, [trouble]
    troubles += stopped
    return found


def deliver(troubles: list[BaseException], *steps: Step | None) -> None:
    """Save, print and draw an answer: every step is taken, whatever fails; the first error is raised at the end."""
    for step in filter(None, steps):
        try:
            step()
        except (LipcertError, OSError) as trouble:
            troubles.append(trouble)
    if troubles:
        for other in troubles[1:]:
            troubles[0].add_note(str(other))
        raise troubles[0]


def saving(answer: Answer, path: Path | None) -> Step | None:
    """The step that saves an answer, if a file was named."""
    return None if path is None else partial(save_answer, answer, path)


def drawing(path: Path | None, figure: Callable[..., Any], *arguments: Any) -> Step | None:
    """The step that draws a figure, if a file was named."""
    return None if path is None else lambda: plots.save(figure(*arguments), path)


def showing(json: bool, record: Callable[..., Any], printer: Callable[..., None], *found: Any) -> Step:
    """The step that prints an answer, as one JSON object or as text."""
    return (lambda: print_json(record(*found))) if json else (lambda: printer(console(), *found))


class _Console(Console):
    """Raises if the reader of a pipe is gone, instead of ending the process."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console() -> Console:
    """The console for text."""
    return _Console(highlight=False)


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


def claim_record(claim: Any) -> dict[str, Any]:
    """What an answer claims, in JSON's types."""
    if isinstance(claim, (Contraction, InvariantEllipsoid)):
        inside = claim if isinstance(claim, Contraction) else claim.contraction
        region = region_record(inside.certificate.region)
        return {
            "rate": claim.rate,
            "gain": inside.gain,
            "shape": claim.shape.tolist(),
            "region": region,
            "network": claim.network,
        }
    if isinstance(claim, (Tube, Discrepancy)):
        found = {name: getattr(claim, name).tolist() for name in ("lower", "upper")}
        found |= {"region": region_record(claim.region), "network": claim.network}
        if isinstance(claim, Discrepancy):
            return found | {name: getattr(claim, name) for name in ("other", "precision", "ulps")}
        return found | {"disturbance": None if claim.disturbance is None else region_record(claim.disturbance)}
    found = {"bound": claim.bound, "region": region_record(claim.region), "network": claim.network}
    if isinstance(claim, Certificate):
        part = {"layers": claim.part.layers, "inputs": claim.part.inputs, "outputs": claim.part.outputs}
        return {**found, "part": part, **norms_record(claim.part.norms)}
    if isinstance(claim, Sensitivity):
        return {**found, "matrix": claim.matrix.tolist(), "outputs": claim.outputs, "inputs": claim.inputs}
    return found | {name: getattr(claim, name).tolist() for name in ("lower", "upper", "center", "shape")}


def lower_record(lower: LowerBound | None) -> dict[str, Any]:
    """A lower bound and where it is attained; None where there is none."""
    if lower is None:
        return {"lower": None, "lower_point": None}
    return {"lower": lower.value, "lower_point": lower.point.tolist()}


def ratio(bound: float, lower: LowerBound | None) -> float | None:
    """Bound divided by lower bound; None if that is not a number."""
    found = bound / lower.value if lower is not None and lower.value > 0.0 else math.inf
    return found if math.isfinite(found) else None
