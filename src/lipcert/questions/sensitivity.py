"""How strongly each output depends on each input: a matrix of certified bounds from one sweep."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lipcert.errors import InvalidInput, Interrupted, ProofFailed
from lipcert.model.arguments import indices
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.sensitivity import Group, PairBound, Sensitivity, prove_pair, sensitivities
from lipcert.questions.establish import limit, stages, within
from lipcert.runtime.clock import Progress, clock, timed
from lipcert.runtime.threads import suited_to
from lipcert.search.auto import Auto
from lipcert.search.closed_form import ClosedForm
from lipcert.search.method import Method
from lipcert.search.problem import Problem

_WHOLE = 0.5
"""Share of the time that the bound of all inputs and outputs together may take."""
_PAIRS = 16
"""Pairs that are bounded by themselves where there is no time limit."""


def sensitivity(
    network: Network,
    region: Region | None = None,
    method: Method | None = None,
    *,
    inputs: Iterable[int | Iterable[int]] | None = None,
    outputs: Iterable[int | Iterable[int]] | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Bound how fast each output can change with each input, proved with outward rounding.

    All pairs together take a few times as long as one :func:`certify`, however many there are. Then as many pairs as
    there is time for, the largest bounds first, are bounded each by itself, as ``certify(inputs=…, outputs=…)`` does; a
    method without a time limit does this for 16 of them.

    Parameters
    ----------
    network, region, enclosures
        As for :func:`certify`.
    method
        How multipliers are chosen; default ``Auto()``.
    inputs, outputs
        Coordinates or groups of coordinates, as in ``inputs=[0, 1, (2, 3)]``. Default: every coordinate by itself.
    seconds
        When the answer is due; None leaves that to the method. The first proof is made however long it takes.
    progress
        Called with a line of text that says what is being done.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``best`` is the answer so far.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [1.0, 1.0]]], activation="tanh")
    >>> lc.sensitivity(net, lc.Ball([0.0, 0.0], 0.01)).matrix.round(2)
    array([[1., 0.],
           [1., 3.]])
    """
    started = time.perf_counter()
    region = Everywhere() if region is None else region
    if not isinstance(network, Network):
        raise InvalidInput(f"network must be a lipcert.Network, got {type(network).__name__}")
    if not isinstance(region, Region):
        raise InvalidInput(f"region must be a Ball, Box or Everywhere, got {type(region).__name__}")
    if region.dimension not in (None, network.inputs):
        raise InvalidInput(f"the region has {region.dimension} coordinates, the network has {network.inputs} inputs")
    into, out = _groups("inputs", inputs, network.inputs), _groups("outputs", outputs, network.outputs)
    method = Auto() if method is None else method
    work = _Work(network, region, method, out, into)
    with timed(limit(method, seconds), progress):
        try:
            work.run(enclosures)
        except KeyboardInterrupt:
            raise Interrupted(work.answer(started) if work.proofs else None) from None
        return work.answer(started)


@dataclass(eq=False)
class _Work:
    """What was proved so far."""

    network: Network
    region: Region
    method: Method
    out: tuple[Group, ...]
    into: tuple[Group, ...]
    proofs: list[OutputBounds] = field(default_factory=list)
    pairs: list[PairBound] = field(default_factory=list)

    def answer(self, started: float) -> Sensitivity:
        found = sensitivities(self.proofs, self.out, self.into, self.pairs)
        return replace(found, seconds=time.perf_counter() - started)

    def run(self, enclosures: Sequence[Enclosure]) -> None:
        share = _WHOLE * clock().left
        for found in stages(self.network, self.region, within(self.method, share), enclosures):
            self.proofs.append(found)
        with suited_to(max(self.network.sizes)), np.errstate(all="ignore"):
            for method in dict.fromkeys([ClosedForm(), self.method]):
                self.single(method)

    def single(self, method: Method) -> None:
        """Bounds for pairs by themselves, the largest first."""
        matrix = sensitivities(self.proofs, self.out, self.into, self.pairs).matrix
        order = np.argsort(-matrix, axis=None)
        limited = np.isfinite(clock().left)
        order = order if limited else order[:_PAIRS]
        took, base = 0.0, self.proofs[-1]
        for number, place in enumerate(order):
            started = time.perf_counter()
            if not clock().allows(took):
                return
            row, column = divmod(int(place), len(self.into))
            clock().say(f"pair {number + 1} of {matrix.size}, largest bound so far {matrix.max():.4g}")
            part = self.network.select(self.into[column], self.out[row])
            problem = Problem(part, self.region, (), base.intervals)
            try:
                hints = within(method, clock().left / (len(order) - number)).solve(problem).sweeps
                self.pairs.append(prove_pair(base, self.out[row], self.into[column], hints))
            except (ProofFailed, np.linalg.LinAlgError) as failure:
                clock().say(f"output {self.out[row]}, input {self.into[column]}: {failure}")
            took = time.perf_counter() - started


def _groups(name: str, given: Iterable[int | Iterable[int]] | None, size: int) -> tuple[Group, ...]:
    if given is None:
        return tuple((k,) for k in range(size))
    if not isinstance(given, Iterable):
        raise InvalidInput(f"{name} must be a list of coordinates or groups of them, got {given!r}")
    groups = tuple(
        tuple(indices(name, [item] if isinstance(item, (int, np.integer)) else item, size).tolist()) for item in given
    )
    if not groups:
        raise InvalidInput(f"{name} is empty; give coordinates or groups of coordinates, or leave it out for all")
    return groups
