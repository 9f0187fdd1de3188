"""The one linear matrix inequality behind LipSDP, GeoLIP and the Eclipse family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense


class SolverFailed(ProofFailed):
    """A solver did not reach its accuracy; the message says what it reported."""


@dataclass(frozen=True, eq=False)
class Inequality:
    """Maximise c subject to K + Σ_k x_g(k)·(a_k b_kᵀ + b_k a_kᵀ)/2 - c·YYᵀ ≽ 0, x ≥ 0 and, if given, budget·x ≤ 1.

    ``left`` and ``right`` (n, k) hold the a and b as columns, ``groups`` (k,) the variable that multiplies each,
    ``start`` (g,) values of x for which the matrix is positive definite at c = 0 and the budget is not used up.
    """

    constant: Array
    left: sparse.csc_array
    right: sparse.csc_array
    output: Array
    groups: Array
    start: Array
    budget: Array | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """The largest c found, the x (g,) that goes with it, and an x nearly as good that is farther from the edge."""

    c: float
    x: Array
    roomy: Array


def symmetric_sum(left: Any, right: Any, x: Array) -> Array:
    """Σ_k x_k (a_k b_kᵀ + b_k a_kᵀ)/2, dense."""
    product = dense((left * x) @ right.T)
    return 0.5 * (product + product.T)
