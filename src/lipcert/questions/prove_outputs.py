"""Prove bounds of a network's outputs over regions, with the multipliers of a method."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.outputs import OutputBounds, outputs_asked, outputs_hinted
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.joint import Joint
from lipcert.methods.method import Greedy, Method, MethodGuide, Problem
from lipcert.methods.split import Auto, Split
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.questions.certify import explained, question
from lipcert.questions.stacks import stacked
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.runtime.machine import suited_to
from lipcert.suggest.hints import BOTH, Enclosure, Linear


def stages(network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure]) -> Iterator[OutputBounds]:
    """Proofs one after the other while there is time, the cheapest first, that of the method last."""
    region, method = question(network, region, method, enclosures)
    planned: list[tuple[Method, Sequence[Enclosure]]] = [(ClosedForm(), enclosures)]
    planned += [(ClosedForm(), (Linear(),))] if region.bounded else []
    planned += [] if method == ClosedForm() else [(method, enclosures)]
    failure, found, took = ProofFailed("no bound was found"), False, 0.0
    for one, ways in planned:
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


def limited(method: Method, seconds: float) -> Any:
    """The method with at most so many seconds, if it has a time limit."""
    own = getattr(method, "seconds", np.inf)
    return method if not hasattr(method, "seconds") or (own or np.inf) <= seconds else replace(method, seconds=seconds)  # type: ignore[type-var]


def splitting(method: Method) -> Split | None:
    """The splitting that a method does; None if it does not cut the region."""
    if isinstance(method, Auto):
        return Split(Joint(), method.seconds, pieces=method.pieces)
    return method if isinstance(method, Split) else None


def shorter_limit(method: Method, seconds: float | None) -> float | None:
    """The shorter one of a time limit and that of the method."""
    own = getattr(method, "seconds", None)
    return own if seconds is None else seconds if own is None else min(seconds, own)


def prove_outputs(
    network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure] = BOTH
) -> OutputBounds:
    """Bounds of the outputs over one region."""
    (found,) = prove_outputs_many(network, [region], method, enclosures)
    if isinstance(found, ProofFailed):
        raise found
    return found


def prove_outputs_many(
    network: Network, regions: Sequence[Region], method: Method, enclosures: Sequence[Enclosure] = BOTH
) -> list[OutputBounds | ProofFailed]:
    """Bounds over each of several regions, or why there is none."""
    regions = [question(network, region, method, enclosures)[0] for region in regions]
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        if isinstance(method, Greedy):
            guide = MethodGuide(method.choose_all, tuple(enclosures))
            return stacked(network, regions, partial(outputs_asked, network, guide=guide))
        found: list[OutputBounds | ProofFailed] = []
        for region in regions:
            try:
                with explained(method):
                    candidate = method.solve(Problem(network, region, tuple(enclosures)))
                if not candidate.sweeps:
                    has = f"{method} keeps no multipliers, only a bound"
                    raise InvalidInput(f"{has}; take another, such as ClosedForm() or Auto()")
                found.append(outputs_hinted(network, region, candidate.sweeps, candidate.cover))
            except ProofFailed as error:
                found.append(error)
        return found
