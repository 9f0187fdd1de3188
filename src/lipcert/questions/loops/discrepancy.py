"""What a program computes beside what the network is, and one network beside another: proved, output by output."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from lipcert.answers.saved import ROOM, Saved
from lipcert.arguments.values import check_network
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel.discrepancy import PROGRAMS, alike, boxes, discrepancy_fact, over_boxes
from lipcert.kernel.domain import check_region
from lipcert.kernel.facts import DiscrepancyFact, Fact
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Region
from lipcert.runtime.clock import Progress, clock, timed
from lipcert.runtime.machine import suited_to

_SECONDS: Final = 5.0
_ULPS: Final = 4.0
MOST: Final = 2**16
"""Boxes at most."""
_GAIN: Final = 0.98
_IDLE: Final = 12
"""Cutting ends if so many rounds, one after the other, do not make the widest difference smaller by this factor."""
_FEWEST: Final = 32
_SHARE: Final = 4
_WIDE: Final = 0.5
"""A round halves so many boxes, or one in so many, if their differences are at least this share of the widest."""


@dataclass(frozen=True, eq=False)
class Discrepancy(Saved):
    """lower ≤ second(x) - first(x) ≤ upper for all x of a region, output by output; true in real arithmetic.

    Attributes
    ----------
    network : digest of the first, the network itself.
    other : digest of the second, if it is a network; empty for a program that evaluates the first.
    precision : of the program; empty if the second is a network.
    ulps : units by which the program's activations may be off.
    region : the inputs it holds for.
    cuts : k + 1 where the region's box, or a part of it, is halved along input k, the first half next; 0 where not.
    lower, upper : (outputs,).
    seconds : wall-clock time.
    names : what inputs and outputs are called, where they have names; nothing is proved of them.
    """

    network: str
    other: str
    precision: str
    ulps: float
    region: Region
    cuts: tuple[int, ...]
    lower: Array
    upper: Array
    seconds: float
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    kind = "discrepancy"

    @property
    def bound(self) -> Array:
        """At least |second(x) - first(x)|, (outputs,)."""
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    @property
    def flaw(self) -> str:
        fits = len(self.lower) == len(self.upper) > 0 and bool((self.lower <= self.upper).all())
        if not (fits and 0 < len(self.cuts) < 2 * MOST):
            return "the arrays of an answer are for different numbers of outputs, or there are no boxes"
        return "" if bool(self.other) != bool(self.precision) else "a difference is one from a network or a program"

    def __repr__(self) -> str:
        what = f"in {self.precision}" if self.precision else "of two networks"
        return f"Discrepancy({what}, at most {float(self.bound.max()):.6g})"


def evaluation_error(
    network: Network,
    region: Ball | Box,
    precision: str = "float32",
    *,
    ulps: float = _ULPS,
    seconds: float = _SECONDS,
    progress: Progress | None = None,
) -> Discrepancy:
    """How far an evaluation in floating point can be from the real function over a region, proved.

    The program is one that stores weights, biases and values in the precision, and adds the terms of each sum in any
    order; with ``"float16"`` the sums are in float32. Its inputs are numbers that it can store.

    Parameters
    ----------
    network
        The real function; its weights are rounded for the program.
    region
        A bounded region. With few inputs it is cut into boxes, which tightens the bound.
    precision
        ``"float32"``, ``"float16"`` or ``"float64"``.
    ulps
        By how many units of roundoff, of its value or of the terms that make it, an activation of the program may be
        off; ReLU is exact. This is a property of the program's library that is assumed, not proved.
    seconds
        Time limit for cutting.
    progress
        Called with lines of text that say what is being done.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, -1.0]], [[2.0]]], activation="tanh")
    >>> found = lc.evaluation_error(net, lc.Box([-1.0, -1.0], [1.0, 1.0]))
    >>> 1e-7 < found.bound.item() < 3e-6
    True
    """
    if precision not in PROGRAMS:
        raise InvalidInput(f"precision must be one of {', '.join(PROGRAMS)}, got {precision!r}")
    if not 0.0 <= ulps < 1e6:
        raise InvalidInput(f"ulps must be a number from 0 on, got {ulps!r}")
    check_network(network)
    return _cut(network, None, precision, float(ulps), region, seconds, progress)


def difference(
    network: Network,
    other: Network,
    region: Ball | Box,
    *,
    seconds: float = _SECONDS,
    progress: Progress | None = None,
) -> Discrepancy:
    """How far other(x) can be from network(x) over a region, for two networks of one architecture, proved.

    Both go through one pass together, so that what they share cancels: for networks whose weights were pruned,
    quantised or trained a little further.

    Parameters
    ----------
    network, other
        Networks with layers of the same sizes and the same activations.
    region, seconds, progress
        As for :func:`evaluation_error`.

    Examples
    --------
    >>> import lipcert as lc
    >>> one = lc.Network.from_weights([[[1.0, -1.0]], [[2.0]]], activation="tanh")
    >>> two = lc.Network.from_weights([[[1.0, -1.0]], [[2.01]]], activation="tanh")
    >>> lc.difference(one, two, lc.Box([-1.0, -1.0], [1.0, 1.0])).bound.round(4)
    array([0.0096])
    """
    check_network(network)
    check_network(other)
    if not alike(network, other):
        raise InvalidInput("the two networks must have layers of the same sizes and the same activations")
    return _cut(network, other, "", 0.0, region, seconds, progress)


def _cut(
    network: Network, other: Network | None, precision: str, ulps: float, region: Any, seconds: float, progress: Any
) -> Discrepancy:
    """Boxes with the widest differences are halved, while time is left and that helps."""
    started = time.perf_counter()
    if not isinstance(region, (Ball, Box)):
        raise InvalidInput("this needs a bounded region, a Ball or a Box")
    check_region(region, network.inputs)

    def bounds(ends: Interval) -> Array:
        found = np.fmax(*(np.abs(end) for end in over_boxes(network, other, ends, precision, ulps)))
        return np.where(np.isfinite(found), found, np.finfo(float).max)

    (low, high), cuts = boxes(region, (0,)), np.zeros(1, dtype=int)
    with timed(seconds, progress), suited_to(max(network.sizes)):
        begin = time.perf_counter()
        found, idle, best = bounds((low, high)), 0, np.inf
        while True:
            widest = found.max(axis=0)
            each = (time.perf_counter() - begin) / len(cuts)  # of a box
            shares = (found / np.where(widest > 0.0, widest, 1.0)).max(axis=-1)
            some = np.argsort(-shares, kind="stable")[: max(_FEWEST, len(found) // _SHARE)]
            some = np.sort(some[shares[some] > _WIDE])
            gain = float((widest / best).max(initial=0.0, where=widest > 0.0))
            idle, best = (idle + 1, best) if gain > _GAIN else (0, widest)
            many = len(found) + len(some)
            if idle > _IDLE or many > MOST or clock().left < 1.5 * each * (many + 2 * len(some)):
                break
            clock().say(f"{len(found):,} boxes")
            middle = 0.5 * low[some] + 0.5 * high[some]
            axis = (np.abs(network.jacobian(middle)).sum(axis=1) * (high - low)[some]).argmax(axis=-1)
            place = np.flatnonzero(cuts == 0)[some]
            cuts[place] = axis + 1
            cuts = np.insert(cuts, np.repeat(place + 1, 2), 0)
            low, high, found = (np.insert(x, some, x[some], axis=0) for x in (low, high, found))
            first = some + np.arange(len(some))
            high[first, axis] = low[first + 1, axis] = middle[np.arange(len(some)), axis]
            halves = np.sort(np.concatenate([first, first + 1]))
            found[halves] = bounds((low[halves], high[halves]))
        answer = _proved(network, other, region, tuple(cuts.tolist()), precision, ulps)
    return replace(answer, seconds=time.perf_counter() - started)


def _proved(
    network: Network, other: Network | None, region: Region, cuts: tuple[int, ...], precision: str, ulps: float
) -> Discrepancy:
    fact = discrepancy_fact(network, other, region, cuts, precision, ulps)
    room = (ROOM - 1.0) * np.maximum(np.abs(fact.lower), np.abs(fact.upper))
    ends = np.nextafter(fact.lower - room, -np.inf), np.nextafter(fact.upper + room, np.inf)
    return Discrepancy(network.digest, fact.other, precision, ulps, region, cuts, *ends, 0.0, (fact,), network.names)


def recheck_discrepancy(network: Network, claim: Discrepancy, other: Network | None) -> Discrepancy:
    """What is proved of a claim now; ProofFailed if that is less than it says. Nothing in it is believed."""
    if claim.network != network.digest or claim.other != ("" if other is None else other.digest):
        raise ProofFailed("the difference is about other networks: the second one is the argument other of verify")
    if claim.flaw or not isinstance(claim.region, (Ball, Box)) or claim.precision not in ("", *PROGRAMS):
        raise ProofFailed(claim.flaw or "the difference is about no bounded region, or an unknown precision")
    found = _proved(network, other, claim.region, claim.cuts, claim.precision, claim.ulps)
    (fact,) = found.facts
    assert isinstance(fact, DiscrepancyFact)
    shown = np.shape(claim.lower) == np.shape(fact.lower)
    if not (shown and (claim.lower <= fact.lower).all() and (fact.upper <= claim.upper).all()):
        raise ProofFailed("the difference claims more than is proved")
    return found
