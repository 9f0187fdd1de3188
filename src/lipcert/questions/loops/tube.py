"""Tubes: boxes that contain the states of a discrete-time loop, step by step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from lipcert.answers.reach import Reach, recheck_reach
from lipcert.answers.saved import Saved
from lipcert.arguments.values import check_network
from lipcert.errors import Interrupted, InvalidInput, ProofFailed
from lipcert.kernel.domain import corners
from lipcert.kernel.facts import Fact
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Method
from lipcert.methods.split import Split
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Box, Region
from lipcert.questions.loops.compose import balanced, check_sizes, fitted, joined, same_kind, squared, unrolled
from lipcert.questions.reach import reach
from lipcert.runtime.clock import Progress, clock, timed

_UNROLLED: Final = 25
"""Steps that one proof is about, by default: each neuron of the unrolled loop carries all states so far."""

_SECONDS: Final = 10.0
"""For a segment."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Some steps of a tube, proved at once.

    Attributes
    ----------
    steps : how many.
    answer : the reach set of the loop, unrolled from the states before, with the states after every step as outputs.
    scales : of its products of signals, which the proof makes of squares; powers of two, any will do.
    """

    steps: int
    answer: Reach
    scales: tuple[int, ...] = ()

    def unrolled(self, step: Network) -> Network:
        """What the answer is about."""
        return squared(unrolled(step, self.steps), self.scales)


@dataclass(frozen=True, eq=False)
class Tube(Saved):
    """Boxes that contain every state a loop can be in after each number of steps; true in real arithmetic.

    Nothing is said of the time between steps, nor of what a discretisation leaves out.

    Attributes
    ----------
    network : digest of the step.
    region : the initial states.
    disturbance : what enters in each step besides the states.
    segments : what proves the steps; each but the first starts from the last box of the one before.
    seconds : wall-clock time.
    names : what the states are called, where they have names; nothing is proved of them.
    """

    network: str
    region: Region
    disturbance: Box | None
    segments: tuple[Segment, ...]
    seconds: float
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = ()

    kind = "tube"

    @property
    def flaw(self) -> str:
        if not self.segments:
            return "a tube must have a step"
        fits = all(one.steps > 0 and len(one.answer.lower) % one.steps == 0 for one in self.segments)
        flaws = (one.answer.flaw for one in self.segments)
        return next(filter(None, flaws), "") if fits else "the arrays of an answer are for different numbers of steps"

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.segments)

    @property
    def lower(self) -> Array:
        """(steps + 1, states), the initial states first."""
        return self._ends(0)

    @property
    def upper(self) -> Array:
        """(steps + 1, states), the initial states first."""
        return self._ends(1)

    def _ends(self, side: int) -> Array:
        parts = ((one.answer.lower, one.answer.upper)[side].reshape(one.steps, -1) for one in self.segments)
        found = np.concatenate(list(parts))
        return np.concatenate([corners(self.region)[side][None, : found.shape[1]], found])

    def box(self, step: int) -> Box:
        """The states after a number of steps."""
        return Box(self.lower[step], self.upper[step])

    def inside(self, target: Box) -> int | None:
        """The first step after which every state is in a box; None if that is proved of none."""
        target = self._fitting("target", target)
        held = ((self.lower >= target.lower) & (self.upper <= target.upper)).all(axis=1)
        return int(np.argmax(held)) if held.any() else None

    def avoids(self, unsafe: Box) -> bool:
        """Whether no state is in a box, initially or after any step."""
        unsafe = self._fitting("unsafe", unsafe)
        apart = (self.lower > unsafe.upper) | (self.upper < unsafe.lower)
        return bool(apart.any(axis=1).all())

    def _fitting(self, name: str, box: Box) -> Box:
        if not isinstance(box, Box):
            raise InvalidInput(f"{name} must be a Box(lower, upper), got {type(box).__name__}")
        states = self.lower.shape[1]
        if not box.uniform and box.dimension != states:
            raise InvalidInput(f"{name} must have {states} coordinates, as the loop has states; got {box.dimension}")
        return box

    def __repr__(self) -> str:
        widest = float((self.upper[-1] - self.lower[-1]).max())
        return f"Tube({self.steps} steps, widest side at the end={widest:.6g})"


def tube(
    step: Network,
    region: Region,
    steps: int,
    method: Method | str | None = None,
    *,
    disturbance: Box | None = None,
    unroll: int = _UNROLLED,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Tube:
    """Enclose the states of a loop x⁺ = step(x) after 1, 2, … steps, proved with outward rounding.

    The loop is unrolled, so that nothing is lost between steps, and one :func:`reach` encloses the states after all
    steps. Long tubes are made of several segments, each starting from the last box of the one before.

    Parameters
    ----------
    step
        A network from states, and disturbances after them, to states: see :func:`feedback` and :func:`load`.
    region
        The initial states, a :class:`Ball` or :class:`Box`.
    steps
        How many steps.
    method
        As for :func:`reach`; default: ``Split(ClosedForm(), seconds=10)``, which cuts the initial states into boxes.
    disturbance
        What the inputs after the states may be, anew in every step.
    unroll
        Steps in a segment. More are tighter, and take time in proportion to their square or more.
    seconds
        Time limit, shared by the segments; default: that of the method for each segment. The first proof of each is
        always finished.
    progress
        Called with lines of text that say what is being done.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``best`` is the tube up to there.

    Examples
    --------
    >>> import lipcert as lc
    >>> u = lc.Network.from_weights([[[1.0, 1.0]], [[-1.0]]], activation="tanh")
    >>> loop = lc.feedback([[1.0, 0.1], [0.0, 1.0]], [[0.0], [0.1]], u)
    >>> found = lc.tube(loop, lc.Box([0.9, -0.1], [1.1, 0.1]), 5, seconds=2)
    >>> print(found.lower[5].round(2), found.upper[5].round(2), found.avoids(lc.Box([2.0, -9.0], [3.0, 9.0])))
    [ 0.79 -0.43] [ 1.07 -0.25] True
    """
    started = time.perf_counter()
    check_network(step)
    if not isinstance(region, Region) or not region.bounded:
        raise InvalidInput("tube needs a bounded region of initial states, such as Box(lower, upper)")
    for name, value in (("steps", steps), ("unroll", unroll)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InvalidInput(f"{name} must be a whole number from 1 on, got {value!r}")
    region, disturbance = fitted(step, region, disturbance)
    made = Tube(step.digest, region, disturbance, (), 0.0, names=step.names[1])
    with timed(seconds, progress):
        while made.steps < steps:
            some, left = min(int(unroll), int(steps) - made.steps), -(-(int(steps) - made.steps) // int(unroll))
            clock().say(f"steps {made.steps + 1} to {made.steps + some} of {steps}")
            network, start = unrolled(step, some), _start(made, some)
            scales = balanced(network, start)
            limit = None if seconds is None else max(clock().left, 0.0) / left
            chosen = Split(ClosedForm(), seconds=limit or _SECONDS) if method is None else method
            try:
                answer = reach(squared(network, scales), start, chosen, seconds=limit)
            except KeyboardInterrupt as error:
                last = getattr(error, "best", None)
                made = made if last is None else _longer(made, Segment(some, last, scales), started)
                raise Interrupted(made if made.segments else None) from None
            made = _longer(made, Segment(some, answer, scales), started)
    return made


def recheck_tube(step: Network, claim: Tube) -> Tube:
    """What the proofs of a tube prove now; ProofFailed if that is not what it says. Nothing in it is believed."""
    if claim.network != step.digest or claim.flaw:
        raise ProofFailed(claim.flaw or "the tube is about another step")
    check_sizes(step, claim.region, claim.disturbance)
    made, started = replace(claim, segments=(), facts=()), time.perf_counter()
    for segment in claim.segments:
        if not same_kind(_start(made, segment.steps), segment.answer.region):
            raise ProofFailed(f"the tube after step {made.steps} starts from other states than those that were proved")
        found = recheck_reach(segment.unrolled(step), segment.answer)
        made = _longer(made, replace(segment, answer=replace(segment.answer, facts=found.facts)), started)
    return made


def _longer(made: Tube, segment: Segment, started: float) -> Tube:
    segments, facts = (*made.segments, segment), (*made.facts, *segment.answer.facts)
    return replace(made, segments=segments, facts=facts, seconds=time.perf_counter() - started)


def _start(made: Tube, steps: int) -> Region:
    """The inputs of the loop, unrolled so often, behind the segments that were made."""
    region = made.box(-1) if made.segments else made.region
    return region if made.disturbance is None else joined(region, *[made.disturbance] * steps)
