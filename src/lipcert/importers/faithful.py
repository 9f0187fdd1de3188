"""The check that an imported network computes what the model computes, as the model's own library runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.errors import UnreadableModel
from lipcert.importers.lowering import Lowered
from lipcert.importers.samples import at_kinks, cost, disturbed, sample
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from lipcert.runtime.clock import clock

_WORK, _FEWEST = 5e8, 10
"""Weights times points, and how many points there are in any case."""


@dataclass(frozen=True)
class Precision:
    """How a model computes.

    Attributes
    ----------
    unit : its unit roundoff.
    floor : the difference that passes relative to the largest output. What rounding does is learned from the network,
        in which affine maps have been composed; in between the model may have held larger values, whose rounding the
        network cannot show.
    within : up to this size of every sum in the network the model has no reason to overflow.
    tiny : what underflow may change.
    rounded : numbers as the model can represent them.
    """

    unit: float
    floor: float
    within: float
    tiny: float
    rounded: Callable[[Array], Array]


def _as(dtype: Any) -> Callable[[Array], Array]:
    return lambda x: x.astype(dtype).astype(float)


DOUBLE: Final = Precision(2.0**-53, 2.0**-36, 1e100, 0.0, np.asarray)
SINGLE: Final = Precision(2.0**-24, 2.0**-20, 1e30, 1e-37, _as(np.float32))
HALF: Final = Precision(2.0**-11, 2.0**-8, 1e3, 2.0**-14, _as(np.float16))


@dataclass(frozen=True, eq=False)
class Original:
    """A model as its own library runs it.

    Attributes
    ----------
    run : one input, flat, to the output, flat.
    precision : how it computes.
    library : who runs it, for messages.
    unit : the precision of its activations, relative, where that is less than the precision it computes in.
    """

    run: Callable[[Array], Array]
    precision: Precision
    library: str
    unit: float = 0.0


@dataclass(frozen=True, eq=False)
class Imported:
    """What an importer returns: the network, where it comes from, and the model's input shape and parameter count."""

    lowered: Lowered
    input_shape: tuple[int, ...]
    parameters: int

    @cached_property
    def network(self) -> Network:
        """The network, which remembers the shape of the model's inputs."""
        return replace(self.lowered.network, input_shape=tuple(self.input_shape))


def confirm(
    network: Network, original: Original, points: Any = None, *, sizes: Sequence[float] = (), seed: int = 0
) -> None:
    """Refuse an import that is not faithful.

    The two are evaluated at the given points, at two draws of random points of sizes 1e-3 to 1e39 (the second depends
    on the network, so that nobody can prepare for it), and on both sides of kinks of the network's activations, as
    near as floating point comes. A difference passes at an output if it is at most 16 times what disturbing every sum
    and every activation of the network by 16 units of roundoff does to that output (:func:`samples.disturbed`), plus
    2⁻³⁶ of the largest output (2⁻²⁰ in single precision). A point counts only if both results are finite; where the
    network's sums stay below 1e100 (1e30), the model's result must be. ``sizes`` are further sizes of random inputs,
    such as the limits that the model holds; ``seed`` is that of the first draw.

    Raises
    ------
    UnreadableModel
        The outputs differ by more than rounding explains, or the model's are not finite.
    """
    say = clock().say
    say(f"comparing with {original.library}: looking for points at kinks")
    tests = _tests(network, original.precision, points, sizes, seed)
    theirs = []
    for number, x in enumerate(tests, 1):
        say(f"comparing with {original.library}: point {number} of {len(tests)}")
        theirs.append(np.asarray(original.run(x), dtype=float).ravel())
    say(f"comparing with {original.library}: what rounding explains")
    sizes_seen = sorted({result.size for result in theirs})
    if sizes_seen != [network.outputs]:
        raise UnreadableModel(
            f"the import is not faithful: the network has {network.outputs} outputs, {original.library} gives"
            f" {' or '.join(map(str, sizes_seen))}; please report this model"
        )
    _compare(network, original, tests, np.stack(theirs))


def _tests(network: Network, precision: Precision, points: Any, sizes: Sequence[float], seed: int) -> Array:
    """All points to compare at, as numbers that the model's precision can represent."""
    known = _drawn.setdefault(network, {})
    if (seed, *sizes) not in known:
        known[seed, *sizes] = _draw(network, sizes, seed)
    tests = known[seed, *sizes]
    # in a network of many weights a point costs much, and there are many neurons to show what is wrong
    room = max(_FEWEST, int(_WORK / sum(cost(layer) for layer in network.layers)))
    tests = tests[np.unique(np.linspace(0, len(tests) - 1, min(room, len(tests))).astype(int))]
    if points is not None:
        given = network.point("points", points)
        tests = np.concatenate([np.reshape(given, (-1, network.inputs)), tests])
    with np.errstate(over="ignore"):
        tests = precision.rounded(tests)  # so that both sides see the same input
    return tests[np.isfinite(tests).all(axis=1)]


_drawn: WeakKeyDictionary[Network, dict[tuple[float, ...], Array]] = WeakKeyDictionary()
"""Points that were drawn before: a model in two precisions is compared at the same ones."""


def _draw(network: Network, sizes: Sequence[float], seed: int) -> Array:
    """Random points, and points at kinks."""
    # a size s of the model's own constants may be reached only after weights that make it smaller
    more = [factor * size for size in sizes for factor in (2.0, 1e3, 1e6)]
    drawn = _seed(network)
    random = np.concatenate([sample(network.inputs, s, more) for s in (seed, drawn)])
    return np.concatenate([random, at_kinks(network, random, np.random.default_rng(drawn))])


def _seed(network: Network) -> int:
    """A number that depends on every weight and bias; a convolution counts with its kernel, so no matrix is made."""
    state = hashlib.blake2b(digest_size=7)
    for layer in network.layers:
        linear = layer.linear
        stored = linear.kernel if isinstance(linear, Convolution) else linear
        for array in (stored if isinstance(stored, np.ndarray) else stored.data, layer.bias):
            state.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(state.digest())


def _compare(network: Network, original: Original, tests: Array, theirs: Array) -> None:
    precision = original.precision
    with np.errstate(all="ignore"):
        ours, spread, largest = disturbed(network, tests, max(precision.unit, original.unit))
        finite = np.isfinite(theirs).all(axis=1)
        wanting = ~finite & (largest < precision.within)
        counts = finite & np.isfinite(ours).all(axis=1) & np.isfinite(spread).all(axis=1)
        if wanting.any():
            size = np.abs(tests[np.argmax(wanting)]).max()
            raise UnreadableModel(
                f"{original.library} gives no finite output at {np.count_nonzero(~finite)} of {len(tests)} points,"
                f" one of them with entries up to {size:.3g}; a network is finite everywhere"
            )
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
