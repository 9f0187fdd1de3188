"""What a sweep proves in norms other than ℓ2: by its ellipsoid, by single pairs, by intervals; the least counts.

For a Jacobian near a nominal one, J = U + Δ with |zᵀΔx|² ≤ (zᵀAz)(xᵀEx) (:mod:`lipcert.kernel.jacobian`), the norm from
p to q is at most ‖U‖ + sqrt(max zᵀAz · max xᵀEx) over the unit balls of x and of the dual of q.
"""

from __future__ import annotations

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.induced import ellipsoid_above, induced_above
from lipcert.kernel.interval_arithmetic import jacobian
from lipcert.kernel.jacobian import Entries, entries
from lipcert.kernel.near import Near
from lipcert.kernel.rounding import inflate, up
from lipcert.kernel.sweep import Sweep
from lipcert.model.arrays import Array
from lipcert.model.norms import NORMS, Norms

_WIDEST, _MOST_INPUTS = 1100, 64
"""Neurons of a layer, and inputs, up to which single pairs are looked at: with more they take longer than a sweep."""

_CHEAP, _DEAR, _NEAR = 60_000, 4_000_000, 3.0
"""Entries of a Jacobian up to which it is formed from both ends; of larger ones only if the first came so near."""


def norm_bounds(sweep: Sweep, quick: bool = False) -> Array:
    """At least the Lipschitz constant over each region of a sweep, (count,), in its norms.

    Single pairs take about as long as the sweep; ``quick`` leaves them out where they hardly ever tell more.
    """
    found = sweep.bounds
    if sweep.norms.plain:
        return found
    found = np.fmin(found, interval_bounds(sweep))
    small = max(sweep.network.sizes) <= _WIDEST and sweep.moving <= _MOST_INPUTS and sweep.inputs is None
    if small and (not quick or sweep.norms.input.name == "l1"):
        pairs = np.array([_by_pairs(sweep, which) for which in range(sweep.count)])
        found = np.fmin(found, pairs)
    return np.where(sweep.empty, 0.0, found)


def interval_bounds(sweep: Sweep) -> Array:
    """The same by an interval for each entry of the Jacobian; exact where every slope is known."""
    found = _by_intervals(sweep, _CHEAP)
    near = found < _NEAR * sweep.bounds
    return np.fmin(found, _by_intervals(sweep, _DEAR)) if near.any() else found


def _by_intervals(sweep: Sweep, most: int) -> Array:
    found = induced_above(jacobian(sweep.network, sweep.slopes, most)[..., : sweep.moving], sweep.norms)
    return np.broadcast_to(np.where(np.isnan(found), np.inf, found), (sweep.count,))


def _by_pairs(sweep: Sweep, which: int) -> float:
    slopes = [(alpha[which], beta[which]) for alpha, beta in sweep.slopes]
    steps = zip(sweep.views, sweep.steps, strict=True)
    given = [(view.widen(step.multipliers)[which], int(view.exponent[which])) for view, step in steps]
    try:
        return around_nominal(entries(sweep.network, slopes, given), sweep.norms)
    except (ProofFailed, np.linalg.LinAlgError):  # then the others count
        return float(np.inf)


def around_nominal(found: Entries, norms: Norms) -> float:
    """At least ‖U‖ + sqrt(max zᵀAz · max xᵀEx)."""
    nominal = induced_above(Near.of(found.nominal), norms)
    out, into = ellipsoid_above(found.spread, norms.output), ellipsoid_above(found.energy, NORMS[norms.input.dual]())
    return float(up(np.ldexp(inflate(nominal + inflate(out * into, 2), 2), found.exponent)))
