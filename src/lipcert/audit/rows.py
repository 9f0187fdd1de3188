"""Bounds over an ℓ2 ball: of a row of the outputs, by a parabola at each neuron or by a dual bound; of the Jacobian.

The equations of parabolas are those of :mod:`lipcert.kernel.quadratic_relaxation`, those of the Jacobian to second
order those of :mod:`lipcert.kernel.second_order_jacobian`; here every symbol is an array of balls, or a matrix of
numbers that is at least the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    Balls,
    Interval,
    at_least,
    balls,
    diagonal,
    dot,
    floats,
    image,
    larger,
    largest_eigenvalue,
    mid,
    norm,
    plus_diagonal,
    positive,
    positive_definite,
    rad,
    root,
    size,
    smaller,
    solve,
    upper,
    zeros,
)
from lipcert.audit.engine import advance, centre_values, slopes_on, suggested_lines, views_on
from lipcert.audit.model import Inputs, Model, fewer
from lipcert.audit.remainder import remainder, secants
from lipcert.definitions.functions import Function, ball
from lipcert.errors import ProofFailed
from lipcert.kernel.hints import Curved
from lipcert.model.arrays import Array

_LARGEST = 400
_CLOSE = 1e-3
"""An end of an interval is moved out to this share of the other one: dual bounds were searched for that."""
_CELLS = 8
"""Cells that the interval of a curved neuron is cut into."""


@dataclass(frozen=True, eq=False)
class Place:
    """A network over a ball, and what it does at the centre: v̂ and at least |v - v̂| of every layer."""

    model: Model
    inputs: Inputs
    clipped: bool
    centers: Sequence[tuple[Balls, Balls]]
    known: Sequence[Interval]

    @property
    def radius(self) -> Any:
        if not self.inputs.plain:
            raise ProofFailed("bounds of rows to second order are about ℓ2 balls only")
        return self.inputs.radius

    @cached_property
    def narrow(self) -> tuple[Model, Inputs, arb]:
        """The model and its ball on fewer inputs, where the first layer is narrower."""
        return fewer(self.model, self.inputs)

    def split(self, gradient: Balls) -> tuple[Balls, arb]:
        """A gradient q and a number c with g·d ≤ q·d + c over the region: if it is clipped, the box bounds a part."""
        if not self.clipped:
            return gradient, arb(0)
        kept = self.inputs.shared(gradient[None])
        return kept[0], self.inputs.over_box(gradient[None] - kept)[0]

    def over_ball(self, g: Balls, B: Balls, top: arb, mu: arb) -> arb:
        """At least max of g·d + ½dᵀHd over the ball, for H = W_1ᵀBW_1 and top ≥ λmax(H): ½(gᵀ(μ - H)⁻¹g + μδ²).

        With rest = g - (μ - H)y for any y, gᵀ(μ - H)⁻¹g = y·g + y·rest + restᵀ(μ - H)⁻¹rest.
        """
        if not top < mu:
            return arb.pos_inf()
        weight, W = self.model[0].weight, floats(self.model[0].weight)
        try:
            guess = np.linalg.solve(float(mu) * np.eye(W.shape[1]) - W.T @ floats(B) @ W, floats(g))
        except np.linalg.LinAlgError:
            guess = np.zeros(W.shape[1])
        y = balls(np.where(np.isfinite(guess), guess, 0.0))
        rest = g - y * mu + dot(dot(B, dot(weight, y)), weight)
        length = norm(size(rest))
        total = dot(y, (g + rest)[:, None])[0] + length * length / (mu - top) + mu * self.radius * self.radius
        return (total / 2).upper()


def by_parabolas(place: Place, spreads: Sequence[Balls], hints: Any) -> arb:
    """At least max of row·v_N over the ball by parabolas, for any hints.

    row·φ(v) ≤ g·v + ½b(v - c)² + h for each neuron, c its value at the centre. Hints with ``multipliers`` bound the
    squares of all layers by one form, others those of each layer: Σ bΔv² ≤ ‖Δx‖² λmax(B^½ S B^½) for its ellipsoid S.
    """
    model, radius = place.model, place.radius
    row = balls(hints.row)
    total, row = (row * model[-1].bias).sum(), dot(row, model[-1].weight)
    every: list[Balls] = []
    for index in reversed(range(len(model) - 1)):
        layer = model[index]
        if {np.shape(hints.slopes[index]), np.shape(hints.bends[index])} != {(layer.size,)}:
            raise ProofFailed("the hints are for other layers")
        g, bends = balls(hints.slopes[index]), balls(hints.bends[index])
        centers = zip(*place.centers[index], strict=True)
        for k, (view, (c, error)) in enumerate(
            zip(views_on(layer.functions, place.known[index]), centers, strict=True)
        ):
            alpha, beta = view.slopes()
            if alpha == beta:
                g[k], bends[k] = row[k] * alpha, arb(0)
                total += row[k] * (view.arcs[0].first[0] - alpha * view.low)
            else:  # |(v - c)² - (v - ĉ)²| ≤ (2|v - ĉ| + e)e where |c - ĉ| ≤ e
                far = larger(abs(view.low - c).upper(), abs(view.high - c).upper())
                told = [g[k] * c, g[k], bends[k] / 2]
                ((_, height),) = remainder(view, c, [(0, row[k], told)], _CELLS, sharp=True)
                total += height + abs(bends[k]) * (2 * far + error) * error / 2
        total += (g * layer.bias).sum()
        every.insert(0, bends)
        row = dot(g, layer.weight)
    gradient, boxed = place.split(mid(row))
    total += (row * place.inputs.center).sum() + (rad(row) * place.inputs.sides).sum() + boxed
    if hasattr(hints, "multipliers"):
        B, top = _together(place, every, hints.multipliers)
    else:
        tops = [_top(S, positive(bends)) for S, bends in zip(spreads, every, strict=True)]
        total += radius * radius * sum(tops[1:], arb(0)) / 2
        B, top = diagonal(positive(every[0])), tops[0]
    if top.is_zero() and not np.any(B != 0):
        return (total + radius * norm(gradient)).upper()
    return (total + place.over_ball(gradient, B, top, ball(float(hints.mu)))).upper()


def _top(S: Balls, bends: Balls) -> arb:
    """At least λmax(B^½ S B^½)."""
    some = np.flatnonzero(bends > 0)
    scale = root(bends[some])
    return largest_eigenvalue(at_least(scale[:, None] * S[np.ix_(some, some)] * scale))


def _together(place: Place, bends: Sequence[Balls], multipliers: Sequence[Array]) -> tuple[Balls, arb]:
    """B of the first layer, and at least λmax(WᵀBW) and zero."""
    model = place.model
    if [np.shape(T) for T in multipliers] != [(layer.size,) for layer in model[:-2]]:
        raise ProofFailed("the hints are for other layers")
    B = diagonal(bends[-1])
    for index in reversed(range(len(model) - 2)):
        neurons = zip(model[index].functions, *place.known[index], *place.centers[index], strict=True)
        low, high = np.array([secants(*neuron) for neuron in neurons], dtype=object).T
        W = model[index + 1].weight
        step = advance(image(W.T, B), (low, high), balls(multipliers[index]), signed=True)
        B = at_least(plus_diagonal(step, bends[index]))
    narrow, _, stretch = place.narrow
    return B, (largest_eigenvalue(image(narrow[0].weight.T, B)) * stretch * stretch).upper()


class DualBound:
    """The dual bound: products of affine functions of y = (1, the input, open neurons) that are not negative, or zero.

    If -row·v_N + t - Σ λq - λ_0(1 - ‖·‖²) is a positive definite form of y, then row·v_N < t all over the ball.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval], cuts: Sequence[Any] = ()) -> None:
        if not inputs.plain:
            raise ProofFailed("dual bounds are about balls of the ℓ2 norm only")
        parts = [(low.copy(), high.copy()) for low, high in known]
        for layer_, neuron, side in cuts:
            low, high = parts[layer_]
            if side > 0:
                low[neuron] = larger(low[neuron], arb(0))
            else:
                high[neuron] = smaller(high[neuron], arb(0))
        found = [views_on(layer.functions, ends) for layer, ends in zip(model[:-1], parts, strict=True)]
        slopes, views = [slopes_on(some) for some in found], [np.array([*some, None])[:-1] for some in found]
        opens = [np.flatnonzero(~(alpha == beta)) for alpha, beta in slopes]
        self.count = len(inputs.center)
        self.size = 1 + self.count + sum(map(len, opens))
        if self.size > _LARGEST:
            raise ProofFailed("the dual bound is too large for ball arithmetic; verify without exact")
        self.left: list[Balls] = []
        self.right: list[Balls] = []
        self.free: list[bool] = []
        self.sizes: list[Balls] = []
        z = np.hstack([inputs.center[:, None], diagonal(np.full(self.count, inputs.radius, dtype=object))])
        z = np.hstack([z, zeros(self.count, self.size - 1 - self.count)])
        at = 1 + self.count
        for index, (layer, some) in enumerate(zip(model[:-1], opens, strict=True)):
            v, z = self._through(model, index, z), zeros(layer.size, self.size)
            for k in np.setdiff1d(np.arange(layer.size), some):
                slope, view = slopes[index][0][k], views[index][k]
                z[k] = _shifted(slope * v[k], view.arcs[0].first[0] - slope * view.low)
            z[some, at + np.arange(len(some))] = arb(1)
            self.sizes.append(balls(np.zeros(len(some))))
            self.sizes[-1][:] = [larger(view.top(1, arb(0)), view.top(-1, arb(0))) for view in views[index][some]]
            at += len(some)
            bent = np.array([_kinked(layer.functions[k], views[index][k]) for k in some], dtype=bool)
            self._kinks([(layer.functions[k], views[index][k], v[k], z[k]) for k in some[bent]])
            self._lines(layer, some[~bent], views[index], slopes[index], v, z)
            cut = sorted({neuron for place, neuron, _ in cuts if place == index})
            self._add([(_shifted(v[k], -parts[index][0][k]), _shifted(-v[k], parts[index][1][k])) for k in cut])
        self.output = self._through(model, len(model) - 1, z)

    def below(self, row: Array, multipliers: Array, outer: float, limit: arb) -> bool:
        """Whether row·v_N is proved to be less than a limit."""
        if np.shape(multipliers) != (len(self.free),):
            raise ProofFailed("the multipliers are not those of the products")
        weights = np.where(np.array(self.free, dtype=bool), balls(multipliers), positive(balls(multipliers)))
        ring = positive(ball(float(outer)))
        M = zeros(self.size, self.size)
        if self.left:
            X = dot((weights[:, None] * np.array(self.left, dtype=object)).T, np.array(self.right, dtype=object))
            M = (X + X.T) * ball(-0.5)
        c = dot(balls(row), self.output)
        M[0] -= c / 2
        M[:, 0] -= c / 2
        M[0, 0] += limit - ring
        inner = 1 + np.arange(self.count)
        M[inner, inner] += ring
        sizes = np.concatenate([balls(np.ones(1 + self.count)), *self.sizes])  # at least |y|
        M, lost = mid(M), (sizes * dot(rad(M), sizes)).sum()
        M[0, 0] -= lost
        scale = root(np.array([x.mid() if x > 0 else arb(1) for x in np.diagonal(M)], dtype=object))
        return positive_definite(M / scale[:, None] / scale)

    @staticmethod
    def _through(model: Model, index: int, z: Balls) -> Balls:
        v = dot(model[index].weight, z)
        v[:, 0] += model[index].bias
        return v

    def _add(self, pairs: Sequence[tuple[Balls, Balls]], free: bool = False) -> None:
        self.left += [one for one, _ in pairs]
        self.right += [two for _, two in pairs]
        self.free += [free] * len(pairs)

    def _kinks(self, neurons: Sequence[tuple[Function, Any, Balls, Balls]]) -> None:
        """With p = φ(v) - αv and m = βv - φ(v): p(t - p) ≥ 0, m(b - m) ≥ 0, pm = 0, t = (β - α)high, b = (β - α)low."""
        groups: list[list[tuple[Balls, Balls]]] = [[], [], []]
        for f, view, v, z in neurons:
            alpha, beta = f.kink(view.low, view.high)
            p, m = z - alpha * v, beta * v - z
            top, bottom = ((beta - alpha) * view.high).upper(), ((beta - alpha) * view.low).lower()
            top, bottom = larger(top, (-bottom * _CLOSE).upper()), smaller(bottom, (-top * _CLOSE).lower())
            for group, pair in zip(groups, ((p, _shifted(-p, top)), (m, _shifted(-m, bottom)), (p, m)), strict=True):
                group.append(pair)
        for group, free in zip(groups, (False, False, True), strict=True):
            self._add(group, free)

    def _lines(self, layer: Any, some: Array, views: Any, slopes: Interval, v: Balls, z: Balls) -> None:
        """Between two lines and two ends, and with secants from the middle of the interval that are slopes."""
        ends = zeros(layer.size), zeros(layer.size)
        for k in some:
            ends[0][k], ends[1][k] = views[k].low, views[k].high
        down, up = suggested_lines(layer, ends, slopes)
        unit = _shifted(zeros(self.size), arb(1))
        groups: list[list[tuple[Balls, Balls]]] = [[], [], [], [], []]
        for k in some:
            view, low, high = views[k], ends[0][k], ends[1][k]
            above = _shifted(up[k] * v[k] - z[k], view.top(1, up[k]))
            below = _shifted(z[k] - down[k] * v[k], view.top(-1, -down[k]))
            middle = ball(float((low + high) / 2))
            middle = smaller(larger(middle, low), high)
            moved, risen = _shifted(v[k], -middle), _shifted(z[k], -layer.functions[k].value(middle))
            alpha, beta = slopes[0][k], slopes[1][k]
            pairs = (below, above), (below, unit), (above, unit), (_shifted(v[k], -low), _shifted(-v[k], high))
            for group, pair in zip(groups, (*pairs, (risen - alpha * moved, beta * moved - risen)), strict=True):
                group.append(pair)
        for group in groups:
            self._add(group)


def _shifted(row: Balls, x: arb) -> Balls:
    found = row.copy()
    found[0] = found[0] + x
    return found


def _kinked(f: Function, view: Any) -> bool:
    """Whether a neuron is α·v up to 0 and β·v from there on, α < β."""
    try:
        alpha, beta = f.kink(view.low, view.high)
    except ProofFailed:
        return False
    return bool(alpha < beta)


def stays_negative(model: Model, inputs: Inputs, known: Sequence[Interval], row: Array, leaves: Sequence[Any]) -> bool:
    """Whether row·v_N < 0 all over the ball by dual bounds, on both sides of neurons where hints say so."""

    def covered(cuts: tuple[Any, ...]) -> bool:
        below = [leaf for leaf in leaves if tuple(leaf.cuts)[: len(cuts)] == cuts]
        if not below:
            return False
        for leaf in below:
            if len(leaf.cuts) == len(cuts):
                return DualBound(model, inputs, known, cuts).below(row, leaf.multipliers, leaf.ball, arb(0))
        layer, neuron, _ = below[0].cuts[len(cuts)]
        return all(covered((*cuts, (layer, neuron, side))) for side in (-1, 1))

    return covered(())


_LEAST_SHARE = 2.0**-20


def prove_curved(model: Model, inputs: Inputs | None, hints: Curved) -> arb:
    """At least the Lipschitz constant over a ball."""
    if inputs is None or not inputs.plain or len(model) < 2:
        raise ProofFailed("bounds to second order are about ℓ2 balls, and networks with a hidden layer")
    model, inputs, stretch = fewer(model, inputs)
    return (_Curved(model, inputs, hints).bound() * stretch).upper()


class _Curved:
    def __init__(self, model: Model, inputs: Inputs, hints: Curved) -> None:
        sizes, outputs = [layer.size for layer in model[:-1]], model[-1].size
        count = sum(sizes)
        shapes = (hints.slopes.shape, hints.balance.shape, hints.mix.shape, hints.weights.shape)
        if shapes != ((3, count), (count,), (outputs, outputs), (6,)):
            raise ProofFailed(f"the hints to second order are not for this network: their shapes are {shapes}")
        self.model, self.inputs, self.ends = model, inputs, np.cumsum([0, *sizes])
        self.r = inputs.radius
        self.sigma, self.tau, self.psi = balls(hints.slopes)
        self.t = balls(np.clip(hints.balance, 2.0**-40, 2.0**40))
        *weights, share = np.clip(hints.weights, _LEAST_SHARE, 2.0**20).tolist()
        self.c1, self.c2, self.a2, self.a3, self.a = map(ball, weights)
        self.share = ball(min(share, 1.0 - _LEAST_SHARE))
        self.rest, self.a1 = 1 - self.c1 - self.c2, 1 - self.a2 - self.a3
        if not (self.rest > 0 and self.a1 > 0):
            raise ProofFailed("shares of the hints to second order do not leave anything for the other terms")
        # [B | K] for all hidden layers, and [J0 | G] below them: what Bu + Kf and J0 u + Gf are made of
        self.d = model[0].weight.shape[1]
        rows = np.hstack([model[0].weight, zeros(sizes[0], count)])
        blocks = [rows]
        for k, layer in enumerate(model[1:]):
            own = slice(self.ends[k], self.ends[k + 1])
            rows = dot(layer.weight, self.sigma[own, None] * rows)
            rows[:, self.d + own.start : self.d + own.stop] += layer.weight
            blocks.append(rows)
        self.maps = np.vstack(blocks)
        N = balls(hints.mix @ floats(blocks[-1][:, : self.d]))
        self.Psi = plus_diagonal(dot(N.T, N), arb(1))

    def bound(self) -> arb:
        """At least the norm of the Jacobian anywhere in the ball."""
        d, eye = self.d, diagonal(balls(np.ones(self.d)))
        F, E, fits, mu = zeros(0, 0), zeros(0), zeros(0), arb(0)
        inverse = solve(self.Psi, eye)
        for k, (value, error) in enumerate(centre_values(self.model[:-1], self.inputs.center)):
            start, end = self.ends[k], self.ends[k + 1]
            B, K = self.maps[:end, :d], self.maps[:end, d : d + start]
            S, S_Psi = image(B, None), image(B, at_least(self.Psi))
            Y, Q = image(K, F), image(K, at_least(plus_diagonal(F / 3, 2 * E / 3) * (self.r * self.r * mu)))
            far = upper(self.r * root(np.diagonal(S)) + root(np.diagonal(Q)))[start:]
            told = zip(
                self.model[k].functions, value, error, far, *(x[start:end] for x in (self.sigma, self.tau, self.psi))
            )
            fits = np.append(fits, [_fit_error(*one) for one in told])
            tau, psi, t = self.tau[:end], self.psi[:end], self.t[:end]
            moved = (1 + self.a) * self.r * self.r * S + (1 + 1 / self.a) * Q
            H = tau[:, None] * (self.r * self.r / self.a1 * S + Q / self.a2) * tau
            H = at_least(H + psi[:, None] * (moved * moved) * psi / (4 * self.a3))
            g = root(fits / t)
            top = largest_eigenvalue(at_least(g[:, None] * Y * g))
            E = upper((1 + top / self.c2) * t * fits)
            F = at_least(plus_diagonal(H * at_least(S_Psi + Y / self.c1), E))
            Theta = at_least((inverse + dot(B.T * (fits / t), B)) / self.rest)
            mu = largest_eigenvalue(Theta)
        s = (self.share / mu).mid()
        last = self.maps[self.ends[-1] :]
        still = dot(last[:, :d], solve(eye - s * Theta, last[:, :d].T))
        return largest_eigenvalue(at_least(still + dot(dot(last[:, d:], F), last[:, d:].T) / s)).sqrt().upper()


def _fit_error(f: Function, center: arb, error: arb, far: arb, sigma: arb, tau: arb, psi: arb) -> arb:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ far and |c - center| ≤ error."""
    extent = (far + error).upper()
    view = f.on((center - extent).lower(), (center + extent).upper())
    ((low, high),) = remainder(view, center, [(1, arb(1), [sigma, tau, psi / 2])], _CELLS, sharp=True)
    return (larger(-low, high) + (abs(tau) + abs(psi) * (extent + error)) * error).upper()
