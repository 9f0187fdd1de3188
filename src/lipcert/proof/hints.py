"""What a proof is told: data only, and whatever it says, what is proved from it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array
from lipcert.model.network import Network

Interval: TypeAlias = tuple[Array, Array]
"""Lower and upper ends, (..., neurons)."""


class Enclosure:
    """A way to bound pre-activations over a region; a value, with its options."""

    def check(self) -> None:
        """An error if an option makes no sense."""


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

    def check(self) -> None:
        if self.depth is not None and (not isinstance(self.depth, (int, np.integer)) or self.depth < 0):
            raise InvalidInput(f"depth must be a whole number of at least 0 or None, got {self.depth!r}")
        if not isinstance(self.tilt, (int, float, np.floating)) or not 0.0 <= self.tilt <= 1.0:
            raise InvalidInput(f"tilt must be from 0 to 1, got {self.tilt!r}")


BOTH: tuple[Enclosure, ...] = (Lipschitz(), Linear())
"""The default enclosures, intersected."""


@dataclass(frozen=True, eq=False)
class Hints:
    """What is needed to repeat one sweep.

    Which enclosures tightened the intervals, and per hidden layer the multipliers (relative to 4**exponent) and, where
    a linear relaxation took part, the slopes of its lower and upper lines.
    """

    enclosures: tuple[Enclosure, ...]
    multipliers: tuple[Array, ...]
    exponents: tuple[int, ...]
    lines: tuple[tuple[Array, Array], ...] = ()


@dataclass(frozen=True, eq=False)
class Curved:
    """What is needed to repeat a bound to second order; see :mod:`lipcert.proof.curved`.

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
    """Which part of a network a bound speaks of: from z_p to v_i, some coordinates at each end."""

    layers: tuple[int, int]
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None

    def reduced(self, network: Network) -> tuple[Network, Part]:
        """The smallest network with the same input region that has this part, and the part of it that is meant.

        A part that starts at the input and takes all of it is a network in its own right.
        """
        stop = self.layers[1]
        if self.layers[0] or self.inputs is not None or (stop == network.depth and self.outputs is None):
            return network, self
        return network.slice(0, stop).select(outputs=self.outputs), Part((0, stop))
