"""Contraction: a norm in which a loop brings any two states closer together, and ellipsoids that it never leaves.

In coordinates y = M⁻¹x the loop is g(y) = M⁻¹ step(M y), and ‖x‖_M = ‖M⁻¹x‖₂. A Lipschitz bound ρ of g over a set Y is

    ‖step(x) - step(x')‖_M ≤ ρ ‖x - x'‖_M    for all x, x' in M·Y.

With disturbances w, and γ a Lipschitz bound of g in w alone, ‖step(x, w) - step(x', w')‖_M ≤ ρ‖x - x'‖_M + γ‖w - w'‖₂.

M⁻¹ and the weights of g are computed in exact fractions and rounded once, well within what every proof allows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from scipy import linalg, optimize

from lipcert.answers.certificate import Certificate, recheck_certificate
from lipcert.answers.saved import Saved
from lipcert.arguments.numbers import numbers
from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.arithmetic import up
from lipcert.kernel.domain import corners
from lipcert.kernel.facts import Fact, Part
from lipcert.methods.method import Method
from lipcert.methods.split import Split
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Region
from lipcert.questions.certify import certify
from lipcert.questions.loops.compose import balanced, fitted, joined, same_kind, squared
from lipcert.questions.loops.coordinates import in_coordinates, moved, stretch
from lipcert.runtime.clock import Progress, clock, timed

_SAMPLES: Final = 400
"""Points whose Jacobians a shape is chosen for."""
_SEARCH: Final = 0.3
"""Share of the time for the shape."""
_FORCED: Final = 0.2
"""Share of the time after that for the gain."""
_SECONDS: Final = 5.0
_TOLERANCE: Final = 0.005
"""The rate is proved to within this share of what is found."""
_RESTARTS: Final = 4
_ABOVE: Final = 1.05
"""The first shape is for a rate so much above the spectral radius."""


@dataclass(frozen=True, eq=False)
class Contraction(Saved):
    """‖step(x, w) - step(x', w')‖_M ≤ rate·‖x - x'‖_M + gain·‖w - w'‖₂ for states of a set; true in real arithmetic.

    Attributes
    ----------
    network : digest of the step.
    shape : M; ‖x‖_M = ‖M⁻¹x‖₂.
    certificate : the bound of the loop in the coordinates M⁻¹x, over its region there and that of disturbances.
    seconds : wall-clock time.
    scales : of products of signals, as in a segment of a tube.
    forced : the bound in the disturbances w, if there are any.
    """

    network: str
    shape: Array
    certificate: Certificate
    seconds: float
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    scales: tuple[int, ...] = ()
    forced: Certificate | None = None

    kind = "contraction"

    @property
    def rate(self) -> float:
        """ρ; below 1 the loop contracts."""
        return self.certificate.bound

    @property
    def gain(self) -> float:
        """γ; 0 without disturbances. Two loops whose disturbances differ by d stay or come within γd/(1 - ρ)."""
        return 0.0 if self.forced is None else self.forced.bound

    @property
    def flaw(self) -> str:
        if self.forced is not None and self.forced.flaw:
            return self.forced.flaw
        square = self.shape.shape == (len(self.shape), len(self.shape)) and len(self.shape) > 0
        return self.certificate.flaw if square else "the shape must be a square matrix"

    def moved(self, step: Network) -> Network:
        """What the certificate is about."""
        return squared(in_coordinates(step, self.shape), self.scales)

    def contains(self, states: Any) -> Array:
        """Whether states (..., states) are in the set, as far as floating point can tell."""
        there, region = np.linalg.solve(self.shape, np.atleast_2d(states).T).T, self.certificate.region
        if self.forced is not None:
            region = Box(*(side[: len(self.shape)] for side in corners(region)))
        return np.asarray(region.contains(there)).reshape(np.shape(states)[:-1])

    def __repr__(self) -> str:
        gain = "" if self.forced is None else f"gain={self.gain:.6g}, "
        return f"Contraction(rate={self.rate:.6g}, {gain}{len(self.shape)} states)"


def contraction(
    step: Network,
    region: Region,
    method: Method | str | None = None,
    *,
    disturbance: Box | None = None,
    shape: Any = None,
    seconds: float = _SECONDS,
    progress: Progress | None = None,
) -> Contraction:
    """Find a norm ‖x‖_M in which a loop x⁺ = step(x) contracts over a region, and prove the rate.

    The shape M starts from the Lyapunov matrix at the region's centre, and is improved for Jacobians at points of the
    region. What is proved holds over a set that contains the region: the smallest one that is a box in the coordinates
    M⁻¹x for a box, and an ellipsoid of the norm for a ball.

    Parameters
    ----------
    step
        A network from states, and disturbances after them, to states.
    region
        A :class:`Ball` or :class:`Box` of states.
    method
        As for :func:`certify`.
    disturbance
        What the inputs after the states may be: the gain from them to the states is proved too.
    shape
        M, (states, states); default: searched.
    seconds
        Time limit.
    progress
        Called with lines of text that say what is being done.

    Examples
    --------
    >>> import lipcert as lc
    >>> u = lc.Network.from_weights([[[-6.0, -4.0]], [[1.0]]], activation="tanh")
    >>> loop = lc.feedback([[1.0, 0.1], [0.0, 1.0]], [[0.0], [0.1]], u)
    >>> lc.contraction(loop, lc.Box(-0.05, [0.05, 0.05])).rate < 1
    True
    """
    started = time.perf_counter()
    check_network(step)
    if not isinstance(region, (Ball, Box)):
        raise InvalidInput("contraction needs a bounded region, a Ball or a Box")
    region, disturbance = fitted(step, region, disturbance)
    check_limit(seconds)
    with timed(seconds, progress):
        clock().say("searching a shape")
        M = _shape(step, region, disturbance, _SEARCH * seconds) if shape is None else _given(shape, step.outputs)
        clock().say("proving the rate")
        there, network = region_there(M, region), in_coordinates(step, M)
        if disturbance is not None:
            there = joined(there, disturbance)
        scales, forced = balanced(network, there), None
        network = squared(network, scales)
        if disturbance is not None:
            with clock().sharing(_FORCED * max(clock().left, 0.1)):
                forced = certify(network, there, _method(method, clock().left), inputs=range(len(M), step.inputs))
        inputs = None if forced is None else range(len(M))
        found = certify(network, there, _method(method, max(clock().left, 0.1)), inputs=inputs)
    facts = (*found.facts, *(forced.facts if forced else ()))
    return Contraction(step.digest, M, found, time.perf_counter() - started, facts, scales, forced)


def _method(method: Method | str | None, seconds: float) -> Method | str:
    return Split(seconds=seconds, tolerance=_TOLERANCE) if method is None else method


def recheck_contraction(step: Network, claim: Contraction) -> Contraction:
    """What the hints of a contraction prove now; ProofFailed if it is less than it claims."""
    states, inputs = step.outputs, tuple(range(step.inputs))
    if claim.network != step.digest or (step.inputs == states) != (claim.forced is None):
        raise ProofFailed("the contraction is about another step")
    _given(claim.shape, states)
    there = claim.moved(step)
    parts = [(claim.certificate, None if claim.forced is None else inputs[:states])]
    if claim.forced is not None:
        parts.append((claim.forced, inputs[states:]))
        if not same_kind(claim.certificate.region, claim.forced.region) or type(claim.forced.region) is not Box:
            raise ProofFailed("rate and gain must be about the same box of states and disturbances")
    if any(one.part != Part((0, there.depth), some) for one, some in parts):
        raise ProofFailed("the certificates of a contraction must be about the whole loop, in ℓ2 norms")
    found, *more = (recheck_certificate(there, one) for one, _ in parts)
    facts = (*found.facts, *(fact for one in more for fact in one.facts))
    return replace(claim, certificate=found, forced=more[0] if more else None, facts=facts)


def check_limit(seconds: float | None) -> None:
    """An error if there is no limit: the search of a shape takes a share of it."""
    if seconds is None:
        raise InvalidInput("seconds must be a number; the search has no end of its own")


def _given(shape: Any, states: int) -> Array:
    M = numbers("shape", shape)
    if M.shape != (states, states) or not np.isfinite(M).all():
        raise InvalidInput(f"shape must be a matrix ({states}, {states}) of finite numbers, got {M.shape}")
    return M


def region_there(shape: Array, region: Region) -> Region:
    """A ball or box of the coordinates M⁻¹x that contains a region."""
    if isinstance(region, Ball) and region.plain:
        center = np.stack(moved(shape, region.center, region.center))
        middle = center.mean(axis=0)
        off = up(np.abs(center - middle)).sum()
        return Ball(middle, float(up(up(region.radius * stretch(shape)) + off)))
    return Box(*moved(shape, *corners(region)))


def _shape(step: Network, region: Region, disturbance: Box | None, seconds: float) -> Array:
    """A lower triangular M that makes ‖M⁻¹JM‖ small for Jacobians J at points of the region."""
    end, n = time.perf_counter() + seconds, step.outputs
    rng = np.random.default_rng(0)
    lower, upper = corners(region if disturbance is None else joined(region, disturbance))
    points = np.concatenate([(0.5 * (lower + upper))[None], rng.uniform(lower, upper, (_SAMPLES, step.inputs))])
    jacobians = step.jacobian(points)[..., :n]
    start = _lyapunov(jacobians[0])
    places = np.tril_indices(n)

    def unpacked(entries: Array) -> Array:
        M = np.zeros((n, n))
        M[places] = entries
        M[np.diag_indices(n)] = np.exp(np.diagonal(M))
        return M

    def worst(entries: Array) -> float:
        M = unpacked(entries)
        return float(np.linalg.norm(np.linalg.solve(M, jacobians @ M), 2, axis=(1, 2)).max())

    def expired(*_: Any) -> None:
        if time.perf_counter() > end:
            raise StopIteration

    packed = np.array(start)
    packed[np.diag_indices(n)] = np.log(np.diagonal(start))
    best = packed[places]
    for _ in range(_RESTARTS):  # a simplex that has collapsed begins anew
        found = optimize.minimize(worst, best, method="Nelder-Mead", callback=expired, options={"maxiter": 400 * n})
        better = worst(found.x) < (1.0 - 1e-4) * worst(best)
        best = found.x if worst(found.x) < worst(best) else best
        if not better or time.perf_counter() > end:
            break
    M = unpacked(best)
    return np.asarray(M / M[0, 0])


def _lyapunov(jacobian: Array) -> Array:
    """M for which ‖M⁻¹JM‖ is little more than the spectral radius of J: P = (M Mᵀ)⁻¹ solves JᵀPJ - r²P = -I."""
    radius = float(np.abs(np.linalg.eigvals(jacobian)).max())
    P = linalg.solve_discrete_lyapunov(jacobian.T / (_ABOVE * radius + 1e-3), np.eye(len(jacobian)))
    return np.asarray(np.linalg.cholesky(np.linalg.inv(0.5 * (P + P.T))))
