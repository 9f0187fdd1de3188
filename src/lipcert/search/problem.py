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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import sparse

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.norms import PLAIN, Norms
from lipcert.model.regions import Region
from lipcert.proof.certificate import LayerReport
from lipcert.proof.domain import is_box
from lipcert.proof.hints import Enclosure, Hints, Interval, Part
from lipcert.proof.induced import start_gain
from lipcert.runtime.costs import require_memory
from lipcert.search.candidate import Candidate
from lipcert.search.ellipsoid import Ellipsoid, Image, activate, largest
from lipcert.search.enclosing import Enclosing
from lipcert.search.merged_maps import WIDE, condense
from lipcert.search.stage import LEAST, Stage, widened
from lipcert.suggest.ellipsoids import start_near

_WORTH_SAYING = 1e-6
"""Multipliers that are enlarged by less lie on the edge of the feasible set."""
_HOPELESS = 2.0**-20
"""Multipliers that are a smaller share of what they must exceed are lifted to that at once."""


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
        notes: list[str] = []
        for layer, ahead in pairwise(self.network.layers):
            image = Image(P, weight)
            axes = image.axes()
            lower, upper = enclosing.interval(len(done), axes)
            assert layer.neurons is not None
            alpha, beta = layer.neurons.slope_range(lower, upper)
            beta = widened(alpha, beta)
            # a neuron that does not move has any slope; one with a single slope need not be kept
            kept = condense(weight, alpha, np.where(axes > 0, beta, alpha), ahead.weight)
            require_memory(kept.weight.shape[0], len(done) + 1, int((kept.alpha < kept.beta).sum()), ahead.size)
            S = P.through(kept.weight) if kept.carries else image.block(None if kept.weight is weight else kept.neurons)
            stage = Stage.of(len(done), S, kept)
            choice = choose(stage)
            chosen, note = repaired(stage, choice)
            P, T = feasible_step(S, kept.alpha, kept.beta, chosen, apart=WIDE <= len(kept.alpha) > ahead.size)
            notes += [note] if note else _enlarged(stage, choice, T)
            done.append(LayerReport(lower, upper, alpha, beta, kept.spread(T), int(S.exponent)))
            weight = kept.ahead
        bound = P.through(weight).norm(self.norms.output) * start_gain(self.norms.input, start, self.network.inputs)
        multipliers, exponents = tuple(d.multiplier for d in done), tuple(d.exponent for d in done)
        hints = Hints(self.enclosures, multipliers, exponents, enclosing.lines(), start)
        return Candidate(bound, tuple(done), (*self.history, hints), notes=tuple(notes))

    def knowing(self, candidate: Candidate, *enclosures: Enclosure) -> Problem:
        """The same problem with the intervals of a candidate known, to be tightened by the given enclosures."""
        return replace(self, enclosures=enclosures, known=candidate.intervals, history=candidate.sweeps)

    def restrict(self, part: Part, whole: Candidate) -> Problem:
        """The problem of a part of the network, with the intervals found for the whole."""
        target = part.of(self.network)
        sizes = target.sizes[1:-1]
        pairs = zip(part.known(whole.intervals), sizes, strict=True) if whole.intervals else ()
        known = tuple((np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))) for (low, high), n in pairs)
        return Problem(target, self.region, (), known, norms=part.norms.bare)


def repaired(stage: Stage, choice: Array) -> tuple[Array, str]:
    """The multipliers that a method chose, and what was wrong with them.

    Where one of an open neuron is not a positive number, 2 λmax(D_r S D_r) takes its place. None stays far below the
    diagonal of that matrix, where it could not be feasible.
    """
    T = np.asarray(choice, dtype=float)
    if T.shape not in ((), stage.alpha.shape):
        raise InvalidInput(
            f"layer {stage.index + 1}: a method must choose {len(stage.alpha)} multipliers, one for each row of S, or"
            f" one number; got shape {T.shape}"
        )
    T = np.array(np.broadcast_to(T, stage.alpha.shape))
    open_ = stage.beta > stage.alpha
    wrong = open_ & ~(np.isfinite(T) & (T > 0.0))
    floor = _HOPELESS * stage.r**2 * np.diag(stage.S)
    if not wrong.any():
        return np.where(open_, np.maximum(T, floor), 0.0), ""
    R = stage.r[:, None] * stage.S * stage.r
    T[wrong] = max(2.0 * float(largest(R)), LEAST)
    what = f"{np.count_nonzero(wrong)} of {np.count_nonzero(open_)} multipliers were not positive numbers"
    return np.where(open_, np.maximum(T, floor), 0.0), f"layer {stage.index + 1}: {what} and were replaced"


def _enlarged(stage: Stage, choice: Array, taken: Array) -> list[str]:
    """A note if multipliers had to be enlarged by more than rounding asks for."""
    chosen, used = np.broadcast_to(choice, taken.shape), stage.beta > stage.alpha
    factor = float(np.max(taken[used] / chosen[used], initial=1.0))
    if factor < 1.0 + _WORTH_SAYING:
        return []
    return [f"layer {stage.index + 1}: multipliers were not feasible and were enlarged by a factor of {factor:.3g}"]


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
