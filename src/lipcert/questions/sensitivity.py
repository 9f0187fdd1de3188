"""How strongly each output depends on each input: a matrix of certified bounds from one sweep."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arguments import indices
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Region
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.jacobian import entries
from lipcert.proof.neuron_bounds import slope_bounds
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import norm_above
from lipcert.proof.sweep import proving
from lipcert.questions.establish import establish
from lipcert.search.method import Method
from lipcert.search.scalar import Scalar

Group = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Certified bounds for pairs of an output, or group of outputs, and an input, or group of inputs.

    Attributes
    ----------
    matrix : matrix[i, k] bounds ‖change of output group i‖ / ‖change of input group k‖, the other inputs held equal,
        for any two such inputs of the region; (output groups, input groups).
    outputs, inputs : the groups, as tuples of coordinates.
    bound : of the whole network, all inputs and all outputs together.
    network : digest of the network.
    region : the inputs it holds for.
    seconds : wall-clock time.
    """

    matrix: Array
    outputs: tuple[Group, ...]
    inputs: tuple[Group, ...]
    bound: float
    network: str
    region: Region
    seconds: float

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        return f"Sensitivity({rows} × {columns}, largest={self.matrix.max():.6g}, bound={self.bound:.6g})"


def sensitivity(
    network: Network,
    region: Region | None = None,
    method: Method | None = None,
    *,
    inputs: Iterable[int | Iterable[int]] | None = None,
    outputs: Iterable[int | Iterable[int]] | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
) -> Sensitivity:
    """Bound how fast each output can change with each input, proved with outward rounding.

    The work is that of one :func:`certify` and a fraction more, however many pairs there are.

    Parameters
    ----------
    network, region, enclosures
        As for :func:`certify`.
    method
        How multipliers are chosen; default ``Scalar()``. Cutting the region, as ``Auto()`` does, is of no use here.
    inputs, outputs
        Coordinates or groups of coordinates, as in ``inputs=[0, 1, (2, 3)]``. Default: every coordinate by itself.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [1.0, 1.0]]], activation="tanh")
    >>> lc.sensitivity(net, lc.Ball([0.0, 0.0], 0.01)).matrix.round(2)
    array([[1., 0.],
           [1., 3.]])
    """
    started = time.perf_counter()
    region = Everywhere() if region is None else region
    if not isinstance(network, Network):
        raise InvalidInput(f"network must be a lipcert.Network, got {type(network).__name__}")
    if not isinstance(region, Region):
        raise InvalidInput(f"region must be a Ball, Box or Everywhere, got {type(region).__name__}")
    if region.dimension not in (None, network.inputs):
        raise InvalidInput(f"the region has {region.dimension} coordinates, the network has {network.inputs} inputs")
    into, out = _groups("inputs", inputs, network.inputs), _groups("outputs", outputs, network.outputs)
    facts = establish(network, region, Scalar() if method is None else method, enclosures)
    with proving():
        matrix = np.fmin(_pairs(facts, out, into), _together(facts, out)[:, None])
    return Sensitivity(matrix, out, into, facts.bound, network.digest, region, time.perf_counter() - started)


def _pairs(facts: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """Bounds for every pair of groups."""
    slopes = [
        slope_bounds(layer.neurons, *interval)
        for layer, interval in zip(facts.network.layers, facts.intervals, strict=False)
        if layer.neurons is not None
    ]
    found = entries(facts.network, slopes, facts.multipliers)
    if all(len(group) == 1 for group in (*out, *into)):
        return found.bounds()[np.ix_([group[0] for group in out], [group[0] for group in into])]
    return np.array([[found.block(rows, columns) for columns in into] for rows in out])


def _together(facts: OutputBounds, out: tuple[Group, ...]) -> Array:
    """Bounds of each group of outputs for all inputs together, which bound any of them."""
    single = facts.lipschitz(np.eye(facts.network.outputs))
    return np.array([min(facts.bound, float(norm_above(single[list(group)]))) for group in out])


def _groups(name: str, given: Iterable[int | Iterable[int]] | None, size: int) -> tuple[Group, ...]:
    if given is None:
        return tuple((k,) for k in range(size))
    if not isinstance(given, Iterable):
        raise InvalidInput(f"{name} must be a list of coordinates or groups of them, got {given!r}")
    groups = tuple(
        tuple(indices(name, [item] if isinstance(item, (int, np.integer)) else item, size).tolist()) for item in given
    )
    if not groups:
        raise InvalidInput(f"{name} is empty; give coordinates or groups of coordinates, or leave it out for all")
    return groups
