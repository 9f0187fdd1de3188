"""Global bounds of networks that begin with convolutions: the rungs once more, with one multiplier per channel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network
from lipcert.proof.certificate import LayerReport
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
from lipcert.search.waves import Walk, Wave, Waves, closed_form, scalar

_NARROW = 512
"""Neurons of the widest convolution up to which matrices of whole layers are no more work, and tighter."""
_TALLEST = 4096
"""Rows of the layers after the convolutions, at most: their ellipsoids are matrices of that size. They must also be
fewer than the neurons of the widest convolution, or little is gained."""
_AWAY = 0.5
"""How far (in x) to move from the multipliers that were chosen layer by layer."""
_SPREAD, _WIDEST = 18.0, 2e-2
"""The path starts at this μ per eigenvalue of the last matrices, and at most at the second."""
_MORE, _SHARES = 5, (1.0, 0.9, 0.75, 0.5)
"""Where only some frequencies were looked at: so many more decide how far to go from the closed form."""
_FALL = 0.3
"""Factor by which μ falls."""


@dataclass(frozen=True, eq=False)
class Spectral:
    """A network that begins with convolutions, on a torus."""

    network: Network
    torus: Torus
    slopes: tuple[Interval, ...]
    waves: Waves

    @staticmethod
    def of(network: Network, method: Method) -> Spectral | None:
        """The torus of a network, where there is one on which the method's global bound is cheaper to have."""
        if type(method) not in (ClosedForm, Scalar, Joint, Auto):
            return None
        torus = torus_of(network)
        if torus is None:
            return None
        rest = network.layers[len(torus.convolutions) :]
        widest = max(layer.size for layer in network.layers[: len(torus.slopes)])
        if widest <= _NARROW or (rest and max(layer.size for layer in rest) > min(_TALLEST, widest - 1)):
            return None
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
        now, interrupt = clock(), None
        best, least, started = np.zeros(0), np.inf, time.perf_counter()
        self.waves.value(self.first.x, _WIDEST)
        took = time.perf_counter() - started
        with now.keeping(2.0 * took):  # for the candidate itself
            try:
                for x, value in self._path(method):
                    if value.log_bound < least:
                        best, least = x, value.log_bound
                        now.say(f"bound {np.exp(least):.4g} (joint, one multiplier per channel)")
            except OutOfTime:
                now.say("joint: time is up")
            except KeyboardInterrupt as error:
                interrupt = error
        if np.isfinite(least):
            yield self._settled(best)
        if interrupt is not None:
            raise interrupt

    def _path(self, method: Joint) -> Iterator[tuple[Array, Wave]]:
        """Points along the path of minimisers for falling μ."""
        waves, moves = self.waves, no_moves()
        x = self.first.x
        mu = min(_WIDEST, _SPREAD / waves.ends)
        x = x + _AWAY if waves.value(x + _AWAY, mu) is not None else x
        while True:
            last = mu <= method.tolerance
            descent = descend(lambda y, mu=mu: waves.value(y, mu), x, 0.05 * mu, moves)  # type: ignore[misc]
            for x, value in islice(descent, 2 * method.iterations + 1):
                yield x, value
            if last:
                return
            mu = max(_FALL * mu, method.tolerance)

    def _settled(self, best: Array) -> Candidate:
        """The best x, or one between it and the closed form where frequencies that were not looked at ask for that."""
        if self.waves.whole:
            return self._candidate(self.waves.at(best), "Joint")
        others = Waves(self.network, self.torus, self.slopes, _MORE)
        start = others.greedy(closed_form)
        found = [start]
        for share in _SHARES:
            try:
                found.append(others.at(start.x + share * (best - start.x)))
            except np.linalg.LinAlgError:  # not feasible
                continue
        return self._candidate(min(found, key=lambda walk: walk.log_bound), "Joint")

    def _candidate(self, walk: Walk, name: str) -> Candidate:
        reports, hints = [], walk.hints
        for T, exponent, (alpha, beta) in zip(hints.multipliers, hints.exponents, self.slopes, strict=True):
            nowhere = np.full(T.size, np.inf)
            reports.append(LayerReport(-nowhere, nowhere, alpha, beta, T, exponent, 0.0))
        return Candidate(float(np.exp(walk.log_bound)), tuple(reports), (hints,), found_by=name)


def _slopes(layer: Layer) -> Interval:
    """The slope ranges of a dense layer over all of space."""
    assert layer.neurons is not None
    infinite = np.full(layer.size, np.inf)
    return slope_bounds(layer.neurons, -infinite, infinite)
