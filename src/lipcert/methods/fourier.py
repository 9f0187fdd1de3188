"""Global bounds of networks that begin with convolutions: one multiplier per channel, frequency by frequency.

The recursion of :mod:`lipcert.kernel.fourier` in complex floating point: S, P and the step are c × c matrices, one per
frequency, and T is shared by all of them. Dense layers after the convolutions are layers with one frequency. The
variables are x = log(T / (r² mean S_cc)), the mean over all frequencies; so they follow what earlier layers do to S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.fourier import Torus, torus_of
from lipcert.kernel.neuron_bounds import all_slopes
from lipcert.methods.greedy import ClosedForm, Scalar
from lipcert.methods.joint import STILL, Joint, follow, level
from lipcert.methods.method import Candidate, Method
from lipcert.methods.split import Auto
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.runtime.machine import available_memory
from lipcert.suggest.hints import Hints, LayerReport

Issued = TypeVar("Issued")
_GROWTH = (0.0, 2.0**-24, 2.0**-18, 2.0**-12, 2.0**-6, 0.25, 3.0)
"""How much larger multipliers become, one after the other, where those that were found prove nothing."""
_WORK = 6e9
"""Operations of a value with its gradient; if all frequencies take more, a part of them is used."""
_FEWEST = 64
"""Frequencies that are used in any case."""
_STEP = 0.1
"""Weight of a step's barrier, for as many eigenvalues as the last matrices have."""
_LONGEST = 4e13
"""Operations at all frequencies from which the product of norms has to do: ResNet-18 with 4e12 takes a minute."""
_NARROW = 512
"""Up to so many neurons in the widest convolution, matrices of whole layers are no more work, and tighter."""
_TALLEST = 4096
"""Most rows of the layers after the convolutions: their ellipsoids are matrices of that size, 134 MB each."""
_FINE = 2e-3
"""Tolerance in log(t - s) of the best t for a whole layer; near it the bound hardly changes."""
_AWAY = 0.02
"""How far (in x) the path starts inside the feasible set; greedy multipliers lie near its edge."""
_SPREAD, _WIDEST, _FALL = 18.0, 2e-3, 0.3
"""The first μ is the first number over the eigenvalues of the last matrices, at most the second; then it falls by the
third."""
_MORE, _FIRST, _SMALLEST, _ROUNDS = 5, 4, 16, 4
"""Joint multipliers hold at more frequencies, so many times as many. Without dense layers the search begins with a
quarter of these, the highest, but at least 16."""
_NEAR, _EQUAL, _AGAIN = 0.7, 1e-5, 3e-4
"""A round adds frequencies whose log λmax is within the first of the bound, until none is above it by the second; its
path starts at the third μ."""


@dataclass(frozen=True, eq=False)
class Map:
    """S = Σ_b K_b P_b K_b* over the aliases b of each frequency; K is (frequencies, aliases, outputs, channels).

    With ``counts``, S is one real matrix: the sum over all frequencies, weighted by the counts.
    """

    K: Array
    counts: Array | None = None

    @cached_property
    def adjoint(self) -> Array:
        """K*."""
        return _adjoint(self.K)

    def __call__(self, P: Array) -> Array:
        parts = self.K @ P.reshape(*self.K.shape[:2], *P.shape[1:]) @ self.adjoint
        if self.counts is None:
            return np.asarray(parts.sum(axis=1))
        return np.asarray(np.tensordot(self.counts, parts[:, 0].real, axes=1))[None]

    def back(self, S: Array) -> Array:
        """The adjoint map."""
        weighted = S[:, None] if self.counts is None else self.counts[:, None, None, None] * S
        found = self.adjoint @ weighted @ self.K
        return found.reshape(-1, *found.shape[2:])


@dataclass(frozen=True, eq=False)
class Link:
    """The neurons of one hidden layer, one slope range per channel, and what follows them."""

    m: Array
    r: Array
    ahead: Map

    @cached_property
    def open(self) -> Array:
        """Channels with a range of slopes."""
        return np.flatnonzero(self.r > 0)

    @cached_property
    def some(self) -> Array | slice:
        """The same as an index; a slice, which copies nothing, where all are open."""
        return slice(None) if self.open.size == self.r.size else self.open


@dataclass(frozen=True, eq=False)
class FourierValue:
    """f(x), its gradient, and the logarithm of the bound at x."""

    f: float
    gradient: Array
    log_bound: float


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass through all links: the multipliers as x, hints for the proof, and log λmax of each last matrix."""

    x: Array
    hints: Hints
    heights: Array

    @property
    def log_bound(self) -> float:
        return 0.5 * float(self.heights.max())


@dataclass(frozen=True, eq=False)
class _Tape:
    """What the gradient needs of one link; T, base, s² of its open neurons, matrices relative to ``scale``."""

    T: Array
    base: Array
    s2: Array
    G: Array  # D_s C⁻¹ D_s with C = I - D_s S D_s, all over the open neurons
    Y: Array  # the columns of S of the open neurons, times G
    barrier: float  # -Σ_ω logdet C
    scale: float


class FourierChain:
    """The stack that a network begins with, and the dense layers that follow it.

    ``chosen`` are the frequencies in use, in the order of the torus, by default all of them or evenly spread ones.
    ``ends`` counts the eigenvalues of the last matrices; ``weights`` are those of the steps' barriers.
    """

    def __init__(
        self, network: Network, torus: Torus, slopes: Sequence[tuple[Array, Array]], chosen: Array | None = None
    ) -> None:
        self.network, self.torus, self.slopes = network, torus, slopes
        frequencies, counts = torus.frequencies()
        self.chosen = chosen = spread_out(torus) if chosen is None else chosen
        weights = counts[chosen] * (counts.sum() / counts[chosen].sum())
        levels = torus.levels(frequencies[chosen])
        maps = [_convolution(torus, index, levels) for index in range(len(torus.convolutions))]
        if not torus.ends:
            head, *rest = network.layers[len(maps) :]
            rows, _ = torus.rows(dense(head.weight), frequencies[chosen])
            maps.append(Map(rows[:, None], weights))
            maps += [Map(dense(layer.weight)[None, None]) for layer in rest]
        self.first = maps[0]
        self.links = [
            Link(0.5 * (alpha + beta), 0.5 * (beta - alpha), ahead)
            for (alpha, beta), ahead in zip(slopes, maps[1:], strict=True)
        ]
        self.cuts = np.cumsum([0] + [link.open.size for link in self.links])
        self.ends = int(maps[-1].K.shape[-2]) * _frequencies(maps[-1])
        self.weights = [
            _STEP * min(1.0, self.ends / max(1, _frequencies(before) * link.r.size))
            for before, link in zip(maps, self.links, strict=False)
        ]

    def split(self, x: Array) -> list[Array]:
        """The part of x that belongs to each link."""
        return [x[start:stop] for start, stop in pairwise(self.cuts)]

    def _begin(self) -> Array:
        channels = self.first.K.shape[-1]
        count = self.first.K.shape[0] * self.first.K.shape[1]
        return self.first(np.broadcast_to(np.eye(channels), (count, channels, channels)))

    def value(self, x: Array, mu: float) -> FourierValue | None:
        """The value f = log τ + barriers, or None where T is infeasible.

        τ > λmax of all last matrices, with μ·Σ tr S (τ - S)⁻¹ = 1. The barriers are -μ·Σ logdet(I - S/τ), and
        -μ·weight·Σ logdet(I - D_s S D_s) of each step, s = r T^-½.
        """
        tape: list[_Tape] = []
        S, log_scale = self._begin(), 0.0
        for link, part in zip(self.links, self.split(x), strict=True):
            clock().check()
            scale = _mean(S)
            S /= scale
            log_scale += np.log(scale)
            base = _base(link, S)
            T = np.exp(part) * base
            forward = _forward(link, S, T, base, scale)
            if forward is None:
                return None
            tape.append(forward[0])
            S = link.ahead(forward[1])
        values, vectors = np.linalg.eigh(S)
        top = float(values.max())
        if not (np.isfinite(top) and top > 0.0):
            return None
        share = np.maximum(values / top, 0.0)
        tau = level(share.ravel(), mu)
        f = np.log(tau) + np.log(top) + log_scale - mu * np.log1p(-share / tau).sum()
        f += mu * sum(weight * step.barrier for weight, step in zip(self.weights, tape, strict=True))
        adjoint = (vectors * (mu / (top * (tau - share)))[:, None, :]) @ _adjoint(vectors)
        return FourierValue(float(f), self._back(tape, adjoint, mu), 0.5 * float(np.log(top) + log_scale))

    def _back(self, tape: list[_Tape], adjoint: Array, mu: float) -> Array:
        """The gradient: with K̄ = D_m P̄ D_m, g = ∂f/∂log T = Σ_ω T P̄_jj - s_j² (K K̄ K)_jj + μ·weight·(1 - (C⁻¹)_jj),

        and S̄ = H* K̄ H + μ·weight·D_s C⁻¹ D_s + diag(g / mean S), the last term because T moves with the mean of S.
        H is the identity plus Y in the columns of open neurons, and those columns of K are Y/s².
        """
        parts: list[Array] = []
        for link, step, share in zip(self.links[::-1], tape[::-1], self.weights[::-1], strict=True):
            clock().check()
            weight, some = mu * share, link.open
            P_bar = link.ahead.back(adjoint)
            gradient = step.T * P_bar[:, some, some].sum(axis=0).real
            P_bar *= np.outer(link.m, link.m)
            right = P_bar @ step.Y
            gradient = gradient - np.einsum("wij,wij->j", step.Y.conj(), right).real / step.s2
            gradient += weight * (len(P_bar) - _traces(step.G) / step.s2)
            P_bar[:, :, link.some] += right
            inner = _adjoint(step.Y) @ P_bar
            inner[:, :, link.some] += weight * step.G
            P_bar[:, link.some] += inner
            P_bar[:, some, some] += gradient / step.base * link.r[some] ** 2 / len(P_bar)
            P_bar /= step.scale
            adjoint = P_bar
            parts.append(gradient)
        return np.concatenate([np.zeros(0), *parts[::-1]])

    def greedy(self, choose: Callable[[Link, Array], float]) -> Pass:
        """T = tI, with t chosen link by link from S (frequencies, c, c)."""

        def multipliers(index: int, S: Array, base: Array, log_scale: float) -> Array:
            return np.full(base.size, max(choose(self.links[index], S), STILL) if base.size else 0.0)

        return self._pass(multipliers)

    def at(self, x: Array) -> Pass:
        """The multipliers of x, enlarged a little if they are on the edge of the feasible set."""
        parts = self.split(x)
        return self._pass(lambda index, S, base, log_scale: np.exp(parts[index]) * base)

    def again(self, hints: Hints) -> Pass:
        """The multipliers of hints, enlarged if need be, at the frequencies in use here."""

        def multipliers(index: int, S: Array, base: Array, log_scale: float) -> Array:
            T = np.maximum(hints.multipliers[index][self.links[index].open], STILL)
            return np.asarray(T * np.exp(hints.exponents[index] * np.log(4.0) - log_scale))

        return self._pass(multipliers)

    def at_others(self, chosen: Array) -> FourierChain:
        """The same stack at other frequencies."""
        return FourierChain(self.network, self.torus, self.slopes, chosen)

    def _pass(self, choose: Callable[[int, Array, Array, float], Array]) -> Pass:
        parts, found, exponents = [], [], []
        S, log_scale = self._begin(), 0.0
        for index, link in enumerate(self.links):
            scale = _mean(S)
            S, log_scale = S / scale, log_scale + np.log(scale)
            base = _base(link, S)
            T = choose(index, S, base, log_scale)
            growth = 1e-6
            for _ in range(40):
                forward = _forward(link, S, T, base, 1.0)
                if forward is not None:
                    break
                T, growth = T * (1.0 + growth), min(2.0 * growth, 0.5)
            else:
                raise np.linalg.LinAlgError("no multipliers were found for a layer of convolutions")
            parts.append(np.log(T / base))
            exponents.append(int(np.round(log_scale / np.log(4.0))))
            found.append(np.zeros(link.r.size))
            found[-1][link.open] = T * np.exp(log_scale - exponents[-1] * np.log(4.0))
            S = link.ahead(forward[1])
        heights = np.log(np.maximum(np.linalg.eigvalsh(S)[:, -1], 1e-300)) + log_scale
        return Pass(np.concatenate([np.zeros(0), *parts]), Hints((), tuple(found), tuple(exponents)), heights)


def closed_form(link: Link, S: Array) -> float:
    """The t = s + sqrt(s σ / e) as for dense layers, with the largest eigenvalues over all frequencies."""
    s = top(link.r[:, None] * S * link.r)
    sigma = top(link.ahead(link.m[:, None] * S * link.m))
    unit = np.broadcast_to(np.diag((link.r > 0).astype(float)), S.shape)
    e = top(link.ahead(unit))
    return max(s + float(np.sqrt(s * max(sigma, 0.0) / e)) if e > 0.0 else 2.0 * s, s * (1.0 + 1e-6))


def scalar(link: Link, S: Array) -> float:
    """The t that minimises the largest λmax of what follows, by Brent's method in log(t - s)."""
    s = max(top(link.r[:, None] * S * link.r), STILL)

    def trial(x: float) -> float:
        clock().check()
        t = s * (1.0 + float(np.exp(x)))
        forward = _forward(link, S, np.full(link.open.size, t), np.ones(link.open.size), 1.0)
        return np.inf if forward is None else top(link.ahead(forward[1]))

    centre = float(np.log(max(closed_form(link, S) / s - 1.0, 1e-9)))
    from scipy import optimize  # takes a fifth of the time to import this package

    ends = {"bounds": (centre - 3.0, centre + 3.0), "method": "bounded", "options": {"xatol": _FINE}}
    return s * (1.0 + float(np.exp(optimize.minimize_scalar(trial, **ends).x)))


def top(matrices: Array) -> float:
    """The largest eigenvalue of all."""
    return float(np.linalg.eigvalsh(matrices)[..., -1].max())


def _forward(link: Link, S: Array, T: Array, base: Array, scale: float) -> tuple[_Tape, Array] | None:
    """The tape, and P = D_m K D_m + T with K = S + S D_s (I - D_s S D_s)⁻¹ D_s S; None if T is infeasible.

    T and base are those of the open neurons.
    """
    some, here = link.open, np.arange(T.size)
    s2 = link.r[some] ** 2 / T
    weights = np.sqrt(s2)[:, None] * np.sqrt(s2)
    columns = S[:, :, link.some]
    C = columns[:, link.some] * -weights
    C[:, here, here] += 1.0
    try:
        factor = np.linalg.cholesky(C)
        G = np.linalg.inv(C)
    except np.linalg.LinAlgError:
        return None
    G *= weights
    Y = columns @ G
    P = Y @ (S if columns.shape == S.shape else _adjoint(columns))
    P += S
    P *= np.outer(link.m, link.m)
    P[:, some, some] += T
    barrier = -2.0 * float(np.log(factor[:, here, here].real).sum())
    return _Tape(T, base, s2, G, Y, barrier, scale), P


def _adjoint(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2).conj()


def _frequencies(ahead: Map) -> int:
    """How many matrices a map leads to."""
    return 1 if ahead.counts is not None else len(ahead.K)


def _mean(S: Array) -> float:
    return float(_traces(S).sum()) / (S.shape[0] * S.shape[-1]) or 1.0


def _traces(matrices: Array) -> Array:
    """The sum of the matrices' diagonals."""
    return np.asarray(np.einsum("wjj->j", matrices).real)


def _base(link: Link, S: Array) -> Array:
    """r² mean S_jj of the open neurons."""
    return np.asarray(link.r[link.open] ** 2 * np.maximum(_traces(S)[link.open] / len(S), STILL))


def _convolution(torus: Torus, index: int, levels: list[Array]) -> Map:
    frequencies, after = levels[index], levels[index + 1]
    symbols, _ = torus.symbols(index, frequencies.reshape(-1, frequencies.shape[-1]))
    return Map(symbols.reshape(after.shape[0] * after.shape[1], -1, *symbols.shape[1:]))


def spread_out(torus: Torus, more: int = 1) -> Array:
    """Frequencies to use: all, or evenly spread ones, ``more`` times as many as usual."""
    count = len(torus.frequencies()[0])
    several = more * int(max(_WORK / _costs(torus)[0], _FEWEST))
    return np.unique(np.linspace(0, count - 1, min(several, count)).round().astype(int))


def _costs(torus: Torus) -> tuple[float, float]:
    """Operations of a value with its gradient, and bytes of the maps, for one frequency of the last torus."""
    work = room = 0.0
    for convolution, size in zip(torus.convolutions, torus.sizes[1:], strict=True):
        aliases = float(np.prod(size)) / float(np.prod(torus.sizes[-1]))
        work += 100.0 * aliases * max(convolution.outputs, convolution.channels) ** 3
        room += 32.0 * aliases * convolution.outputs * convolution.channels
    return work, room


@dataclass(frozen=True, eq=False)
class FourierSearch:
    """The global bound of a network that begins with convolutions, on a torus."""

    network: Network
    torus: Torus
    slopes: tuple[Interval, ...]
    chain: FourierChain

    @staticmethod
    def of(network: Network, method: Method) -> FourierSearch | None:
        """The search for a network, or None if it has no torus or if whole matrices are cheaper."""
        if type(method) not in (ClosedForm, Scalar, Joint, Auto):
            return None
        torus = torus_of(network)
        if torus is None:
            return None
        rest = network.layers[len(torus.convolutions) :]
        widest = max(layer.size for layer in network.layers[: len(torus.slopes)])
        if widest <= _NARROW or (rest and max(layer.size for layer in rest) > min(_TALLEST, widest - 1)):
            return None
        work, room = _costs(torus)
        if work * len(torus.frequencies()[0]) > _LONGEST or 4.0 * room * len(spread_out(torus)) > (
            available_memory() or np.inf
        ):
            return None
        slopes = [*torus.slopes, *(all_slopes(layer.neurons) for layer in rest[:-1] if layer.neurons is not None)]
        return FourierSearch(network, torus, tuple(slopes), FourierChain(network, torus, slopes))

    @property
    def widest(self) -> int:
        """Size of the largest matrix."""
        return max(max(alpha.size for alpha, _ in self.slopes), self.chain.links[-1].ahead.K.shape[-2])

    @cached_property
    def first(self) -> Pass:
        """The closed form, channel by channel."""
        return self.chain.greedy(closed_form)

    def start(self) -> Candidate:
        """What the closed form finds."""
        return self._candidate(self.first, "ClosedForm")

    def candidates(self, method: Method) -> Iterator[Candidate]:
        """What the method finds after the start, while there is time."""
        if isinstance(method, ClosedForm):
            return
        if isinstance(method, Scalar):
            yield self._candidate(self.chain.greedy(scalar), "Scalar")
        else:
            yield from self._joint(method if isinstance(method, Joint) else Joint())

    def _joint(self, method: Joint) -> Iterator[Candidate]:
        """Joint multipliers; without dense layers only at the frequencies with the largest last matrices.

        For given T the frequencies are independent and the highest one is the bound. So most can be left out of the
        search; they are checked afterwards, and those that have become high join in another round.
        """
        every = chain = self.chain
        best = self.first
        if self.torus.ends:
            every = self.chain.at_others(spread_out(self.torus, _MORE))
            highest = np.argsort(every.again(best.hints).heights)[-max(_SMALLEST, len(every.chosen) // _FIRST) :]
            chain = every.at_others(np.sort(every.chosen[highest]))
            best = chain.again(best.hints)
        mu = min(_WIDEST, _SPREAD / chain.ends)
        stopped: OutOfTime | KeyboardInterrupt | None = None
        for _ in range(_ROUNDS):
            best, stopped = self._descended(method, chain, best, mu)
            if stopped is not None or len(chain.chosen) == len(every.chosen):
                break
            try:
                clock().check()
                above = every.again(best.hints).heights - 2.0 * best.log_bound
                chosen = np.union1d(chain.chosen, every.chosen[above > -_NEAR])
                if above.max() <= _EQUAL or len(chosen) == len(chain.chosen):
                    break
                chain, mu = every.at_others(chosen), _AGAIN
                best = chain.again(best.hints)
            except OutOfTime:
                break
        yield self._candidate(best, "Joint")
        if isinstance(stopped, KeyboardInterrupt):
            raise stopped

    def _descended(
        self, method: Joint, chain: FourierChain, start: Pass, mu: float
    ) -> tuple[Pass, OutOfTime | KeyboardInterrupt | None]:
        """The best pass along the central path, and what interrupted the path, if anything did."""
        now = clock()
        stopped: OutOfTime | KeyboardInterrupt | None = None
        best, least, started = start.x, start.log_bound, time.perf_counter()
        chain.value(start.x, mu)
        with now.keeping(3.0 * (time.perf_counter() - started)):  # for the pass that follows
            try:
                path = follow(chain.value, start.x, (_AWAY,), mu, method.tolerance, _FALL, 2 * method.iterations)
                for x, value in path:
                    if value.log_bound < least:
                        best, least = x, value.log_bound
                        now.say(f"bound {np.exp(least):.4g} (joint, one multiplier per channel)")
            except OutOfTime as error:
                now.say("joint: time is up")
                stopped = error
            except KeyboardInterrupt as error:
                stopped = error
        return (start if best is start.x else chain.at(best)), stopped

    @staticmethod
    def proved(found: Candidate, issue: Callable[[Candidate, Candidate], Issued]) -> Issued:
        """What is issued of a candidate, with larger multipliers if those found are too small at some frequency."""
        (hints,), failure = found.sweeps, ProofFailed("")
        for growth in _GROWTH:
            told = replace(hints, multipliers=tuple(T * (1.0 + growth) for T in hints.multipliers))
            larger = replace(found, sweeps=(told,))
            try:
                return issue(larger, larger)
            except ProofFailed as error:
                failure = error
        raise failure

    def _candidate(self, done: Pass, name: str) -> Candidate:
        reports, hints = [], done.hints
        for T, exponent, (alpha, beta) in zip(hints.multipliers, hints.exponents, self.slopes, strict=True):
            nowhere = np.full(T.size, np.inf)
            reports.append(LayerReport(-nowhere, nowhere, alpha, beta, T, exponent))
        return Candidate(float(np.exp(done.log_bound)), tuple(reports), (hints,), found_by=name)
