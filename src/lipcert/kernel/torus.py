"""Convolution stacks on a torus: which frequencies there are, which slopes, and what kernels do there.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lipcert.kernel.near import Size
from lipcert.kernel.neuron_bounds import WIDEN, all_slopes
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network

_LARGEST = 2**20
"""Least common multiple of the sizes of a torus; more would need many turns of the circle to be told apart."""


@dataclass(frozen=True, eq=False)
class Torus:
    """The convolutions that a network begins with, on a torus.

    Attributes
    ----------
    convolutions : the first layers of the network.
    sizes : of the torus of the input and of each convolution's result.
    slopes : per hidden layer among these (α, β), one number per channel.
    ends : whether the network ends with the last of them; otherwise a layer follows that sees the image flat.
    gain : a bound at these frequencies, with these slopes, is to be multiplied by this.
    """

    convolutions: tuple[Convolution, ...]
    sizes: tuple[tuple[int, ...], ...]
    slopes: tuple[tuple[Array, Array], ...]
    ends: bool
    gain: float = 1.0

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
        convolution = layer.convolution
        if convolution is None or not _fits([*found, convolution]):
            break
        found.append(convolution)
    ends = len(found) == network.depth
    hidden = network.layers[: len(found) - ends]
    if not hidden:
        return None
    sizes = _sizes(found)
    if any(math.lcm(*size) > _LARGEST for size in sizes):
        return None
    slopes = [_slopes(layer, one, *ends_) for layer, one, ends_ in zip(hidden, found, pairwise(sizes), strict=False)]
    return Torus(tuple(found), tuple(sizes), tuple(slopes), ends)


def torus_alone(convolution: Convolution) -> Torus | None:
    """The torus of one convolution without activations; None if there is none that fits."""
    if not _fits([convolution]) or any(math.lcm(*size) > _LARGEST for size in _sizes([convolution])):
        return None
    return Torus((convolution,), tuple(_sizes([convolution])), (), True)


def full_kernel(convolution: Convolution) -> Array:
    """The kernel with zeros between groups, (outputs, channels, *window)."""
    if convolution.groups == 1:
        return convolution.kernel
    inside, outside = convolution.kernel.shape[1], convolution.outputs // convolution.groups
    kernel = np.zeros((convolution.outputs, convolution.channels, *convolution.window))
    for group in range(convolution.groups):
        rows = slice(group * outside, (group + 1) * outside)
        kernel[rows, group * inside : (group + 1) * inside] = convolution.kernel[rows]
    return kernel


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


def _fits(convolutions: list[Convolution]) -> bool:
    """Whether the last of some convolutions can join the others on their torus.

    Where one is circular, all must map the torus of their image onto that of their result, n = s·places, and those that
    are not circular must look at nothing but their own s places.
    """
    *others, last = convolutions
    if others and (others[-1].outputs != last.channels or others[-1].places != last.image):
        return False
    return not any(one.circular for one in convolutions) or all(_closed(one) for one in convolutions)


def _closed(convolution: Convolution) -> bool:
    parts = zip(convolution.image, convolution.stride, convolution.places, strict=True)
    spans = zip(convolution.padding, convolution.dilation, convolution.window, convolution.stride, strict=True)
    alone = all(pads == (0, 0) and d * (k - 1) < s for pads, d, k, s in spans)
    return all(n == s * places for n, s, places in parts) and (convolution.circular or alone)


def _sizes(convolutions: list[Convolution]) -> list[tuple[int, ...]]:
    """The smallest tori that the argument above allows, n_{k-1} = s·n_k."""
    images = [*(one.image for one in convolutions), convolutions[-1].places]
    if any(one.circular for one in convolutions):
        return images
    least = np.array(images)
    for place, one in zip(least, convolutions, strict=False):
        before = np.array([pair[0] for pair in one.padding])
        reach = np.array(one.stride) * (np.array(one.places) - 1) + np.array(one.dilation) * (np.array(one.window) - 1)
        np.maximum(place + before, reach - before + 1, out=place)
    strides = np.array([*(one.stride for one in convolutions), np.ones(least.shape[1], dtype=int)])
    ahead = np.cumprod(strides[::-1], axis=0)[::-1]  # how much finer each torus is than the last
    last = (-(-least // ahead)).max(axis=0)
    return [tuple(int(n) for n in row) for row in ahead * last]


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
