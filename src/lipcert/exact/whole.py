"""What proofs about a whole region tell: intervals, ellipsoids, lines; and a bound, by pieces if it takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes
from lipcert.exact.enclose import Interval, Trace, slopes_on, tightened, views_on
from lipcert.exact.functions import ball, least
from lipcert.exact.linear import upward
from lipcert.exact.model import Inputs, Model, on_fewer
from lipcert.exact.sweep import Swept
from lipcert.exact.tree import Pieces
from lipcert.model.arrays import Array
from lipcert.proof.hints import Hints


@dataclass(frozen=True, eq=False)
class Evidence:
    """The hints of sweeps over the whole region, each with the intervals of those before, and a tree for the bound.

    ``first`` takes the place of the first weight where the tree cuts a region of fewer inputs.
    """

    sweeps: Sequence[Hints]
    tree: Any = None
    first: Array | None = None


class Whole:
    """What one of these proves.

    ``known`` are the intervals of the hidden layers; Δv_N Δv_Nᵀ ≼ ‖Δz_0‖² S for the outputs, whose constant is at most
    ``bound`` without the tree.
    """

    def __init__(self, model: Model, inputs: Inputs | None, told: Evidence) -> None:
        if not told.sweeps:
            raise ProofFailed("there are no multipliers to prove a bound from")
        self.model, self.inputs, self.told = model, inputs, told
        self.known: list[Interval] = []
        self.traces: list[Trace] = []
        for place, hints in enumerate(told.sweeps, 1):
            self.last = Swept(model, inputs, hints, self.known, wants_bound=place == len(told.sweeps))
            self.known = self.last.intervals
            self.traces += self.last.traces
        assert self.last.S is not None  # the last one wants its bound
        self.S: arb_mat = self.last.S
        self.bound = self.last.bound

    def by_pieces(self, claim: arb) -> arb:
        """The bound that the tree proves, at most the claim; an error if there is none."""
        if self.told.tree is None or self.inputs is None:
            raise ProofFailed("no pieces of the region prove a smaller bound")
        model, inputs, stretch = self.model, self.inputs, arb(1)
        if self.told.first is not None:
            model, inputs, stretch = on_fewer(model, inputs, self.told.first)
        target = -upward(-(claim / stretch).lower())
        return (Pieces(model, inputs, self.told.tree, target, self.known).prove() * stretch).upper()


def least_bound(wholes: Sequence[Whole], claim: arb) -> arb:
    """The least of the bounds; trees are asked where it is above the claim."""
    bound = least([one.bound for one in wholes])
    for one in wholes:
        if not bound <= claim and one.told.tree is not None:
            bound = least([bound, one.by_pieces(claim)])
    return bound


def common(wholes: Sequence[Whole]) -> list[Interval]:
    """The intervals that all of them prove together."""
    found = list(wholes[0].known)
    for one in wholes[1:]:
        found = [both(a, b) for a, b in zip(found, one.known, strict=True)]
    return found


def both(one: Interval, other: Interval) -> Interval:
    """What lies in two intervals."""
    return tightened(one, range(len(other[0])), *other)


def slope_ranges(model: Model, known: Sequence[Interval]) -> list[Slopes]:
    """The slopes of the hidden layers on their intervals."""
    return [slopes_on(views_on(layer.functions, ends)) for layer, ends in zip(model[:-1], known, strict=True)]


def number(x: float) -> arb:
    """A claimed number; no number proves nothing."""
    found = ball(x)
    if found.is_nan():
        raise ProofFailed("a number of the claim is none")
    return found
