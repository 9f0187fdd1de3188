"""How a method is asked for multipliers, layer by layer, inside a proved pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.kernel.domain import Domain
from lipcert.kernel.guide import Guide, View
from lipcert.kernel.hints import Enclosure, Interval, Linear
from lipcert.methods.stage import Stage
from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norms
from lipcert.runtime.clock import clock
from lipcert.runtime.costs import require_memory
from lipcert.suggest.ellipsoids import start_near
from lipcert.suggest.lines import suggested_lines

_CENTERS = 16
"""The first ellipsoid is chosen by the Jacobians of at most so many regions of a stack, for speed."""

_ROUNDING = 2.0**-46
"""Slope ranges narrower than this, relative to the slopes, are rounding."""


@dataclass(frozen=True, eq=False)
class MethodGuide(Guide):
    """Asks a method for the multipliers of each layer.

    ``axes`` are those of the first ellipsoid, if known; ``name`` is shown as progress. A ``hurried`` pass stops when
    time is up.
    """

    choose: Callable[[View], Array]
    enclosures: tuple[Enclosure, ...]
    axes: Array | None = None
    name: str = "pass"
    hurried: bool = False

    def start(
        self, network: Network, domain: Domain | None, norms: Norms, moving: int, known: Sequence[Interval]
    ) -> Array | None:
        if self.axes is not None:
            return self.axes
        points = [] if domain is None or known else list(domain.center[:_CENTERS])
        ends = [(np.atleast_2d(low)[0], np.atleast_2d(high)[0]) for low, high in known]  # of the first region
        return start_near(network, points, norms, ends, moving)

    def multipliers(self, view: View) -> Array:
        try:
            return self.choose(settled(view))
        except np.linalg.LinAlgError:  # too ill-scaled for the method: the proof takes safe multipliers
            return np.zeros(view.alpha.shape)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        tilts = [enclosure.tilt for enclosure in self.enclosures if isinstance(enclosure, Linear)]
        return suggested_lines(neurons, interval, tilts[which])

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        now = clock()
        if self.hurried:
            now.check()
        now.say(f"{self.name}, layer {index + 1}: {size} neurons to carry, {open_} open slopes")
        require_memory(size, index + 1, open_, ahead)


def settled(view: View) -> View:
    """The view with one slope where the range is rounding only: there is nothing to choose."""
    return replace(view, beta=np.where(view.beta - view.alpha > _ROUNDING * np.abs(view.alpha), view.beta, view.alpha))


def one_by_one(choose: Callable[[Stage], Array]) -> Callable[[View], Array]:
    """Make a choice for one region into one for a stack of regions."""

    def inner(view: View) -> Array:
        found = []
        for which in range(len(view.S)):
            stage = Stage.of(view, which)
            T = np.asarray(choose(stage), dtype=float)
            if T.shape not in ((), stage.alpha.shape):
                raise InvalidInput(
                    f"layer {stage.index + 1}: a method must choose {len(stage.alpha)} multipliers, one for each row of"
                    f" S, or one number; got shape {T.shape}"
                )
            found.append(np.broadcast_to(T, stage.alpha.shape))
        return np.stack(found)

    return inner
