"""What is proved of a network's outputs over regions, with the multipliers of a method."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.hints import BOTH, Enclosure, Linear
from lipcert.proof.outputs import OutputBounds, outputs_asked, outputs_hinted, projected
from lipcert.questions.certify import question
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.runtime.threads import suited_to
from lipcert.search.asked import Asked
from lipcert.search.auto import Auto
from lipcert.search.closed_form import ClosedForm
from lipcert.search.joint import Joint
from lipcert.search.method import Greedy, Method
from lipcert.search.problem import Problem
from lipcert.search.split import Split


def stages(network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure]) -> Iterator[OutputBounds]:
    """One proof after the other, while there is time: the cheapest first, that of the method last."""
    region, method = question(network, region, method, enclosures)
    asked: list[tuple[Method, Sequence[Enclosure]]] = [(ClosedForm(), enclosures)]
    asked += [(ClosedForm(), (Linear(),))] if region.bounded else []
    asked += [] if method == ClosedForm() else [(method, enclosures)]
    failure, found, took = ProofFailed("no bound was found"), False, 0.0
    for one, ways in asked:
        if found and not clock().allows(took):
            return
        started = time.perf_counter()
        try:
            yield prove_outputs(network, region, one, ways)
            found = True
        except ProofFailed as error:
            failure = error
        except OutOfTime:
            break
        took = time.perf_counter() - started
    if not found:
        raise failure


def within(method: Method, seconds: float) -> Any:
    """The method, with a time limit of so many seconds if it can have one and its own is not shorter."""
    own = getattr(method, "seconds", np.inf)
    return method if not hasattr(method, "seconds") or (own or np.inf) <= seconds else replace(method, seconds=seconds)  # type: ignore[type-var]


def pieces_of(method: Method) -> Split | None:
    """How a method cuts the region, and what it does with the whole of it first; None if it does not cut."""
    if isinstance(method, Auto):
        return Split(Joint(), method.seconds, pieces=method.pieces)
    return method if isinstance(method, Split) else None


def limit(method: Method, seconds: float | None) -> float | None:
    """The shorter of the time limits of a question and of its method."""
    own = getattr(method, "seconds", None)
    return own if seconds is None else seconds if own is None else min(seconds, own)


def prove_outputs(
    network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure] = BOTH
) -> OutputBounds:
    """Prove what can be said of the outputs over one region."""
    (found,) = prove_outputs_many(network, [region], method, enclosures)
    if isinstance(found, ProofFailed):
        raise found
    return found


def prove_outputs_many(
    network: Network, regions: Sequence[Region], method: Method, enclosures: Sequence[Enclosure] = BOTH
) -> list[OutputBounds | ProofFailed]:
    """The same for several regions, or why nothing is proved for one of them."""
    regions = [question(network, region, method, enclosures)[0] for region in regions]
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        if isinstance(method, Greedy):
            return outputs_asked(network, regions, Asked(method, tuple(enclosures)))
        found: list[OutputBounds | ProofFailed] = []
        for region in regions:
            try:
                found.append(_hinted(network, region, method, tuple(enclosures)))
            except ProofFailed as error:
                found.append(error)
        return found


def _hinted(network: Network, region: Region, method: Method, enclosures: tuple[Enclosure, ...]) -> OutputBounds:
    """One region, with the hints of a method that looks at the network as a whole."""
    try:
        candidate = method.solve(Problem(*projected(network, region), enclosures))
    except np.linalg.LinAlgError as error:
        raise ProofFailed(f"{method} found no bound: {error}; weights may be too large or ill-scaled") from error
    if not candidate.sweeps:
        raise InvalidInput(f"{method} keeps no multipliers, only a bound; take another, such as ClosedForm() or Auto()")
    return outputs_hinted(network, region, candidate.sweeps, candidate.cover)
