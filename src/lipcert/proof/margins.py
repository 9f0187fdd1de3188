"""How large a row of the outputs can get over a ball, by value functions; proved.

Let y hold 1, the input (x - centre)/radius, and the values z of all neurons whose slope is open, each over a power of
two that is at least its size. Every pre-activation is an affine function of y. For each open neuron some products
of two affine functions are known not to be negative, or to be zero: q(y) = (left·y)(right·y). So for multipliers λ of
the right sign and λ_0 ≥ 0

    row·v_N ≤ c·y + Σ λ q(y) + λ_0(1 - ‖x - centre‖²/radius²) =: -yᵀM y,

and if M + t·e_0e_0ᵀ ≽ -σI then row·v_N ≤ t + σ‖y‖², where ‖y‖² ≤ 2 + the number of open neurons. Eliminating the blocks
of M from the last layer to the first is Cholesky's algorithm, and the Schur complements are the value functions.

Affine functions are kept as float rows with a bound of what they miss. |y| ≤ 1 entry by entry, so all that is missed,
in rows, in products and in M, is charged to the bound at the cost of sums of absolute values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Ball
from lipcert.proof.hints import Interval
from lipcert.proof.near import largest_eigenvalue_above
from lipcert.proof.neuron_bounds import kinked, relax, slope_bounds, value_error
from lipcert.proof.rounding import LOOSE, TINY, UP, U, down, fan_in, gamma, up
from lipcert.suggest.algebra import lowest
from lipcert.suggest.lines import suggested_lines

Cut: TypeAlias = tuple[int, int, int]
"""A hidden layer, from 0, a neuron of it, and the side of 0 that it is confined to: 1 for v ≥ 0, -1 for v ≤ 0."""


_CLOSE: Final = 1e-3
"""An end of an interval is moved out to this share of the other one."""


@dataclass(frozen=True, eq=False)
class MarginHints:
    """What shows that a row of the outputs stays below zero; nothing in it is believed.

    Attributes
    ----------
    row : of the outputs.
    cuts : the sides that neurons are confined to; none for the whole ball.
    multipliers : one per product, in the order of :class:`Margins`.
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

    @property
    def size(self) -> Array:
        """At least |rows·y|."""
        return np.asarray(np.abs(self.rows).sum(axis=-1) * UP + TINY)

    def combine(self, a: Array, other: _Affine, b: Array, constant: Array) -> _Affine:
        """a·self + b·other + constant, neuron by neuron; three roundings of each entry."""
        rows = a[:, None] * self.rows + b[:, None] * other.rows
        rows[:, 0] += constant
        sizes = np.abs(a) * self.size + np.abs(b) * other.size + np.abs(constant)
        error = np.abs(a) * self.error + np.abs(b) * other.error + gamma(4) * sizes
        return _Affine(rows, error * UP + TINY * (2.0 + np.abs(a) + np.abs(b)))

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


class Margins:
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
        intervals = _confined(intervals, cuts)
        if not ball.plain or ball.center.ndim != 1 or not 0.0 < float(ball.radius) < np.inf:
            raise ProofFailed("value functions are for single balls of the ℓ2 norm and of positive radius")
        self.network, self.inputs = network, network.inputs
        layers, slopes = network.layers[:-1], []
        for layer, (lower, upper) in zip(layers, intervals, strict=True):
            assert layer.neurons is not None
            if not (np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)).all():
                raise ProofFailed("value functions need intervals of all neurons")
            slopes.append(slope_bounds(layer.neurons, lower, upper))
        opens = [np.flatnonzero(~(alpha == beta)) for alpha, beta in slopes]
        self.size = 1 + self.inputs + sum(some.size for some in opens)
        found: list[_Products] = []
        z, at = self._input(ball), 1 + self.inputs
        for k, (layer, interval, slope, some) in enumerate(zip(layers, intervals, slopes, opens, strict=True)):
            assert layer.neurons is not None
            v = self._through(k, z)
            z = _closed(layer.neurons, v, interval, slope[0])
            if some.size:
                ends = tuple(end[some] for end in (*interval, *slope))
                found += _opened(k, some, layer.neurons.take(some), v, z, at, ends)
            cut = np.array(sorted({neuron for layer_, neuron, _ in cuts if layer_ == k}), dtype=int)
            if cut.size:
                found.append(_ends(k, cut, v.take(cut), *(end[cut] for end in interval)))
            at += some.size
        self.output = self._through(len(layers), z)
        self._gather(found)

    def _input(self, ball: Ball) -> _Affine:
        """The inputs centre + radius·y, exactly."""
        rows = np.zeros((self.inputs, self.size))
        rows[:, 0] = ball.center
        rows[np.arange(self.inputs), 1 + np.arange(self.inputs)] = float(ball.radius)
        return _Affine(rows, np.zeros(self.inputs))

    def _through(self, index: int, z: _Affine) -> _Affine:
        """W z + b: the product loses γ of its terms, and weights and biases are known to LOOSE·u."""
        layer = self.network.layers[index]
        weight, bias = layer.weight, layer.bias
        rows = dense(weight) @ z.rows if isinstance(weight, np.ndarray) else np.asarray(weight @ z.rows)
        rows[:, 0] += bias
        size = np.abs(dense(weight))
        lost = gamma(fan_in(weight) + LOOSE + 4) * (size @ z.size + np.abs(bias))
        error = (size @ z.error) * (1.0 + gamma(LOOSE)) + lost + TINY * (1.0 + size.sum(axis=-1))
        return _Affine(rows, error * UP + TINY)

    def _gather(self, found: Sequence[_Products]) -> None:
        """Put the products of all layers one below the other.

        With factors f = l + δ and g = r + ε, |fg - lr| ≤ |δ|(|r| + |ε|) + |ε||l|.
        """
        nothing = np.zeros((0, self.size)), np.zeros(0)
        left, right = (
            _Affine(
                *(
                    np.concatenate([empty, *(getattr(getattr(one, side), part) for one in found)])
                    for part, empty in zip(("rows", "error"), nothing, strict=True)
                )
            )
            for side in ("left", "right")
        )
        self.left, self.right = left.rows, right.rows
        self.free = np.concatenate([np.zeros(0, dtype=bool), *(np.full(one.neuron.size, one.free) for one in found)])
        self.weights = np.concatenate([np.zeros(0), *(one.weight for one in found)])
        self.layer = np.concatenate([np.zeros(0, dtype=int), *(np.full(one.neuron.size, one.layer) for one in found)])
        self.neuron = np.concatenate([np.zeros(0, dtype=int), *(one.neuron for one in found)])
        missed = left.error * (right.size + right.error) + right.error * left.size
        # and what forming M loses of each product
        rounded = gamma(len(self.free) + 8) * left.size * right.size
        self._missed = np.asarray((missed + rounded) * UP * UP + TINY)
        # what underflows in λ·left, however small λ is, is multiplied by the right factor
        self._under = float(TINY * (1.0 + self.size + right.size.sum()) * UP)

    def objective(self, row: Array) -> tuple[Array, float]:
        """c, and at least |row·v_N - c·y|."""
        terms = np.abs(row) @ (self.output.error + gamma(len(row) + 4) * self.output.size)
        return row @ self.output.rows, float(terms * UP + TINY * (1.0 + np.abs(row).sum()))

    def form(self, c: Array, multipliers: Array, ball: float) -> Array:
        """M as computed, (size, size)."""
        X = (multipliers[:, None] * self.left).T @ self.right
        M = -0.5 * (X + X.T)
        M[0] -= 0.5 * c
        M[:, 0] -= 0.5 * c
        M[0, 0] -= ball
        inner = 1 + np.arange(self.inputs)
        M[inner, inner] += ball
        return M

    def above(self, row: Array, multipliers: Array, ball: float) -> float:
        """At least max of row·v_N over the ball, for any multipliers; those of a wrong sign count as zero."""
        if np.shape(multipliers) != self.free.shape:
            raise ProofFailed("the multipliers are not those of the products")
        with np.errstate(all="ignore"):
            weights = np.where(self.free, multipliers, np.maximum(multipliers, 0.0))
            ball = max(float(ball), 0.0)
            c, missed = self.objective(np.asarray(row, dtype=float))
            M = self.form(c, weights, ball)
            if not np.isfinite(M).all():
                raise ProofFailed("the multipliers are too large")
            shifted = float(M[0, 0] + lowest(M))
            t = float(up(np.asarray(shifted - M[0, 0])))
            M[0, 0] = shifted
            sigma = max(float(largest_eigenvalue_above(-M)), 0.0)
            open_ = self.size - 1 - self.inputs
            sizes = np.abs(c).sum() + abs(shifted) + abs(t) + ball * (2.0 + self.inputs)
            charge = np.abs(weights) @ self._missed + missed + gamma(12) * sizes + self._under
            total = t + (sigma * (2.0 + open_) + charge) * (UP * UP)
            return float(up(np.asarray(total + 4.0 * gamma(1) * (abs(t) + abs(total)))))


def _closed(neurons: Neurons, v: _Affine, interval: Interval, slope: Array) -> _Affine:
    """Of neurons with a single slope, z = slope·v + offset; of the others, which follow, this says nothing."""
    low = interval[0]
    end = neurons.value(low)
    still = slope == 0.0
    offset = np.where(still, end, end - slope * low)
    slack = value_error(neurons, end) + np.where(still, 0.0, 8.0 * U * (np.abs(end) + np.abs(slope * low)))
    straight = (end == 0.0) & still & (slack <= 4.0 * TINY)
    z = v.combine(slope, v, np.zeros(len(slope)), offset)
    error = np.where(straight, slack, z.error + slack * UP) + TINY
    return _Affine(np.where(straight[:, None], 0.0, z.rows), error)


def _opened(
    k: int, some: Array, neurons: Neurons, below: _Affine, z: _Affine, at: int, ends: tuple[Array, ...]
) -> list[_Products]:
    """Give the open neurons of a layer entries of y, from ``at`` on, and say what holds of them; z changes in place."""
    low, high = ends[:2]
    v = below.take(some)
    drawn = relax(neurons, low, high, *suggested_lines(neurons, (low, high)))
    most = np.maximum(np.abs(drawn[4]), np.abs(drawn[5]))
    if not all(np.isfinite(part).all() for part in drawn):
        raise ProofFailed("the lines around a neuron are not finite")
    scale = np.ldexp(1.0, np.frexp(np.maximum(most, TINY))[1])  # at least the size of z
    z.rows[some], z.error[some] = 0.0, 0.0
    z.rows[some, at + np.arange(some.size)] = scale
    mine = z.take(some)
    bent = kinked(neurons, *ends)
    found = []
    for rule, which in ((_kink, bent), (_lines, ~bent)):
        at_ = np.flatnonzero(which)
        if at_.size:
            seen = [part[at_] for part in (*ends, *drawn[:4])]
            found += rule(k, some[at_], neurons.take(at_), v.take(at_), mine.take(at_), seen)
    return found


def _kink(k: int, at: Array, neurons: Neurons, v: _Affine, z: _Affine, seen: Sequence[Array]) -> list[_Products]:
    """With p = z - a·v and m = b·v - z: p = 0 or m = 0, 0 ≤ p ≤ (b - a)·high, (b - a)·low ≤ m ≤ 0."""
    low, high, a, b = seen[:4]
    one, zero = np.ones(len(low)), np.zeros(len(low))
    p, m = z.combine(one, v, -a, zero), z.combine(-one, v, b, zero)
    top, bottom = up(up(b - a) * high), down(up(b - a) * low)
    # a search is steadier where neither end is all too close
    top, bottom = np.maximum(top, -_CLOSE * bottom), np.minimum(bottom, -_CLOSE * top)
    rest, less = p.combine(-one, p, zero, top), m.combine(-one, m, zero, bottom)
    first, second = 1.0 / np.maximum(top, TINY), 1.0 / np.maximum(-bottom, TINY)
    return [
        _Products(p, rest, False, first * first, at, k),
        _Products(m, less, False, second * second, at, k),
        _Products(p, m, True, zero, at, k),
    ]


def _lines(k: int, at: Array, neurons: Neurons, v: _Affine, z: _Affine, seen: Sequence[Array]) -> list[_Products]:
    """Between two lines and two ends, and with secants from the middle of the interval that are slopes."""
    low, high, alpha, beta, under, under_at, over, over_at = seen
    one, zero = np.ones(len(low)), np.zeros(len(low))
    over_line, under_line = z.combine(-one, v, over, over_at), z.combine(one, v, -under, -under_at)
    unit = _Affine(np.zeros_like(v.rows), zero)
    unit.rows[:, 0] = 1.0
    middle = np.clip(0.5 * low + 0.5 * high, low, high)
    value = neurons.value(middle)
    missed = value_error(neurons, value) * UP + TINY
    moved, risen = v.combine(one, v, zero, -middle), z.combine(one, z, zero, -value)
    risen = _Affine(risen.rows, up(risen.error + missed) * UP)
    width = np.maximum(high - low, TINY)
    gap, fan = 0.5 * np.abs(over - under), 0.5 * (beta - alpha)
    steep = np.maximum(np.maximum(np.abs(beta), np.abs(alpha)), TINY)
    main = 1.0 / steep / width
    between = np.minimum(main * main, 1e150)
    return [
        _Products(under_line, over_line, False, between, at, k),
        _Products(under_line, unit, False, np.sqrt(between), at, k),
        _Products(over_line, unit, False, np.sqrt(between), at, k),
        replace(_ends(k, at, v, low, high), weight=2.0 * between * (gap * gap + fan * fan) + between / steep),
        _Products(
            risen.combine(one, moved, -alpha, zero), risen.combine(-one, moved, beta, zero), False, between, at, k
        ),
    ]


def _ends(k: int, at: Array, v: _Affine, low: Array, high: Array) -> _Products:
    """Both v - low and high - v are at least 0."""
    one, zero = np.ones(len(low)), np.zeros(len(low))
    width = 1.0 / np.maximum(high - low, TINY)
    return _Products(v.combine(one, v, zero, -low), v.combine(-one, v, zero, high), False, width * width, at, k)


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


def stays_negative(build: Callable[[Sequence[Cut]], Margins], row: Array, leaves: Sequence[MarginHints]) -> bool:
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
