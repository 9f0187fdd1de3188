"""Stored hints as a guide: what a certificate says is repeated layer by layer. Whatever that is, a proof holds."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network


class StoredGuide:
    """The hints of a certificate, for one region; see ``Guide`` and ``View`` of the kernel."""

    looks: ClassVar[bool] = False

    def __init__(self, hints: Any, network: Network, bounded: bool) -> None:
        """An error if the hints are not for such a network."""
        self.hints, self.enclosures, hidden = hints, hints.enclosures, network.layers[:-1]
        linear = [enclosure for enclosure in hints.enclosures if hasattr(enclosure, "depth")]
        if {len(hints.multipliers), len(hints.exponents)} != {len(hidden)}:
            raise ProofFailed(f"the hints are for {len(hints.multipliers)} hidden layers, not {len(hidden)}")
        lines = hints.lines if bounded else ()
        if bounded and (len(lines) != len(linear) * len(hidden) or any(len(pair) != 2 for pair in lines)):
            raise ProofFailed("the hints lack the slopes of the bounding lines, or have too many")
        if any(enclosure.depth is not None and enclosure.depth < 0 for enclosure in linear):
            raise ProofFailed("the depth of a linear enclosure must be at least 0")
        if any(abs(exponent) > 2**20 for exponent in hints.exponents):
            raise ProofFailed("an exponent of the hints is out of range")
        arrays = [(k, hints.multipliers[k]) for k in range(len(hidden))]
        arrays += [(k % len(hidden), slopes) for k, pair in enumerate(lines) for slopes in pair]
        for index, array in arrays:
            if np.shape(array) != (hidden[index].size,):
                raise ProofFailed(f"the hints of layer {index + 1} are not for its {hidden[index].size} neurons")

    def start(self, *_: Any) -> Array | None:
        found: Array | None = self.hints.start
        return found

    def multipliers(self, view: Any) -> Array:
        power = 2 * (self.hints.exponents[view.index] - view.exponent)
        T = np.asarray(self.hints.multipliers[view.index], dtype=float)
        return np.asarray(np.ldexp(view.narrow(np.broadcast_to(T, (len(power), view.size))), power[:, None]))

    def lines(self, which: int, index: int, neurons: Any, numbers: Array, interval: Any) -> tuple[Array, Array]:
        lower, upper = self.hints.lines[which * len(self.hints.multipliers) + index]
        return lower[numbers], upper[numbers]

    def room(self, *_: int) -> None:
        """A proof that was made once will find room again."""
