"""Where the multipliers of bounds to second order come from, and how they are kept so that a bound can be repeated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight


@dataclass(frozen=True, eq=False)
class PairHints:
    """Suggested multipliers of the hidden layers but the last, and μ; ``hopeful`` if they should settle the pair."""

    multipliers: list[Array]
    mu: float
    hopeful: bool


@dataclass(frozen=True, eq=False)
class PairStage:
    """What was suggested for one row of the outputs, on the ball (stage 0) or on a part of it (after so many caps).

    Attributes
    ----------
    stage, row : how often the ball was made smaller, and the row.
    ellipsoids : multipliers of the ellipsoids of all hidden layers but the last; at stage 0 one set serves all rows.
    hints : multipliers of the bound itself.
    """

    stage: int
    row: Array
    ellipsoids: tuple[Array, ...]
    hints: PairHints


class PairGuide(ABC):
    """Where the multipliers of bounds to second order come from; any answer of the right shape is safe."""

    @abstractmethod
    def ellipsoids(self, S: Array, alpha: Array, beta: Array, ahead: Weight) -> Array:
        """Multipliers for the ellipsoids of the layers, with a leading axis of length one."""

    @abstractmethod
    def hints(self, curvature: Any, name: tuple[int, bytes], rise: Any, limit: float) -> PairHints | None:
        """Multipliers to show that a rise is less than a limit; None if there is no hope.

        ``curvature`` and ``rise`` are what the proof knows to second order, a ``SecondOrder`` and a ``Rise``. The name
        is of the row, and says how often the ball was made smaller.
        """


@dataclass(eq=False)
class Noting(PairGuide):
    """Another guide, and a record of what it said."""

    guide: PairGuide
    stages: list[PairStage] = field(default_factory=list)
    _first: tuple[Array, ...] | None = None
    _said: list[Array] = field(default_factory=list)

    def ellipsoids(self, S: Array, alpha: Array, beta: Array, ahead: Weight) -> Array:
        self._said.append(self.guide.ellipsoids(S, alpha, beta, ahead))
        return self._said[-1]

    def hints(self, curvature: Any, name: tuple[int, bytes], rise: Any, limit: float) -> PairHints | None:
        if self._first is None:
            self._first, self._said = tuple(self._said), []
        stage, row = name
        told = tuple(self._said) if stage else self._first
        self._said = []
        found = self.guide.hints(curvature, name, rise, limit)
        if found is not None:
            self.stages.append(PairStage(stage, np.frombuffer(row), told, found))
        return found


class Told(PairGuide):
    """What was noted, in any order of rows; what is missing or of another shape is a failed proof."""

    def __init__(self, stages: Sequence[PairStage]) -> None:
        self._stages = {(one.stage, np.asarray(one.row, dtype=float).tobytes()): one for one in stages}
        first = next((one for one in stages if one.stage == 0), None)
        self._next = [] if first is None else list(first.ellipsoids)

    def ellipsoids(self, S: Array, alpha: Array, beta: Array, ahead: Weight) -> Array:
        if not self._next or np.shape(self._next[0]) != alpha.shape:
            raise ProofFailed("the hints to second order lack multipliers of an ellipsoid")
        return np.asarray(self._next.pop(0), dtype=float)

    def hints(self, curvature: Any, name: tuple[int, bytes], rise: Any, limit: float) -> PairHints | None:
        found = self._stages.get(name)
        if found is None:
            raise ProofFailed("the hints to second order lack a pair of classes")
        shapes = [seen.alpha.shape for seen in curvature.parabolas[:-1]]
        if [np.shape(T) for T in found.hints.multipliers] != shapes:
            raise ProofFailed("the hints to second order are for other layers")
        after = self._stages.get((name[0] + 1, name[1]))
        self._next = [] if after is None else list(after.ellipsoids)
        return found.hints
