"""Global bounds of networks that begin with convolutions: the rungs once more, with one multiplier per channel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network
from lipcert.proof.certificate import LayerReport
from lipcert.proof.every_size import for_every_size, sparing
from lipcert.proof.hints import Interval
from lipcert.proof.neuron_bounds import slope_bounds
from lipcert.proof.torus import Torus, torus_of
from lipcert.runtime.clock import OutOfTime, clock
from lipcert.search.auto import Auto
from lipcert.search.candidate import Candidate
from lipcert.search.closed_form import ClosedForm
from lipcert.search.descent import descend, no_moves
from lipcert.search.joint import Joint
from lipcert.search.method import Method
from lipcert.search.scalar import Scalar
from lipcert.search.waves import Walk, Wave, Waves, closed_form, scalar, spread_out

_NARROW = 512
"""Neurons of the widest convolution up to which matrices of whole layers are no more work, and tighter."""
_TALLEST = 4096
"""Rows of the layers after the convolutions, at most: their ellipsoids are matrices of that size. They must also be
fewer than the neurons of the widest convolution, or little is gained."""
_AWAY = 0.02
"""How far (in x) to move from the multipliers that were chosen layer by layer."""
_SPREAD, _WIDEST = 18.0, 2e-3
"""The path starts at this μ per eigenvalue of the last matrices, and at most at the second."""
_MORE, _SHARES = 5, (0.9, 0.75, 0.5)
"""Where only some frequencies were looked at: so many more decide how far to go from the closed form."""
_FALL = 0.3
"""Factor by which μ falls."""
_FIRST, _SMALLEST, _ROUNDS = 4, 16, 4
"""Of a stack without dense layers the highest of so many frequencies are looked at first, but so many at least."""
_NEAR, _EQUAL, _AGAIN = 0.7, 1e-5, 3e-4
"""A round adds frequencies at which log λmax is not further below the bound than the first, until none is above it by
the second; it starts at the third μ."""


@dataclass(frozen=True, eq=False)
class Spectral:
    """A network that begins with convolutions, on a torus."""

    network: Network
    torus: Torus
    slopes: tuple[Interval, ...]
    waves: Waves

    @staticmethod
    def of(network: Network, method: Method, every_size: bool = False) -> Spectral | None:
        """The torus of a network, where there is one on which the method's global bound is cheaper to have.

        For images of every size there is no other way, or an error.
        """
        if type(method) not in (ClosedForm, Scalar, Joint, Auto):
            return None
        torus = torus_of(network)
        if every_size:
            if torus is None or not torus.ends:
                raise InvalidInput(
                    "EverySize() is for networks that are convolutions from the first layer to the last,"
                    " with zero padding or circular padding in all of them; give conv_stack without a head"
                )
            try:
                torus = for_every_size(torus)
            except ProofFailed as error:
                raise InvalidInput(str(error)) from None
            return Spectral(network, torus, torus.slopes, Waves(network, torus, torus.slopes))
        if torus is None:
            return None
        rest = network.layers[len(torus.convolutions) :]
        widest = max(layer.size for layer in network.layers[: len(torus.slopes)])
        if widest <= _NARROW or (rest and max(layer.size for layer in rest) > min(_TALLEST, widest - 1)):
            return None
        torus = sparing(torus)
        slopes = [*torus.slopes, *(_slopes(layer) for layer in rest[:-1])]
        return Spectral(network, torus, tuple(slopes), Waves(network, torus, slopes))

    @property
    def widest(self) -> int:
        """Size of the largest matrix."""
        return max(max(alpha.size for alpha, _ in self.slopes), self.waves.links[-1].ahead.K.shape[-2])

    @cached_property
    def first(self) -> Walk:
        """The closed form, channel by channel."""
        return self.waves.greedy(closed_form)

    def start(self) -> Candidate:
        """What the closed form finds."""
        return self._candidate(self.first, "ClosedForm")

    def candidates(self, method: Method) -> Iterator[Candidate]:
        """What the method finds after the start, while there is time."""
        if isinstance(method, ClosedForm):
            return
        if isinstance(method, Scalar):
            yield self._candidate(self.waves.greedy(scalar), "Scalar")
        else:
            yield from self._joint(method if isinstance(method, Joint) else Joint())

    def _joint(self, method: Joint) -> Iterator[Candidate]:
        """Joint multipliers; a stack without dense layers is looked at where its last matrices are largest.

        With T given each frequency is by itself, and the highest one is the bound. So most can be left out of the
        search; they are looked at afterwards, and those that have become high join in another round.
        """
        waves, best = self._highest()
        mu = min(_WIDEST, _SPREAD / waves.ends)
        stopped: OutOfTime | KeyboardInterrupt | None = None
        for _ in range(_ROUNDS):
            best, stopped = self._descended(method, waves, best, mu)
            others = None if stopped is not None else self._missed(waves, best)
            if others is None:
                break
            waves, mu = waves.at_others(others), _AGAIN
            try:
                best = waves.again(best.hints)
            except np.linalg.LinAlgError:  # not feasible there: what is found now may be provable with larger ones
                break
        yield self._settled(best)
        if isinstance(stopped, KeyboardInterrupt):
            raise stopped

    @cached_property
    def _pool(self) -> Array:
        """Frequencies that a stack without dense layers is looked at in the end."""
        return spread_out(self.torus, _MORE)

    def _highest(self) -> tuple[Waves, Walk]:
        """The stack where its matrices are largest with the multipliers of the closed form."""
        several = max(_SMALLEST, len(self._pool) // _FIRST)
        if not self.torus.ends or len(self._pool) <= several:
            return self.waves, self.first
        order = np.argsort(self._heights(self.first))
        waves = self.waves.at_others(np.sort(self._pool[order[-several:]]))
        return waves, waves.again(self.first.hints)

    def _heights(self, walk: Walk) -> Array:
        """The logarithm of λmax at the frequencies of the pool."""
        found, several = [], len(self.waves.chosen)
        for start in range(0, len(self._pool), several):
            clock().check()
            found.append(self.waves.at_others(self._pool[start : start + several]).heights(walk.hints))
        return np.concatenate(found)

    def _missed(self, waves: Waves, walk: Walk) -> Array | None:
        """The frequencies for another round; None where none is above the bound, or where there is no time."""
        if not self.torus.ends or len(waves.chosen) == len(self._pool):
            return None
        try:
            above = self._heights(walk) - 2.0 * walk.log_bound
        except OutOfTime:
            return None
        near = np.union1d(waves.chosen, self._pool[above > -_NEAR])
        return near if above.max() > _EQUAL and len(near) > len(waves.chosen) else None

    def _descended(
        self, method: Joint, waves: Waves, start: Walk, mu: float
    ) -> tuple[Walk, OutOfTime | KeyboardInterrupt | None]:
        """The best walk along the path of minimisers for falling μ, and what ended the path, if it had not ended."""
        now = clock()
        stopped: OutOfTime | KeyboardInterrupt | None = None
        best, least, started = start.x, start.log_bound, time.perf_counter()
        waves.value(start.x, mu)
        with now.keeping(3.0 * (time.perf_counter() - started)):  # for the walk itself
            try:
                for x, value in _path(method, waves, start.x, mu):
                    if value.log_bound < least:
                        best, least = x, value.log_bound
                        now.say(f"bound {np.exp(least):.4g} (joint, one multiplier per channel)")
            except OutOfTime as error:
                now.say("joint: time is up")
                stopped = error
            except KeyboardInterrupt as error:
                stopped = error
        return (start if best is start.x else waves.at(best)), stopped

    def _settled(self, best: Walk) -> Candidate:
        """The best walk, or one between it and the closed form where frequencies that were not looked at ask for that.

        Of a stack without dense layers all that need to were looked at.
        """
        if self.waves.whole or self.torus.ends:
            return self._candidate(best, "Joint")
        others = self.waves.at_others(spread_out(self.torus, _MORE))
        start, last = others.greedy(closed_form), others.again(best.hints)
        found = [start, last]
        for share in _SHARES:
            try:
                found.append(others.at(start.x + share * (last.x - start.x)))
            except np.linalg.LinAlgError:  # not feasible
                continue
        return self._candidate(min(found, key=lambda walk: walk.log_bound), "Joint")

    def _candidate(self, walk: Walk, name: str) -> Candidate:
        reports, hints = [], walk.hints
        for T, exponent, (alpha, beta) in zip(hints.multipliers, hints.exponents, self.slopes, strict=True):
            nowhere = np.full(T.size, np.inf)
            reports.append(LayerReport(-nowhere, nowhere, alpha, beta, T, exponent))
        return Candidate(float(np.exp(walk.log_bound)) * self.torus.gain, tuple(reports), (hints,), found_by=name)


def _path(method: Joint, waves: Waves, x: Array, mu: float) -> Iterator[tuple[Array, Wave]]:
    """Points along the path of minimisers for falling μ."""
    moves = no_moves()
    x = x + _AWAY if waves.value(x + _AWAY, mu) is not None else x
    while True:
        last = mu <= method.tolerance
        descent = descend(lambda y, mu=mu: waves.value(y, mu), x, 0.05 * mu, moves)  # type: ignore[misc]
        for x, value in islice(descent, 2 * method.iterations + 1):
            yield x, value
        if last:
            return
        mu = max(_FALL * mu, method.tolerance)


def _slopes(layer: Layer) -> Interval:
    """The slope ranges of a dense layer over all of space."""
    assert layer.neurons is not None
    infinite = np.full(layer.size, np.inf)
    return slope_bounds(layer.neurons, -infinite, infinite)
