"""What many tests share: activations with parameters, random networks, regions, sampled Lipschitz quotients."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel.checker import lipschitz_fact
from lipcert.kernel.facts import Part
from lipcert.model.activations import TABLE, Activation
from lipcert.model.arrays import Array, dense
from lipcert.model.regions import Region
from lipcert.suggest.hints import Hints

ROWS: list[Activation] = [
    *(lc.activation(name) for name in TABLE if name not in ("square", "cube")),
    *(lc.activation(f"leaky_relu({slope})") for slope in (0.0, 0.3, 1.0, 2.5, -1.0)),
    *(lc.activation(f"hardtanh({ends})") for ends in ("-0.25, 3.0", "1.0, 2.0")),
    *(lc.activation(f"hardsigmoid({line})") for line in ("0.2, 0.5", "3.0, -0.1")),
    *map(lc.activation, ("elu(0.3)", "elu(2.0)", "celu(0.4)", "celu(3.0)", "softplus(0.5)", "softplus(7.0)")),
    *map(lc.activation, ("softshrink(2.0)", "threshold(-1.5)")),
]
"""Every row of the table whose slopes are bounded, those with parameters several times."""
STEEP = [lc.activation("square"), lc.activation("cube")]
"""The rows whose slopes grow without end."""


def label(row: Activation) -> str:
    """A name for pytest."""
    return "-".join([row.name, *(f"{p:g}" for p in row.parameters)])


ROW_LABELS = [label(row) for row in ROWS]
NAMED_ROWS = dict(zip(ROW_LABELS, ROWS, strict=True))


def spread(step: int, *axes: Mapping[str, Any]) -> list[Any]:
    """Every combination of named values, for ``pytest.mark.parametrize``; one of ``step`` is quick, the others slow.

    A combination is quick if the places of its values add up to a multiple of ``step``. So each value of an axis is
    in a quick one, and each pair of values if a third axis has at least ``step`` values.
    """
    found = []
    for items in itertools.product(*(enumerate(axis.items()) for axis in axes)):
        quick = sum(place for place, _ in items) % step == 0
        names, values = zip(*(item for _, item in items), strict=True)
        found.append(pytest.param(*values, id="-".join(names), marks=() if quick else pytest.mark.slow))
    return found


def named(*names: str) -> dict[str, str]:
    """An axis for ``spread`` whose values are their names."""
    return {name: name for name in names}


def random_network(
    seed: int, sizes: tuple[int, ...], activation: Any = "relu", gain: float = 1.5, bias: float = 0.5
) -> lc.Network:
    """Gaussian weights of spectral norm about ``gain``, Gaussian biases of size ``bias``."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((out, into)) for into, out in itertools.pairwise(sizes)]
    weights = [w * gain / (np.sqrt(w.shape[0]) + np.sqrt(w.shape[1])) for w in weights]
    return lc.Network.from_weights(weights, [bias * rng.standard_normal(w.shape[0]) for w in weights], activation)


def sampled_norms(network: lc.Network, points: Array) -> tuple[Array, Array]:
    """Jacobian norms at points where both one-sided derivatives agree (zero elsewhere), and their rounding error."""
    right, left = network.jacobian(points), network.jacobian(points, side=-1)
    clear = (right == left).all(axis=(-2, -1))
    size = np.abs(points)
    for layer, v in zip(network.layers, network.preactivations(points), strict=True):
        weight = np.abs(dense(layer.weight))
        size = (
            weight @ size if size.ndim > points.ndim else np.broadcast_to(weight, (*points.shape[:-1], *weight.shape))
        )
        if layer.neurons is not None:
            size = np.abs(layer.neurons.slope(v))[..., None] * size
    norms = np.linalg.norm(right, ord=2, axis=(-2, -1))
    largest = np.linalg.norm(size, axis=(-2, -1))
    return np.where(clear, norms, 0.0), 1e-15 * sum(network.sizes) * largest


def sampled_quotients(network: lc.Network, one: Array, two: Array) -> tuple[Array, Array]:
    """‖f(x) - f(y)‖/‖x - y‖ for pairs of points, and the rounding error each quotient may carry."""
    distance = np.linalg.norm(one - two, axis=-1)
    apart = distance > 0
    safe = np.where(apart, distance, 1.0)
    quotient = np.linalg.norm(network(one) - network(two), axis=-1) / safe
    scale = _noise(network, one) + _noise(network, two)
    return np.where(apart, quotient, 0.0), np.where(apart, 1e-15 * scale / safe, 0.0)


def _noise(network: lc.Network, x: Array) -> Array:
    """How large the numbers are whose rounding f(x) carries: |W_N| … (|W_1||x| + |b_1|) …, slopes at their largest."""
    size = np.abs(x)
    for layer in network.layers:
        size = layer.weight.shape[1] * (size @ np.abs(dense(layer.weight)).T) + np.abs(layer.bias)
        if layer.neurons is not None:
            low, high = layer.neurons.slope_range(-size - 1.0, size + 1.0)
            size = size * np.maximum(np.abs(low), np.abs(high)) + np.abs(layer.neurons.value(np.zeros_like(size)))
    return np.asarray(np.linalg.norm(size, axis=-1))


def pairs(region: Region, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Pairs of points of a bounded region, half of them close together."""
    one, two = region.sample(count, rng), region.sample(count, rng)
    near = region.project(one + 1e-4 * (two - one))
    return one, np.where((np.arange(count) % 2 == 0)[:, None], near, two)


def proved_bound(network: lc.Network, region: Region, sweeps: Sequence[Hints]) -> float:
    """The Lipschitz bound that hints for the whole network prove."""
    return lipschitz_fact(network, region, Part((0, network.depth)), sweeps).bound
