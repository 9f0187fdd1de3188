"""What a pass saw of the layers, for methods and readers; no proof uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lipcert.model.arrays import Array


@dataclass(frozen=True, eq=False)
class LayerReport:
    """One hidden layer: where its pre-activations lie, the slopes there, and the multipliers T.

    ``multiplier`` is relative: the true T is 4**exponent times it.
    """

    lower: Array
    upper: Array
    alpha: Array
    beta: Array
    multiplier: Array
    exponent: int


def layer_reports(sweep: Any, which: int = 0) -> tuple[LayerReport, ...]:
    """What a pass knows of each hidden layer for one of its regions."""
    found = []
    for view, T, interval, slopes in zip(sweep.views, sweep.hinted, sweep.intervals, sweep.slopes, strict=True):
        lower, upper, alpha, beta, multiplier = (part[which] for part in (*interval, *slopes, T))
        found.append(LayerReport(lower, upper, alpha, beta, multiplier, int(view.exponent[which])))
    return tuple(found)
