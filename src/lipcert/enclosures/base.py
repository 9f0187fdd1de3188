"""What an enclosure is: a rule that bounds every pre-activation over the region, layer by layer."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lipcert.condense import Image
from lipcert.network import Network
from lipcert.regions import Region
from lipcert.typing import Array

Interval = tuple[Array, Array]


class Pass(ABC):
    """One run of an enclosure through a network; it remembers what the earlier layers taught it."""

    @abstractmethod
    def tighten(self, layer: int, S: Image, known: Interval) -> Interval:
        """An interval for the pre-activations of a layer (counted from 0), inside the known one.

        S is the ellipsoid of the layer's pre-activation differences.
        """

    @abstractmethod
    def settle(self, layer: int, interval: Interval) -> None:
        """The interval that was finally agreed on for the layer."""

    @abstractmethod
    def line_slopes(self) -> list[tuple[Array, Array]]:
        """Slopes of the lower and upper lines of each layer so far, where the run draws lines."""


class Enclosure(ABC):
    """A way to bound pre-activations; a value, with its options."""

    def check(self) -> None:  # noqa: B027 - most have no options that could be wrong
        """An error if an option makes no sense."""

    @abstractmethod
    def start(self, network: Network, region: Region) -> Pass:
        """Begin a run."""
