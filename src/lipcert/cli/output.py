"""Results as one JSON object, or as text for people; and what happens when something goes wrong after there is one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from json import dumps
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console

from lipcert.errors import LipcertError
from lipcert.model.network import Network
from lipcert.model.norms import Norms
from lipcert.model.regions import Ball, Box, Region
from lipcert.proof.certificate import Certificate
from lipcert.proof.hints import Part
from lipcert.search.lower import LowerBound
from lipcert.show.wording import activations

Answer = TypeVar("Answer")


class Later:
    """What goes wrong after there is an answer waits until the answer has been shown.

    A verb works in a block ``with Later() as later:``; at its end the first trouble is raised.
    """

    def __init__(self) -> None:
        self.troubles: list[BaseException] = []

    def best(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        """The answer to a question; on an interrupt the best so far, if there is one."""
        try:
            return question(*arguments, **options)
        except KeyboardInterrupt as stop:
            found: Answer | None = getattr(stop, "best", None)
            if found is None:
                raise
            self.troubles.append(_stopped())
            return found

    def extra(self, question: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer | None:
        """The answer to a question that can be done without: None if it fails, or if there was an interrupt before."""
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
    """Leaves it to the caller what to do when nobody reads on."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console() -> Console:
    """Where verbs print for people."""
    return _Console(highlight=False)


def as_json(record: dict[str, Any]) -> str:
    """One JSON object; there is no NaN or infinity in it."""
    return dumps(record, ensure_ascii=False, allow_nan=False)


def show(json: bool, record: Callable[..., dict[str, Any]], printer: Callable[..., None], *found: Any) -> None:
    """What a verb found: as one JSON object, or printed for people."""
    if json:
        typer.echo(as_json(record(*found)))
    else:
        printer(console(), *found)


def network_record(network: Network) -> dict[str, Any]:
    """What tells a network from others."""
    return {"digest": network.digest, "sizes": list(network.sizes), "activations": activations(network)}


def certificate_record(network: Network, certificate: Certificate, lower: LowerBound | None) -> dict[str, Any]:
    """Everything there is to say of a certificate, in JSON's types."""
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
    """Name and options of a method; of a certificate that was read from a file, what it says of its method."""
    if isinstance(method, str):
        return {"name": method}
    known = dataclasses.is_dataclass(method) and not isinstance(method, type)
    options: dict[str, Any] = dataclasses.asdict(method) if known else {}  # type: ignore[call-overload]
    return {"name": type(method).__name__, **options}


def part_record(part: Part) -> dict[str, Any]:
    """The part of a network that is meant, and the norms of a bound where they are not plain ℓ2."""
    found = {"layers": part.layers, "inputs": part.inputs, "outputs": part.outputs}
    return {"part": found, **norms_record(part.norms)}


def norms_record(norms: Norms) -> dict[str, Any]:
    """The norms of a bound; nothing where both are plain ℓ2."""
    return {} if norms.plain else {"norms": {"input": norms.input.record(), "output": norms.output.record()}}


def region_record(region: Region) -> dict[str, Any]:
    """What defines a region."""
    if isinstance(region, Box):
        return {"kind": "box", "lower": region.lower.tolist(), "upper": region.upper.tolist()}
    if isinstance(region, Ball):
        clip = None if region.clip is None else region_record(region.clip)
        found = {"kind": "ball", "center": region.center.tolist(), "radius": float(region.radius), "clip": clip}
        return found if region.plain else found | {"norm": region.norm.record()}
    return {"kind": type(region).__name__.lower()}


def ratio(bound: float, lower: LowerBound | None) -> float | None:
    """How far apart bound and lower bound are; None where that has no meaning."""
    if lower is None or lower.value == 0.0 or not math.isfinite(bound / lower.value):
        return None
    return bound / lower.value
