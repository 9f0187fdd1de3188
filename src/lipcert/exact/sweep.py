"""The sweeps of a certificate again: intervals, slopes, ellipsoids, from the hints it stores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes, advance
from lipcert.exact.enclose import Centre, Interval, Lines, Trace, around, slopes_on, tightened, views_on
from lipcert.exact.functions import ball
from lipcert.exact.linear import column, image, largest_eigenvalue
from lipcert.exact.model import Inputs, Model
from lipcert.proof.hints import Hints


class Swept:
    """One sweep: ``intervals``, ``slopes`` and lines of the hidden layers, and the bound where it was asked for.

    ``spreads`` are the ellipsoids of the hidden layers.
    """

    def __init__(
        self, model: Model, inputs: Inputs | None, hints: Hints, known: Sequence[Interval], wants_bound: bool = True
    ) -> None:
        self.model, self.inputs, self.hints = model, inputs, hints
        self.hidden = len(model) - 1
        self.intervals: list[Interval] = []
        self.slopes: list[Slopes] = []
        self.spreads: list[arb_mat] = []
        self.bound = arb.pos_inf()
        self.S: arb_mat | None = None
        depths, local = self._enclosures()
        self.traces = traces = [] if inputs is None else [Trace(model, inputs, depth) for depth in depths]
        centre = Centre(model, column(inputs.center)) if inputs is not None and local else None
        P: arb_mat | None = None
        for index, layer in enumerate(model[:-1]):
            everything = [arb.neg_inf()] * layer.size, [arb.pos_inf()] * layer.size
            interval = known[index] if known else everything
            S = self.S = image(layer.weight, P) if centre or wants_bound else None
            if S is not None:
                self.spreads.append(S)
            if centre and inputs and S is not None:
                value, error = centre.step(index)
                reach = [inputs.reach * S[k, k].sqrt() + e for k, e in enumerate(error)]
                interval = tightened(interval, range(layer.size), *around(value, reach))
            for trace in traces:
                interval = trace.interval(index, interval, range(layer.size))
            if any(low > high for low, high in zip(*interval, strict=True)):
                raise ProofFailed(f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
            self.intervals.append(interval)
            views = views_on(layer.functions, interval)
            self.slopes.append(slopes_on(views))
            for number, trace in enumerate(traces):
                down, up = hints.lines[number * self.hidden + index]
                trace.lines.append(Lines(layer, views, [ball(x) for x in down], [ball(x) for x in up]))
            if S is not None:
                P = advance(S, self.slopes[-1], self.multipliers(index))
        if wants_bound:
            self.S = image(model[-1].weight, P)
            self.bound = largest_eigenvalue(self.S).sqrt().upper()

    def multipliers(self, index: int) -> list[arb]:
        """Those of the hints; any would do."""
        scale = arb(4) ** int(self.hints.exponents[index])
        return [ball(t) * scale for t in self.hints.multipliers[index]]

    def _enclosures(self) -> tuple[list[int | None], bool]:
        """The depths of the linear relaxations, and whether the Lipschitz enclosure takes part; shapes are checked."""
        hints, sizes = self.hints, [layer.size for layer in self.model[:-1]]
        names = [type(enclosure).__name__ for enclosure in hints.enclosures]
        if set(names) - {"Linear", "Lipschitz"}:
            raise ProofFailed(f"exact has no rule for the enclosures {', '.join(names)}")
        depths = [getattr(e, "depth", None) for e, name in zip(hints.enclosures, names) if name == "Linear"]
        if any(depth is not None and depth < 0 for depth in depths):
            raise ProofFailed("the depth of a linear enclosure must be at least 0")
        told = [np.shape(multiplier) for multiplier in hints.multipliers]
        if told != [(size,) for size in sizes] or len(hints.exponents) != len(sizes):
            raise ProofFailed(f"the hints have multipliers of shapes {told}, the network has hidden layers of {sizes}")
        wanted = [((size,), (size,)) for size in sizes] * len(depths)
        if self.inputs is not None and [tuple(map(np.shape, pair)) for pair in hints.lines] != wanted:
            raise ProofFailed("the hints lack slopes of bounding lines, or have too many")
        return depths, "Lipschitz" in names
