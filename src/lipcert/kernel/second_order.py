"""How far a function of the network can rise within a ball, to second order and proved.

Let Δ be a difference from the centre of the ball, d = Δz_0. Each activation lies between two parabolas around its value
at the centre, so from the last layer to the first a row·Δz becomes

    row·Δz ≤ g·d + ½ Σ_k Δv_kᵀ D_k Δv_k + constant,

where g is the gradient at the centre and D_k is diagonal, of either sign. Neuron by neuron Δz = (m + rw)Δv with
|w| ≤ 1, [m - r, m + r] the range of its secants from the centre. Those are the slopes of an ellipsoid's step, here with
the weights transposed: with B_k = D_k for the last hidden layer,

    A_k = W_{k+1}ᵀ B_{k+1} W_{k+1},   B_k = D_k + the step of A_k with any multipliers,   H = W_1ᵀ B_1 W_1,

and Σ_k Δv_kᵀ D_k Δv_k ≤ dᵀHd. For μ > λmax(H) the maximum of g·d + ½dᵀHd over ‖d‖ ≤ δ is at most
½(gᵀ(μ - H)⁻¹g + μδ²). All roundings of rows multiply differences that are bounded, and go into the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.domain import form_over_ball, split_by_box
from lipcert.kernel.hints import Interval
from lipcert.kernel.image import Columns, Image
from lipcert.kernel.near import Approx, Near, congruence, dot, largest_eigenvalue_above
from lipcert.kernel.remainder import Parabolas, parabolas
from lipcert.kernel.rounding import down, form_above, norm_above, raise_diagonal, twice_above, up
from lipcert.kernel.row_bounds import pulled
from lipcert.kernel.step import activate
from lipcert.model.arrays import Array, Weight, dense
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.suggest.algebra import solved_across
from lipcert.suggest.multipliers import cap_weight

Choice: TypeAlias = Callable[[Array, Array, Array, Weight], Array]
"""Multipliers for S, alpha, beta, with a leading axis of length one, and the next weight."""


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """The first layer as W_1 = weight·Q with ‖Q‖ ≤ stretch and Q near ``rows``; rows None stands for the identity."""

    weight: Array
    rows: Array | None = None
    stretch: float = 1.0


@dataclass(frozen=True, eq=False)
class Cap:
    """The part of a ball where gradient·d ≥ level."""

    gradient: Array
    level: float

    def above(self, rows: Array, radius: float) -> Array:
        """At least max rows·d over the cap: for every ν ≥ 0 it is at most radius·‖row + ν·gradient‖ - ν·level."""
        nu = cap_weight(self.gradient, self.level, rows, radius)
        nu = np.where(nu > 0.0, nu, 0.0)
        moved = Near.of(rows) + nu[:, None] * Near.of(self.gradient)
        return (up(radius * norm_above(moved.size)) - Near.of(nu) * self.level).above


@dataclass(frozen=True, eq=False)
class Rise:
    """row·Δz ≤ gradient·d + ½ Σ Δv_kᵀ D_k Δv_k + constant over a ball.

    ``gradient`` is what is left of g where a box around the ball has taken its part.
    """

    gradient: Array
    curvatures: tuple[Array, ...]
    constant: float


class SecondOrder:
    """Second-order facts about one network over one ball, from intervals of its pre-activations that are known.

    The intervals of all layers but the first are made smaller by a coarser bound of the same kind: with ellipsoids
    ΔvΔvᵀ ≼ ‖d‖²S of the layers, Δvᵀ D Δv ≤ ‖d‖²‖D^½ S D^½‖_F for D ≥ 0.

    Parameters
    ----------
    network, ball
        What is spoken of.
    centers
        Pre-activations of all layers at the centre as computed, the output last, each with a bound of its error.
    intervals
        Where the pre-activations of the hidden layers lie.
    choose
        Hints for the multipliers of the ellipsoids.
    first
        The first layer on fewer inputs.
    cap
        Speak only of this part of the ball.
    """

    def __init__(
        self,
        network: Network,
        ball: Ball,
        centers: Sequence[Interval],
        intervals: Sequence[Interval],
        choose: Choice,
        first: FirstLayer | None = None,
        cap: Cap | None = None,
    ) -> None:
        self.network, self.ball, self.cap = network, ball, cap
        *centers, self.output = centers
        self.first = FirstLayer(dense(network.layers[0].weight)) if first is None else first
        self.radius = float(ball.radius)
        self.parabolas: list[Parabolas] = []
        ellipsoids: list[tuple[Array, int]] = []
        P, exponent = None, np.zeros(1, dtype=int)
        for index, (layer, (value, error)) in enumerate(zip(network.layers[:-1], centers, strict=True)):
            assert layer.neurons is not None
            lower, upper = intervals[index]
            if index or cap is not None:
                weight = dense(layer.weight)
                reach = self._coarsely(index, np.concatenate([weight, -weight]), ellipsoids)
                loose = up(Approx.weight(weight).err(self._moved(index)) + error)
                reach = up(np.maximum(reach, 0.0) + np.tile(loose, 2))  # the centre counts anyway
                lower = np.fmax(lower, down(value - reach[layer.size :]))
                upper = np.fmin(upper, up(value + reach[: layer.size]))
            if not (np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)).all():
                raise ProofFailed(f"layer {index + 1} has no finite intervals")
            seen = parabolas(layer.neurons, lower, upper, value, error)
            self.parabolas.append(seen)
            if index + 2 < network.depth:
                S, exponent = Image(P, exponent, Columns(layer.weight)).block()
                ellipsoids.append((S[0], int(exponent[0])))
                alpha, beta, ahead = seen.alpha[None], seen.beta[None], network.layers[index + 1].weight
                P = activate(S, alpha, beta, choose(S, alpha, beta, ahead)).P

    def least(self, rows: Array) -> Array:
        """At most rows·v_N at the centre, (k,)."""
        return dot(rows, Near(*self.output)).below

    def rises(self, rows: Array) -> list[Rise]:
        """What rows·Δv_N can rise by, for rows (k, outputs)."""
        last = self.network.depth - 1
        through, missed = pulled(Approx(rows), self.network.layers[last].weight, self._moved(last))
        gradient, curvatures, constant = self._traced(last, through)
        gradient, boxed = split_by_box(self.ball, gradient)
        constant = up(up(constant + missed) + boxed)
        return [Rise(gradient[k], tuple(D[k] for D in curvatures), float(constant[k])) for k in range(len(rows))]

    def where(self, rise: Rise, multipliers: Sequence[Array], limit: float) -> Cap:
        """The cap outside of which a row rises by less than a limit: g·d ≥ limit - ½λmax(H)δ² - constant inside."""
        _, _, most = self._curvature(rise, multipliers)
        return Cap(rise.gradient, float((limit - (0.5 * Near.of(self._over_ball(most)) + rise.constant)).below))

    def _over_ball(self, rate: Array | float) -> Array:
        """At least rate·δ² for a rate ≥ 0; δ² itself might underflow."""
        return twice_above(np.asarray(self.radius), np.asarray(rate))

    def _moved(self, index: int) -> Array:
        """At least the size of each difference that enters a layer."""
        return self.parabolas[index - 1].moved if index else np.full(self.network.inputs, self.radius)

    def _curvature(self, rise: Rise, multipliers: Sequence[Array]) -> tuple[Array, Array, float]:
        """B of the first layer, H on fewer inputs, and at least λmax(H) and zero."""
        *others, top = range(self.network.depth - 1)
        B = np.diag(rise.curvatures[top])
        for index in reversed(others):
            A, seen = congruence(B, self.network.layers[index + 1].weight.T), self.parabolas[index]
            step = activate(A[None], seen.alpha[None], seen.beta[None], multipliers[index][None], signed=True)
            B = raise_diagonal(step.P[0], rise.curvatures[index])
        H = congruence(B, self.first.weight.T)
        most = np.maximum(largest_eigenvalue_above(H), 0.0)
        return B, H, float(twice_above(np.asarray(self.first.stretch), most))

    def above(self, rise: Rise, multipliers: Sequence[Array], mu: float) -> float:
        """At least what a row rises by within the ball, proved with multipliers of all hidden layers but the last."""
        B, H, most = self._curvature(rise, multipliers)
        if not most < mu:
            return np.inf
        y = solved_across(H, self.first.rows, rise.gradient, mu)
        weight = self.network.layers[0].weight
        total = form_over_ball(rise.gradient, weight, B, self.radius, most, mu, y)
        return float(up(np.asarray(total + rise.constant)))

    def _coarsely(self, index: int, rows: Array, ellipsoids: list[tuple[Array, int]]) -> Array:
        """At least rows·Δz of the activations before a layer, by the ellipsoids 4**exponent·S of the layers before."""
        gradient, curvatures, constant = self._traced(index, rows)
        bend = np.zeros(len(rows))
        for D, (S, exponent) in zip(curvatures, ellipsoids, strict=True):
            bend = up(bend + up(np.ldexp(form_above(np.maximum(D, 0.0), S), 2 * exponent)))
        rest, boxed = split_by_box(self.ball, gradient)
        slope = np.fmin(up(self.radius * norm_above(gradient)), up(up(self.radius * norm_above(rest)) + boxed))
        if self.cap is not None:
            slope = np.fmin(slope, self.cap.above(gradient, self.radius))  # it may be negative
        return up(slope + up(0.5 * self._over_ball(bend) + constant))

    def _traced(self, index: int, rows: Array) -> tuple[Array, list[Array], Array]:
        """g, the D_k from the first layer on, and the constant, for rows·Δz of the activations before a layer."""
        constant = np.zeros(len(rows))
        curvatures = []
        for back in range(index - 1, -1, -1):
            seen = self.parabolas[back]
            curvatures.append(up(rows * np.where(rows > 0.0, seen.above, seen.below)))
            constant = up(constant + dot(np.abs(rows), seen.slack).above)
            sloped = Approx(rows).scaled(np.ones(1), seen.slope)
            rows, missed = pulled(sloped, self.network.layers[back].weight, self._moved(back))
            constant = up(constant + missed)
        return rows, curvatures[::-1], constant
