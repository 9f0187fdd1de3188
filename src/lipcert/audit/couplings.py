"""Softmax rows and sums of products in ball arithmetic: values, Jacobians, lines, and what a step makes of them.

For Δz = MΔv + w with wᵀE⁻¹w ≤ ΔvᵀDΔv and Δv Δvᵀ ≼ S ≺ D⁻¹, Δz Δzᵀ ≼ M(S⁻¹ - D)⁻¹Mᵀ + E. Each unit adds its D = Q/τ
and its E = τ·weights, for any τ > 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit import balls as ba
from lipcert.audit.balls import Balls, Interval
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.couplings import Coupling

_TRIES = 24
_LEAST = arb(2) ** -300
"""Upper bounds of softmax values are at least this."""

exp = np.frompyfunc(lambda x: x.exp(), 1, 1)


def _differences(s: Balls) -> Balls:
    """s_j - s_l at (l, j)."""
    found = s[None, :] - s[:, None]
    found[np.diag_indices(len(s))] = arb(0)
    return found


def _apart(interval: Interval) -> Interval:
    """Between which numbers s_j - s_l lies."""
    low, high = (
        ba.lower(interval[0][None, :] - interval[1][:, None]),
        ba.upper(interval[1][None, :] - interval[0][:, None]),
    )
    low[np.diag_indices(len(low))] = high[np.diag_indices(len(low))] = arb(0)
    return low, high


def shares(apart: Interval) -> Interval:
    """Between which numbers p_l = 1/Σ_j exp(s_j - s_l) lies."""
    return ba.lower(1 / exp(apart[1]).sum(axis=1)), ba.upper(1 / exp(apart[0]).sum(axis=1))


def softmax(s: Balls) -> Balls:
    """Softmax values; at each point of the balls."""
    return np.asarray(1 / exp(_differences(s)).sum(axis=1))


def _jacobian(p: Balls) -> Balls:
    """D_p - ppᵀ."""
    return ba.plus_diagonal(-p[:, None] * p[None, :], p)


def rows_of(coupling: Coupling) -> Iterator[Array]:
    """The positions of each softmax row, the same in v and z."""
    for _, index in coupling.softmax_rows():
        yield from index


def values(coupling: Coupling, v: Balls, plain: Balls) -> Balls:
    """The results at points, those of the elementwise activations given."""
    parts = [plain, *(softmax(v[row]) for row in rows_of(coupling))]
    return np.concatenate([*parts, *((v[p.one] * v[p.two]).sum(axis=1) for p in coupling.products)])


def derivative(coupling: Coupling, v: Balls, slopes: Balls) -> Balls:
    """The Jacobian of the results at points, slopes of the elementwise activations given."""
    J = ba.zeros(coupling.width, coupling.size)
    J[np.arange(len(slopes)), np.arange(len(slopes))] = slopes
    for row in rows_of(coupling):
        J[np.ix_(row, row)] = _jacobian(softmax(v[row]))
    for product, place in coupling.sums():
        J[place[:, None], product.both] = v[product.partners]
    return J


def ranges(coupling: Coupling, interval: Interval, plain: Interval) -> Interval:
    """Between which numbers the results lie, those of the elementwise activations given."""
    parts = [plain, *(shares(_apart((interval[0][row], interval[1][row]))) for row in rows_of(coupling))]
    for p in coupling.products:
        corners = [x[p.one] * y[p.two] for x in interval for y in interval]
        low, high = ba.smaller.reduce([ba.lower(x) for x in corners]), ba.larger.reduce([ba.upper(x) for x in corners])
        parts.append((ba.lower(low.sum(axis=1)), ba.upper(high.sum(axis=1))))
    low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    return low, high


def lines(coupling: Coupling, interval: Interval) -> tuple[Balls, Interval]:
    """A and ends of z - Av for the results of softmax rows and sums: parallel lines around each."""
    c, first = ba.mid((interval[0] + interval[1]) / 2), coupling.plain
    far, A = ba.upper(ba.larger(interval[1] - c, c - interval[0])), ba.zeros(coupling.width - first, coupling.size)
    low, high = ba.zeros(len(A)), ba.zeros(len(A))
    for row in rows_of(coupling):
        apart, at = _apart((interval[0][row], interval[1][row])), _differences(c[row])
        p, within = softmax(c[row]), shares(apart)
        J = _jacobian(ba.hull(*within))
        J[np.diag_indices(len(row))] = arb(0)
        M, reach = ba.mid(J), ba.upper(ba.larger(apart[1] - at, at - apart[0]))
        middle = p - (M * at).sum(axis=1)
        M = ba.plus_diagonal(M, ba.mid(-M.sum(axis=1)))
        defect = ba.size(M.sum(axis=1)) * ba.sizes_within((interval[0][row], interval[1][row]))
        wide = ba.upper((ba.rad(J) * reach).sum(axis=1) + defect)
        ends = ba.lower(middle - wide), ba.upper(middle + wide)
        for k, place in enumerate(row - first):
            if ends[1][k] - ends[0][k] < within[1][k] - within[0][k]:
                A[place, row], low[place], high[place] = M[k], ends[0][k], ends[1][k]
            else:
                low[place], high[place] = within[0][k], within[1][k]
    for product, place in coupling.sums():
        one, two = product.one, product.two
        A[(place - first)[:, None], product.both] = c[product.partners]
        middle, wide = -(c[one] * c[two]).sum(axis=1), (far[one] * far[two]).sum(axis=1)
        low[place - first], high[place - first] = ba.lower(middle - wide), ba.upper(middle + wide)
    return A, (low, high)


@dataclass(frozen=True, eq=False)
class Around:
    """Values in an interval, and within reach²S and an error of a middle, if there is a reach."""

    S: Balls
    interval: Interval
    middle: Balls
    error: Balls
    reach: arb | None

    def ellipsoid(self, index: Array) -> Balls:
        """At least (v - middle)(v - middle)ᵀ."""
        assert self.reach is not None
        found = ba.added(ba.at_least(self.S[np.ix_(index, index)] * (self.reach * self.reach)), self.error[index])
        assert found is not None
        return found

    def differences(self, row: Array) -> Interval:
        """Between which numbers s_j - s_l lies."""
        low, high = _apart((self.interval[0][row], self.interval[1][row]))
        if self.reach is None:
            return low, high
        S, at = self.S[np.ix_(row, row)], _differences(self.middle[row])
        axes, lost = np.diagonal(S), self.error[row]
        wide = self.reach * ba.root(ba.positive(ba.upper(axes[:, None] + axes[None, :] - S - S.T)))
        wide = ba.upper(wide + lost[:, None] + lost[None, :])
        wide[np.diag_indices(len(row))] = arb(0)
        return -ba.known_smaller(-low, ba.upper(wide - at)), ba.known_smaller(high, ba.upper(at + wide))


Unit = tuple[Array, Balls, Array, Balls]
"""Coordinates, Q, results and their weights."""


def form(coupling: Coupling, around: Around, m: Balls, r: Balls, ends: Interval) -> tuple[Balls, list[Unit], Interval]:
    """M, the units, and where the results lie, within ends, for elementwise slopes in m ± r."""
    ba.require(all(x.is_finite() for end in around.interval for x in end), "values that are multiplied are not bounded")
    M, units = ba.zeros(coupling.width, coupling.size), list[Unit]()
    low, high = ends[0].copy(), ends[1].copy()
    for k in range(len(m)):
        M[k, k] = m[k]
        if r[k] > 0:
            units.append((np.array([k]), np.array([[ba.upper(r[k] * r[k])]]), np.array([k]), np.array([arb(1)])))
    for row in rows_of(coupling):
        within = shares(around.differences(row))
        most, p = ba.larger(within[1], _LEAST), softmax(around.middle[row])
        B = ba.plus_diagonal(-most[:, None] * most[None, :] / most.sum(), most)
        rho, M[np.ix_(row, row)] = _spread(p, within, most), _jacobian(p)
        if not rho < 0.5:
            rho, M[np.ix_(row, row)] = arb(1) / 2, B / 2
        units.append((row, ba.at_least(B * rho * rho), row, most))
        low[row], high[row] = ba.larger(low[row], within[0]), ba.smaller(high[row], within[1])
    for product, place in coupling.sums():
        for one, two, at in zip(product.one, product.two, place, strict=True):
            both, partners = np.concatenate([one, two]), np.concatenate([two, one])
            M[at, both] = around.middle[partners]
            units.append((both, _partners(around, both, partners), np.array([at]), np.array([arb(1)])))
    return M, units, (low, high)


def _spread(p: Balls, within: Interval, most: Balls) -> arb:
    """At least ‖D^-½(J(q) - J(p))D^-½‖, D = diag(most), for all q within two ends.

    With d = q - p it is D_d - d pᵀ - p dᵀ - d dᵀ, and a matrix of larger sizes has a larger norm.
    """
    d, top, scale = ba.positive(ba.upper(ba.larger(within[1] - p, p - within[0]))), ba.upper(p), ba.root(most)
    sizes = ba.diagonal(d) + d[:, None] * (top + d)[None, :] + top[:, None] * d[None, :]
    return ba.spectral(ba.upper(sizes / scale[:, None] / scale[None, :]))


def _partners(around: Around, both: Array, partners: Array) -> Balls:
    """Q ≽ d dᵀ for how far d the partners may be from their middles: by intervals or by the ellipsoid, what costs less.

    If |d_c| ≤ g_c, d dᵀ ≼ diag(g²/ω)Σω for every ω > 0.
    """
    S, c = around.S[np.ix_(both, both)], around.middle[partners]
    g = ba.upper(ba.larger(around.interval[1][partners] - c, c - around.interval[0][partners]))
    omega = ba.mid(g * ba.root(np.diagonal(S)))
    omega = omega + ba.larger.reduce(omega) * arb(2) ** -30 + _LEAST
    tried = [ba.diagonal(ba.upper(g * g / omega * omega.sum()))]
    tried += [] if around.reach is None else [around.ellipsoid(partners)]
    return tried[int(np.argmin([float(ba.positive((Q * S).sum())) for Q in tried]))]


def advance(S: Balls, M: Balls, units: list[Unit], hint: Balls | None) -> Balls:
    """At least M(S⁻¹ - D)⁻¹Mᵀ + E, with multipliers as in the hint or larger ones.

    For HᵀH ≽ D and N = HSHᵀ ≺ 1 it is MSMᵀ + MSHᵀ(1 - N)⁻¹HSMᵀ + E; with all τ times f it is f - N, and fE.
    """
    SM, axes = ba.dot(S, M.T), np.diagonal(S)
    units = [unit for unit in units if not (axes[unit[0]] == 0).all()]  # where nothing moves w is zero
    if not units:
        return ba.at_least(ba.dot(M, SM))
    coords = np.unique(np.concatenate([unit[0] for unit in units]))
    place, D, E = np.searchsorted(coords, np.arange(len(S) + 1)), ba.zeros(len(coords), len(coords)), ba.zeros(len(M))
    for index, Q, outputs, weights in units:
        tau: Any = None if hint is None else hint[outputs][0] / weights[0]
        if tau is None or not tau > 0:
            tau = ba.root(ba.positive((Q * S[np.ix_(index, index)]).sum() / weights.sum())) + _LEAST
        tau = tau.mid()
        D[np.ix_(place[index], place[index])] += Q / tau
        E[outputs] += tau * weights
    H = _root(ba.at_least(D))
    HS = ba.dot(H, S[coords])
    N, side = ba.dot(HS[:, coords], H.T), ba.dot(H, SM[coords])
    about = ba.floats(N)
    least = max(1.0, float(np.linalg.eigvalsh(about)[-1])) if np.isfinite(about).all() else 1.0
    for attempt in range(_TRIES):
        f = arb(least) * (arb(1) + (arb(2) ** (2 * attempt - 44) if attempt else 0))
        rest = ba.plus_diagonal(-N, f)
        if ba.positive_definite(rest):
            return ba.at_least(ba.plus_diagonal(ba.dot(M, SM) + ba.dot(side.T, ba.solve(rest, side)), ba.upper(f * E)))
    raise ProofFailed("no multipliers make the step of a layer valid")


def _root(D: Balls) -> Balls:
    """H with HᵀH ≽ D, a Cholesky factor of hardly more."""
    scale = ba.root(ba.mid(np.diagonal(D))) + _LEAST
    near, little = ba.floats(D / scale[:, None] / scale[None, :]), 2.0**-46
    for _ in range(8):
        try:
            L = np.linalg.cholesky(near + little * np.eye(len(D)))
        except np.linalg.LinAlgError:
            L = np.zeros(near.shape)
        H = ba.mid(np.frompyfunc(arb, 1, 1)(L.T) * scale[None, :])
        if ba.positive_definite(ba.dot(H.T, H) - D):
            return H
        little *= 16.0
    raise ProofFailed("the remainders of a layer with products or softmax could not be factored")
