"""What work costs: memory that is free, and seconds from the sizes of a network, where a time limit depends on them."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network, entries

_SMALL: Final = 2000
"""Layers of fewer neurons are not checked: their matrices, 32 MB each, fit into any memory."""
_DEPTH: Final = 24
"""Layers that back-substitution goes back by default."""
_QUICK: Final = 1e9
"""Operations that take less than a tenth of a second; they are not worth a measurement of the machine."""


class NoRoom(ProofFailed):
    """A proof would need more memory than is free."""


def enclosing_seconds(network: Network) -> float:
    """Seconds that intervals of all neurons by back-substitution take, about; no matrix is made for that."""
    linears = [layer.linear for layer in network.layers[:-1]]
    stored = [one.entries if isinstance(one, Convolution) else entries(one) for one in linears]
    earlier = [sum(stored[max(0, i - _DEPTH) : i]) for i in range(len(stored))]
    work = sum(4.0 * layer.size * ahead for layer, ahead in zip(network.layers, earlier, strict=False))
    return work / _speed() if work > _QUICK else 0.0


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    folder = Path("/sys/fs/cgroup")
    try:  # what is left of the control group's share, where there is one
        most, used = ((folder / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return min(free, int(most) - int(used))
    except (OSError, ValueError):
        return free


def require_memory(neurons: int, layer: int, open_: int, ahead: int) -> None:
    """Refuse to start what cannot end: a layer whose matrices exceed the free memory.

    So many neurons are carried, of which ``open_`` have open slopes; the next layer has ``ahead``. A step holds the
    ellipsoid before and after it, and a copy; the columns of the open neurons, and copies; what the next layer sees of
    both.
    """
    if neurons < _SMALL:
        return
    numbers = 3 * neurons**2 + 2 * neurons * open_ + 4 * open_**2 + ahead * (2 * neurons + 2 * open_)
    free, needed = available_memory(), 8 * numbers
    if free is not None and needed > free:
        raise NoRoom(
            f"layer {layer} has {neurons} neurons to carry, {open_} of them with open slopes: about"
            f" {needed / 1e9:.3g} GB are needed, but {free / 1e9:.3g} GB are free; a smaller region leaves fewer"
            " slopes open"
        )


@lru_cache(maxsize=1)
def _speed() -> float:
    """Operations a second of a matrix product, measured."""
    size = 512
    matrix = np.random.default_rng(0).standard_normal((size, size))
    best = np.inf
    for _ in range(4):
        clock = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - clock)
    return 2.0 * float(size) ** 3 / best
