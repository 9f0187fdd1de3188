"""How large a row of the outputs can get over a ball, by value functions; proved.

Let y hold 1, the input (x - centre)/radius =: u, and the values z of all neurons whose slope is open, each over a power
of two that is at least its size. With fewer neurons in the first layer than inputs, W(x - centre) = radius·R u for a
square R and some ‖u‖ ≤ 1. Every pre-activation is an affine function of y. For each open neuron some products
of two affine functions are known not to be negative, or to be zero: q(y) = (left·y)(right·y). So for multipliers λ of
the right sign and λ_0 ≥ 0

    row·v_N ≤ c·y + Σ λ q(y) + λ_0(1 - ‖x - centre‖²/radius²) =: -yᵀM y,

and if M + t·e_0e_0ᵀ ≽ -σI then row·v_N ≤ t + σ‖y‖², where ‖y‖² ≤ 2 + the number of open neurons. Eliminating the blocks
of M from the last layer to the first is Cholesky's algorithm, and the Schur complements are the value functions.

Affine functions are rows of y with an error for each entry; |y| ≤ 1, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, Number, down, largest_eigenvalue_above, up
from lipcert.kernel.hints import Interval
from lipcert.kernel.neuron_bounds import kinked, value_error
from lipcert.kernel.row_bounds import first_factor, lines_around, radius_of, straight_parts
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball
from lipcert.suggest.multipliers import lowest

Cut: TypeAlias = tuple[int, int, int]
"""A hidden layer, from 0, a neuron of it, and the side of 0 that it is confined to: 1 for v ≥ 0, -1 for v ≤ 0."""
Product: TypeAlias = tuple[Near, Near, bool]
"""left·right ≥ 0 for some neurons, or = 0 if the last is true."""

_CLOSE: Final = 1e-3
"""An end of an interval is moved out to this share of the other one."""
_LEAST: Final = 1e-280
"""Sizes are at least this, so that their powers of two are positive."""


@dataclass(frozen=True, eq=False)
class DualHints:
    """What shows that a row of the outputs stays below zero; untrusted numbers.

    Attributes
    ----------
    row : of the outputs.
    cuts : the sides that neurons are confined to; none for the whole ball.
    multipliers : one per product, in the order of :class:`DualBound`.
    ball : the multiplier of the ball.
    """

    row: Array
    cuts: tuple[Cut, ...]
    multipliers: Array
    ball: float


@dataclass(frozen=True, eq=False)
class Open:
    """Open neurons of a layer: z = scale·y at their ``place``, below_slope·v + below ≤ z ≤ above_slope·v + above."""

    neurons: Neurons
    v: Near
    scale: Array
    place: Array
    low: Array
    high: Array
    alpha: Array
    beta: Array
    below_slope: Array
    below: Array
    above_slope: Array
    above: Array

    def factor(self, a: Array, b: float, c: Number) -> Near:
        """a·v + b·z + c for b = ±1 or 0; v has no part in the places of z."""
        found = _affine(self.v, a, c)
        found.value[np.arange(len(self.place)), self.place] = b * self.scale
        return found

    def take(self, which: Array) -> Open:
        parts = (part[which] for part in list(vars(self).values())[1:])
        return Open(self.neurons.take(which), *parts)


@dataclass(frozen=True, eq=False)
class Group:
    """Products for the neurons ``at`` of a layer, one after the other; ``open`` is what they rest on, but for ends."""

    layer: int
    at: Array
    products: list[Product]
    open: Open | None = None


class DualBound:
    """The products of one network over one ball, from intervals of its pre-activations that are known.

    Attributes
    ----------
    groups : the products by layers and rules, and what they were made from.
    left, right : rows of the two factors of each product, (products, size).
    free : products that are zero, so that their multipliers may have either sign.
    first : R, what the first layer does to the inputs of y.
    inputs, size : how many entries of y are inputs, and how many entries there are.
    output : v_N, (outputs, size).
    """

    def __init__(self, network: Network, ball: Ball, intervals: Sequence[Interval], cuts: Sequence[Cut] = ()) -> None:
        intervals, layers = _confined(intervals, cuts), network.layers[:-1]
        known = [straight_parts(layer, interval) for layer, interval in zip(layers, intervals, strict=True)]
        self.first = first_factor(network.layers[0].weight)
        self.inputs = self.first.shape[1]
        self.size = 1 + self.inputs + sum(some.size for _, _, some, _, _ in known)
        self.groups: list[Group] = []
        v, at = self._preactivations(network.layers[0], ball), 1 + self.inputs
        for k, (layer, (low, high), parts) in enumerate(zip(layers, intervals, known, strict=True)):
            slope, offset, some, *slopes = parts
            z = _affine(v, slope, offset)
            if some.size:
                assert layer.neurons is not None
                neurons, ends = layer.neurons.take(some), (low[some], high[some])
                *lines, floor, roof = lines_around(neurons, *ends)
                # a power of two above the size of z
                scale = np.ldexp(1.0, np.frexp(np.maximum(np.maximum(-floor, roof), _LEAST))[1])
                place = at + np.arange(some.size)
                self._open(k, some, Open(neurons, v[some], scale, place, *ends, *slopes, *lines))
                z.value[some], z.error[some] = 0.0, 0.0
                z.value[some, place] = scale
            cut = np.array(sorted({neuron for layer_, neuron, _ in cuts if layer_ == k}), dtype=int)
            if cut.size:
                self.groups.append(Group(k, cut, [_ends(v[cut], low[cut], high[cut])]))
            v, at = _through(network.layers[k + 1], z), at + some.size
        self.output = v
        products = [product for group in self.groups for product in group.products]
        self.left = _stacked([left for left, _, _ in products], self.size)
        self.right = _stacked([right for _, right, _ in products], self.size)
        free = (np.full(len(left.value), zero) for left, _, zero in products)
        self.free = np.concatenate([np.zeros(0, dtype=bool), *free])

    def _preactivations(self, layer: Layer, ball: Ball) -> Near:
        """Those of the first layer, W·centre + bias + radius·R u."""
        rows = Near(*np.zeros((2, layer.size, self.size)))
        moved = Near.weights(self.first) * radius_of(ball)
        rows.value[:, 1 : 1 + self.inputs], rows.error[:, 1 : 1 + self.inputs] = moved.value, moved.error
        return _plus(rows, Near.of(ball.center).through(layer.weight) + Near.weights(layer.bias))

    def _open(self, k: int, some: Array, opened: Open) -> None:
        """Add what holds of the open neurons of a layer."""
        bent = kinked(opened.neurons, opened.low, opened.high, opened.alpha, opened.beta)
        for rule, which in ((_kink, bent), (_lines, ~bent)):
            at = np.flatnonzero(which)
            if at.size:
                one = opened.take(at)
                self.groups.append(Group(k, some[at], rule(one), one))

    def objective(self, row: Array) -> Near:
        """C with row·v_N = c·y, (1, size)."""
        return Near.of(row[None]) @ self.output

    @np.errstate(all="ignore")
    def above(self, row: Array, multipliers: Array, ball: float) -> float:
        """At least max of row·v_N over the ball, for any multipliers; those of a wrong sign count as zero."""
        if np.shape(multipliers) != self.free.shape:
            raise ProofFailed("the multipliers are not those of the products")
        weights = np.where(self.free, multipliers, np.maximum(multipliers, 0.0))
        squares = np.zeros(self.size)
        squares[0] = max(float(ball), 0.0)
        squares[1 : 1 + self.inputs] = -squares[0]
        unit = np.eye(self.size)
        G = (
            (self.left.T * weights) @ self.right
            + unit[:, :1] * self.objective(np.asarray(row, dtype=float))
            + unit * squares
        )
        G = 0.5 * (G + G.T)  # yᵀGy = -yᵀM y
        if not np.isfinite(G.value).all():
            raise ProofFailed("the multipliers are too large")
        t = lowest(-G.value)
        G = G - t * (unit[:, :1] * unit[:1])
        sigma = np.maximum(largest_eigenvalue_above(G.value), 0.0)
        length = 1.0 + self.size - self.inputs  # at least ‖y‖²
        return float((t + Near.of(sigma) * length + Near.of(G.error.ravel()).sum()).above)


def _plus(f: Near, constant: Number) -> Near:
    """F + constant; y begins with 1."""
    first, value, error = f[:, 0] + constant, np.array(f.value), np.array(np.broadcast_to(f.error, f.shape))
    value[:, 0], error[:, 0] = first.value, first.error
    return Near(value, error)


def _affine(f: Near, a: Array, constant: Number) -> Near:
    """a·f + constant, function by function."""
    return _plus(f * a[:, None], constant)


def _through(layer: Layer, z: Near) -> Near:
    """W z + b."""
    return _plus(z.T.through(layer.weight).T, Near.weights(layer.bias))


def _stacked(parts: Sequence[Near], size: int) -> Near:
    """All rows, one part below the other."""
    empty = np.zeros((0, size))
    return Near(
        np.concatenate([empty, *(one.value for one in parts)]), np.concatenate([empty, *(one.error for one in parts)])
    )


def _kink(one: Open) -> list[Product]:
    """With p = z - a·v and m = b·v - z: p = 0 or m = 0, 0 ≤ p ≤ (b - a)·high, (b - a)·low ≤ m ≤ 0."""
    a, b = one.alpha, one.beta
    top, bottom = up(up(b - a) * one.high), down(up(b - a) * one.low)
    # a search is steadier where neither end is all too close
    top, bottom = np.maximum(top, -_CLOSE * bottom), np.minimum(bottom, -_CLOSE * top)
    p, m = one.factor(-a, 1.0, 0.0), one.factor(b, -1.0, 0.0)
    return [(p, one.factor(a, -1.0, top), False), (m, one.factor(-b, 1.0, bottom), False), (p, m, True)]


def _lines(one: Open) -> list[Product]:
    """Between two lines and two ends, and with secants from the middle of the interval that are slopes."""
    low, high, alpha, beta = one.low, one.high, one.alpha, one.beta
    under, over = one.factor(-one.below_slope, 1.0, -one.below), one.factor(one.above_slope, -1.0, one.above)
    unit = one.factor(np.zeros(len(low)), 0.0, 1.0)
    middle = np.clip(0.5 * low + 0.5 * high, low, high)
    value = one.neurons.value(middle)
    start = Near(value, value_error(one.neurons, value))
    least = one.factor(-alpha, 1.0, Near.of(alpha) * middle - start)
    most = one.factor(beta, -1.0, start - Near.of(beta) * middle)
    lines = [(under, over, False), (under, unit, False), (over, unit, False)]
    return [*lines, _ends(one.v, low, high), (least, most, False)]


def _ends(v: Near, low: Array, high: Array) -> Product:
    """Both v - low and high - v are at least 0."""
    one = np.ones(len(low))
    return _affine(v, one, -low), _affine(v, -one, high), False


def _confined(intervals: Sequence[Interval], cuts: Sequence[Cut]) -> Sequence[Interval]:
    """The intervals where neurons are confined to sides of 0."""
    if not cuts:
        return intervals
    parts = [(np.array(lower), np.array(upper)) for lower, upper in intervals]
    for layer, neuron, side in cuts:
        if not (0 <= layer < len(parts) and 0 <= neuron < len(parts[layer][0]) and side in (-1, 1)):
            raise ProofFailed("a cut is not one of the network's neurons")
        lower, upper = parts[layer]
        if side > 0:
            lower[neuron] = max(lower[neuron], 0.0)
        else:
            upper[neuron] = min(upper[neuron], 0.0)
    return parts


def stays_negative(build: Callable[[Sequence[Cut]], DualBound], row: Array, leaves: Sequence[DualHints]) -> bool:
    """Whether row·v_N is proved to be negative all over a region, piece by piece.

    ``build`` gives the products of the region where some neurons are confined. A piece without a leaf of its own is
    looked at on both sides of the neuron that the first leaf below it names.
    """
    mine = [leaf for leaf in leaves if np.array_equal(leaf.row, row)]

    def covered(cuts: tuple[Cut, ...]) -> bool:
        below = [leaf for leaf in mine if leaf.cuts[: len(cuts)] == cuts]
        if not below:
            return False
        for leaf in below:
            if len(leaf.cuts) == len(cuts):
                return build(cuts).above(row, leaf.multipliers, leaf.ball) < 0.0
        layer, neuron, _ = below[0].cuts[len(cuts)]
        return all(covered((*cuts, (layer, neuron, side))) for side in (-1, 1))

    try:
        return covered(())
    except (ProofFailed, np.linalg.LinAlgError, RecursionError):  # a file may nest cuts without end
        return False
