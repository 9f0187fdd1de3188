"""How strongly outputs depend on inputs, proved: a matrix of bounds for pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.checker import ROOM
from lipcert.proof.guide import given
from lipcert.proof.hints import Hints, Interval, Part
from lipcert.proof.interval_arithmetic import derivatives
from lipcert.proof.jacobian import entries
from lipcert.proof.neuron_bounds import slope_bounds
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import norm_above
from lipcert.proof.sweep import Sweep, proving
from lipcert.proof.together import Proof, Together

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
    proofs : what all of this can be derived from again, by :func:`recheck_sensitivity`.
    """

    matrix: Array
    outputs: tuple[Group, ...]
    inputs: tuple[Group, ...]
    bound: float
    network: str
    region: Region
    seconds: float
    proofs: tuple[Proof, ...] = ()

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        return f"Sensitivity({rows} × {columns}, largest={self.matrix.max():.6g}, bound={self.bound:.6g})"


@dataclass(frozen=True, eq=False)
class PairBound:
    """A bound for one group of inputs and one group of outputs, by hints of its own; made by :func:`prove_pair`."""

    outputs: OutputBounds
    part: Part
    sweeps: tuple[Hints, ...]
    bound: float


def prove_pair(outputs: OutputBounds, out: Group, into: Group, sweeps: Sequence[Hints]) -> PairBound:
    """Bound ‖change of some outputs‖ / ‖change of some inputs‖, the intervals being those of the whole network."""
    if any(hints.enclosures for hints in sweeps) or not sweeps:
        raise ProofFailed("the hints of a pair must be multipliers only: the region is one of all inputs")
    piece, bound = outputs.network.select(into, out), np.inf
    known = [(low[None], high[None]) for low, high in outputs.intervals]
    with proving():
        for hints in sweeps:
            found = Sweep(piece, None, given(hints, piece, False), known).run()
            bound = float(np.fmin(bound, found.bounds[0]))
    return PairBound(outputs, Part((0, outputs.network.depth), into, out), tuple(sweeps), bound)


def sensitivities(
    proofs: Sequence[OutputBounds], out: tuple[Group, ...], into: tuple[Group, ...], pairs: Sequence[PairBound] = ()
) -> Sensitivity:
    """The bounds for groups of outputs and groups of inputs, from all that is proved."""
    together = Together(proofs)
    with proving():
        matrix = np.fmin.reduce([_pairs(one, out, into) for one in proofs])
        matrix = np.fmin(matrix, np.min([_rows(one, out) for one in proofs], axis=0)[:, None])
        entries_ = derivatives(together.network, _slopes(together.network, together.intervals()))[0]
        matrix = np.fmin(matrix, blocks(entries_, out, into))
        hints = [Proof(one.sweeps) for one in proofs]
        for pair in pairs:
            (base,) = [number for number, one in enumerate(proofs) if one is pair.outputs] or [-1]
            if base < 0:
                raise ProofFailed("the bound of a pair rests on something else than the proofs of the answer")
            place = out.index(pair.part.outputs or ()), into.index(pair.part.inputs or ())
            matrix[place] = np.fmin(matrix[place], pair.bound)
            hints.append(Proof(pair.sweeps, part=pair.part, base=base))
        matrix = np.fmin(ROOM * matrix, together.bound)
    digest = together.network.digest
    return Sensitivity(matrix, out, into, together.bound, digest, together.region, 0.0, tuple(hints))


def blocks(sizes: Array, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """At least the norm of each block of a matrix whose entries are at most ``sizes`` (outputs, inputs)."""
    if all(len(group) == 1 for group in (*out, *into)):
        return sizes[np.ix_([group[0] for group in out], [group[0] for group in into])]
    return np.array([[norm_above(sizes[np.ix_(rows, columns)].ravel()) for columns in into] for rows in out])


def _slopes(network: Network, intervals: Sequence[Interval]) -> list[Interval]:
    return [
        slope_bounds(layer.neurons, *interval)
        for layer, interval in zip(network.layers, intervals, strict=False)
        if layer.neurons is not None
    ]


def _pairs(outputs: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """Bounds for every pair of groups."""
    try:
        found = entries(outputs.network, _slopes(outputs.network, outputs.intervals), outputs.multipliers)
        if all(len(group) == 1 for group in (*out, *into)):
            return blocks(found.bounds(), out, into)
        return np.array([[found.block(rows, columns) for columns in into] for rows in out])
    except (ProofFailed, np.linalg.LinAlgError):  # then the others count
        return np.full((len(out), len(into)), outputs.bound)


def _rows(outputs: OutputBounds, out: tuple[Group, ...]) -> Array:
    """Bounds of each group of outputs for all inputs together, which bound any of them."""
    single = outputs.lipschitz(np.eye(outputs.network.outputs))
    return np.array([min(outputs.bound, float(norm_above(single[list(group)]))) for group in out])
