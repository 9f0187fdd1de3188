"""Entries of the Jacobian, proved: a nominal matrix and how far each entry can be from it.

For every choice of slopes within their ranges, W_N D_{N-1} … D_1 W_1 = U + Δ with

    |pᵀ Δ x|² ≤ (pᵀ A p)(xᵀ E x)      for all p and x,

so a single entry is at most |U_lj| + sqrt(A_ll E_jj). A is carried through the layers like the ellipsoid of the whole
network, but from zero; U follows it as a matrix; E adds up what each layer contributes.

Why: call "Δv is near u" that Δv Δvᵀ ≼ tA + uuᵀ/(1 - ε/t) for all t > ε, or what is the same, that
|pᵀΔv| ≤ |pᵀu| + sqrt(ε pᵀAp) for all p. Let the step from A to P be proved, that is

    N = [ C    M                    ]  ≽ 0,    C = D_lifted - D_h A D_h,  M = D_h A D_m,  T = lifted/g².
        [ Mᵀ   P - T - D_m A D_m    ]

Condition N is linear. For tA + uuᵀ in the place of A, tT in the place of T and tP + kkᵀ in the place of P it asks for
tN + [0; k][0; k]ᵀ - [D_h u; -D_m u][D_h u; -D_m u]ᵀ ≽ 0. With C z = D_h u and d = D_m u + Mᵀz the last vector is
N[z; 0] - [0; d], and by Cauchy and Schwarz k = d/sqrt(1 - zᵀCz/t) will do. So after the step Δz is near d, with
ε + zᵀCz in the place of ε. With u = U x, all of this is linear in x: zᵀCz is a quadratic form, and adds to E.

Rounding: if u is known up to f with |f_l| ≤ φ_l‖x‖, then nearness stays true with A + diag(nφ²)/τ and E + τI, for any
τ > 0. So every rounding error is handed over to A before the step that comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.network import Network
from lipcert.proof.near import congruence, largest_eigenvalue_above
from lipcert.proof.rounding import (
    LOOSE,
    TINY,
    UP,
    gamma,
    magnitude,
    norm_above,
    raise_diagonal,
    square_above,
    stretched,
    up,
)
from lipcert.proof.step import Step, activate

_TAU = 2.0**-52
"""Weight of rounding errors in E, whose size is about one; their weight in A is its inverse."""


@dataclass(frozen=True, eq=False)
class Entries:
    """U (outputs, inputs) and A (outputs, outputs), E (inputs, inputs), all times 2**exponent, 4**exponent and 1."""

    nominal: Array
    spread: Array
    energy: Array
    exponent: int

    def bounds(self) -> Array:
        """At least the size of every entry, (outputs, inputs)."""
        reach = np.sqrt(np.outer(np.diagonal(self.spread), np.diagonal(self.energy)))
        return up(np.ldexp(stretched(np.abs(self.nominal) + stretched(reach, 3), 2), self.exponent))

    def block(self, rows: Sequence[int], columns: Sequence[int]) -> float:
        """At least the norm of a block: ‖U‖ + sqrt(λmax(A) λmax(E)) there."""
        part = self.nominal[np.ix_(rows, columns)]
        part = part.T if part.shape[0] > part.shape[1] else part
        norm = np.sqrt(largest_eigenvalue_above(congruence(None, part)))
        sides = [
            largest_eigenvalue_above(matrix[np.ix_(which, which)])
            for matrix, which in ((self.spread, rows), (self.energy, columns))
        ]
        return float(up(np.ldexp(stretched(norm + np.sqrt(sides[0] * sides[1]), 6), self.exponent)))


def entries(
    network: Network, slopes: Sequence[tuple[Array, Array]], multipliers: Sequence[tuple[Array, int]]
) -> Entries:
    """Prove the entries of the Jacobian for proved slope ranges.

    ``multipliers`` are hints: the T of each hidden layer, positive where slopes are apart, relative to 4**exponent, and
    the exponent.
    """
    walk = _Walk(network.inputs)
    for layer, slope, (T, exponent) in zip(network.layers[:-1], slopes, multipliers, strict=True):
        walk.through(layer.weight, exponent)
        walk.activate(*slope, T)
    walk.through(network.layers[-1].weight, multipliers[-1][1] if len(multipliers) else 0)
    return walk.result()


class _Walk:
    """U, A, E on the way through the network; ``missed`` bounds the error of U, entry by entry."""

    def __init__(self, inputs: int) -> None:
        self.U, self.missed = np.eye(inputs), np.zeros((inputs, inputs))
        self.A: Array | None = None
        self.E = np.zeros((inputs, inputs))
        self.exponent = 0

    def through(self, weight: Weight, exponent: int) -> None:
        """An affine map, then a change of scale."""
        n, k = weight.shape
        if self.A is None:  # nothing is added up yet: U is the weight itself
            U = dense(weight)
            missed = gamma(LOOSE) * np.abs(U) * UP
            A = np.zeros((n, n))
        else:
            U, size = _left(weight, self.U), magnitude(weight)
            missed = (gamma(k + LOOSE + 3) * _left(size, np.abs(self.U)) + _left(size, self.missed)) * UP
            A = congruence(self.A, weight)
        shift = self.exponent - exponent
        self.U, self.missed = np.ldexp(U, shift), np.ldexp(missed, shift) + TINY
        self.A = raise_diagonal(np.ldexp(A, 2 * shift), np.full(n, n * TINY))
        self.exponent = exponent

    def activate(self, alpha: Array, beta: Array, T: Array) -> None:
        """Neurons with slopes in [α, β]."""
        assert self.A is not None
        n = len(self.A)
        reach = norm_above(self.U)
        allowed = norm_above(self.missed) + 2.0 * gamma(n + 8) * (reach + TINY)
        for _ in range(8):
            A = raise_diagonal(self.A, stretched(n * square_above(allowed) / _TAU, 4))
            step = activate(A[None], alpha[None], beta[None], T[None])
            q, off = _solved(A, self.U, step)
            actual = norm_above((off + self.missed) * UP)
            if (actual <= allowed).all():
                break
            allowed = np.maximum(allowed, 2.0 * actual)
        else:
            raise ProofFailed("the rounding errors of a layer could not be bounded")
        self._gain(step, q, off)
        (active,) = step.active
        moved = self.U + A[:, active] @ q
        size = np.abs(self.U) + np.abs(A[:, active]) @ np.abs(q)
        m = step.m[0][:, None]
        self.U, self.missed = m * moved, np.abs(m) * (off + size * gamma(active.size + 6)) * UP + TINY
        self.A = step.P[0]

    def _gain(self, step: Step, q: Array, off: Array) -> None:
        """E + zᵀCz + τ, with zᵀCz = qᵀ(u - f) for q = D_h z; a symmetric error is at most its absolute row sums."""
        (active,) = step.active
        U, size = self.U[active], np.abs(q)
        gain = q.T @ U
        error = size.T @ off[active].sum(axis=1) + gamma(len(q) + 6) * (size.T @ np.abs(U).sum(axis=1))
        other = off[active].T @ size.sum(axis=1) + gamma(len(q) + 6) * (np.abs(U).T @ size.sum(axis=1))
        total = self.E + 0.5 * (gain + gain.T)
        raised = (error + other + 4.0 * gamma(1) * np.abs(total).sum(axis=1)) * UP + _TAU
        self.E = raise_diagonal(total, raised)

    def result(self) -> Entries:
        assert self.A is not None
        n = len(self.A)
        lost = norm_above(self.missed)
        spread = raise_diagonal(self.A, stretched(n * square_above(lost) / _TAU, 4))
        energy = raise_diagonal(self.E, np.full(len(self.E), _TAU))
        return Entries(self.U, spread, energy, self.exponent)


def _solved(A: Array, U: Array, step: Step) -> tuple[Array, Array]:
    """D_h z for nearly C z = D_h u, and at least the change of u (n, inputs) that makes it exact."""
    (active,), (h,), (lifted,), off = step.active, step.h, step.lifted, np.zeros(U.shape)
    if not active.size:
        return np.zeros((0, U.shape[1])), off
    part, u = A[np.ix_(active, active)], U[active]
    C = np.diag(lifted) - h[:, None] * part * h
    try:
        factor = linalg.cho_factor(C, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        raise ProofFailed("the step of a layer leaves no room to bound single entries") from None
    q = h[:, None] * linalg.cho_solve(factor, h[:, None] * u, check_finite=False)
    pushed = (lifted / h)[:, None] * (q / h[:, None])  # h·h might underflow
    exact = u - pushed + part @ q  # zero in exact arithmetic: row l of C z = D_h u, over h_l
    size = np.abs(u) + 4.0 * np.abs(pushed) + np.abs(part) @ np.abs(q)
    lost = TINY * (1.0 + lifted / h)[:, None]  # what underflows in q/h is multiplied
    off[active] = (np.abs(exact) + gamma(active.size + 6) * size) * UP + lost
    return q, off


def _left(weight: Weight, matrix: Array) -> Array:
    """weight·matrix for a dense or sparse weight."""
    return times(matrix.T, weight.T).T
