"""A method as the guide of a proved sweep: it is asked for multipliers layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norms
from lipcert.proof.domain import Domain
from lipcert.proof.guide import Guide, View
from lipcert.proof.hints import Enclosure, Interval, Linear
from lipcert.runtime.clock import clock
from lipcert.runtime.costs import require_memory
from lipcert.search.method import Greedy
from lipcert.suggest.ellipsoids import start_near
from lipcert.suggest.lines import suggested_lines

_CENTERS = 16
"""Regions of a stack whose Jacobians a start looks at."""


@dataclass(frozen=True, eq=False)
class Asked(Guide):
    """The choices of a greedy method, and lines of least area."""

    method: Greedy
    enclosures: tuple[Enclosure, ...]

    def start(
        self, network: Network, domain: Domain | None, norms: Norms, moving: int, known: Sequence[Interval]
    ) -> Array | None:
        points = [] if domain is None or known else list(domain.center[:_CENTERS])
        one = [
            (low[..., 0, :] if low.ndim > 1 else low, high[..., 0, :] if high.ndim > 1 else high) for low, high in known
        ]
        return start_near(network, points, norms, one, moving)

    def multipliers(self, view: View) -> Array:
        return self.method.choose_all(view)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        tilts = [enclosure.tilt for enclosure in self.enclosures if isinstance(enclosure, Linear)]
        return suggested_lines(neurons, interval, tilts[which])

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        clock().say(f"{type(self.method).__name__}, layer {index + 1}: {size} neurons to carry")
        require_memory(size, index + 1, open_, ahead)
