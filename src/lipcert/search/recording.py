"""What a guide said, kept so that the proof can be repeated from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lipcert.model.arrays import Array, Weight
from lipcert.proof.pair_guide import PairGuide, PairHints, PairStage
from lipcert.proof.second_order import Rise, SecondOrder


@dataclass(eq=False)
class RecordingGuide(PairGuide):
    """Another guide, and a record of what it said."""

    guide: PairGuide
    stages: list[PairStage] = field(default_factory=list)
    _first: tuple[Array, ...] | None = None
    _said: list[Array] = field(default_factory=list)

    def ellipsoids(self, S: Array, alpha: Array, beta: Array, ahead: Weight) -> Array:
        self._said.append(self.guide.ellipsoids(S, alpha, beta, ahead))
        return self._said[-1]

    def hints(self, curvature: SecondOrder, name: tuple[int, bytes], rise: Rise, limit: float) -> PairHints | None:
        if self._first is None:
            self._first, self._said = tuple(self._said), []
        stage, row = name
        told = tuple(self._said) if stage else self._first
        self._said = []
        found = self.guide.hints(curvature, name, rise, limit)
        if found is not None:
            self.stages.append(PairStage(stage, np.frombuffer(row), told, found))
        return found
