"""Hints: untrusted numbers. Any values are safe; bad ones give loose bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from lipcert.kernel.norms import in_units, region_in_units
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region

Interval: TypeAlias = tuple[Array, Array]
"""Lower and upper ends, (..., neurons)."""


class Enclosure:
    """A way to bound pre-activations over a region; a value, with its options."""


@dataclass(frozen=True)
class Lipschitz(Enclosure):
    """v_l ∈ v_l(centre) ± δ·sqrt(S_ll)."""


@dataclass(frozen=True)
class Linear(Enclosure):
    """v ≤ A z_0 + c with A and c found by replacing each activation, last first, by the line that is on the safe side.

    Parameters
    ----------
    depth
        How many layers to go back at most; None goes back to the input. When the trace ends early it is
        closed with the intervals of the layer it has reached, so cost per layer stays constant.
    tilt
        Where on its interval a line touches the activation, 0 to 1; in the middle the area is least.
    """

    depth: int | None = 24
    tilt: float = 0.5


BOTH: tuple[Enclosure, ...] = (Lipschitz(), Linear())
"""The default enclosures, intersected."""


@dataclass(frozen=True, eq=False)
class Hints:
    """What is needed to repeat one sweep.

    Which enclosures tightened the intervals, and per hidden layer the multipliers (relative to 4**exponent) and, where
    a linear relaxation took part, the slopes of its lower and upper lines. ``start``, (inputs,), are the axes h of the
    ellipsoid that the sweep begins with, P_0 = D_h²; without, all are one.
    """

    enclosures: tuple[Enclosure, ...]
    multipliers: tuple[Array, ...]
    exponents: tuple[int, ...]
    lines: tuple[tuple[Array, Array], ...] = ()
    start: Array | None = None

    @property
    def bare(self) -> Hints:
        """The hints alone, without what a pass proved."""
        return Hints(*(getattr(self, column.name) for column in fields(Hints)))


@dataclass(frozen=True, eq=False)
class Curved:
    """What is needed to repeat a bound to second order; see :mod:`lipcert.kernel.second_order_jacobian`.

    Attributes
    ----------
    slopes : σ, τ, ψ of all hidden neurons, layer after layer, (3, neurons).
    balance : the multipliers of the neurons over the errors of their slopes, (neurons,).
    mix : which directions of the input count how much, in terms of the outputs, (outputs, outputs).
    weights : shares of the terms of a sum, (6,).
    """

    slopes: Array
    balance: Array
    mix: Array
    weights: Array


@dataclass(frozen=True)
class Part:
    """What a bound speaks of: from z_p to v_i of a network, some coordinates at each end, and the norms there."""

    layers: tuple[int, int]
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    norms: Norms = PLAIN

    def is_whole(self, network: Network) -> bool:
        """Whether it is all of the network, in norms without units."""
        everything = self.layers == (0, network.depth) and self.inputs is None and self.outputs is None
        return everything and not self.norms.has_units

    def reduced(self, network: Network) -> tuple[Network, Part]:
        """The smallest network with the same inputs that has this part, and the part of it that is meant.

        A part that starts at the input and takes all of it is a network in its own right, in its own units. With
        some of the inputs it is one of the network with the chosen outputs.
        """
        stop, norms = self.layers[1], self.norms
        if not self._is_network:
            if self.layers != (0, network.depth) or self.outputs is None:
                return network, self
            return network.select(outputs=self.outputs), replace(self, outputs=None)
        target = network if stop == network.depth else network.slice(0, stop)
        target = target if self.outputs is None else target.select(outputs=self.outputs)
        if norms.has_units:
            self.check(network)
            target = in_units(target, norms)
        return target, Part((0, stop), norms=norms.bare)

    def place(self, region: Region) -> Region:
        """The region of the inputs of the reduced network."""
        if not self._is_network or region.dimension is None:
            return region
        return region_in_units(region, self.norms.input.units(region.dimension))

    @property
    def _is_network(self) -> bool:
        return not (self.layers[0] or self.inputs is not None)

    def of(self, network: Network) -> Network:
        """The part of the network as a network, in its own units."""
        piece = network.slice(*self.layers).select(self.inputs, self.outputs)
        self.check(network)
        return in_units(piece, self.norms)

    def known(self, intervals: Sequence[Interval]) -> Sequence[Interval]:
        """The intervals of the part's hidden layers, among those of the network's."""
        return intervals[self.layers[0] : self.layers[1] - 1]

    def check(self, network: Network) -> None:
        """An error unless the norms are such of the coordinates at the two ends."""
        ends = ("input_norm", self.norms.input, self.inputs), ("output_norm", self.norms.output, self.outputs)
        start, stop = self.layers
        sizes = network.layers[start].linear.shape[1], network.sizes[stop]  # products and softmax have other widths
        for (name, norm, chosen), size in zip(ends, sizes, strict=True):
            norm.check(size if chosen is None else len(chosen), name)
