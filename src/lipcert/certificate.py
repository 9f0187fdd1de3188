"""What was proved, of what, with which hints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lipcert import storage
from lipcert.regions import Region
from lipcert.typing import Array

if TYPE_CHECKING:
    from lipcert.enclosures import Enclosure
    from lipcert.multipliers import Method
    from lipcert.network import Network
    from lipcert.verify.cover import Cover
    from lipcert.verify.tree import Tree


@dataclass(frozen=True, eq=False)
class LayerProof:
    """One hidden layer: where its pre-activations lie, the slopes there, and the multipliers T.

    ``multiplier`` is relative: the true T is 4**exponent times it.
    """

    lower: Array
    upper: Array
    alpha: Array
    beta: Array
    multiplier: Array
    exponent: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """The hints that repeat one sweep.

    Which enclosures tightened the intervals, and per hidden layer the multipliers (relative to 4**exponent) and, where
    a linear relaxation took part, the slopes of its lower and upper lines.
    """

    enclosures: tuple[Enclosure, ...]
    multipliers: tuple[Array, ...]
    exponents: tuple[int, ...]
    lines: tuple[tuple[Array, Array], ...] = ()


@dataclass(frozen=True, eq=False)
class Proof:
    """A bound, the layers it was carried through, and the sweeps that led there.

    Each sweep starts from the intervals of the ones before; the last gives the bound.
    """

    bound: float
    layers: tuple[LayerProof, ...]
    sweeps: tuple[Sweep, ...] = ()
    cover: Cover | None = None
    witness: Array | None = None

    @property
    def intervals(self) -> tuple[tuple[Array, Array], ...]:
        """Where the pre-activations of each hidden layer lie."""
        return tuple((layer.lower, layer.upper) for layer in self.layers)

    @property
    def slopes(self) -> list[tuple[Array, Array]]:
        """The slope ranges (α, β) of each hidden layer."""
        return [(layer.alpha, layer.beta) for layer in self.layers]


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


@dataclass(frozen=True, eq=False)
class Certificate:
    """A certified upper bound on an ℓ2 Lipschitz constant.

    Attributes
    ----------
    bound : ‖f(x) - f(y)‖₂ ≤ bound · ‖x - y‖₂ for all x, y of the region.
    method : the method that found it.
    region : the inputs it holds for.
    network : digest of the network.
    part : the part of the network it is about.
    layers : per hidden layer of that part: intervals, slopes, multipliers, seconds.
    sweeps : the hints from which the whole network's bound can be derived again.
    part_sweeps : the same for the part, where the certificate is about less than the whole network.
    seconds : wall-clock time.
    tree : the pieces, where the region was cut; the largest of their bounds counts.
    witness : an input at which the Jacobian's norm comes near the bound, where the search met one; no proof needs it.
    verified : whether the bound was proved in floating point with outward rounding.
    """

    bound: float
    method: Method | str
    region: Region
    network: str
    part: Part
    layers: tuple[LayerProof, ...]
    sweeps: tuple[Sweep, ...]
    part_sweeps: tuple[Sweep, ...]
    seconds: float
    verified: bool = False
    tree: Tree | None = None
    witness: Array | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file; what it proves can be checked from there with :func:`lipcert.verify`."""
        storage.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file. Nothing in it is believed before :func:`lipcert.verify` has passed it."""
        return storage.load(path)

    def __repr__(self) -> str:
        facts = f"bound={self.bound:.6g}, method={self.method!r}, seconds={self.seconds:.3g}, verified={self.verified}"
        return f"Certificate({facts})"
