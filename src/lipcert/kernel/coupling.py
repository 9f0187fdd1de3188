"""Layers whose activations couple values: sums of products and softmax rows, at points, on intervals, and in a step.

One inequality carries every step. Let Δz = MΔv + w, where wᵀE⁻¹w ≤ ΔvᵀDΔv for all Δv that can occur, D, E ≽ 0. If
Δv Δvᵀ ≼ S and D ≺ S⁻¹, then for every u, by Cauchy and Schwarz twice,

    u·Δz ≤ (uᵀM(S⁻¹ - D)⁻¹Mᵀu)^½ (Δvᵀ(S⁻¹ - D)Δv)^½ + (uᵀEu)^½ (wᵀE⁻¹w)^½ ≤ (uᵀPu)^½,    P = M(S⁻¹ - D)⁻¹Mᵀ + E.

For several w_i with their own D_i and E_i, sums of these will do. So each kind of activation only says what M, D and E
are; E is diagonal, and scaled by a multiplier τ > 0, D by its inverse:

* elementwise, slopes in m ± r:    M = m,    D = r²/τ,    E = τ
* sums of products z = Σ x_j y_j: the mean of two values of a factor is at c + d, so Δz = Σ c_x Δy + c_y Δx + Σ d_c Δ_c,
  where d_c is that of the partner of c. M has the centres; D = Q/τ for any Q ≽ d dᵀ, E = τ. The factors lie in an
  ellipsoid that knows more than intervals: Q = δ²S of the partners, or by their intervals Q = Σω·diag(g_c²/ω_c).
* softmax rows: on the way from one point to another the mean Jacobian J is symmetric, J1 = 0, and 0 ≼ J ≼ D_p for upper
  bounds p of the row's values. So J ≼ B = D_p - ppᵀ/Σp, which is D_p^½ΠD_p^½ for the projection Π along √p. For w =
  (J - M)Δv with M1 = 0 and ‖K‖ ≤ ρ, K = D_p^-½(J - M)D_p^-½ = KΠ: D = ρ²B/τ and E = τD_p, one multiplier a row. M = ½B
  has ρ = ½; the Jacobian at a point has ρ from how far the values may be from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import (
    Approx,
    Near,
    down,
    factor_above,
    factor_rows,
    inflate,
    raised,
    rounded_off,
    spectral_above,
    square_above,
    total,
    transpose,
    underflow,
    up,
)
from lipcert.kernel.neuron_bounds import shares
from lipcert.kernel.step import LEAST, MOST, middles
from lipcert.model.arrays import Array, Interval, Weight
from lipcert.model.couplings import Coupling, Products
from lipcert.suggest.multipliers import cholesky

_LEAST_SHARE = 2.0**-300
"""Upper bounds of softmax values are at least this, so that their roots and inverses stay floats."""
_FLOOR = 1e-5
"""Multipliers that are suggested are at least this share of the largest."""


def differences(v: Near) -> Near:
    """The differences s_j - s_l of rows (..., w), (..., l, j); those of a value to itself are zero."""
    found = Near(v.value[..., None, :], _error(v)[..., None, :]) - Near(v.value[..., :, None], _error(v)[..., :, None])
    return found.replace(np.eye(v.shape[-1], dtype=bool), 0.0)


def _error(v: Near) -> Array:
    return np.broadcast_to(v.error, v.shape)


def coupled_values(coupling: Coupling, v: Near, plain: Near) -> Near:
    """The results at points v (count, size), those of the elementwise activations given."""
    parts = [plain]
    for _, index in coupling.softmax_rows():
        apart = differences(v[..., index])
        p = Near.between(*shares(apart.below, apart.above))
        parts.append(Near(*(part.reshape(len(v.value), -1) for part in (p.value, p.error))))
    parts += [(v[..., product.one] * v[..., product.two]).sum(-1) for product in coupling.products]
    return _joined(parts)


def _joined(parts: list[Near]) -> Near:
    return Near(
        *(np.concatenate(ends, -1) for ends in zip(*((part.value, _error(part)) for part in parts), strict=True))
    )


def coupled_ranges(coupling: Coupling, interval: Interval, plain: Interval) -> Interval:
    """Where the results lie for values in intervals (count, size), those of the elementwise activations given."""
    lower, upper = interval
    ends = [plain]
    for _, index in coupling.softmax_rows():
        p = shares(*_apart(lower[..., index], upper[..., index]))
        ends.append((p[0].reshape(len(lower), -1), p[1].reshape(len(lower), -1)))
    for product in coupling.products:
        with np.errstate(invalid="ignore"):
            corners = [a[..., product.one] * b[..., product.two] for a in interval for b in interval]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)  # NaN stays NaN
        found = Near.between(down(low), up(high)).sum(-1)
        ends.append((found.below, found.above))
    low, high = (np.concatenate(parts, axis=-1) for parts in zip(*ends, strict=True))
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _apart(lower: Array, upper: Array) -> Interval:
    """Where s_j - s_l lies for s in intervals (..., w), (..., l, j)."""
    same = np.eye(lower.shape[-1], dtype=bool)
    with np.errstate(invalid="ignore"):
        low, high = down(lower[..., None, :] - upper[..., :, None]), up(upper[..., None, :] - lower[..., :, None])
    return np.where(same, 0.0, low), np.where(same, 0.0, high)


def derivative(coupling: Coupling, v: Near, slopes: Near) -> Near:
    """The Jacobian of the results at one point v (size,), slopes of the elementwise activations given, dense."""
    values, errors = np.zeros((coupling.width, coupling.size)), np.zeros((coupling.width, coupling.size))
    plain = np.arange(coupling.plain)
    values[plain, plain], errors[plain, plain] = slopes.value, _error(slopes)
    for _, index in coupling.softmax_rows():
        apart = differences(v[index])
        rows = _softmax_jacobian(Near.between(*shares(apart.below, apart.above)))
        at = index[:, :, None], index[:, None, :]
        values[at], errors[at] = rows.value, rows.error
    for product, place in coupling.sums():
        partners = v[product.partners]
        values[place[:, None], product.both], errors[place[:, None], product.both] = partners.value, _error(partners)
    return Near(values, errors)


def _softmax_jacobian(p: Near) -> Near:
    """D_p - ppᵀ of rows (count, w)."""
    outer = Near(p.value[:, :, None], _error(p)[:, :, None]) * Near(p.value[:, None, :], _error(p)[:, None, :])
    eye = np.eye(p.shape[-1])
    return Near(p.value[:, :, None] * eye, _error(p)[:, :, None] * eye) - outer


def coupled_lines(coupling: Coupling, interval: Interval) -> tuple[Weight, Near]:
    """A and rest with z = Av + rest for the results z of softmax rows and sums, for values v in an interval (size,).

    xy = ay + bx + (x - a)(y - b) - ab. A softmax value p(s)_l is p(c)_l + Σ_j J̄_lj(d_j - d(c)_j) for d_j = s_j - s_l
    and a mean J̄ of Jacobians, whose rows sum to zero; where that is wider than the range of p, the range serves.
    """
    lower, upper = interval
    middle, rests = 0.5 * lower + 0.5 * upper, [Near.of(np.zeros(0))]
    far, entries = up(np.maximum(upper - middle, middle - lower)), [tuple(np.zeros((3, 0)))]
    for _, index in coupling.softmax_rows():
        apart, at = _apart(lower[index], upper[index]), differences(Near.of(middle[index]))
        within, p = Near.between(*shares(*apart)), Near.between(*shares(at.below, at.above))
        J, n = _softmax_jacobian(within), index.shape[1]
        M = np.where(np.eye(n, dtype=bool), 0.0, J.value)
        rest = p - (M * at).sum(-1)
        M = M - M.sum(axis=-1)[:, :, None] * np.eye(n)
        lost = Near.of(M).sum(-1).size * np.maximum(np.abs(lower), np.abs(upper))[index]
        reach = np.maximum(apart[1] - at.below, at.above - apart[0])
        rest = Near(rest.value, inflate(rest.error + (_error(J) * reach).sum(axis=-1) + lost, n + 8))
        still = ~(rest.error < within.error)
        rest = rest.replace(still, within)
        parts = index[:, :, None], index[:, None, :], np.where(still[..., None], 0.0, M)
        entries.append(tuple(part.ravel() for part in np.broadcast_arrays(*parts)))
        rests.append(Near(rest.value.ravel(), rest.error.ravel()))
    for product, place in coupling.sums():
        a, b = middle[product.one], middle[product.two]
        rest = -(Near.of(a) * b).sum(-1)
        beside = (far[product.one] * far[product.two]).sum(axis=1)
        rests.append(Near(rest.value, inflate(rest.error + beside, product.one.shape[1] + 4)))
        parts = np.broadcast_to(place[:, None], product.both.shape), product.both, middle[product.partners]
        entries.append(tuple(np.ravel(part) for part in parts))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    shape = coupling.width - coupling.plain, coupling.size
    where = (rows - coupling.plain).astype(int), columns.astype(int)
    return sparse.csr_array((values, where), shape=shape), _joined(rests)


@dataclass(frozen=True, eq=False)
class Unit:
    """Parts w of Δz with one multiplier each: w is zero outside of ``outputs``, D = Q/τ on ``coords``, E = τ·weights.

    ``coords`` (count, c), Q (count, c, c), ``outputs`` and ``weights`` (count, e), ``base`` (count,) suggests τ.
    """

    coords: Array
    Q: Array
    outputs: Array
    weights: Array
    base: Array


@dataclass(frozen=True, eq=False)
class Form:
    """M and the units of a layer over a region, about Δv Δvᵀ ≼ ‖Δx‖²·4**exponent·S; ``ends`` are those of z."""

    M: Approx
    units: tuple[Unit, ...]
    size: int
    ends: Interval

    @property
    def base(self) -> Array:
        """Multipliers T, (width,), that are suggested; those of results that no unit has are zero."""
        T, largest = np.zeros(self.M.value.shape[0]), max((float(u.base.max()) for u in self.units), default=0.0) or 1.0
        for unit in self.units:
            T[unit.outputs] = np.clip(unit.base + _FLOOR * largest, LEAST, MOST)[:, None] * unit.weights
        return T

    def taken(self, T: Array) -> list[Array]:
        """The multiplier of each unit from those of its results; where these are no numbers, the suggested ones."""
        base, found = self.base, []
        for unit in self.units:
            told, safe = (each[unit.outputs].max(axis=1) / unit.weights.max(axis=1) for each in (T, base))
            found.append(np.clip(np.where((told > 0.0) & (told < np.inf), told, safe), LEAST, MOST))
        return found

    def factor(self, T: Array) -> tuple[Array, Array, Array]:
        """H (a, a), the coordinates it is about, and E's diagonal, (width,): Σ_i D_i ≼ HᵀH there.

        D is factored over powers of two, which bring its diagonal near one; what its sums have lost is added.
        """
        taus = self.taken(T)
        E, coords = np.zeros(self.M.value.shape[0]), np.unique(np.concatenate([u.coords.ravel() for u in self.units]))
        place, a = np.searchsorted(coords, np.arange(self.size + 1)), len(coords)
        diagonal = np.zeros(a)
        for unit, tau in zip(self.units, taus, strict=True):
            E[unit.outputs] += up(tau[:, None] * unit.weights)
            entries = np.einsum("kcc->kc", unit.Q) / tau[:, None]
            diagonal += np.bincount(place[unit.coords].ravel(), entries.ravel(), minlength=a)
        usable = np.isfinite(diagonal) & (diagonal > 0.0)
        power = np.where(usable, np.round(0.5 * np.log2(np.where(usable, diagonal, 1.0))), 0.0).astype(int)
        D, rows, count = np.zeros((a, a)).ravel(), np.zeros(a), 0
        for unit, tau in zip(self.units, taus, strict=True):
            at, shift = place[unit.coords], power[place[unit.coords]]
            entries = np.ldexp(unit.Q, -(shift[:, :, None] + shift[:, None, :])) / tau[:, None, None]
            D += np.bincount((at[:, :, None] * a + at[:, None, :]).ravel(), entries.ravel(), minlength=D.size)
            rows += np.bincount(at.ravel(), np.abs(entries).sum(axis=-1).ravel(), minlength=a)
            count += len(tau)
        L = factor_above(raised(D.reshape(a, a), rounded_off(rows, count + len(self.units) + 8)))
        return np.ldexp(L.T, power), coords, E


def form(
    coupling: Coupling,
    S: Array,
    exponent: int,
    interval: Interval,
    slopes: Interval,
    plain: Interval,
    center: Near | None,
    radius: float,
) -> Form:
    """What one layer makes of Δv Δvᵀ ≼ ‖Δx‖²·4**exponent·S, (m, m), for values in an interval (m,).

    ``slopes`` and ``plain`` are those of the elementwise activations, and where their results lie. If there are values
    at a ``center``, all values are e + d from there, eeᵀ ≼ radius²·4**exponent·S, and d their errors.
    """
    lower, upper = interval
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("values that are multiplied, or those of a softmax, are not bounded; try a smaller region")
    local = center is not None
    middle = Near.of(0.5 * lower + 0.5 * upper) if center is None else center
    around = _Around(S, float(up(np.ldexp(radius, exponent))) if local else np.inf, middle, lower, upper)
    m, r = middles(*slopes)
    entries: list[tuple[Array, ...]] = [(np.arange(len(m)), np.arange(len(m)), m, np.zeros(len(m)))]
    open_ = np.flatnonzero(r > 0.0)
    units = []
    if open_.size:
        one, axes = np.ones((len(open_), 1)), np.sqrt(np.diagonal(S)[open_])
        units.append(Unit(open_[:, None], square_above(r[open_])[:, None, None], open_[:, None], one, r[open_] * axes))
    ranges = coupled_ranges(coupling, (lower[None], upper[None]), (plain[0][None], plain[1][None]))
    low, high = ranges[0][0], ranges[1][0]
    for _, index in coupling.softmax_rows():
        unit, M, p = _softmax(around, index)
        units.append(unit)
        low[index], high[index] = np.maximum(low[index], p[0]), np.minimum(high[index], p[1])
        at = np.broadcast_arrays(index[:, :, None], index[:, None, :])
        entries.append(tuple(part.ravel() for part in (*at, M.value, _error(M))))
    for product, place in coupling.sums():
        units.append(_sums(around, product, place))
        parts = np.broadcast_to(place[:, None], product.both.shape), product.both, middle.value[product.partners]
        entries.append(tuple(part.ravel() for part in (*parts, np.zeros(product.both.shape))))
    rows, columns, *sides = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    value, error = (sparse.csr_array((side, (rows, columns)), shape=(coupling.width, len(lower))) for side in sides)
    return Form(Approx.weight(value, error), tuple(units), coupling.size, (low, high))


@dataclass(frozen=True, eq=False)
class _Around:
    """Where values are: e + d from a middle with eeᵀ ≼ reach²S and |d| at most its error, and in an interval."""

    S: Array
    reach: float
    middle: Near
    lower: Array
    upper: Array

    def ellipsoid(self, index: Array) -> Array:
        """Q ≽ (v - c)(v - c)ᵀ for values (count, k), c the middle as computed, (count, k, k)."""
        S = self.S[index[:, :, None], index[:, None, :]]
        root = np.full(index.shape, self.reach)
        return Approx(Approx(S, symmetric=True).scaled(root, root).above()).sum_above(_error(self.middle)[index])

    def differences(self, index: Array) -> Interval:
        """Where s_j - s_l lies for rows (count, w)."""
        low, high = _apart(self.lower[index], self.upper[index])
        if not np.isfinite(self.reach):
            return low, high
        S = self.S[index[:, :, None], index[:, None, :]]
        diagonal = np.einsum("kll->kl", S)
        ends = diagonal[:, :, None] + diagonal[:, None, :]
        squares = np.maximum(ends - 2.0 * S, 0.0) + rounded_off(ends + 2.0 * np.abs(S), 6)
        apart = differences(self.middle[index])
        width = up(self.reach * up(np.sqrt(up(squares))))
        same = np.eye(index.shape[1], dtype=bool)
        low, high = np.fmax(low, down(apart.below - width)), np.fmin(high, up(apart.above + width))
        return np.where(same, 0.0, low), np.where(same, 0.0, high)


def _softmax(around: _Around, index: Array) -> tuple[Unit, Near, Interval]:
    """Softmax rows at positions (count, w): their unit, M, and where their values are."""
    ends = shares(*around.differences(index))
    pu = np.maximum(ends[1], _LEAST_SHARE)
    half = _centred(pu) * 0.5
    apart = differences(around.middle[index])
    p = Near.between(*shares(apart.below, apart.above))
    rho = _spread(p, ends, pu)
    near = rho < 0.5
    rho = np.where(near, rho, 0.5)
    jacobian = _softmax_jacobian(p)
    M = half.replace(near[:, None, None], jacobian)
    exact = _centred(pu) * square_above(rho)[:, None, None]
    lost = total(rounded_off(np.abs(exact.value).sum(-1), 4), _error(exact).sum(-1))
    Q = raised(0.5 * (exact.value + transpose(exact.value)), lost)
    S = around.S[index[:, :, None], index[:, None, :]]
    base = np.sqrt(np.maximum((Q * S).sum(axis=(1, 2)), 0.0) / pu.sum(axis=1))
    return Unit(index, Q, index, pu, base), M, ends


def _centred(p: Array) -> Near:
    """B = D_p - ppᵀ/Σp for rows (count, w)."""
    exact = Near.of(p)
    share = exact / exact.sum(-1)[:, None]
    return Near.of(p[:, :, None] * np.eye(p.shape[1])) - exact[:, :, None] * share[:, None, :]


def _spread(p: Near, ends: Interval, pu: Array) -> Array:
    """At least ‖D_pu^-½ (J(q) - J(p)) D_pu^-½‖ for all softmax values q between two ends, (count,).

    With d = q - p, J(q) - J(p) = D_d - d pᵀ - p dᵀ - d dᵀ; a matrix of larger sizes has a larger norm.
    """
    d = up(np.maximum(up(ends[1] - p.below), up(p.above - ends[0])))
    d, top = np.maximum(d, 0.0), np.maximum(p.above, 0.0)
    sizes = d[:, :, None] * np.eye(d.shape[1]) + d[:, :, None] * (top + d)[:, None, :] + top[:, :, None] * d[:, None, :]
    root = np.sqrt(pu)
    return spectral_above(inflate(sizes / root[:, :, None] / root[:, None, :], 16))


def _sums(around: _Around, product: Products, place: Array) -> Unit:
    """Sums of products: w = Σ_c d_c Δv_c over all factors c, d_c how far the partner's mean is from its middle."""
    both, partners = product.both, product.partners
    S, c = around.S[both[:, :, None], both[:, None, :]], around.middle.value[partners]
    g = up(np.maximum(around.upper[partners] - c, c - around.lower[partners]))
    variance = np.einsum("kcc->kc", S)
    omega = g * np.sqrt(variance)
    omega = omega + 1e-9 * omega.max(axis=1, keepdims=True) + underflow(1.0)
    box = inflate(g / omega * g * omega.sum(axis=1, keepdims=True), both.shape[1] + 8)
    Q, cost = box[:, None] * np.eye(both.shape[1]), np.sqrt((box * variance).sum(axis=1))
    if np.isfinite(around.reach):  # the intervals of the factors, or their ellipsoid
        ellipsoid = around.ellipsoid(partners)
        least = np.sqrt(np.maximum((ellipsoid * S).sum(axis=(1, 2)), 0.0))
        Q, cost = np.where((least < cost)[:, None, None], ellipsoid, Q), np.fmin(cost, least)
    if not np.isfinite(Q).all():
        raise ProofFailed("values that are multiplied are too large for floating point; try a smaller region")
    return Unit(both, Q, place[:, None], np.ones((len(place), 1)), cost)


def coupled_step(S: Array, told: Form, T: Array) -> Array:
    """P̂ with P ≼ P̂, (width, width), from Δv Δvᵀ ≼ S, (m, m), with multipliers near the hint T, or safer ones.

    With HᵀH ≽ D and N ≽ H S Hᵀ, C = I - g²N, and any floats L, X with L Lᵀ ≈ C and L X ≈ g H S Mᵀ, the matrix
    [C gHSMᵀ; gMSHᵀ XᵀX] is [L Xᵀ][L Xᵀ]ᵀ + Δ, where Δ has row sums ε and δ. So with λ = 1 + max ε

        MSHᵀ(λ/g² - HSHᵀ)⁻¹HSMᵀ ≼ XᵀX + D_δ,    P = MSMᵀ + XᵀX + D_δ + (λ/g²)E.
    """
    exact, M = Approx(S, symmetric=True), told.M
    middle = M @ exact @ M.T
    if not told.units:
        return middle.above()
    factor, coords, E = told.factor(T)
    H = Approx(factor)
    rows = H @ Approx(np.ascontiguousarray(S[coords]))
    N = (H @ Approx(S[np.ix_(coords, coords)], symmetric=True) @ H.T).above()
    cross, ones, g = rows @ M.T, np.ones(len(coords)), 1.0
    for attempt in range(40):
        C = Approx.diagonal(ones) - Approx(np.array(N), symmetric=True).scaled(g * ones, g * ones)
        (L,), (good,) = cholesky(C.value[None])
        if good:
            break
        if not np.isfinite(N).all():
            raise ProofFailed("the ellipsoid of a layer is not finite; try a smaller region")
        if attempt == 0:
            largest = float(np.linalg.eigvalsh(N)[-1])
            g = min(1.0, 1.0 / np.sqrt(largest)) if largest > 0.0 else 1.0
        g *= 1.0 - min(2.0 ** (attempt - 30), 0.25)
    else:
        raise ProofFailed("no multipliers near the hints make the step of a layer valid")
    cross = cross.scaled(g * ones, np.ones(cross.value.shape[-1]))
    X = linalg.solve_triangular(L, cross.value, lower=True, check_finite=False)
    off = cross - Approx(L) @ Approx(X)
    lifted = up(1.0 + total(factor_rows(C, L), off.rows()).max())
    P = middle + Approx(X).T.gram()
    return P.above(up(off.T.rows() + (Near.of(lifted * np.ones(())) / g / g * E).above))
