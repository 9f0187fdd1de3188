"""GLipSDP: dissipativity inequalities, one per layer, coupled by matrices between the layers."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.kernel.facts import LayerReport
from lipcert.methods.method import Problem
from lipcert.model.arrays import Array, dense
from lipcert.published.base import Multipliers, Published, Run
from lipcert.published.lipsdp import moves, safe
from lipcert.published.semidefinite import SolverFailed

ACCURACY: Final[dict[str, float]] = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
"""Tight enough that a bound read from the answer holds to six digits."""


@dataclass(frozen=True)
class GLipSDP(Published):
    """Pauli, Gramlich and Allgöwer, *Lipschitz Constant Estimation for General Neural Network Architectures Using
    Control Tools*, 2024. Global: the region is ignored.

    The network is a chain of systems; a matrix X_i between two of them says what the first supplies and the second may
    use. Each layer gives one matrix inequality in X_{i-1}, X_i and its multipliers Λ_i, and all are solved together.
    For affine maps and elementwise activations the optimum is that of LipSDP with one multiplier per neuron.

    Limits: the matrices X_i are unknowns too, so memory and time grow steeply with the width; beyond 40 neurons per
    layer a general solver takes many minutes.
    It is solved by Clarabel through cvxpy (extra ``sdp``).
    """

    def run(self, problem: Problem) -> Run:
        try:
            module: Any = import_module("cvxpy")
        except ImportError:
            raise InvalidInput("GLipSDP needs cvxpy: pip install 'lipcert[sdp]'; LipSDP() does without") from None
        network, start = problem.network, problem.sweep(safe)
        sizes = [_unit(layer) for layer in start.layers]
        weights = [dense(layer.weight) * unit for layer, unit in zip(network.layers, [1.0, *sizes], strict=True)]
        weights[:-1] = [weight / unit for weight, unit in zip(weights[:-1], sizes, strict=True)]
        gain = 1.0 / float(start.bound) if start.bound > 0.0 else 1.0
        matrices: list[Any] = [np.eye(network.inputs)]
        matrices += [module.Variable((len(weight),) * 2, symmetric=True) for weight in weights[:-1]]
        parts = zip(start.layers, weights, pairwise(matrices))
        supplies = [_supply(module, layer, weight, *ends) for layer, weight, ends in parts]
        c, output = module.Variable(), gain * weights[-1]
        last = matrices[-1] - c * (output.T @ output) >> 0
        program = module.Problem(module.Maximize(c), [*(inequality for _, inequality in supplies), last])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an inaccurate answer is an error below, not a warning
            try:
                program.solve(solver="CLARABEL", **ACCURACY)
            except module.error.SolverError as error:
                raise SolverFailed(f"Clarabel failed: {error}; take LipSDP()") from error
        if program.status != module.OPTIMAL or not float(c.value) > 0.0:
            raise SolverFailed(f"Clarabel ended with status {program.status!r}, so there is no bound; take LipSDP()")
        layers = tuple(
            Multipliers.of(layer.alpha, layer.beta, moves(layer), unit**2 / np.maximum(Lambda.value, 1e-300))
            for layer, (Lambda, _), unit in zip(start.layers, supplies, sizes, strict=True)
        )
        return Run(1.0 / (gain * math.sqrt(float(c.value))), layers)


def _unit(layer: LayerReport) -> float:
    """A length for a hidden layer, so that all unknowns come out near one."""
    moving = layer.multiplier[layer.multiplier > 0]
    return math.ldexp(math.sqrt(float(moving.mean())), layer.exponent) if moving.size else 1.0


def _supply(module: Any, layer: LayerReport, weight: Array, before: Any, after: Any) -> tuple[Any, Any]:
    """Δz_{i-1}ᵀX_{i-1}Δz_{i-1} + Σ Λ_k (Δz - αΔv)_k (Δz - βΔv)_k ≥ Δz_iᵀX_iΔz_i, affine neurons substituted."""
    free = moves(layer)
    count, inputs = int(free.sum()), weight.shape[1]
    take = np.vstack([np.eye(inputs), np.zeros((count, inputs))])
    middle = np.where(free, 0.0, 0.5 * (layer.alpha + layer.beta))
    give = np.hstack([middle[:, None] * weight, np.eye(free.size)[:, free]])
    matrix = take @ before @ take.T - give.T @ after @ give
    slopes = layer.alpha, layer.beta
    left, right = (np.vstack([-(slope[free, None] * weight[free]).T, np.eye(count)]) for slope in slopes)
    Lambda = module.Variable(count, nonneg=True)
    product = left @ module.diag(Lambda) @ right.T
    return Lambda, matrix + 0.5 * (product + product.T) >> 0
