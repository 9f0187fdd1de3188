"""The loop of the Eclipse family: messenger matrices M_i handed from layer to layer (Algorithms 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, dense
from lipcert.published.base import Multipliers, Run
from lipcert.search.problem import Problem


@dataclass(frozen=True, eq=False)
class Handover:
    """What is known when the Λ of one layer is chosen.

    W (n, p) maps the last layer that was not affine to this one, M (p, p) is that layer's messenger matrix, ``ahead``
    the next weight; the slopes lie in [α, β]. ``index`` counts hidden layers from 0.
    """

    index: int
    W: Array
    M: Array
    S: Array  # W M⁻¹ Wᵀ
    alpha: Array
    beta: Array
    ahead: Array

    @property
    def free(self) -> Array:
        """The index set M_i: neurons whose slope is not a single number."""
        return np.flatnonzero(self.beta > self.alpha)


@dataclass(frozen=True, eq=False)
class Choice:
    """Λ (n,) of a layer, the c that the choice promises, and the slopes it was made for."""

    Lambda: Array
    c: float
    alpha: Array
    beta: Array


Chooser = Callable[[Handover], Choice]


def carry(problem: Problem, choose: Chooser) -> Run:
    """Algorithm 2: from layer to layer with the problem's slopes, affine layers merged into the next weight.

    A bounded region narrows the slopes (Algorithm 1); without one, or with intervals known beforehand, they are taken
    as they are.
    """
    network = problem.network
    M, merged = np.eye(network.inputs), np.eye(network.inputs)
    slopes = _slopes(problem)
    done: list[Multipliers] = []
    for index, layer in enumerate(network.layers[:-1]):
        W = dense(layer.weight) @ merged
        S = through(W, M)
        alpha, beta = slopes(index, np.sqrt(np.maximum(np.diagonal(S), 0.0)))
        if (alpha == beta).all() or not S.any():
            middle = 0.5 * (alpha + beta)
            merged = middle[:, None] * W
            done.append(Multipliers(np.zeros(middle.size), np.zeros(middle.size)))
            continue
        hand = Handover(index, W, M, S, alpha, beta, dense(network.layers[index + 1].weight))
        choice = choose(hand)
        M, merged = messenger(hand, choice), np.eye(W.shape[0])
        done.append(Multipliers(1.0 / choice.Lambda, 0.5 * (choice.beta - choice.alpha)))
    last = dense(network.layers[-1].weight) @ merged
    return Run(math.sqrt(max(float(np.linalg.norm(through(last, M), 2)), 0.0)), tuple(done))


def messenger(hand: Handover, choice: Choice) -> Array:
    """M_i = Λ - ¼Λ(D_α + D_β)W X⁻¹ Wᵀ(D_α + D_β)Λ with X = M_{i-1} + Wᵀ D_α Λ D_β W."""
    Lambda, both = choice.Lambda, choice.alpha + choice.beta
    X = hand.M + hand.W.T @ ((choice.alpha * Lambda * choice.beta)[:, None] * hand.W)
    side = (0.5 * Lambda * both)[:, None] * hand.W
    return np.diag(Lambda) - through(side, X)


def positive(matrix: Array) -> bool:
    """Whether a matrix is positive definite: its Cholesky factor exists."""
    return bool(np.isfinite(matrix).all()) and linalg.lapack.dpotrf(matrix, lower=1)[1] == 0


def through(W: Array, M: Array) -> Array:
    """W M⁻¹ Wᵀ."""
    try:
        half = linalg.solve_triangular(linalg.cholesky(M, lower=True), W.T, lower=True)
    except (linalg.LinAlgError, ValueError):
        raise ProofFailed(
            "a messenger matrix is not positive definite; weights may be too large or ill-scaled"
        ) from None
    return np.asarray(half.T @ half)


def _slopes(problem: Problem) -> Callable[[int, Array], tuple[Array, Array]]:
    """A function from layer number and neuronwise Lipschitz constants to the slopes of the layer."""
    network, region = problem.network, problem.region
    local = bool(problem.enclosures) and region.bounded
    centers = network.preactivations(region.center) if local else []

    def slopes(index: int, constants: Array) -> tuple[Array, Array]:
        neurons = network.layers[index].neurons
        assert neurons is not None
        lower, upper = np.full(neurons.size, -np.inf), np.full(neurons.size, np.inf)
        if problem.known:
            lower, upper = problem.known[index]
        if local:
            reach = float(region.extent) * constants
            lower = np.minimum(np.maximum(lower, centers[index] - reach), centers[index])
            upper = np.maximum(np.minimum(upper, centers[index] + reach), centers[index])
        return neurons.slope_range(lower, upper)

    return slopes
