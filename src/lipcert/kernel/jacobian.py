"""Columns and entries of the Jacobian, proved; norms other than ℓ2.

Column j of W_N D_{N-1} … D_1 W_1 is that matrix times the unit vector e_j. So the steps that carry the ellipsoid of a
pass carry its own, from P_0 = e_j e_jᵀ, for all slopes D in their ranges at once: the column y has y yᵀ ≼ S, with
multipliers that need to serve this column only. Rows are columns of the transposed product. An entry is at most the
root of its place on the diagonal of S. A Lipschitz constant for ℓ1 inputs is the largest norm of a column.

In norms other than ℓ2 the ellipsoid of a pass, columns, and an interval for each entry tell a bound; the least counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from lipcert.kernel.arithmetic import up
from lipcert.kernel.enclosures import jacobian
from lipcert.kernel.norms import ellipsoid_above, induced_above
from lipcert.kernel.step import Image, activate, middles
from lipcert.kernel.sweep import Sweep
from lipcert.model.arrays import Array, Interval, Weight, dense
from lipcert.model.network import Network
from lipcert.suggest.multipliers import closed_form, improved

_NUMBERS: Final = 270_000
"""Numbers in a stack of matrices; more would leave the processor's caches."""
_WORK: Final = 1e10
"""Inputs times the cube of the widest layer up to which columns are looked at: some seconds."""
_SHARES: Final = (0.0625, 0.25, 1.0)
"""Of ClosedForm's multipliers, which suit the largest entries; smaller ones suit small entries, up to 2.5 times less.
The largest column is at most 3 % less with all of them than with the last, which takes half as long in wide layers."""


def columns(
    weights: Sequence[Weight], slopes: Sequence[Interval], measure: Callable[[Image], Array], shares: Sequence[float]
) -> Array:
    """The least that a measure says of each column of W_N D_{N-1} … D_1 W_1; slopes are (neurons,).

    Columns go through the layers together, once for each share, and again with multipliers better than the last.
    """
    rows, least = dense(weights[0]).T[..., None], []
    several = max(1, _NUMBERS // max(weight.shape[0] for weight in weights) ** 2)
    for some in np.split(rows, range(several, len(rows), several)):
        better, found = list[Array](), list[Array]()
        for first in (np.tile(some, (len(shares), 1, 1)), some):
            image, done = Image(None, np.zeros(len(first), dtype=int), first), []
            for k, (weight, ends) in enumerate(zip(weights[1:], slopes, strict=True)):
                S, exponent = image.block()
                alpha, beta = (np.broadcast_to(end, S.shape[:2]) for end in ends)
                share, size = np.repeat(shares, len(some))[:, None], np.trace(S, axis1=-2, axis2=-1)[:, None]
                T = better[k] * size if better else closed_form(S, *middles(alpha, beta), weight, None, share)
                done.append((activate(S, alpha, beta, np.broadcast_to(T, S.shape[:2])), exponent, size))
                image = Image(done[-1][0].P, exponent, weight)
            better = better or improved(image.axes()[-len(some) :], weights[1:], done)
            found.append(measure(image).reshape(len(first) // len(some), len(some), -1))
        least.append(np.fmin.reduce(np.concatenate(found)))
    return np.concatenate(least)


def entries(network: Network, slopes: Sequence[Interval]) -> Array:
    """At least the size of each entry of W_N D_{N-1} … D_1 W_1, (outputs, inputs), from the end with fewer of them."""
    weights, turned = [layer.weight for layer in network.layers], network.inputs > network.outputs
    if turned:
        weights, slopes = [weight.T for weight in weights[::-1]], slopes[::-1]
    least = columns(weights, slopes, lambda image: image.axes(), _SHARES)
    return least if turned else least.T


def norm_bounds(sweep: Sweep) -> Array:
    """At least the Lipschitz constant over each region of a sweep, (count,), in its norms."""
    found = sweep.bounds
    if sweep.norms.plain or sweep.network.coupled:
        return found
    found = np.fmin(found, interval_bounds(sweep))
    if sweep.norms.input.name == "l1" and sweep.network.inputs * float(max(sweep.network.sizes[1:])) ** 3 <= _WORK:
        found = np.fmin(found, [_by_columns(sweep, which) for which in range(sweep.count)])
    return np.where(sweep.empty, 0.0, found)


def interval_bounds(sweep: Sweep) -> Array:
    """The same by an interval for each entry of the Jacobian; exact where every slope is known."""
    found = induced_above(jacobian(sweep.network, sweep.slopes), sweep.norms)
    return np.broadcast_to(np.where(np.isnan(found), np.inf, found), (sweep.count,))


def _by_columns(sweep: Sweep, which: int) -> float:
    """The same for ℓ1 inputs and one region: the largest norm of a column."""
    slopes = [(alpha[which], beta[which]) for alpha, beta in sweep.slopes]

    def norm(image: Image) -> Array:
        S, exponent = image.block()
        return up(np.ldexp(ellipsoid_above(S, sweep.norms.output), exponent))

    # NaN stays NaN, and proves nothing
    return float(columns([layer.weight for layer in sweep.network.layers], slopes, norm, [1.0]).max())
