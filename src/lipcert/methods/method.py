"""What a method solves, how it is asked inside a proved pass, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from lipcert.errors import InvalidInput
from lipcert.kernel.branch_and_bound import Cover
from lipcert.kernel.domain import Domain, is_box
from lipcert.kernel.facts import Part
from lipcert.kernel.sweep import Pass, Sweep, ask, proving
from lipcert.model.arrays import Array, Interval, Weight, dense, times
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import PLAIN, Norms, Region
from lipcert.runtime.clock import clock
from lipcert.runtime.machine import require_memory
from lipcert.suggest.hints import Curved, Enclosure, Guide, Hints, LayerReport, Linear, View, layer_reports
from lipcert.suggest.lines import suggested_lines
from lipcert.suggest.multipliers import start_near

_LEAST = 1e-60
"""Slope ranges of saturated neurons are widened to this, so that their squares and inverses stay floats."""
_CENTERS = 16
"""The first ellipsoid is chosen by the Jacobians of at most so many regions of a stack, for speed."""

_ROUNDING = 2.0**-46
"""Slope ranges narrower than this, relative to the slopes, are rounding."""
_WORTH_SAYING = 1e-6
"""A note is made from this relative change on; smaller ones are rounding at the edge of the feasible set."""


@dataclass(frozen=True, eq=False)
class Kept:
    """The neurons of a hidden layer that a pass carried: its slopes can be other than zero.

    ``alpha`` and ``beta`` are their slopes, ``ahead`` the columns of the next weight that belong to them, ``neurons``
    their numbers in the layer.
    """

    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array

    @staticmethod
    def of(view: View, hint: Array) -> Kept:
        """From a pass over one region. Neurons without a multiplier are affine or do not move: they get one slope."""
        neurons = np.arange(view.size) if view.neurons is None else view.neurons[0]
        alpha, beta = view.alpha[0], view.beta[0]
        middle, still = 0.5 * (alpha + beta), view.narrow(hint)[0] <= 0.0
        return Kept(np.where(still, middle, alpha), np.where(still, middle, beta), view.ahead, neurons)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A bound, the layers of the pass that gave it, and the hints of all passes (``sweeps``) that led there.

    Each pass starts from the intervals of the ones before; the last gives the bound. ``found_by`` names the method if
    one calls others; ``curved`` are second-order hints, used if their bound is smaller; ``notes`` say which of a
    method's multipliers had to be repaired.
    """

    bound: float
    layers: tuple[LayerReport, ...]
    sweeps: tuple[Hints, ...] = ()
    cover: Cover | None = None
    witness: Array | None = None
    kept: tuple[Kept, ...] = ()
    found_by: str = ""
    curved: Curved | None = None
    notes: tuple[str, ...] = ()

    @property
    def intervals(self) -> tuple[tuple[Array, Array], ...]:
        """Lower and upper ends of the pre-activations of each hidden layer."""
        return tuple((layer.lower, layer.upper) for layer in self.layers)

    @property
    def slopes(self) -> list[tuple[Array, Array]]:
        """The slope ranges (α, β) of each hidden layer."""
        return [(layer.alpha, layer.beta) for layer in self.layers]


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer, before its multipliers T are chosen.

    S (n, n) is the ellipsoid of Δv divided by 4**exponent; the slopes lie in [α, β]; ``ahead`` is the next
    weight W⁺, so that the objective is λmax(W⁺ P(T) W⁺ᵀ). T is relative to the same scale as S.
    """

    index: int
    S: Array
    exponent: int
    alpha: Array
    beta: Array
    ahead: Weight
    neurons: Array | None = None
    """Numbers of these neurons in the layer, unless all are here."""

    @staticmethod
    def of(view: View, which: int) -> Stage:
        """The stage of one region of a stack."""
        ahead = view.ahead if view.ahead.ndim == 2 else view.ahead[which]
        alpha, beta = view.alpha[which], view.beta[which]
        beta = np.where(beta > alpha, np.maximum(beta, alpha + _LEAST), beta)
        neurons = None if view.neurons is None else view.neurons[which]
        return Stage(view.index, view.S[which], int(view.exponent[which]), alpha, beta, ahead, neurons)

    @cached_property
    def target(self) -> Weight:
        """The next weight W⁺, or a dense C with fewer rows and CᵀC = W⁺ᵀW⁺, which gives the same objective."""
        return self.ahead if self.neurons is None else smaller(self.ahead)

    def narrow(self, values: Array) -> Array:
        """Values of the layer's neurons for the rows of S."""
        return values if self.neurons is None else values[self.neurons]

    @property
    def m(self) -> Array:
        return 0.5 * (self.alpha + self.beta)

    @property
    def r(self) -> Array:
        return 0.5 * (self.beta - self.alpha)

    def blocks(self) -> tuple[Array, Array, Array, Array]:
        """B = W⁺ D_m S D_m W⁺ᵀ, G = W⁺ D_m S D_r, H = W⁺_A and R = D_r S D_r, on the active neurons A.

        With them λmax(W⁺ P(T) W⁺ᵀ) = λmax(B + G (T - R)⁻¹ Gᵀ + H T Hᵀ).
        """
        active = self.active
        r, m = self.r[active], self.m
        scaled = times((m[:, None] * self.S).T, self.target.T).T  # W⁺ D_m S
        R = symmetric(r[:, None] * self.S[np.ix_(active, active)] * r)
        return symmetric(times(scaled * m, self.target.T)), scaled[:, active] * r, dense(self.target[:, active]), R

    @property
    def active(self) -> Array:
        """The neurons whose slope is not a single number."""
        return np.flatnonzero(self.beta > self.alpha)


def symmetric(matrix: Array) -> Array:
    """(M + Mᵀ)/2."""
    return 0.5 * (matrix + np.swapaxes(matrix, -1, -2))


def inverse_of(factor: Array) -> Array:
    """(L Lᵀ)⁻¹ from the lower triangle L."""
    inverse = linalg.lapack.dpotri(factor, lower=1)[0]
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def smaller(ahead: Weight) -> Weight:
    """C with as few rows as possible and CᵀC = W⁺ᵀW⁺, nearly, for one weight or a stack: λmax(C P Cᵀ) is the same."""
    rows, columns = ahead.shape[-2:]
    if rows <= columns:
        return ahead
    gram = dense(ahead.T @ ahead) if ahead.ndim == 2 else np.swapaxes(ahead, -1, -2) @ ahead
    jitter = 1e-13 * np.trace(gram, axis1=-2, axis2=-1)[..., None, None] / columns + np.finfo(float).tiny
    try:
        return np.swapaxes(np.linalg.cholesky(gram + jitter * np.eye(columns)), -1, -2)
    except np.linalg.LinAlgError:
        return ahead


@dataclass(frozen=True, eq=False)
class MethodGuide(Guide):
    """Asks a method for the multipliers of each layer.

    ``axes`` are those of the first ellipsoid, if known; ``name`` is shown as progress.
    """

    choose: Callable[[View], Array]
    enclosures: tuple[Enclosure, ...]
    axes: Array | None = None
    name: str = "pass"

    def start(self, network: Network, domain: Domain | None, norms: Norms, known: Sequence[Interval]) -> Array | None:
        if self.axes is not None:
            return self.axes
        points = [] if domain is None or (known and not network.coupled) else list(domain.center[:_CENTERS])
        ends = [(np.atleast_2d(low)[0], np.atleast_2d(high)[0]) for low, high in known]  # of the first region
        return start_near(network, points, norms, ends)

    def multipliers(self, view: View) -> Array:
        try:
            return self.choose(settled(view))
        except np.linalg.LinAlgError:  # too ill-scaled for the method: the proof takes safe multipliers
            return np.zeros(view.alpha.shape)

    def lines(self, which: int, index: int, neurons: Neurons, numbers: Array, interval: Interval) -> Interval:
        tilts = [enclosure.tilt for enclosure in self.enclosures if isinstance(enclosure, Linear)]
        return suggested_lines(neurons, interval, tilts[which])

    def room(self, index: int, size: int, open_: int, ahead: int) -> None:
        clock().say(f"{self.name}, layer {index + 1}: {size} neurons to carry, {open_} open slopes")
        require_memory(size, index + 1, open_, ahead)


def settled(view: View) -> View:
    """The view with one slope where the range is rounding only: there is nothing to choose."""
    return replace(view, beta=np.where(view.beta - view.alpha > _ROUNDING * np.abs(view.alpha), view.beta, view.alpha))


def one_by_one(choose: Callable[[Stage], Array]) -> Callable[[View], Array]:
    """Make a choice for one region into one for a stack of regions."""

    def inner(view: View) -> Array:
        if view.form is not None:  # what the kernel suggests
            return np.zeros((1, view.size))
        found = []
        for which in range(len(view.S)):
            stage = Stage.of(view, which)
            T = np.asarray(choose(stage), dtype=float)
            if T.shape not in ((), stage.alpha.shape):
                raise InvalidInput(
                    f"layer {stage.index + 1}: a method must choose {len(stage.alpha)} multipliers, one for each row of"
                    f" S, or one number; got shape {T.shape}"
                )
            found.append(np.broadcast_to(T, stage.alpha.shape))
        return np.stack(found)

    return inner


@dataclass(frozen=True, eq=False)
class Whole:
    """The network that a problem's network is a part of, and the passes that proved its intervals."""

    network: Network
    part: Part
    sweeps: tuple[Hints, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, a region, how to enclose, and intervals that are known beforehand, from the passes of ``history``.

    The bound is one in ``norms``, without units; ``start`` are the axes h of the ellipsoid P_0 = D_h² that a pass
    begins with, None is what the Jacobian at the centre suggests. Of a part of a network, ``whole`` says which; then
    the region is one of the whole network's inputs.
    """

    network: Network
    region: Region
    enclosures: tuple[Enclosure, ...]
    known: tuple[Interval, ...] | None = None
    history: tuple[Hints, ...] = ()
    norms: Norms = PLAIN
    start: Array | None = None
    whole: Whole | None = None

    def sweep(self, choose: Callable[[Stage], Array], name: str = "pass") -> Candidate:
        """A proved pass that asks ``choose`` for the multipliers of each layer."""
        return self.guided(one_by_one(choose), name)

    def guided(self, choose: Callable[[View], Array], name: str = "pass") -> Candidate:
        """The same with a choice for stacks of regions.

        For ℓ∞ inputs the first ellipsoid surrounds a cube. It gives poor intervals on a region that is no box, so these
        are found by a pass in ℓ2 beforehand.
        """
        early = self.norms.input.name == "linf" and self.known is None and not self.network.coupled
        if early and self.region.bounded and not is_box(self.region):
            before = replace(self, norms=PLAIN, start=None).guided(choose, name)
            return self.knowing(before).guided(choose, name)
        enclosures = self.enclosures
        if self.network.coupled:  # a cell or a block has many layers, so the default depth is none
            usual = Linear().depth
            enclosures = tuple(
                Linear(None, one.tilt) if isinstance(one, Linear) and one.depth == usual else one for one in enclosures
            )
        guide = MethodGuide(choose, enclosures, self.start, name)
        hints: Hints
        if self.whole is not None:
            sweep, hints = ask(self.whole.network, self.region, guide, self.whole.sweeps, self.whole.part)
        elif self.known is None or any(isinstance(one, Pass) for one in self.history):
            sweep, hints = ask(self.network, self.region, guide, self.history, norms=self.norms)
        else:  # intervals of somebody else, who will prove what is found
            with proving():
                sweep = Sweep(self.network, None, guide, self.known, norms=self.norms).run()
            hints = sweep.hints(0)
        pairs = () if self.network.coupled else zip(sweep.views, sweep.hinted, strict=True)
        kept = tuple(Kept.of(view, hint) for view, hint in pairs)
        sweeps = (*self.history, hints)
        return Candidate(float(sweep.bounds[0]), layer_reports(sweep), sweeps, kept=kept, notes=repairs(sweep))

    def knowing(self, candidate: Candidate) -> Problem:
        """The same problem with the intervals of a candidate, which are not tightened."""
        return replace(self, enclosures=(), known=candidate.intervals, history=candidate.sweeps)

    def restrict(self, part: Part, whole: Candidate) -> Problem:
        """The problem of a part of the network, with the intervals found for the whole."""
        target = part.of(self.network)
        sizes = target.sizes[1:-1]
        pairs = zip(part.known(whole.intervals), sizes, strict=True) if whole.intervals else ()
        known = tuple((np.broadcast_to(low, (n,)), np.broadcast_to(high, (n,))) for (low, high), n in pairs)
        about = Whole(self.network, part, whole.sweeps)
        return Problem(target, self.region, (), known, norms=part.norms.bare, whole=about)


def repairs(sweep: Sweep) -> tuple[str, ...]:
    """Which chosen multipliers the proof had to change, in words; for a single region."""
    notes = []
    for view, step, hint in zip(map(settled, sweep.views), sweep.steps, sweep.hinted, strict=True):
        number, chosen = view.index + 1, view.narrow(hint)[0, step.active[0]]
        used = (step.h[0] > 0.0) & (view.alpha < view.beta)[0, step.active[0]]
        given, taken = chosen[used], 1.0 / step.g[0, used] ** 2
        good = given > 0.0
        factor = float(np.max(taken[good] / given[good], initial=1.0))
        if not good.all():
            what = f"{np.count_nonzero(~good)} of {good.size} multipliers were not positive numbers"
            notes.append(f"layer {number}: {what} and were replaced")
        elif factor > 1.0 + _WORTH_SAYING:
            what = f"multipliers were not feasible and were enlarged by a factor of {factor:.3g}"
            notes.append(f"layer {number}: {what}")
    return tuple(notes)


class Method(ABC):
    """A way to obtain a certified bound. Methods are frozen values; their options are their fields."""

    @abstractmethod
    def solve(self, problem: Problem) -> Candidate:
        """Bound the problem's Lipschitz constant."""


class Greedy(Method):
    """A method that chooses the multipliers of each layer from what lies before it and the next weight."""

    @abstractmethod
    def choose(self, stage: Stage) -> Array:
        """Multipliers T ≥ 0, (n,), zero on neurons that are exactly affine, with T - D_r S D_r ≻ 0 on the others."""

    def choose_all(self, view: View) -> Array:
        """The same for a stack of regions, (count, n)."""
        return one_by_one(self.choose)(view)

    def solve(self, problem: Problem) -> Candidate:
        return problem.guided(self.choose_all, type(self).__name__)
