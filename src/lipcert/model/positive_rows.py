"""Activations whose slopes grow without end: exp, and those that are defined for positive numbers only.

They have bounds on bounded intervals only, the latter on positive ones. Each is convex or concave, so its slopes are
between those at the ends. Outside of the domain values and slopes are NaN, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from lipcert.model.activation_table import CONCAVE, CONVEX, Pieces, Row
from lipcert.model.arrays import Array

_LARGEST: Final = 709.0
"""The exponential of this is a float; of larger numbers it is taken to be infinite."""


def _exp(v: Array) -> Array:
    return np.where(v > _LARGEST, np.inf, np.exp(np.minimum(v, _LARGEST)))


def _positive(value: Callable[[Array], Array], slope: Callable[[Array], Array], shape: int) -> Row:
    """A row for v > 0, for which it gets positive numbers only."""

    def inside(rule: Callable[[Array], Array], v: Array) -> Array:
        good = v > 0.0
        return np.where(good, rule(np.where(good, v, 1.0)), np.nan)

    return _row(lambda v: inside(value, v), lambda v: inside(slope, v), shape, 0.0)


def _row(value: Callable[[Array], Array], slope: Callable[[Array], Array], shape: int, above: float) -> Row:
    pieces = Pieces((), (shape,))
    return Row(
        value, lambda v, side: slope(v), lambda v, side: np.full_like(v, np.nan), pieces, smooth=False, above=above
    )


POSITIVE: Final[Mapping[str, Row]] = {
    # φ' = exp is increasing.
    "exp": _row(_exp, _exp, CONVEX, -np.inf),
    # φ' = -1/v² is increasing.
    "reciprocal": _positive(lambda v: 1.0 / v, lambda v: -1.0 / v / v, CONVEX),
    # φ' = -½ v^(-3/2) is increasing.
    "rsqrt": _positive(lambda v: 1.0 / np.sqrt(v), lambda v: -0.5 / v / np.sqrt(v), CONVEX),
    # φ' = ½ v^(-½) is decreasing.
    "sqrt": _positive(np.sqrt, lambda v: 0.5 / np.sqrt(v), CONCAVE),
    # φ' = 1/v is decreasing.
    "log": _positive(np.log, lambda v: 1.0 / v, CONCAVE),
}
