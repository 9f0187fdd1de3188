"""GeoLIP: the slopes of each output under a box-shaped unit ball, by semidefinite programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from lipcert.model.norms import Norms
from lipcert.published.base import Published, Run, worldwide
from lipcert.published.forms import Forms, forms
from lipcert.published.inequality import Inequality
from lipcert.published.lmi import OWN, check_solver, solve
from lipcert.search.problem import Problem


@dataclass(frozen=True)
class GeoLIP(Published):
    """Wang, Prakriya and Jha, *A Quantitative Geometric Approach to Neural-Network Smoothness*, NeurIPS 2022. Global:
    the region is ignored.

    For each output the program bounds the ℓ1 norm of its gradient, G_k ≥ ‖∇f_k‖₁, which is how fast it changes per unit
    of the largest input change. So for ℓ∞ inputs the bound of the whole network is the norm of all G_k: their largest
    (ℓ∞ outputs), sqrt(Σ G_k²) (ℓ2) or Σ G_k (ℓ1); these are given as published, without a proof. As ‖·‖₂ ≤ ‖·‖₁,
    sqrt(Σ G_k²) bounds it in ℓ2 norms too. (With a round unit ball in place of the box the program is LipSDP's.)

    Limits: in ℓ2 norms up to a factor of the root of the number of inputs is lost; one semidefinite program in the
    sizes of all layers for each output.

    Parameters
    ----------
    solver
        ``"interior"``, lipcert's own, or a solver that cvxpy knows, such as ``"CLARABEL"`` (extra ``sdp``).
    """

    solver: str = OWN
    remark: ClassVar[str] = "made for ℓ∞ changes of the input; as an ℓ2 bound it loses up to the root of the inputs"

    def check(self, norms: Norms) -> None:
        if norms.pair[0] != "linf":
            super().check(norms)

    def run(self, problem: Problem) -> Run:
        check_solver(self.solver)
        shape = forms(worldwide(problem), isotropic=False)
        squares, Lambda, slopes = 0.0, np.zeros(shape.layer.size), [0.0]
        for output in range(problem.network.outputs):
            found = solve(_inequality(shape, output), self.solver)
            if math.isfinite(found.c):
                # the sum of the outputs' inequalities is one for all of them, since D ≼ I
                squares += 1.0 / found.c
                slopes.append(math.sqrt(1.0 / found.c))
                Lambda += found.roomy[shape.inputs :] / found.c
        if squares == 0.0:
            return Run(0.0)
        if problem.norms.pair[0] == "linf":
            return Run(float(problem.norms.output.of(np.array(slopes))))
        return Run(math.sqrt(squares), shape.spread(Lambda / squares))


def _inequality(shape: Forms, output: int) -> Inequality:
    """Σ d_j Δx_j² - c Δy² + Σ Λ_k (a_k·ξ)(b_k·ξ) ≥ 0 with Σ d_j ≤ 1: then Δy² ≤ max Δx_j²/c."""
    inputs, count = shape.inputs, shape.layer.size
    unit = sparse.csc_array(sparse.eye_array(shape.size, inputs))
    share = 0.9 / inputs
    return Inequality(
        np.zeros((shape.size, shape.size)),
        sparse.csc_array(sparse.hstack([unit, shape.left])),
        sparse.csc_array(sparse.hstack([unit, shape.right])),
        shape.output[:, [output]],
        np.arange(inputs + count),
        np.concatenate([np.full(inputs, share), share * shape.start]),
        np.concatenate([np.ones(inputs), np.zeros(count)]),
    )
