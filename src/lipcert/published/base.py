"""What the methods of the literature share: a number as published, and multipliers that prove it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.methods.greedy import largest
from lipcert.methods.method import Candidate, Method, Problem, Stage
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network
from lipcert.model.regions import Everywhere, Norms, Region
from lipcert.runtime.machine import available_memory, suited_to
from lipcert.suggest.hints import Lipschitz

_SMALL = 4_000_000
"""Matrices with fewer entries are not checked: 32 MB."""


class NotApplicable(ProofFailed):
    """The method was not made for this network; the message says why and what to take instead."""


class Multipliers(NamedTuple):
    """What a method chose for one hidden layer: T = 1/Λ, (n,), for slopes of half-width r, (n,).

    Where r is 0 the neuron is affine and T does not matter.
    """

    T: Array
    r: Array

    @staticmethod
    def of(alpha: Array, beta: Array, where: Array, T: Array | float) -> Multipliers:
        """T for the neurons ``where``, for slopes in [alpha, beta]; the others are affine."""
        made = Multipliers(np.zeros(alpha.shape), np.zeros(alpha.shape))
        made.T[where], made.r[where] = T, 0.5 * (beta - alpha)[where]
        return made


class Run(NamedTuple):
    """The number that a method computes, as published, and the multipliers behind it, one entry per hidden layer."""

    value: float
    layers: tuple[Multipliers, ...] | None = None


class Published(Method):
    """A method of the literature.

    A method with multipliers gets a proof: lipcert's own step with these multipliers. It gives the published number or
    less, because affine neurons are exact there and slopes are not widened. The number of a method without multipliers
    rests on its own theorem, in floating point. Either way :meth:`value` is the number as published.
    """

    matrices: ClassVar[int] = 3
    """Dense matrices of the largest layer that the method makes at least; they must fit into the free memory."""

    remark: ClassVar[str] = ""
    """A sentence that explains its figure in a comparison of ℓ2 bounds."""

    def check(self, norms: Norms) -> None:
        """Raise an error unless the method applies to these norms; scales are moved into the weights beforehand."""
        if norms.pair != ("l2", "l2"):
            raise NotApplicable(
                f"{type(self).__name__} is a method for ℓ2 norms, with units if need be; asked for {norms}:"
                " take ClosedForm(), Scalar(), Joint() or Split()"
            )

    @abstractmethod
    def run(self, problem: Problem) -> Run:
        """Compute the number, and the multipliers if the method has any, in the method's :meth:`setting`."""

    def setting(self, problem: Problem) -> Problem:
        """The problem as the method sees it: here without its region, as pre-activations may be any numbers."""
        region = problem.region if problem.whole is None else Everywhere()  # that of the whole network's inputs
        return replace(problem, region=region, enclosures=(), known=None, history=(), whole=None)

    def solve(self, problem: Problem) -> Candidate:
        if problem.network.coupled:
            raise NotApplicable(f"{type(self).__name__} knows no products of signals and no softmax")
        require(max(math.prod(layer.linear.shape) for layer in problem.network.layers), self.matrices)
        problem = self.setting(problem)
        run = self.run(problem)
        if run.layers is None:
            # rounding of a chain of products through the network, about
            noise = 2.0 * problem.network.depth * max(problem.network.sizes) * float(np.finfo(float).eps)
            return Candidate(run.value * (1.0 + noise), ())
        candidate = problem.sweep(again(run.layers))
        return replace(candidate, bound=max(run.value, candidate.bound))

    def value(self, network: Network, region: Region | None = None) -> float:
        """The number as published, without a proof; global methods ignore the region."""
        with suited_to(max(network.sizes)):
            return self.run(self.setting(Problem(network, region or Everywhere(), (Lipschitz(),)))).value


def require(entries: int, matrices: int) -> None:
    """Refuse to start what cannot end: so many dense matrices of so many entries must fit into the free memory."""
    if entries < _SMALL:
        return
    free, needed = available_memory(), 8 * entries * matrices
    if free is not None and needed > free:
        raise NotApplicable(
            f"dense matrices of {needed / 1e9:.3g} GB would be needed, and {free / 1e9:.3g} GB are free; methods of the"
            " literature know no sparse weights, lipcert's own do"
        )


def global_slopes(layer: Layer) -> tuple[Array, Array]:
    """The slopes (α, β) of a hidden layer's neurons, wherever they are."""
    assert layer.neurons is not None
    found = layer.neurons.slope_range(np.full(layer.size, -np.inf), np.full(layer.size, np.inf))
    if not np.isfinite(found).all():
        raise NotApplicable(f"slopes of {layer.neurons.describe()} grow without end, and it knows no region")
    return found


def again(layers: tuple[Multipliers, ...]) -> Callable[[Stage], Array]:
    """The choice of multipliers that repeats a method's own in lipcert's step.

    On slopes [α', β'] inside the [α, β] that T was chosen for, with half-widths r' ≤ r, T·r'/r gives a bound that is
    nowhere above: with τ = r/r', τ(s - α')(s - β') ≥ (s - α)(s - β) for every s, because |m' - m| ≤ r - r'.
    """

    def choose(stage: Stage) -> Array:
        chosen = layers[stage.index]
        T, r = stage.narrow(chosen.T), stage.narrow(chosen.r)
        T = np.ldexp(T * np.divide(stage.r, r, out=np.zeros(r.shape), where=r > 0), -2 * stage.exponent)
        bare = (stage.r > 0) & ~(T > 0)
        if bare.any():  # affine for the method, but not in the last bit
            R = stage.r[:, None] * stage.S * stage.r
            T[bare] = 2.0 * float(largest(R))
        return T

    return choose
