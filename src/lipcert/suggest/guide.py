"""Where a pass gets multipliers and the slopes of lines; any answer of the right shape is safe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.norms import Norms


class Guide(ABC):
    """Asked by a pass layer by layer; ``enclosures`` are the ways in which it finds intervals."""

    enclosures: tuple[Any, ...]

    @abstractmethod
    def multipliers(self, view: Any) -> Array:
        """T of what is kept of one layer, (count, k), by the kernel's ``View``; zero where there is no suggestion."""

    @abstractmethod
    def lines(
        self, which: int, index: int, neurons: Neurons, numbers: Array, interval: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """Slopes of the lower and upper lines of some neurons, for one of the linear enclosures, (k,).

        ``neurons`` are those with open slopes, of all regions in a row; ``numbers`` says which of the layer they are.
        """

    def start(
        self, network: Network, domain: Any, norms: Norms, moving: int, known: Sequence[tuple[Array, Array]]
    ) -> Array | None:
        """Axes h of the ellipsoid P_0 = D_h² to begin with, (moving,); None is the unit ball."""
        return None

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        """Called before matrices are formed for a layer; an error stops the pass.

        ``size`` neurons are carried, of which ``open_`` have open slopes, and the next layer has ``ahead``.
        """
        return
