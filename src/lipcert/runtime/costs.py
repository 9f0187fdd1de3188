"""What a bound will cost: memory that is free, and time from the sizes of a network.

Unless told otherwise the figures are for the worst case, in which the slope of every neuron is open. A small region
leaves few of them open, and then both time and memory are a fraction.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.runtime.threads import suited_to

_SMALL: Final = 2000
"""Neurons whose matrices fit anywhere."""

MATRICES: Final = 9
"""Matrices of the size of one layer that a sweep holds at once, those of the layer before included; as measured."""


class NoRoom(ProofFailed):
    """A proof would need more memory than is free."""


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes that a method needs, about."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class _Rule:
    """Operations of one layer with n neurons: cubic·n³ + square·n² + the products with its weight and the next."""

    cubic: float
    square: float
    products: float
    tape: int  # matrices kept of every layer


# fitted to networks of 100 to 800 neurons per layer, in units of the operations of a matrix product
_RULES: Final[Mapping[str, _Rule]] = {
    "ClosedForm": _Rule(15.0, 8e3, 2.0, 0),
    "Scalar": _Rule(35.0, 2e4, 4.0, 0),
    "Diagonal": _Rule(8e3, 1e5, 8.0, 0),
    "Joint": _Rule(1e4, 1e5, 2e3, 3),
}
_PROOF: Final = _Rule(15.0, 5e3, 2.0, 0)
_FLOOR: Final = 0.7
"""The least that :func:`scalar_share` tells: in narrow networks neither is about matrices."""
_FACTORED: Final = 1000
"""Open neurons from which Scalar works with factors."""
_PAIRS: Final = 8.0
"""Operations of a layer's entries of the Jacobian, over its size squared times its size and the inputs."""
_QUICK: Final = 1e9
"""Operations that take no time worth knowing."""
_OVERHEAD: Final = 0.01
"""Seconds per layer, however small."""


def costs(network: Network, open_: Sequence[int] | None = None) -> dict[str, Cost]:
    """Time and memory of each method by its name, the proof with outward rounding included.

    ``open_`` tells how many slopes of each hidden layer are open over the region; None is all of them.
    """
    widest = max(network.sizes)
    with suited_to(widest):
        rate = _speed(512 if widest < 4000 else 1024)
    carried = list(network.sizes[1:-1] if open_ is None else open_)
    stored = 8 * sum(entries(layer.weight) for layer in network.layers)
    shared = _operations(network, _PROOF, carried) + _enclosing(network)
    return {
        name: Cost(
            (_operations(network, rule, carried) + shared) / rate + _OVERHEAD * network.depth,
            stored + _bytes(carried or network.sizes[-1:], rule),
        )
        for name, rule in _RULES.items()
    }


def pairs_seconds(network: Network, groups: Sequence[Sequence[int]]) -> float:
    """Seconds that entries of the Jacobian take, about, for the inputs that are in groups.

    A layer of n neurons takes a factor and some products of its size, and some of n × n matrices with the inputs.
    """
    inputs = len({k for group in groups for k in group})
    work = sum(_PAIRS * float(n) * n * (n + inputs) for n in network.sizes[1:-1])
    with suited_to(max(network.sizes)):
        return work / _speed(512) if work > _QUICK else 0.0


def scalar_share(open_: Sequence[int], kept: Sequence[int], after: Sequence[int]) -> float:
    """How many times as long a Scalar sweep takes as a ClosedForm sweep with its proof, about.

    With a open neurons of k that are kept, and n in the next layer: the proof factors, solves and multiplies, and goes
    some thirty times through the matrices; Scalar finds all eigenvectors and tries a few products, or, of many open
    neurons, a few factors.
    """
    proof = scalar = 0.0
    for a, k, n in zip(open_, kept, after, strict=True):
        smaller = min(k, n)
        proof += 2.0 * a**3 + 4.0 * a * a * smaller + 2.0 * a * smaller**2 + 1300.0 * k * k
        once = 6.5 * a**3 + 3.0 * a * a * n if a < _FACTORED else 1.5 * a**3 + 5.0 * a * a * n
        scalar += once + 5.0 * a * n * n + 1300.0 * k * k
    return max(_FLOOR, scalar / max(proof, 1.0))


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    return min(free, _group_limit(free))


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


def _group_limit(otherwise: int) -> int:
    """What is left of the control group's share, where there is one."""
    folder = Path("/sys/fs/cgroup")
    try:
        most, used = ((folder / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        return int(most) - int(used)
    except (OSError, ValueError):
        return otherwise


def _bytes(hidden: Sequence[int], rule: _Rule) -> int:
    return 8 * (MATRICES * max(n * n for n in hidden) + rule.tape * sum(n * n for n in hidden))


def _operations(network: Network, rule: _Rule, carried: Sequence[int]) -> float:
    total, before = 0.0, network.inputs
    for (here, after), n in zip(itertools.pairwise(network.layers), carried, strict=True):
        share = n / here.size
        products = share * entries(here.weight) * (before + n) + share * entries(after.weight) * (n + after.size)
        before = n
        total += rule.cubic * float(n) ** 3 + rule.square * float(n) ** 2 + rule.products * products
    return total


def enclosing_seconds(network: Network) -> float:
    """Seconds that intervals of all neurons by back-substitution take, about; no matrix is made for that."""
    work = _enclosing(network)
    return work / _speed(512) if work > _QUICK else 0.0


def _enclosing(network: Network, depth: int = 24) -> float:
    """Operations of tracing both sides of every neuron back through the layers before it."""
    linears = [layer.linear for layer in network.layers[:-1]]
    stored = [one.entries if isinstance(one, Convolution) else entries(one) for one in linears]
    return sum(4.0 * layer.size * sum(stored[max(0, i - depth) : i]) for i, layer in enumerate(network.layers[:-1]))


def entries(weight: Any) -> int:
    """Numbers that a dense or sparse weight stores."""
    return int(weight.nnz if sparse.issparse(weight) else weight.size)


@lru_cache(maxsize=2)
def _speed(size: int) -> float:
    """Operations a second of a matrix product, measured."""
    matrix = np.random.default_rng(0).standard_normal((size, size))
    best = np.inf
    for _ in range(4):
        clock = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - clock)
    return 2.0 * float(size) ** 3 / best
