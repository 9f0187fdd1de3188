"""What a search found, before anything is proved."""

from __future__ import annotations

from dataclasses import dataclass

from lipcert.model.arrays import Array
from lipcert.proof.certificate import LayerReport
from lipcert.proof.cover import Cover
from lipcert.proof.hints import Curved, Hints


@dataclass(frozen=True, eq=False)
class Candidate:
    """A bound, the layers it was carried through, and the sweeps that led there.

    Each sweep starts from the intervals of the ones before; the last gives the bound. ``found_by`` names the method if
    one calls others; ``curved`` are second-order hints, used if their bound is smaller; ``notes`` say which of a
    method's choices had to be repaired.
    """

    bound: float
    layers: tuple[LayerReport, ...]
    sweeps: tuple[Hints, ...] = ()
    cover: Cover | None = None
    witness: Array | None = None
    found_by: str = ""
    curved: Curved | None = None
    notes: tuple[str, ...] = ()

    @property
    def intervals(self) -> tuple[tuple[Array, Array], ...]:
        """Where the pre-activations of each hidden layer lie."""
        return tuple((layer.lower, layer.upper) for layer in self.layers)

    @property
    def slopes(self) -> list[tuple[Array, Array]]:
        """The slope ranges (α, β) of each hidden layer."""
        return [(layer.alpha, layer.beta) for layer in self.layers]
