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
from contextvars import copy_context
from dataclasses import replace
from typing import TypeVar

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.model.convolution import Convolution
from lipcert.model.network import Layer, Network
from lipcert.proof.frequency_grid import sparing
from lipcert.proof.guide import given
from lipcert.proof.hints import Hints
from lipcert.proof.near import congruence, largest_eigenvalue_above
from lipcert.proof.neuron_bounds import WIDEN
from lipcert.proof.rounding import LOOSE, TINY, UP, apply, gamma, raise_diagonal, stretched, up
from lipcert.proof.step import LEAST, MOST, activate
from lipcert.proof.sweep import Sweep, proving
from lipcert.proof.torus import Torus, full_kernel, phases, torus_alone, torus_of, transformed
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

    def largest(T: Sequence[Array]) -> float:
        def at(some: slice) -> float:
            return float(largest_eigenvalue_above(_last(torus, frequencies[some], T, exponents)).max())

        with ThreadPoolExecutor(min(len(portions), os.cpu_count() or 1)) as threads:
            found = [threads.submit(copy_context().run, at, some) for some in portions]
            try:
                worst = np.max([one.result() for one in found])  # NaN stays NaN, and proves nothing
            finally:
                threads.shutdown(cancel_futures=True)
        exponent = int(exponents[-1])
        return float(up(stretched(np.ldexp(stretched(np.sqrt(worst), 2), exponent) * torus.gain, 1)))

    return float(_attempted(multipliers, exponents, largest))


def convolution_norm(convolution: Convolution) -> float | None:
    """At least the norm of a convolution: the largest over the frequencies of [K(ω_b)]_b, aliases side by side.

    Channels that see nothing of each other are taken apart. None if there is no torus.
    """
    torus = torus_alone(convolution)
    if torus is None:
        return None
    kernel, found = full_kernel(convolution), 0.0
    sums = np.abs(kernel).sum(axis=tuple(range(2, kernel.ndim)))
    channels, outputs = np.arange(convolution.channels), np.arange(0)
    before = outputs
    while not np.array_equal(before, channels):  # until each has the lowest channel that it is connected with
        before, outputs = channels, np.where(sums > 0.0, channels, len(channels)).min(axis=1)
        channels = np.minimum(channels, np.where(sums > 0.0, outputs[:, None], len(channels)).min(axis=0))
    count = len(channels) + 1  # the last one is for outputs that see nothing
    rows, columns = np.zeros(count), np.zeros(count)  # the largest sums of each part
    np.maximum.at(rows, outputs, sums.sum(axis=1))
    np.maximum.at(columns, channels, sums.sum(axis=0))
    limits = stretched(np.sqrt(rows * UP) * np.sqrt(columns * UP), 4)
    for part in np.argsort(-limits):
        if limits[part] <= found:
            break
        if not (outputs == part).any() or not (channels == part).any():  # a channel that nothing sees
            found = float(limits[part])
            break
        some = kernel[outputs == part][:, channels == part]
        alone = torus_alone(replace(convolution, kernel=some, groups=1))
        assert alone is not None
        found = max(found, min(float(limits[part]), _symbol_norm(sparing(alone))))
    return found


def _symbol_norm(torus: Torus) -> float:
    (one,), frequencies = torus.convolutions, torus.frequencies()[0]
    largest = 0.0
    with proving():
        for some in _portions(torus, len(frequencies), 0):
            here = torus.levels(frequencies[some])[0]
            symbols, radius = torus.symbols(0, here.reshape(-1, here.shape[-1]))
            aliases = here.shape[1]
            wide = np.swapaxes(symbols.reshape(-1, aliases, one.outputs, one.channels), 1, 2)
            weight = _embedded(wide.reshape(len(wide), one.outputs, -1))
            edge = np.tile(radius, (2, 2 * aliases))
            if weight.shape[-2] > weight.shape[-1]:
                weight, edge = np.swapaxes(weight, -1, -2), edge.T
            S = congruence(None, weight, radius=edge)
            largest = float(np.maximum(largest, _eigenvalue_above(S, largest)))  # NaN stays NaN
    return float(stretched(stretched(np.sqrt(largest), 2) * torus.gain, 1))


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
    head, frequencies = network.layers[len(torus.convolutions)], torus.frequencies()
    images = dense(head.weight).reshape(head.size, torus.convolutions[-1].outputs, -1)

    def total(T: Sequence[Array]) -> Array:
        found = np.zeros((head.size, head.size))
        for some in _portions(torus, len(frequencies[0]), head.size):
            omega, count = frequencies[0][some], frequencies[1][some]
            P, _ = _hidden(torus, omega, T, exponents)
            weight, edge = _rows(torus, images, omega)
            S = congruence(P, weight, radius=edge) * count[:, None, None]  # 1 or 2: exact
            part = S.sum(axis=0)
            lost = gamma(len(S) + 2) * (np.abs(S).sum(axis=0) + np.abs(found)).sum(axis=-1) * UP
            found = raise_diagonal(found + part, lost)
        return found

    S = _attempted(multipliers, exponents, total)
    exponent = int(exponents[-1])
    if not np.isfinite(S).all():
        raise ProofFailed("the ellipsoid after the convolutions is not finite; weights may be too large")
    S = 0.5 * (S + S.T)  # of a symmetric matrix
    slack = 2.0**-46 * float(np.trace(S)) + TINY
    L = np.linalg.cholesky(S + slack * np.eye(len(S)))
    size = np.abs(L)
    missed = np.abs(S - L @ L.T).sum(axis=-1) + gamma(len(S) + 4) * (
        apply(size, size.sum(axis=-2)) + np.abs(S).sum(axis=-1)
    )
    missed = missed + 2.0**-140 * (1.0 + float(np.trace(S)))  # more than F loses where the power makes it underflow
    rest = stretched(np.sqrt(missed * UP), 2)
    factor = np.ldexp(np.concatenate([L, np.diag(rest)], axis=1), exponent)
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


def _last(torus: Torus, frequencies: Array, multipliers: Sequence[Array], exponents: Sequence[int]) -> Array:
    """Ŝ with E(S(ω)) ≼ 4**exponents[-1]·Ŝ after the last convolution."""
    P, levels = _hidden(torus, frequencies, multipliers, exponents)
    return _after(torus, len(torus.convolutions) - 1, levels, P, 0)


def _after(torus: Torus, index: int, levels: list[Array], P: Array | None, power: int) -> Array:
    """Ŝ with E(S(ω)) ≼ Ŝ for S = 4**power·Σ K P K* over the aliases."""
    frequencies, after = levels[index].reshape(-1, levels[index].shape[-1]), levels[index + 1]
    symbols, radius = torus.symbols(index, frequencies)
    weight, edge = np.ldexp(_embedded(symbols), power), np.ldexp(np.tile(radius, (2, 2)), power) + TINY
    S = congruence(P, weight, radius=edge)
    parts = S.reshape(math.prod(after.shape[:2]), -1, *S.shape[1:])
    if parts.shape[1] == 1:
        return parts[:, 0]
    lost = gamma(parts.shape[1]) * np.abs(parts).sum(axis=(1, -1)) * UP
    return raise_diagonal(parts.sum(axis=1), lost)


def _step(S: Array, slopes: tuple[Array, Array], T: Array) -> Array:
    """P̂ after the activations with exactly the multipliers T of the channels at every frequency."""
    alpha, beta, wanted = (np.tile(one, (len(S), 2)) for one in (*slopes, T))
    if not np.isfinite(S).all():
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    step = activate(S, alpha, beta, wanted * (1.0 - min(_MARGIN * alpha.shape[-1] ** 2, 2.0**-20)))
    used = step.multipliers
    if not (stretched(used, 4) <= wanted).all():
        raise ProofFailed("the multipliers of a layer are too small for one of its frequencies")
    return raise_diagonal(step.P, np.where(alpha < beta, up(wanted - used * (1.0 - gamma(8))), 0.0))


def _rows(torus: Torus, images: Array, frequencies: Array) -> tuple[Array, Array]:
    """The first rows of E(Ŵ(ω)), (count, rows, 2·channels), for W given as images, and their radius."""
    size, places = torus.sizes[-1], torus.convolutions[-1].places
    where = np.array(list(np.ndindex(*places)))
    scale = 1.0 / math.sqrt(math.prod(size))
    turns = phases(frequencies, where, size)
    rows = transformed(turns, images, scale)
    lost = (WIDEN + gamma(len(where) + LOOSE + 8)) * UP
    radius = lost * np.abs(images).sum(axis=-1) * (scale * UP) + TINY
    return np.concatenate([rows.real, -rows.imag], axis=-1), np.tile(radius, (1, 2))


def _embedded(matrices: Array) -> Array:
    """E of complex matrices: real ones of twice the size."""
    real, imaginary = matrices.real, matrices.imag
    return np.concatenate(
        [np.concatenate([real, -imaginary], axis=-1), np.concatenate([imaginary, real], axis=-1)], axis=-2
    )
