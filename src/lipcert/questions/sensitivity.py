"""A matrix of certified bounds: how fast each output can change with each input."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lipcert.answers.proofs import Pieces, Proof
from lipcert.answers.sensitivity import Sensitivity, pair_facts, sensitivities
from lipcert.arguments.values import check_network
from lipcert.errors import Interrupted, InvalidInput, ProofFailed
from lipcert.kernel.branch_and_bound import Cover, JacobianEntries, has_taylor
from lipcert.kernel.facts import PairsFact, Part
from lipcert.kernel.outputs import Group, OutputBounds, pair_bound
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Method, Problem
from lipcert.methods.split import VANISHING, Auto, RowSearch, attained, entry_sizes, halves_axes
from lipcert.model.arrays import indices
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.questions.certify import question
from lipcert.questions.prove_outputs import limited, shorter_limit, splitting, stages
from lipcert.runtime.clock import Progress, clock, timed
from lipcert.runtime.machine import suited_to
from lipcert.suggest.hints import BOTH, Enclosure

_WHOLE = 0.5
"""Share of the time for the bound of all inputs and outputs together."""
_PIECES = 0.7
"""Share of the remaining time for branch and bound, if the region is cut."""
_PAIRED = 0.05
"""Share of the time for the whole region, and for single pairs, if boxes are bounded to second order."""
_BRIEF = 0.1
"""Seconds that are always spent; the bounds of all pairs take a pass for each input, or output if they are fewer."""
_SMALL = 0.2
"""Derivatives below this share of the largest are bounded only up to that share."""
_PAIRS = 16
"""Pairs that are bounded alone if there is no time limit."""


def sensitivity(
    network: Network,
    region: Region | None = None,
    method: Method | str | None = None,
    *,
    inputs: Iterable[int | Iterable[int]] | None = None,
    outputs: Iterable[int | Iterable[int]] | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Bound how fast each output can change with each input, proved with outward rounding.

    First all pairs are bounded, by a pass for each output, or input if they are fewer. Then single pairs, the largest
    bounds first, are bounded alone, as by ``certify(inputs=…, outputs=…)``: as many as there is time for, or 16 without
    a time limit. ``Split()`` and the default ``Auto()`` also cut a region with few inputs into boxes, and bound every
    entry of the Jacobian over them.

    Parameters
    ----------
    network, region, enclosures
        As for :func:`certify`.
    method
        How multipliers are chosen; default ``Auto()``.
    inputs, outputs
        Coordinates or groups of coordinates, as in ``inputs=[0, 1, (2, 3)]``. Default: every coordinate by itself.
    seconds
        Time limit; default: that of the method. The first proof is always finished.
    progress
        Called with lines of text that say what is being done.

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
    check_network(network)
    region, method = question(network, region, Auto() if method is None else method, enclosures)
    into, out = _groups("inputs", inputs, network.inputs), _groups("outputs", outputs, network.outputs)
    work = _Work(network, region, method, out, into)
    with timed(shorter_limit(method, seconds), progress):
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
    pairs: list[Proof] = field(default_factory=list)
    pieces: Pieces | None = None
    facts: list[PairsFact] = field(default_factory=list)
    all_pairs: bool = True
    """Whether there is time for the passes that bound all pairs."""

    def answer(self, started: float) -> Sensitivity:
        return replace(self.found(), seconds=time.perf_counter() - started, names=self.network.names)

    def found(self) -> Sensitivity:
        with np.errstate(all="ignore"):
            if not self.facts:
                self.facts += pair_facts(self.proofs, self.out, self.into, (), self.pieces, self.all_pairs)
            return sensitivities(self.proofs, self.out, self.into, self.facts, self.pairs, self.pieces)

    def run(self, enclosures: Sequence[Enclosure]) -> None:
        share = (_PAIRED if has_taylor(self.network) else _WHOLE) * clock().left
        started, first = time.perf_counter(), 0.0
        for found in stages(self.network, self.region, limited(self.method, share), enclosures):
            first = first or time.perf_counter() - started
            self.proofs.append(found)
        passes = len(self.proofs) * min(self.network.inputs, self.network.outputs)
        self.all_pairs = first < _BRIEF or clock().allows(passes * first)
        with suited_to(max(self.network.sizes)), np.errstate(all="ignore"):
            self.cut()
            for method in dict.fromkeys([ClosedForm(), self.method]):
                self.single(method, first)

    def cut(self) -> None:
        """Branch and bound on the entries of the Jacobian, if the method cuts the region and there are few inputs."""
        split, network = splitting(self.method), self.network
        if split is None or not self.region.bounded or not halves_axes(network):
            return
        values = partial(entry_sizes, network)
        lower = attained(self.region, values)
        scale = np.maximum(lower, max(_SMALL * float(lower.max()), VANISHING))
        search = RowSearch(network, self.region, values, lower, scale, split.gap(self.region))
        bounding = JacobianEntries(network, self.region, self.proofs[-1].sweeps)
        rest = (_PAIRED if bounding.curved else 1.0 - _PIECES) * max(clock().left, 0.0)
        with clock().keeping(rest if np.isfinite(rest) else 0.0):
            cover = Cover(bounding)
            self.pieces = len(self.proofs) - 1, cover
            search.run(cover, np.inf if split.pieces is None else split.pieces * lower.size)

    def single(self, method: Method, took: float) -> None:
        """Bound single pairs, the largest first. ``took`` estimates the time of the first one."""
        matrix = self.found().matrix
        order = np.argsort(-matrix, axis=None)
        has_limit = np.isfinite(clock().left)
        order = order if has_limit else order[:_PAIRS]
        base = self.proofs[-1]
        for number, place in enumerate(order):
            started = time.perf_counter()
            if not clock().allows(took):
                return
            row, column = divmod(int(place), len(self.into))
            clock().say(f"pair {number + 1} of {matrix.size}, largest bound so far {matrix.max():.4g}")
            part = self.network.select(self.into[column], self.out[row])
            problem = Problem(part, self.region, (), base.intervals)
            try:
                hints = limited(method, clock().left / (len(order) - number)).solve(problem).sweeps
                self.facts.append(pair_bound(base, self.out[row], self.into[column], hints))
                about = Part((0, self.network.depth), self.into[column], self.out[row])
                self.pairs.append(Proof("pair", hints, part=about, base=len(self.proofs) - 1))
            except (ProofFailed, np.linalg.LinAlgError) as failure:
                clock().say(f"output {self.out[row]}, input {self.into[column]}: {failure}")
            took = time.perf_counter() - started


def _groups(name: str, groups: Iterable[int | Iterable[int]] | None, size: int) -> tuple[Group, ...]:
    if groups is None:
        return tuple((k,) for k in range(size))
    if not isinstance(groups, Iterable):
        raise InvalidInput(f"{name} must be a list of coordinates or groups of them, got {groups!r}")
    found = tuple(
        tuple(indices(name, [item] if isinstance(item, (int, np.integer)) else item, size).tolist()) for item in groups
    )
    if not found:
        raise InvalidInput(f"{name} is empty; give coordinates or groups of coordinates, or leave it out for all")
    return found
