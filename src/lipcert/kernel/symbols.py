"""Global bounds of convolution stacks, proved frequency by frequency.

On the torus of :mod:`torus` the matrices of the recursion are Hermitian, one per frequency. E(A + iB) = [A -B; B A]
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.frequency_grid import sparing
from lipcert.kernel.guide import given
from lipcert.kernel.hints import Hints
from lipcert.kernel.near import Approx, Near, Size, congruence, largest_eigenvalue_above, raised, sum_above
from lipcert.kernel.step import LEAST, MOST, activate
from lipcert.kernel.sweep import Sweep, proving
from lipcert.kernel.torus import Torus, full_kernel, torus_alone, torus_of
from lipcert.model.arrays import Array, dense
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network
from lipcert.suggest.algebra import largest_eigenvalue

_NUMBERS = 2**16
"""Numbers in a stack of matrices."""
_MARGIN = 2.0**-47
"""Multipliers are tried smaller by n² times this, n rows, so that what rounding adds leaves them below the given."""
_GROWTH = (0.0, 2.0**-24, 2.0**-18, 2.0**-12, 2.0**-6, 0.25, 3.0)
"""How much larger the multipliers become, one after the other, where the given ones prove nothing."""
_LARGE = 128
"""Rows from which λmax is guessed before all eigenvalues are looked for."""
_FAR = 800
"""Powers of two beyond which the ellipsoid after the convolutions is not written as a matrix."""


def by_channel(network: Network, hints: Hints) -> bool:
    """Whether hints have one multiplier per channel for the convolutions that a network begins with."""
    torus = torus_of(network)
    by_neuron = [np.shape(T) for T in hints.multipliers] == [(layer.size,) for layer in network.layers[:-1]]
    return torus is not None and not by_neuron and _suit(network, torus, hints)


def prove_symbols(network: Network, hints: Hints) -> float:
    """At least the global Lipschitz constant of the network; the hints have one multiplier per channel."""
    torus = torus_of(network)
    if torus is None:
        raise ProofFailed("the network does not begin with convolutions that fit on a torus")
    if not _suit(network, torus, hints):
        raise ProofFailed("the hints do not have one multiplier per channel")
    torus = sparing(torus)
    count = len(torus.slopes)
    if torus.ends:
        return stack_bound(torus, hints.multipliers, hints.exponents)
    tail = tail_of(network, torus, hints.multipliers[:count], hints.exponents[:count])
    rest = Hints((), hints.multipliers[count:], hints.exponents[count:])
    return float(Sweep(tail, None, given(rest, tail, False)).run().bounds[0])


def _suit(network: Network, torus: Torus, hints: Hints) -> bool:
    channels = [alpha.size for alpha, _ in torus.slopes]
    sizes = [*channels, *(layer.size for layer in network.layers[len(channels) : -1])]
    return [np.shape(T) for T in hints.multipliers] == [(size,) for size in sizes]


def stack_bound(torus: Torus, multipliers: Sequence[Array], exponents: Sequence[int]) -> float:
    """At least the largest norm of a stack that ends with a convolution: the root of λmax over all frequencies."""
    frequencies, _ = torus.frequencies()
    portions = _portions(torus, len(frequencies), 0)

    def largest(T: Sequence[Array]) -> Array:
        def at(some: slice) -> Array:
            with proving():
                P, levels = _hidden(torus, frequencies[some], T, exponents)
                S = _after(torus, len(torus.convolutions) - 1, levels, P, 0)
                return np.asarray(largest_eigenvalue_above(S).max())

        with ThreadPoolExecutor(min(len(portions), os.cpu_count() or 1)) as threads:
            return np.asarray(np.max(list(threads.map(at, portions))))  # NaN stays NaN, and proves nothing

    root = Size(_attempted(multipliers, exponents, largest)).root().above
    return float((Size(np.ldexp(root, int(exponents[-1]))) * torus.gain).above)


def convolution_norm(convolution: Convolution) -> float | None:
    """At least the norm of a convolution: the largest over the frequencies of [K(ω_b)]_b, aliases side by side.

    Channels that see nothing of each other are taken apart. None if there is no torus.
    """
    if torus_alone(convolution) is None:
        return None
    kernel, found = full_kernel(convolution), 0.0
    sums = Size.of(kernel).sum(tuple(range(2, kernel.ndim)))
    sees, last = sums.value > 0.0, convolution.channels  # the last part is that of outputs that see nothing
    channels, outputs, before = np.arange(last), np.arange(0), np.arange(0)
    while not np.array_equal(before, channels):  # until each has the lowest channel that it is connected with
        before, outputs = channels, np.where(sees, channels, last).min(axis=1)
        channels = np.minimum(channels, np.where(sees, outputs[:, None], last).min(axis=0))
    rows, columns = np.zeros(last + 1), np.zeros(last + 1)  # the largest sums of each part
    np.maximum.at(rows, outputs, sums.sum(1).above)
    np.maximum.at(columns, channels, sums.sum(0).above)
    limits = (Size(rows).root() * Size(columns).root()).above
    for part in np.argsort(-limits):
        if limits[part] <= found:
            break
        if (outputs == part).any() and (channels == part).any():
            some = replace(convolution, kernel=kernel[outputs == part][:, channels == part], groups=1)
            found = float(np.maximum(found, np.fmin(limits[part], _symbol_norm(some))))  # NaN stays NaN
    return found


def _symbol_norm(convolution: Convolution) -> float:
    """At least the norm of a convolution on its torus; K(ω)ᵀ, which is as large, if that makes smaller matrices."""
    if convolution.outputs > convolution.channels and max(convolution.stride) == 1:
        convolution = replace(convolution, kernel=np.swapaxes(convolution.kernel, 0, 1))
    alone = torus_alone(convolution)
    assert alone is not None
    torus, largest = sparing(alone), 0.0
    frequencies, _ = torus.frequencies()
    with proving():
        for some in _portions(torus, len(frequencies), 0):
            S = _after(torus, 0, torus.levels(frequencies[some]), None, 0)
            largest = float(np.maximum(largest, _eigenvalue_above(S, largest)))  # NaN stays NaN
    return float((Size(np.asarray(largest)).root() * torus.gain).above)


def _eigenvalue_above(S: Array, known: float) -> float:
    """At least the largest λmax of a stack, or a number that is not much above what is known of others.

    One guess serves all. It may fail; then all eigenvalues are looked at.
    """
    if S.shape[-1] >= _LARGE:
        with suppress(ProofFailed):
            guess = np.full(len(S), max(known, largest_eigenvalue(S)))
            return float(largest_eigenvalue_above(S, guess).max())
    return float(largest_eigenvalue_above(S).max())


def tail_of(network: Network, torus: Torus, multipliers: Sequence[Array], exponents: Sequence[int]) -> Network:
    """A network whose bound is one for the whole: in the place of the convolutions, and of the layer W that follows
    them, it begins with a matrix F such that W P Wᵀ ≼ F Fᵀ.

    W P Wᵀ = Σ_ω Ŵ(ω) P(ω) Ŵ(ω)*, where the rows of Ŵ are those of W, transformed; the sum is real. F is [L D] with L
    about a Cholesky factor of the sum, and D² the diagonal matrix of absolute row sums of what it misses.
    """
    head, (frequencies, counts) = network.layers[len(torus.convolutions)], torus.frequencies()
    weight, exponent = dense(head.weight), int(exponents[-1])

    def total(T: Sequence[Array]) -> Array:
        found = np.zeros((1, head.size, head.size))
        for some in _portions(torus, len(frequencies), head.size):
            P, _ = _hidden(torus, frequencies[some], T, exponents)
            rows, radius = torus.rows(weight, frequencies[some])
            S = congruence(P, np.concatenate([rows.real, -rows.imag], axis=-1), radius=np.tile(radius, (1, 2)))
            S *= counts[some, None, None]  # 1 or 2: exact
            found = sum_above(np.concatenate([found, S]))[None]
        return found[0]

    S = _attempted(multipliers, exponents, total)
    if not np.isfinite(S).all():
        raise ProofFailed("the ellipsoid after the convolutions is not finite; weights may be too large")
    trace = float(np.trace(S))
    L = np.linalg.cholesky(S + (2.0**-46 * trace + np.finfo(float).tiny) * np.eye(len(S)))
    missed = (Approx(S) - Approx(L) @ Approx(L).T).rows()
    missed = missed + 2.0**-140 * (1.0 + trace)  # more than F loses where the power makes it underflow
    factor = np.ldexp(np.concatenate([L, np.diag(Size(missed, 2).root().above)], axis=1), exponent)
    if not np.isfinite(factor).all() or abs(exponent) > _FAR:
        raise ProofFailed("the ellipsoid after the convolutions is too large, or too small, for floating point")
    return Network((Layer(factor, head.bias, head.neurons), *network.layers[len(torus.convolutions) + 1 :]))


Proved = TypeVar("Proved")


def _attempted(
    multipliers: Sequence[Array], exponents: Sequence[int], prove: Callable[[Sequence[Array]], Proved]
) -> Proved:
    """What is proved with the given multipliers, or with larger ones where these are too small."""
    if any(abs(exponent) > 2**20 for exponent in exponents):
        raise ProofFailed("an exponent of the hints is out of range")
    inside = [np.where(T > 0.0, np.clip(T, LEAST, MOST), LEAST) for T in multipliers]
    failure = ProofFailed("")
    for growth in _GROWTH:
        try:
            return prove([T * (1.0 + growth) for T in inside])
        except ProofFailed as error:
            failure = error
    raise failure


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
    for index, (slopes, T, exponent) in enumerate(zip(torus.slopes, multipliers, exponents, strict=True)):
        S = _after(torus, index, levels, P, before - exponent)
        P, before = _step(S, slopes, T), exponent
    return P, levels


def _after(torus: Torus, index: int, levels: list[Array], P: Array | None, power: int) -> Array:
    """Ŝ with E(S(ω)) ≼ Ŝ for S = 4**power·Σ K P K* over the aliases."""
    here, after = levels[index], math.prod(levels[index + 1].shape[:2])
    symbols, radius = torus.symbols(index, here.reshape(-1, here.shape[-1]))
    edge = Size(np.ldexp(np.tile(radius, (2, 2)), power)).above  # also of what the power makes underflow
    S = congruence(P, np.ldexp(_embedded(symbols), power), radius=edge)
    return S if len(S) == after else sum_above(np.swapaxes(S.reshape(after, -1, *S.shape[1:]), 0, 1))


def _step(S: Array, slopes: tuple[Array, Array], T: Array) -> Array:
    """P̂ after the activations with exactly the multipliers T of the channels at every frequency."""
    alpha, beta, wanted = (np.tile(one, (len(S), 2)) for one in (*slopes, T))
    if not np.isfinite(S).all():
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    step = activate(S, alpha, beta, wanted * (1.0 - min(_MARGIN * alpha.shape[-1] ** 2, 2.0**-20)))
    used = Near.weights(step.multipliers, 8)  # of a quotient and a square
    if not (used.above <= wanted).all():
        raise ProofFailed("the multipliers of a layer are too small for one of its frequencies")
    return raised(step.P, np.where(alpha < beta, (wanted - used).above, 0.0))


def _embedded(matrices: Array) -> Array:
    """E of complex matrices: real ones of twice the size."""
    real, imaginary = matrices.real, matrices.imag
    return np.concatenate(
        [np.concatenate([real, -imaginary], axis=-1), np.concatenate([imaginary, real], axis=-1)], axis=-2
    )
