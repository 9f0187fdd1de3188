"""Reach sets: enclosures of the outputs over a region."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lipcert.answers.proofs import Pieces, Proof
from lipcert.answers.reach import Reach, reach_set
from lipcert.errors import Interrupted, InvalidInput
from lipcert.kernel.hints import BOTH, Enclosure
from lipcert.kernel.outputs import OutputBounds, both_sides
from lipcert.kernel.piece_bounds import OutputRows
from lipcert.methods import quadratic
from lipcert.methods.dual import DualSearch
from lipcert.methods.method import Method
from lipcert.methods.split import FEW_INPUTS, VANISHING, Auto, RowSearch, attained, covering, output_values
from lipcert.model.network import Network, network_in
from lipcert.model.regions import Ball, Region
from lipcert.questions.certify import question
from lipcert.questions.prove_outputs import limited, shorter_limit, splitting, stages
from lipcert.runtime.clock import OutOfTime, Progress, clock, timed
from lipcert.runtime.machine import suited_to

_SIDE = 0.2
"""Share of the tolerance for each side of an output."""
_ROUNDED = 2.0**-36
"""Widths below this share of the values are not narrowed further: they may be rounding errors."""
_WHOLE = 0.2
"""Share of the time for the region as a whole, if it may be cut."""


def reach(
    network: Network,
    region: Region,
    method: Method | str | None = None,
    *,
    layer: int | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    values: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Reach:
    """Enclose the outputs over a region, proved with outward rounding.

    The box is the intersection of three boxes: interval arithmetic, linear relaxation, and centre ± δ·(Lipschitz
    constant of each output), by ``ClosedForm()`` and by the method. ``Split()`` and the default ``Auto()`` also cut a
    region with few inputs into boxes, and bound each output over them. The ellipsoid shows which outputs vary together.

    Parameters
    ----------
    network, method, enclosures
        As for :func:`certify`.
    region
        A :class:`Ball` or :class:`Box`.
    layer
        Enclose the values of layer i, counted from 1, before its activation. Default: the output.
    values
        Also bound each output by quadratic relaxation and, in smaller networks, by value functions. For ℓ2 balls only;
        it takes a second or more per output.
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
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> found = lc.reach(net, lc.Ball([3.0, 3.0], 0.5))
    >>> print(found.lower.round(3), found.center, found.upper.round(3))
    [5.293] [6.] [6.707]
    """
    started = time.perf_counter()
    network_in(network)
    if not isinstance(region, Region) or not region.bounded:
        raise InvalidInput("reach needs a bounded region, such as Ball(center, radius)")
    region, method = question(network, region, Auto() if method is None else method, enclosures)
    last = network.depth if layer is None else layer
    if not isinstance(last, (int, np.integer)) or not 1 <= last <= network.depth:
        raise InvalidInput(f"layer must be from 1 to {network.depth}, got {layer!r}")
    part = network if last == network.depth else network.slice(0, last)
    if values and not (isinstance(region, Ball) and region.plain and region.center.ndim == 1):
        raise InvalidInput("values=True needs a ball of the ℓ2 norm without units")
    work = _Work(network, int(last), method, bool(values))
    with timed(shorter_limit(method, seconds), progress):
        try:
            work.run(part, region, enclosures)
        except KeyboardInterrupt:
            raise Interrupted(work.answer(started) if work.proofs else None) from None
        return work.answer(started)


@dataclass(eq=False)
class _Work:
    """What was proved so far."""

    network: Network
    layer: int
    method: Method
    values: bool
    proofs: list[OutputBounds] = field(default_factory=list)
    values_proof: Proof | None = None
    pieces: Pieces | None = None

    def answer(self, started: float) -> Reach:
        with np.errstate(all="ignore"):
            hints = [] if self.values_proof is None else [self.values_proof]
            found = reach_set(self.network, self.layer, self.proofs, hints, self.pieces)
        return replace(found, seconds=time.perf_counter() - started)

    def run(self, network: Network, region: Region, enclosures: Sequence[Enclosure]) -> None:
        split = splitting(self.method)
        whole = self.method if split is None else limited(split.method, _WHOLE * clock().left)
        for found in stages(network, region, whole, enclosures):
            self.proofs.append(found)
        if self.values and network.depth > 1:
            with suited_to(max(network.sizes)), np.errstate(all="ignore"):
                self._by_values(self.proofs[-1])
        if split is None or network.inputs > FEW_INPUTS or network.depth < 2:
            return
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            values = partial(output_values, network)
            lower = attained(region, values)
            n = network.outputs
            least = _ROUNDED * float(np.abs(lower).max()) + VANISHING
            scale = np.tile(np.maximum(lower[:n] + lower[n:], least), 2)
            search = RowSearch(network, region, values, lower, scale, _SIDE * split.tolerance)
            with covering(OutputRows(network, region, self.proofs[-1].sweeps), split.workers) as cover:
                self.pieces = len(self.proofs) - 1, cover
                search.run(cover, np.inf if split.pieces is None else split.pieces)

    def _by_values(self, facts: OutputBounds) -> None:
        """Search multipliers that bound every output from both sides, while there is time."""
        sides, search = both_sides(facts.network.outputs), DualSearch()
        proof = Proof("values", base=len(self.proofs) - 1)
        try:
            for number, row in enumerate(sides, 1):
                clock().say(f"value functions, side {number} of {len(sides)}")
                for lowest in (quadratic.lowest, search.lowest):
                    if (hints := lowest(facts, row)) is not None:
                        self.values_proof = proof = replace(proof, rows=(*proof.rows, hints))
        except OutOfTime:
            return
