"""How strongly outputs depend on inputs, proved: a matrix of bounds for pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.checker import ROOM
from lipcert.kernel.cover import Cover, prove_leaves
from lipcert.kernel.hints import Hints, Interval, Part
from lipcert.kernel.interval_arithmetic import derivatives
from lipcert.kernel.jacobian import entries
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.piece_bounds import JacobianEntries
from lipcert.kernel.rounding import norm_above
from lipcert.kernel.saved import Saved
from lipcert.kernel.sweep import Sweep, proving
from lipcert.kernel.together import Proof, Together, base_of, derived
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.suggest.replay import StoredGuide

Group: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sensitivity(Saved):
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
            found = Sweep(piece, None, StoredGuide(hints, piece, False), known).run()
            bound = float(np.fmin(bound, found.bounds[0]))
    return PairBound(outputs, Part((0, outputs.network.depth), into, out), tuple(sweeps), bound)


def sensitivities(
    proofs: Sequence[OutputBounds],
    out: tuple[Group, ...],
    into: tuple[Group, ...],
    pairs: Sequence[PairBound] = (),
    cover: Cover | None = None,
    all_pairs: bool = True,
) -> Sensitivity:
    """The bounds for groups of outputs and groups of inputs, from all that is proved; ``all_pairs`` takes longest."""
    together = Together(proofs)
    sizes, more = None, []
    for pair in pairs:
        more.append(Proof("pair", pair.sweeps, part=pair.part, base=base_of(proofs, pair.outputs.sweeps)))
    if cover is not None:
        sizes = cover.check(together.network, together.region, JacobianEntries).values
        more.append(Proof("entries", tree=cover.tree(), base=base_of(proofs, cover.bounding.sweeps)))
    single = [(pair.part, pair.bound) for pair in pairs]
    return _sensitivities(together, out, into, single, sizes, tuple(more), all_pairs=all_pairs)


def recheck_sensitivity(network: Network, claim: Sensitivity) -> Sensitivity:
    """What the proofs of sensitivities prove now; ProofFailed if that is less than they say. Nothing is believed."""
    if claim.network != network.digest:
        raise ProofFailed("the sensitivities are about another network")
    for groups, size in ((claim.outputs, network.outputs), (claim.inputs, network.inputs)):
        if not all(group and set(group) <= set(range(size)) and len(set(group)) == len(group) for group in groups):
            raise ProofFailed("the sensitivities name groups that the network does not have, or an index twice")
    together, others = derived(network, claim.region, claim.proofs)
    pairs, sizes = [], None
    for one in others:
        base = together.proofs[one.base]
        part = one.part
        if one.kind == "pair" and part and part.outputs in claim.outputs and part.inputs in claim.inputs:
            assert part.outputs is not None
            assert part.inputs is not None
            pair = prove_pair(base, part.outputs, part.inputs, one.sweeps)
            pairs.append((pair.part, pair.bound))
        elif one.kind == "entries" and one.tree is not None and sizes is None:
            bounding = JacobianEntries(network, claim.region, base.sweeps)
            sizes = prove_leaves(bounding, one.tree).max(axis=0, initial=0.0)
        else:
            raise ProofFailed("a proof of the sensitivities is of an unknown kind")
    found = _sensitivities(together, claim.outputs, claim.inputs, pairs, sizes, (), 1.0)
    same = np.shape(claim.matrix) == found.matrix.shape
    if not (same and (found.matrix <= claim.matrix).all() and found.bound <= claim.bound):
        raise ProofFailed("the sensitivities claim more than their proofs show")
    return found


def _sensitivities(
    together: Together,
    out: tuple[Group, ...],
    into: tuple[Group, ...],
    pairs: Sequence[tuple[Part, float]],
    sizes: Array | None,
    more: tuple[Proof, ...],
    room: float = ROOM,
    all_pairs: bool = True,
) -> Sensitivity:
    """The least of all bounds; ``sizes`` (outputs · inputs) are those of the entries of the Jacobian by pieces."""
    network, proofs = together.network, together.proofs
    with proving():
        matrix = np.min([_rows(one, out) for one in proofs], axis=0)[:, None] + np.zeros(len(into))
        if all_pairs:
            matrix = np.fmin.reduce([matrix, *(_pairs(one, out, into) for one in proofs)])
        least = derivatives(network, _slopes(network, together.intervals()))[0]
        least = least if sizes is None else np.fmin(least, sizes.reshape(least.shape))
        matrix = np.fmin(matrix, blocks(least, out, into))
        for part, bound in pairs:
            place = np.ix_([group == part.outputs for group in out], [group == part.inputs for group in into])
            matrix[place] = np.fmin(matrix[place], bound)
        matrix = np.fmin(room * matrix, together.bound)
    if not np.isfinite(matrix).all():
        raise ProofFailed("no finite bound was found; try a smaller region or another method")
    hints = (*together.hints, *more)
    return Sensitivity(matrix, out, into, together.bound, network.digest, together.region, 0.0, hints)


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


_known: WeakKeyDictionary[OutputBounds, dict[tuple[tuple[Group, ...], ...], Array]] = WeakKeyDictionary()
"""Bounds for pairs of groups that were asked for before: an answer is put together more than once."""


def _pairs(outputs: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """Bounds for every pair of groups."""
    found = _known.setdefault(outputs, {})
    if (out, into) not in found:
        found[out, into] = _jacobian_blocks(outputs, out, into)
    return found[out, into]


def _jacobian_blocks(outputs: OutputBounds, out: tuple[Group, ...], into: tuple[Group, ...]) -> Array:
    """The same from entries of the Jacobian, of the inputs that are in a group."""
    some = sorted({k for group in into for k in group})
    at = {k: place for place, k in enumerate(some)}
    places = tuple(tuple(at[k] for k in group) for group in into)
    try:
        slopes = _slopes(outputs.network, outputs.intervals)
        network = outputs.network.select(None if len(some) == outputs.network.inputs else some)
        found = entries(network, slopes, outputs.multipliers)
        if all(len(group) == 1 for group in (*out, *into)):
            return blocks(found.bounds(), out, places)
        return np.array([[found.block(rows, columns) for columns in places] for rows in out])
    except (ProofFailed, np.linalg.LinAlgError):  # then the others count
        return np.full((len(out), len(into)), outputs.bound)


def _rows(outputs: OutputBounds, out: tuple[Group, ...]) -> Array:
    """Bounds of each group of outputs for all inputs together, which bound any of them."""
    single = outputs.lipschitz(np.eye(outputs.network.outputs))
    return np.array([min(outputs.bound, float(norm_above(single[list(group)]))) for group in out])
