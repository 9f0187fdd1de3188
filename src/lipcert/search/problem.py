"""The algorithm: an ellipsoid of differences pushed through the network, one layer at a time, in floating point.

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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region
from lipcert.proof.certificate import LayerReport
from lipcert.proof.domain import is_box
from lipcert.proof.hints import Enclosure, Hints, Interval, Part
from lipcert.proof.induced import start_gain, start_near
from lipcert.runtime.costs import require_memory
from lipcert.search.candidate import Candidate
from lipcert.search.ellipsoid import Ellipsoid, Image, activate
from lipcert.search.enclosing import Enclosing
from lipcert.search.folding import WIDE, condense
from lipcert.search.stage import LEAST, Stage, widened


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, a region, how to enclose, and intervals that are known beforehand.

    The bound is one in ``norms``, without units; ``start`` are the axes h of the ellipsoid P_0 = D_h² that a sweep
    begins with, None is what :func:`suggested_start` says of the Jacobian at the centre.
    """

    network: Network
    region: Region
    enclosures: tuple[Enclosure, ...]
    known: tuple[Interval, ...] | None = None
    history: tuple[Hints, ...] = ()
    norms: Norms = PLAIN
    start: Array | None = None

    @property
    def needs_start(self) -> bool:
        """Whether a sweep has axes to begin with that are not all the same."""
        return self.norms.input.name == "linf"

    @cached_property
    def axes(self) -> Array | None:
        """The axes of the ellipsoid that a sweep begins with; None is the unit ball."""
        if self.start is not None or not self.needs_start:
            return self.start
        points = [self.region.center] if self.region.bounded and self.known is None else []
        return start_near(self.network, points, self.norms, self.known or ())

    def sweep(self, choose: Callable[[Stage], Array]) -> Candidate:
        """The loop, with multipliers chosen layer by layer.

        A start for a cube is of little use to the intervals of other regions: those are found beforehand.
        """
        if self.needs_start and self.known is None and self.region.bounded and not is_box(self.region):
            before = replace(self, norms=PLAIN, start=None).sweep(choose)
            return self.knowing(before).sweep(choose)
        start = self.axes
        enclosing = Enclosing(self.network, self.region, self.enclosures, self.known, start)
        P, weight = Ellipsoid(), self.network.layers[0].weight
        if start is not None:
            weight = weight * start if isinstance(weight, np.ndarray) else weight @ sparse.diags_array(start).tocsr()
        done: list[LayerReport] = []
        for layer, ahead in pairwise(self.network.layers):
            clock = time.perf_counter()
            image = Image(P, weight)
            axes = image.axes()
            lower, upper = enclosing.interval(len(done), axes)
            assert layer.neurons is not None
            alpha, beta = layer.neurons.slope_range(lower, upper)
            beta = widened(alpha, beta)
            # a neuron that does not move has any slope; one with a single slope need not be kept
            kept = condense(weight, alpha, np.where(axes > 0, beta, alpha), ahead.weight)
            require_memory(kept.weight.shape[0], len(done) + 1)
            S = P.through(kept.weight) if kept.carries else image.block(None if kept.weight is weight else kept.neurons)
            T = choose(Stage.of(len(done), S, kept))
            P, T = feasible_step(S, kept.alpha, kept.beta, T, apart=WIDE <= len(kept.alpha) > ahead.size)
            seconds = time.perf_counter() - clock
            done.append(LayerReport(lower, upper, alpha, beta, kept.spread(T), int(S.exponent), seconds))
            weight = kept.ahead
        bound = P.through(weight).norm(self.norms.output) * start_gain(self.norms.input, start, self.network.inputs)
        multipliers, exponents = tuple(d.multiplier for d in done), tuple(d.exponent for d in done)
        hints = Hints(self.enclosures, multipliers, exponents, enclosing.lines(), start)
        return Candidate(bound, tuple(done), (*self.history, hints))

    def knowing(self, candidate: Candidate, *enclosures: Enclosure) -> Problem:
        """The same problem with the intervals of a candidate known, to be tightened by the given enclosures."""
        return replace(self, enclosures=enclosures, known=candidate.intervals, history=candidate.sweeps)

    def restrict(self, part: Part, whole: Candidate) -> Problem:
        """The problem of a part of the network, with the intervals found for the whole."""
        target = part.of(self.network)
        sizes = target.sizes[1:-1]
        pairs = zip(part.known(whole.intervals), sizes, strict=True)
        known = tuple((np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))) for (low, high), n in pairs)
        return Problem(target, self.region, (), known, norms=part.norms.bare)


def feasible_step(S: Ellipsoid, alpha: Array, beta: Array, T: Array, apart: bool = False) -> tuple[Ellipsoid, Array]:
    """One activation step; multipliers on the edge of the feasible set are enlarged until they are inside."""
    growth = 2.0**-40
    for _ in range(80):
        try:
            return activate(S, alpha, beta, T, apart), T
        except np.linalg.LinAlgError:
            T = np.where(beta > alpha, (1.0 + growth) * T + growth * LEAST, T)
            growth = min(4.0 * growth, 0.5)
    raise ProofFailed("no feasible multipliers were found for a layer; its ellipsoid is not positive semidefinite")
