"""Passes that a search asked for: what they proved is remembered, so that it is not proved twice.

A search brings a guide, and names the passes before by their hints. It cannot bring intervals or bounds, so all that is
remembered was proved here. It is found by the hints themselves: hints of another region, or in another order, find
nothing, and must be proved by a pass of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lipcert.kernel.domain import Domain, check_region, same_region
from lipcert.kernel.guide import Guide
from lipcert.kernel.hints import Hints, Interval, Part
from lipcert.kernel.sweep import Sweep, proving
from lipcert.model.arrays import frozen
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region
from lipcert.suggest.multipliers import StoredGuide


@dataclass(frozen=True, eq=False)
class Fact:
    """What a pass proved: intervals of the hidden layers, (1, neurons) each, and a bound in ``norms``.

    It is about ``part`` of the network, None is all of it; the pass began with the intervals of the
    passes ``before``.
    """

    network: Network
    region: Region
    before: tuple[Hints, ...]
    part: Part | None
    norms: Norms
    intervals: Sequence[Interval]
    bound: float


_facts: WeakKeyDictionary[Hints, Fact] = WeakKeyDictionary()


def ask(
    network: Network,
    region: Region,
    guide: Guide,
    before: tuple[Hints, ...] = (),
    part: Part | None = None,
    norms: Norms = PLAIN,
) -> tuple[Sweep, Hints]:
    """A pass over a region in which a guide is asked, and the hints under which it is remembered.

    A part gets its intervals from the passes before, which are about the whole network, and has norms of its own.
    """
    check_region(region, network.inputs)
    domain = Domain.of([region]) if region.bounded else None
    known = intervals(network, region, before, remembered=True)
    with proving():
        if part is None:
            sweep = Sweep(network, domain, guide, known, norms=norms).run()
        else:
            norms = part.norms.bare
            sweep = Sweep(part.of(network), domain, guide, part.known(known), enclose=False, norms=norms).run()
        bound = float(sweep.bounds[0])
    for array in (*(end for interval in sweep.intervals for end in interval), *sweep.hinted):
        frozen(array)
    hints = sweep.hints(0)
    _facts[hints] = Fact(network, region, before, part, norms, tuple(sweep.intervals), bound)
    return sweep, hints


def recall(
    network: Network, region: Region, hints: Hints, before: Sequence[Hints], part: Part | None = None
) -> Fact | None:
    """What a pass with these very hints proved; None unless all that it rests on is the same."""
    fact = _facts.get(hints)
    if fact is None or fact.part != part or len(fact.before) != len(before):
        return None
    same = all(one is two for one, two in zip(fact.before, before, strict=True))
    same = same and (fact.network is network or fact.network.digest == network.digest)
    return fact if same and (fact.region is region or same_region(fact.region, region)) else None


def intervals(
    network: Network, region: Region, sweeps: Sequence[Hints], remembered: bool = False
) -> Sequence[Interval]:
    """What the passes prove, one after the other, of the pre-activations of every hidden layer, (1, neurons) each.

    With ``remembered``, passes that were asked for here are not repeated.
    """
    domain = Domain.of([region]) if region.bounded else None
    known: Sequence[Interval] = ()
    with proving():
        for position, hints in enumerate(sweeps):
            fact = recall(network, region, hints, sweeps[:position]) if remembered else None
            if fact is None:
                guide = StoredGuide(hints, network, region.bounded)
                known = Sweep(network, domain, guide, known).run(needs_bound=False).intervals
            else:
                known = fact.intervals
    return known
