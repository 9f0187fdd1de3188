"""Pieces of a region to second order: slopes that move together with the input.

Over a box c ± h write x = c + h∘δ, so |δ_i| ≤ 1, and give every pre-activation a polynomial of degree two:

    v_k = v̂_k + p_k(δ) + R_k,    p_k = B_k δ + q_k(δ),    |R_k| ≤ rest,
    φ'(v_k) = σ + t·L + ε,       L = B_k δ.

With Σ = diag σ, T(δ) = diag(t∘L), B_{k+1} = WΣB_k and ∇q_{k+1} = W(Σ∇q_k + T B_k), what is left of the Jacobian beyond
∇p_N telescopes: it is the sum over the layers, with Γ_k the product of all that follows layer k, of

    Γ_k [(T + ε)∇q_k + ε B_k] = ∇(Γ⁰(tLq + c/6·L³)) + Γ⁰ diag(tR) B + Γ⁰(ε ∇q + ε' B) + (Γ - Γ⁰)[(T + ε)∇q + ε B]

with ε = t(q + R) + c/2·(L + q + R)² + error of the fit and ε' = c/2·(q + R)(2L + q + R) + error of the fit. The first
term is a polynomial again; with δ_i² = ½ ± ½ it is, like ∇p_N, affine in every δ_i by itself, so the norm of their sum
is largest at a corner of the box. In the second term R goes back to the remainders of the layers before, signs and all.
The other terms are of third order; a product Γ diag(ε) B is at most ‖Γ diag(g)‖·‖diag(ε/g) B‖ for any g > 0, and a
linear function M(δ) = Σ δ_i M_i at most √d·‖[M_1 … M_d]‖.

Polynomials are those of the floats that were computed: what is lost in computing them joins R, and the Jacobian.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from lipcert.model.activation_row import Row
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.proof.expansion import Expansion, Second, mixed
from lipcert.proof.hints import Interval
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    U,
    apply,
    congruence,
    down,
    gamma,
    largest_eigenvalue_above,
    norm_above,
    size_above,
    spectral_above,
    spread,
    up,
)
from lipcert.proof.slope_fits import fit

MOST_INPUTS: Final = 8
"""With more inputs a box has too many corners."""
_DEEPEST: Final = 6
"""Hidden layers up to which remainders do not drown the rest."""
_FLAT: Final = 2.0**-40
"""A side of a box is taken to be at least so much of its longest; a larger box is no mistake."""


def curved(network: Network) -> bool:
    """Whether pieces to second order say anything about a network: few inputs, few layers, slopes that change."""
    rows = {id(row.row): row.row for layer in network.layers[:-1] if layer.neurons for row, _ in layer.neurons.groups}
    small = network.inputs <= MOST_INPUTS and 1 < network.depth <= _DEEPEST + 1
    dense_ = all(isinstance(layer.weight, np.ndarray) for layer in network.layers)
    return small and dense_ and any(_bends(row) for row in rows.values())


def second_columns(network: Network) -> int:
    """How many columns each weight of a network is multiplied with for a piece to second order."""
    d = network.inputs
    return d + d * (d + 1) // 2 + 2 * d * network.outputs


def _bends(row: Row) -> bool:
    parameters = tuple(row.parameters.values())
    return len(row.turns(np.zeros(1), *parameters)) > 0


@dataclass(frozen=True, eq=False)
class _Layer(Expansion):
    """What is known of a layer besides.

    Attributes
    ----------
    noise : what floats add to R here; ``source`` is what the activation adds to it for the next layer.
    fuzz : at least the norm of what floats lose of the gradient of the polynomial here, (count,).
    products : L² as a polynomial, (count, n, pairs).
    """

    noise: Array
    source: Array
    fuzz: Array
    products: Array


@dataclass(frozen=True, eq=False)
class _Last:
    """The last layer over all pieces, like a hidden one."""

    value: Array
    B: Array
    q: Array
    rest: Array
    fuzz: Array


class SecondOrder:
    """Bounds of many pieces of one network at once."""

    def __init__(self, network: Network) -> None:
        self.layers = [(dense(layer.weight), layer.bias, layer.neurons) for layer in network.layers]
        squares = [largest_eigenvalue_above(congruence(None, weight)) for weight, *_ in self.layers]
        self.norms = [float(np.sqrt(np.maximum(square, 0.0)) * UP) for square in squares]
        self.sizes = [float(norm_above(weight.ravel())) for weight, *_ in self.layers]
        d = network.inputs
        self.root = float(np.sqrt(d) * UP)
        self.first, self.second = np.triu_indices(d)
        self.straight = self.first == self.second
        signs = np.array(list(product([-1.0, 1.0], repeat=d)))
        pairs = (signs[:, self.first] * signs[:, self.second])[:, ~self.straight]
        self.corners = np.hstack([np.ones((len(signs), 1)), signs, pairs]).T
        where = np.zeros((d, d), dtype=int)
        where[self.first, self.second] = where[self.second, self.first] = np.arange(len(self.first))
        bends, number = np.zeros((len(self.first), d, d)), np.arange(len(self.first))
        bends[number, self.first, self.second] += 1.0
        bends[number, self.second, self.first] += 1.0
        self.bends = bends.reshape(len(number), -1)
        self.gradient = np.zeros((d, len(self.first), d, len(self.first)))
        for i, (pair, (j, k)) in product(range(d), enumerate(zip(self.first, self.second, strict=True))):
            for by, (one, other) in ((i, (j, k)), (j, (i, k)), (k, (i, j))):
                self.gradient[i, pair, by, where[one, other]] += 1.0

    def bound(self, lower: Array, upper: Array, low: list[Array], high: list[Array]) -> Second:
        """At least the norm of the Jacobian on each box (count, d), where pre-activations lie between low and high."""
        center = 0.5 * lower + 0.5 * upper
        half = up(np.maximum(upper - center, center - lower))
        half = np.maximum(half, _FLAT * half.max(axis=-1, keepdims=True))
        with np.errstate(all="ignore"):
            hidden, last, intervals, empty = self._forward(center, half, list(zip(low, high, strict=True)))
            bounds, entries, near, shares = self._backward(half, hidden, last)
            outputs = self._outputs(last)
        flat = ~(half > TINY).all(axis=-1)
        bounds, entries, outputs = (
            np.where(np.isnan(part) | flat.reshape(-1, *[1] * (part.ndim - 1)), np.inf, part)
            for part in (bounds, entries, outputs)
        )
        floor, roof = (np.concatenate(side, axis=-1) for side in zip(*intervals, strict=True))
        return Second(bounds, near, entries, outputs, floor, roof, empty, np.concatenate(shares, axis=-1))

    def _forward(
        self, center: Array, half: Array, known: list[Interval]
    ) -> tuple[list[_Layer], _Last, list[Interval], Array]:
        """The hidden layers, the last one, intervals, and which pieces are without inputs."""
        count, d = center.shape
        inverse = (1.0 / half)[:, None, :]
        hidden: list[_Layer] = []
        intervals: list[Interval] = []
        empty = np.zeros(count, dtype=bool)
        weight, bias, _ = self.layers[0]
        value = center @ weight.T + bias
        B, q = weight * half[:, None, :], np.zeros((count, len(weight), len(self.first)))
        size = np.abs(center) @ np.abs(weight).T + np.abs(bias) + np.abs(B).sum(axis=-1)
        rest = noise = gamma(d + LOOSE + 8) * size * UP + TINY
        fuzz = gamma(LOOSE + 8) * norm_above((np.abs(B) * inverse).reshape(count, -1)) * UP + TINY
        for k, (low, high) in enumerate(known):
            neurons, (weight, bias, _) = self.layers[k][2], self.layers[k + 1]
            assert neurons is not None
            linear, square = np.abs(B).sum(axis=-1), np.abs(q).sum(axis=-1)
            diagonal = q[..., self.straight]
            room = (linear + square + rest) * UP
            low = np.fmax(low, down(value - room + np.maximum(diagonal, 0.0).sum(axis=-1)))
            high = np.fmin(high, up(value + room - np.maximum(-diagonal, 0.0).sum(axis=-1)))
            hollow = (low > high).any(axis=-1)
            empty |= hollow
            low[hollow] = high[hollow] = value[hollow]
            intervals.append((low, high))
            more = mixed(linear, square, rest)
            seen = fit(neurons, value, (low, high), more)
            source = (0.5 * np.abs(seen.rate) * more + seen.rest) * UP
            products = self._products(B)
            hidden.append(_Layer(B, q, linear, square, rest, seen, noise, source, fuzz, products))
            slope, rate = np.abs(seen.slope), np.abs(seen.rate)
            g, size = gamma(weight.shape[1] + LOOSE + 16), np.abs(weight)
            swung = rate * linear
            moved = slope * (linear + square) + swung * linear + np.abs(seen.value)
            noise = g * (spread(size, moved) + np.abs(bias)) * UP + TINY
            rest = (spread(size, slope * rest + source) * UP + noise) * UP
            steep = (slope + rate * linear)[..., None] * np.abs(B) + (2.0 * slope * square)[..., None]
            fuzz = g * self.sizes[k + 1] * norm_above((steep * inverse).reshape(count, -1)) * UP + TINY
            q = seen.slope[..., None] * q + (0.5 * seen.rate)[..., None] * products
            joined = weight @ np.concatenate([seen.slope[..., None] * B, q], axis=-1)
            B, q, value = joined[..., :d], joined[..., d:], seen.value @ weight.T + bias
        return hidden, _Last(value, B, q, rest, fuzz), intervals, empty

    def _backward(self, half: Array, hidden: list[_Layer], last: _Last) -> tuple[Array, Array, Array, list[Array]]:
        """Bounds of the norm and of the entries, about the largest norm, and shares of the neurons of each layer.

        Γ⁰ is G, Γ¹ is H, and Y follows R back.
        """
        count, d = half.shape
        weight, root, inverse = self.layers[-1][0], self.root, 1.0 / half
        outputs = len(weight)
        G = np.broadcast_to(weight, (count, *weight.shape))
        H = Y = np.zeros(0)  # nothing yet
        off = np.full(count, 2.0 * LOOSE * U * self.sizes[-1])  # at least ‖Γ - Γ⁰ - Γ¹‖
        cubic = np.zeros((count, outputs * d, len(self.first)))
        entries = np.zeros((count, outputs * d))
        lost, rough = last.fuzz, np.zeros(count)
        near, far, shares = _Factors(), _Factors(), []
        for k, layer in reversed(list(enumerate(hidden))):
            seen, n, top = layer.fit, layer.B.shape[1], k == len(hidden) - 1
            slope, rate = np.abs(seen.slope), np.abs(seen.rate)
            B, sway, error = layer.B * inverse[:, None, :], layer.sway, layer.error
            swing = (rate * layer.linear + sway) * UP
            # third order
            along, across = size_above(G, 1), size_above(B)
            g = np.clip(np.sqrt((error + 1e-3 * sway) * (across / along)), 1e-100, 1e100)
            shares.append(along * across * error + TINY)
            bent = self._bent(layer.q, inverse) if k else np.zeros((count, 0, 0, d))
            near.add(G, g, B, error, bent, sway)
            deep, turned = off + size_above(along), size_above(sway * across)
            if bent.size:
                turned = turned + root * size_above(swing * size_above(bent, (-2, -1)))
            if not top:
                far.add(_row(H), np.tile(g, d), B, sway, bent, swing)
                deep = deep + root * size_above(H, (1, 2, 3))
                turned = np.fmin(turned, self._turned(B, sway, bent, swing))
            steep = (slope + seen.apart).max(axis=-1)
            lost = (lost + off * turned + deep * steep * layer.fuzz) * UP
            # second order, with signs
            GB = (G[:, :, None, :] * np.swapaxes(layer.B, 1, 2)[:, None]).reshape(count, outputs * d, n)
            bows = (seen.bow / 6.0)[..., None] * layer.products
            cubic += GB @ (bows if not k else seen.rate[..., None] * layer.q + bows)
            # R, with signs
            charge = gamma(len(weight) + n + 32) * layer.rest + layer.noise
            if not top:
                entries = entries + apply(np.abs(Y), layer.source + slope * charge)
            bowed = np.abs(seen.bow) * layer.linear
            crossed = rate * layer.square + bowed * layer.linear
            pair = np.stack([rate * charge, gamma(n + 16) * crossed], axis=1)
            around = (np.abs(G)[:, None] * pair[:, :, None, :]) @ np.abs(layer.B)[:, None]
            entries = entries + around[:, 0].reshape(count, -1)
            rough = rough + around[:, 1].sum(axis=(-2, -1))
            if not k:
                break
            weight, passed, whole = self.layers[k][0], seen.slope[:, None, :], np.minimum(swing, seen.apart)
            twisted = G[:, None] * np.swapaxes(seen.rate[..., None] * layer.B, 1, 2)[:, :, None, :]
            steps = off * steep + spectral_above(G * sway[:, None, :])
            size = size_above((slope + rate * layer.linear) * along)
            if not top:
                steps = steps + root * spectral_above(_row(H * whole[:, None, None, :]))
                size = size + root * size_above(slope * size_above(H, (1, 2)))
            off = (steps * self.norms[k] + gamma(n + LOOSE + 32) * size * self.sizes[k]) * UP
            H = twisted if top else H * passed[:, None] + twisted
            H = (H.reshape(count, -1, n) @ weight).reshape(count, d, outputs, -1)
            Y = GB * seen.rate[:, None, :] if top else GB * seen.rate[:, None, :] + Y * passed
            Y = Y @ weight
            G = (G * passed) @ weight
        third = (near.product(root, 1.0) + far.product(root, root) + lost) * UP
        return *self._total(half, last, cubic, entries, rough, third), shares[::-1]

    def _turned(self, B: Array, sway: Array, bent: Array, swing: Array) -> Array:
        """At least ‖diag(ε)B + diag(tL + ε)∇q‖."""
        turned = spectral_above(B * sway[..., None])
        if bent.size:
            rows = (bent * swing[..., None, None]).reshape(len(B), -1, B.shape[-1])
            turned = turned + self.root * spectral_above(rows)
        return turned

    def _bent(self, q: Array, inverse: Array) -> Array:
        """The gradient of q by x as a linear function of δ, (count, n, d of δ, d of x)."""
        d = inverse.shape[-1]
        return np.asarray((q @ self.bends).reshape(*q.shape[:2], d, d) * inverse[:, None, None, :])

    def _products(self, B: Array) -> Array:
        """(Bδ)² as a polynomial, in the order of the pairs."""
        d = B.shape[-1]
        rows = [B[..., i : i + 1] * B[..., i:] for i in range(d)]
        out = np.concatenate(rows, axis=-1)
        out[..., ~self.straight] *= 2.0
        return out

    def _outputs(self, last: _Last) -> Array:
        """At least v and -v of the last layer: Bδ + q without squares is largest at a corner."""
        parts = np.concatenate([np.zeros((*last.value.shape, 1)), last.B, last.q[..., ~self.straight]], axis=-1)
        squares, corners = last.q[..., self.straight], parts @ self.corners
        room = last.rest + gamma(4 * parts.shape[-1]) * (np.abs(last.B).sum(axis=-1) + np.abs(last.q).sum(axis=-1))
        above = corners.max(axis=-1) + np.maximum(squares, 0.0).sum(axis=-1)
        below = corners.min(axis=-1) + np.minimum(squares, 0.0).sum(axis=-1)
        above, below = (size + room * UP + 4.0 * U * np.abs(last.value) for size in (above, -below))
        return np.asarray(up(np.concatenate([last.value + above, below - last.value], axis=-1)))

    def _total(
        self, half: Array, last: _Last, cubic: Array, entries: Array, rough: Array, third: Array
    ) -> tuple[Array, Array, Array]:
        """The largest norm and entries at a corner with all that is added to them, and the norm without."""
        count, d = half.shape
        B, q = last.B, last.q
        outputs, pairs = B.shape[1], len(self.first)
        curved = cubic.reshape(count, outputs, d * pairs) @ self.gradient.reshape(d * pairs, d * pairs)
        curved = curved.reshape(count, outputs, d, pairs)
        squares, products = curved[..., self.straight], curved[..., ~self.straight]
        bent = np.swapaxes(self._bent(q, np.ones((count, d))), -1, -2)
        parts = np.concatenate([(B + 0.5 * squares.sum(axis=-1))[..., None], bent, products], axis=-1)
        parts = parts / half[:, None, :, None]
        entries = (entries.reshape(count, outputs, d) + 0.5 * np.abs(squares).sum(axis=-1)) / half[:, None, :]
        sizes = np.abs(parts).sum(axis=-1) + np.abs(squares).sum(axis=-1) / half[:, None, :]
        entries = (entries + gamma(parts.shape[-1] + 64) * sizes) * UP
        rough = (rough + gamma(64) * np.abs(cubic).sum(axis=(-2, -1))) * (3.0 * UP) / half.min(axis=-1)
        corners = (parts.reshape(count, outputs * d, -1) @ self.corners).reshape(count, outputs, d, -1)
        corners = np.moveaxis(corners, -1, 1)
        near = size_above(corners, (-2, -1)).max(axis=-1)
        if outputs == 1 or d == 1:
            norms = norm_above((np.abs(corners) + entries[:, None]).reshape(*corners.shape[:2], -1)).max(axis=-1)
        else:
            near = spectral_above(corners, 7).max(axis=-1)
            norms = near + norm_above(entries.reshape(count, -1))
        third = (rough + third) * UP
        largest = np.abs(corners).max(axis=1) + entries + third[:, None, None]
        return np.asarray((norms + third) * UP), np.asarray(largest * UP), near


class _Factors:
    """Products Γ(diag(x)B + diag(y)∇q) of all layers together, by factors Γ diag(g), diag(x/g)B and diag(y/g)∇q."""

    def __init__(self) -> None:
        self.left: list[Array] = []
        self.right: list[Array] = []
        self.bent: list[Array] = []

    def add(self, G: Array, g: Array, B: Array, x: Array, bent: Array, y: Array) -> None:
        """One layer; Γ is (count, q, n), or all of a linear function side by side."""
        g_ = g[:, : x.shape[-1]]
        self.left.append(G * g[:, None, :])
        self.right.append(B * (x / g_)[..., None])
        self.bent.append((bent * (y / g_)[:, : bent.shape[1], None, None]).reshape(len(B), -1, B.shape[-1]))

    def product(self, bent: float, rate: float) -> Array:
        """At least the norm of the sum, for linear functions of δ that grow by their factors."""
        if not self.left:
            return np.zeros(1)
        left, right, third = (
            spectral_above(np.concatenate(parts, axis=axis))
            for parts, axis in ((self.left, -1), (self.right, 1), (self.bent, 1))
        )
        return np.asarray(rate * left * (right + bent * third))


def _row(H: Array) -> Array:
    """The parts (count, d, q, n) of a linear function side by side, (count, q, d·n)."""
    return np.swapaxes(H, 1, 2).reshape(len(H), H.shape[2], -1)
