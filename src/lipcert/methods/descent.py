"""L-BFGS for functions that are infinite outside an open set, and the central path of a barrier."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from lipcert.model.arrays import Array

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
