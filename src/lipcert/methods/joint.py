"""All multipliers together (beyond the paper): LipSDP's optimum, each iteration linear in depth.

The bound of fixed slopes is one smooth function of all multipliers (:class:`Chain`), which L-BFGS brings down along
the central path of a barrier. Methods that improve their answer until time is up are :class:`Anytime`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, pairwise
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from scipy import linalg, sparse

from lipcert.arguments.values import entries
from lipcert.methods.greedy import ClosedForm, Diagonal, closed_form
from lipcert.methods.method import Candidate, Kept, Method, Problem, Stage, inverse_of, symmetric
from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.regions import PLAIN, Norms
from lipcert.runtime.clock import OutOfTime, clock, timed
from lipcert.runtime.machine import enclosing_seconds
from lipcert.suggest.hints import Linear

LOG4 = float(np.log(4.0))
_AWAY: tuple[float, ...] = (0.1, 1.0, 3.0)
"""How far (in x) the path starts from the edge of the feasible set, where greedy methods end; the first that fits."""
WIDEST_MU = 2e-2
"""The first μ from greedy multipliers."""
_FEW, _FEW_MU, _FEW_AWAY = 60, 1e-4, 0.02
"""With time for fewer evaluations, the path starts at this μ and this near the edge: there would be no time to make up
for what a larger μ costs."""
_TILTS = (0.25, 0.75)
"""Where on the interval further lines touch the activation; those that are asked for touch in the middle. Bounds over
small balls and boxes fall by 3 % in the mean, those of gelu by up to 40 %; a pass takes 1.3 times as long."""
_PATIENT = 10.0
"""Further lines are drawn if so many times the work of one back-substitution fits into the time."""
_FLAT = 0.1
"""Share of the mean that is added to second derivatives, so that none is far below the others."""


class Anytime(Method):
    """A method that improves its answer until its time is up.

    ``seconds`` limits the whole question, the proof included. The first bound, that of ClosedForm, is always computed.
    """

    seconds: float | None

    @abstractmethod
    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """Better candidates than the start, until no more gain is expected or time is up.

        At an interrupt the current candidate still comes, then the interrupt is raised again.
        """

    def proposed(self, problem: Problem) -> Candidate:
        """The first pass, with the multipliers of ClosedForm. Its intervals serve all that follows.

        So it draws more lines than are asked for, if there is time.
        """
        more = tuple(Linear(tilt=tilt) for tilt in _TILTS)
        draws = problem.region.bounded and bool(problem.enclosures)
        if draws and clock().allows(_PATIENT * enclosing_seconds(problem.network)):
            problem = replace(problem, enclosures=(*problem.enclosures, *more))
        return replace(ClosedForm().solve(problem), found_by="ClosedForm")

    def solve(self, problem: Problem) -> Candidate:
        with timed(self.seconds) as now:
            started = time.perf_counter()
            best = self.proposed(problem)
            now.sweep = time.perf_counter() - started
            with suppress(OutOfTime):
                for candidate in self.candidates(problem, best):
                    best = candidate if candidate.bound < best.bound else best
        return best


@dataclass(frozen=True)
class Joint(Anytime):
    """The multipliers of all layers together.

    A first pass, with the multipliers of ClosedForm and several lines around each activation, gives intervals and
    slopes. For those slopes the method minimises f(x) = log τ + μ·barrier (see :class:`Chain`), with μ halved every
    few steps. A second pass proves what was found. The bound is never above that of the first.

    Parameters
    ----------
    tolerance
        The last μ; the bound ends about that many times the width above LipSDP's.
    iterations
        Most steps for each μ.
    seconds
        How long the whole may take, proof included; then the best so far counts. None is no limit.
    """

    tolerance: float = 3e-5
    iterations: int = 16
    seconds: float | None = None

    def candidates(self, problem: Problem, start: Candidate) -> Iterator[Candidate]:
        """The same intervals and slopes with joint multipliers, if that is better."""
        if problem.network.coupled:  # its slopes hang on the ellipsoids of the pass itself
            yield replace(Diagonal().solve(problem), found_by="Diagonal")
            return
        now, interrupt = clock(), None
        best, least, chain = np.zeros(0), np.inf, None
        with now.keeping(now.sweep):  # for the pass that follows
            try:
                before = time.perf_counter()
                first = problem.network.layers[0].weight
                chain = Chain(first, start.kept, problem.norms, start.sweeps[-1].start)
                x, mu, away = chain.coordinates(log_multipliers(start)), WIDEST_MU, _AWAY
                if not now.allows(_FEW * (time.perf_counter() - before)):
                    mu, away = _FEW_MU, (_FEW_AWAY, *_AWAY)
                before = time.perf_counter()
                path = follow(chain, x, away, mu, self.tolerance, 0.5, self.iterations, _bends)
                for x, value in path if chain.size else ():
                    if value.log_bound < least:
                        best, least = x, value.log_bound
                        now.say(f"bound {np.exp(least):.4g} (joint)")
                    after = time.perf_counter()
                    if not now.allows(after - before):
                        break
                    before = after
            except np.linalg.LinAlgError:  # far too ill-scaled to differentiate
                return
            except OutOfTime:
                now.say("joint: time is up")
            except KeyboardInterrupt as error:
                interrupt = error
        if chain is not None and np.isfinite(least):
            found = replace(problem.knowing(start), start=chain.started(best)).sweep(chosen(chain, best), "joint")
            yield replace(found, found_by="Joint") if found.bound < start.bound else start
        if interrupt is not None:
            raise interrupt


def _bends(value: Value) -> Array:
    """About the second derivatives in x, none of them far below the others."""
    return np.asarray(value.bends + _FLAT * float(value.bends.mean()))


def log_multipliers(candidate: Candidate) -> list[Array]:
    """Log T of all neurons, at true scale; that of T = 0 is a very small number."""
    tiny = np.finfo(float).tiny
    return [np.log(np.maximum(layer.multiplier, tiny)) + layer.exponent * LOG4 for layer in candidate.layers]


def chosen(chain: Chain, x: Array) -> Callable[[Stage], Array]:
    """The choice of multipliers that x stands for; the closed form in layers that are not links of the chain."""
    parts = {link.layer: part for link, part in zip(chain.links, chain.split(x), strict=True)}

    def choose(stage: Stage) -> Array:
        part = parts.get(stage.index)
        if part is None or part.size != stage.active.size:
            return closed_form(stage)
        T = np.zeros(stage.alpha.shape)
        variance = np.diagonal(stage.S)
        base = np.maximum(variance[stage.active], STILL * variance.mean())
        T[stage.active] = np.exp(part) * stage.r[stage.active] ** 2 * base
        return T

    return choose


_REINS = 1e-6
"""Weight of Σ exp(x) beside the barrier. Nothing else holds down the multipliers of neurons that reach no output, and
ellipsoids whose axes differ by 1e8 lose to rounding what the search found."""
STILL = 1e-14
"""Variances are taken to be at least this share of their layer's mean."""


@dataclass(frozen=True, eq=False)
class Value:
    """f(x), its gradient, and the logarithm of the bound at x (without the barrier).

    ``bends`` are about the second derivatives: f is about a·exp(x) + b·exp(-x) in each coordinate, where a is the rise
    from T itself and b that from its finiteness.
    """

    f: float
    gradient: Array
    log_bound: float
    bends: Array


class _Map(NamedTuple):
    """An affine map with its weight scaled near one, and the logarithm of the squared factor taken out."""

    weight: Weight
    log_scale: float


def _scaled(weight: Weight, log_scale: float = 0.0) -> _Map:
    size = float(abs(weight).max()) or 1.0
    return _Map(weight / size, log_scale + 2.0 * float(np.log(size)))


@dataclass(frozen=True, eq=False)
class _Link:
    """One hidden layer, what is kept of it, and the map W from there to the next link or to the output."""

    layer: int
    m: Array
    r: Array  # of the active neurons
    active: Array  # among what is kept
    neurons: Array  # the same among the layer's neurons
    ahead: _Map

    @cached_property
    def tilted(self) -> Weight:
        """W D_m."""
        weight = self.ahead.weight
        return weight @ sparse.diags_array(self.m) if sparse.issparse(weight) else weight * self.m

    @cached_property
    def head(self) -> Weight:
        """The columns of W that belong to active neurons."""
        return self.ahead.weight[:, self.active]


@dataclass(frozen=True, eq=False)
class _Step:
    """What the backward pass needs of one link; matrices are relative to ``scale``."""

    T: Array
    s: Array  # r T^-½ on the active neurons
    base: Array  # max(S_jj, STILL)
    factor: Array  # Cholesky factor L of C = I - D_s S D_s
    Z: Array  # L⁻¹ D_s S D_m Wᵀ
    S: Array  # of the next link: W (D_m S D_m + T) Wᵀ + ZᵀZ
    scale: float


class Chain:
    """f(x) = log τ + μ·barrier in x, the active neurons of all layers in a row.

    barrier = -Σ_i logdet(I - D_s S_i D_s) - logdet(I - S_N/τ),  s = r T^-½,

    with τ > λmax(S_N) at its minimising value, where μ·tr(S_N (τ - S_N)⁻¹) = 1. As μ → 0, f tends to log L².

    Parameters
    ----------
    first
        The first weight.
    kept
        What a pass kept of each hidden layer. Layers where all slopes are single numbers merge with their neighbours.
    norms
        Of the bound. For ℓ∞ outputs the largest entry on the diagonal of S_N takes the place of λmax.
    start
        The axes h of the ellipsoid to begin with, P_0 = D_h² D_exp(y): then the y are variables too, the first ones,
        and log Σ 1/P_0 joins the objective, since the cube of ℓ∞ inputs lies in that many times the ellipsoid.
    """

    def __init__(self, first: Weight, kept: Sequence[Kept], norms: Norms = PLAIN, start: Array | None = None) -> None:
        self.axes, self.single = start, norms.output.name == "linf"
        self.free = 0 if start is None else len(start)
        self._last: tuple[Array, float, Value | None] | None = None
        self.links: list[_Link] = []
        weights = [first, *(part.ahead for part in kept)]
        weights[:-1] = [weight[part.neurons] for weight, part in zip(weights, kept, strict=False)]
        self.first = pending = _scaled(weights[0])
        for index, (part, ahead) in enumerate(zip(kept, weights[1:], strict=True)):
            m, r = 0.5 * (part.alpha + part.beta), 0.5 * (part.beta - part.alpha)
            active = np.flatnonzero(r > 0)
            if active.size or not _mergeable(ahead, pending.weight):
                pending = _scaled(ahead)
                self.links.append(_Link(index, m, r[active], active, part.neurons[active], pending))
                continue
            pending = _scaled(ahead @ (m[:, None] * dense(pending.weight)), pending.log_scale)
            if self.links:
                self.links[-1] = replace(self.links[-1], ahead=pending)
            else:
                self.first = pending
        self.cuts = np.cumsum([self.free] + [link.active.size for link in self.links])

    @property
    def size(self) -> int:
        """Number of variables."""
        return int(self.cuts[-1])

    def split(self, x: Array) -> list[Array]:
        """The part of x that belongs to each link."""
        return [x[start:stop] for start, stop in pairwise(self.cuts)]

    @cached_property
    def _begin(self) -> _Arrival:
        """What arrives at the first link, whatever the multipliers are."""
        return self._from(np.zeros(self.free))

    def _from(self, y: Array) -> _Arrival:
        """The same for an ellipsoid to begin with."""
        weight = self.first.weight
        if self.axes is not None:
            weight = dense(weight) * (self.axes * np.exp(0.5 * y))
        return _arrival(self.links[:1], dense(weight @ weight.T))

    def started(self, x: Array) -> Array | None:
        """The axes that x stands for."""
        return None if self.axes is None else self.axes * np.exp(0.5 * x[: self.free])

    def __call__(self, x: Array, mu: float) -> Value | None:
        """The value f and its gradient, or None where some T - D_r S D_r is not positive definite; the last is kept."""
        if self._last is None or self._last[1] != mu or not np.array_equal(self._last[0], x):
            self._last = x, mu, self._value(x, mu)
        return self._last[2]

    def _value(self, x: Array, mu: float) -> Value | None:
        tape: list[_Step] = []
        here = self._from(x[: self.free]) if self.free else self._begin
        log_scale, barrier = self.first.log_scale, 0.0
        for number, (link, part) in enumerate(zip(self.links, self.split(x), strict=True), 1):
            clock().check()
            step = _forward(link, here, np.exp(part) * link.r**2 * here.base)
            if step is None:
                return None
            tape.append(step)
            log_scale += np.log(here.scale) + link.ahead.log_scale
            barrier -= 2.0 * np.log(np.diagonal(step.factor)).sum()
            here = _arrival(self.links[number : number + 1], step.S)
        values, vectors = (np.diagonal(here.S), np.eye(len(here.S))) if self.single else np.linalg.eigh(here.S)
        top = float(values.max())
        if not (np.isfinite(top) and top > 0.0):
            return None
        share = np.maximum(values / top, 0.0)
        tau = level(share, mu)
        f = np.log(tau) + np.log(top) + log_scale + mu * (barrier - np.log1p(-share / tau).sum())
        adjoint = (vectors * (mu / (top * (tau - share)))) @ vectors.T
        gradient, bends, adjoint = self._backward(tape, adjoint, mu)
        reins = mu * _REINS * np.exp(x[self.free :])
        f, gradient, bends = f + reins.sum(), gradient + reins, bends + reins
        log_top = float(np.log(top) + log_scale)
        if self.axes is not None:
            p = (self.axes * np.exp(0.5 * x[: self.free])) ** 2
            first = dense(self.first.weight)
            rise = p * np.einsum("ij,ij->j", first, adjoint @ first)
            around = float((1.0 / p).sum())
            f, log_top = f + np.log(around), log_top + float(np.log(around))
            gradient = np.concatenate([rise - 1.0 / p / around, gradient])
            bends = np.concatenate([rise + 1.0 / p / around, bends])
        return Value(float(f), gradient, 0.5 * log_top, bends)

    def _backward(self, tape: list[_Step], adjoint: Array, mu: float) -> tuple[Array, Array, Array]:
        """Gradient in T, bends, and the adjoint of what arrives at the first, if that may change.

        With S̄⁺ the adjoint of W P Wᵀ, G = C⁻¹ D_s S D_m Wᵀ, g = ∂f/∂log T:

        g_j = T_j (Wᵀ S̄⁺ W)_jj - (G S̄⁺ Gᵀ)_jj + μ(1 - (C⁻¹)_jj),
        S̄ = Y S̄⁺ Yᵀ + μ D_s C⁻¹ D_s + diag(g / diag S),   Y = D_m Wᵀ + D_s G,

        the last term because T moves with the diagonal of S.
        """
        parts: list[Array] = []
        bends: list[Array] = []
        for number, (step, link) in enumerate(zip(tape[::-1], self.links[::-1], strict=True), 1):
            clock().check()
            active, first = link.active, number == len(tape) and not self.free
            Y = np.zeros((0, 0)) if first else np.array(dense(link.tilted).T)
            if active.size:
                inverse = inverse_of(step.factor) if not first else None
                corners = _inverse_diagonal(step.factor) if inverse is None else np.diagonal(inverse)
                G = _solved(step.factor, step.Z, transpose=True)
                rise = step.T * np.asarray((link.head * times(adjoint, link.head)).sum(axis=0))
                fall = np.einsum("ij,ij->i", G @ adjoint, G)
                gradient = rise - fall + mu * (1.0 - corners)
                parts.append(gradient)
                bends.append(rise + fall + mu * (corners - 1.0))
            if first:
                break
            if active.size:
                Y[active] += step.s[:, None] * G
            adjoint = symmetric((Y @ adjoint) @ Y.T)
            if active.size and inverse is not None:
                adjoint[np.ix_(active, active)] += mu * (step.s[:, None] * inverse * step.s)
                adjoint[active, active] += np.where(step.base > STILL, gradient / step.base, 0.0)
            adjoint = adjoint / step.scale
        none = np.zeros(0)
        return np.concatenate([none, *parts[::-1]]), np.concatenate([none, *bends[::-1]]), adjoint

    def coordinates(self, log_multipliers: Sequence[Array]) -> Array:
        """The x that stands for log T, given for all neurons of each hidden layer at true scale.

        Neurons that do not move need no more than a small T, so theirs is not taken over. Multipliers on the edge of
        the feasible set are moved inside.
        """
        parts: list[Array] = []
        here, log_scale = self._begin, self.first.log_scale
        for number, link in enumerate(self.links, 1):
            log_scale += np.log(here.scale)
            base, log_base = here.base, np.log(here.base) + 2.0 * np.log(link.r)
            part = log_multipliers[link.layer][link.neurons] - log_scale - log_base
            part = np.where(base > STILL, part, np.log(4.0 * max(link.active.size, 1)))
            for inward in (0.0, 1e-9, 1e-6, 1e-3, 1.0):
                step = _forward(link, here, np.exp(part + inward + log_base))
                if step is not None:
                    break
            else:
                raise np.linalg.LinAlgError("multipliers far outside the feasible set")
            parts.append(part + inward)
            log_scale += link.ahead.log_scale
            here = _arrival(self.links[number : number + 1], step.S)
        return np.concatenate([np.zeros(self.free), *parts])


@dataclass(frozen=True, eq=False)
class _Arrival:
    """The ellipsoid S of a link relative to ``scale``, and its products with the link's map."""

    S: Array
    scale: float
    base: Array  # max(S_jj, STILL) of the active neurons
    half: Array  # W D_m S, (k, n)
    both: Array  # W D_m S D_m Wᵀ


def _arrival(links: list[_Link], S: Array) -> _Arrival:
    """The same for the next link, if there is one."""
    scale = float(np.trace(S)) / len(S) or 1.0
    if not links:
        return _Arrival(S, scale, *[np.zeros(0)] * 3)
    (link,), S = links, S / scale
    half = times(S, link.tilted.T).T
    base = np.maximum(np.diagonal(S)[link.active], STILL)
    return _Arrival(S, scale, base, half, symmetric(times(half, link.tilted.T)))


def _forward(link: _Link, here: _Arrival, T: Array) -> _Step | None:
    """The S of the next link and what belongs to it, or None outside the feasible set."""
    active, S = link.active, here.both
    s = link.r / np.sqrt(T)
    factor = Z = np.eye(0)
    if active.size:
        core = -s[:, None] * here.S[np.ix_(active, active)] * s
        core.flat[:: active.size + 1] += 1.0
        factor, failed = linalg.lapack.dpotrf(core, lower=1, clean=1)
        if failed:
            return None
        Z = _solved(factor, s[:, None] * here.half.T[active])
        S = S + Z.T @ Z
        head = link.head
        if sparse.issparse(head):
            S = S + dense(head @ sparse.diags_array(T) @ head.T)
        else:
            root = head * np.sqrt(T)
            S = S + root @ root.T
    return _Step(T, s, here.base, factor, Z, S, here.scale)


def _solved(factor: Array, right: Array, transpose: bool = False) -> Array:
    """L⁻¹M, or L⁻ᵀM."""
    return np.asarray(linalg.blas.dtrsm(1.0, factor, right, lower=1, trans_a=int(transpose)))


def _inverse_diagonal(factor: Array) -> Array:
    """The diagonal of (L Lᵀ)⁻¹: its entries are the sums of squares of the columns of L⁻¹."""
    inverse = linalg.lapack.dtrtri(factor, lower=1)[0]
    return np.einsum("ij,ij->j", inverse, inverse)


def _mergeable(after: Weight, before: Weight) -> bool:
    """Whether one product is no more work than two: S = W P Wᵀ takes (entries of W) · (rows + columns)."""
    rows, columns = after.shape[0], before.shape[1]
    apart = sum(entries(weight) * sum(weight.shape) for weight in (after, before))
    return rows * columns * (rows + columns) <= apart


def level(share: Array, mu: float) -> float:
    """The τ > 1 with μ Σ share/(τ - share) = 1, for eigenvalues relative to the largest."""
    low, high = 1.0 + mu, 1.0 + mu * share.size
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mu * (share / (middle - share)).sum() > 1.0 else (low, middle)
    return 0.5 * (low + high)


_MEMORY = 40
"""Steps that L-BFGS remembers."""
_LONGEST = 1.5
"""Largest change of a coordinate in one step; coordinates are logarithms."""

Moves: TypeAlias = deque[tuple[Array, Array]]
"""Steps, and the changes of the gradient along them: the memory of L-BFGS."""


class Smooth(Protocol):
    """A value and its gradient."""

    @property
    def f(self) -> float:
        """The value."""

    @property
    def gradient(self) -> Array:
        """Its gradient."""


V = TypeVar("V", bound=Smooth)


def no_moves() -> Moves:
    """An empty memory."""
    return deque(maxlen=_MEMORY)


def descend(
    function: Callable[[Array], V | None],
    x: Array,
    tolerance: float,
    moves: Moves | None = None,
    bends: Callable[[V], Array] | None = None,
) -> Iterator[tuple[Array, V]]:
    """Points of falling value, found by L-BFGS with backtracking, until nothing is left to gain.

    A trial outside the domain shortens the step and is not used for the quadratic model.

    Parameters
    ----------
    function
        Value and gradient, or None outside the domain.
    x
        A point of the domain; from any other there is no descent.
    tolerance
        The descent ends when the predicted decrease of a full step is below this.
    moves
        The memory of a descent of a similar function; it is used and added to.
    bends
        About the second derivative in each coordinate, where it is known to some factor; positive.
    """
    here = function(x)
    if here is None:
        return
    yield x, here
    moves = no_moves() if moves is None else moves
    while True:
        direction = -_solve(here.gradient, moves, None if bends is None else bends(here))
        slope = float(here.gradient @ direction)
        found = _search(function, x, here, direction, slope) if slope < 0.0 else None
        if found is None:
            if not moves:
                return
            moves.clear()
            continue
        there, value = found
        change = value.gradient - here.gradient
        if (there - x) @ change > 0.0:
            moves.append((there - x, change))
        x, here = there, value
        yield x, here
        if -slope < tolerance:
            return


def follow(
    function: Callable[[Array, float], V | None],
    x: Array,
    aways: Sequence[float],
    mu: float,
    last: float,
    fall: float,
    steps: int,
    bends: Callable[[V], Array] | None = None,
) -> Iterator[tuple[Array, V]]:
    """Points along the central path: at most ``steps`` steps of descent for each μ, which falls to ``last``.

    The path starts at x + away for the first of ``aways`` that is feasible, else at x.
    """
    moves = no_moves()
    x = next((x + away for away in aways if function(x + away, mu) is not None), x)
    while True:
        descent = descend(partial(_at, function, mu), x, 0.05 * mu, moves, bends)
        for x, value in islice(descent, steps + 1):
            yield x, value
        if mu <= last:
            return
        mu = max(fall * mu, last)


def _at(function: Callable[[Array, float], V | None], mu: float, x: Array) -> V | None:
    return function(x, mu)


def _search(
    function: Callable[[Array], V | None], x: Array, here: V, direction: Array, slope: float
) -> tuple[Array, V] | None:
    """A point along the direction with sufficient decrease, or None."""
    step = min(1.0, _LONGEST / max(float(np.abs(direction).max()), 1e-300))
    for _ in range(30):
        there = x + step * direction
        value = function(there)
        if value is None:
            step *= 0.3
            continue
        if value.f <= here.f + 1e-4 * step * slope:
            return there, value
        parabola = -0.5 * slope * step / (value.f - here.f - slope * step)
        step *= min(max(parabola, 0.1), 0.6)
    return None


def _solve(gradient: Array, moves: Moves, bends: Array | None) -> Array:
    """The two-loop recursion: an approximate inverse Hessian times the gradient."""
    if not moves and bends is None:
        return gradient * (0.3 / max(float(np.abs(gradient).max()), 1e-300))
    scale = np.ones(gradient.size) if bends is None else bends
    if not moves:
        return np.clip(gradient / scale, -1.0, 1.0)
    q, weights = gradient.copy(), []
    for s, y in reversed(moves):
        weights.append((s @ q) / (s @ y))
        q -= weights[-1] * y
    s, y = moves[-1]
    q *= (s @ y) / (y @ (y / scale)) / scale
    for (s, y), weight in zip(moves, reversed(weights), strict=True):
        q += (weight - (y @ q) / (s @ y)) * s
    return q
