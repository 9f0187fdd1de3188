"""Entries of the Jacobian, proved: a nominal matrix and how far each entry can be from it; norms other than ℓ2.

For every choice of slopes within their ranges, W_N D_{N-1} … D_1 W_1 = U + Δ with

    |pᵀ Δ x|² ≤ (pᵀ A p)(xᵀ E x)      for all p and x,

so a single entry is at most |U_lj| + sqrt(A_ll E_jj). A is carried through the layers like the ellipsoid of the whole
network, but from zero; U follows it as a matrix; E adds up what each layer contributes.

Why: call "Δv is near u" that Δv Δvᵀ ≼ tA + uuᵀ/(1 - ε/t) for all t > ε, or what is the same, that
|pᵀΔv| ≤ |pᵀu| + sqrt(ε pᵀAp) for all p. Let the step from A to P be proved, that is

    N = [ C    M                    ]  ≽ 0,    C = D_lifted - D_h A D_h,  M = D_h A D_m,  T = lifted/g².
        [ Mᵀ   P - T - D_m A D_m    ]

Condition N is linear. For tA + uuᵀ in the place of A, tT in the place of T and tP + kkᵀ in the place of P it asks for
tN + [0; k][0; k]ᵀ - [D_h u; -D_m u][D_h u; -D_m u]ᵀ ≽ 0. With C z = D_h u and d = D_m u + Mᵀz the last vector is
N[z; 0] - [0; d], and by Cauchy and Schwarz k = d/sqrt(1 - zᵀCz/t) will do. So after the step Δz is near d, with
ε + zᵀCz in the place of ε. With u = U x, all of this is linear in x: zᵀCz is a quadratic form, and adds to E.

Rounding: if u is known up to f with |f_l| ≤ φ_l‖x‖, then nearness stays true with A + diag(nφ²)/τ and E + τI, for any
τ > 0. So every rounding error is handed over to A before the step that comes next.

In norms other than ℓ2 the ellipsoid of a sweep, this, and an interval for each entry tell a bound; the least counts.
The norm from p to q is at most ‖U‖ + sqrt(max zᵀAz · max xᵀEx) over the unit balls of x and of the dual of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    congruence,
    inflate,
    norm_above,
    raised,
    square_above,
    up,
)
from lipcert.kernel.enclosures import jacobian
from lipcert.kernel.norms import ellipsoid_above, induced_above
from lipcert.kernel.step import Step, activate
from lipcert.kernel.sweep import Sweep
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import NORMS

_TAU = 2.0**-52
"""Weight of rounding errors in E, whose size is about one; their weight in A is its inverse."""
_WIDEST, _MOST_INPUTS = 1100, 64
"""Neurons of a layer, and inputs, up to which single pairs are looked at: with more they take longer than a sweep."""


@dataclass(frozen=True, eq=False)
class Entries:
    """U (outputs, inputs) and A (outputs, outputs), E (inputs, inputs), all times 2**exponent, 4**exponent and 1."""

    nominal: Array
    spread: Array
    energy: Array
    exponent: int

    def bounds(self) -> Array:
        """At least the size of every entry, (outputs, inputs)."""
        reach = np.sqrt(np.outer(np.diagonal(self.spread), np.diagonal(self.energy)))
        return up(np.ldexp(inflate(np.abs(self.nominal) + inflate(reach, 3), 2), self.exponent))


def entries(
    network: Network, slopes: Sequence[tuple[Array, Array]], multipliers: Sequence[tuple[Array, int]]
) -> Entries:
    """Prove the entries of the Jacobian for proved slope ranges.

    ``multipliers`` are hints: the T of each hidden layer, positive where slopes are apart, relative to 4**exponent, and
    the exponent.
    """
    first, *others = (layer.weight for layer in network.layers)
    exponents = [exponent for _, exponent in multipliers] or [0]
    U, E = Near.weights(dense(first)).shifted(-exponents[0]), np.zeros((network.inputs, network.inputs))
    A = Approx(np.zeros((len(U.value),) * 2), symmetric=True).above()
    for k, (weight, slope, (T, exponent)) in enumerate(zip(others, slopes, multipliers, strict=True), 1):
        U, A, E = _activated(U, A, E, *slope, T)
        shift = exponent - exponents[min(k, len(exponents) - 1)]
        U = U.T.through(weight).T.shifted(shift)  # exact but for underflow, which is less than what is added to A
        A = Approx(np.ldexp(congruence(A, weight), 2 * shift), symmetric=True).above()
    return Entries(U.value, _wider(A, norm_above(U.error)), raised(E, np.full(len(E), _TAU)), exponents[-1])


def _activated(U: Near, A: Array, E: Array, alpha: Array, beta: Array, T: Array) -> tuple[Near, Array, Array]:
    """U, A, E after neurons with slopes in [α, β]."""
    allowed = norm_above(U.error) + 2.0**-52 * (len(A) + 8) * norm_above(U.size)
    for _ in range(8):
        wider = _wider(A, allowed)
        step = activate(wider[None], alpha[None], beta[None], T[None])
        q, off = _solved(wider, U.value, step)
        actual = norm_above(up(off + U.error))
        if (actual <= allowed).all():
            break
        allowed = np.maximum(allowed, 2.0 * actual)
    else:
        raise ProofFailed("the rounding errors of a layer could not be bounded")
    (active,), (m,) = step.active, step.m
    # zᵀCz = qᵀ(u - f) for q = D_h z, where f is the change of u
    gain = Approx(q.T) @ Approx.weight(U.value[active], off[active])
    U = (Near(U.value, off) + Near.of(wider[:, active]) @ q) * m[:, None]
    return U, step.P[0], (Approx(E) + gain).above(_TAU)


def _wider(A: Array, lost: Array) -> Array:
    """A with what rounding errors of rows of U, of at most these lengths, add to it."""
    return raised(np.array(A), inflate(len(A) * square_above(lost) / _TAU, 4))


def _solved(A: Array, U: Array, step: Step) -> tuple[Array, Array]:
    """D_h z for nearly C z = D_h u, and at least the change of u (n, inputs) that makes it exact."""
    (active,), (h,), (lifted,), off = step.active, step.h, step.lifted, np.zeros(U.shape)
    if not active.size:
        return np.zeros((0, U.shape[1])), off
    part, u = A[np.ix_(active, active)], U[active]
    C = np.diag(lifted) - h[:, None] * part * h
    factor = linalg.cho_factor(C, lower=True, overwrite_a=True, check_finite=False)
    q = h[:, None] * linalg.cho_solve(factor, h[:, None] * u, check_finite=False)
    pushed = (Near.of(lifted) / h)[:, None] * (Near.of(q) / h[:, None])  # h·h might underflow
    off[active] = (u - pushed + Near.of(part) @ q).size  # zero in exact arithmetic: row l of C z = D_h u, over h_l
    return q, off


def norm_bounds(sweep: Sweep, quick: bool = False) -> Array:
    """At least the Lipschitz constant over each region of a sweep, (count,), in its norms.

    Single pairs take about as long as the sweep; ``quick`` leaves them out where they hardly ever tell more.
    """
    found = sweep.bounds
    if sweep.norms.plain or sweep.network.coupled:
        return found
    found = np.fmin(found, interval_bounds(sweep))
    small = max(sweep.network.sizes) <= _WIDEST and sweep.moving <= _MOST_INPUTS and sweep.inputs is None
    if small and (not quick or sweep.norms.input.name == "l1"):
        pairs = np.array([_by_pairs(sweep, which) for which in range(sweep.count)])
        found = np.fmin(found, pairs)
    return np.where(sweep.empty, 0.0, found)


def interval_bounds(sweep: Sweep) -> Array:
    """The same by an interval for each entry of the Jacobian; exact where every slope is known."""
    found = induced_above(jacobian(sweep.network, sweep.slopes)[..., : sweep.moving], sweep.norms)
    return np.broadcast_to(np.where(np.isnan(found), np.inf, found), (sweep.count,))


def _by_pairs(sweep: Sweep, which: int) -> float:
    """At least ‖U‖ + sqrt(max zᵀAz · max xᵀEx) over one region."""
    slopes = [(alpha[which], beta[which]) for alpha, beta in sweep.slopes]
    steps = zip(sweep.views, sweep.steps, strict=True)
    given = [(view.widen(step.multipliers)[which], int(view.exponent[which])) for view, step in steps]
    try:
        found = entries(sweep.network, slopes, given)
    except (ProofFailed, np.linalg.LinAlgError):  # then the others count
        return float(np.inf)
    nominal = induced_above(Near.of(found.nominal), sweep.norms)
    out = ellipsoid_above(found.spread, sweep.norms.output)
    into = ellipsoid_above(found.energy, NORMS[sweep.norms.input.dual]())
    return float(up(np.ldexp(inflate(nominal + inflate(out * into, 2), 2), found.exponent)))
