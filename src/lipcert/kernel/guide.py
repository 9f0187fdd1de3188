"""Where multipliers and lines come from: a guide is asked layer by layer, and whatever it says, the proof holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from lipcert.kernel.domain import Domain
from lipcert.kernel.hints import Enclosure, Interval
from lipcert.kernel.image import Columns
from lipcert.model.arrays import Array, Weight, frozen
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norms

_MANY = 4096
"""Neurons of a large layer of which S is kept at most."""


@dataclass(frozen=True, eq=False)
class View:
    """What a guide sees of a layer, for a stack of regions; T is relative to the same scale as S.

    Attributes
    ----------
    index : the hidden layer, from 0.
    S : (count, k, k), the ellipsoid of what is kept, divided by 4**exponent.
    exponent : (count,).
    alpha, beta : (count, k), slopes as computed, not rounded outwards.
    weight : the next weight over what is kept.
    neurons : (count, k), which neurons of the layer these are. None is all, in order.
    size : neurons of the layer.
    part : of a large layer whose step is done some neurons, and what S, which is not kept, says of these.
    """

    index: int
    S: Array
    exponent: Array
    alpha: Array
    beta: Array
    weight: Columns
    neurons: Array | None
    size: int
    part: tuple[Array, Array] | None = None

    @property
    def ahead(self) -> Weight:
        """The next weight over what is kept, (m, k), or (count, m, k)."""
        return self.weight.full

    @property
    def variance(self) -> Array:
        """The diagonal of S, (count, k)."""
        return np.diagonal(self.S, axis1=-2, axis2=-1)

    def narrow(self, values: Array) -> Array:
        """Values (count, size) of the layer's neurons, as values of what is kept."""
        return values if self.neurons is None else np.take_along_axis(values, self.neurons, -1)

    def widen(self, values: Array) -> Array:
        """Values of what is kept, as values (count, size) of the layer's neurons; zero for the others."""
        if self.neurons is None:
            return values
        full = np.zeros((len(values), self.size))
        np.put_along_axis(full, self.neurons, values, -1)
        return full

    def bare(self, some: Array) -> View:
        """The same without S, but for what it says of some neurons of a single region, if they are not all too many."""
        own = np.flatnonzero(some[0])
        names = own if self.neurons is None else self.neurons[0, own]
        part = (names, frozen(self.S[0][np.ix_(own, own)])) if len(self.S) == 1 and own.size <= _MANY else None
        return replace(self, S=np.zeros((len(self.S), 0, 0)), part=part)

    def known(self, which: int) -> tuple[Array, Array]:
        """Neurons of one region, and what S says of them."""
        if self.part is not None:
            return self.part
        if not self.S.shape[-1]:
            return np.zeros(0, dtype=int), self.S[which]
        return np.arange(self.size) if self.neurons is None else self.neurons[which], self.S[which]


class Guide(Protocol):
    """Where multipliers and the slopes of lines come from; any answer of the right shape is safe."""

    enclosures: tuple[Enclosure, ...]
    looks: ClassVar[bool] = True
    """True if the guide reads view.alpha and view.beta as computed; otherwise it sees them rounded outwards."""

    def multipliers(self, view: View) -> Array:
        """T of what is kept of one layer, (count, k); zero where there is no suggestion."""
        ...

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        """Slopes of the lower and upper lines of some neurons, for one of the linear enclosures, (k,).

        ``neurons`` are those with open slopes, of all regions in a row; ``numbers`` says which of the layer they are.
        """
        ...

    def start(
        self, network: Network, domain: Domain | None, norms: Norms, moving: int, known: Sequence[Interval]
    ) -> Array | None:
        """Axes h of the ellipsoid P_0 = D_h² to begin with, (moving,); None is the unit ball."""
        return None

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        """Called before matrices are formed for a layer; an error stops the sweep.

        ``size`` neurons are carried, of which ``open_`` have open slopes, and the next layer has ``ahead``.
        """
        return
