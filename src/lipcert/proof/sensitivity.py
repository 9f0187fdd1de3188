"""How strongly outputs depend on inputs, proved: a matrix of bounds for pairs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.proof.jacobian import entries
from lipcert.proof.neuron_bounds import slope_bounds
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import norm_above
from lipcert.proof.sweep import proving

Group: TypeAlias = tuple[int, ...]


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


def sensitivities(outputs: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Sensitivity:
    """The bounds for groups of outputs and groups of inputs."""
    with proving():
        matrix = np.fmin(_pairs(outputs, out, into), _together(outputs, out)[:, None])
    return Sensitivity(matrix, out, into, outputs.bound, outputs.network.digest, outputs.region, 0.0)


def _pairs(outputs: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """Bounds for every pair of groups."""
    slopes = [
        slope_bounds(layer.neurons, *interval)
        for layer, interval in zip(outputs.network.layers, outputs.intervals, strict=False)
        if layer.neurons is not None
    ]
    found = entries(outputs.network, slopes, outputs.multipliers)
    if all(len(group) == 1 for group in (*out, *into)):
        return found.bounds()[np.ix_([group[0] for group in out], [group[0] for group in into])]
    return np.array([[found.block(rows, columns) for columns in into] for rows in out])


def _together(outputs: OutputBounds, out: tuple[Group, ...]) -> Array:
    """Bounds of each group of outputs for all inputs together, which bound any of them."""
    single = outputs.lipschitz(np.eye(outputs.network.outputs))
    return np.array([min(outputs.bound, float(norm_above(single[list(group)]))) for group in out])
