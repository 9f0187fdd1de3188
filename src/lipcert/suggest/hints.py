"""Hints: untrusted numbers, and who gives them while a proof runs. Any values are safe; bad ones give loose bounds.

A pass asks a :class:`Guide` layer by layer, and shows it a :class:`View`. The guide is a method, or stored hints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Interval, Weight
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Norms


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
class RowHints:
    """What bounds a row of the outputs over a ball; untrusted numbers."""

    row: Array


@dataclass(frozen=True, eq=False)
class DualHints(RowHints):
    """The semidefinite dual bound: a multiplier per product of the kernel's ``DualBound``, and that of the ball."""

    multipliers: Array
    ball: float


@dataclass(frozen=True, eq=False)
class QuadraticHints(RowHints):
    """Quadratic relaxation: a parabola at each neuron.

    Attributes
    ----------
    slopes, bends : of all neurons of each hidden layer, in order; those of neurons with a single slope are ignored.
    mu : multiplier of the ball.
    tops : about the largest eigenvalue of each layer's form, where the squares of each layer are bounded by themselves.
    multipliers : of the hidden layers but the last, where all squares are bounded together; else None.
    """

    slopes: tuple[Array, ...]
    bends: tuple[Array, ...]
    mu: float
    tops: tuple[float, ...] = ()
    multipliers: tuple[Array, ...] | None = None


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


LEAF = -2
"""In the place of a cut neuron's layer: a node that is not cut."""


@dataclass(frozen=True, eq=False)
class Tree:
    """What was cut where, as a certificate stores it; the root first, the two children of a cut node after each other.

    Attributes
    ----------
    layer : per node, LEAF, AXIS, or the hidden layer (from 0) of the neuron that was cut.
    index : the axis or the neuron.
    value : where it was cut.
    child : number of the first child (below ``value``); the second (above) is the next.
    bound : the largest value of a leaf, or 0 if that is negative.
    void, neuron, weight : for leaves that contain no input, three columns of their own: the node, and the weights of
        the neurons (numbered through all hidden layers) that show it.
    passed : nodes whose halves were not bounded, but keep the bound of the node.
    second : empty; older files name nodes here that were bounded by fewer rules.
    """

    layer: Array
    index: Array
    value: Array
    child: Array
    bound: float
    void: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    neuron: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    weight: Array = field(default_factory=lambda: np.zeros(0))
    second: Array = field(default_factory=lambda: np.zeros(0, dtype=int))
    passed: Array = field(default_factory=lambda: np.zeros(0, dtype=int))

    @property
    def leaves(self) -> int:
        return int((self.layer == LEAF).sum())


@dataclass(frozen=True, eq=False)
class View:
    """What a guide sees of a layer, for a stack of regions; T is relative to the same scale as S.

    Attributes
    ----------
    index : the hidden layer, from 0.
    S : (count, k, k), the ellipsoid of what is kept, divided by 4**exponent.
    exponent : (count,).
    alpha, beta : (count, k), the slopes.
    ahead : the next weight over what is kept, (m, k), or (count, m, k).
    neurons : (count, k), which neurons of the layer these are. None is all, in order.
    size : neurons of the layer.
    form, network, values : in a network with couplings what the step is made of, and about where the values of all
        hidden layers are; T is about the results.
    """

    index: int
    S: Array
    exponent: Array
    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array | None
    size: int
    form: Any = None
    network: Network | None = None
    values: Sequence[Array] = ()

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


class Guide(ABC):
    """Asked by a pass layer by layer; ``enclosures`` are the ways in which it finds intervals."""

    enclosures: tuple[Any, ...]

    @abstractmethod
    def multipliers(self, view: View) -> Array:
        """T of what is kept of one layer, (count, k), by its :class:`View`; zero where there is no suggestion."""

    @abstractmethod
    def lines(
        self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval
    ) -> tuple[Array, Array]:
        """Slopes of the lower and upper lines of some neurons, for one of the linear enclosures, (k,).

        ``neurons`` are those with open slopes, of all regions in a row; ``numbers`` says which of the layer they are.
        """

    def start(self, network: Network, domain: Any, norms: Norms, known: Sequence[Interval]) -> Array | None:
        """Axes h of the ellipsoid P_0 = D_h² to begin with, (inputs,); None is the unit ball."""
        return None

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        """Called before matrices are formed for a layer; an error stops the pass.

        ``size`` neurons are carried, of which ``open_`` have open slopes, and the next layer has ``ahead``.
        """
        return


class StoredGuide(Guide):
    """The hints of a certificate, for one region."""

    def __init__(self, hints: Hints, network: Network, bounded: bool) -> None:
        """An error if the hints are not for such a network."""
        self.hints, self.enclosures, hidden = hints, hints.enclosures, network.layers[:-1]
        linear = [enclosure for enclosure in hints.enclosures if hasattr(enclosure, "depth")]
        if {len(hints.multipliers), len(hints.exponents)} != {len(hidden)}:
            raise ProofFailed(f"the hints are for {len(hints.multipliers)} hidden layers, not {len(hidden)}")
        lines = hints.lines if bounded else ()
        if bounded and (len(lines) != len(linear) * len(hidden) or any(len(pair) != 2 for pair in lines)):
            raise ProofFailed("the hints lack the slopes of the bounding lines, or have too many")
        if any(enclosure.depth is not None and enclosure.depth < 0 for enclosure in linear):
            raise ProofFailed("the depth of a linear enclosure must be at least 0")
        if any(abs(exponent) > 2**20 for exponent in hints.exponents):
            raise ProofFailed("an exponent of the hints is out of range")
        arrays = [(k, hidden[k].width, hints.multipliers[k]) for k in range(len(hidden))]
        sizes = [layer.plain.size if layer.plain else 0 for layer in hidden]
        arrays += [(k % len(sizes), sizes[k % len(sizes)], line) for k, pair in enumerate(lines) for line in pair]
        for index, size, array in arrays:
            if np.shape(array) != (size,):
                raise ProofFailed(f"the hints of layer {index + 1} are not for its {size} neurons")

    def start(self, *_: Any) -> Array | None:
        found: Array | None = self.hints.start
        return found

    def multipliers(self, view: View) -> Array:
        power = 2 * (self.hints.exponents[view.index] - view.exponent)
        T = np.asarray(self.hints.multipliers[view.index], dtype=float)
        return np.asarray(np.ldexp(view.narrow(np.broadcast_to(T, (len(power), view.size))), power[:, None]))

    def lines(self, which: int, index: int, neurons: Any, numbers: Array, interval: Any) -> tuple[Array, Array]:
        lower, upper = self.hints.lines[which * len(self.hints.multipliers) + index]
        return lower[numbers], upper[numbers]


@dataclass(frozen=True, eq=False)
class LayerReport:
    """One hidden layer: where its pre-activations lie, the slopes there, and the multipliers T.

    ``multiplier`` is relative: the true T is 4**exponent times it.
    """

    lower: Array
    upper: Array
    alpha: Array
    beta: Array
    multiplier: Array
    exponent: int


def layer_reports(sweep: Any, which: int = 0) -> tuple[LayerReport, ...]:
    """What a pass knows of each hidden layer for one of its regions."""
    found = []
    for view, T, interval, slopes in zip(sweep.views, sweep.hinted, sweep.intervals, sweep.slopes, strict=True):
        lower, upper, alpha, beta, multiplier = (part[which] for part in (*interval, *slopes, T))
        found.append(LayerReport(lower, upper, alpha, beta, multiplier, int(view.exponent[which])))
    return tuple(found)
