"""The Eclipse family: layer by layer, with messenger matrices M_i handed from one layer to the next."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from scipy import linalg, sparse

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.methods.method import Problem
from lipcert.methods.semidefinite import Inequality, Solution, SolverFailed, solve
from lipcert.model.arrays import Array, dense
from lipcert.published.base import Multipliers, NotApplicable, Published, Run
from lipcert.suggest.hints import Lipschitz


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


class Choice(NamedTuple):
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
    network, region = problem.network, problem.region
    M, merged = np.eye(network.inputs), np.eye(network.inputs)
    local = bool(problem.enclosures) and region.bounded
    centers = network.preactivations(region.center) if local else []
    done = list[Multipliers]()
    for index, layer in enumerate(network.layers[:-1]):
        assert layer.neurons is not None
        W = dense(layer.weight) @ merged
        S = through(W, M)
        ends = problem.known[index] if problem.known else (np.full(len(W), -np.inf), np.full(len(W), np.inf))
        if local:
            center, reach = centers[index], float(region.extent) * np.sqrt(np.maximum(np.diagonal(S), 0.0))
            ends = np.clip(center - reach, ends[0], center), np.clip(center + reach, center, ends[1])
        alpha, beta = layer.neurons.slope_range(*ends)
        if (alpha == beta).all() or not S.any():
            merged = 0.5 * (alpha + beta)[:, None] * W
            done.append(Multipliers(np.zeros(len(W)), np.zeros(len(W))))
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
        told = "a messenger matrix is not positive definite; weights may be too large or ill-scaled"
        raise ProofFailed(told) from None
    return np.asarray(half.T @ half)


INACTIVE: Final = 100.0
"""The paper's l_i: neurons with a single slope get this multiple of the mean Λ of the others."""
_SHARP: Final = 1e-10
"""Tolerance of the small programs. The objective is flat at the best λ, which is known to about the root of this, and
later layers depend on it."""


def closed_form(hand: Handover) -> Choice:
    """Algorithm 5: Λ = λI with λ = 2/σmax(D S D), D = D_α + D_β after widening the slopes until α⊙β = 0."""
    if (hand.alpha * hand.beta < 0.0).any():
        raise NotApplicable(
            f"the closed form needs slopes of one sign and layer {hand.index + 1} has others; take 'Fast' or 'Acc'"
        )
    alpha, beta = np.where(hand.alpha >= 0.0, 0.0, hand.alpha), np.where(hand.alpha >= 0.0, hand.beta, 0.0)
    both = alpha + beta
    size = float(np.linalg.norm(both[:, None] * hand.S * both, 2))
    if size <= 0.0:
        raise ProofFailed(f"layer {hand.index + 1} does not move at all, so the closed form is not defined")
    choice = Choice(np.full(both.size, 2.0 / size), 0.0, alpha, beta)
    M = messenger(hand, choice)
    reach = float(np.linalg.norm(through(hand.ahead, M), 2)) if positive(M) else np.inf
    return choice._replace(c=1.0 / reach if reach > 0.0 else np.inf)  # C = 1/σmax(W⁺ M⁻¹ W⁺ᵀ)


def fast(hand: Handover, cap: float) -> Choice:
    """Algorithm 4: one λ for the layer from a small semidefinite program; the closed form where that fails."""
    found = _by_program(hand, np.zeros(hand.free.size, dtype=int), 1.0, cap)
    try:
        return found or closed_form(hand)
    except NotApplicable as error:
        raise SolverFailed(
            f"the program of layer {hand.index + 1} was not solved, and its slopes differ in sign, which rules out the"
            " closed form; take LipSDP() or one of lipcert's own methods"
        ) from error


def acc(hand: Handover, cap: float) -> Choice:
    """Algorithm 3: one λ per neuron from a small semidefinite program; where that fails the better of the other two."""
    found = _by_program(hand, np.arange(hand.free.size), INACTIVE, cap)
    if found is None:
        found = fast(hand, cap)
        with contextlib.suppress(NotApplicable):
            found = max(closed_form(hand), found, key=lambda choice: choice.c)
    return found


def _by_program(hand: Handover, groups: Array, inactive: float, cap: float) -> Choice | None:
    """One λ for each group of free neurons, a multiple of their mean for the others; None if it is not feasible."""
    with contextlib.suppress(ProofFailed):
        found = small_program(hand, groups)
        Lambda = np.full(hand.alpha.size, inactive * float(found.x.mean()))
        Lambda[hand.free] = found.x[groups]
        choice = Choice(np.minimum(cap, Lambda), found.c, hand.alpha, hand.beta)
        if ((choice.Lambda > 0.0) & (choice.Lambda < np.inf)).all() and positive(messenger(hand, choice)):
            return choice
    return None


def small_program(hand: Handover, groups: Array) -> Solution:
    """The program of one layer on the neurons of M_i, in the coordinates (z_i, z_{i-1}):

    maximise c subject to M_{i-1} + Σ λ_k (e_k - α_k w_k)(e_k - β_k w_k) - c W⁺ᵀW⁺ ≽ 0.
    """
    free = hand.free
    constant = linalg.block_diag(np.zeros((free.size, free.size)), hand.M)
    slopes = (slope[free, None] for slope in (hand.alpha, hand.beta))
    left, right = (sparse.csc_array(np.vstack([np.eye(free.size), -(s * hand.W[free]).T])) for s in slopes)
    output = np.vstack([hand.ahead[:, free].T, np.zeros((len(hand.M), len(hand.ahead)))])
    r = 0.5 * (hand.beta - hand.alpha)[free]
    size = float(np.linalg.norm(r[:, None] * hand.S[np.ix_(free, free)] * r, 2))
    if size <= 0.0:
        raise SolverFailed(f"the neurons of layer {hand.index + 1} with more than one slope do not move")
    start = np.full(groups.max() + 1, 0.5 / size)
    return solve(Inequality(constant, left, right, output, groups, start), _SHARP)


@dataclass(frozen=True)
class Eclipse(Published):
    """Xu and Sivaranjani, *ECLipsE: Efficient Compositional Lipschitz Constant Estimation for Deep Neural Networks*,
    NeurIPS 2024. Global: the region is ignored.

    One multiplier per neuron, chosen layer by layer by a small semidefinite program; time is linear in depth.

    Limits: slopes are taken from zero to the steepest, so activations that fall somewhere (SiLU, GELU, Mish, sin) are
    refused, and a positive least slope (LeakyReLU) is given away; greedy, so looser than LipSDP.

    """

    def run(self, problem: Problem) -> Run:
        return carry(problem, lambda hand: acc(_from_zero(hand, "Eclipse"), np.inf))


@dataclass(frozen=True)
class EclipseFast(Published):
    """Xu and Sivaranjani, *ECLipsE: Efficient Compositional Lipschitz Constant Estimation for Deep Neural Networks*,
    NeurIPS 2024, the fast form. Global: the region is ignored.

    One multiplier per layer, by formula: one spectral norm per layer is all the work.

    Limits: as :class:`Eclipse`, and looser.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, method=EclipseFast()).bound, 6)
    1.414214
    """

    def run(self, problem: Problem) -> Run:
        return carry(problem, lambda hand: closed_form(_from_zero(hand, "EclipseFast")))


def _from_zero(hand: Handover, method: str) -> Handover:
    if (hand.alpha < 0.0).any():
        raise NotApplicable(
            f"{method} was made for activations that never fall, and layer {hand.index + 1} has one that does;"
            " take EclipseGenLocal('Fast') or LipSDP()"
        )
    return replace(hand, alpha=np.zeros(hand.alpha.shape))


_VARIANTS: Final[dict[str, Callable[[Handover, float], Choice]]] = {
    "Acc": acc,
    "Fast": fast,
    "CF": lambda hand, cap: closed_form(hand),
}


@dataclass(frozen=True)
class EclipseGenLocal(Published):
    """Xu and Sivaranjani, *ECLipsE-Gen-Local: Efficient Compositional Local Lipschitz Estimates for Deep Neural
    Networks*, TMLR 2026, Algorithms 1 to 5.

    Layer by layer, the multipliers that serve the next layer best; time is linear in depth. Before each layer the
    slopes are narrowed to what its neurons can see in the region, by their Lipschitz constants so far. Of a box or a
    clipped ball only the ball around it is used; over all inputs the slopes are those that hold everywhere. The slope
    formulas are lipcert's: some of the paper's are not bounds. ``enclosures`` given to ``certify`` are ignored.

    Limits: ``"CF"`` needs slopes of one sign, so it does not apply to SiLU, GELU, Mish or sin; greedy, so looser than
    LipSDP; the slopes are widened by ``"CF"`` until one of them is zero; neurons with one slope get a large multiplier
    instead of an infinite one.

    Parameters
    ----------
    variant
        ``"Acc"``: one multiplier per neuron, by a small semidefinite program. ``"Fast"``: one per layer, likewise.
        ``"CF"``: one per layer, by formula.
    cap
        Largest multiplier Λ; of it the paper says only that it is large.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]], biases=[[3.0, -3.0], None])
    >>> round(lc.certify(net, lc.Ball([0.0, 0.0], 1.0), EclipseGenLocal("CF")).bound, 6)
    1.0
    """

    variant: str = "Fast"
    cap: float = 1e10

    def __post_init__(self) -> None:
        if self.variant not in _VARIANTS:
            raise InvalidInput(f"variant must be one of {', '.join(_VARIANTS)}, got {self.variant!r}")

    def run(self, problem: Problem) -> Run:
        return carry(problem, lambda hand: _VARIANTS[self.variant](hand, self.cap))

    def setting(self, problem: Problem) -> Problem:
        return replace(problem, enclosures=(Lipschitz(),)) if problem.enclosures else problem
