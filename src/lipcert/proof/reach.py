"""Reach sets, proved: a box and an ellipsoid that contain every output a region can lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.domain import radius_above
from lipcert.proof.outputs import OutputBounds
from lipcert.proof.rounding import TINY, UP, down, raise_diagonal, square_above, stretched, up
from lipcert.proof.sweep import proving
from lipcert.proof.together import Proof, Together

_ROOM = 2.0**-40
"""A box is enlarged by this share of its sides, so that another machine's rounding can confirm it."""


@dataclass(frozen=True, eq=False)
class Reach:
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


def reach_set(network: Network, layer: int, proofs: Sequence[OutputBounds]) -> Reach:
    """The reach set of a layer, from all that is proved of the outputs of the network up to there."""
    part = network if layer == network.depth else network.slice(0, layer)
    together = Together(proofs)
    if together.network.digest != part.digest:
        raise ProofFailed("the outputs are those of another network")
    with proving():
        lower, upper = together.box()
        room = _ROOM * (upper - lower) + proofs[0].error + TINY
        lower, upper = down(lower - room), up(upper + room)
        shape = min((_shape(one) for one in proofs), key=_size)
    if not (np.isfinite(shape).all() and np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProofFailed("the outputs could not be enclosed by finite sets; try a smaller region")
    hints = tuple(Proof(one.sweeps) for one in proofs)
    bound, center = together.bound, proofs[0].value
    return Reach(lower, upper, center, shape, bound, layer, network.digest, together.region, 0.0, hints)


def _size(shape: Array) -> float:
    """What makes one ellipsoid preferable to another."""
    trace = float(np.trace(shape))
    return trace if np.isfinite(shape).all() else np.inf


def _shape(outputs: OutputBounds) -> Array:
    """Q with (y - value)(y - value)ᵀ ≼ Q for every output y.

    y - value = (y - f(c)) + (f(c) - value): the first is in δ²Ŝ, the second in the box of the error e, and so in
    n·diag(e²). For any a, b > 0 their sum is in (a + b)(δ²Ŝ/a + n·diag(e²)/b). The factor UP, and a share of the
    diagonal, cover the rounding here and leave Q safely positive definite.
    """
    radius = float(radius_above(outputs.region))
    first = outputs.ellipsoid * radius
    first = first * radius  # the square of the radius alone might underflow
    n = len(first)
    second = n * square_above(outputs.error) + TINY * (1.0 + radius)
    a, b = np.sqrt(np.trace(first)), np.sqrt(second.sum())
    total = first * ((1.0 + b / a) * UP if a > 0 else 1.0)
    raised = (1.0 + a / b) * second * UP + 2.0**-40 * np.abs(total).sum(axis=1)
    return raise_diagonal(total, stretched(raised, 4))
