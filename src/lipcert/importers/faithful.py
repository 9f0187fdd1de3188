"""The check that an imported network computes what the model computes, as the model's own library runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lipcert.errors import UnreadableModel
from lipcert.importers.lowering import Lowered
from lipcert.network import Network, dense
from lipcert.typing import Array

_AGREE = 1e-7
"""Relative difference that passes between two evaluations in double precision."""

_ROUNDING = 64.0
"""How many times the effect of rounding to single precision, as measured on the network itself, may be seen."""


@dataclass(frozen=True, eq=False)
class Original:
    """A model as its own library runs it.

    Attributes
    ----------
    run : one input, flat, to the output, flat.
    single : whether it computes in single precision.
    library : who runs it, for messages.
    """

    run: Callable[[Array], Array]
    single: bool
    library: str


@dataclass(frozen=True, eq=False)
class Imported:
    """What an importer returns: the network, where it comes from, and the model's input shape and parameter count."""

    lowered: Lowered
    input_shape: tuple[int, ...]
    parameters: int

    @property
    def network(self) -> Network:
        return self.lowered.network


def confirm(network: Network, original: Original, points: Any = None, *, count: int = 16, seed: int = 0) -> None:
    """Refuse an import that is not faithful.

    The two are evaluated at random points of several sizes, at the origin, and at the given points.

    Raises
    ------
    UnreadableModel
        The outputs differ by more than rounding explains.
    """
    tests = sample(network.inputs, count, seed)
    if points is not None:
        given = network.point("points", points)
        tests = np.concatenate([np.reshape(given, (-1, network.inputs)), tests])
    ours = network(tests)
    theirs = np.stack([np.asarray(original.run(x), dtype=float).ravel() for x in tests])
    if theirs.shape != ours.shape:
        raise UnreadableModel(
            f"the import is not faithful: the network has {ours.shape[1]} outputs, {original.library} gives"
            f" {theirs.shape[1]}; please report this model"
        )
    finite = np.isfinite(theirs).all(axis=1)  # single precision may overflow at large inputs
    scale = np.maximum(np.abs(ours).max(axis=1), np.where(finite, np.abs(theirs).max(axis=1), 0.0))
    allowed = _AGREE * scale
    if original.single:
        rough = _single(network, tests)
        finite &= np.isfinite(rough).all(axis=1)
        allowed = 1e-6 * scale + _ROUNDING * np.abs(np.where(finite[:, None], rough - ours, 0.0)).max(axis=1)
    if not finite.any():
        raise UnreadableModel(f"{original.library} gives no finite output at any of {len(tests)} points")
    apart = np.where(finite, np.abs(np.where(finite[:, None], theirs, ours) - ours).max(axis=1), 0.0)
    worst = int(np.argmax(apart - allowed))
    if apart[worst] > allowed[worst]:
        raise UnreadableModel(
            f"the import is not faithful: at a point where outputs are of size {scale[worst]:.3g}, the network and"
            f" {original.library} differ by {apart[worst]:.3g}, rounding explains {allowed[worst]:.3g};"
            " please report this model"
        )


def sample(inputs: int, count: int, seed: int) -> Array:
    """Points to compare at: the origin, the unit box, and normal ones of four sizes; (count + 1, inputs)."""
    rng = np.random.default_rng(seed)
    spread = np.resize([0.1, 1.0, 1.0, 10.0, 100.0], count)[:, None] * rng.standard_normal((count, inputs))
    boxed = rng.random((count, inputs))
    points = np.where((np.arange(count) % 3 == 0)[:, None], boxed, spread)
    # what single precision can represent, so that both sides see the same input
    return np.concatenate([np.zeros((1, inputs)), points]).astype(np.float32).astype(float)


def _single(network: Network, x: Array) -> Array:
    """The network's output when every layer is computed in single precision."""
    z = x.astype(np.float32)
    for layer in network.layers:
        weight = layer.weight.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            v = dense(weight @ z.T).T + layer.bias.astype(np.float32)
            z = v if layer.neurons is None else layer.neurons.value(v.astype(float)).astype(np.float32)
    return z.astype(float)
