"""The interval Jacobian: what a tool that bounds every entry by itself can say of the norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lipcert.model.arrays import dense
from lipcert.model.norms import Norms
from lipcert.proof.induced import induced_above
from lipcert.published.base import Published, Run
from lipcert.search.problem import Problem
from lipcert.search.scalar import Scalar


@dataclass(frozen=True)
class JacobianBox(Published):
    """An interval for each entry of the Jacobian W_N D_{N-1} … D_1 W_1, multiplied out layer by layer, and the largest
    spectral norm a matrix in that box can be shown to have.

    The slopes D are those that lipcert finds in the region, so the difference to its own methods is what ellipsoids
    are worth against boxes. The norm over the box is at most ‖C‖ + ‖R‖ (centre and half-widths) and at most the norm of
    the largest magnitudes; the smaller counts. That goes for every norm of a matrix.

    Limits: the intervals forget how entries depend on each other, so they widen with every layer.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(JacobianBox().value(net), 6)
    1.0
    """

    def run(self, problem: Problem) -> Run:
        layers = problem.network.layers
        center = dense(layers[0].weight)
        spread = np.zeros(center.shape)
        for (alpha, beta), layer in zip(problem.sweep(Scalar().choose).slopes, layers[1:], strict=True):
            m, r = 0.5 * (alpha + beta)[:, None], 0.5 * (beta - alpha)[:, None]
            # [m ± r]·[c ± s] = mc ± (|m|s + r|c| + rs)
            center, spread = m * center, np.abs(m) * spread + r * (np.abs(center) + spread)
            weight = dense(layer.weight)
            center, spread = weight @ center, np.abs(weight) @ spread
        if not problem.norms.plain:
            return Run(float(induced_above(center, spread, problem.norms)))
        apart = float(np.linalg.norm(center, 2)) + float(np.linalg.norm(spread, 2))
        return Run(min(apart, float(np.linalg.norm(np.abs(center) + spread, 2))))

    def check(self, norms: Norms) -> None:
        """It has all of them."""

    def setting(self, problem: Problem) -> Problem:
        return problem
