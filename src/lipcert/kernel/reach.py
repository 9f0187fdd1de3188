"""Reach sets, proved: a box and an ellipsoid that contain every output a region can lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.cover import Cover, prove_leaves
from lipcert.kernel.domain import radius_above
from lipcert.kernel.hints import Interval
from lipcert.kernel.near import Approx, largest_eigenvalue_above, raised
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.piece_bounds import OutputRows
from lipcert.kernel.rounding import down, up
from lipcert.kernel.saved import Saved
from lipcert.kernel.sweep import proving
from lipcert.kernel.together import Proof, Together, base_of, derived
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region

_ROOM = 2.0**-40
"""A box is enlarged by this share of its sides, so that another machine's rounding can confirm it."""


@dataclass(frozen=True, eq=False)
class Reach(Saved):
    """Where the outputs of a network lie when its input is in a region; true in real arithmetic.

    Attributes
    ----------
    lower, upper : lower ≤ y ≤ upper for every output y.
    center : the output at the region's centre.
    shape : a positive definite matrix with (y - center)ᵀ shape⁻¹ (y - center) ≤ 1 for every output y.
    bound : the Lipschitz bound of the same proof.
    layer : the layer whose pre-activations are meant; the last one is the output.
    network : digest of the network.
    region : the inputs it holds for.
    seconds : wall-clock time.
    proofs : what all of this can be derived from again, by :func:`recheck_reach`.
    hull : corners (pieces, outputs) of boxes, one for each piece that the region was cut into; every output lies in one
        of them. A single one where the region was not cut.
    """

    lower: Array
    upper: Array
    center: Array
    shape: Array
    bound: float
    layer: int
    network: str
    region: Region
    seconds: float
    proofs: tuple[Proof, ...] = ()
    hull: Interval = field(default=(np.zeros((0, 0)), np.zeros((0, 0))), repr=False)

    def contains(self, outputs: Array) -> Array:
        """Whether each of the points (..., outputs) lies in both sets, as far as floating point can tell."""
        offset = np.asarray(outputs, dtype=float) - self.center
        # scaled to unit diagonal first: outputs may be of very different size
        scale = 1.0 / np.sqrt(np.diagonal(self.shape))
        unit = self.shape * scale[:, None] * scale
        moved = np.linalg.solve(np.linalg.cholesky(unit), np.swapaxes(np.atleast_2d(offset * scale), -1, -2))
        inside = (moved * moved).sum(axis=-2).reshape(offset.shape[:-1]) <= 1.0
        return np.asarray(inside & ((self.lower <= outputs) & (outputs <= self.upper)).all(axis=-1))

    def __repr__(self) -> str:
        widest = float((self.upper - self.lower).max())
        return f"Reach({len(self.lower)} outputs, widest side={widest:.6g}, bound={self.bound:.6g})"


def reach_set(
    network: Network,
    layer: int,
    proofs: Sequence[OutputBounds],
    cover: Cover | None = None,
    told: Proof | None = None,
) -> Reach:
    """The reach set of a layer, from all that is proved of the outputs of the network up to there.

    ``told`` are hints for single outputs, of kind "values".
    """
    together, more = Together(proofs), () if told is None else (told,)
    if cover is None:
        return _reach_set(network, layer, together, None, more)
    leaves = cover.check(*together.subject, OutputRows).leaves()
    pieces = Proof("outputs", tree=cover.tree(), base=base_of(proofs, cover.bounding.sweeps))
    return _reach_set(network, layer, together, leaves, (pieces, *more))


def recheck_reach(network: Network, claim: Reach) -> Reach:
    """What the proofs of a reach set prove now; ProofFailed if that is not what it says. Nothing in it is believed."""
    if claim.network != network.digest or not 1 <= claim.layer <= network.depth or not claim.region.bounded:
        raise ProofFailed("the reach set is about another network, or about no bounded region")
    part = network if claim.layer == network.depth else network.slice(0, claim.layer)
    together, others = derived(part, claim.region, claim.proofs)
    leaves: Array | None = None
    values = tuple(one for one in others if one.kind == "values")
    for one in others:
        if one.kind == "values":
            continue
        if one.kind != "outputs" or one.tree is None or leaves is not None:
            raise ProofFailed("a proof of the reach set is not about outputs")
        bounding = OutputRows(*together.subject, together.proofs[one.base].sweeps)
        leaves = prove_leaves(bounding, one.tree)
    found = _reach_set(network, claim.layer, together, leaves, values, room=False)
    shapes = [_shape(one) for one in together.proofs]
    if not np.shape(claim.lower) == np.shape(claim.upper) == np.shape(claim.center) == found.center.shape:
        raise ProofFailed("the reach set has another number of outputs than the network")
    inside = (claim.lower <= found.lower).all() and (found.upper <= claim.upper).all()
    square = np.shape(claim.shape) == np.shape(shapes[0]) and np.array_equal(claim.shape, claim.shape.T)
    held = square and any(_contains(claim.shape, shape) for shape in shapes)
    if not (inside and held and found.bound <= claim.bound and np.array_equal(claim.center, found.center)):
        raise ProofFailed("the reach set claims more than its proofs show")
    if [np.shape(side) for side in claim.hull] != [np.shape(side) for side in found.hull]:
        raise ProofFailed("the hull of the reach set has other pieces than its proofs")
    if not ((claim.hull[0] <= found.hull[0]).all() and (found.hull[1] <= claim.hull[1]).all()):
        raise ProofFailed("the hull of the reach set claims more than its proofs show")
    return found


def _reach_set(
    network: Network, layer: int, together: Together, leaves: Array | None, more: tuple[Proof, ...], room: bool = True
) -> Reach:
    """The reach set, from values (pieces, 2·outputs) of the outputs from both sides where the region was cut."""
    part = network if layer == network.depth else network.slice(0, layer)
    if together.network.digest != part.digest:
        raise ProofFailed("the outputs are those of another network")
    first, n = together.proofs[0], part.outputs
    with proving():
        lower, upper = together.box()
        for one in more:
            if one.kind == "values":
                low, high = _single(together.proofs[one.base], one)
                lower, upper = np.fmax(lower, low), np.fmin(upper, high)
        hull = lower[None], upper[None]
        if leaves is not None and len(leaves):
            hull = np.maximum(-leaves[:, n:], lower), np.minimum(leaves[:, :n], upper)
            lower, upper = hull[0].min(axis=0), hull[1].max(axis=0)
        if room:
            wider = _ROOM * (upper - lower) + first.output.error
            lower, upper = down(lower - wider), up(upper + wider)
            hull = down(hull[0] - wider), up(hull[1] + wider)
        shape = min((_shape(one) for one in together.proofs), key=_size)
        shape = raised(shape, _ROOM * np.abs(shape).sum(axis=-1)) if room else shape
    if not (np.isfinite(shape).all() and np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("the outputs could not be enclosed by finite sets; try a smaller region")
    hints = (*together.hints, *more)
    facts = together.bound, layer, network.digest, together.region, 0.0, hints, hull
    return Reach(lower, upper, first.output.value, shape, *facts)


def _single(facts: OutputBounds, told: Proof) -> Interval:
    """Where single outputs lie by hints for rows that are ±1 at one output; infinite where there are none."""
    n = facts.network.outputs
    ends = np.full(n, -np.inf), np.full(n, np.inf)
    found: list[tuple[Array, float]] = []
    for row in [*(one.row for one in told.margins), *(one.row for one in told.parabolas)]:
        if np.shape(row) != (n,) or np.count_nonzero(row) != 1 or np.abs(row).max() != 1.0:
            raise ProofFailed("a hint is not about a single output")
    if told.margins:
        margins = facts.dual_bound()
        if any(one.cuts for one in told.margins):
            raise ProofFailed("a hint is about a part of the region")
        found += [(one.row, margins.above(one.row, one.multipliers, one.ball)) for one in told.margins]
    if told.parabolas:
        bowls = facts.quadratic_relaxation()
        found += [(one.row, bowls.above(one)) for one in told.parabolas]
    for row, above in found:
        k = np.flatnonzero(row)[0]
        if row[k] > 0:
            ends[1][k] = np.fmin(ends[1][k], above)
        else:
            ends[0][k] = np.fmax(ends[0][k], -above)
    return ends


def _contains(large: Array, small: Array) -> bool:
    """Whether small ≼ large is proved; small is brought to a unit diagonal first."""
    with proving():
        scale = 1.0 / np.sqrt(np.diagonal(small))
        gap = (Approx(small) - Approx(large)).scaled(scale, scale).above()
        return bool(np.isfinite(gap).all() and largest_eigenvalue_above(gap) <= 0.0)


def _size(shape: Array) -> float:
    """What makes one ellipsoid preferable to another."""
    trace = float(np.trace(shape))
    return trace if np.isfinite(shape).all() else np.inf


def _shape(outputs: OutputBounds) -> Array:
    """Q with (y - value)(y - value)ᵀ ≼ Q for every output y.

    y - value = (y - f(c)) + (f(c) - value): the first is in δ²Ŝ, the second in the box of the error.
    """
    radius = np.full(outputs.network.outputs, radius_above(outputs.region))
    return Approx(outputs.ellipsoid).scaled(radius, radius).sum_above(outputs.output.error)
