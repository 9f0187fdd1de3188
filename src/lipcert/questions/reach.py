"""Reach sets: enclosures of the outputs over a region."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lipcert.answers.proofs import Pieces
from lipcert.answers.reach import Reach, reach_set
from lipcert.arguments.values import check_network
from lipcert.errors import Interrupted, InvalidInput
from lipcert.kernel.branch_and_bound import Cover, OutputRows
from lipcert.kernel.outputs import OutputBounds
from lipcert.methods.method import Method
from lipcert.methods.split import VANISHING, Auto, RowSearch, attained, halves_axes, output_values
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.questions.certify import question
from lipcert.questions.prove_outputs import limited, shorter_limit, splitting, stages
from lipcert.runtime.clock import Progress, clock, timed
from lipcert.runtime.machine import suited_to
from lipcert.suggest.hints import BOTH, Enclosure

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
    enclosures: Sequence[Enclosure] = BOTH,
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
        As for :func:`certify`. ``network.slice(0, i)`` is the network up to layer i, before its activation.
    region
        A :class:`Ball` or :class:`Box`.
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
    check_network(network)
    if not isinstance(region, Region) or not region.bounded:
        raise InvalidInput("reach needs a bounded region, such as Ball(center, radius)")
    region, method = question(network, region, Auto() if method is None else method, enclosures)
    work = _Work(network, method)
    with timed(shorter_limit(method, seconds), progress):
        try:
            work.run(region, enclosures)
        except KeyboardInterrupt:
            raise Interrupted(work.answer(started) if work.proofs else None) from None
        return work.answer(started)


@dataclass(eq=False)
class _Work:
    """What was proved so far."""

    network: Network
    method: Method
    proofs: list[OutputBounds] = field(default_factory=list)
    pieces: Pieces | None = None

    def answer(self, started: float) -> Reach:
        with np.errstate(all="ignore"):
            found = reach_set(self.proofs, self.pieces)
        return replace(found, seconds=time.perf_counter() - started, names=self.network.names)

    def run(self, region: Region, enclosures: Sequence[Enclosure]) -> None:
        network, split = self.network, splitting(self.method)
        whole = self.method if split is None else limited(split.method, _WHOLE * clock().left)
        for found in stages(network, region, whole, enclosures):
            self.proofs.append(found)
        if split is None or not halves_axes(network):
            return
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            values = partial(output_values, network)
            lower = attained(region, values)
            n = network.outputs
            least = _ROUNDED * float(np.abs(lower).max()) + VANISHING
            scale = np.tile(np.maximum(lower[:n] + lower[n:], least), 2)
            search = RowSearch(network, region, values, lower, scale, _SIDE * split.gap(region))
            cover = Cover(OutputRows(network, region, self.proofs[-1].sweeps))
            self.pieces = len(self.proofs) - 1, cover
            search.run(cover, np.inf if split.pieces is None else split.pieces)
