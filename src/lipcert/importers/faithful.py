"""The check that an imported network computes what the model computes, as the model's own library runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lipcert.arguments.values import entries
from lipcert.errors import UnreadableModel
from lipcert.model.activations import STRAIGHT
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Network
from lipcert.runtime.clock import clock

_WORK, _FEWEST = 5e8, 10
"""Weights times points, and how many points there are in any case."""

SIZES: Final = (
    *(1e-3, 0.1, 1.0, 1.0, 3.0, 10.0, 30.0, 1e2, 1e3, 1e4, 1e6, 1e7, 1e9, 1e12, 1e15, 1e20, 1e25, 1e30, 1e37, 1e39),
    *(1e46, 1e60, 1e100, 1e150, 1e205, 1e280),
)
"""Sizes of random inputs: a limit is noticed if it is below them. Single precision has no numbers beyond 4e38."""

NOISE, DRAWS, MARGIN = 16.0, 3, 16.0
"""Units of roundoff by which every sum and activation is disturbed to learn what rounding does; how often, both ways;
how many times the largest disturbance seen may be reached. A model's roundings are about one unit each, 1/256 of
what is allowed, so that all draws are too small by chance at one output in 10⁷ or fewer."""

_KINK_WORK, _MOST_KINKS = 4e9, 64
"""Products that the search for kinks may cost, and how many kinks are looked for."""

_MEMORY = 3e7
"""Numbers that are kept at once."""


@dataclass(frozen=True)
class Precision:
    """How a model computes: its unit roundoff and type of numbers.

    A difference of ``floor`` relative to the largest output passes: what rounding does is learned from the network, in
    which affine maps have been composed; in between the model may have held larger values, whose rounding the network
    cannot show. Up to ``within`` as the size of every sum in the network the model has no reason to overflow; underflow
    may change ``tiny``.
    """

    unit: float
    floor: float
    within: float
    tiny: float
    dtype: type[np.floating[Any]]


DOUBLE: Final = Precision(2.0**-53, 2.0**-36, 1e100, 0.0, np.float64)
SINGLE: Final = Precision(2.0**-24, 2.0**-20, 1e30, 1e-37, np.float32)
HALF: Final = Precision(2.0**-11, 2.0**-8, 1e3, 2.0**-14, np.float16)


@dataclass(frozen=True, eq=False)
class Original:
    """A model as its own ``library`` runs it: one input, flat, to the output, flat.

    ``off`` is how far its activations are from those of the network, relatively, where that is more than rounding.
    """

    run: Callable[[Array], Array]
    precision: Precision
    library: str
    off: float = 0.0


def confirm(network: Network, originals: Iterable[Original], points: Any = None, *, seed: int = 0) -> None:
    """Refuse an import that is not faithful to a model, which may be run in several ways.

    The two are evaluated at the given points, at two draws of random points of sizes 1e-3 to 1e280 (the second depends
    on the network, so that nobody can prepare for it), and on both sides of kinks of the network's activations, as
    near as floating point comes. A difference passes at an output if it is at most 16 times what disturbing every sum
    and every activation of the network by 16 units of roundoff does to that output (:func:`disturbed`), plus
    2⁻³⁶ of the largest output (2⁻²⁰ in single precision). A point counts only if both results are finite; where the
    network's sums stay below 1e100 (1e30), the model's result must be. ``seed`` is that of the first draw.

    Raises
    ------
    UnreadableModel
        The outputs differ by more than rounding explains, or the model's are not finite.
    """
    say = clock().say
    say("comparing with the model: looking for points at kinks")
    given = np.zeros((0, network.inputs)) if points is None else network.point("points", points)
    drawn = _fingerprint(network)
    random = np.concatenate([sample(network.inputs, s) for s in (seed, drawn)])
    random = np.concatenate([random, at_kinks(network, random, np.random.default_rng(drawn))])
    # in a network of many weights a point costs much, and there are many neurons to show what is wrong
    most = max(_FEWEST, int(_WORK / sum(cost(layer) for layer in network.layers)))
    for original in originals:
        with np.errstate(over="ignore"):
            kind = original.precision.dtype  # so that both sides see the same input
            parts = [np.reshape(part, (-1, network.inputs)).astype(kind).astype(float) for part in (given, random)]
        chosen, tests = (part[np.isfinite(part).all(axis=1)] for part in parts)
        tests = tests[np.unique(np.linspace(0, len(tests) - 1, min(most, len(tests))).astype(int))]
        tests, theirs = np.concatenate([chosen, tests]), []
        for number, x in enumerate(tests, 1):
            say(f"comparing with {original.library}: point {number} of {len(tests)}")
            theirs.append(np.asarray(original.run(x), dtype=float).ravel())
        say(f"comparing with {original.library}: what rounding explains")
        seen = sorted({result.size for result in theirs})
        if seen != [network.outputs]:
            raise UnreadableModel(
                f"the import is not faithful: the network has {network.outputs} outputs, {original.library} gives"
                f" {' or '.join(map(str, seen))}; please report this model"
            )
        _compare(network, original, tests, np.stack(theirs))


def _fingerprint(network: Network) -> int:
    state = hashlib.blake2b(digest_size=7)  # of every weight and bias
    for layer in network.layers:
        stored: Any = layer.convolution.kernel if layer.convolution else layer.linear  # so that no matrix is made
        for array in (stored if isinstance(stored, np.ndarray) else stored.data, layer.bias):
            state.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(state.digest())


def _compare(network: Network, original: Original, tests: Array, theirs: Array) -> None:
    precision = original.precision
    with np.errstate(all="ignore"):
        ours, spread, largest = disturbed(network, tests, max(precision.unit, original.off / NOISE))
        finite = np.isfinite(theirs).all(axis=1)
        wanting = ~finite & (largest < precision.within)
        if wanting.any():
            size = np.abs(tests[np.argmax(wanting)]).max()
            raise UnreadableModel(
                f"{original.library} gives no finite output at {np.count_nonzero(~finite)} of {len(tests)} points,"
                f" one of them with entries up to {size:.3g}; a network is finite everywhere"
            )
        counts = finite & np.isfinite(largest) & np.isfinite(ours).all(axis=1) & np.isfinite(spread).all(axis=1)
        if not counts.any():
            raise UnreadableModel(
                f"network and model cannot be compared: at all of {len(tests)} points their values overflow; the"
                f" weights, biases or limits are too large for {original.library}"
            )
        tests, ours, theirs, spread = (part[counts] for part in (tests, ours, theirs, spread))
        scale = np.maximum(np.abs(ours), np.abs(theirs)).max(axis=1, keepdims=True)
        # the last term is for numbers that underflow
        allowed = spread + precision.floor * scale + precision.tiny
        apart = np.abs(theirs - ours)
        excess = np.where(apart > allowed, apart / np.maximum(allowed, np.finfo(float).tiny), 0.0)
    worst, output = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[worst, output] > 0.0:
        raise UnreadableModel(
            f"the import is not faithful: at an input with entries up to {np.abs(tests[worst]).max():.3g}, output"
            f" {output} is {ours[worst, output]:.17g} for the network and {theirs[worst, output]:.17g}"
            f" for {original.library};"
            f" rounding explains a difference of {allowed[worst, output]:.3g}; please report this model"
        )


def sample(inputs: int, seed: int) -> Array:
    """Points to compare at, (points, inputs), as float64 numbers that single precision cannot represent.

    The origin, the unit box, normal points of every size in ``SIZES``, and points with entries of many sizes.
    """
    rng = np.random.default_rng(seed)
    spread = np.array(SIZES)[:, None]
    mixed = 10.0 ** rng.uniform(-3.0, 12.0, (4, inputs))
    unit, normal = rng.random((4, inputs)), spread * rng.standard_normal((len(spread), inputs))
    return np.concatenate([np.zeros((1, inputs)), unit, normal, mixed * rng.standard_normal((4, inputs))])


def at_kinks(network: Network, tests: Array, rng: np.random.Generator) -> Array:
    """Pairs of points on the two sides of kinks, as near as bisection in floating point comes.

    For neurons drawn at random, all of them where they are few, the smallest two of the given points are sought between
    which the pre-activation crosses a kink, and the crossing is bisected.
    """
    work = sum(cost(layer) for layer in network.layers)
    tests = tests[:: -(-len(tests) // min(_rows(network), max(_FEWEST, int(_WORK / work))))]
    size = np.abs(tests).max(axis=1)
    tests = tests[np.argsort(np.where(size == 0.0, np.inf, size), kind="stable")]
    kinks = [
        (place, neuron, knot)
        for place, layer in enumerate(network.layers)
        for row, index in (layer.plain.groups if layer.plain else ())
        for knots in (row.knots(np.zeros(index.size)) if row.row.kinks else ())
        for neuron, knot in zip(index, np.broadcast_to(knots, index.shape), strict=True)
    ]
    limit = int(np.clip(_KINK_WORK / (120.0 * work), 2, _MOST_KINKS))
    found: list[tuple[Any, ...]] = []
    with np.errstate(all="ignore"):
        seen = network.preactivations(tests)
        for k in rng.permutation(len(kinks)) if len(kinks) > limit else range(len(kinks)):
            place, neuron, knot = kinks[k]
            value = seen[place][:, neuron] - knot
            below, above = (np.flatnonzero(side & np.isfinite(value)) for side in (value < 0.0, value >= 0.0))
            if below.size and above.size:
                found.append((place, neuron, knot, tests[below[0]], tests[above[0]]))
            if len(found) == limit:
                break
        if not found:
            return np.zeros((0, network.inputs))
        layers, neurons, knots, low, high = (np.array(part) for part in zip(*found, strict=True))
        before = network.slice(0, int(layers.max()) + 1)
        for _ in range(70):
            middle = 0.5 * low + 0.5 * high
            if ((middle == low) | (middle == high)).all():
                break
            values = before.preactivations(middle)
            value = np.array([values[i][k, j] for k, (i, j) in enumerate(zip(layers, neurons, strict=True))])
            under = (value < knots)[:, None]
            low, high = np.where(under, middle, low), np.where(under, high, middle)
    return np.concatenate([low, high])


def cost(layer: Layer) -> int:
    """Products in the layer's affine map at one point."""
    return layer.convolution.entries if layer.convolution else entries(layer.linear)


def disturbed(network: Network, x: Array, unit: float, seed: int = 0) -> tuple[Array, Array, Array]:
    """Outputs, how far rounding may move each, and the largest value in the network; per point of (n, inputs).

    Every sum Wz + b is moved by ±16u(|W||z| + |b|) and every activation by ±16u|φ|, at random, where u is the unit
    roundoff. Formulas of smooth activations cancel, as exp(v) - 1 or 1 + erf(v) does; they are moved by
    ±16u(1 + |v|) in addition, |v| up to 64, times the largest parameter. The result is 16 times the largest change
    of an output in three draws of the signs and of their opposites.
    """
    rows = _rows(network)
    if len(x) > rows:
        parts = zip(*(disturbed(network, x[k : k + rows], unit, seed) for k in range(0, len(x), rows)), strict=True)
        exact, moved, largest = map(np.concatenate, parts)
        return exact, moved, largest
    exact, reaches = x, []
    for layer in network.layers:
        kernel = layer.convolution
        size = replace(kernel, kernel=np.abs(kernel.kernel)) if kernel else abs(layer.weight)
        sums = Layer(size, np.abs(layer.bias), None).affine(np.abs(exact))
        v = layer.affine(exact)
        exact = v if layer.plain is None else layer.activated(v)
        reaches.append((sums, _bends(layer, v, np.abs(exact), np.minimum(sums, 2.0 / (NOISE * unit)))))
    moved = np.zeros_like(exact)
    for number in range(2 * DRAWS):
        rng = np.random.default_rng((seed, number // 2))
        side = (-1) ** number * NOISE * unit
        z = x
        for layer, (sums, bends) in zip(network.layers, reaches, strict=True):
            z = _shaken(layer.affine(z), side * sums, rng)
            z = z if layer.plain is None else _shaken(layer.activated(z), side * bends, rng)
        moved = np.fmax(moved, np.abs(z - exact))
    largest = np.max([np.abs(x).max(axis=1), *(sums.max(axis=1) for sums, _ in reaches)], axis=0)
    return exact, MARGIN * moved, largest


def _bends(layer: Layer, v: Array, found: Array, far: Array) -> Array:
    """Sizes of what is rounded where a layer is not affine, given those of its results.

    A step of a periodic function may lead anywhere after many periods, or back. Terms of sums of products are rounded;
    exponents of softmax values cancel.
    """
    for row, index in layer.plain.groups if layer.plain is not None else ():
        if any(piece != STRAIGHT for piece in row.shape):
            scale = np.max([1.0, *(np.max(np.abs(parameter)) for parameter in row.parameters)])
            found[:, index] += scale * (1.0 + np.minimum(np.abs(v[:, index]), 64.0))
        if np.isfinite(row.row.period):
            found[:, index] += far[:, index]
    if layer.coupling is not None:
        for _, index in layer.coupling.softmax_rows():
            found[:, index] *= 1.0 + np.minimum(np.abs(v[:, index]).max(axis=-1, keepdims=True), 64.0)
        for product, place in layer.coupling.sums():
            found[:, place] += (np.abs(v[:, product.one]) * np.abs(v[:, product.two])).sum(axis=-1)
    return found


def _rows(network: Network) -> int:
    """How many points may be carried through the network at once."""
    return max(8, int(_MEMORY / sum(network.sizes)))


def _shaken(value: Array, reach: Array, rng: np.random.Generator) -> Array:
    return value + np.where(rng.integers(0, 2, value.shape, dtype=np.uint8) == 1, reach, -reach)
