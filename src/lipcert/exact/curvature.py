"""How far a function of the network can rise within a ball, to second order, in ball arithmetic.

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

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes, advance
from lipcert.exact.enclose import Interval, tightened
from lipcert.exact.functions import ball, least, most
from lipcert.exact.linear import at_least, column, floats, image, largest_eigenvalue, norm, plus_diagonal
from lipcert.exact.model import Inputs, Model, on_fewer
from lipcert.exact.parabolas import Parabola, parabola
from lipcert.model.arrays import Array


@dataclass(frozen=True, eq=False)
class Place:
    """A network over a ball, and what it does at the centre: v̂ and at least |v - v̂| of every layer."""

    model: Model
    inputs: Inputs
    clipped: bool
    centers: Sequence[tuple[list[arb], list[arb]]]
    known: Sequence[Interval]

    @property
    def radius(self) -> arb:
        assert self.inputs.radius is not None
        return self.inputs.radius

    @cached_property
    def first(self) -> tuple[arb_mat, arb]:
        """R and a number s with λmax(W_1ᵀBW_1) ≤ s²·λmax(RᵀBR) where that is positive: W_1 = RQ, ‖Q‖ ≤ s."""
        weight = self.model[0]
        if weight.near.shape[1] <= weight.near.shape[0]:
            return weight.weight, arb(1)
        fewer, _, stretch = on_fewer(self.model, self.inputs, np.linalg.qr(weight.near.T)[1].T)
        return fewer[0].weight, stretch

    def split(self, gradient: list[arb]) -> tuple[list[arb], arb]:
        """A gradient q and a number c with g·d ≤ q·d + c over the region: if it is clipped, the box bounds a part."""
        if not self.clipped:
            return gradient, arb(0)
        rows = arb_mat([gradient])
        kept = self.inputs.shared(rows)
        return kept.entries(), self.inputs.over_box(rows - kept)[0]

    def over_ball(self, gradient: list[arb], B: arb_mat, top: arb, mu: arb) -> arb:
        """At least max of g·d + ½dᵀHd over the ball, for H = W_1ᵀBW_1 and top ≥ λmax(H): ½(gᵀ(μ - H)⁻¹g + μδ²).

        With rest = g - (μ - H)y for any y, gᵀ(μ - H)⁻¹g = y·g + y·rest + restᵀ(μ - H)⁻¹rest.
        """
        if not top < mu:
            return arb.pos_inf()
        g, weight, W = column(gradient), self.model[0].weight, self.model[0].near
        near = np.array([[float(x) for x in row] for row in B.tolist()])
        try:
            guess = np.linalg.solve(float(mu) * np.eye(W.shape[1]) - W.T @ near @ W, [float(x) for x in gradient])
        except np.linalg.LinAlgError:
            guess = np.zeros(W.shape[1])
        y = column([ball(x) if np.isfinite(x) else arb(0) for x in guess])
        rest = g - y * mu + weight.transpose() * (B * (weight * y))
        length = norm([x.abs_upper() for x in rest.entries()])
        total = (y.transpose() * (g + rest))[0, 0] + length * length / (mu - top) + mu * self.radius**2
        return (total / 2).upper()


@dataclass(frozen=True, eq=False)
class Cap:
    """The part of a ball where gradient·d ≥ level."""

    gradient: list[arb]
    level: arb

    def above(self, row: Sequence[arb], radius: arb) -> arb:
        """At least max row·d there: for every ν ≥ 0 it is at most radius·‖row + ν·gradient‖ - ν·level."""
        near, power = floats(arb_mat([row, self.gradient, [self.level] * len(row), [radius] * len(row)]))
        (a, g), size = near[:2], max(float(np.linalg.norm(near[1])), 1e-300)
        reach = max(float(near[3, 0]) * 2.0**power, 1e-300)
        share = float(np.clip(near[2, 0] / (size * reach), -1.0, 1.0))
        along = float(a @ g) / size
        across = float(np.linalg.norm(a - along / size * g))
        nu = max(share / np.sqrt(max((1.0 - share) * (1.0 + share), 1e-12)) * across - along, 0.0) / size
        weight = ball(nu if np.isfinite(nu) else 0.0)
        return (radius * norm([x + weight * y for x, y in zip(row, self.gradient)]) - weight * self.level).upper()


@dataclass(frozen=True, eq=False)
class Rise:
    """row·Δz ≤ gradient·d + ½ Σ Δv_kᵀ D_k Δv_k + constant."""

    gradient: list[arb]
    curvatures: list[list[arb]]
    constant: arb


class Curvature:
    """Facts to second order over a ball, or the cap of one.

    The intervals of all layers but the first are made smaller by a coarser bound of the same kind: with ellipsoids
    ΔvΔvᵀ ≼ ‖d‖²S of the layers, Δvᵀ D Δv ≤ ‖d‖²‖D^½ S D^½‖_F for D ≥ 0. ``hints`` are their multipliers.
    """

    def __init__(self, place: Place, hints: Sequence[Array], cap: Cap | None = None) -> None:
        self.place, self.cap = place, cap
        self.seen: list[list[Parabola]] = []
        squares: list[arb_mat] = []
        P: arb_mat | None = None
        model = place.model
        for index, layer in enumerate(model[:-1]):
            value, error = place.centers[index]
            low, high = place.known[index]
            if index or cap is not None:
                reach = self._coarsely(index, squares)
                up = [(v + e + x).upper() for v, e, x in zip(value, error, reach)]
                down = [(v - e - x).lower() for v, e, x in zip(value, error, reach[layer.size :])]
                low, high = tightened((low, high), range(layer.size), down, up)
            if not all(x.is_finite() and y.is_finite() for x, y in zip(low, high, strict=True)):
                raise ProofFailed(f"layer {index + 1} has no finite intervals")
            neurons = zip(layer.functions, low, high, value, error, strict=True)
            self.seen.append([parabola(*neuron) for neuron in neurons])
            if index + 2 < len(model):
                S = image(layer.weight, P)
                squares.append(arb_mat([[x * x for x in row] for row in S.tolist()]))
                P = advance(S, self._secants(index), _absolute(hints, index, S))

    def rise(self, row: Sequence[arb]) -> Rise:
        """What row·Δv_N can rise by."""
        last = len(self.place.model) - 1
        (gradient,), curvatures, (constant,) = self._traced(last, arb_mat([row]) * self.place.model[-1].weight)
        gradient, boxed = self.place.split(gradient)
        return Rise(gradient, [D[0] for D in curvatures], (constant + boxed).upper())

    def where(self, rise: Rise, multipliers: Sequence[Array], limit: arb) -> Cap:
        """The cap outside of which a row rises by less than a limit: g·d ≥ limit - ½λmax(H)δ² - constant inside."""
        _, top = self._pulled(rise, multipliers)
        return Cap(rise.gradient, (limit - top * self.place.radius * self.place.radius / 2 - rise.constant).lower())

    def above(self, rise: Rise, multipliers: Sequence[Array], mu: float) -> arb:
        """At least what a row rises by within the ball."""
        B, top = self._pulled(rise, multipliers)
        return (self.place.over_ball(rise.gradient, B, top, ball(mu)) + rise.constant).upper()

    def _pulled(self, rise: Rise, multipliers: Sequence[Array]) -> tuple[arb_mat, arb]:
        """B of the first layer, and at least λmax(H) and zero."""
        model = self.place.model
        *others, top = range(len(model) - 1)
        if [np.shape(T) for T in multipliers] != [(model[index].size,) for index in others]:
            raise ProofFailed("the hints to second order are for other layers")
        n = model[top].size
        B = plus_diagonal(arb_mat(n, n), rise.curvatures[top])
        for index in reversed(others):
            W = model[index + 1].weight
            A = at_least(W.transpose() * (B * W))
            T = [ball(x) for x in np.asarray(multipliers[index]).tolist()]
            B = at_least(plus_diagonal(advance(A, self._secants(index), T, signed=True), rise.curvatures[index]))
        R, stretch = self.place.first
        return B, (largest_eigenvalue(at_least(R.transpose() * (B * R))) * stretch * stretch).upper()

    def _secants(self, index: int) -> Slopes:
        return [x.alpha for x in self.seen[index]], [x.beta for x in self.seen[index]]

    def _moved(self, index: int) -> list[arb]:
        """At least the size of each difference that enters a layer."""
        return [x.moved for x in self.seen[index - 1]] if index else self.place.inputs.sides

    def _coarsely(self, index: int, squares: Sequence[arb_mat]) -> list[arb]:
        """At least how far each pre-activation of a layer rises and falls, and at least 0: the centre counts anyway."""
        weight, radius = self.place.model[index].weight, self.place.radius
        gradients, curvatures, constants = self._traced(index, arb_mat([*weight.tolist(), *(-weight).tolist()]))
        bends = [arb(0)] * len(constants)
        for D, square in zip(curvatures, squares, strict=True):
            positive = [[x if x > 0 else arb(0) for x in row] for row in D]
            forms = (arb_mat(positive) * square).tolist()
            sums = [sum((x * y for x, y in zip(*rows)), arb(0)).upper() for rows in zip(positive, forms, strict=True)]
            bends = [bend + (x if x > 0 else arb(0)).sqrt() for bend, x in zip(bends, sums, strict=True)]
        slopes = [radius * norm(row) for row in gradients]
        if self.cap is not None:
            slopes = [least([x.upper(), self.cap.above(row, radius)]) for x, row in zip(slopes, gradients)]
        if self.place.clipped:
            rows = arb_mat(gradients)
            starts = (rows * column(self.place.inputs.center)).entries()
            supports = self.place.inputs.support(rows)
            slopes = [least([x.upper(), (y - z).upper()]) for x, y, z in zip(slopes, supports, starts, strict=True)]
        totals = [x + radius * radius * y / 2 + z for x, y, z in zip(slopes, bends, constants, strict=True)]
        return [most([x.upper(), arb(0)]) for x in totals]

    def _traced(self, index: int, rows: arb_mat) -> tuple[list[list[arb]], list[list[list[arb]]], list[arb]]:
        """g, the D_k from the first layer on, and the constants, for rows·Δz of what enters a layer."""
        curvatures = []
        middle = rows.mid()
        constants = _sizes(rows - middle, self._moved(index))
        for back in range(index - 1, -1, -1):
            seen, entries = self.seen[back], middle.tolist()
            curvatures.append(
                [[(x * (p.above if x > 0 else p.below)).upper() for x, p in zip(row, seen)] for row in entries]
            )
            slack = [p.slack for p in seen]
            turned = arb_mat([[x * p.slope for x, p in zip(row, seen)] for row in entries])
            moved = turned * self.place.model[back].weight
            lost = _sizes(middle, slack), _sizes(moved - moved.mid(), self._moved(back))
            constants = [(x + y + z).upper() for x, y, z in zip(constants, *lost, strict=True)]
            middle = moved.mid()
        return middle.tolist(), curvatures[::-1], constants


def _sizes(rows: arb_mat, sizes: Sequence[arb]) -> list[arb]:
    """At least Σ |row_j| sizes_j for each row."""
    return [sum((x.abs_upper() * y for x, y in zip(row, sizes, strict=True)), arb(0)).upper() for row in rows.tolist()]


def _absolute(hints: Sequence[Array], index: int, S: arb_mat) -> list[arb] | None:
    """Multipliers of the hints, which are relative to the power of four nearest to the mean diagonal of S."""
    if index >= len(hints) or np.size(hints[index]) != S.nrows():
        raise ProofFailed("the hints to second order lack multipliers of an ellipsoid")
    mean = S.trace() / S.nrows()
    if not mean > 0:
        return None
    power = round(float(mean.log() / arb(4).log()))
    return [ball(x) * arb(4) ** power for x in np.ravel(hints[index]).tolist()]
