"""Pieces of deep networks to second order: remainders go through products of layers, not through layer after layer.

As in :mod:`lipcert.proof.second_pieces`, over a box c + h∘δ with |δ_i| ≤ 1,

    v_k = v̂_k + L_k + q_k + R_k,     L = Bδ,     φ'(v_k) = σ + tL + ε,     D_k = diag φ'(v_k),     Σ = diag σ,

and the Jacobian is that of the polynomial and the sum over the layers of Γ_k [(tL + ε)∇q_k + ε B_k], where Γ_k is the
product of all that follows layer k. Sizes of layer after layer, |W||W|…|R|, grow where the network itself contracts.
So one slope σ' per neuron is fixed for all pieces, those at a point of the region, and with

    Φ_kj = W_k Σ' W_(k-1) Σ' … W_(j+1)

the remainders of values and of Γ unfold. R_k = N_k + W_k(ΣR_(k-1) + s_(k-1)), s what the activation adds and N what
floats lose, is for every m < k

    R_k = N_k + Σ_(m<j<k) Φ_kj [(σ - σ')R_j + s_j + σ'N_j] + Φ_km [σR_m + s_m],

and Γ - Γ⁰ = E, with Γ⁰_(k-1) the float product Γ⁰_k ΣW_k, which loses N, is for every m > k

    E_k = N_k + Σ_(k<j<m) [E_j(D - Σ') + Γ⁰_j(D - Σ) + N_j Σ'] Φ_jk + [E_m D + Γ⁰_m(D - Σ)] Φ_mk.

Here sizes may be taken, since Φ contracts like the network. Nothing is believed of σ': any numbers will do, and those
near the slopes of a piece do best. What is of second order and has known signs, ∇(Γ⁰(tLq + c/6·L³)), is kept as a
polynomial; with δ_i² = ½ ± ½ its norm is largest at a corner of the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.proof.expansion import Expansion, Second, mixed
from lipcert.proof.hints import Interval
from lipcert.proof.rounding import LOOSE, TINY, UP, down, gamma, norm_above, spectral_above, spread, up
from lipcert.proof.second_pieces import MOST_INPUTS, curved
from lipcert.proof.slope_fits import fit

_BAND: Final = 12
"""Layers that a product spans at most."""
_ENTRIES: Final = 20_000_000
"""Numbers in all products together at most."""
_FLAT: Final = 2.0**-40
"""A side of a box is taken to be at least so much of its longest; a larger box is no mistake."""


def deep(network: Network) -> bool:
    """Whether pieces of a network are worth this: few inputs, slopes that change, and too many layers for less."""
    if network.inputs > MOST_INPUTS or network.depth < 2 or curved(network):
        return False
    rows = {id(row.row): row for layer in network.layers[:-1] if layer.neurons for row, _ in layer.neurons.groups}
    bends = any(len(row.row.turns(np.zeros(1), *row.row.parameters.values())) for row in rows.values())
    dense_ = all(isinstance(layer.weight, np.ndarray) for layer in network.layers)
    return bends and dense_ and _BAND * sum(layer.weight.size for layer in network.layers[1:]) <= _ENTRIES


@dataclass(frozen=True, eq=False)
class _Layer(Expansion):
    """A layer with ``bent`` (count, n, d) at least |∇q| by δ; ``fuzz`` is at least what floats lose of ∇(L + q)."""

    bent: Array
    fuzz: Array

    @property
    def error(self) -> Array:
        """At least |ε - tq - c/2·L²|: R stays in it."""
        return (super().error + np.abs(self.fit.rate) * self.rest) * UP


class DeepOrder:
    """Bounds of many pieces of one network at once; σ' are the slopes at a ``point``."""

    def __init__(self, network: Network, point: Array) -> None:
        self.layers = [(dense(layer.weight), layer.bias, layer.neurons) for layer in network.layers]
        values = network.preactivations(point)
        slopes = [layer.neurons.slope(v) for layer, v in zip(network.layers, values, strict=True) if layer.neurons]
        self.slopes = [np.where(np.isfinite(slope), slope, 0.0) for slope in slopes]
        self.products = [self._products(k) for k in range(1, len(self.layers))]
        d = network.inputs
        self.first, self.second = np.triu_indices(d)
        self.straight = self.first == self.second
        self.both = np.where(self.straight, 1.0, 2.0)
        self.axes = np.eye(d)[self.first] + np.eye(d)[self.second]
        signs = np.array(list(product([-1.0, 1.0], repeat=d)))
        pairs = (signs[:, self.first] * signs[:, self.second])[:, ~self.straight]
        self.corners = np.hstack([np.ones((len(signs), 1)), signs, pairs]).T
        where = np.zeros((d, d), dtype=int)
        where[self.first, self.second] = where[self.second, self.first] = np.arange(len(self.first))
        self.gradient = np.zeros((d, len(self.first), d, len(self.first)))
        for i, (pair, (j, k)) in product(range(d), enumerate(zip(self.first, self.second, strict=True))):
            for by, (one, other) in ((i, (j, k)), (j, (i, k)), (k, (i, j))):
                self.gradient[i, pair, by, where[one, other]] += 1.0

    def _products(self, k: int) -> list[Array]:
        """At least |Φ_kj| for j = k - 1, k - 2, …, as many as are used.

        Φ_(k,j-1) = Φ_kj Σ'W_j; its error is that of Φ_kj times |Σ'||W_j|, and γ|Φ_kj||Σ'||W_j|.
        """
        weight = self.layers[k][0]
        exact, error = weight, gamma(LOOSE + 1) * np.abs(weight) + TINY
        found = [(np.abs(exact) + error) * UP]
        for j in range(k - 1, max(k - _BAND, 0), -1):
            weight, slope = self.layers[j][0], self.slopes[j]
            size = np.abs(weight)
            error = (error + gamma(len(weight) + LOOSE + 4) * np.abs(exact)) * UP * np.abs(slope) @ size * UP + TINY
            exact = (exact * slope) @ weight
            found.append((np.abs(exact) + error) * UP)
        return found

    def bound(self, lower: Array, upper: Array, low: list[Array], high: list[Array]) -> Second:
        """At least the norm of the Jacobian on each box (count, d), where pre-activations lie between low and high."""
        center = 0.5 * lower + 0.5 * upper
        half = up(np.maximum(upper - center, center - lower))
        half = np.maximum(half, _FLAT * half.max(axis=-1, keepdims=True))
        with np.errstate(all="ignore"):
            hidden, value, last, intervals, empty = self._forward(center, half, list(zip(low, high, strict=True)))
            bounds, entries, near, shares = self._backward(half, hidden, last)
            room = (last.linear + last.square + last.rest) * UP
            outputs = up(np.concatenate([value + room, room - value], axis=-1))
        flat = ~(half > TINY).all(axis=-1)
        bounds, entries, outputs = (
            np.where(np.isnan(part) | flat.reshape(-1, *[1] * (part.ndim - 1)), np.inf, part)
            for part in (bounds, entries, outputs)
        )
        floor, roof = (np.concatenate(side, axis=-1) for side in zip(*intervals, strict=True))
        return Second(bounds, near, entries, outputs, floor, roof, empty, np.concatenate(shares, axis=-1))

    def _forward(
        self, center: Array, half: Array, known: list[Interval]
    ) -> tuple[list[_Layer], Array, _Layer, list[Interval], Array]:
        """The hidden layers, the last one and its values, intervals, and which pieces are without inputs."""
        count, d = center.shape
        hidden: list[_Layer] = []
        intervals: list[Interval] = []
        empty = np.zeros(count, dtype=bool)
        weight, bias, _ = self.layers[0]
        value = center @ weight.T + bias
        B, q = weight * half[:, None, :], np.zeros((count, len(weight), len(self.first)))
        size = np.abs(center) @ np.abs(weight).T + np.abs(bias) + np.abs(B).sum(axis=-1)
        rest = noise = gamma(d + LOOSE + 8) * size * UP + TINY
        fuzz = gamma(LOOSE + 8) * np.abs(B).max(axis=-1) * UP + TINY
        parts: list[Array] = []
        wholes: list[Array] = []
        for k in range(len(self.layers)):
            linear, square = np.abs(B).sum(axis=-1) * UP, np.abs(q).sum(axis=-1) * UP
            bent = np.abs(q) @ self.axes * UP
            if k == len(known):
                break
            neurons, (weight, bias, _) = self.layers[k][2], self.layers[k + 1]
            assert neurons is not None
            diagonal, room = q[..., self.straight], (linear + square + rest) * UP
            low = np.fmax(known[k][0], down(value - room + np.maximum(diagonal, 0.0).sum(axis=-1) * (2.0 - UP)))
            high = np.fmin(known[k][1], up(value + room - np.maximum(-diagonal, 0.0).sum(axis=-1) * (2.0 - UP)))
            hollow = (low > high).any(axis=-1)
            empty |= hollow
            low[hollow] = high[hollow] = value[hollow]
            intervals.append((low, high))
            rest = np.fmin(rest, (up(np.maximum(high - value, value - low)) + linear + square) * UP)
            more = mixed(linear, square, rest) * UP
            seen = fit(neurons, value, (low, high), more)
            hidden.append(_Layer(B, q, linear, square, rest, seen, bent, fuzz))
            slope, rate = np.abs(seen.slope), np.abs(seen.rate)
            source = (0.5 * rate * more + seen.rest) * UP
            turned = np.abs(seen.slope - self.slopes[k]) * UP
            parts.append((turned * rest + source + np.abs(self.slopes[k]) * noise) * UP)
            wholes.append((slope * rest + source) * UP)
            g, size = gamma(weight.shape[1] + LOOSE + 16), np.abs(weight)
            swung = rate * linear
            moved = slope * (linear + square) + swung * linear + np.abs(seen.value)
            noise = g * (spread(size, moved) + np.abs(bias)) * UP + TINY
            reach = self.products[k]
            rest = wholes[k + 1 - len(reach)] @ reach[-1].T
            for back, size_ in enumerate(reach[:-1]):
                rest = rest + parts[k - back] @ size_.T
            rest = (rest + noise) * UP
            fuzz = g * spread(size, ((slope + rate * linear) * np.abs(B).max(axis=-1) + slope * bent.max(axis=-1))) * UP
            products = B[..., self.first] * B[..., self.second] * self.both
            q = seen.slope[..., None] * q + (0.5 * seen.rate)[..., None] * products
            joined = weight @ np.concatenate([seen.slope[..., None] * B, q], axis=-1)
            B, q, value = joined[..., :d], joined[..., d:], seen.value @ weight.T + bias
        return hidden, value, _Layer(B, q, linear, square, rest, hidden[-1].fit, bent, fuzz + TINY), intervals, empty

    def _backward(self, half: Array, hidden: list[_Layer], last: _Layer) -> tuple[Array, Array, Array, list[Array]]:
        """Bounds of the norm and of the entries, the norm itself nearly, and shares of the neurons; Γ⁰ is G."""
        count, d = half.shape
        weight = self.layers[-1][0]
        outputs = len(weight)
        G = np.broadcast_to(weight, (count, *weight.shape))
        lost = gamma(2 * LOOSE) * np.abs(G) + TINY
        E, cubic, shares = lost, np.zeros((count, outputs * d, len(self.first))), []
        entries = np.broadcast_to(last.fuzz[..., None], (count, outputs, d))
        rough = np.zeros(count)
        parts: dict[int, Array] = {}
        wholes: dict[int, Array] = {}
        for k, layer in reversed(list(enumerate(hidden))):
            seen, n, size = layer.fit, layer.B.shape[1], np.abs(G)
            slope, rate, across = np.abs(seen.slope), np.abs(seen.rate), np.abs(layer.B)
            sway, error, most = layer.sway, layer.error, (slope + seen.apart) * UP
            swing = (rate * layer.linear + sway) * UP
            near = error[..., None] * across + sway[..., None] * layer.bent
            far = sway[..., None] * across + swing[..., None] * layer.bent
            shares.append(np.nan_to_num(size.sum(axis=1) * near.sum(axis=-1) + E.sum(axis=1) * far.sum(axis=-1)) + TINY)
            fuzz = ((size + E) @ (most * layer.fuzz)[..., None]) * UP
            entries = entries + (size @ near + E @ far + fuzz) * UP
            GB = (G[:, :, None, :] * np.swapaxes(layer.B, 1, 2)[:, None]).reshape(count, outputs * d, n)
            products = layer.B[..., self.first] * layer.B[..., self.second] * self.both
            cubic = cubic + GB @ (seen.rate[..., None] * layer.q + (seen.bow / 6.0)[..., None] * products)
            bowed = np.abs(seen.bow) * layer.linear
            bowed = rate * layer.square + bowed * layer.linear
            crossed = layer.linear * bowed
            rough = rough + gamma(n + len(hidden) + 32) * (size @ crossed[..., None]).sum(axis=(-2, -1))
            if not k:
                break
            open_ = size * seen.apart[:, None, :]
            turned = (np.abs(seen.slope - self.slopes[k]) + seen.apart) * UP
            parts[k] = (E * turned[:, None, :] + open_ + lost * np.abs(self.slopes[k])) * UP
            wholes[k] = (E * most[:, None, :] + open_) * UP
            weight = self.layers[k][0]
            lost = gamma(n + LOOSE + 8) * ((size * slope[:, None, :]) @ np.abs(weight)) * UP + TINY
            end = min(k + _BAND - 1, len(hidden) - 1)
            E = wholes[end] @ self.products[end - 1][end - k]
            for j in range(k, end):
                E = E + parts[j] @ self.products[j - 1][j - k]
            E = (E + lost) * UP
            G = (G * seen.slope[:, None, :]) @ weight
        entries = entries + 3.0 * (rough + gamma(64) * np.abs(cubic).sum(axis=(-2, -1)))[:, None, None]
        return *self._total(half, last, cubic, entries * UP), shares[::-1]

    def _total(self, half: Array, last: _Layer, cubic: Array, entries: Array) -> tuple[Array, Array, Array]:
        """The largest norm and entries at a corner, with all that is not known better; and the norm without."""
        count, d = half.shape
        outputs, pairs = last.B.shape[1], len(self.first)
        curved_ = cubic.reshape(count, outputs, d * pairs) @ self.gradient.reshape(d * pairs, d * pairs)
        curved_ = curved_.reshape(count, outputs, d, pairs)
        squares, products = curved_[..., self.straight], curved_[..., ~self.straight]
        bent = np.zeros((count, outputs, d, d))
        bent[..., self.first, self.second] = bent[..., self.second, self.first] = last.q
        bent[..., np.arange(d), np.arange(d)] *= 2.0
        parts = np.concatenate([(last.B + 0.5 * squares.sum(axis=-1))[..., None], bent, products], axis=-1)
        sizes = np.abs(parts).sum(axis=-1) + np.abs(squares).sum(axis=-1)
        entries = entries + 0.5 * np.abs(squares).sum(axis=-1) + gamma(parts.shape[-1] + 64) * sizes
        entries = up(entries * UP / half[:, None, :])
        parts = parts / half[:, None, :, None]
        corners = np.moveaxis(
            (parts.reshape(count, outputs * d, -1) @ self.corners).reshape(count, outputs, d, -1), -1, 1
        )
        near = spectral_above(corners, 8).max(axis=-1)
        norms = near + norm_above(entries.reshape(count, -1))
        return np.asarray(norms * UP), np.asarray((np.abs(corners).max(axis=1) + entries) * UP), near
