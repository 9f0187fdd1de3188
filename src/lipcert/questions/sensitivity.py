"""How strongly each output depends on each input: a matrix of certified bounds from one sweep."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arguments import indices
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.sensitivity import Group, Sensitivity, sensitivities
from lipcert.questions.establish import establish
from lipcert.search.method import Method
from lipcert.search.scalar import Scalar


def sensitivity(
    network: Network,
    region: Region | None = None,
    method: Method | None = None,
    *,
    inputs: Iterable[int | Iterable[int]] | None = None,
    outputs: Iterable[int | Iterable[int]] | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
) -> Sensitivity:
    """Bound how fast each output can change with each input, proved with outward rounding.

    The work is that of one :func:`certify` and a fraction more, however many pairs there are.

    Parameters
    ----------
    network, region, enclosures
        As for :func:`certify`.
    method
        How multipliers are chosen; default ``Scalar()``. Cutting the region, as ``Auto()`` does, is of no use here.
    inputs, outputs
        Coordinates or groups of coordinates, as in ``inputs=[0, 1, (2, 3)]``. Default: every coordinate by itself.

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
    found = establish(network, region, Scalar() if method is None else method, enclosures)
    return replace(sensitivities(found, out, into), seconds=time.perf_counter() - started)


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
