"""Reach sets: a box and an ellipsoid that contain every output a region can lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from lipcert.answers.proofs import Pieces, Proof, all_hints, derived
from lipcert.answers.saved import ROOM, Saved
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Approx, down, largest_eigenvalue_above, raised, up
from lipcert.kernel.facts import EllipsoidFact, Fact
from lipcert.kernel.outputs import OutputBounds, over_pieces
from lipcert.kernel.sweep import proving
from lipcert.model.arrays import Array, Interval
from lipcert.model.network import Network
from lipcert.model.regions import Region

_ROOM = ROOM - 1.0
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
    network : digest of the network.
    region : the inputs it holds for.
    seconds : wall-clock time.
    names : what inputs and outputs are called, where they have names; nothing is proved of them.
    proofs : what all of this can be derived from again, by :func:`recheck_reach`.
    hull : corners (pieces, outputs) of boxes, one for each piece that the region was cut into; every output lies in one
        of them. A single one where the region was not cut.
    """

    lower: Array
    upper: Array
    center: Array
    shape: Array
    bound: float
    network: str
    region: Region
    seconds: float
    proofs: tuple[Proof, ...] = ()
    hull: Interval = field(default=(np.zeros((0, 0)), np.zeros((0, 0))), repr=False)
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    kind = "reach"

    @property
    def flaw(self) -> str:
        if not self.proofs:
            return "an answer in a file must have what proves it; ask for it again"
        count, (below, above) = len(self.lower), self.hull
        fits = len(self.upper) == len(self.center) == count > 0 and self.shape.shape == (count, count)
        fits = fits and below.shape == above.shape == (len(below), count) and bool((self.lower <= self.upper).all())
        return "" if fits else "the arrays of an answer are for different numbers of inputs or outputs"

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


def reach_set(proofs: Sequence[OutputBounds], pieces: Pieces | None = None, room: bool = True) -> Reach:
    """The reach set from all that is proved of the outputs. Without ``room``, as a claim is compared with."""
    first, outputs = proofs[0], proofs[0].network.outputs
    sides = [one.box() for one in proofs]
    sides += [] if pieces is None else [over_pieces(proofs[pieces[0]], pieces[1])]
    limits = reduce(np.fmin, (fact.limits for fact in sides if len(fact.limits)))
    below, above = -limits[:, outputs:], limits[:, :outputs]
    ellipsoid = min((one.shape() for one in proofs), key=_size)
    lower, upper, shape = below.min(axis=0), above.max(axis=0), ellipsoid.shape
    bound = min(one.bound for one in proofs)
    if room:
        with np.errstate(all="ignore"):
            wider = _ROOM * (upper - lower) + first.output.error
            lower, upper, below, above = down(lower - wider), up(upper + wider), down(below - wider), up(above + wider)
            shape, bound = raised(shape, _ROOM * np.abs(shape).sum(axis=-1)), ROOM * bound
    if not (np.isfinite(shape).all() and np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("the outputs could not be enclosed by finite sets; try a smaller region")
    hints = all_hints(proofs, (), "outputs", pieces)
    about = bound, first.network.digest, first.region, 0.0, hints, (below, above)
    facts = (*(one.fact for one in proofs), ellipsoid, *sides)
    return Reach(lower, upper, first.output.value, shape, *about, facts)


def recheck_reach(network: Network, claim: Reach) -> Reach:
    """What the proofs of a reach set prove now; ProofFailed if that is not what it says. Nothing in it is believed."""
    if claim.network != network.digest or not claim.region.bounded:
        raise ProofFailed("the reach set is about another network, or about no bounded region")
    proofs, _, pieces = derived(network, claim.region, claim.proofs, "outputs")
    found = reach_set(proofs, pieces, room=False)
    if len(claim.hull) != 2:
        raise ProofFailed("the hull of the reach set has not two sides")
    sets = (claim.lower, found.lower), (found.upper, claim.upper), *zip(claim.hull, found.hull, strict=True)
    if any(np.shape(one) != np.shape(other) for one, other in (*sets, (claim.center, found.center))):
        raise ProofFailed("the reach set is for another number of outputs or pieces than its proofs")
    inside = all((small <= large).all() for small, large in (*sets[:3], sets[3][::-1]))
    if not (inside and found.bound <= claim.bound and np.array_equal(claim.center, found.center)):
        raise ProofFailed("the reach set claims more than its proofs show")
    square = np.shape(claim.shape) == found.shape.shape and np.array_equal(claim.shape, claim.shape.T)
    if not (square and any(_contains(claim.shape, one.shape().shape) for one in proofs)):
        raise ProofFailed("the ellipsoid of the reach set is smaller than what its proofs show")
    return found


def _contains(large: Array, small: Array) -> bool:
    """Whether small ≼ large is proved; small is brought to a unit diagonal first."""
    with proving():
        scale = 1.0 / np.sqrt(np.diagonal(small))
        gap = (Approx(small) - Approx(large)).scaled(scale, scale).above()
        return bool(np.isfinite(gap).all() and largest_eigenvalue_above(gap) <= 0.0)


def _size(ellipsoid: EllipsoidFact) -> float:
    """What makes one ellipsoid preferable to another."""
    trace = float(np.trace(ellipsoid.shape))
    return trace if np.isfinite(ellipsoid.shape).all() else np.inf
