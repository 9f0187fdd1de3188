"""Regions that go through a network together. What is proved of each is a fact about it, whatever its stack was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import matvec
from lipcert.kernel.checker import Proved
from lipcert.kernel.domain import Domain, kind_of
from lipcert.model.network import Network
from lipcert.model.regions import Region

_ENTRIES = 270_000
"""Numbers in a stack of matrices; more would leave the processor's caches."""
_MOST = 110
"""Regions in a stack, however narrow the network is."""
_FAR, _FLAT = 1000.0, 1e-2
"""Sizes of sums, and slopes of a layer, beyond which a batched and a single pass may differ in digits that verify would
notice; such regions run alone."""

Answer = TypeVar("Answer")


def stacked(
    network: Network,
    regions: Sequence[Region],
    ask: Callable[[Sequence[Region]], list[Answer]],
    alone: Callable[[Region, Answer], bool] = lambda *_: False,
) -> list[Answer | ProofFailed]:
    """An answer for each region, or why there is none; regions of one kind are asked about together.

    Where the proof of a stack fails, each of its regions is asked about by itself, as are those that had better be.
    """
    kinds: dict[object, list[int]] = {}
    for number, region in enumerate(regions):
        kinds.setdefault(kind_of(region) if region.bounded else number, []).append(number)
    for members in kinds.values():  # of similar size, as many neurons are open
        members.sort(key=lambda number: float(regions[number].extent))
    most = 1 if network.coupled else int(np.clip(_ENTRIES // max(network.sizes[1:]) ** 2, 1, _MOST))
    found: list[Answer | ProofFailed] = [ProofFailed("")] * len(regions)
    todo = [members[k : k + most] for members in kinds.values() for k in range(0, len(members), most)]
    while todo:
        members = todo.pop()
        try:
            answers = ask([regions[number] for number in members])
        except ProofFailed as error:
            if len(members) > 1:
                todo += [[number] for number in members]
            else:
                found[members[0]] = error
            continue
        for number, answer in zip(members, answers, strict=True):
            found[number] = answer
            if len(members) > 1 and alone(regions[number], answer):
                todo.append([number])
    return found


def delicate(network: Network, region: Region, proved: Proved) -> bool:
    """Whether a bound might show that products and functions round differently in a stack.

    The region is far from the origin, or a layer of its is so flat that its slopes are mostly rounding.
    """
    sizes = matvec(abs(network.layers[0].weight), Domain.of([region]).sizes())
    steepest = [float(np.maximum(np.abs(one.alpha), np.abs(one.beta)).max()) for one in proved.layers]
    return not sizes.max() < _FAR or any(0.0 < most < _FLAT for most in steepest)
