"""LipDiff: LipSDP as an eigenvalue problem without constraints, for first-order methods."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network
from lipcert.published.base import Published, Run, worldwide
from lipcert.published.forms import Forms, forms
from lipcert.search.problem import Problem

_DENSE = 300
"""Up to this size the top eigenvector comes from a dense decomposition, beyond it from Lanczos."""
_DECAY, _SQUARES = 0.9, 0.999


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
        shape = forms(worldwide(problem))
        penalty = _Penalty.of(problem.network, shape)
        if penalty is None:
            return Run(0.0)
        point = best = penalty.start()
        least = penalty.value(best)
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
        value = min(penalty.value(best), penalty.value(penalty.start()))
        return Run(penalty.unit * math.sqrt(value))


@dataclass(eq=False)
class _Penalty:
    """The right side as a function of (κ_0, κ, Λ relative to its start); outputs in units of the product of norms."""

    inputs: int
    left: sparse.csc_array
    right: sparse.csc_array
    output: Array
    unit: float
    vector: Array | None = None

    @staticmethod
    def of(network: Network, shape: Forms) -> _Penalty | None:
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
        unit = before * norms[-1]
        if unit == 0.0:
            return None
        scale = np.concatenate([np.ones(shape.inputs), *limits])
        scale = np.where(scale > 0.0, scale, 1.0)
        stretch = sparse.diags_array(scale)
        left = sparse.csc_array((stretch @ shape.left) * start)
        right, output = sparse.csc_array(stretch @ shape.right), scale[:, None] * shape.output / unit
        return _Penalty(shape.inputs, left, right, output, unit)

    def start(self) -> Array:
        count = self.left.shape[1]
        return np.concatenate([[1.0], np.zeros(count), np.ones(count)])

    def value(self, point: Array) -> float:
        """The right side, every eigenvalue computed."""
        top = float(linalg.eigvalsh(self._matrix(point).toarray())[-1])
        return self._total(point, top)

    def __call__(self, point: Array) -> tuple[float, Array]:
        """The right side and a subgradient, from the top eigenvector alone."""
        matrix = self._matrix(point)
        size = matrix.shape[0]
        if size <= _DENSE:
            values, vectors = linalg.eigh(matrix.toarray(), subset_by_index=[size - 1, size - 1], check_finite=False)
        else:
            guess = np.ones(size) if self.vector is None else self.vector
            values, vectors = eigsh(matrix, k=1, which="LA", v0=guess, tol=1e-5)
        top, self.vector = float(values[0]), vectors[:, 0]
        gradient = np.concatenate([np.ones(1 + self.left.shape[1]), np.zeros(self.left.shape[1])])
        if top > 0.0:
            u = self.vector
            inputs, hidden = u[: self.inputs], u[self.inputs :]
            pull = np.concatenate([[float(inputs @ inputs)], hidden**2, (self.left.T @ u) * (self.right.T @ u)])
            gradient = gradient - self._trace * pull
        return self._total(point, top), gradient

    @property
    def _trace(self) -> float:
        return 1.0 + self.left.shape[1]

    def _total(self, point: Array, top: float) -> float:
        count = self.left.shape[1]
        return float(point[: 1 + count].sum()) + self._trace * max(top, 0.0)

    def _matrix(self, point: Array) -> sparse.csr_array:
        count = self.left.shape[1]
        kappa = np.concatenate([np.full(self.inputs, point[0]), point[1 : 1 + count]])
        product = (self.left * point[1 + count :]) @ self.right.T
        output = sparse.csr_array(self.output)
        return sparse.csr_array(output @ output.T - sparse.diags_array(kappa) - 0.5 * (product + product.T))
