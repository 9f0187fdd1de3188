"""What a method solves: a network, a region, and proved passes through the layers that ask for multipliers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lipcert.kernel.domain import is_box
from lipcert.kernel.guide import View
from lipcert.kernel.hints import Enclosure, Hints, Interval, Part
from lipcert.kernel.passes import ask
from lipcert.kernel.sweep import Sweep, proving
from lipcert.methods.candidate import Candidate, Kept
from lipcert.methods.guide import MethodGuide, one_by_one, settled
from lipcert.methods.stage import Stage
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region

_WORTH_SAYING = 1e-6
"""A note is made from this relative change on; smaller ones are rounding at the edge of the feasible set."""


@dataclass(frozen=True, eq=False)
class Whole:
    """The network that a problem's network is a part of, and the passes that proved its intervals."""

    network: Network
    part: Part
    sweeps: tuple[Hints, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, a region, how to enclose, and intervals that are known beforehand, from the passes of ``history``.

    The bound is one in ``norms``, without units; ``start`` are the axes h of the ellipsoid P_0 = D_h² that a pass
    begins with, None is what the Jacobian at the centre suggests. Of a part of a network, ``whole`` says which; then
    the region is one of the whole network's inputs.
    """

    network: Network
    region: Region
    enclosures: tuple[Enclosure, ...]
    known: tuple[Interval, ...] | None = None
    history: tuple[Hints, ...] = ()
    norms: Norms = PLAIN
    start: Array | None = None
    whole: Whole | None = None

    def sweep(self, choose: Callable[[Stage], Array], name: str = "pass", hurried: bool = False) -> Candidate:
        """A proved pass that asks ``choose`` for the multipliers of each layer; if ``hurried``, time may end it."""
        return self.guided(one_by_one(choose), name, hurried)

    def guided(self, choose: Callable[[View], Array], name: str = "pass", hurried: bool = False) -> Candidate:
        """The same with a choice for stacks of regions.

        For ℓ∞ inputs the first ellipsoid surrounds a cube. It gives poor intervals on a region that is no box, so these
        are found by a pass in ℓ2 beforehand.
        """
        early = self.norms.input.name == "linf" and self.known is None
        if early and self.region.bounded and not is_box(self.region):
            before = replace(self, norms=PLAIN, start=None).guided(choose, name, hurried)
            return self.knowing(before).guided(choose, name, hurried)
        guide = MethodGuide(choose, self.enclosures, self.start, name, hurried)
        if self.whole is not None:
            sweep, hints = ask(self.whole.network, self.region, guide, self.whole.sweeps, self.whole.part)
        elif self.known is None or self.history:
            sweep, hints = ask(self.network, self.region, guide, self.history, norms=self.norms)
        else:  # intervals of somebody else, who will prove what is found
            with proving():
                sweep = Sweep(self.network, None, guide, self.known, norms=self.norms).run()
            hints = sweep.hints(0)
        kept = tuple(Kept.of(view, hint) for view, hint in zip(sweep.views, sweep.hinted, strict=True))
        sweeps = (*self.history, hints)
        return Candidate(float(sweep.bounds[0]), sweep.reports(0), sweeps, kept=kept, notes=repairs(sweep))

    def knowing(self, candidate: Candidate, *enclosures: Enclosure) -> Problem:
        """The same problem with the intervals of a candidate known, to be tightened by the given enclosures."""
        return replace(self, enclosures=enclosures, known=candidate.intervals, history=candidate.sweeps)

    def restrict(self, part: Part, whole: Candidate) -> Problem:
        """The problem of a part of the network, with the intervals found for the whole."""
        target = part.of(self.network)
        sizes = target.sizes[1:-1]
        pairs = zip(part.known(whole.intervals), sizes, strict=True) if whole.intervals else ()
        known = tuple((np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))) for (low, high), n in pairs)
        about = Whole(self.network, part, whole.sweeps)
        return Problem(target, self.region, (), known, norms=part.norms.bare, whole=about)


def repairs(sweep: Sweep) -> tuple[str, ...]:
    """Which chosen multipliers the proof had to change, in words; for a single region."""
    notes = []
    for view, step, hint in zip(map(settled, sweep.views), sweep.steps, sweep.hinted, strict=True):
        number, chosen = view.index + 1, view.narrow(hint)[0, step.active[0]]
        used = (step.h[0] > 0.0) & (view.alpha < view.beta)[0, step.active[0]]
        given, taken = chosen[used], 1.0 / step.g[0, used] ** 2
        good = given > 0.0
        factor = float(np.max(taken[good] / given[good], initial=1.0))
        if not good.all():
            what = f"{np.count_nonzero(~good)} of {good.size} multipliers were not positive numbers"
            notes.append(f"layer {number}: {what} and were replaced")
        elif factor > 1.0 + _WORTH_SAYING:
            what = f"multipliers were not feasible and were enlarged by a factor of {factor:.3g}"
            notes.append(f"layer {number}: {what}")
    return tuple(notes)
