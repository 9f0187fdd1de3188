"""Invariant ellipsoids: sets around an equilibrium that a loop never leaves.

With ‖step(x) - step(x')‖_M ≤ ρ‖x - x'‖_M over the ellipsoid E = {x : ‖x - c‖_M ≤ r} and ‖step(c) - c‖_M ≤ d,

    ‖step(x) - c‖_M ≤ ρ r + d    for all x in E,

so E is invariant if ρ r + d ≤ r; then all states in it come together at the rate ρ.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from math import gamma
from typing import Any, Final

import numpy as np

from lipcert.answers.reach import Reach, recheck_reach
from lipcert.answers.saved import Saved
from lipcert.arguments.numbers import numbers
from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.arithmetic import norm_above, up
from lipcert.kernel.domain import same_region
from lipcert.kernel.facts import Fact
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.split import Split
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box
from lipcert.questions.certify import certify
from lipcert.questions.loops.compose import balanced, squared
from lipcert.questions.loops.contraction import Contraction, check_limit, contraction, recheck_contraction
from lipcert.questions.loops.coordinates import in_coordinates, moved
from lipcert.questions.reach import reach
from lipcert.runtime.clock import Progress, clock, timed

_SECONDS: Final = 10.0
_FIRST: Final = 1e-3
"""The first radius tried, in units of the shape's largest axis."""
_NEWTON: Final = 50
_TRIES: Final = 60
_GROWTH: Final = 2.0
_NEAR: Final = 1.02
"""The search ends when the largest radius that is proved is so near the smallest that is not."""
_SHARES, _LEAST = 4.0, 0.05
"""A try gets this part of the time that is left, and at least so many seconds."""
_TOLERANCE: Final = 0.01
_ROOM: Final = 100.0
"""The ellipsoid around the loop's value at the centre, of which nothing is made, is so much larger than was proved: of
roundings ball arithmetic knows 10 times as much at worst."""


@dataclass(frozen=True, eq=False)
class InvariantEllipsoid(Saved):
    """The ellipsoid {M y : ‖y - c‖₂ ≤ r}, which a loop maps into itself; true in real arithmetic.

    Attributes
    ----------
    contraction : the rate of the loop over the ellipsoid, and M.
    center : the reach set of the loop in the coordinates M⁻¹x, from c alone.
    seconds : wall-clock time.
    """

    contraction: Contraction
    center: Reach
    seconds: float
    facts: tuple[Fact, ...] = field(default=(), repr=False)

    kind = "invariant"

    @property
    def network(self) -> str:
        """Digest of the step."""
        return self.contraction.network

    @property
    def rate(self) -> float:
        """ρ: any two states in the ellipsoid come closer by this factor in each step, in its norm."""
        return self.contraction.rate

    @property
    def ball(self) -> Ball:
        """The ellipsoid in the coordinates M⁻¹x."""
        region = self.contraction.certificate.region
        assert isinstance(region, Ball)
        return region

    @property
    def shape(self) -> Array:
        return self.contraction.shape

    @property
    def middle(self) -> Array:
        """The centre, rounded as it comes."""
        return np.asarray(self.shape @ self.ball.center)

    @property
    def volume(self) -> float:
        """Of the ellipsoid, rounded as it comes."""
        n = len(self.shape)
        unit = np.pi ** (n / 2) / gamma(n / 2 + 1)
        return float(unit * abs(np.linalg.det(self.shape)) * float(self.ball.radius) ** n)

    @property
    def flaw(self) -> str:
        region = self.contraction.certificate.region
        if not (isinstance(region, Ball) and region.plain and region.clip is None):
            return "an invariant ellipsoid must be a ball in its coordinates"
        return self.contraction.flaw or self.center.flaw

    def contains(self, states: Any) -> Array:
        """Whether states (..., states) are in the ellipsoid, as far as floating point can tell."""
        return self.contraction.contains(states)

    def edge(self, count: int, seed: int = 0) -> Array:
        """Points of the ellipsoid's edge, (count, states), rounded as they come."""
        ways = np.random.default_rng(seed).standard_normal((count, len(self.shape)))
        ways /= np.linalg.norm(ways, axis=1)[:, None]
        return np.asarray((self.ball.center + self.ball.radius * ways) @ self.shape.T)

    def __repr__(self) -> str:
        return f"InvariantEllipsoid(rate={self.rate:.6g}, volume={self.volume:.6g}, around {self.middle.round(6)})"


def invariant_ellipsoid(
    step: Network,
    equilibrium: Any = None,
    *,
    within: Box | None = None,
    shape: Any = None,
    seconds: float = _SECONDS,
    progress: Progress | None = None,
) -> InvariantEllipsoid:
    """A large ellipsoid around an equilibrium that a loop x⁺ = step(x) never leaves, and contracts in.

    The shape is that of :func:`contraction` near the equilibrium. The size grows while a proof succeeds.

    Parameters
    ----------
    step, shape, seconds, progress
        As for :func:`contraction`, without disturbances.
    equilibrium
        A state near one that the step keeps; default: zero.
    within
        A box that the ellipsoid must not leave.

    Raises
    ------
    ProofFailed
        If no ellipsoid around the equilibrium is proved to be invariant.

    Examples
    --------
    >>> import lipcert as lc
    >>> u = lc.Network.from_weights([[[-6.0, -4.0]], [[1.0]]], activation="tanh")
    >>> loop = lc.feedback([[1.0, 0.1], [0.0, 1.0]], [[0.0], [0.1]], u)
    >>> found = lc.invariant_ellipsoid(loop, seconds=2)
    >>> found.rate < 1 and found.contains(loop(found.edge(1000))).all().item()
    True
    """
    started = time.perf_counter()
    check_network(step)
    states = step.outputs
    if step.inputs != states:
        raise InvalidInput(f"invariant_ellipsoid is about a step from states to states, got {step.inputs} → {states}")
    if within is not None and not isinstance(within, Box):
        raise InvalidInput(f"within must be a Box(lower, upper), got {type(within).__name__}")
    box = within and within.fitted(step)
    check_limit(seconds)
    point = _equilibrium(step, np.zeros(states) if equilibrium is None else equilibrium)
    best: InvariantEllipsoid | None = None
    with timed(seconds, progress):
        clock().say("searching a shape")
        M = contraction(step, Ball(point, _FIRST), shape=shape, seconds=0.2 * seconds).shape
        center = np.stack(moved(M, point, point)).mean(axis=0)
        moved_step = in_coordinates(step, M)
        scales = balanced(moved_step, Ball(center, _FIRST))
        network = squared(moved_step, scales)
        still = reach(network, Ball(center, 0.0), ClosedForm())
        still = replace(still, shape=_ROOM * still.shape)
        most = np.inf if box is None else _room(M, center, box)
        low, high = 0.0, most
        radius = min(_FIRST * float(np.linalg.norm(np.linalg.inv(M), 2)), most)
        for number in range(_TRIES):
            clock().say(f"ellipsoids, try {number + 1}")
            with clock().sharing(max(clock().left, _LEAST) / _SHARES):
                found = _proved(step, M, network, scales, still, Ball(center, radius))
            best, low, high = (found, radius, high) if found else (best, low, radius)
            if clock().left <= 0.0 or (best and high <= _NEAR * low):
                break
            radius = min(_GROWTH * radius, most) if high == most else 0.5 * (low + high)
    if best is None:
        raise ProofFailed(
            f"no ellipsoid around {point} is proved to be invariant; is it a stable equilibrium of the loop?"
        )
    return replace(best, seconds=time.perf_counter() - started)


def _proved(
    step: Network, shape: Array, there: Network, scales: tuple[int, ...], still: Reach, ball: Ball
) -> InvariantEllipsoid | None:
    """The ellipsoid of a ball in the coordinates M⁻¹x, if it is proved to be invariant."""
    try:
        rate = certify(there, ball, Split(seconds=max(clock().left, _LEAST), tolerance=_TOLERANCE))
    except ProofFailed:
        return None
    inside = Contraction(step.digest, shape, rate, rate.seconds, rate.facts, scales)
    found = InvariantEllipsoid(inside, still, 0.0, (*rate.facts, *still.facts))
    return found if invariant(found) else None


def invariant(claim: InvariantEllipsoid) -> bool:
    """Whether ρ r + d ≤ r, with roundings."""
    ball, still = claim.ball, claim.center
    ends = up(np.maximum(still.upper - ball.center, ball.center - still.lower))
    off = float(norm_above(np.maximum(ends, 0.0)[None])[0])
    return claim.rate < 1.0 and bool(up(up(claim.rate * ball.radius) + off) <= ball.radius)


def recheck_invariant(step: Network, claim: InvariantEllipsoid) -> InvariantEllipsoid:
    """What the proofs of an invariant ellipsoid prove now; ProofFailed if that is not what it says."""
    if claim.flaw:
        raise ProofFailed(claim.flaw)
    inside = recheck_contraction(step, claim.contraction)
    alone = Ball(claim.ball.center, 0.0)
    if type(claim.center.region) is not Ball or not same_region(alone, claim.center.region):
        raise ProofFailed("the value at the centre of the ellipsoid is that of another point")
    still = recheck_reach(inside.moved(step), claim.center)
    if not invariant(claim):
        raise ProofFailed("the ellipsoid is not proved to be invariant: the rate or the centre's move is too large")
    return replace(
        claim, contraction=inside, center=replace(claim.center, facts=still.facts), facts=(*inside.facts, *still.facts)
    )


def _equilibrium(step: Network, near: Any) -> Array:
    """A state that the step keeps, up to rounding, by Newton's method."""
    near = numbers("equilibrium", near)
    if near.shape not in ((), (step.inputs,)):
        raise InvalidInput(f"equilibrium must have {step.inputs} numbers, as the loop has states; got {near.shape}")
    x = np.array(np.broadcast_to(near, (step.inputs,)))
    for _ in range(_NEWTON):
        move = np.linalg.lstsq(np.eye(len(x)) - step.jacobian(x[None])[0], step(x) - x)[0]
        x = x + move
        if np.abs(move).max() <= 1e-15 * (1.0 + np.abs(x).max()):
            break
    if not np.isfinite(x).all():
        raise InvalidInput("no equilibrium was found; give a state near one")
    return np.asarray(x)


def _room(shape: Array, center: Array, box: Box) -> float:
    """The radius at which the ellipsoid around M c meets the sides of a box, or a little less."""
    middle, reach_ = shape @ center, np.linalg.norm(shape, axis=1)
    room = np.minimum(box.upper - middle, middle - box.lower) / reach_
    if not (room > 0.0).all():
        raise InvalidInput(f"the equilibrium {middle} is not inside the box that the ellipsoid must not leave")
    return float(room.min()) * (1.0 - 1e-9)
