"""How large a row of the outputs can get within a ball: to second order, by parabolas of any slope, by value functions.

With d the difference of the input from the centre and Δ that of anything else, parabolas around the activations give

    row·Δz ≤ g·d + ½ Σ_k Δv_kᵀ D_k Δv_k + constant,

and with secants instead of slopes, any multipliers, B = D_k for the last hidden layer,

    A_k = W_{k+1}ᵀ B_{k+1} W_{k+1},   B_k = D_k + the step of A_k,   H = W_1ᵀ B_1 W_1,   Σ_k Δv_kᵀ D_k Δv_k ≤ dᵀHd.

For μ > λmax(H) the maximum of g·d + ½dᵀHd over ‖d‖ ≤ δ is at most ½(gᵀ(μ - H)⁻¹g + μδ²). Radii of rows multiply
differences that are bounded, and go into the constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb

from lipcert.audit.balls import (
    Balls,
    Interval,
    at_least,
    balls,
    both,
    diagonal,
    dot,
    floats,
    image,
    is_finite,
    known_smaller,
    larger,
    largest_eigenvalue,
    lower,
    mid,
    norm,
    plus_diagonal,
    positive,
    positive_definite,
    rad,
    root,
    size,
    smaller,
    upper,
    zeros,
)
from lipcert.audit.engine import advance, slopes_on, suggested_lines, views_on
from lipcert.audit.model import Inputs, Model, on_fewer
from lipcert.audit.parabolas import parabola
from lipcert.definitions.functions import Function, ball
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.suggest.multipliers import cap_weight

_LARGEST = 400
_CLOSE = 1e-3
"""An end of an interval is moved out to this share of the other one: value functions were searched for that."""
_CELLS = 24
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
    def first(self) -> tuple[Balls, arb]:
        """R and a number s with λmax(W_1ᵀBW_1) ≤ s²·λmax(RᵀBR) where that is positive: W_1 = RQ, ‖Q‖ ≤ s."""
        weight = self.model[0].weight
        if weight.shape[1] <= len(weight):
            return weight, arb(1)
        fewer, _, stretch = on_fewer(self.model, self.inputs, np.linalg.qr(floats(weight).T)[1].T)
        return fewer[0].weight, stretch

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
        with np.errstate(all="ignore"):
            try:
                guess = np.linalg.solve(float(mu) * np.eye(W.shape[1]) - W.T @ floats(B) @ W, floats(g))
            except np.linalg.LinAlgError:
                guess = np.zeros(W.shape[1])
        y = balls(np.where(np.isfinite(guess), guess, 0.0))
        rest = g - y * mu + dot(dot(B, dot(weight, y)), weight)
        length = norm(size(rest))
        total = dot(y, (g + rest)[:, None])[0] + length * length / (mu - top) + mu * self.radius * self.radius
        return (total / 2).upper()


@dataclass(frozen=True, eq=False)
class Cap:
    """The part of a ball where gradient·d ≥ level."""

    gradient: Balls
    level: arb

    def above(self, rows: Balls, radius: arb) -> Balls:
        """At least max row·d there: for every ν ≥ 0 it is at most radius·‖row + ν·gradient‖ - ν·level."""
        nu = cap_weight(floats(self.gradient), float(self.level), floats(rows), float(radius))
        nu = balls(np.where(np.isfinite(nu) & (nu > 0.0), nu, 0.0))
        return upper(radius * norm(rows + nu[:, None] * self.gradient) - nu * self.level)


@dataclass(frozen=True, eq=False)
class Rise:
    """row·Δz ≤ gradient·d + ½ Σ Δv_kᵀ D_k Δv_k + constant."""

    gradient: Balls
    curvatures: list[Balls]
    constant: arb


class Curvature:
    """Facts to second order over a ball, or the cap of one.

    The intervals of all layers but the first are made smaller by a coarser bound of the same kind: with ellipsoids
    ΔvΔvᵀ ≼ ‖d‖²S of the layers, Δvᵀ D Δv ≤ ‖d‖²‖D^½ S D^½‖_F for D ≥ 0. ``hints`` are their multipliers.
    """

    def __init__(self, place: Place, hints: Sequence[Array], cap: Cap | None = None) -> None:
        self.place, self.cap, self.radius = place, cap, place.radius
        self.slope: list[Balls] = []
        self.below: list[Balls] = []
        self.over: list[Balls] = []
        self.slack: list[Balls] = []
        self.secants: list[Interval] = []
        self.moved = [place.inputs.sides]
        """At least the size of each difference that enters a layer."""
        squares: list[Balls] = []
        P: Balls | None = None
        for index, layer in enumerate(place.model[:-1]):
            (value, error), interval = place.centers[index], place.known[index]
            if index or cap is not None:
                reach = self._coarsely(index, squares)
                ends = lower(value - error - reach[layer.size :]), upper(value + error + reach[: layer.size])
                interval = both(interval, ends)
            if not (is_finite(interval[0]) & is_finite(interval[1])).all():
                raise ProofFailed(f"layer {index + 1} has no finite intervals")
            seen = [parabola(*neuron) for neuron in zip(layer.functions, *interval, value, error, strict=True)]
            columns = np.empty((7, layer.size), dtype=object)
            for k, one in enumerate(seen):
                columns[:, k] = one.slope, one.below, one.above, one.slack, one.alpha, one.beta, one.moved
            for found, column in zip((self.slope, self.below, self.over, self.slack), columns, strict=False):
                found.append(column)
            self.secants.append((columns[4], columns[5]))
            self.moved.append(columns[6])
            if index + 2 < len(place.model):
                S = image(layer.weight, P)
                squares.append(S * S)
                P = advance(S, self.secants[-1], _absolute(hints, index, S))

    def rise(self, row: Array) -> Rise:
        """What row·Δv_N can rise by."""
        last = len(self.place.model) - 1
        through = dot(balls(row)[None], self.place.model[-1].weight)
        gradient, curvatures, constant = self._traced(last, through)
        kept, boxed = self.place.split(gradient[0])
        return Rise(kept, [D[0] for D in curvatures], (constant[0] + boxed).upper())

    def where(self, rise: Rise, multipliers: Sequence[Array], limit: arb) -> Cap:
        """The cap outside of which a row rises by less than a limit: g·d ≥ limit - ½λmax(H)δ² - constant inside."""
        _, top = self._pulled(rise, multipliers)
        return Cap(rise.gradient, (limit - top * self.radius * self.radius / 2 - rise.constant).lower())

    def above(self, rise: Rise, multipliers: Sequence[Array], mu: float) -> arb:
        """At least what a row rises by within the ball."""
        B, top = self._pulled(rise, multipliers)
        return (self.place.over_ball(rise.gradient, B, top, ball(mu)) + rise.constant).upper()

    def _pulled(self, rise: Rise, multipliers: Sequence[Array]) -> tuple[Balls, arb]:
        """B of the first layer, and at least λmax(H) and zero."""
        model = self.place.model
        *others, top = range(len(model) - 1)
        if [np.shape(T) for T in multipliers] != [(model[index].size,) for index in others]:
            raise ProofFailed("the hints to second order are for other layers")
        B = diagonal(rise.curvatures[top])
        for index in reversed(others):
            W = model[index + 1].weight
            step = advance(image(W.T, B), self.secants[index], balls(multipliers[index]), signed=True)
            B = at_least(plus_diagonal(step, rise.curvatures[index]))
        R, stretch = self.place.first
        return B, (largest_eigenvalue(image(R.T, B)) * stretch * stretch).upper()

    def _coarsely(self, index: int, squares: Sequence[Balls]) -> Balls:
        """At least how far each pre-activation of a layer rises and falls, and at least 0: the centre counts anyway."""
        weight = self.place.model[index].weight
        gradients, curvatures, constants = self._traced(index, np.vstack([weight, -weight]))
        bends = zeros(len(constants))
        for D, square in zip(curvatures, squares, strict=True):
            D = positive(D)
            bends = bends + root(positive(upper((D * dot(D, square)).sum(axis=1))))
        slopes = self.radius * norm(gradients)
        if self.cap is not None:
            slopes = known_smaller(upper(slopes), self.cap.above(gradients, self.radius))
        if self.place.clipped:
            supports = self.place.inputs.support(gradients) - dot(gradients, self.place.inputs.center)
            slopes = known_smaller(upper(slopes), upper(supports))
        return positive(upper(slopes + self.radius * self.radius * bends / 2 + constants))

    def _traced(self, index: int, rows: Balls) -> tuple[Balls, list[Balls], Balls]:
        """g, the D_k from the first layer on, and the constants, for rows·Δz of what enters a layer."""
        curvatures, constants = [], dot(rad(rows), self.moved[index])
        rows = mid(rows)
        for back in range(index - 1, -1, -1):
            curvatures.append(upper(rows * np.where(rows > 0, self.over[back], self.below[back])))
            constants = constants + dot(size(rows), self.slack[back])
            rows = dot(rows * self.slope[back], self.place.model[back].weight)
            constants = upper(constants + dot(rad(rows), self.moved[back]))
            rows = mid(rows)
        return rows, curvatures[::-1], upper(constants)


def _absolute(hints: Sequence[Array], index: int, S: Balls) -> Balls | None:
    """Multipliers of the hints, which are relative to the power of four nearest to the mean diagonal of S."""
    if index >= len(hints) or np.size(hints[index]) != len(S):
        raise ProofFailed("the hints to second order lack multipliers of an ellipsoid")
    mean = np.trace(S) / len(S)
    if not mean > 0:
        return None
    return balls(np.ravel(hints[index])) * arb(4) ** round(float(mean.log() / arb(4).log()))


def by_parabolas(place: Place, spreads: Sequence[Balls], hints: Any) -> arb:
    """At least max of row·v_N over the ball by parabolas of any slope, for any hints.

    row·φ(v) ≤ g·v + ½b(v - c)² + h for each neuron, c its value at the centre; and Σ bΔv² ≤ ‖Δx‖² λmax(B^½ S B^½) for
    the ellipsoids S of ``spreads``.
    """
    model, radius = place.model, place.radius
    row = balls(hints.row)
    total, row = (row * model[-1].bias).sum(), dot(row, model[-1].weight)
    bends, top = zeros(0), arb(0)
    for index in reversed(range(len(model) - 1)):
        layer = model[index]
        if {np.shape(hints.slopes[index]), np.shape(hints.bends[index])} != {(layer.size,)}:
            raise ProofFailed("the hints are for other layers")
        g, bends = balls(hints.slopes[index]), positive(balls(hints.bends[index]))
        views = views_on(layer.functions, place.known[index])
        centers = zip(*place.centers[index], strict=True)
        for k, (view, (center, error)) in enumerate(zip(views, centers, strict=True)):
            alpha, beta = view.slopes()
            if alpha == beta:
                g[k], bends[k] = row[k] * alpha, arb(0)
                total += row[k] * (view.arcs[0].first[0] - alpha * view.low)
            else:
                total += _height(
                    layer.functions[k], view.low, view.high, row[k], g[k], bends[k], center + arb(0, error)
                )
        total += (g * layer.bias).sum()
        some = np.flatnonzero(bends > 0)
        scale = root(bends[some])
        top = largest_eigenvalue(at_least(scale[:, None] * spreads[index][np.ix_(some, some)] * scale))
        if index:
            total += radius * radius * top / 2
        row = dot(g, layer.weight)
    gradient, boxed = place.split(mid(row))
    total += (row * place.inputs.center).sum() + (rad(row) * place.inputs.sides).sum() + boxed
    if top.is_zero():
        return (total + radius * norm(gradient)).upper()
    return (total + place.over_ball(gradient, diagonal(bends), top, ball(float(hints.mu)))).upper()


def _height(f: Function, low: arb, high: arb, row: arb, g: arb, b: arb, c: arb) -> arb:
    """At least max of row·φ(v) - g·v - ½b(v - c)² on an interval, cell by cell: there φ is below or above a line."""
    whole = f.on(low, high)
    marks = [low, *(mark.mid() for mark in whole.marks if low < mark.mid() < high), high]
    if any(arc.bend for arc in whole.arcs):
        marks += [(low + (high - low) * arb(k) / _CELLS).mid() for k in range(1, _CELLS)]
        marks.sort(key=float)
    row_size, found = row.abs_upper(), arb.neg_inf()
    for start, stop in pairwise(marks):
        view = f.on(start, stop)
        tilt = ((f.value(stop) - f.value(start)) / (stop - start)).mid() if start < stop else arb(0)
        up, down = view.top(1, tilt), -view.top(-1, -tilt)
        a = row * tilt - g
        shift = row * up if row > 0 else row * down if row < 0 else row_size * larger(abs(up), abs(down))
        ends = [a * v - b * (v - c) ** 2 / 2 for v in (start, stop)]
        peak = larger(*map(upper, ends))
        if b > 0 and not a - b * (start - c) < 0 and not a - b * (stop - c) > 0:
            peak = larger(peak, (a * c + a * a / (2 * b)).upper())
        found = larger(found, (peak + shift).upper())
    return found


class Margins:
    """Value functions: products of affine functions of y = (1, the input, open neurons) that are not negative, or zero.

    If -row·v_N + t - Σ λq - λ_0(1 - ‖·‖²) is a positive definite form of y, then row·v_N < t all over the ball.
    """

    def __init__(self, model: Model, inputs: Inputs, known: Sequence[Interval], cuts: Sequence[Any] = ()) -> None:
        if not inputs.plain:
            raise ProofFailed("value functions are about balls of the ℓ2 norm only")
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
            raise ProofFailed("the value functions are too large for ball arithmetic; verify without exact")
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
    """Whether row·v_N < 0 all over the ball by value functions, on both sides of neurons where hints say so."""

    def covered(cuts: tuple[Any, ...]) -> bool:
        below = [leaf for leaf in leaves if tuple(leaf.cuts)[: len(cuts)] == cuts]
        if not below:
            return False
        for leaf in below:
            if len(leaf.cuts) == len(cuts):
                return Margins(model, inputs, known, cuts).below(row, leaf.multipliers, leaf.ball, arb(0))
        layer, neuron, _ = below[0].cuts[len(cuts)]
        return all(covered((*cuts, (layer, neuron, side))) for side in (-1, 1))

    return covered(())
