"""How large a row of the outputs can get over a ball, by value functions; proved.

Let y hold 1, the input (x - centre)/radius, and the values z of all neurons whose slope is open, each over a power of
two that is at least its size. Every pre-activation is an affine function of y. For each open neuron some products
of two affine functions are known not to be negative, or to be zero: q(y) = (left·y)(right·y). So for multipliers λ of
the right sign and λ_0 ≥ 0

    row·v_N ≤ c·y + Σ λ q(y) + λ_0(1 - ‖x - centre‖²/radius²) =: -yᵀM y,

and if M + t·e_0e_0ᵀ ≽ -σI then row·v_N ≤ t + σ‖y‖², where ‖y‖² ≤ 2 + the number of open neurons. Eliminating the blocks
of M from the last layer to the first is Cholesky's algorithm, and the Schur complements are the value functions.

Affine functions are float rows with a bound of what they miss where |y| ≤ 1, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.hints import Interval
from lipcert.kernel.near import Approx, Near, Number, dot, largest_eigenvalue_above
from lipcert.kernel.neuron_bounds import kinked, value_error
from lipcert.kernel.rounding import down, up
from lipcert.kernel.row_bounds import lines_around, radius_of, straight_parts
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network, Neurons
from lipcert.model.regions import Ball
from lipcert.suggest.algebra import lowest

Cut: TypeAlias = tuple[int, int, int]
"""A hidden layer, from 0, a neuron of it, and the side of 0 that it is confined to: 1 for v ≥ 0, -1 for v ≤ 0."""


_CLOSE: Final = 1e-3
"""An end of an interval is moved out to this share of the other one."""
_LEAST: Final = 1e-280
"""Keeps quotients finite where a search begins, and powers of two positive."""
_ONE: Final = np.ones(1)


@dataclass(frozen=True, eq=False)
class DualHints:
    """What shows that a row of the outputs stays below zero; nothing in it is believed.

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
class _Affine:
    """Functions f with |f - rows·y| ≤ error for every y that counts."""

    rows: Array
    error: Array

    @staticmethod
    def of(matrix: Approx, constant: Near) -> _Affine:
        """matrix·y + constant."""
        rows, error = matrix.value, matrix.err(np.ones(matrix.value.shape[-1]))
        first = constant + rows[:, 0]
        rows[:, 0] = first.value
        return _Affine(rows, up(error + first.error))

    @property
    def matrix(self) -> Approx:
        """The same as rows whose entries for the 1 in y are uncertain."""
        error, first = self.error, np.eye(self.rows.shape[-1])[0]
        return Approx(
            self.rows,
            inner=lambda y: error if y is None else error * y[..., 0],
            inner_turned=lambda x: first * (error.sum() if x is None else error @ x),
        )

    @property
    def size(self) -> Array:
        """At least |rows·y|."""
        return Approx(self.rows).rows()

    def times(self, a: Array, constant: Number) -> _Affine:
        """a·f + constant, function by function."""
        return _Affine.of(self.matrix.scaled(a, _ONE), Near.of(constant))

    def take(self, which: Array) -> _Affine:
        return _Affine(self.rows[which], self.error[which])


@dataclass(frozen=True, eq=False)
class _Products:
    """left·right ≥ 0, or = 0 where ``free``, for some neurons of a layer; ``weight`` is where a search may begin."""

    left: _Affine
    right: _Affine
    free: bool
    weight: Array
    neuron: Array
    layer: int

    @property
    def missed(self) -> Array:
        """At least |fg - lr| for factors f = l + δ and g = r + ε: |δ|(|r| + |ε|) + |ε||l|."""
        left, right = self.left, self.right
        return (Near.of(left.error) * up(right.size + right.error) + Near.of(left.size) * right.error).above


@dataclass(frozen=True, eq=False)
class _Open:
    """Open neurons of a layer: z = scale·y at their ``place``, below_slope·v + below ≤ z ≤ above_slope·v + above."""

    neurons: Neurons
    v: _Affine
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

    def factor(self, a: Array, b: float, c: Number) -> _Affine:
        """a·v + b·z + c for b = ±1 or 0; v has no part in the places of z."""
        found = self.v.times(a, c)
        found.rows[np.arange(len(self.place)), self.place] = b * self.scale
        return found

    def take(self, which: Array) -> _Open:
        parts = (part[which] for part in list(vars(self).values())[2:])
        return _Open(self.neurons.take(which), self.v.take(which), *parts)


class DualBound:
    """The products of one network over one ball, from intervals of its pre-activations that are known.

    Attributes
    ----------
    left, right : rows of the two factors of each product, (products, size).
    free : products that are zero, so that their multipliers may have either sign.
    weights : multipliers to begin a search with, up to a common factor; a suggestion.
    layer, neuron : what each product is about.
    inputs, size : how many entries of y are inputs, and how many entries there are.
    """

    def __init__(self, network: Network, ball: Ball, intervals: Sequence[Interval], cuts: Sequence[Cut] = ()) -> None:
        intervals, layers = _confined(intervals, cuts), network.layers[:-1]
        self.network, self.inputs = network, network.inputs
        known = [straight_parts(layer, interval) for layer, interval in zip(layers, intervals, strict=True)]
        self.size = 1 + self.inputs + sum(some.size for _, _, some, _, _ in known)
        found: list[_Products] = []
        z, at = self._input(ball), 1 + self.inputs
        for k, (layer, (low, high), parts) in enumerate(zip(layers, intervals, known, strict=True)):
            slope, offset, some, *slopes = parts
            v = _through(layer, z)
            z = v.times(slope, offset)
            if some.size:
                assert layer.neurons is not None
                ends = low[some], high[some]
                drawn = lines_around(layer.neurons.take(some), *ends)
                # a power of two above the size of z
                scale = np.ldexp(1.0, np.frexp(np.maximum(np.maximum(-drawn[4], drawn[5]), _LEAST))[1])
                place = at + np.arange(some.size)
                opened = _Open(layer.neurons.take(some), v.take(some), scale, place, *ends, *slopes, *drawn[:4])
                found += _opened(k, some, opened)
                z.rows[some], z.error[some] = 0.0, 0.0
                z.rows[some, place] = scale
            cut = np.array(sorted({neuron for layer_, neuron, _ in cuts if layer_ == k}), dtype=int)
            if cut.size:
                found.append(_ends(k, cut, v.take(cut), low[cut], high[cut]))
            at += some.size
        self.output = _through(network.layers[-1], z)
        self._gather(found)

    def _input(self, ball: Ball) -> _Affine:
        """The inputs centre + radius·y, exactly."""
        rows = np.zeros((self.inputs, self.size))
        rows[:, 0] = ball.center
        rows[np.arange(self.inputs), 1 + np.arange(self.inputs)] = radius_of(ball)
        return _Affine(rows, np.zeros(self.inputs))

    def _gather(self, found: Sequence[_Products]) -> None:
        """Put the products of all layers one below the other."""
        empty = _Affine(np.zeros((0, self.size)), np.zeros(0))
        found = [_Products(empty, empty, False, np.zeros(0), np.zeros(0, dtype=int), 0), *found]
        self.left = np.concatenate([one.left.rows for one in found])
        self.right = np.concatenate([one.right.rows for one in found])
        self.free = np.concatenate([np.full(one.neuron.size, one.free) for one in found])
        self.weights = np.concatenate([one.weight for one in found])
        self.layer = np.concatenate([np.full(one.neuron.size, one.layer) for one in found])
        self.neuron = np.concatenate([one.neuron for one in found])
        self._missed = np.concatenate([one.missed for one in found])

    def objective(self, row: Array) -> tuple[Array, float]:
        """c, and at least |row·v_N - c·y|."""
        found = Approx(row[None]) @ self.output.matrix
        return found.value[0], float(found.err(np.ones(self.size))[0])

    def form(self, c: Array, multipliers: Array, ball: float) -> Array:
        """M as computed, (size, size)."""
        return _symmetric(self._form(c, multipliers, ball))

    def _form(self, c: Array, multipliers: Array, ball: float) -> Approx:
        """A matrix G with yᵀGy = -yᵀM y."""
        products = Approx(self.left).scaled(multipliers, _ONE).T @ Approx(self.right)
        linear = np.zeros((self.size, self.size))
        linear[0] = c
        squares = np.zeros(self.size)
        squares[0], squares[1 : 1 + self.inputs] = ball, -ball
        return products + Approx(linear) + Approx.diagonal(squares)

    def above(self, row: Array, multipliers: Array, ball: float) -> float:
        """At least max of row·v_N over the ball, for any multipliers; those of a wrong sign count as zero."""
        if np.shape(multipliers) != self.free.shape:
            raise ProofFailed("the multipliers are not those of the products")
        with np.errstate(all="ignore"):
            weights = np.where(self.free, multipliers, np.maximum(multipliers, 0.0))
            c, missed = self.objective(np.asarray(row, dtype=float))
            G = self._form(c, weights, max(float(ball), 0.0))
            if not np.isfinite(G.value).all():
                raise ProofFailed("the multipliers are too large")
            shift = np.zeros(self.size)
            shift[0] = t = lowest(_symmetric(G))
            sigma = np.maximum(largest_eigenvalue_above((G - Approx.diagonal(shift)).above()), 0.0)
            length = 1.0 + self.size - self.inputs  # at least ‖y‖²
            return float((t + Near.of(sigma) * length + dot(np.abs(weights), self._missed) + missed).above)


def _symmetric(G: Approx) -> Array:
    """M as computed."""
    return np.asarray(-0.5 * (G.value + G.value.T))


def _through(layer: Layer, z: _Affine) -> _Affine:
    """W z + b."""
    return _Affine.of(Approx.weight(layer.weight) @ z.matrix, Near.weights(layer.bias))


def _opened(k: int, some: Array, opened: _Open) -> list[_Products]:
    """What holds of the open neurons of a layer."""
    bent = kinked(opened.neurons, opened.low, opened.high, opened.alpha, opened.beta)
    found = []
    for rule, which in ((_kink, bent), (_lines, ~bent)):
        at = np.flatnonzero(which)
        if at.size:
            found += rule(k, some[at], opened.take(at))
    return found


def _kink(k: int, at: Array, one: _Open) -> list[_Products]:
    """With p = z - a·v and m = b·v - z: p = 0 or m = 0, 0 ≤ p ≤ (b - a)·high, (b - a)·low ≤ m ≤ 0."""
    a, b = one.alpha, one.beta
    top, bottom = up(up(b - a) * one.high), down(up(b - a) * one.low)
    # a search is steadier where neither end is all too close
    top, bottom = np.maximum(top, -_CLOSE * bottom), np.minimum(bottom, -_CLOSE * top)
    p, m = one.factor(-a, 1.0, 0.0), one.factor(b, -1.0, 0.0)
    rest, less = one.factor(a, -1.0, top), one.factor(-b, 1.0, bottom)
    first, second = 1.0 / np.maximum(top, _LEAST), 1.0 / np.maximum(-bottom, _LEAST)
    return [
        _Products(p, rest, False, first * first, at, k),
        _Products(m, less, False, second * second, at, k),
        _Products(p, m, True, np.zeros(len(at)), at, k),
    ]


def _lines(k: int, at: Array, one: _Open) -> list[_Products]:
    """Between two lines and two ends, and with secants from the middle of the interval that are slopes."""
    low, high, alpha, beta = one.low, one.high, one.alpha, one.beta
    under, over = one.factor(-one.below_slope, 1.0, -one.below), one.factor(one.above_slope, -1.0, one.above)
    unit = one.factor(np.zeros(len(at)), 0.0, 1.0)
    middle = np.clip(0.5 * low + 0.5 * high, low, high)
    value = one.neurons.value(middle)
    start = Near(value, value_error(one.neurons, value))
    least = one.factor(-alpha, 1.0, Near.of(alpha) * middle - start)
    most = one.factor(beta, -1.0, start - Near.of(beta) * middle)
    gap, fan = 0.5 * np.abs(one.above_slope - one.below_slope), 0.5 * (beta - alpha)
    steep = np.maximum(np.maximum(np.abs(beta), np.abs(alpha)), _LEAST)
    main = 1.0 / steep / np.maximum(high - low, _LEAST)
    between = np.minimum(main * main, 1e150)
    ends = replace(_ends(k, at, one.v, low, high), weight=2.0 * between * (gap * gap + fan * fan) + between / steep)
    return [
        _Products(under, over, False, between, at, k),
        _Products(under, unit, False, np.sqrt(between), at, k),
        _Products(over, unit, False, np.sqrt(between), at, k),
        ends,
        _Products(least, most, False, between, at, k),
    ]


def _ends(k: int, at: Array, v: _Affine, low: Array, high: Array) -> _Products:
    """Both v - low and high - v are at least 0."""
    one, width = np.ones(len(low)), 1.0 / np.maximum(high - low, _LEAST)
    return _Products(v.times(one, -low), v.times(-one, high), False, width * width, at, k)


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
