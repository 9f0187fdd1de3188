"""Convolution stacks on very large images: from a grid of frequencies to all of them.

On a torus of any size the frequencies are points θ of the circle, in each axis. With one multiplier per channel, that
the stack has at most the norm L at θ is one matrix inequality M(θ) ≽ 0 for a quadratic form of the input x, the values
z_k after each activation, and the output y. For slopes between α ≤ 0 and β ≥ 0 and multipliers Λ = T⁻¹ it is

    L²|x|² + |y|² + 2 Re y*K z_{N-1} + Σ [z_k*Λz_k - (α+β) Re z_k*ΛK z_{k-1} + |u_k|² + 2 Re u_k*(-αβΛ)^½ K z_{k-1}]

Minimising over y and u_k leaves -|Kz|² and αβ (Kz)*ΛKz, so the form becomes L²|x|² - |Kz_{N-1}|² less the products
(z - αKz)*Λ(βKz - z) ≥ 0. Hence M(θ) = D + O(θ), with D diagonal and the same for all θ, and O linear in the kernels'
symbols K(θ).

*Signs.* O joins z_{k-1} with z_k and u_k only. Changing the signs of every second layer changes the sign of O, so
(1-ε)D + O ≽ 0 says |v*O v| ≤ (1-ε) v*D v for all v.

*Between frequencies.* For fixed v, v*O(θ)v is a real trigonometric polynomial in each axis, after factors of size one
that put the middle of each window at zero. Its degree is d = max_k dilation·(window - 1)/2, counted in places of the
last image: divided by the strides from layer k on. If such a polynomial is at most 1 in size at N > 2d evenly spread
points, it is at most 1/cos(πd/N) everywhere, since around a largest value A at θ₀ it stays above A cos(d(θ - θ₀))
(M. Riesz, 1914). Half degrees go twice around the circle. With strides, going once around the last circle permutes
the aliases of a frequency, and they are looked at together.

So let g = Π 1/cos(πd/N) over the axes, and 1 - ε = 1/g. (1-ε)D + O is the inequality for slopes between gα and gβ, and
for the norm L/g. If a stack with the slopes [gα, gβ] has at most the norm L' at N points per axis, each with the same
multipliers, then one with the slopes [α, β] has at most the norm g·L' at all frequencies, and so on every torus.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lipcert.kernel.neuron_bounds import WIDEN
from lipcert.kernel.rounding import down, up
from lipcert.kernel.torus import Torus

_LOSS = 0.02
"""About how much larger the bound becomes, relatively, by looking at a grid only."""
_MUCH, _FEWER = 1e11, 4
"""Operations that take minutes at all frequencies; the grid must have fewer frequencies by the second factor."""


def on_grid(torus: Torus) -> Torus:
    """The grid of frequencies, the widened slopes and the gain g that prove a bound for all frequencies."""
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
    """The grid in place of all frequencies of one very large image, where that is much less work; else the torus."""
    wide = zip(torus.convolutions, torus.sizes, strict=False)
    work = sum(4.0 * math.prod(size) * math.prod([max(one.outputs, one.channels)] * 3) for one, size in wide)
    zero_inside = all((alpha <= 0.0).all() and (beta >= 0.0).all() for alpha, beta in torus.slopes)
    if work <= _MUCH or not torus.ends or not zero_inside:
        return torus
    other = on_grid(torus)
    return other if _FEWER * math.prod(other.sizes[-1]) <= math.prod(torus.sizes[-1]) else torus
