"""What a method found: a bound with the hints that prove it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.kernel.cover import Cover
from lipcert.kernel.facts import LayerReport
from lipcert.kernel.guide import View
from lipcert.kernel.hints import Curved, Hints
from lipcert.model.arrays import Array, Weight


@dataclass(frozen=True, eq=False)
class Kept:
    """The neurons of a hidden layer that a pass carried: its slopes can be other than zero.

    ``alpha`` and ``beta`` are their slopes, ``ahead`` the columns of the next weight that belong to them, ``neurons``
    their numbers in the layer.
    """

    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array

    @staticmethod
    def of(view: View, hint: Array) -> Kept:
        """From a pass over one region. Neurons without a multiplier are affine or do not move: they get one slope."""
        neurons = np.arange(view.size) if view.neurons is None else view.neurons[0]
        alpha, beta = view.alpha[0], view.beta[0]
        middle, still = 0.5 * (alpha + beta), view.narrow(hint)[0] <= 0.0
        return Kept(np.where(still, middle, alpha), np.where(still, middle, beta), view.ahead, neurons)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A bound, the layers of the pass that gave it, and the hints of all passes (``sweeps``) that led there.

    Each pass starts from the intervals of the ones before; the last gives the bound. ``found_by`` names the method if
    one calls others; ``curved`` are second-order hints, used if their bound is smaller; ``notes`` say which of a
    method's multipliers had to be repaired.
    """

    bound: float
    layers: tuple[LayerReport, ...]
    sweeps: tuple[Hints, ...] = ()
    cover: Cover | None = None
    witness: Array | None = None
    kept: tuple[Kept, ...] = ()
    found_by: str = ""
    curved: Curved | None = None
    notes: tuple[str, ...] = ()

    @property
    def intervals(self) -> tuple[tuple[Array, Array], ...]:
        """Lower and upper ends of the pre-activations of each hidden layer."""
        return tuple((layer.lower, layer.upper) for layer in self.layers)

    @property
    def slopes(self) -> list[tuple[Array, Array]]:
        """The slope ranges (α, β) of each hidden layer."""
        return [(layer.alpha, layer.beta) for layer in self.layers]
