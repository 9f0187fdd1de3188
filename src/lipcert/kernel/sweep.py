"""The pass through the layers, proved: intervals, slopes, ellipsoids and the bound, for a stack of regions at once.

P_0 = I, or D_h² for a start h
for each layer:
    S = W P Wᵀ                          what differences become under the affine map
    interval ← every enclosure          where each neuron's pre-activation lies over the region
    [α, β]  ← slopes on the interval
    T       ← the guide                 the multipliers; whatever they are, the step is proved
    P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T
L² = λmax(S) at the output, or what S tells in another norm

A matrix inequality P ≼ P̂ between the real P and a float matrix P̂ is kept true from layer to layer. Neurons whose slope
is zero, or that do not move, are left out of P: what they contribute is zero.

A guide is asked layer by layer where multipliers and lines come from; whatever it says, the proof holds.

A search brings a guide, and gets back a :class:`Pass`: its hints, and what it proved. Later passes begin with its
intervals. Passes over another region, or in another order, are hints like any others: they are proved again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, down, inflate, up
from lipcert.kernel.coupling import coupled_step, form
from lipcert.kernel.domain import Domain, check_region, kind_of, same_region
from lipcert.kernel.enclosures import BackSubstitution, activated, activated_ends, affine, trajectory
from lipcert.kernel.facts import Part
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.norms import columns_times, ellipsoid_above, sound, start_gain
from lipcert.kernel.step import Image, Step, activate, columns, low_rank_step, picked
from lipcert.model.arrays import Array, Interval, Weight, frozen
from lipcert.model.convolution import Convolution
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import PLAIN, Norms, Region
from lipcert.suggest.hints import Guide, Hints, Linear, Lipschitz, StoredGuide, View

_LARGEST = 1024
"""Neurons up to which the matrices of a layer are kept after its step."""
_MANY = 4096
"""Neurons of a large layer of which S is kept at most."""
_NEARLY_ALL = 0.9
"""Share of the neurons from which none is left out."""
_LEAST = 2.0**-100
"""The axes of a start lie between this and its inverse."""


@contextmanager
def proving() -> Iterator[None]:
    """Overflows give infinity or NaN, which prove nothing; a factorisation that does not exist is a failed proof."""
    with np.errstate(all="ignore"):
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ProofFailed(f"a matrix of the proof could not be factored: {error}") from error


def stack_of(regions: Sequence[Region], inputs: int) -> Domain | None:
    """Regions of one kind as one domain; no domain is all of space, a region that goes alone."""
    for region in regions:
        check_region(region, inputs)
    if len({kind_of(region) for region in regions}) != 1 or not (regions[0].bounded or len(regions) == 1):
        raise ProofFailed("only regions of one kind go through a network together, and all of space by itself")
    return Domain.of(regions) if regions[0].bounded else None


@dataclass(eq=False)
class Sweep:
    """One pass; afterwards the lists hold what was proved of each hidden layer, with one row per region.

    Attributes
    ----------
    network, domain : what is spoken of; no domain is all of space.
    guide : asked layer by layer.
    known : intervals of the hidden layers that were proved before.
    pieces : whether regions may turn out to be ``empty``; otherwise that is an error.
    enclose : whether the region is one of this network's inputs, and the guide's enclosures are used.
    norms : in which the bounds are, without units.
    start : h, (inputs,), for P_0 = D_h²; None is what the guide says, if it does.
    intervals, slopes, steps : per hidden layer, what was proved.
    views, hinted, drawn : what the guide saw, of large layers without S, and what it said of all neurons.
    spreads : of large layers some neurons of each region, and their S.
    S, exponent : the ellipsoid of the outputs, (count, outputs, outputs), relative to 4**exponent.
    """

    network: Network
    domain: Domain | None
    guide: Guide
    known: Sequence[Interval] = ()
    pieces: bool = False
    enclose: bool = True
    norms: Norms = PLAIN
    start: Array | None = None
    intervals: list[Interval] = field(default_factory=list)
    slopes: list[Interval] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    spreads: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    hinted: list[Array] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_weights(self.network)
        if self.norms.has_units:
            raise ProofFailed("a sweep is about norms without units: they belong into the weights")
        self.count = 1 if self.domain is None else len(self.domain)
        self.enclosures = self.guide.enclosures if self.enclose else ()
        if self.network.coupled:
            self._check_coupled()
        self.ends: Interval | None = self.domain.corners() if self.domain is not None and self.enclose else None
        enclosures = () if self.domain is None else self.enclosures
        self.local = any(isinstance(enclosure, Lipschitz) for enclosure in enclosures)
        self.linear = [enclosure for enclosure in enclosures if isinstance(enclosure, Linear)]
        self.drawn: list[list[Interval]] = [[] for _ in self.linear]
        self.traces: list[BackSubstitution] = []
        self.empty = np.zeros(self.count, dtype=bool)
        self.S, self.exponent = np.zeros((self.count, 0, 0)), np.zeros(self.count, dtype=int)
        first = self.network.layers[0].weight
        if self.start is None:
            self.start = self.guide.start(self.network, self.domain, self.norms, self.known)
        self.start = _usable_start(self.start, first.shape[1])
        self.first = first if self.start is None else columns_times(first, self.start)
        if self.first is not first and not sound(first, self.first):
            raise ProofFailed("the first weights are too small for the start of a sweep")
        self.weight: Weight = self.first

    def run(self, needs_bound: bool = True) -> Sweep:
        """All layers; without a need for the bound only what the intervals take."""
        domain, hidden = self.domain, self.network.layers[:-1]
        if domain is not None:
            self.traces = [BackSubstitution(self.network, domain, e.depth, self.pieces) for e in self.linear]
            self.empty = domain.outside() if self.pieces else self.empty
        self.values = at_centers(self.network, domain) if self.local and domain is not None else []
        carry, P = self.local or needs_bound, None
        for index, layer in enumerate(hidden):
            assert layer.plain is not None
            image, P = Image(P, self.exponent, self.weight) if carry else None, None
            axes = None if image is None or (self.pieces and not self.local) else image.axes()
            interval = self._interval(index, layer.size, axes)
            first = interval[0][:, : layer.plain.size], interval[1][:, : layer.plain.size]
            slopes = self._slopes(index, layer.plain, first)
            if self.network.coupled:
                P = self._couple(index, image, interval, slopes)
            elif image is not None:
                P = self._activate(index, image, axes, slopes)
            self._draw(index, layer.plain, interval, slopes)
        if needs_bound:
            self.S, self.exponent = Image(P, self.exponent, self.weight).block()
        return self

    @cached_property
    def bounds(self) -> Array:
        """At least the Lipschitz constant over each region, (count,); zero where the region is empty."""
        norm = up(np.ldexp(ellipsoid_above(self.S, self.norms.output), self.exponent))
        gain = start_gain(self.norms.input, self.start, self.first.shape[1])
        return np.where(self.empty, 0.0, norm if gain == 1.0 else inflate(norm * gain, 1))

    def hints(self, which: int) -> Hints:
        """What repeats the sweep of one region."""
        lines = [(lower[which], upper[which]) for drawn in self.drawn for lower, upper in drawn]
        multipliers = [T[which] for T in self.hinted]
        exponents = [int(view.exponent[which]) for view in self.views]
        return Hints(self.enclosures, tuple(multipliers), tuple(exponents), tuple(lines), self.start)

    def ellipsoid(self, index: int, which: int) -> tuple[Array, Array, int]:
        """Neurons of a hidden layer, S and an exponent: differences of their values are within 4**exponent·S."""
        view = self.views[index]
        kept, S = self.spreads.get(index, (view.neurons, view.S))
        return np.arange(S.shape[-1]) if kept is None else kept[which], S[which], int(view.exponent[which])

    def _interval(self, index: int, size: int, axes: Array | None) -> Interval:
        """Where the pre-activations of a layer lie, (count, neurons)."""
        shape = self.count, size
        if self.known:
            lower, upper = (np.array(np.broadcast_to(end, shape)) for end in self.known[index])
        else:
            lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        if self.local and self.domain is not None and axes is not None:
            value, error = self.values[index]
            reach = inflate(self.domain.extent(self.start)[:, None] * axes + error, 2)
            lower, upper = np.fmax(lower, down(value - reach)), np.fmin(upper, up(value + reach))
        if self.network.coupled and self.ends is not None:
            low, high = affine(self.network.layers[index], self.ends)
            lower, upper = np.fmax(lower, low), np.fmin(upper, high)
        still = None if axes is None else axes == 0.0
        # on layer 1 over an ℓ2 ball back-substitution equals the Lipschitz interval
        equal = index == 0 and self.local and self.start is None and self.domain is not None and self.domain.plain
        for trace in () if equal else self.traces:
            lower, upper = trace.tightened(index, lower, upper, still)
        hollow = np.asarray((lower > upper).any(axis=-1))  # no input of the region obeys
        if np.isnan(lower).any() or np.isnan(upper).any() or (hollow.any() and not self.pieces):
            raise ProofFailed(f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
        self.empty = self.empty | hollow
        lower[hollow] = upper[hollow] = 0.0
        self.intervals.append((lower, upper))
        return lower, upper

    def _slopes(self, index: int, neurons: Neurons, interval: Interval) -> Interval:
        center = self.values[index][0][:, : neurons.size] if self.local else None
        try:
            alpha, beta = slope_bounds(neurons, *interval, center)
        except ProofFailed as error:
            raise ProofFailed(f"layer {index + 1}: {error}") from None
        if self.empty.any():  # no slopes at all: nothing to carry
            alpha, beta = (np.where(self.empty[:, None], 0.0, slope) for slope in (alpha, beta))
        self.slopes.append((alpha, beta))
        return alpha, beta

    def _check_coupled(self) -> None:
        """Products have slopes as large as their factors, so there must be a region; and nothing is cut."""
        if self.domain is None and not self.known:
            raise ProofFailed(
                "products and softmax of signals have no bound over all of space: a product changes as fast as its"
                " factors are large; name a region, a Ball or a Box"
            )
        if self.pieces or self.count > 1:
            raise ProofFailed("regions of networks with products or softmax are bounded one by one, and not cut")

    def _couple(self, index: int, image: Image | None, interval: Interval, slopes: Interval) -> Array | None:
        """P after a layer with a coupling."""
        layer, ahead = self.network.layers[index], self.network.layers[index + 1].weight
        assert layer.plain is not None
        coupling = Coupling.of(layer.size, layer.size) if layer.coupling is None else layer.coupling
        if image is None:
            self.ends = activated_ends(layer, interval)
            return None
        self.guide.room(index, layer.size, layer.size, layer.width)
        S, self.exponent = image.block()
        first = interval[0][:, : layer.plain.size], interval[1][:, : layer.plain.size]
        plain = activated(layer.plain, first)
        center, radius = None, np.inf
        if self.local and self.domain is not None:
            value, error = self.values[index]
            center, radius = Near(value[0], error[0]), float(self.domain.extent(self.start)[0])
        box, rates, results = ((low[0], high[0]) for low, high in (interval, slopes, plain))
        found = form(coupling, S[0], int(self.exponent[0]), box, rates, results, center, radius)
        self.ends = found.ends[0][None], found.ends[1][None]
        self.weight = ahead
        middles = [value[0] for value, _ in self.values] or [
            np.ravel(0.5 * low + 0.5 * high) for low, high in self.known
        ]
        view = View(
            index, frozen(S), frozen(self.exponent), *slopes, ahead, None, layer.width, found, self.network, middles
        )
        hint = self._multipliers(view, (1, layer.width))
        P = coupled_step(S[0], found, hint[0])[None]
        self._keep(view, hint, Step.still(P, np.zeros((1, 0))), False)
        return P

    def _draw(self, index: int, neurons: Neurons, interval: Interval, slopes: Interval) -> None:
        """Lines around the activations, for every back-substitution."""
        if not self.traces:
            return
        places = np.nonzero(slopes[0] < slopes[1])
        some, ends = neurons.take(places[1]), (interval[0][places], interval[1][places])
        for which, trace in enumerate(self.traces):
            told = self.guide.lines(which, index, some, places[1], ends) if places[0].size else ends
            self.drawn[which].append(trace.settle(interval, slopes, told, self.ends))

    def _activate(self, index: int, image: Image, axes: Array | None, slopes: Interval) -> Array:
        """P after the neurons of a layer; what is left out is not part of it."""
        size, ahead = self.network.layers[index].size, self.network.layers[index + 1].weight
        alpha, beta = slopes
        if axes is not None and not axes.all():  # differences of zero have any slope
            alpha, beta = (np.where(axes != 0.0, end, 0.0) for end in slopes)
        kept = _kept((alpha != 0.0) | (beta != 0.0))
        wide = int((alpha < beta).sum(axis=-1).max(initial=0))
        self.guide.room(index, size if kept is None else kept.shape[-1], wide, ahead.shape[0])
        S, self.exponent = image.block(kept)
        self.weight = columns(ahead, kept)
        if kept is not None:
            alpha, beta, kept = (*(picked(end, kept) for end in (alpha, beta)), frozen(kept))
        for seen in (S, self.exponent, alpha, beta):
            frozen(seen)  # a guide may look, not write
        view = View(index, S, self.exponent, alpha, beta, self.weight, kept, size)
        hint = self._multipliers(view, alpha.shape)
        step = None
        if index == 0 and self.count == 1 and not self.pieces:
            scaled = image.weight * 2.0 ** -int(self.exponent[0])
            if sound(image.weight, scaled):
                step = low_rank_step(scaled if kept is None else scaled[kept[0]], alpha, beta, hint)
        step = activate(S, alpha, beta, hint) if step is None else step
        large = S.shape[-1] > _LARGEST and not self.pieces
        if large:
            self.spreads[index] = _open(S, kept, alpha < beta)
        self._keep(view, hint, step, not large)
        return step.P

    def _multipliers(self, view: View, shape: tuple[int, ...]) -> Array:
        """What the guide says; zero is no suggestion, which can be stored."""
        hint = np.array(np.broadcast_to(np.asarray(self.guide.multipliers(view), dtype=float), shape))
        hint[~np.isfinite(hint)] = 0.0
        return hint

    def _keep(self, view: View, hint: Array, step: Step, matrices: bool) -> None:
        """Remember a layer, with or without its matrices."""
        none = np.zeros((self.count, 0, 0))
        self.hinted.append(view.widen(hint))
        self.views.append(view if matrices else replace(view, S=none, form=None, network=None, values=()))
        self.steps.append(step if matrices else replace(step, P=none, L=none, X=none))


def _usable_start(start: Array | None, size: int) -> Array | None:
    """A start that products neither over- nor underflow with; none is made of what is not."""
    if start is None:
        return None
    start = np.asarray(start, dtype=float)
    if start.shape != (size,) or not ((start > _LEAST) & (start < 1.0 / _LEAST)).all():
        raise ProofFailed(f"the start of a sweep must be {size} positive numbers of moderate size")
    return frozen(start)


def _kept(wanted: Array) -> Array | None:
    """The neurons that are wanted, (count, k), padded with others where a region wants fewer; None is all."""
    most = int(wanted.sum(axis=-1).max(initial=0))
    if most > _NEARLY_ALL * wanted.shape[-1]:
        return None
    return np.sort(np.argsort(~wanted, axis=-1, kind="stable")[:, : max(most, 1)], axis=-1)


def _open(S: Array, kept: Array | None, some: Array) -> tuple[Array, Array]:
    """The open neurons of a single region, and what S says of them; none of a stack, or if they are too many."""
    own = np.flatnonzero(some[0]) if len(S) == 1 else np.arange(0)
    own = own[: own.size * (own.size <= _MANY)]
    names = np.broadcast_to(own if kept is None else kept[0, own], (len(S), own.size))
    return names, frozen(S[:, own[:, None], own])


def at_centers(network: Network, domain: Domain) -> list[Interval]:
    """Pre-activations of the hidden layers at the centres as computed, and bounds of their errors, (count, n).

    Regions around one centre share the work: then count is 1.
    """
    center = domain.center
    return trajectory(network, center[:1] if (center == center[0]).all() else center)


def check_weights(network: Network, kernels: bool = False) -> None:
    """The error bounds of products hold for float64, and for sparse weights that name each entry once.

    With ``kernels`` no matrices of convolutions are made.
    """
    for number, layer in enumerate(network.layers, 1):
        weight = layer.linear.kernel if kernels and isinstance(layer.linear, Convolution) else layer.weight
        canonical = isinstance(weight, np.ndarray) or weight.has_canonical_format
        if weight.dtype != np.float64 or layer.bias.dtype != np.float64 or not canonical:
            raise ProofFailed(
                f"layer {number} must have weights and biases of float64, sparse ones without repeated entries;"
                " build the network with Network.from_weights"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass(Hints):
    """Hints, and what a pass with them proved: intervals of the hidden layers, (1, neurons) each, and a bound.

    Only :func:`ask` makes one. It is about ``part`` of the network, None is all of it, in ``norms``, and began with the
    intervals of the passes ``before``.
    """

    network: Network
    region: Region
    before: tuple[Hints, ...]
    part: Part | None
    norms: Norms
    intervals: Sequence[Interval]
    bound: float


def ask(
    network: Network,
    region: Region,
    guide: Guide,
    before: tuple[Hints, ...] = (),
    part: Part | None = None,
    norms: Norms = PLAIN,
) -> tuple[Sweep, Pass]:
    """A pass over a region in which a guide is asked.

    A part gets its intervals from the passes before, which are about the whole network, and has norms of its own.
    """
    domain, target = stack_of([region], network.inputs), network
    known = intervals(network, region, before)
    if part is not None:
        known, target, norms = part.known(known), part.of(network), part.norms.bare
    with proving():
        sweep = Sweep(target, domain, guide, known, enclose=part is None, norms=norms).run()
        bound = float(sweep.bounds[0])
    for array in (*(end for interval in sweep.intervals for end in interval), *sweep.hinted):
        frozen(array)
    about: dict[str, Any] = {"network": network, "region": region, "before": before, "part": part, "norms": norms}
    return sweep, Pass(**vars(sweep.hints(0)), **about, intervals=tuple(sweep.intervals), bound=bound)


def passed(
    network: Network, region: Region, hints: Hints, before: Sequence[Hints], part: Part | None = None
) -> Pass | None:
    """The hints, if they are a pass and all that it rests on is the same; else they must be proved again."""
    if not isinstance(hints, Pass) or hints.part != part or len(hints.before) != len(before):
        return None
    same = all(one is two for one, two in zip(hints.before, before, strict=True))
    same = same and (hints.network is network or hints.network.digest == network.digest)
    return hints if same and (hints.region is region or same_region(hints.region, region)) else None


def intervals(network: Network, region: Region, sweeps: Sequence[Hints]) -> Sequence[Interval]:
    """What passes prove, one after the other, of the pre-activations of every hidden layer, (1, neurons) each."""
    found = chain(network, region, sweeps, False)
    return found[-1].intervals if found else ()


def chain(network: Network, region: Region, sweeps: Sequence[Hints], needs_bound: bool = True) -> list[Sweep | Pass]:
    """Passes one after the other, each with the intervals of the one before; the last may be needed for its bound."""
    domain, found = stack_of([region], network.inputs), list[Sweep | Pass]()
    with proving():
        for number, hints in enumerate(sweeps, 1):
            done = passed(network, region, hints, sweeps[: number - 1])
            guide, known = StoredGuide(hints, network, region.bounded), found[-1].intervals if found else ()
            last = needs_bound and number == len(sweeps)
            found.append(done or Sweep(network, domain, guide, known).run(last))
    return found
