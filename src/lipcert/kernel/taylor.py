"""Taylor models of a network over pieces of a region: slopes that move together with the input.

Over a box c ± h write x = c + h∘δ, so |δ_i| ≤ 1, and give every pre-activation a polynomial of degree three,

    v = v̂ + L + q + w + R,     L = Bδ,     q quadratic, w cubic,     |R| ≤ rest,
    φ'(v) = σ + τ₁ + τ₂ + ε,     τ₁ = tL,     τ₂ = tq + c/2·L²,     D = diag φ'(v),     Σ = diag σ.

With p = L + q + w and ∇p_(k+1) = W(Σ∇p + τ₁∇(L + q) + τ₂∇L), what is left of the Jacobian beyond ∇p_N telescopes: it is
the sum over the layers, with Γ the product of all that follows a layer, of

    Γ[τ₁∇w + τ₂∇(q + w) + ε∇p],     ε = t(w + R) + c/2·((L + a)² - L²) + e,     a = q + w + R,

where e is the error of the fit. The norm of the polynomial ∇p_N is largest at a corner of the box (:class:`Monomials`).
All else is bounded by sizes. For that Γ = Γ⁰ + E, where Γ⁰ has the slopes σ, and with Γ⁺, E⁺ those of the layer after

    |E| ≤ (|E⁺||φ'| + |Γ⁰⁺||φ' - σ|)|W|.

Polynomials are those of the floats that were computed: what is lost in computing them joins R, and the Jacobian. It is
charged by the sizes of all terms, which are multiplied in the order of the terms themselves (:meth:`Size.lost`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, pairwise, product
from typing import Final

import numpy as np

from lipcert.kernel.arithmetic import Near, Size, down, spectral_above, up
from lipcert.kernel.neuron_bounds import Fit, fit
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.network import Network

MOST_INPUTS: Final = 8
"""With more inputs a box has too many corners."""
_FLAT: Final = 2.0**-40
"""A side of a box is taken to be at least so much of its longest; a larger box is no mistake."""
_FACTORS, _MISSED = np.array([1.0, 1.0, 0.5, 0.75]), np.array([0.0, 0.0, 0.5, 0.25])
"""What stands for the powers 0 to 3 of δ_i, times 1 or δ_i, and how far off that is at most."""


@dataclass(frozen=True, eq=False)
class Second:
    """What was proved of each piece: the Jacobian's norm is at most ``bounds``, its entries at most ``entries``.

    Outputs and their negatives are at most ``outputs``, pre-activations between ``low`` and ``high``; an ``empty``
    piece has no input. A bound that is not finite proves nothing.
    """

    bounds: Array
    entries: Array
    outputs: Array
    low: Array
    high: Array
    empty: Array


class Monomials:
    """Products, gradients and corners of polynomials in ``d`` variables over a box |δ_i| ≤ 1.

    A polynomial is its coefficients of monomials δ_i δ_j … with i ≤ j ≤ …, of degree three at most. Without squares it
    is affine in each δ_i, and then a convex function of it is largest at a corner. So

        δ_i² = ½ ± ½,     δ_i² δ_j = ½ δ_j ± ½,     δ_i³ = ¾ δ_i ± ¼

    make a polynomial of degree three one without squares, up to something of known size.

    Attributes
    ----------
    count : numbers of monomials of degree 0, 1, 2, 3.
    values : the monomials of degree three at most, without squares, at the corners, (monomials, corners).
    slack : how far each is from that at most, (monomials,).
    sides, slacks : per degree 1, 2 and 3 the same at half of the corners, those with δ_1 = 1, (corners, monomials).
    touched : per degree 2 and 3, how often a variable is in a monomial, (d, monomials).
    """

    def __init__(self, d: int) -> None:
        lists = [list(combinations_with_replacement(range(d), degree)) for degree in range(4)]
        place = {monomial: number for part in lists for number, monomial in enumerate(part)}
        self.d, self.count = d, [len(part) for part in lists]
        self.first, self.second = np.array(lists[2]).T
        self.both = np.where(self.first == self.second, 1.0, 2.0)[:, None]
        powers = np.array([[monomial.count(i) for i in range(d)] for monomial in chain(*lists)])
        parts = np.split(powers, np.cumsum(self.count)[:-1])
        self.touched = [part.T.astype(float) for part in parts[2:]]
        sources = [
            np.array([[place[tuple(sorted((i, *one)))] for one in part] for i in range(d)]) for part in lists[:3]
        ]
        self.gradients = [(source, part.T + 1.0) for source, part in zip(sources, parts, strict=False)]
        self.third = sources[2]
        signs = np.array(list(product([-1.0, 1.0], repeat=d)))
        factors, odd, self.slack = _FACTORS[powers].prod(axis=1), powers % 2 == 1, _MISSED[powers].max(axis=1)
        self.values = factors[:, None] * np.where(odd[:, None], signs, 1.0).prod(axis=-1)
        ends = np.cumsum(self.count)
        some = np.ascontiguousarray(self.values[:, len(signs) // 2 :].T)
        self.sides = [np.ascontiguousarray(some[:, a:b]) for a, b in pairwise(ends)]
        self.slacks = [self.slack[a:b] for a, b in pairwise(ends)]

    def doubled(self, B: Array) -> Array:
        """L² for L = Bδ, (count, d, n) → (count, pairs, n)."""
        return np.asarray(B[:, self.first] * B[:, self.second] * self.both)

    def split(self, Z: Array) -> tuple[Array, Array, Array]:
        """The parts of degree 1, 2 and 3 of coefficients (count, monomials, n)."""
        _, d, pairs, _ = self.count
        return Z[:, :d], Z[:, d : d + pairs], Z[:, d + pairs :]


class Polynomial:
    """The pre-activations v̂ + L + q + w + R of a layer over all pieces.

    Attributes
    ----------
    Z : the coefficients of L, q and w, (count, monomials, n).
    below, above : -below ≤ L + q + w ≤ above, (count, n).
    linear, square, cube, rest : |L|, |q|, |w| and |R|, (count, n); the first is the sum of its coefficients' sizes.
    squares, cubes : the sums of the sizes of the coefficients of q and of w.
    bent, twisted : |∂q/∂δ_j| and |∂w/∂δ_j|, (count, d, n).
    fuzz : what floats lose of ∂p/∂δ_j, (count, n).
    more : |a|, a = q + w + R.
    crossed : |(L + a)² - L² - 2Lq|.
    """

    def __init__(self, poly: Monomials, Z: Array, rest: Size, fuzz: Size) -> None:
        """Without squares, L and w are odd and q is even, so half of the corners serve."""
        self.Z, self.fuzz = Z, fuzz
        parts, sizes = poly.split(Z), poly.split(np.abs(Z))
        self.linear, self.squares, self.cubes = (Size(size).sum(1) for size in sizes)
        L, q, w = (side @ part for side, part in zip(poly.sides, parts, strict=True))
        spare, more = (
            slack @ Size(size) + total.lost(256)
            for slack, size, total in zip(poly.slacks[1:], sizes[1:], (self.squares, self.cubes), strict=True)
        )
        self.square, self.cube = Size(np.abs(q).max(axis=1)) + spare, Size(np.abs(w).max(axis=1)) + more
        L += w
        room = (spare + more + self.linear.lost(256)).above
        self.above = up(np.maximum((q + L).max(axis=1), (q - L).max(axis=1)) + room)
        self.below = up(room - np.minimum((q + L).min(axis=1), (q - L).min(axis=1)))
        self.bent, self.twisted = (touched @ Size(size) for touched, size in zip(poly.touched, sizes[1:], strict=True))
        self.within(rest)

    def within(self, rest: Size) -> None:
        """Note what is known of |R|."""
        self.rest, beyond = rest, self.cube + rest
        self.more = self.square + beyond
        self.crossed = 2.0 * self.linear * beyond + self.more.squared()


class Slopes:
    """The slopes σ + τ₁ + τ₂ + ε of a layer, and the sizes of what there is of them, (count, n).

    Attributes
    ----------
    fit : σ, t, c and the error e of the fit.
    slope, rate, bow : |σ|, |t| and |c|.
    off, open, whole : |ε|, |φ'(v) - σ - τ₁| and |φ'(v) - σ|.
    most : |φ'(v)|.
    added : |φ(v) - φ(v̂) - σ(s - R) - t/2·L² - tLq - c/6·L³ - σR|, with s = L + a.
    """

    def __init__(self, layer: Polynomial, fit: Fit) -> None:
        linear, more = layer.linear, layer.more
        self.fit, self.slope, self.rate, self.bow = fit, Size.of(fit.slope), Size.of(fit.rate), Size.of(fit.bow)
        bent = 0.5 * self.bow * more * (linear + linear + more)
        self.off = self.rate * (layer.cube + layer.rest) + bent + Size(fit.error)
        self.open = self.rate * layer.square + 0.5 * self.bow * linear.squared() + self.off
        self.whole, self.most = self.rate * linear + self.open, self.slope + Size(fit.apart)
        third = more * (3.0 * linear * (linear + more) + more.squared())
        self.added = 0.5 * self.rate * layer.crossed + self.bow * third / 6.0 + Size(fit.rest)


class SecondOrder:
    """Bounds of many pieces of one network at once."""

    def __init__(self, network: Network) -> None:
        self.layers = [(dense(layer.weight), layer.bias, layer.neurons) for layer in network.layers]
        self.sizes = [Size(Near.weights(weight).size) for weight, *_ in self.layers]
        self.poly = Monomials(network.inputs)

    @np.errstate(all="ignore")
    def bound(self, lower: Array, upper: Array, low: list[Array], high: list[Array]) -> Second:
        """At least the norm of the Jacobian on each box (count, d), where pre-activations lie between low and high."""
        center = 0.5 * lower + 0.5 * upper
        half = up(np.maximum(upper - center, center - lower))
        half = np.maximum(half, _FLAT * half.max(axis=-1, keepdims=True))
        hidden, value, last, intervals, empty = self._forward(center, half, low, high)
        bounds, entries = self._largest(half, last, self._beyond(hidden, last, half.shape))
        rest = last.rest.above
        outputs = np.concatenate([up(value + up(last.above + rest)), up(up(last.below + rest) - value)], axis=-1)
        flat = ~(half > np.finfo(float).tiny).all(axis=-1)
        bounds, entries, outputs = (
            np.where(np.isnan(part) | flat.reshape(-1, *[1] * (part.ndim - 1)), np.inf, part)
            for part in (bounds, entries, outputs)
        )
        floor, roof = (np.concatenate(side, axis=-1) for side in zip(*intervals, strict=True))
        return Second(bounds, entries, outputs, floor, roof, empty)

    def _forward(
        self, center: Array, half: Array, lows: list[Array], highs: list[Array]
    ) -> tuple[list[tuple[Polynomial, Slopes]], Array, Polynomial, list[Interval], Array]:
        """The hidden layers, values and polynomials of the last one, intervals, and which pieces are without inputs."""
        hidden: list[tuple[Polynomial, Slopes]] = []
        intervals: list[Interval] = []
        empty = np.zeros(len(center), dtype=bool)
        weight, bias, _ = self.layers[0]
        value, B = Near.of(center).through(weight) + Near.weights(bias), half[:, :, None] * weight.T
        fuzz = Size.of(B).sum(1).lost(1)
        Z = np.zeros((len(B), sum(self.poly.count[1:4]), B.shape[-1]))
        Z[:, : self.poly.d] = B
        layer = Polynomial(self.poly, Z, fuzz + Size(value.error), fuzz)
        for k, (low, high) in enumerate(zip(lows, highs, strict=True)):
            neurons, (weight, bias, _) = self.layers[k][2], self.layers[k + 1]
            assert neurons is not None
            middle, room = value.value, layer.rest.above
            low = np.fmax(low, down(middle - up(layer.below + room)))
            high = np.fmin(high, up(middle + up(layer.above + room)))
            hollow = (low > high).any(axis=-1)
            empty |= hollow
            low[hollow] = high[hollow] = np.fmax(middle, low)[hollow]
            intervals.append((low, high))
            away = Size(up(np.maximum(high - middle, middle - low)))
            layer.within(layer.rest.least(away + layer.linear + layer.square + layer.cube))
            cost = (2.0 * layer.linear * layer.rest + layer.more.squared()).value  # of half of |c|, about
            seen = Slopes(layer, fit(neurons, middle, (low, high), cost))
            hidden.append((layer, seen))
            doubled = layer.linear.squared()
            moved = seen.slope * (layer.linear + layer.squares + layer.cubes) + seen.rate * doubled
            moved = moved + (seen.bow * doubled + seen.rate * layer.squares) * layer.linear
            lost = (moved @ self.sizes[k + 1].T).lost(weight.shape[1] + 32)
            value = Near.of(seen.fit.value).through(weight) + Near.weights(bias)
            # squares double the roundings that are counted, layer by layer: so they are charged here
            rest = Size(((seen.slope * layer.rest + seen.added) @ self.sizes[k + 1].T + lost + Size(value.error)).above)
            layer = Polynomial(self.poly, self._next(layer.Z, seen, k), rest, 3.0 * lost)
        return hidden, value.value, layer, intervals, empty

    def _next(self, Z: Array, seen: Slopes, k: int) -> Array:
        """The coefficients of W(σ(L + q + w) + t/2·L² + tLq + c/6·L³), with the weights after layer k."""
        B, q, _ = self.poly.split(Z)
        found, products = Z * seen.fit.slope[:, None, :], self.poly.doubled(B)
        _, square, cube = self.poly.split(found)
        square += (0.5 * seen.fit.rate)[:, None, :] * products
        factor = (seen.fit.bow / 6.0)[:, None, :] * products
        if k:
            factor += seen.fit.rate[:, None, :] * q
        for i, where in enumerate(self.poly.third):  # L·s, s of degree two
            cube[:, where] += B[:, i : i + 1] * factor
        return (found.reshape(-1, Z.shape[-1]) @ self.layers[k + 1][0].T).reshape(*Z.shape[:2], -1)

    def _beyond(self, hidden: list[tuple[Polynomial, Slopes]], last: Polynomial, shape: tuple[int, ...]) -> Size:
        """The entries of what is left of the Jacobian, (count, outputs, d), by δ_j; Γ⁰ is G."""
        weight = self.layers[-1][0]
        G = np.broadcast_to(weight, (shape[0], *weight.shape))
        E, found = Size.of(G).lost(0), Size(np.zeros((shape[0], len(weight), shape[1]))) + last.fuzz[..., None]
        for k, (layer, seen) in reversed(list(enumerate(hidden))):
            off, open_, whole = (size[:, None, :] for size in (seen.off, seen.open, seen.whole))
            most, size, linear = seen.most[:, None, :], Size.of(G), Size.of(self.poly.split(layer.Z)[0])
            left = whole * layer.twisted + open_ * layer.bent + off * linear + most * layer.fuzz[:, None, :]
            found = found + (size + E) @ left.T
            lost = ((size * seen.slope[:, None, :]) @ self.sizes[k]).lost(G.shape[-1] + 16)
            E = (E * most + size * whole) @ self.sizes[k] + lost
            G = (G * seen.fit.slope[:, None, :]) @ self.layers[k][0]
        return found

    def _largest(self, half: Array, last: Polynomial, beyond: Size) -> tuple[Array, Array]:
        """The norm and the entries of ∇p_N, largest at a corner, with what is left; by x_j = h_j δ_j."""
        rows = half[:, None, :]
        parts = zip(self.poly.split(last.Z), self.poly.gradients, strict=True)
        C = np.concatenate([part.swapaxes(1, 2)[..., source] * times for part, (source, times) in parts], axis=-1)
        sizes, n = Size.of(C), C.shape[-1]
        beyond = (beyond + sizes @ self.poly.slack[:n] + sizes.sum(-1).lost(n + 64)) / rows
        corners = np.moveaxis((C * (1.0 / rows)[..., None]) @ self.poly.values[:n], -1, 1)
        norms = Size(spectral_above(corners, 7).max(axis=-1)) + beyond.length((1, 2))
        return norms.above, (Size.of(corners).max(1) + beyond).above
