"""Taylor models of a network over pieces of a region: slopes that move together with the input.

Over a box c ± h write x = c + h∘δ, so |δ_i| ≤ 1, and give every pre-activation a polynomial of degree three,

    v = v̂ + L + q + w + R,     L = Bδ,     q quadratic, w cubic,     |R| ≤ rest,
    φ'(v) = σ + τ₁ + τ₂ + ε,     τ₁ = tL,     τ₂ = tq + c/2·L²,     D = diag φ'(v),     Σ = diag σ.

With p = L + q + w and ∇p_(k+1) = W(Σ∇p + τ₁∇(L + q) + τ₂∇L), what is left of the Jacobian beyond ∇p_N telescopes: it is
the sum over the layers, with Γ_k the product of all that follows layer k, of

    Γ[τ₁∇w + τ₂∇(q + w) + ε∇p] = ∇(Γ⁰(tLw + t/2·q² + c/2·L²q)) + Γ⁰[ε'∇L + ε∇q + (ε + τ₂)∇w] + (Γ - Γ⁰)[…]

with ε = t(w + R) + c/2·((L + a)² - L²) + e and ε' = tR + c/2·(2L(w + R) + a²) + e, where a = q + w + R and e is the
error of the fit. The first term is a polynomial of known signs, and its sum with ∇p_N is largest at a corner of the box
(:mod:`lipcert.proof.monomials`). Of the rest, Γ⁰ diag(ε') B is at most ‖Γ⁰ diag(g)‖·‖diag(ε'/g) B‖ for any g > 0, and
so are Γ⁰ diag(ε)∇q and Γ⁰ diag(ε)∇w, whose right factors are largest at a corner. All else is bounded by sizes. For
that Γ = Γ⁰ + Γ¹ + E, Γ¹ linear in δ, where with Γ⁺, E⁺ those of the layer after

    ‖E‖ ≤ (‖E⁺‖ max|φ'| + ‖Γ⁰⁺ diag(φ' - σ - τ₁)‖ + ‖Γ¹⁺ diag(φ' - σ)‖)‖W‖

is often far less than sizes make of it; whatever is smaller counts.

Sizes of layer after layer grow where the network itself contracts: :class:`Unfolding`.

Polynomials are those of the floats that were computed: what is lost in computing them joins R, and the Jacobian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.proof.hints import Interval
from lipcert.proof.monomials import Monomials, collect
from lipcert.proof.pieces import Rows
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    apply,
    down,
    gamma,
    largest_norm_above,
    norm_above,
    size_above,
    spectral_above,
    spread,
    square_above,
    up,
)
from lipcert.proof.slope_fits import Fit, fit

MOST_INPUTS: Final = 8
"""With more inputs a box has too many corners."""
_FEW_LAYERS: Final = 6
"""Hidden layers up to which a network is not deep."""
_BAND: Final = 12
"""Layers that a product Φ spans at most."""
_ENTRIES: Final = 20_000_000
"""Numbers in all products together at most."""
_FLAT: Final = 2.0**-40
"""A side of a box is taken to be at least so much of its longest; a larger box is no mistake."""
_WORTH: Final = 0.005
"""Of the Jacobian's size, what a remainder must come to by sizes before its norm is looked at."""
_AT_ONCE: Final = 300_000
"""Numbers in the polynomials of a layer over the pieces that are bounded together; more would not stay in a cache."""


def curved(network: Network) -> bool:
    """Whether pieces to second order say anything about a network: few inputs, and slopes that change."""
    rows = {id(row.row): row.row for layer in network.layers[:-1] if layer.neurons for row, _ in layer.neurons.groups}
    bends = any(len(row.turns(np.zeros(1), *row.parameters.values())) for row in rows.values())
    dense_ = all(isinstance(layer.weight, np.ndarray) for layer in network.layers)
    few = not _is_deep(network) or _BAND * _inner(network) <= _ENTRIES
    return network.inputs <= MOST_INPUTS and network.depth > 1 and dense_ and bends and few


def deep(network: Network) -> bool:
    """Whether a network is of that kind, and has many layers."""
    return _is_deep(network) and curved(network)


def _is_deep(network: Network) -> bool:
    return network.depth > _FEW_LAYERS + 1


def _inner(network: Network) -> int:
    return sum(int(np.prod(layer.weight.shape)) for layer in network.layers[1:])


@dataclass(frozen=True, eq=False)
class Second(Rows):
    """What was proved of each piece: the Jacobian's norm is at most ``bounds``, its entries at most ``entries``.

    Outputs and their negatives are at most ``outputs``, pre-activations between ``low`` and ``high``; an ``empty``
    piece has no input. A bound that is not finite proves nothing. ``shares`` estimates what each
    neuron adds to the bound, ``near`` the largest norm.
    """

    bounds: Array
    near: Array
    entries: Array
    outputs: Array
    low: Array
    high: Array
    empty: Array
    shares: Array


@dataclass(frozen=True, eq=False)
class Polynomial:
    """The pre-activations v̂ + L + q + w + R of a layer over all pieces.

    Attributes
    ----------
    Z : the coefficients of L, q and w, (count, monomials, n).
    linear, square, cube, rest : at least |L|, |q|, |w| and |R|, (count, n).
    sizes : at least the sum of the sizes of all coefficients, those of q and those of w, (3, count, n).
    bent, twisted : at least |∂q/∂δ_j| and |∂w/∂δ_j|, (count, d, n).
    fuzz : at least what floats lose of ∂p/∂δ_j, (count, n).
    """

    Z: Array
    linear: Array
    square: Array
    cube: Array
    rest: Array
    sizes: Array
    bent: Array
    twisted: Array
    fuzz: Array

    @cached_property
    def beyond(self) -> Array:
        """At least |w + R|."""
        return self.cube + self.rest

    @cached_property
    def more(self) -> Array:
        """At least |a|, a = q + w + R."""
        return self.square + self.beyond

    @cached_property
    def crossed(self) -> Array:
        """At least |(L + a)² - L² - 2Lq|."""
        return np.asarray((2.0 * self.linear * self.beyond + square_above(self.more)) * UP)

    @cached_property
    def cost(self) -> Array:
        """What half of |c| costs beside the error of a fit, about."""
        return np.asarray(2.0 * self.linear * self.rest + square_above(self.more))


@dataclass(frozen=True, eq=False)
class Slopes:
    """The slopes σ + τ₁ + τ₂ + ε of a layer, and at least the sizes of what there is of them, (count, n).

    Attributes
    ----------
    fit : σ, t, c and the error e of the fit.
    slope, rate, bow : |σ|, |t| and |c|.
    swing, sway, off : |τ₁|, |τ₂| and |ε|.
    error, other : |ε - tw - cLq - cLw| and |ε - tw|.
    most, open, whole : |σ| + |φ'(v) - σ|, |φ'(v) - σ - τ₁| and |φ'(v) - σ|.
    """

    fit: Fit
    slope: Array
    rate: Array
    bow: Array
    swing: Array
    sway: Array
    off: Array
    error: Array
    other: Array
    most: Array
    open: Array
    whole: Array

    @staticmethod
    def of(layer: Polynomial, fit: Fit) -> Slopes:
        """By ε = t(w + R) + c/2·((L + a)² - L²) + e, and by what is known of φ'(v) - σ alone."""
        slope, rate, bow = np.abs(fit.slope), np.abs(fit.rate), np.abs(fit.bow)
        linear, more, still = layer.linear, layer.more, rate * layer.rest + fit.error
        # what underflows here is multiplied later on
        swing, bowed = rate * linear * UP + TINY, bow * linear + TINY
        sway = (rate * layer.square + 0.5 * bowed * linear) * UP + TINY
        bent = 0.5 * bow * more + TINY
        apart = (bent * (2.0 * linear + more) + still) * UP
        off = np.fmin((apart + rate * layer.cube) * UP, (fit.apart + swing + sway) * UP)
        error = (bowed * layer.rest + bent * more + still) * UP
        open_ = np.fmin(sway + off, fit.apart + swing) * UP
        whole = np.fmin(fit.apart, (swing + open_) * UP)
        other = np.fmin(apart, (off + rate * layer.cube) * UP)
        return Slopes(fit, slope, rate, bow, swing, sway, off, error, other, (slope + fit.apart) * UP, open_, whole)

    def added(self, layer: Polynomial) -> Array:
        """At least |φ(v) - φ(v̂) - σ(s - R) - t/2·L² - tLq - c/6·L³ - σR|, with s = L + a."""
        third = layer.more * (3.0 * layer.linear * (layer.linear + layer.more) + square_above(layer.more)) + TINY
        return np.asarray((0.5 * self.rate * layer.crossed + self.bow * third / 6.0 + self.fit.rest) * UP)


class Unfolding:
    """Remainders of values and of Jacobians over many layers, by products of layers at fixed slopes.

    Sizes of layer after layer, |W||W|…|R|, grow where the network itself contracts. So one slope σ' per neuron is fixed
    for all pieces, those at a point of the region, and with Φ_kj = W_k Σ' W_(k-1) Σ' … W_(j+1) the remainders of values
    and of Γ unfold. R_k = N_k + W_k(ΣR_(k-1) + s_(k-1)), s what the activation adds and N what floats lose, is for
    every m < k

        R_k = N_k + Σ_(m<j<k) Φ_kj [(σ - σ')R_j + s_j + σ'N_j] + Φ_km [σR_m + s_m],

    and E is, with F = Γ⁰(D - Σ - τ₁) + Γ¹(D - Σ) and N what floats lose of Γ⁰ + Γ¹, for every m > k

        E_k = N_k + Σ_(k<j<m) [E_j(D - Σ') + F_j + N_j Σ'] Φ_jk + [E_m D + F_m] Φ_mk.

    Nothing is believed of σ': any numbers will do, and those near the slopes of a piece do best.

    Kept are the products |Φ| of a network's weights for slopes σ', each over ``band`` layers at most.
    """

    def __init__(self, weights: Sequence[Array], slopes: Sequence[Array], band: int) -> None:
        self.weights, self.slopes = weights, slopes
        self.products = [self._products(k, band) for k in range(1, len(weights))]

    def _products(self, k: int, band: int) -> list[Array]:
        """At least |Φ_kj| for j = k - 1, k - 2, …, as many as are used.

        Φ_(k,j-1) = Φ_kj Σ'W_j; its error is that of Φ_kj times |Σ'||W_j|, and γ|Φ_kj||Σ'||W_j|.
        """
        weight = self.weights[k]
        exact, error = weight, gamma(LOOSE + 1) * np.abs(weight) + TINY
        found = [(np.abs(exact) + error) * UP]
        for j in range(k - 1, max(k - band, 0), -1):
            weight, slope = self.weights[j], self.slopes[j]
            size = np.abs(weight)
            error = (error + gamma(len(weight) + LOOSE + 4) * np.abs(exact)) * UP * np.abs(slope)
            error = (error + TINY) @ size * UP + TINY
            exact = (exact * slope) @ weight
            found.append((np.abs(exact) + error) * UP)
        return found

    def forwards(self, k: int, parts: list[Array], wholes: list[Array]) -> Array:
        """At least what layers up to k make of |R| of the layer after it."""
        reach = self.products[k]
        rest = spread(reach[0], wholes[k])
        if len(reach) == 1:
            return rest
        other = spread(reach[-1], wholes[k + 1 - len(reach)])
        for back, size in enumerate(reach[:-1]):
            other = other + spread(size, parts[k - back])
        return np.fmin(rest, other)

    def backwards(self, k: int, count: int, parts: dict[int, Array], wholes: dict[int, Array]) -> Array:
        """At least what layers after k make of |E_(k-1)|."""
        E = wholes[k] @ self.products[k - 1][0]
        end = min(k + len(self.products[count - 1]) - 1, count - 1)
        while end - k >= len(self.products[end - 1]):
            end -= 1
        if end == k:
            return E
        other = wholes[end] @ self.products[end - 1][end - k]
        for j in range(k, end):
            other = other + parts[j] @ self.products[j - 1][j - k]
        return np.fmin(E, other)


class SecondOrder:
    """Bounds of many pieces of one network at once; σ' are the slopes at a ``point``."""

    def __init__(self, network: Network, point: Array) -> None:
        self.layers = [(dense(layer.weight), layer.bias, layer.neurons) for layer in network.layers]
        self.sizes = [np.abs(weight) for weight, *_ in self.layers]
        self.norms = [
            float(spectral_above(weight)) + gamma(LOOSE) * float(size_above(weight, (0, 1)))
            for weight, *_ in self.layers
        ]
        self.poly = Monomials(network.inputs)
        values = network.preactivations(point)
        slopes = [layer.neurons.slope(v) for layer, v in zip(network.layers, values, strict=True) if layer.neurons]
        self.slopes = [np.where(np.isfinite(slope), slope, 0.0) for slope in slopes]
        band = int(np.clip(_ENTRIES // max(_inner(network), 1), 1, _BAND))
        self.unfolding = Unfolding([weight for weight, *_ in self.layers], self.slopes, band)
        widest = max(network.sizes[1:])
        self.at_once = max(1, _AT_ONCE // (widest * sum(self.poly.count[1:4])))

    def bound(self, lower: Array, upper: Array, low: list[Array], high: list[Array]) -> Second:
        """At least the norm of the Jacobian on each box (count, d), where pre-activations lie between low and high."""
        parts = np.array_split(np.arange(len(lower)), -(-len(lower) // self.at_once))
        with np.errstate(all="ignore"):
            found = [
                self._some(lower[part], upper[part], [(a[part], b[part]) for a, b in zip(low, high, strict=True)])
                for part in parts
            ]
        return found[0] if len(found) == 1 else Second.stack(found)

    def _some(self, lower: Array, upper: Array, known: list[Interval]) -> Second:
        center = 0.5 * lower + 0.5 * upper
        half = up(np.maximum(upper - center, center - lower))
        half = np.maximum(half, _FLAT * half.max(axis=-1, keepdims=True))
        hidden, value, last, intervals, empty = self._forward(center, half, known)
        bounds, entries, near, shares = self._backward(half, hidden, last)
        outputs = self._outputs(value, last)
        flat = ~(half > TINY).all(axis=-1)
        bounds, entries, outputs = (
            np.where(np.isnan(part) | flat.reshape(-1, *[1] * (part.ndim - 1)), np.inf, part)
            for part in (bounds, entries, outputs)
        )
        floor, roof = (np.concatenate(side, axis=-1) for side in zip(*intervals, strict=True))
        return Second(bounds, near, entries, outputs, floor, roof, empty, np.concatenate(shares, axis=-1))

    def _split(self, Z: Array) -> tuple[Array, Array, Array]:
        """L, q and w of coefficients (count, monomials, n)."""
        _, d, pairs, *_ = self.poly.count
        return Z[:, :d], Z[:, d : d + pairs], Z[:, d + pairs :]

    def _forward(
        self, center: Array, half: Array, known: list[Interval]
    ) -> tuple[list[tuple[Polynomial, Slopes]], Array, Polynomial, list[Interval], Array]:
        """The hidden layers, values and polynomials of the last one, intervals, and which pieces are without inputs."""
        count, d = center.shape
        hidden: list[tuple[Polynomial, Slopes]] = []
        intervals: list[Interval] = []
        empty = np.zeros(count, dtype=bool)
        weight, bias, _ = self.layers[0]
        value = center @ weight.T + bias
        Z = np.zeros((count, sum(self.poly.count[1:4]), len(weight)))
        Z[:, :d] = half[:, :, None] * weight.T
        linear = np.abs(Z[:, :d]).sum(axis=1) * UP
        size = np.abs(center) @ self.sizes[0].T + np.abs(bias) + linear
        rest = noise = gamma(d + LOOSE + 8) * size * UP + TINY
        fuzz = gamma(LOOSE + 8) * linear * UP + TINY
        parts: list[Array] = []
        wholes: list[Array] = []
        for k, (low, high) in enumerate(known):
            neurons, (weight, bias, _) = self.layers[k][2], self.layers[k + 1]
            assert neurons is not None
            (below, above), (linear, square, cube), sizes, bent, twisted = self._extents(Z, k)
            low = np.fmax(low, down(value - (below + rest) * UP))
            high = np.fmin(high, up(value + (above + rest) * UP))
            hollow = (low > high).any(axis=-1)
            empty |= hollow
            low[hollow] = high[hollow] = value[hollow]
            intervals.append((low, high))
            rest = np.fmin(rest, (up(np.maximum(high - value, value - low)) + linear + square + cube) * UP)
            layer = Polynomial(Z, linear, square, cube, rest, sizes, bent, twisted, fuzz)
            seen = Slopes.of(layer, fit(neurons, value, (low, high), layer.cost))
            hidden.append((layer, seen))
            source, own = seen.added(layer), np.abs(self.slopes[k])
            turned = np.abs(seen.fit.slope - self.slopes[k]) * UP
            parts.append((turned * rest + source + own * noise) * UP)
            wholes.append((seen.slope * rest + source) * UP)
            g, size = gamma(weight.shape[1] + LOOSE + 32), self.sizes[k + 1]
            swung = (seen.rate + seen.bow * linear) * linear
            moved = spread(size, seen.slope * sizes[0] + swung * (linear + sizes[1]))
            # what underflows in a coefficient is multiplied by weights, that of L² by t, that of others by L
            under = TINY * (1.0 + spread(size, 1.0 + seen.rate + (1.0 + seen.bow) * linear))
            noise = g * (moved + spread(size, np.abs(seen.fit.value)) + np.abs(bias)) * UP + under
            fuzz = 3.0 * g * moved * UP + under
            rest = (self.unfolding.forwards(k, parts, wholes) + noise) * UP
            Z = self._next(Z, seen, k)
            value = seen.fit.value @ weight.T + bias
        _, (linear, square, cube), sizes, bent, twisted = self._extents(Z, len(known))
        last = Polynomial(Z, linear, square, cube, rest, sizes, bent, twisted, fuzz)
        return hidden, value, last, intervals, empty

    def _next(self, Z: Array, seen: Slopes, k: int) -> Array:
        """The coefficients of W(σ(L + q + w) + t/2·L² + tLq + c/6·L³), with the weights after layer k."""
        B, q, _ = self._split(Z)
        found, products = Z * seen.fit.slope[:, None, :], self.poly.doubled(B)
        _, square, cube = self._split(found)
        square += (0.5 * seen.fit.rate)[:, None, :] * products
        factor = (seen.fit.bow / 6.0)[:, None, :] * products
        if k:
            factor += seen.fit.rate[:, None, :] * q
        self.poly.add_product(cube, B, factor)
        return (found.reshape(-1, Z.shape[-1]) @ self.layers[k + 1][0].T).reshape(*Z.shape[:2], -1)

    def _extents(self, Z: Array, k: int) -> tuple[tuple[Array, ...], tuple[Array, ...], Array, Array, Array]:
        """At least -p and p; |L|, |q|, |w|; the sizes of coefficients; and |∂q/∂δ_j|, |∂w/∂δ_j|.

        Without squares, L and w are odd and q is even, so half of the corners serve. The first layer has L only.
        """
        count, n = len(Z), Z.shape[-1]
        parts, sizes = self._split(Z), self._split(np.abs(Z))
        linear = sizes[0].sum(axis=1) * UP
        if not k:
            nothing, flat = np.zeros((count, n)), np.zeros(parts[0].shape)
            return (linear, linear), (linear, nothing, nothing), np.stack([linear, nothing, nothing]), flat, flat
        squares, cubes = (part.sum(axis=1) * UP for part in sizes[1:])
        L, q, w = (side @ part for side, part in zip(self.poly.sides, parts, strict=True))
        room = [
            slack @ part + gamma(256) * whole
            for slack, part, whole in zip(self.poly.slacks[1:], sizes[1:], (squares, cubes), strict=True)
        ]
        square = (np.abs(q).max(axis=1) + room[0]) * UP + TINY
        cube = (np.abs(w).max(axis=1) + room[1]) * UP + TINY
        L += w
        both = room[0] + room[1] + gamma(256) * linear + TINY
        above = (np.maximum((q + L).max(axis=1), (q - L).max(axis=1)) + both) * UP
        below = (both - np.minimum((q + L).min(axis=1), (q - L).min(axis=1))) * UP
        bent, twisted = (touched @ part * UP for touched, part in zip(self.poly.touched, sizes[1:], strict=True))
        whole = np.stack([(linear + squares + cubes) * UP, squares, cubes])
        return (below, above), (linear, square, cube), whole, bent, twisted

    def _backward(
        self, half: Array, hidden: list[tuple[Polynomial, Slopes]], last: Polynomial
    ) -> tuple[Array, Array, Array, list[Array]]:
        """Bounds of the norm and of the entries, about the largest norm, and shares of the neurons of each layer.

        Γ⁰ is G, Γ¹ is H, and K is at least |Γ¹|.
        """
        count, d = half.shape
        weight, inverse = self.layers[-1][0], (1.0 / half)[:, :, None]
        outputs = len(weight)
        G = np.broadcast_to(weight, (count, *weight.shape))
        H, K = np.zeros((count, d, *weight.shape)), np.zeros(G.shape)
        E = lost = gamma(2 * LOOSE) * np.abs(G) + TINY
        quartic = np.zeros((count, outputs, self.poly.count[4]))
        entries = np.broadcast_to(last.fuzz[..., None], (count, outputs, d))
        rest, stray = _frobenius(entries, half), _frobenius(E)
        under = np.zeros(count)
        worth = _WORTH * size_above(last.Z[:, :d] * inverse, (1, 2))
        factors: list[tuple[Array, Array]] = []
        shares: list[Array] = []
        parts: dict[int, Array] = {}
        wholes: dict[int, Array] = {}
        for k, (layer, seen) in reversed(list(enumerate(hidden))):
            n, size, B = layer.Z.shape[-1], np.abs(G), layer.Z[:, :d]
            # Γ⁰ diag(ε') B by factors
            along, across = size_above(G, 1), size_above(B * inverse, 1)
            g = np.clip(np.sqrt(seen.error * (across / along)), 1e-100, 1e100)
            factors.append((G * g[:, None, :], B * inverse * (seen.error / g)[:, None, :]))
            # what underflows in B/h is multiplied by ε'/g and then by g, what underflows in ε'/g by B/h
            under = under + ((along * (seen.error + g * across) + 1.0) * TINY).sum(axis=-1)
            shares.append(along * across * seen.error + TINY)
            # all else by sizes
            off, sway, loose = seen.off[:, None, :], seen.sway[:, None, :], (seen.most * layer.fuzz)[:, None, :]
            near = seen.other[:, None, :] * layer.bent + off * layer.twisted + loose + TINY
            far = (seen.swing[:, None, :] + sway + off) * layer.twisted + (sway + off) * layer.bent
            far = far + off * np.abs(B) + loose + TINY
            by_size = [part @ np.swapaxes(other, 1, 2) * UP for part, other in ((size, near), (K, far), (E, far))]
            entries = entries + (by_size[0] + by_size[1] + by_size[2])
            here, sways, strays = (_frobenius(part, half) for part in by_size)
            which = np.flatnonzero((here > worth) & (k > 0))
            if which.size:
                here[which] = np.fmin(here[which], self._turned(G, layer, seen, half, which))
            rest = rest + here + sways + np.fmin(strays, stray * size_above(far * inverse, (1, 2)) * UP)
            if not k:
                break
            GB = G[:, :, None, :] * (seen.fit.rate[:, None, :] * B)[:, None]
            four, five = self._signed(G, GB, layer, seen)
            quartic, entries, rest = quartic + four, entries + five * UP, rest + _frobenius(five * UP, half)
            # Γ of the layer before
            open_ = size * seen.open[:, None, :] + K * seen.whole[:, None, :] + TINY
            turned = (np.abs(seen.fit.slope - self.slopes[k]) + seen.fit.apart) * UP
            parts[k] = (E * turned[:, None, :] + open_ + lost * np.abs(self.slopes[k])) * UP
            wholes[k] = (E * seen.most[:, None, :] + open_) * UP
            moved = (size + K) * seen.slope[:, None, :] + size * seen.swing[:, None, :]
            stray = stray * seen.most.max(axis=-1) + spectral_above(G * (seen.open[:, None, :] + TINY))
            stray = (stray + _frobenius(K * seen.whole[:, None, :] + TINY)) * self.norms[k]
            lost = (gamma(n + LOOSE + 16) * moved + TINY * (1.0 + size)) @ self.sizes[k] * UP + TINY
            E = (self.unfolding.backwards(k, len(hidden), parts, wholes) + lost) * UP
            stray = (stray + _frobenius(lost)) * UP
            weight, slope = self.layers[k][0], seen.fit.slope[:, None, :]
            H = H * slope[:, None] + np.swapaxes(GB, 1, 2)
            H = (H.reshape(-1, n) @ weight).reshape(count, d, outputs, -1)
            K, G = np.abs(H).sum(axis=1) * UP, (G * slope) @ weight
        left, right = (spectral_above(np.concatenate(side, axis=-1)) for side in zip(*factors, strict=True))
        return *self._total(half, last, quartic, entries * UP, rest * UP, (left * right + under) * UP), shares[::-1]

    def _turned(self, G: Array, layer: Polynomial, seen: Slopes, half: Array, which: Array) -> Array:
        """At least ‖Γ⁰((ε - tw)∇q + ε∇w + what floats lose)‖ of some pieces.

        By ‖Γ⁰ diag(g)‖ and norms of what is left over g.
        """
        G, inverse, (_, q, w) = G[which], 1.0 / half[which], self._split(layer.Z[which])
        bent, twisted, other, off = layer.bent[which], layer.twisted[which], seen.other[which], seen.off[which]
        most = inverse.max(axis=-1)
        scale = inverse / most[:, None] * UP
        along, across = size_above(G, 1), size_above((bent + twisted) * scale[:, :, None], 1)
        g = np.clip(np.sqrt(other * (across / along)), 1e-100, 1e100)[:, None, :]
        other, off, loose = (size[:, None, :] / g for size in (other, off, (seen.most * layer.fuzz)[which]))
        found = self.poly.gradient_above(2, q * other, bent * other * UP, scale)
        found = found + self.poly.gradient_above(3, w * off, twisted * off * UP, scale)
        more = (self.poly.curls @ np.abs(w)) * off + loose + TINY * (1.0 + bent + twisted)
        found = found + size_above(more * scale[:, :, None], (1, 2))
        return np.asarray(found * spectral_above(G * g) * most * UP)

    def _signed(self, G: Array, GB: Array, layer: Polynomial, seen: Slopes) -> tuple[Array, Array]:
        """Γ⁰(tLw + t/2·q² + c/2·L²q), (count, outputs, monomials), and at least |∇(Γ⁰(tq + c/2·L²)w)| by δ_j.

        Both are sums over n neurons of products of a monomial's coefficient with another's. What floats lose of them,
        and of the sums over layers, joins the second; a monomial of degree five has a derivative of at most five times
        its size.
        """
        count, outputs, d, n = GB.shape
        B, q, w = self._split(layer.Z)
        turned, bows = np.swapaxes(q, 1, 2), (0.5 * seen.fit.bow)[:, None, :] * self.poly.doubled(B)
        lines = GB.reshape(count, outputs * d, n) @ np.swapaxes(w, 1, 2)
        half, whole = ((size * seen.fit.rate)[:, None, :] * q + bows for size in (0.5, 1.0))
        squares = (G[:, :, None, :] * half[:, None]).reshape(count, -1, n) @ turned
        fifth = (G[:, :, None, :] * whole[:, None]).reshape(count, -1, n) @ np.swapaxes(w, 1, 2)
        four = collect(lines.reshape(count, outputs, -1), self.poly.by_line)
        four = four + collect(squares.reshape(count, outputs, -1), self.poly.by_square)
        fifth = np.abs(fifth).reshape(count, outputs, *self.poly.count[2:4])
        pairs, triples = self.poly.touched
        five = fifth.sum(axis=3) @ pairs.T + fifth.sum(axis=2) @ triples.T
        _, square, cube = layer.sizes
        more, bowed = square + cube, seen.bow * layer.linear
        crossed = seen.rate * (layer.linear * cube + square * more) + layer.linear * bowed * more
        rough = gamma(n + len(self.layers) + 64) * apply(np.abs(G), crossed)
        rough = rough + TINY * apply(1.0 + np.abs(G), (1.0 + seen.bow) * (1.0 + more))  # what underflows
        return four, five + 5.0 * rough[..., None]

    def _outputs(self, value: Array, last: Polynomial) -> Array:
        """At least v and -v of the last layer."""
        Z = np.swapaxes(last.Z, 1, 2)
        table, slack = self.poly.values[1:], self.poly.slack[1:]
        corners = Z @ table
        room = np.abs(Z) @ slack + last.rest + gamma(2 * len(table) + 16) * last.sizes[0]
        room = (room + gamma(4) * np.abs(value)) * UP
        above, below = corners.max(axis=-1) + room, room - corners.min(axis=-1)
        return np.asarray(up(np.concatenate([value + above, below - value], axis=-1)))

    def _total(
        self, half: Array, last: Polynomial, quartic: Array, entries: Array, rest: Array, third: Array
    ) -> tuple[Array, Array, Array]:
        """The largest norm and entries at a corner with all that is added to them, and the norm without."""
        parts = self._split(last.Z)
        C = self.poly.gradient([*(np.swapaxes(part, 1, 2) for part in parts), quartic])
        sizes = np.abs(C)
        own = sizes @ self.poly.slack + gamma(C.shape[-1] + 64) * sizes.sum(axis=-1) + TINY
        entries, rest = entries + own, (rest + _frobenius(own, half)) * UP
        inverse = 1.0 / half[:, None, :]
        entries = (entries * inverse + TINY) * UP
        corners = np.moveaxis((C * inverse[..., None]) @ self.poly.values, -1, 1)
        count, outputs = len(half), C.shape[1]
        if outputs == 1 or half.shape[-1] == 1:
            near = size_above(corners, (-2, -1)).max(axis=-1)
            norms = norm_above((np.abs(corners) + entries[:, None]).reshape(*corners.shape[:2], -1)).max(axis=-1)
        else:
            near = largest_norm_above(corners, 7)
            norms = near + norm_above(entries.reshape(count, -1))
        norms = np.fmin(norms, near + rest)
        largest = np.abs(corners).max(axis=1) + entries + third[:, None, None]
        return np.asarray((norms + third) * UP), np.asarray(largest * UP), near


def _frobenius(entries: Array, half: Array | None = None) -> Array:
    """At least the root of the sum of squares of each matrix (count, m, n), whose columns are divided by ``half``."""
    if half is not None:
        entries = entries / half[:, None, :] * UP + TINY
    return norm_above(entries.reshape(len(entries), -1))
