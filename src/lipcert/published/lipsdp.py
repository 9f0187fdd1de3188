"""One semidefinite program for the whole network: LipSDP, GeoLIP, LipDiff's form without constraints, and GLipSDP."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

from lipcert.errors import InvalidInput
from lipcert.methods.greedy import ITERATIVE, largest, top
from lipcert.methods.method import Problem, Stage
from lipcert.methods.semidefinite import Inequality, SolverFailed, solve
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.model.regions import Everywhere, Norms
from lipcert.published.base import Multipliers, Published, Run, global_slopes, require
from lipcert.suggest.hints import LayerReport

_MATRICES = 20
"""Dense matrices in all coordinates that a semidefinite program needs at once."""


@dataclass(frozen=True, eq=False)
class Forms:
    """The quadratic constraints of a network: (a_k·ξ)(b_k·ξ) ≤ 0 for the columns of ``left`` and ``right``.

    ``inputs`` of the coordinates ξ are the inputs; ``output`` (size, outputs) reads the output, ‖outputᵀξ‖ = ‖Δy‖.
    ``layer`` says to which hidden layer each constraint belongs, ``neuron`` to which of its neurons.
    ``start`` are strictly feasible multipliers Λ.
    """

    inputs: int
    left: sparse.csc_array
    right: sparse.csc_array
    output: Array
    layer: Array
    neuron: Array
    start: Array
    slopes: tuple[tuple[Array, Array], ...]

    def spread(self, Lambda: Array) -> tuple[Multipliers, ...]:
        """The multipliers of each hidden layer from those of the constraints."""
        owned = ((index, self.layer == index) for index in range(len(self.slopes)))
        return tuple(
            Multipliers.of(*self.slopes[index], self.neuron[mine], 1.0 / Lambda[mine]) for index, mine in owned
        )


def forms(problem: Problem, isotropic: bool = True) -> Forms:
    """The constraints for the problem's slopes.

    With ``isotropic``, inputs beyond the first layer's width are folded away: directions that W_1 does not see
    cannot matter when all directions weigh the same.
    """
    candidate = problem.sweep(safe)
    first = dense(problem.network.layers[0].weight)
    if isotropic and first.shape[1] > first.shape[0]:
        first = linalg.qr(first.T, mode="economic")[1].T
    weights = [first, *(layer.weight for layer in problem.network.layers[1:])]
    moving = [moves(layer) for layer in candidate.layers]
    size, inputs = first.shape[1] + sum(map(np.count_nonzero, moving)), first.shape[1]
    require(size * size, _MATRICES)
    coordinates = sparse.eye_array(size, format="csr")
    state, offset, before, facts = coordinates[:inputs], inputs, [sparse.csr_array((0, size))], [np.zeros((5, 0))]
    for number, (weight, layer, free) in enumerate(zip(weights, candidate.layers, moving)):
        v, count = sparse.csr_array(weight) @ state, np.count_nonzero(free)
        before.append(v[free])
        T, where = np.ldexp(layer.multiplier, 2 * layer.exponent), np.arange(free.size)
        facts.append(np.stack([layer.alpha, layer.beta, T, np.full(free.size, number), where])[:, free])
        # rows in the order of the neurons: z is the new coordinate, or the slope times v
        place = sparse.eye_array(free.size, format="csc")[:, free]
        middle = np.where(free, 0.0, 0.5 * (layer.alpha + layer.beta))
        state = sparse.csr_array(sparse.diags_array(middle) @ v + place @ coordinates[offset : offset + count])
        offset += count
    alpha, beta, T, number, neuron = np.concatenate(facts, axis=1)
    z, v = coordinates[inputs:], sparse.vstack(before, format="csr")
    left, right = (sparse.csc_array((z - sparse.diags_array(slope) @ v).T) for slope in (alpha, beta))
    output = (sparse.csr_array(weights[-1]) @ state).toarray().T
    owners = number.astype(int), neuron.astype(int)
    return Forms(inputs, left, right, output, *owners, 1.0 / T, tuple(candidate.slopes))


def moves(layer: LayerReport) -> Array:
    """Which neurons move and have more than one slope, (n,)."""
    return (layer.multiplier > 0) & (layer.beta > layer.alpha)


def safe(stage: Stage) -> Array:
    """Multipliers well inside the feasible set: T = 2 λmax(R) on the neurons that move."""
    T = np.zeros(stage.alpha.shape)
    if stage.active.size:
        r = stage.r[stage.active]
        T[stage.active] = max(2.0 * float(largest(r[:, None] * stage.S[np.ix_(stage.active, stage.active)] * r)), 0.0)
    return T


@dataclass(frozen=True)
class LipSDP(Published):
    """Fazlyab, Robey, Hassani, Morari and Pappas, *Efficient and Accurate Estimation of Lipschitz Constants for Deep
    Neural Networks*, NeurIPS 2019. Global: the region is ignored.

    Every neuron's slope constraint gets a multiplier, and the best bound that all of them together imply is found by
    one semidefinite program in the sizes of all layers. Its optimum is what lipcert's :class:`~lipcert.Joint` tends to.

    Limits: time grows with the cube of the number of neurons, memory with its square; some thousand neurons are the
    end. The split version is linear in depth and looser: the bounds of its parts are multiplied.

    Parameters
    ----------
    kind
        ``"neuron"``: one multiplier per neuron. ``"layer"``: one per layer.
    split
        Cut the network into parts of so many layers, None for no cut.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0], [1.0]], [[1.0, -1.0]]], activation="relu")
    >>> round(lc.certify(net, method=LipSDP()).bound, 4)
    1.0
    """

    kind: Literal["neuron", "layer"] = "neuron"
    split: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("neuron", "layer"):
            raise InvalidInput(f"kind must be 'neuron' or 'layer', got {self.kind!r}")
        if self.split is not None and self.split < 1:
            raise InvalidInput(f"split must be at least 1 layer, or None, got {self.split}")

    def run(self, problem: Problem) -> Run:
        depth = problem.network.depth
        if self.split is None or self.split >= depth:
            shape = forms(problem)
            program = inequality(shape, self.kind)
            found = solve(program)
            return Run(1.0 / math.sqrt(found.c), shape.spread(found.roomy[program.groups]))
        ends = ((start, min(start + self.split, depth)) for start in range(0, depth, self.split))
        parts = [replace(problem, network=problem.network.slice(*pair), region=Everywhere()) for pair in ends]
        return _joined(problem, self.split, [replace(self, split=None).run(part) for part in parts])


def inequality(shape: Forms, kind: str, output: int | None = None) -> Inequality:
    """Σ d_j Δx_j² - c‖Δy‖² + Σ Λ_k (a_k·ξ)(b_k·ξ) ≥ 0 for all ξ.

    With d = 1 it follows that ‖Δy‖² ≤ ‖Δx‖²/c. For one ``output`` the d are unknowns too, the first ones, with Σ d ≤ 1:
    then Δy² ≤ max Δx_j²/c.
    """
    count, square = shape.layer.size, np.zeros((len(shape.output),) * 2)
    groups = np.arange(count) if kind == "neuron" else np.unique(shape.layer, return_inverse=True)[1]
    start = np.full(groups.max(initial=-1) + 1, np.inf)
    np.minimum.at(start, groups, shape.start)
    if output is None:
        square[np.arange(shape.inputs), np.arange(shape.inputs)] = 1.0
        return Inequality(square, shape.left, shape.right, shape.output, groups, start)
    inputs, share = shape.inputs, 0.9 / shape.inputs
    unit = sparse.csc_array(sparse.eye_array(len(shape.output), inputs))
    left, right = (sparse.csc_array(sparse.hstack([unit, part])) for part in (shape.left, shape.right))
    groups, start = np.append(np.arange(inputs), inputs + groups), np.append(np.full(inputs, share), share * start)
    budget = np.where(np.arange(start.size) < inputs, 1.0, 0.0)
    return Inequality(square, left, right, shape.output[:, [output]], groups, start, budget)


def _joined(problem: Problem, split: int, runs: list[Run]) -> Run:
    """The product of the parts' bounds and of the steepest slopes between them.

    Behind a part with bound L the ellipsoid lies inside L²I. The activation there takes T = r(r + |m|)L², which keeps
    it inside (|m| + r)²L²I, and the multipliers of the next part apply to a ball of that size.
    """
    value, layers = 1.0, []
    for number, run in enumerate(runs):
        assert run.layers is not None
        layers += [Multipliers(part.T * value**2, part.r) for part in run.layers]
        value *= run.value
        if number + 1 < len(runs):
            alpha, beta = global_slopes(problem.network.layers[(number + 1) * split - 1])
            m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)
            layers.append(Multipliers(r * (r + np.abs(m)) * value**2, r))
            value *= float(np.maximum(np.abs(alpha), np.abs(beta)).max())
    return Run(value, tuple(layers))


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
    """

    remark: ClassVar[str] = "made for ℓ∞ changes of the input; as an ℓ2 bound it loses up to the root of the inputs"

    def check(self, norms: Norms) -> None:
        if norms.pair[0] != "linf":
            super().check(norms)

    def run(self, problem: Problem) -> Run:
        shape = forms(problem, isotropic=False)
        squares, Lambda, slopes = 0.0, np.zeros(shape.layer.size), [0.0]
        for output in range(problem.network.outputs):
            found = solve(inequality(shape, "neuron", output))
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


_DECAY, _SQUARES = 0.9, 0.999
"""Adam's own constants, as published."""


@dataclass(frozen=True)
class LipDiff(Published):
    """Wang, Hu, Havens, Araujo, Zheng, Chen and Jha, *On the Scalability and Memory Efficiency of Semidefinite Programs
    for Lipschitz Constant Estimation of Neural Networks*, ICLR 2024. Global: the region is ignored.

    Every hidden value obeys |z_k| ≤ b_k for ‖x‖ ≤ 1, by products of norms. These constraints are redundant, but they
    limit the trace of the matrix in LipSDP's dual, and with a limited trace ρ the matrix inequality may be replaced by
    a penalty on its largest eigenvalue. For any κ, Λ ≥ 0,

        L² ≤ κ_0 + Σ κ_k b_k² + ρ·max(0, λmax(YYᵀ - κ_0 I_x - D_κ - Σ Λ_k F_k)),

    and the right side is lowered by Adam, from the multipliers that give the product of norms. Lengths are measured in
    units of b_k, which makes ρ the number of neurons plus one.

    Limits: first-order steps on a sharp ridge are slow; the bound is somewhere between LipSDP's and the product of
    norms, near the latter for deep networks. The best value met is returned, so it never exceeds the product.

    Parameters
    ----------
    steps, rate
        How many steps Adam takes, and the length of the first; it falls to a hundredth along a cosine.
    """

    steps: int = 1000
    rate: float = 0.03

    def __post_init__(self) -> None:
        if self.steps < 0 or not self.rate > 0.0:
            raise InvalidInput(f"steps must be at least 0 and rate positive, got {self.steps} and {self.rate}")

    def run(self, problem: Problem) -> Run:
        shape = forms(problem)
        penalty = _Penalty(problem.network, shape)
        if penalty.unit == 0.0:
            return Run(0.0)
        count = shape.layer.size
        point = start = best = np.concatenate([[1.0], np.zeros(count), np.ones(count)])
        least = penalty(start)[0]
        speed, square = np.zeros(point.size), np.zeros(point.size)
        for step in range(self.steps):
            value, gradient = penalty(point)
            if value < least:
                best, least = point, value
            speed = _DECAY * speed + (1.0 - _DECAY) * gradient
            square = _SQUARES * square + (1.0 - _SQUARES) * gradient**2
            rate = self.rate * (0.505 + 0.495 * math.cos(math.pi * step / self.steps))
            size = np.sqrt(square / (1.0 - _SQUARES ** (step + 1))) + 1e-12
            point = np.maximum(point - rate * speed / (1.0 - _DECAY ** (step + 1)) / size, 0.0)
        exact = (penalty.value(one, float(linalg.eigvalsh(penalty.matrix(one).toarray())[-1])) for one in (best, start))
        return Run(penalty.unit * math.sqrt(min(exact)))


class _Penalty:
    """The right side as a function of (κ_0, κ, Λ relative to its start); outputs in units of the product of norms."""

    def __init__(self, network: Network, shape: Forms) -> None:
        norms = [float(np.linalg.norm(dense(layer.weight), 2)) for layer in network.layers]
        limits, before = [], 1.0  # before: how far z of the layer before can be from zero
        start = np.zeros(shape.layer.size)
        for index, (alpha, beta) in enumerate(shape.slopes):
            m, r = 0.5 * np.abs(alpha + beta), 0.5 * (beta - alpha)
            rows = np.linalg.norm(dense(network.layers[index].weight), axis=1)
            mine = shape.layer == index
            limits.append(((m + r) * rows * before)[shape.neuron[mine]])
            # the multipliers behind the product of norms
            start[mine] = 1.0 / (r * (r + m) * (norms[index] * before) ** 2)[shape.neuron[mine]]
            before *= norms[index] * float((m + r).max())
        self.inputs, self.count, self.unit = shape.inputs, shape.layer.size, before * norms[-1]
        scale = np.concatenate([np.ones(shape.inputs), *limits])
        scale = np.where(scale > 0.0, scale, 1.0)
        stretch = sparse.diags_array(scale)
        self.left, self.right = (sparse.csc_array(stretch @ part) for part in (shape.left * start, shape.right))
        output = sparse.csr_array(scale[:, None] * shape.output / (self.unit or 1.0))
        self.square, self.vector = output @ output.T, np.ones(len(scale))

    def __call__(self, point: Array) -> tuple[float, Array]:
        """The right side and a subgradient, from the top eigenvector alone."""
        matrix = self.matrix(point)
        if len(self.vector) <= ITERATIVE:
            height, self.vector = top(matrix.toarray())
        else:
            values, vectors = eigsh(matrix, k=1, which="LA", v0=self.vector, tol=1e-5)
            height, self.vector = float(values[0]), vectors[:, 0]
        gradient = np.concatenate([np.ones(1 + self.count), np.zeros(self.count)])
        if height > 0.0:
            u, n = self.vector, self.inputs
            pull = np.concatenate([[u[:n] @ u[:n]], u[n:] ** 2, (self.left.T @ u) * (self.right.T @ u)])
            gradient -= (1.0 + self.count) * pull
        return self.value(point, height), gradient

    def value(self, point: Array, height: float) -> float:
        """The right side, given the largest eigenvalue."""
        return float(point[: 1 + self.count].sum()) + (1.0 + self.count) * max(height, 0.0)

    def matrix(self, point: Array) -> sparse.csr_array:
        kappa = np.concatenate([np.full(self.inputs, point[0]), point[1 : 1 + self.count]])
        product = (self.left * point[1 + self.count :]) @ self.right.T  # sparse where the network is
        return sparse.csr_array(self.square - sparse.diags_array(kappa) - 0.5 * (product + product.T))


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
