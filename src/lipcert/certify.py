"""The algorithm: an ellipsoid of differences pushed through the network, one layer at a time.

P_0 = I
for each layer:
    S = W P Wᵀ                          what differences become under the affine map
    interval ← every enclosure          what each neuron can see over the region
    [α, β]  ← slopes on the interval
    T       ← the method                the multipliers; any feasible ones give a valid bound
    P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T
L² = λmax(S) at the output
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lipcert.auto import Auto
from lipcert.certificate import Certificate, LayerProof, Part, Proof, Sweep
from lipcert.condense import Image, condense
from lipcert.costs import require_memory
from lipcert.ellipsoid import Ellipsoid, activate
from lipcert.enclosures import Enclosure, Interval, Linear, Lipschitz
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.multipliers import Method, Stage
from lipcert.network import Network, indices
from lipcert.regions import Everywhere, Region
from lipcert.typing import Array
from lipcert.verify.checker import ROOM, prove, proving

BOTH: tuple[Enclosure, ...] = (Lipschitz(), Linear())
"""The default enclosures, intersected."""

_LEAST = 1e-60
"""Slope ranges of saturated neurons are widened to this, so that their squares and inverses stay floats."""


def certify(
    network: Network,
    region: Region | None = None,
    method: Method | None = None,
    *,
    inputs: Iterable[int] | None = None,
    outputs: Iterable[int] | None = None,
    layers: tuple[int, int] | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    verify: bool = True,
) -> Certificate:
    """Bound the ℓ2 Lipschitz constant of a network over a region.

    Parameters
    ----------
    network
        What :meth:`Network.from_weights` or an importer built.
    region
        A :class:`Ball` or :class:`Box`; the default :class:`Everywhere` gives the global constant.
    method
        How multipliers are chosen: ``ClosedForm()``, ``Scalar()``, ``Diagonal()``, ``Joint()``; the default
        ``Auto()`` climbs that ladder while its time lasts.
    inputs, outputs
        Coordinates at the two ends; other inputs are held equal, other outputs ignored. Default: all.
    layers
        (p, i): from z_p (p = 0: the input) to v_i. Default: the whole network.
    enclosures
        How pre-activations are bounded; the intersection counts.
    verify
        Prove the bound with outward rounding before returning it. Without, it is only as good as floating point.

    Returns
    -------
    Certificate
        Its ``bound`` satisfies ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of the region.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, lc.Ball([3.0, 3.0], 0.5)).bound, 6)
    1.414214
    """
    started = time.perf_counter()
    region = Everywhere() if region is None else region
    method = Auto() if method is None else method
    check_question(network, region, method, enclosures)
    part = _part(network, inputs, outputs, layers)
    if not region.bounded:  # slopes will be open; in a bounded region that is known layer by layer
        for number, layer in enumerate(network.layers[:-1], 1):
            require_memory(layer.size, number)
    target, inner = part.reduced(network)
    with proving(network):
        problem = Problem(target, region, tuple(enclosures))
        try:
            proof = whole = method.solve(problem)
            if inner != Part((0, target.depth)):
                proof = method.solve(problem.restrict(inner, whole))
        except np.linalg.LinAlgError as error:
            raise ProofFailed(f"{method} found no bound: {error}; weights may be too large or ill-scaled") from error
        part_sweeps = () if proof is whole else proof.sweeps
        bound, verified = proof.bound, False
        if verify and whole.sweeps:
            bound, verified = ROOM * prove(target, region, whole.sweeps, inner, part_sweeps), True
            if proof.cover is not None:  # whatever the search says, the cover's own number counts
                bound = min(bound, ROOM * proof.cover.bound_of(target, region))
    if not np.isfinite(bound):
        raise ProofFailed(f"{method} found no finite bound; try a smaller region or another method")
    seconds = time.perf_counter() - started
    return Certificate(
        bound,
        method,
        region,
        network.digest,
        part,
        proof.layers,
        whole.sweeps,
        part_sweeps,
        seconds,
        verified,
        None if proof.cover is None else proof.cover.tree(),
        proof.witness,
    )


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, a region, how to enclose, and intervals that are known beforehand."""

    network: Network
    region: Region
    enclosures: tuple[Enclosure, ...]
    known: tuple[Interval, ...] | None = None
    history: tuple[Sweep, ...] = ()

    def sweep(self, choose: Callable[[Stage], Array]) -> Proof:
        """The loop, with multipliers chosen layer by layer."""
        enclosing = _Enclosing(self)
        P, weight = Ellipsoid.ball(), self.network.layers[0].weight
        done: list[LayerProof] = []
        for layer, ahead in pairwise(self.network.layers):
            clock = time.perf_counter()
            image = Image(P, weight)
            lower, upper = enclosing.interval(len(done), image)
            assert layer.neurons is not None
            alpha, beta = layer.neurons.slope_range(lower, upper)
            beta = np.where(beta > alpha, np.maximum(beta, alpha + _LEAST), beta)
            # a neuron that does not move has any slope; one with a single slope need not be kept
            kept = condense(weight, alpha, np.where(image.axes() > 0, beta, alpha), ahead.weight)
            require_memory(kept.weight.shape[0], len(done) + 1)
            S = image.whole if kept.weight is weight else P.through(kept.weight)
            T = choose(Stage.of(len(done), S, kept))
            P, T = feasible_step(S, kept.alpha, kept.beta, T)
            seconds = time.perf_counter() - clock
            done.append(LayerProof(lower, upper, alpha, beta, kept.spread(T), int(S.exponent), seconds))
            weight = kept.ahead
        bound = float(P.through(weight).norm())
        multipliers, exponents = tuple(d.multiplier for d in done), tuple(d.exponent for d in done)
        hints = Sweep(self.enclosures, multipliers, exponents, enclosing.lines())
        return Proof(bound, tuple(done), (*self.history, hints))

    def knowing(self, proof: Proof, *enclosures: Enclosure) -> Problem:
        """The same problem with the intervals of a proof known, to be tightened by the given enclosures."""
        return replace(self, enclosures=enclosures, known=proof.intervals, history=proof.sweeps)

    def restrict(self, part: Part, whole: Proof) -> Problem:
        """The problem of a part of the network, with the intervals found for the whole."""
        start, stop = part.layers
        network = self.network.slice(start, stop).select(part.inputs, part.outputs)
        return Problem(network, self.region, (), whole.intervals[start : stop - 1])


class _Enclosing:
    """Intervals of pre-activations, layer by layer: what is known, tightened by every enclosure."""

    def __init__(self, problem: Problem) -> None:
        sizes = problem.network.sizes[1:]
        self.known = problem.known or tuple((np.full(size, -np.inf), np.full(size, np.inf)) for size in sizes)
        bounded = problem.region.bounded and bool(problem.enclosures)
        self.runs = [e.start(problem.network, problem.region) for e in problem.enclosures] if bounded else []
        self.centers = problem.network.preactivations(problem.region.center) if bounded else []

    def interval(self, index: int, S: Image) -> Interval:
        """Where the pre-activations of a layer lie."""
        interval = self.known[index]
        for run in self.runs:
            interval = run.tighten(index, S, interval)
        if self.runs:  # the centre belongs to the region: rounding must not lose its value
            center = self.centers[index]
            interval = np.minimum(interval[0], center), np.maximum(interval[1], center)
        for run in self.runs:
            run.settle(index, interval)
        return interval

    def lines(self) -> tuple[tuple[Array, Array], ...]:
        """The slopes of the lines that the linear relaxation used, for the checker."""
        return tuple(pair for run in self.runs for pair in run.line_slopes())


def feasible_step(S: Ellipsoid, alpha: Array, beta: Array, T: Array) -> tuple[Ellipsoid, Array]:
    """One activation step; multipliers on the edge of the feasible set are enlarged until they are inside."""
    growth = 2.0**-40
    for _ in range(80):
        try:
            return activate(S, alpha, beta, T), T
        except np.linalg.LinAlgError:
            T = np.where(beta > alpha, (1.0 + growth) * T + growth * _LEAST, T)
            growth = min(4.0 * growth, 0.5)
    raise ProofFailed("no feasible multipliers were found for a layer; its ellipsoid is not positive semidefinite")


def check_question(network: Network, region: Region, method: Method, enclosures: Sequence[Enclosure]) -> None:
    """An error that names the first argument that is not of its kind."""
    if not isinstance(network, Network):
        raise InvalidInput(
            f"network must be a lipcert.Network, got {type(network).__name__}; build one with Network.from_weights"
        )
    if not isinstance(region, Region):
        raise InvalidInput(f"region must be a Ball, Box or Everywhere, got {type(region).__name__}")
    if not isinstance(method, Method):
        raise InvalidInput(f"method must be a value such as Scalar(), got {method!r}")
    if isinstance(enclosures, Enclosure) or not isinstance(enclosures, Sequence):
        raise InvalidInput(f"enclosures must be a list such as [Lipschitz()], got {enclosures!r}")
    if not enclosures:
        raise InvalidInput("enclosures is empty; give at least one, such as Lipschitz()")
    for enclosure in enclosures:
        if not isinstance(enclosure, Enclosure):
            raise InvalidInput(f"enclosures must be values such as Lipschitz(), got {enclosure!r}")
        enclosure.check()
    region.check(network.inputs)


def _part(
    network: Network, inputs: Iterable[int] | None, outputs: Iterable[int] | None, layers: tuple[int, int] | None
) -> Part:
    ends_at = (0, network.depth) if layers is None else layers
    whole = np.shape(ends_at) == (2,) and np.asarray(ends_at).dtype.kind in "iu"
    if not whole or not 0 <= ends_at[0] < ends_at[1] <= network.depth:
        raise InvalidInput(f"layers must be (p, i) with 0 <= p < i <= {network.depth}, got {layers}")
    start, stop = ends_at
    ends = []
    for name, chosen, size in (("inputs", inputs, network.sizes[start]), ("outputs", outputs, network.sizes[stop])):
        ends.append(None if chosen is None else tuple(indices(name, chosen, size).tolist()))
    return Part((start, stop), *ends)
