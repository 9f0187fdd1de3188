"""Print results as one JSON object or as text, also when something fails after there is a result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from json import dumps
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Column, Table

from lipcert.errors import LipcertError
from lipcert.kernel.certificate import Certificate
from lipcert.kernel.hints import Part
from lipcert.methods.lower import LowerBound
from lipcert.model.network import Network
from lipcert.model.norms import Norms
from lipcert.model.regions import Ball, Box, Region
from lipcert.show.wording import activations

Answer = TypeVar("Answer")


class Later:
    """Collects errors that happen after there is an answer, so that the answer is shown first.

    A verb works in a block ``with Later() as later:``; the first error is raised at its end.
    """

    def __init__(self) -> None:
        self.troubles: list[BaseException] = []

    def best(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """The answer to a question; on an interrupt the best answer so far, if there is one."""
        try:
            return question(*arguments, **options)
        except KeyboardInterrupt as stop:
            found: Answer | None = getattr(stop, "best", None)
            if found is None:
                raise
            self.troubles.append(_stopped())
            return found

    def extra(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer | None:
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


def as_json(record: dict[str, Any]) -> str:
    """One JSON object, without NaN or infinity."""
    return dumps(record, ensure_ascii=False, allow_nan=False)


def show(json: bool, record: Callable[..., dict[str, Any]], printer: Callable[..., None], *found: Any) -> None:
    """Print a result as one JSON object, or as text."""
    if json:
        typer.echo(as_json(record(*found)))
    else:
        printer(console(), *found)


def aligned(left: int, *headings: str) -> Table:
    """A table whose first columns are set to the left, the others to the right."""
    columns = (Column(name, justify="left" if k < left else "right", no_wrap=True) for k, name in enumerate(headings))
    return Table(*columns)


def network_record(network: Network) -> dict[str, Any]:
    """A network in JSON's types."""
    return {"digest": network.digest, "sizes": list(network.sizes), "activations": activations(network)}


def certificate_record(network: Network, certificate: Certificate, lower: LowerBound | None) -> dict[str, Any]:
    """A certificate in JSON's types."""
    return {
        "bound": certificate.bound,
        "lower": None if lower is None else lower.value,
        "lower_point": None if lower is None else lower.point.tolist(),
        "ratio": ratio(certificate.bound, lower),
        "method": method_record(certificate.method),
        "region": region_record(certificate.region),
        "network": network_record(network),
        **part_record(certificate.part),
        "seconds": certificate.seconds,
        "verified": certificate.verified,
        **({"note": certificate.note} if certificate.note else {}),
    }


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


def ratio(bound: float, lower: LowerBound | None) -> float | None:
    """Bound divided by lower bound; None if that is not a number."""
    if lower is None or lower.value == 0.0 or not math.isfinite(bound / lower.value):
        return None
    return bound / lower.value
