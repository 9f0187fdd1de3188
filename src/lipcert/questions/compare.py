"""Every method on one network and region, each in a process of its own under a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from lipcert.errors import Interrupted, InvalidInput, LipcertError, ProofFailed
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.proof.hints import BOTH
from lipcert.published import (
    AAO,
    Eclipse,
    EclipseFast,
    EclipseGen,
    EclipseGenLocal,
    GeoLIP,
    GLipSDP,
    JacobianBox,
    LipDiff,
    LipSDP,
    NotApplicable,
    SeqLip,
    Trivial,
)
from lipcert.questions.certify import certify
from lipcert.runtime.clock import Progress, timed
from lipcert.runtime.limits import Unguarded, within
from lipcert.runtime.threads import suited_to
from lipcert.search.anytime import Anytime
from lipcert.search.auto import Auto
from lipcert.search.candidate import Candidate
from lipcert.search.closed_form import ClosedForm
from lipcert.search.diagonal import Diagonal
from lipcert.search.joint import Joint
from lipcert.search.lower import LowerBound, lower_bound
from lipcert.search.method import Method
from lipcert.search.problem import Problem
from lipcert.search.scalar import Scalar
from lipcert.search.split import Split

PUBLISHED: Final[Mapping[str, Callable[[], Method]]] = {
    "trivial": Trivial,
    "seqlip": SeqLip,
    "aao": AAO,
    "lipdiff": LipDiff,
    "geolip": GeoLIP,
    "lipsdp-layer": lambda: LipSDP("layer"),
    "lipsdp-layer-split": lambda: LipSDP("layer", split=10),
    "lipsdp-neuron": lambda: LipSDP("neuron"),
    "lipsdp-neuron-split": lambda: LipSDP("neuron", split=10),
    "glipsdp": GLipSDP,
    "eclipse-fast": EclipseFast,
    "eclipse": Eclipse,
    "eclipse-gen-cf": lambda: EclipseGen("CF"),
    "eclipse-gen-fast": lambda: EclipseGen("Fast"),
    "eclipse-gen-acc": lambda: EclipseGen("Acc"),
    "eclipse-gen-local-cf": lambda: EclipseGenLocal("CF"),
    "eclipse-gen-local-fast": lambda: EclipseGenLocal("Fast"),
    "eclipse-gen-local-acc": lambda: EclipseGenLocal("Acc"),
    "jacobian-box": JacobianBox,
}
"""The methods of the literature by name."""

OWN: Final[Mapping[str, Callable[[], Method]]] = {
    "closed-form": ClosedForm,
    "scalar": Scalar,
    "diagonal": Diagonal,
    "joint": Joint,
    "auto": Auto,
    "split": Split,
}
"""lipcert's own."""

METHODS: Final = {**PUBLISHED, **OWN}

_SHARE = 0.7
"""Share of the limit that methods with a time of their own may use; they may overrun it by their first bound."""

Status = Literal["certified", "timeout", "does not apply", "failed"]


@dataclass(frozen=True)
class Row:
    """What one method did.

    Attributes
    ----------
    name : of the method, as on the command line.
    status : "certified", "timeout", "does not apply" or "failed".
    bound : the bound, or None without one. For a method of the literature, the number as published.
    ratio : the bound over the lower bound, where there is one.
    seconds : what it took, proof included; for a timeout the limit.
    verified : whether the bound is proved with rounding accounted for.
    note : why there is no bound.
    """

    name: str
    status: Status
    bound: float | None = None
    ratio: float | None = None
    seconds: float | None = None
    verified: bool = False
    note: str = ""

    @property
    def published(self) -> bool:
        """Whether it is a method of the literature."""
        return self.name in PUBLISHED


@dataclass(frozen=True, eq=False)
class Comparison:
    """A row for each method, in the order asked for, and the lower bound they are measured by."""

    rows: tuple[Row, ...]
    lower: LowerBound | None


def compare(
    network: Network,
    region: Region | None = None,
    methods: Iterable[str] | None = None,
    *,
    timeout: float = 60.0,
    lower: bool = True,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run methods side by side: bound, ratio to a lower bound, seconds.

    Parameters
    ----------
    network, region
        As for :func:`certify`; global methods ignore the region.
    methods
        Names from ``METHODS``; the default is all of them.
    timeout
        Seconds that each method may take, start-up not counted. A method that takes longer is stopped, and the others
        go on.
    lower
        Search for a lower bound first; only bounded regions have one.
    seconds
        How long all of it may take; methods whose turn has not come by then are "timeout". Default: no limit but those
        of the methods.
    progress
        As for :func:`certify`.

    Notes
    -----
    Methods run one after another in fresh processes. A script that calls this needs the usual
    ``if __name__ == "__main__":``.
    """
    names = list(METHODS) if methods is None else list(methods)
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise InvalidInput(f"methods: {', '.join(map(repr, unknown))} unknown; known are {', '.join(METHODS)}")
    if not (math.isfinite(timeout) and timeout > 0.0):
        raise InvalidInput(f"timeout must be a positive number of seconds, got {timeout}")
    region = Everywhere() if region is None else region
    rows = []
    with timed(seconds, progress) as clock:
        below = lower_bound(network, region) if lower and region.bounded else None
        for number, name in enumerate(names, 1):
            clock.say(f"{number} of {len(names)}: {name}")
            limit = min(timeout, clock.left)
            if limit <= 0.0:
                rows.append(Row(name, "timeout", seconds=0.0, note="no time was left"))
                continue
            try:
                row = supervised(name, limit, run, name, network, region, limit)
            except KeyboardInterrupt as interrupt:
                raise Interrupted(Comparison(tuple(rows), below) if rows else None) from interrupt
            if below is not None and below.value > 0.0 and row.bound is not None:
                row = replace(row, ratio=row.bound / below.value)
            rows.append(row)
    return Comparison(tuple(rows), below)


def supervised(name: str, timeout: float, function: Callable[..., Row], *arguments: Any) -> Row:
    """The row that a function makes for a method, in a process of its own, stopped at the limit; whatever else happens
    becomes a row too.
    """
    try:
        return within(timeout, function, *arguments)
    except TimeoutError as error:
        return Row(name, "timeout", seconds=timeout, note=str(error))
    except Unguarded:
        raise
    except (NotApplicable, InvalidInput) as error:
        return Row(name, "does not apply", note=str(error))
    except LipcertError as error:
        return Row(name, "failed", note=str(error))


def run(name: str, network: Network, region: Region, timeout: float) -> Row:
    """One method here and now."""
    method = METHODS[name]()
    started = time.perf_counter()
    if isinstance(method, Anytime):  # they take what time they are given
        certificate = certify(network, region, replace(method, seconds=_SHARE * timeout))  # type: ignore[type-var]
        return Row(name, "certified", certificate.bound, None, time.perf_counter() - started, certificate.verified)
    try:
        with suited_to(max(network.sizes)):
            candidate = method.solve(Problem(network, region, BOTH))
    except np.linalg.LinAlgError as error:
        raise ProofFailed(f"{method} found no bound: {error}; weights may be too large or ill-scaled") from error
    certificate = certify(network, region, _Found(candidate))
    # what a method's multipliers prove can be less than what it publishes; the comparison is of what is published
    bound = max(candidate.bound, certificate.bound)
    return Row(name, "certified", bound, None, time.perf_counter() - started, certificate.verified)


@dataclass(frozen=True, eq=False)
class _Found(Method):
    """A candidate that was found already."""

    candidate: Candidate

    def solve(self, problem: Problem) -> Candidate:
        return self.candidate
