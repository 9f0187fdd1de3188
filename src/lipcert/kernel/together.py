"""What several proofs about one network and region tell together: never less than any of them alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.backsubstitution import BackSubstitution
from lipcert.kernel.domain import Domain, corners, same_region
from lipcert.kernel.dual_bound import DualHints
from lipcert.kernel.hints import Hints, Interval, Part
from lipcert.kernel.interval_arithmetic import values
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.outputs import OutputBounds, outputs_hinted
from lipcert.kernel.quadratic_relaxation import ParabolaHints
from lipcert.kernel.tree import Tree
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.lines import suggested_lines


@dataclass(frozen=True, eq=False)
class Proof:
    """What a part of an answer can be derived from again; nothing in it is believed.

    Attributes
    ----------
    kind : "whole", about all inputs and outputs; "outputs", about outputs over pieces; "entries", about entries of the
        Jacobian over pieces; "pair", about some inputs and outputs; "values", about single outputs. Those about the
        whole come first.
    sweeps : hints, each sweep starting from the intervals of the ones before; none where a tree says it all.
    tree : the pieces that the region was cut into, if it was; of the whole, for its Lipschitz bound.
    part : the group of inputs and the group of outputs of a pair.
    base : which of the answer's proofs, one about the whole, the others take their intervals from.
    margins, parabolas : hints for single outputs, by value functions and by parabolas of any slope.
    """

    kind: str
    sweeps: tuple[Hints, ...] = ()
    tree: Tree | None = None
    part: Part | None = None
    base: int = 0
    margins: tuple[DualHints, ...] = ()
    parabolas: tuple[ParabolaHints, ...] = ()


class Together:
    """Several proofs about one network and one region, in the order in which they were found."""

    def __init__(self, proofs: Sequence[OutputBounds]) -> None:
        if not proofs:
            raise ProofFailed("there is nothing to prove an answer from")
        self.proofs = tuple(proofs)
        self.network, self.region = proofs[0].network, proofs[0].region
        for one in proofs:
            if one.network.digest != self.network.digest or not same_region(one.region, self.region):
                raise ProofFailed("what was proved is about different networks or regions")

    @property
    def bound(self) -> float:
        """At least the Lipschitz constant over the region."""
        return min(one.bound for one in self.proofs)

    @property
    def hints(self) -> tuple[Proof, ...]:
        """What all of this can be derived from again."""
        return tuple(Proof("whole", one.sweeps, one.tree) for one in self.proofs)

    @cached_property
    def subject(self) -> tuple[Network, Region]:
        """The network and the region that the intervals are about."""
        return self.proofs[0].subject

    def intervals(self, count: int | None = None) -> list[Interval]:
        """Where the pre-activations of each hidden layer lie by the first proofs, (1, neurons)."""
        layers = zip(*(one.intervals for one in self.proofs[:count]), strict=True)
        return [
            (np.max([low for low, _ in ends], axis=0)[None], np.min([high for _, high in ends], axis=0)[None])
            for ends in layers
        ]

    def box(self) -> Interval:
        """Where the outputs lie: by each of the proofs, and by what the first of them tell together."""
        ends = [one.box() for one in self.proofs]
        ends += [self._relaxed(count + 1) for count in range(len(self.proofs))]
        return np.fmax.reduce([low for low, _ in ends]), np.fmin.reduce([high for _, high in ends])

    def _relaxed(self, count: int) -> Interval:
        """Where linear relaxation and interval arithmetic on the intervals of the first proofs put the outputs."""
        network, region = self.subject
        *hidden, (lower, upper) = values(network, _stacked(corners(region)), self.intervals(count))
        eye = np.eye(network.outputs)
        above = _trace(network, Domain.of([region]), hidden).above_output(0, np.concatenate([eye, -eye]))
        return np.fmax(lower[0], -above[len(eye) :]), np.fmin(upper[0], above[: len(eye)])

    def lines(self, count: int) -> list[Interval]:
        """Slopes of the lower and upper lines that relax the network on the intervals of the first proofs."""
        network, region = self.subject
        hidden = values(network, _stacked(corners(region)), self.intervals(count))[:-1]
        return [(down[0], up[0]) for _, (down, up) in _lines(network, hidden)]


def derived(network: Network, region: Region, proofs: Sequence[Proof]) -> tuple[Together, list[Proof]]:
    """What the proofs about the whole region prove again, and those about pieces or pairs, which rest on them."""
    count = next((number for number, one in enumerate(proofs) if one.kind != "whole"), len(proofs))
    others = list(proofs[count:])
    if any(one.kind == "whole" or not 0 <= one.base < count for one in others):
        raise ProofFailed("a proof rests on another that is not there, or does not come before it")
    again = [outputs_hinted(network, region, one.sweeps, tree=one.tree) for one in proofs[:count]]
    return Together(again), others


def base_of(proofs: Sequence[OutputBounds], sweeps: tuple[Hints, ...]) -> int:
    """Which of the proofs has these hints."""
    for number, one in enumerate(proofs):
        if len(one.sweeps) == len(sweeps) and all(a is b for a, b in zip(one.sweeps, sweeps, strict=True)):
            return number
    raise ProofFailed("a bound rests on something else than the proofs of the answer")


def _stacked(ends: Interval) -> Interval:
    return ends[0][None], ends[1][None]


def _trace(network: Network, domain: Domain, intervals: Sequence[Interval]) -> BackSubstitution:
    """Linear relaxation on intervals that are known, (count, neurons) per hidden layer."""
    trace = BackSubstitution(network, domain, None)
    for interval, (slopes, lines) in zip(intervals, _lines(network, intervals), strict=True):
        trace.settle(interval, slopes, lines)
    return trace


def _lines(network: Network, intervals: Sequence[Interval]) -> Iterator[tuple[Interval, Interval]]:
    """The range of slopes, and the slopes of the lower and upper lines, of each hidden layer."""
    for layer, interval in zip(network.layers, intervals, strict=False):
        assert layer.neurons is not None
        alpha, beta = slope_bounds(layer.neurons, *interval)
        lines = np.array(alpha), np.array(alpha)
        where = np.nonzero(alpha < beta)
        if where[0].size:
            told = suggested_lines(layer.neurons.take(where[1]), (interval[0][where], interval[1][where]))
            for line, slope in zip(lines, told, strict=True):
                line[where] = np.where(np.isfinite(slope), slope, 0.0)
        yield (alpha, beta), lines
