"""Reach sets: where the outputs lie when the input is in a region."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lipcert.errors import InvalidInput, Interrupted
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.reach import Reach, reach_set
from lipcert.questions.establish import limit, stages
from lipcert.runtime.clock import Progress, timed
from lipcert.search.auto import Auto
from lipcert.search.method import Method


def reach(
    network: Network,
    region: Region,
    method: Method | None = None,
    *,
    layer: int | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Reach:
    """Enclose the outputs over a region, proved with outward rounding.

    The box is the intersection of all that is known: interval arithmetic, linear relaxation, centre ± δ·(Lipschitz
    constant of each output), by ``ClosedForm()`` and by the method. The ellipsoid also tells which outputs move together.

    Parameters
    ----------
    network, method, enclosures
        As for :func:`certify`.
    region
        A :class:`Ball` or :class:`Box`.
    layer
        For an inner layer i, counted from 1: enclose its values before the activation. Default: the output.
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
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> found = lc.reach(net, lc.Ball([3.0, 3.0], 0.5))
    >>> print(found.lower.round(3), found.center, found.upper.round(3))
    [5.293] [6.] [6.707]
    """
    started = time.perf_counter()
    if not isinstance(network, Network):
        raise InvalidInput(f"network must be a lipcert.Network, got {type(network).__name__}")
    if not isinstance(region, Region) or not region.bounded:
        raise InvalidInput("reach needs a bounded region, such as Ball(center, radius)")
    if region.dimension != network.inputs:
        raise InvalidInput(f"the region has {region.dimension} coordinates, the network has {network.inputs} inputs")
    last = network.depth if layer is None else layer
    if not isinstance(last, (int, np.integer)) or not 1 <= last <= network.depth:
        raise InvalidInput(f"layer must be from 1 to {network.depth}, got {layer!r}")
    part = network if last == network.depth else network.slice(0, last)
    method = Auto() if method is None else method
    proofs: list[OutputBounds] = []
    with timed(limit(method, seconds), progress):
        try:
            for found in stages(part, region, method, enclosures):
                proofs.append(found)
        except KeyboardInterrupt:
            raise Interrupted(_answer(network, int(last), proofs, started) if proofs else None) from None
        return _answer(network, int(last), proofs, started)


def _answer(network: Network, layer: int, proofs: Sequence[OutputBounds], started: float) -> Reach:
    return replace(reach_set(network, layer, proofs), seconds=time.perf_counter() - started)
