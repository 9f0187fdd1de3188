"""Convolution stacks on images of every size at once: from some frequencies to all of them.

On a torus of any size the frequencies are points θ of the circle, in each axis. With one multiplier per channel, that
the stack has at most the norm L at θ is one matrix inequality M(θ) ≽ 0 for a quadratic form of the input x, what
follows each activation, z_k, and the output y. For slopes between α ≤ 0 and β ≥ 0 and multipliers Λ = T⁻¹ it is

    L²|x|² + |y|² + 2 Re y*K z_{N-1} + Σ [z_k*Λz_k - (α+β) Re z_k*ΛK z_{k-1} + |u_k|² + 2 Re u_k*(-αβΛ)^½ K z_{k-1}]

in which y and u_k are there to be minimised over: that leaves -|Kz|² and αβ (Kz)*ΛKz, and with it L²|x|² - |Kz_{N-1}|²
less the products (z - αKz)*Λ(βKz - z) ≥ 0. So M(θ) = D + O(θ), with D diagonal and the same for all θ, and O linear in
the kernels' symbols K(θ).

*Signs.* O joins z_{k-1} with z_k and u_k only. To turn the signs of every second layer turns that of O, so
(1-ε)D + O ≽ 0 says |v*O v| ≤ (1-ε) v*D v for all v.

*Between frequencies.* For v fixed, v*O(θ)v is a real trigonometric polynomial in each axis, after factors of size one
that put the middle of each window at zero. Its degree is d = max_k dilation·(window - 1)/2, counted in places of the
last image: divided by the strides from layer k on. If such a polynomial is at most 1 in size at N > 2d evenly spread
points, it is at most 1/cos(πd/N) everywhere, since around a largest value A at θ₀ it stays above A cos(d(θ - θ₀))
(M. Riesz, 1914). Half degrees go twice around the circle. With strides, going once around the last circle permutes
the aliases of a frequency, and they are looked at together.

So let g = Π 1/cos(πd/N) over the axes, and 1 - ε = 1/g. (1-ε)D + O is the inequality for slopes between gα and gβ, and
for the norm L/g. If a stack with the slopes [gα, gβ] has at most the norm L' at N points per axis, each with the same
multipliers, then one with the slopes [α, β] has at most the norm g·L' at all frequencies, and so on every torus: with
circular padding and no stride itself, with zeros around images of every size by :mod:`torus`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.proof.neuron_bounds import WIDEN
from lipcert.proof.rounding import down, up
from lipcert.proof.torus import Torus

_LOSS = 0.02
"""About how much larger the bound becomes, relatively, by looking at some frequencies for all."""
_MUCH, _FEWER = 1e11, 4
"""Rows of the matrices at all frequencies, cubed, that are much work; frequencies are to be fewer by the second."""


def for_every_size(torus: Torus) -> Torus:
    """The frequencies, the slopes and the gain g for images of every size.

    With circular padding a stride s is a map between tori only where s divides the size; with other sizes the last
    window of a row overlaps the first, and the stack is another one.
    """
    if not torus.ends:
        raise ProofFailed("a dense layer follows the convolutions; it fits one image size only")
    if any(one.circular for one in torus.convolutions) and any(max(one.stride) > 1 for one in torus.convolutions):
        raise ProofFailed(
            "EverySize() is not for circular padding together with a stride: on images whose size the stride does not"
            " divide such a stack is not circular; certify one image size, with Everywhere()"
        )
    return _for_all_frequencies(torus)


def _for_all_frequencies(torus: Torus) -> Torus:
    widths = [np.array(one.dilation) * (np.array(one.window) - 1) for one in torus.convolutions]
    ahead = np.cumprod(np.array([one.stride for one in torus.convolutions])[::-1], axis=0)[::-1]
    degree = np.max([width / (2.0 * finer) for width, finer in zip(widths, ahead, strict=True)], axis=0)
    spread = math.pi * math.sqrt(len(widths) * len(degree) / (2.0 * _LOSS))
    count = [math.ceil(spread * d) + 1 for d in degree]  # more than 2d
    gain = 1.0
    for d, n in zip(degree, count, strict=True):
        gain /= math.cos(math.pi * (d / n)) - WIDEN
    gain *= 1.0 + 2.0**-40
    sizes = [tuple(int(n) for n in row) for row in [*(ahead * count), np.array(count)]]
    slopes = [(down(np.minimum(alpha, 0.0) * gain), up(np.maximum(beta, 0.0) * gain)) for alpha, beta in torus.slopes]
    return replace(torus, sizes=tuple(sizes), slopes=tuple(slopes), gain=gain)


def sparing(torus: Torus) -> Torus:
    """The frequencies for every size in the place of those of one very large image, where that is much less work."""
    wide = zip(torus.convolutions, torus.sizes, strict=False)
    work = sum(4.0 * math.prod(size) * math.prod([max(one.outputs, one.channels)] * 3) for one, size in wide)
    zero_inside = all((alpha <= 0.0).all() and (beta >= 0.0).all() for alpha, beta in torus.slopes)
    if work <= _MUCH or not torus.ends or not zero_inside:
        return torus
    other = _for_all_frequencies(torus)
    return other if _FEWER * math.prod(other.sizes[-1]) <= math.prod(torus.sizes[-1]) else torus
