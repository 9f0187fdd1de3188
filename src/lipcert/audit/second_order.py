"""Curved activations: how far they are from polynomials, and what that proves.

Of outputs and Jacobians over a box, by Taylor models; of a row of the outputs over an ℓ2 ball, by a parabola at each
neuron or by a dual bound; of the Jacobian over an ℓ2 ball. The equations of parabolas are those of
:mod:`lipcert.kernel.quadratic_form`, those of the Jacobian to second order those of
:mod:`lipcert.kernel.second_order_jacobian`; here every symbol is an array of balls, or a matrix of numbers that is at
least the real one.

Taylor models over a box c ± h: x = c + h∘δ with |δ_i| ≤ 1, and everything is a polynomial in δ. What is cut off, and
what is known of no polynomial, is bounded by ``rest``. On the interval of a pre-activation v its φ and φ' are near
polynomials (:func:`remainder`), and ∂z/∂δ_j = φ'(v)·∂v/∂δ_j.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb, arb_poly, arb_series, ctx

from lipcert.audit import balls as ba
from lipcert.audit import engine
from lipcert.audit.balls import Balls, Interval
from lipcert.audit.engine import Inputs, Model
from lipcert.definitions.functions import Formula, Function, View, ball, least, most
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.suggest.hints import Curved

_SHARES = 96
"""Cells on each side of a point."""
_HALVINGS = 16
_FAR = 2**20
"""A side is cut into cells if it is so many times longer than the point is uncertain."""


def remainder(view: View, about: arb, order: int, scale: arb, p: Sequence[arb]) -> tuple[arb, arb]:
    """Numbers between which scale·φ(v) - p(v - about) lies on the interval, or for order 1 scale·φ'(v) - p(v - about).

    On a cell of half width w around m the difference is a series Σ g_k (v - m)^k whose last coefficient is one of all
    of the cell; its quadratic part is largest at an end or at its vertex. Cells where other terms matter are halved.
    """
    if not view.arcs:
        return arb.neg_inf(), arb.pos_inf()
    todo, found, inner = [], [], []
    for arc in view.arcs:
        width = arc.stop - arc.start
        share = max(1, math.ceil(CELLS * float(width / (view.high - view.low)))) if view.low < view.high else 1
        marks = [arc.start + width * k / share for k in range(share + 1)]
        todo += [(arc.formula, *ends) for ends in pairwise(marks)]
    for left in range(_HALVINGS, -1, -1):
        seen = [(cell, *_on_cell(*cell, about, order, scale, p)) for cell in todo]
        inner += [[end - 2 * rest for end in ends] for _, ends, rest in seen]
        reached = [most([x.lower() for x in column]) for column in zip(*inner, strict=True)]
        todo = []
        for (formula, one, two), ends, _ in seen:
            if left and any(end > x + abs(x) * arb(2) ** -45 for end, x in zip(ends, reached, strict=True)):
                middle = ((one + two) / 2).mid()
                todo += [(formula, one, middle), (formula, middle, two)]
            else:
                found.append(ends)
    below, above = (most(list(column)) for column in zip(*found, strict=True))
    return -below, above


def _on_cell(
    formula: Formula, one: arb, two: arb, about: arb, order: int, scale: arb, p: Sequence[arb]
) -> tuple[tuple[arb, arb], arb]:
    """At least the negative and the value of the difference on a cell, and what the terms of higher order add.

    For |t| ≤ w, t³ is within w³/4 of ¾w²t, and t⁴ within w⁴/8 of w²t² - w⁴/8.
    """
    cap, m = ctx.cap, ((one + two) / 2).mid()
    w = most([(two - m).upper(), (m - one).upper()])
    ctx.cap = 6
    try:
        here, there = (arb_poly(formula(arb_series([x, 1])).coeffs()) for x in (m, one.union(two)))
    finally:
        ctx.cap = cap
    if order:
        here, there = here.derivative(), there.derivative()
    g, square = scale * here - arb_poly(list(p))(arb_poly([m - about, 1])), w * w
    tail = scale * there[4]
    four = tail.mid()
    rest = ((abs(g[3]) * w / 4 + (abs(four) / 8 + tail.rad()) * square) * square).upper()
    a, b, c = g[0] - four * square * square / 8, g[1] + 3 * g[3] * square / 4, g[2] + four * square
    below, above = ((_peak(s * a, s * b, s * c, w) + rest).upper() for s in (-1, 1))
    return (below, above), rest


def _peak(a: arb, b: arb, c: arb, w: arb) -> arb:
    """At least the largest a + bx + cx² for |x| ≤ w."""
    end = (a + abs(b) * w + c * w * w).upper()
    if c >= 0 or abs(b) >= -2 * c * w:
        return end
    vertex = (a - b * b / (4 * c)).upper()
    return most([end, vertex if vertex.is_finite() else (a + abs(b) * w).upper()])


def secants(f: Function, low: arb, high: arb, center: arb, error: arb) -> tuple[arb, arb]:
    """Bounds of (φ(v) - φ(c))/(v - c) for all v of an interval and |c - center| ≤ error; all are numbers.

    It is the mean of φ' between c and v. With the range of φ' on each cell of a side, such a mean lies between those at
    the ends of v's cell; and c moves the weight of the first cell only, in which a mean is monotone.
    """
    low, high = least([low, (center - error).lower()]), most([high, (center + error).upper()])
    alpha, beta = f.on(low, high).slopes()
    if alpha == beta:
        return alpha, beta
    lows, highs = list[arb](), list[arb]()
    for end, start in ((low, (center + error).upper()), (high, (center - error).lower())):
        fine = abs(end - center) > _FAR * error
        marks = [(center + (end - center) * k / _SHARES).mid() for k in range(1, _SHARES) if fine] + [end]
        ranges = [f.on(*sorted(cell, key=float)).slopes() for cell in pairwise([start, *marks])]
        if not fine:
            lows, highs = [*lows, ranges[0][0]], [*highs, ranges[0][1]]
            continue
        for c in (center - error, center + error):
            widths = [abs(two - one) for one, two in pairwise([c, *marks])]
            for found, slopes in zip((lows, highs), zip(*ranges, strict=True), strict=True):
                sums = itertools.accumulate(s * w for s, w in zip(slopes, widths, strict=True))
                found += [total / abs(mark - c) for total, mark in zip(sums, marks, strict=True)]
    return most([alpha, least([x.lower() for x in lows])]), least([beta, most([x.upper() for x in highs])])


_LARGEST = 400
_CLOSE = 1e-3
"""An end of an interval is moved out to this share of the other one: dual bounds were searched for that."""
CELLS = 4
"""Cells that the interval of a curved neuron is cut into."""


@dataclass(frozen=True, eq=False)
class Place:
    """A network over a ball, and what it does at the centre: v̂ and at least |v - v̂| of every layer."""

    model: Model
    inputs: Inputs
    centers: Sequence[tuple[Balls, Balls]]
    known: Sequence[Interval]

    @property
    def radius(self) -> Any:
        ba.require(self.inputs.plain, "bounds of rows to second order are about ℓ2 balls only")
        return self.inputs.radius

    @cached_property
    def narrow(self) -> tuple[Model, Inputs, arb]:
        """The model and its ball on fewer inputs, where the first layer is narrower."""
        return engine.fewer(self.model, self.inputs)

    @cached_property
    def dual_bound(self) -> DualBound:
        return DualBound(*self.narrow[:2], self.known)

    def over_ball(self, g: Balls, B: Balls, top: arb, mu: arb) -> arb:
        """At least max of g·d + ½dᵀHd over the ball, for H = W_1ᵀBW_1 and top ≥ λmax(H): ½(gᵀ(μ - H)⁻¹g + μδ²).

        With rest = g - (μ - H)y for any y, gᵀ(μ - H)⁻¹g = y·g + y·rest + restᵀ(μ - H)⁻¹rest.
        """
        if not top < mu:
            return arb.pos_inf()
        weight, W = self.model[0].weight, ba.floats(self.model[0].weight)
        try:
            guess = np.linalg.solve(float(mu) * np.eye(W.shape[1]) - W.T @ ba.floats(B) @ W, ba.floats(g))
        except np.linalg.LinAlgError:
            guess = np.zeros(W.shape[1])
        y = ba.balls(np.where(np.isfinite(guess), guess, 0.0))
        rest = g - y * mu + ba.dot(ba.dot(B, ba.dot(weight, y)), weight)
        length = ba.norm(ba.size(rest))
        total = ba.dot(y, (g + rest)[:, None])[0] + length * length / (mu - top) + mu * self.radius * self.radius
        return (total / 2).upper()


def by_parabolas(place: Place, spreads: Sequence[Balls], hints: Any) -> arb:
    """At least max of row·v_N over the ball by parabolas, for any hints.

    row·φ(v) ≤ g·v + ½b(v - c)² + h for each neuron, c its value at the centre. Hints with ``multipliers`` bound the
    squares of all layers by one form, others those of each layer: Σ bΔv² ≤ ‖Δx‖² λmax(B^½ S B^½) for its ellipsoid S.
    """
    model, radius = place.model, place.radius
    row = ba.balls(hints.row)
    total, row = (row * model[-1].bias).sum(), ba.dot(row, model[-1].weight)
    every: list[Balls] = []
    for index in reversed(range(len(model) - 1)):
        layer = model[index]
        g, bends = (ba.hinted(told[index], layer.size) for told in (hints.slopes, hints.bends))
        centers = zip(*place.centers[index], strict=True)
        for k, (view, (c, error)) in enumerate(zip(layer.views(place.known[index]), centers, strict=True)):
            alpha, beta = view.slopes()
            if alpha == beta:
                g[k], bends[k] = row[k] * alpha, arb(0)
                total += row[k] * (view.arcs[0].first[0] - alpha * view.low)
            else:  # |(v - c)² - (v - ĉ)²| ≤ (2|v - ĉ| + e)e where |c - ĉ| ≤ e
                far = ba.larger(abs(view.low - c).upper(), abs(view.high - c).upper())
                told = [g[k] * c, g[k], bends[k] / 2]
                height = remainder(view, c, 0, row[k], told)[1]
                total += height + abs(bends[k]) * (2 * far + error) * error / 2
        total += (g * layer.bias).sum()
        every.insert(0, bends)
        row = ba.dot(g, layer.weight)
    gradient = place.inputs.shared(ba.mid(row)[None])[0]  # the box bounds the rest
    total += (row * place.inputs.center).sum() + place.inputs.over_box((row - gradient)[None])[0]
    if hints.multipliers is not None:
        B, top = _together(place, every, hints.multipliers)
    else:
        tops = [_top(S, ba.positive(bends)) for S, bends in zip(spreads, every, strict=True)]
        total += radius * radius * sum(tops[1:], arb(0)) / 2
        B, top = ba.diagonal(ba.positive(every[0])), tops[0]
    if top.is_zero() and not np.any(B != 0):
        return (total + radius * ba.norm(gradient)).upper()
    return (total + place.over_ball(gradient, B, top, ball(float(hints.mu)))).upper()


def _top(S: Balls, bends: Balls) -> arb:
    """At least λmax(B^½ S B^½)."""
    some = np.flatnonzero(bends > 0)
    scale = ba.root(bends[some])
    return ba.largest_eigenvalue(ba.at_least(scale[:, None] * S[np.ix_(some, some)] * scale))


def _together(place: Place, bends: Sequence[Balls], multipliers: Sequence[Array]) -> tuple[Balls, arb]:
    """B of the first layer, and at least λmax(WᵀBW) and zero."""
    model = place.model
    B = ba.diagonal(bends[-1])
    for index in reversed(range(len(model) - 2)):
        neurons = zip(model[index].functions, *place.known[index], *place.centers[index], strict=True)
        low, high = np.array([secants(*neuron) for neuron in neurons], dtype=object).T
        W = model[index + 1].weight
        step = engine.advance(
            ba.image(W.T, B), (low, high), ba.hinted(multipliers[index], model[index].size), signed=True
        )
        B = ba.at_least(ba.plus_diagonal(step, bends[index]))
    narrow, _, stretch = place.narrow
    return B, (ba.largest_eigenvalue(ba.image(narrow[0].weight.T, B)) * stretch * stretch).upper()


class DualBound:
    """The dual bound: products of affine functions of y = (1, the input, open neurons) that are not negative, or zero.

    If -row·v_N + t - Σ λq - λ_0(1 - ‖·‖²) is a positive definite form of y, then row·v_N < t all over the ball.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval]) -> None:
        ba.require(inputs.plain, "dual bounds are about balls of the ℓ2 norm only")
        views = [layer.views(ends) for layer, ends in zip(model[:-1], known, strict=True)]
        slopes = [engine.slopes_of(every) for every in views]
        opens = [np.flatnonzero(~(alpha == beta)) for alpha, beta in slopes]
        self.count = len(inputs.center)
        self.size = 1 + self.count + sum(map(len, opens))
        ba.require(self.size <= _LARGEST, "the dual bound is too large for ball arithmetic; verify without exact")
        self.left: list[Balls] = []
        self.right: list[Balls] = []
        self.free: list[bool] = []
        self.sizes: list[Balls] = []
        z = np.hstack([inputs.center[:, None], ba.diagonal(np.full(self.count, inputs.radius, dtype=object))])
        z = np.hstack([z, ba.zeros(self.count, self.size - 1 - self.count)])
        at = 1 + self.count
        for index, (layer, some) in enumerate(zip(model[:-1], opens, strict=True)):
            v, z = self._through(model, index, z), ba.zeros(layer.size, self.size)
            for k in np.setdiff1d(np.arange(layer.size), some):
                slope, view = slopes[index][0][k], views[index][k]
                z[k] = _shifted(slope * v[k], view.arcs[0].first[0] - slope * view.low)
            z[some, at + np.arange(len(some))] = arb(1)
            tops = [[views[index][k].top(sign, arb(0)) for sign in (1, -1)] for k in some]
            self.sizes.append(ba.largest(np.array(tops, dtype=object).reshape(-1, 2), axis=1))
            at += len(some)
            products = []
            for k in some:
                if (kink := layer.functions[k].kink(*(end[k] for end in known[index]))) is None:
                    raise ProofFailed("the dual bound is about neurons that are straight on both sides of 0")
                products.append(_kink_products(kink, views[index][k], v[k], z[k]))
            for kind, pairs in enumerate(zip(*products, strict=True)):
                self.left += [one for one, _ in pairs]
                self.right += [two for _, two in pairs]
                self.free += [kind == 2] * len(pairs)
        self.output = self._through(model, len(model) - 1, z)

    def below(self, hints: Any, limit: arb) -> bool:
        """Whether row·v_N is proved to be less than a limit."""
        weights = ba.hinted(hints.multipliers, len(self.free))
        weights = np.where(np.array(self.free, dtype=bool), weights, ba.positive(weights))
        ring = ba.positive(ball(float(hints.ball)))
        M = ba.zeros(self.size, self.size)
        if self.left:
            X = ba.dot((weights[:, None] * np.array(self.left, dtype=object)).T, np.array(self.right, dtype=object))
            M = (X + X.T) * ball(-0.5)
        c = ba.dot(ba.balls(hints.row), self.output)
        M[0] -= c / 2
        M[:, 0] -= c / 2
        M[0, 0] += limit - ring
        inner = 1 + np.arange(self.count)
        M[inner, inner] += ring
        sizes = np.concatenate([ba.balls(np.ones(1 + self.count)), *self.sizes])  # at least |y|
        M, lost = ba.mid(M), (sizes * ba.dot(ba.rad(M), sizes)).sum()
        M[0, 0] -= lost
        return ba.positive_definite(M)

    @staticmethod
    def _through(model: Model, index: int, z: Balls) -> Balls:
        v = ba.dot(model[index].weight, z)
        v[:, 0] += model[index].bias
        return v


def _kink_products(kink: tuple[arb, arb], view: View, v: Balls, z: Balls) -> tuple[tuple[Balls, Balls], ...]:
    """With p = φ(v) - αv and m = βv - φ(v): p(t - p) ≥ 0, m(b - m) ≥ 0, pm = 0, t = (β - α)high, b = (β - α)low."""
    alpha, beta = kink
    p, m = z - alpha * v, beta * v - z
    top, bottom = ((beta - alpha) * view.high).upper(), ((beta - alpha) * view.low).lower()
    top, bottom = ba.larger(top, (-bottom * _CLOSE).upper()), ba.smaller(bottom, (-top * _CLOSE).lower())
    return (p, _shifted(-p, top)), (m, _shifted(-m, bottom)), (p, m)


def _shifted(row: Balls, x: arb) -> Balls:
    found = row.copy()
    found[0] = found[0] + x
    return found


_LEAST_SHARE = 2.0**-20


def prove_curved(model: Model, inputs: Inputs | None, hints: Curved) -> arb:
    """At least the norm of the Jacobian anywhere in a ball."""
    if inputs is None or not inputs.plain or len(model) < 2:
        raise ProofFailed("bounds to second order are about ℓ2 balls, and networks with a hidden layer")
    model, inputs, stretch = engine.fewer(model, inputs)
    ends, outputs = np.cumsum([0, *(layer.size for layer in model[:-1])]), model[-1].size
    r, d = inputs.radius, len(inputs.center)
    shapes = (hints.slopes.shape, hints.balance.shape, hints.mix.shape, hints.weights.shape)
    ba.require(shapes == ((3, ends[-1]), (ends[-1],), (outputs, outputs), (6,)), "the hints do not fit the network")
    every = ba.balls(np.vstack([hints.slopes, np.clip(hints.balance, 2.0**-40, 2.0**40)]))
    *weights, share = np.clip(hints.weights, _LEAST_SHARE, 2.0**20).tolist()
    c1, c2, a2, a3, a = map(ball, weights)
    rest, a1 = 1 - c1 - c2, 1 - a2 - a3
    ba.require(rest > 0 and a1 > 0, "shares of the hints to second order do not leave anything for the other terms")
    maps = _linear_maps(model, every[0], ends)
    last = maps[ends[-1] :]
    N = ba.balls(hints.mix @ ba.floats(last[:, :d]))
    Psi, eye = ba.plus_diagonal(ba.dot(N.T, N), arb(1)), ba.diagonal(ba.balls(np.ones(d)))
    inverse = ba.solve(Psi, eye)
    F, E, fits, mu = ba.zeros(0, 0), ba.zeros(0), ba.zeros(0), arb(0)
    for k, (value, error) in enumerate(engine.centre_values(model[:-1], inputs.center)):
        start, end = ends[k], ends[k + 1]
        B, K, (sigma, tau, psi, t) = maps[:end, :d], maps[:end, d : d + start], every[:, :end]
        S, S_Psi = ba.image(B, None), ba.image(B, ba.at_least(Psi))
        Y, Q = ba.image(K, F), ba.image(K, ba.at_least(ba.plus_diagonal(F / 3, 2 * E / 3) * (r * r * mu)))
        far = ba.upper(r * ba.root(np.diagonal(S)) + ba.root(np.diagonal(Q)))
        told = zip(model[k].functions, value, error, *(x[start:] for x in (far, sigma, tau, psi)), strict=True)
        fits = np.append(fits, [_fit_error(*one) for one in told])
        moved = (1 + a) * r * r * S + (1 + 1 / a) * Q
        H = tau[:, None] * (r * r / a1 * S + Q / a2) * tau
        H = ba.at_least(H + psi[:, None] * (moved * moved) * psi / (4 * a3))
        g = ba.root(fits / t)
        top = ba.largest_eigenvalue(ba.at_least(g[:, None] * Y * g))
        E = ba.upper((1 + top / c2) * t * fits)
        F = ba.at_least(ba.plus_diagonal(H * ba.at_least(S_Psi + Y / c1), E))
        Theta = ba.at_least((inverse + ba.dot(B.T * (fits / t), B)) / rest)
        mu = ba.largest_eigenvalue(Theta)
    s = (ball(min(share, 1.0 - _LEAST_SHARE)) / mu).mid()
    still = ba.dot(last[:, :d], ba.solve(eye - s * Theta, last[:, :d].T))
    whole = ba.at_least(still + ba.dot(ba.dot(last[:, d:], F), last[:, d:].T) / s)
    return (ba.largest_eigenvalue(whole).sqrt() * stretch).upper()


def _linear_maps(model: Model, sigma: Balls, ends: Array) -> Balls:
    """[B | K] for all hidden layers, and [J0 | G] below them: what Bu + Kf and J0 u + Gf are made of."""
    rows = np.hstack([model[0].weight, ba.zeros(model[0].size, ends[-1])])
    blocks, d = [rows], model[0].weight.shape[1]
    for layer, start, end in zip(model[1:], ends[:-1], ends[1:], strict=True):
        rows = ba.dot(layer.weight, sigma[start:end, None] * rows)
        rows[:, d + start : d + end] += layer.weight
        blocks.append(rows)
    return np.vstack(blocks)


def _fit_error(f: Function, center: arb, error: arb, far: arb, sigma: arb, tau: arb, psi: arb) -> arb:
    """At least |φ'(c + Δ) - σ - τΔ - ½ψΔ²| for |Δ| ≤ far and |c - center| ≤ error."""
    extent = (far + error).upper()
    view = f.on((center - extent).lower(), (center + extent).upper())
    low, high = remainder(view, center, 1, arb(1), [sigma, tau, psi / 2])
    return (ba.larger(-low, high) + (abs(tau) + abs(psi) * (extent + error)) * error).upper()
