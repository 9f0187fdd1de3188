"""Convolution stacks in Fourier space: which frequencies there are, which slopes, and the global bound at all of them.

Let W_k be the convolutions of a stack and D_k the slopes between them; what has to be bounded is the product
W_N D_{N-1} … D_1 W_1, in which D_k is any diagonal matrix within the slope ranges.

*Zero padding.* Put the image of layer k, of size H_k, on a torus of size n_k ≥ H_k, with E_k: image → torus filled up
with zeros and R_k = E_kᵀ: torus → image. Let C_k be the convolution with the same kernel on the torus. A place that an
output of the image looks at lies between -before and ``last``, where the last window ends. If n ≥ H + before and
n > last, such a place is on the torus either itself, or outside of the image, where E_k has zeros. So
W_k = R_k C_k E_{k-1}, and

    W_N D_{N-1} … D_1 W_1 = R_N C_N (E_{N-1} D_{N-1} R_{N-1}) C_{N-1} … C_1 E_0.

E D R is a diagonal matrix on the torus: the slopes of the image, and slope 0 outside. So its ranges are those of the
image widened to hold 0. E and R have norm 1, so a bound for the torus is one for the image. A channel that is zero
outside of the image whatever comes in, since its windows there see nothing of the image before, needs no widening.

*Circular padding* is the torus itself, n = H, with no widening.

A stride s makes n_{k-1} = s·n_k. With one slope range and one multiplier per channel all matrices of the recursion are
block-circulant: c × c matrices P(ω), S(ω), one per frequency ω of the torus. The kernel acts as
K(ω) = Σ_t kernel[:, :, t] exp(2πi ω·dilation·t/n) (the shift by ``before`` is a factor of size one, which cancels), and

    S_k(ω) = s^{-axes} Σ_b K(ω_b) P_{k-1}(ω_b) K(ω_b)*      over the aliases ω_b = ω + n_k·b of ω on the torus before,

because the unitary Fourier transform of every s-th value adds up aliases with the factor s^{-axes/2}.

Proof
-----
The matrices of the recursion are Hermitian, one per frequency. E(A + iB) = [A -B; B A]
makes real matrices of them; it keeps sums, products, adjoints and ≼. So with P̂ real and symmetric, E(P(ω)) ≼ P̂ is kept
true from layer to layer by the steps that serve dense layers, with a stack of frequencies in the place of regions.

There is one multiplier per channel, the same for all frequencies: T is diagonal on the torus only if it does not depend
on ω. It is fixed beforehand. A step that was proved with smaller multipliers T' ≤ T at a frequency holds with T there
after T - T' is added to P̂: in the inequality of :class:`Step` this raises one block and leaves the other as it is.

P(-ω) is the conjugate of P(ω), so half of the frequencies suffice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, Size, congruence, factor_above, largest_eigenvalue_above, raised, sum_above
from lipcert.kernel.neuron_bounds import WIDEN, all_slopes
from lipcert.kernel.step import LEAST, MOST, activate
from lipcert.kernel.sweep import Sweep, check_weights, proving
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network
from lipcert.suggest.hints import Hints, StoredGuide
from lipcert.suggest.multipliers import largest_eigenvalue

_LARGEST = 2**20
"""Least common multiple of the sizes of a torus; more would need many turns of the circle to be told apart."""
_NUMBERS = 2**16
"""Numbers in a stack of matrices."""
_MARGIN = 2.0**-47
"""Multipliers are tried smaller by n² times this, n rows, so that what rounding adds leaves them below the given."""
_LARGE = 128
"""Rows from which λmax is guessed before all eigenvalues are looked for."""
_FAR = 800
"""Powers of two beyond which the ellipsoid after the convolutions is not written as a matrix."""


@dataclass(frozen=True, eq=False)
class Torus:
    """The convolutions that a network begins with, on a torus.

    Attributes
    ----------
    convolutions : the first layers of the network.
    sizes : of the torus of the input and of each convolution's result.
    slopes : per hidden layer among these (α, β), one number per channel.
    ends : whether the network ends with the last of them; otherwise a layer follows that sees the image flat.
    """

    convolutions: tuple[Convolution, ...]
    sizes: tuple[tuple[int, ...], ...]
    slopes: tuple[Interval, ...]
    ends: bool

    def frequencies(self) -> tuple[Array, Array]:
        """Frequencies of the last torus, one of each pair ω and -ω, (count, axes), and how many each stands for."""
        last = np.array(self.sizes[-1])
        every = np.stack(np.meshgrid(*(np.arange(n) for n in last), indexing="ij"), axis=-1).reshape(-1, len(last))
        strides = np.cumprod([1, *last[:0:-1]])[::-1]
        here, opposite = every @ strides, (-every % last) @ strides
        kept = here <= opposite
        return every[kept], np.where(here == opposite, 1, 2)[kept]

    def levels(self, frequencies: Array) -> list[Array]:
        """Frequencies (count, axes) of the last torus with their aliases on all tori, (count, aliases, axes) each."""
        found = [frequencies[:, None, :]]
        for convolution, size in zip(self.convolutions[::-1], self.sizes[:0:-1], strict=True):
            steps = np.array(list(np.ndindex(*convolution.stride))) * np.array(size)
            found.append((found[-1][:, :, None, :] + steps).reshape(len(frequencies), -1, len(size)))
        return found[::-1]

    def symbols(self, index: int, frequencies: Array) -> tuple[Array, Array]:
        """K(ω) s^{-axes/2} of one convolution as :func:`transformed`, (..., outputs, channels), and its error."""
        convolution = self.convolutions[index]
        taps = full_kernel(convolution).reshape(convolution.outputs, convolution.channels, -1)
        steps = np.array(list(np.ndindex(*convolution.window))) * np.array(convolution.dilation)
        return transformed(taps, frequencies, steps, self.sizes[index], math.prod(convolution.stride))

    def rows(self, weight: Array, frequencies: Array) -> tuple[Array, Array]:
        """The rows of a layer that sees the last image flat, :func:`transformed`: (count, rows, channels), error."""
        last, size = self.convolutions[-1], self.sizes[-1]
        where = np.array(list(np.ndindex(*last.places)))
        return transformed(weight.reshape(len(weight), last.outputs, -1), frequencies, where, size, math.prod(size))


def torus_of(network: Network) -> Torus | None:
    """The torus for the convolutions that a network begins with; None if there is none, or none that fits."""
    found: list[Convolution] = []
    for layer in network.layers:
        if layer.convolution is None or _sizes([*found, layer.convolution]) is None:
            break
        found.append(layer.convolution)
    ends = len(found) == network.depth
    hidden = network.layers[: len(found) - ends]
    sizes = _sizes(found) if hidden else None
    if sizes is None:
        return None
    slopes = [_slopes(layer, one, *two) for layer, one, two in zip(hidden, found, pairwise(sizes), strict=False)]
    return Torus(tuple(found), tuple(sizes), tuple(slopes), ends)


def full_kernel(convolution: Convolution) -> Array:
    """The kernel with zeros between groups, (outputs, channels, *window)."""
    parts = convolution.kernel.reshape(convolution.groups, -1, *convolution.kernel.shape[1:])
    full = np.einsum("goi...,gh->gohi...", parts, np.eye(convolution.groups))
    return full.reshape(convolution.outputs, convolution.channels, *convolution.window)


def transformed(
    values: Array, frequencies: Array, places: Array, size: tuple[int, ...], share: int
) -> tuple[Array, Array]:
    """share^{-½} Σ_t values[:, :, t] exp(2πi Σ_a ω_a x_ta/n_a), (..., rows, columns), for frequencies ω (..., axes).

    And a bound of its error, (rows, columns): real and imaginary parts are wrong by at most that, whatever ω is. The
    angle is reduced to half a turn in whole numbers, so it is wrong by less than 4πu and its cosine by less than WIDEN.
    """
    common = math.lcm(*size)
    units = np.array([common // n for n in size])
    turn = (frequencies @ (places * units).T) % common
    angle = math.pi * (2.0 * np.where(2 * turn > common, turn - common, turn) / common)
    scale = 1.0 / math.sqrt(share)
    real, imaginary = (np.tensordot(part, values, axes=([-1], [-1])) * scale for part in (np.cos(angle), np.sin(angle)))
    sizes = Size.of(values).sum(-1) * scale
    return real + 1j * imaginary, (sizes * WIDEN + sizes.lost(len(places) + 8)).above


def _sizes(convolutions: list[Convolution]) -> list[tuple[int, ...]] | None:
    """The smallest tori that the argument above allows, n_{k-1} = s·n_k; None if there are none, or too large ones.

    Where one convolution is circular, all must map the torus of their image onto that of their result, n = s·places,
    and those that are not circular must look at nothing but their own s places.
    """
    for one, two in pairwise(convolutions):
        if (one.outputs, one.places) != (two.channels, two.image):
            return None
    images = [*(one.image for one in convolutions), convolutions[-1].places]
    if any(one.circular for one in convolutions):
        closed = all(_closed(one) and math.lcm(*one.image) <= _LARGEST for one in convolutions)
        return images if closed else None
    least = np.array(images)
    for place, one in zip(least, convolutions, strict=False):
        before = np.array([pair[0] for pair in one.padding])
        reach = np.array(one.stride) * (np.array(one.places) - 1) + np.array(one.dilation) * (np.array(one.window) - 1)
        np.maximum(place + before, reach - before + 1, out=place)
    strides = np.array([*(one.stride for one in convolutions), np.ones(least.shape[1], dtype=int)])
    ahead = np.cumprod(strides[::-1], axis=0)[::-1]  # how much finer each torus is than the last
    last = (-(-least // ahead)).max(axis=0)
    sizes = [tuple(int(n) for n in row) for row in ahead * last]
    return sizes if max(math.lcm(*size) for size in sizes) <= _LARGEST else None


def _closed(convolution: Convolution) -> bool:
    spans = zip(convolution.padding, convolution.dilation, convolution.window, convolution.stride, strict=True)
    alone = all(pads == (0, 0) and d * (k - 1) < s for pads, d, k, s in spans)
    onto = tuple(s * n for s, n in zip(convolution.stride, convolution.places, strict=True))
    return convolution.image == onto and (convolution.circular or alone)


def _slopes(
    layer: Layer, convolution: Convolution, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[Array, Array]:
    """The slope range of each channel on the torus."""
    assert layer.neurons is not None
    alpha, beta = (end.reshape(convolution.outputs, -1) for end in all_slopes(layer.neurons))
    low, high = alpha.min(axis=1), beta.max(axis=1)
    outside = ~_vanishing(convolution, before, after)
    return np.where(outside, np.minimum(low, 0.0), low), np.where(outside, np.maximum(high, 0.0), high)


def _vanishing(convolution: Convolution, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    """Channels of the result that are zero outside of the image if the channels before are, (outputs,).

    Outside of the image along an axis, no tap that is not zero may see a place that is inside along that axis.
    """
    used = full_kernel(convolution) != 0.0
    good = np.ones(convolution.outputs, dtype=bool)
    for axis in range(convolution.axes):
        others = tuple(a for a in range(1, used.ndim) if a != axis + 2)
        outside = np.arange(convolution.places[axis], after[axis]) * convolution.stride[axis]
        taps = np.arange(convolution.window[axis]) * convolution.dilation[axis] - convolution.padding[axis][0]
        sees = ((outside[:, None] + taps) % before[axis] < convolution.image[axis]).any(axis=0)
        good &= ~(used.any(axis=others) & sees).any(axis=1)
    return good


def by_channel(network: Network, hints: Hints) -> bool:
    """Whether hints have one multiplier per channel for the convolutions that a network begins with."""
    by_neuron = [np.shape(T) for T in hints.multipliers] == [(layer.size,) for layer in network.layers[:-1]]
    return not by_neuron and _torus_for(network, hints) is not None


def _torus_for(network: Network, hints: Hints) -> Torus | None:
    torus = torus_of(network)
    if torus is None:
        return None
    channels = [alpha.size for alpha, _ in torus.slopes]
    sizes = [*channels, *(layer.size for layer in network.layers[len(channels) : -1])]
    return torus if [np.shape(T) for T in hints.multipliers] == [(size,) for size in sizes] else None


def prove_symbols(network: Network, hints: Hints) -> float:
    """At least the global Lipschitz constant of the network; the hints have one multiplier per channel."""
    check_weights(network, kernels=True)
    torus = _torus_for(network, hints)
    if torus is None:
        raise ProofFailed("the network begins with no convolutions for which the hints have a multiplier a channel")
    count = len(torus.slopes)
    if torus.ends:
        return stack_bound(torus, hints.multipliers, hints.exponents)
    tail = tail_of(network, torus, hints.multipliers[:count], hints.exponents[:count])
    rest = Hints((), hints.multipliers[count:], hints.exponents[count:])
    return float(Sweep(tail, None, StoredGuide(rest, tail, False)).run().bounds[0])


def stack_bound(
    torus: Torus, multipliers: Sequence[Array] = (), exponents: Sequence[int] = (), guessed: bool = False
) -> float:
    """At least the largest norm of a stack that ends with a convolution: the root of λmax over all frequencies.

    With ``guessed`` large matrices have it from a guess, in a tenth of the time, 0.1 % above it at most.
    """
    frequencies, _ = torus.frequencies()
    portions = _portions(torus, len(frequencies), 0)

    def largest(some: slice) -> Array:
        with proving():
            P, levels = _hidden(torus, frequencies[some], multipliers, exponents)
            S = _after(torus, len(torus.convolutions) - 1, levels, P, 0)
            guess = np.full(len(S), largest_eigenvalue(S)) if guessed and S.shape[-1] >= _LARGE else None
            return np.asarray(largest_eigenvalue_above(S, guess).max())

    with ThreadPoolExecutor(min(len(portions), os.cpu_count() or 1)) as threads:
        square = np.max(list(threads.map(largest, portions)))  # NaN stays NaN, and proves nothing
    root = Size(square).root().above
    return float(Size(np.ldexp(root, int([0, *exponents][-1]))).above)


def convolution_norm(convolution: Convolution) -> float | None:
    """At least the norm of a convolution: the largest over the frequencies of [K(ω_b)]_b, aliases side by side.

    Groups of channels are taken apart. K(ω)ᵀ is as large as K(ω). None if there is no torus.
    """
    sizes = _sizes([convolution])
    if sizes is None:
        return None
    found = 0.0
    for part in np.split(convolution.kernel, convolution.groups):
        if len(part) > part.shape[1] and max(convolution.stride) == 1:  # then its transpose makes smaller matrices
            part = np.swapaxes(part, 0, 1)
        alone = Torus((replace(convolution, kernel=part, groups=1),), tuple(sizes), (), True)
        found = float(np.maximum(found, stack_bound(alone, guessed=True)))  # NaN stays NaN
    return found


def tail_of(network: Network, torus: Torus, multipliers: Sequence[Array], exponents: Sequence[int]) -> Network:
    """A network whose bound is one for the whole: in the place of the convolutions, and of the layer W that follows
    them, it begins with a matrix F such that W P Wᵀ ≼ F Fᵀ.

    W P Wᵀ = Σ_ω Ŵ(ω) P(ω) Ŵ(ω)*, where the rows of Ŵ are those of W, transformed; the sum is real.
    """
    head, (frequencies, counts) = network.layers[len(torus.convolutions)], torus.frequencies()
    weight, exponent, found = dense(head.weight), int(exponents[-1]), np.zeros((1, head.size, head.size))
    for some in _portions(torus, len(frequencies), head.size):
        P, _ = _hidden(torus, frequencies[some], multipliers, exponents)
        rows, radius = torus.rows(weight, frequencies[some])
        S = congruence(P, np.concatenate([rows.real, -rows.imag], axis=-1), radius=np.tile(radius, (1, 2)))
        S *= counts[some, None, None]  # 1 or 2: exact
        found = sum_above(np.concatenate([found, S]))[None]
    lost = 2.0**-140 * (1.0 + np.trace(found[0]))  # more than F loses where the power makes it underflow
    factor = np.ldexp(factor_above(raised(found[0], lost)), exponent)
    if not np.isfinite(factor).all() or abs(exponent) > _FAR:
        raise ProofFailed("the ellipsoid after the convolutions is too large, or too small, for floating point")
    return Network((Layer(factor, head.bias, head.neurons), *network.layers[len(torus.convolutions) + 1 :]))


def _portions(torus: Torus, count: int, least: int) -> list[slice]:
    """Frequencies that go through together."""
    aliases = math.prod(torus.sizes[0]) // math.prod(torus.sizes[-1])
    widest = max(2 * max(one.outputs, one.channels) for one in torus.convolutions)
    several = max(1, _NUMBERS // max(aliases * widest**2, least**2))
    return [slice(start, start + several) for start in range(0, count, several)]


def _hidden(
    torus: Torus, frequencies: Array, multipliers: Sequence[Array], exponents: Sequence[int]
) -> tuple[Array | None, list[Array]]:
    """P̂ with E(P(ω)) ≼ 4**exponents[-1]·P̂ after the last hidden layer, at the aliases of the given frequencies."""
    levels, P, before = torus.levels(frequencies), None, 0
    if any(abs(exponent) > 2**20 for exponent in exponents):
        raise ProofFailed("an exponent of the hints is out of range")
    for index, (slopes, T, exponent) in enumerate(zip(torus.slopes, multipliers, exponents, strict=True)):
        S = _after(torus, index, levels, P, before - exponent)
        P, before = _step(S, slopes, np.where(T > 0.0, np.clip(T, LEAST, MOST), LEAST)), exponent
    return P, levels


def _after(torus: Torus, index: int, levels: list[Array], P: Array | None, power: int) -> Array:
    """Ŝ with E(S(ω)) ≼ Ŝ for S = 4**power·Σ K P K* over the aliases."""
    here, after = levels[index], math.prod(levels[index + 1].shape[:2])
    symbols, radius = torus.symbols(index, here.reshape(-1, here.shape[-1]))
    edge = Size(np.ldexp(np.tile(radius, (2, 2)), power)).above  # also of what the power makes underflow
    real = np.block([[symbols.real, -symbols.imag], [symbols.imag, symbols.real]])  # E of each
    S = congruence(P, np.ldexp(real, power), radius=edge)
    return S if len(S) == after else sum_above(np.swapaxes(S.reshape(after, -1, *S.shape[1:]), 0, 1))


def _step(S: Array, slopes: Interval, T: Array) -> Array:
    """P̂ after the activations with exactly the multipliers T of the channels at every frequency."""
    alpha, beta, wanted = (np.tile(one, (len(S), 2)) for one in (*slopes, T))
    if not np.isfinite(S).all():
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    step = activate(S, alpha, beta, wanted * (1.0 - min(_MARGIN * alpha.shape[-1] ** 2, 2.0**-20)))
    used = Near.weights(step.multipliers, 8)  # of a quotient and a square
    if not (used.above <= wanted).all():
        raise ProofFailed("the multipliers of a layer are too small for one of its frequencies")
    return raised(step.P, np.where(alpha < beta, (wanted - used).above, 0.0))
