"""A chain of weights and slopes, carried as a factor of its ellipsoid, for a stack of pieces at once.

Let A_N D_{N-1} A_{N-1} … D_1 A_1 be a product of fixed weights and of diagonal matrices whose entries may lie anywhere
in given intervals. What it makes of the unit ball after A_k is contained in

    { F_k w + e : ‖w‖ ≤ 1 },    e a sum of rounding errors, each carried on by the rest of the chain.

F_k has as many columns as A_1 has inputs, and one more for every open slope on the way, which is far fewer than
neurons when most slopes are known: no square matrix as large as a layer is ever formed. A slope matrix D = D_m + Δ D_r
with |Δ| ≤ 1 sends F w to F' w' with ‖w'‖ ≤ 1 for

    F' = [ D_m F (I - G Gᵀ)^(-1/2)   D_t ],    G = Fᵀ D_(r/t),    t > 0 free with G Gᵀ ≺ I;

this is the step P = D_m (S⁻¹ - D_r² T⁻¹)⁻¹ D_m + T of S = F Fᵀ with T = t². Errors do not take part in it: whatever D
is, D e is the error carried on. So the norm of the product is at most ‖F_N‖ + Σ c_k ε_k, with ε_k the fresh error
after A_k and c_k the norm of the rest of the chain, for which the same chain is run from its other end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.network import Network, dense
from lipcert.typing import Array
from lipcert.verify.rounding import (
    LOOSE,
    TINY,
    UP,
    apply,
    congruence,
    frobenius_above,
    gamma,
    largest_eigenvalue_above,
    norm_above,
    raise_diagonal,
    square_above,
    stretched,
    up,
)

LEAST, MOST = 2.0**-600, 2.0**600
"""Multipliers beyond these are not used."""
_SPARE = 16
"""Columns that a factor may have beyond the neurons of a layer before it is made square again."""

_TOP, _SHARPNESS = 5, 10.0
"""So many top directions advise, weighted by a power of their share of the norm, so that close ones count alike."""
_BLOCK = 6
"""Layers through which errors are carried by the norms of the weights."""
_POWERS = 8
"""Steps of the power method where a norm need not be exact."""
_PACE, _STRIDE = 0.5, 0.25
"""The share of the way to a stationary multiplier that is advised, and its limit in powers of two."""
_MATTERS = 1e-8
"""Neurons with a smaller share of the bound keep their multipliers: what they wish for is noise."""

Slopes = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Chain:
    """The weights of a chain: A_kᵀ is 2**powers[k] times right[k].

    The powers are chosen once, for both directions: what is bounded along one of them and what is bounded along the
    other are then relative to the same numbers.
    """

    right: tuple[Array, ...]
    powers: tuple[int, ...]

    @staticmethod
    def of(network: Network) -> Chain:
        """W_N … W_1 from the input."""
        weights = [dense(layer.weight) for layer in network.layers]
        powers = [_power(weight) for weight in weights]
        scaled = [np.ascontiguousarray(np.ldexp(weight, -p).T) for weight, p in zip(weights, powers, strict=True)]
        return Chain(tuple(scaled), tuple(powers))

    @cached_property
    def turned(self) -> Chain:
        """The same chain from its other end: the transpose, which has the same norm."""
        return Chain(tuple(np.ascontiguousarray(right.T) for right in self.right[::-1]), self.powers[::-1])

    def part(self, start: int, stop: int) -> Chain:
        """Some of the weights."""
        return Chain(self.right[start:stop], self.powers[start:stop])

    @cached_property
    def norms(self) -> tuple[float, ...]:
        """At least the norm of each A_k."""
        grams = [congruence(None, right if right.shape[0] < right.shape[1] else right.T) for right in self.right]
        return tuple(float(_root_norm(gram)) for gram in grams)

    @cached_property
    def spreads(self) -> tuple[float, ...]:
        """At least the norm of each |A_k|: the root of its largest row sum times its largest column sum."""
        sums = [(np.abs(right).sum(axis=0).max(), np.abs(right).sum(axis=1).max()) for right in self.right]
        return tuple(float(np.sqrt(row) * np.sqrt(column)) * UP + TINY for row, column in sums)


@dataclass(frozen=True, eq=False)
class Step:
    """One slope step of the chain, as far as better multipliers need it; columns are rows here: Fᵀ is carried."""

    F: Array
    m: Array
    active: Array
    r: Array
    t: Array
    h: Array
    G: Array
    X: Array
    scale: Array

    @property
    def hint(self) -> Array:
        """log2(T/(r·scale)) of the active neurons; no number where there is none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log2(self.t * self.t / self.r) - np.log2(self.scale)

    def placed(self, values: Array, blank: float) -> Array:
        """Values of the active neurons with an open slope at their places among all, ``blank`` elsewhere."""
        out = np.full(self.m.shape, blank)
        np.put_along_axis(out, self.active, np.where(self.r > 0, values, blank), -1)
        return out


@dataclass(frozen=True, eq=False)
class Swept:
    """Fᵀ at the end, the fresh error after every A_k (count,), and of each step: itself, at least the norm of what it
    makes of everything before, without older errors, and the steepest slope.
    """

    F: Array
    errors: list[Array]
    steps: list[Step]
    sizes: list[Array]
    steepest: list[Array]


def sweep(chain: Chain, slopes: list[Slopes], hints: list[Array], scaled: bool = True) -> Swept:
    """Carry the factor through all steps; ``slopes`` and ``hints`` have one row a piece.

    Hints are log2(T/(r·scale)), scale = trace S at the step, so that they also serve a part whose ellipsoid is far
    smaller; if not ``scaled``, they are log2(T/r).
    """
    count = len(slopes[0][0]) if slopes else 1
    F = np.broadcast_to(chain.right[0], (count, *chain.right[0].shape))
    first = _underflow(chain.right[0]) + gamma(LOOSE) * chain.spreads[0]
    swept = Swept(F, [np.full(count, first * UP)], [], [], [])
    weights = zip(chain.right[1:], chain.norms[1:], chain.spreads[1:], strict=True)
    for (alpha, beta), hint, (right, norm, spread) in zip(slopes, hints, weights, strict=True):
        F, lost = _squared(F)
        top, step, lost_here = _activate(F, alpha, beta, hint, scaled, right)
        steepest = np.maximum(np.abs(alpha), np.abs(beta)).max(axis=-1)
        lost = lost * steepest * UP + lost_here
        size = frobenius_above(top) + norm_above(step.t)
        F = np.concatenate([_flat(top, right), step.t[..., None] * right[step.active]], axis=1)
        rounding = gamma(right.shape[0] + LOOSE + 4) * size * spread
        fresh = (lost * norm + rounding) * UP + _underflow(right) * (1.0 + size)
        swept.errors.append(fresh)
        swept.steps.append(step)
        swept.sizes.append((size + lost) * UP)
        swept.steepest.append(steepest)
    return replace(swept, F=F)


def reaches(chain: Chain, slopes: list[Slopes], hints: list[Array]) -> tuple[list[Array], Array]:
    """At least the norm of the chain up to the slopes of each step, and up to its end; hints are log2(T/r).

    Errors are carried on by the norms of the weights, and from block to block by a bound of the block's own chain: a
    deep chain contracts far more than the norms of its weights tell.
    """
    swept = sweep(chain, slopes, hints, scaled=False)
    found = []
    before = carried = swept.errors[0]
    recent = np.zeros_like(carried)
    for k, (size, steepest) in enumerate(zip(swept.sizes, swept.steepest, strict=True)):
        found.append((size + carried * steepest * UP) * UP)
        gain, fresh = steepest * chain.norms[k + 1], swept.errors[k + 1]
        carried, recent = ((error * gain + fresh) * UP * UP for error in (carried, recent))
        if (k + 1) % _BLOCK == 0:
            first = k + 1 - _BLOCK
            inner = slopes[first + 1 : k + 1]
            blank = [np.full(alpha.shape, -np.inf) for alpha, _ in inner]
            _, block = reaches(chain.part(first + 1, k + 2), inner, blank)
            carried = np.minimum(carried, (before * swept.steepest[first] * block * UP + recent) * UP)
            before, recent = carried, np.zeros_like(carried)
    return found, (_root_norm(_gram(swept.F)) + carried) * UP


def _root_norm(S: Array) -> Array:
    """At least the root of the norm of a positive semidefinite matrix."""
    return stretched(np.sqrt(np.maximum(largest_eigenvalue_above(S), 0.0)), 2)  # already an upper bound


def chain_norm(swept: Swept, rest: list[Array]) -> tuple[Array, Array]:
    """At least the norm of the chain, (count,), and about the directions (count, few, outputs) in which it is largest.

    ``rest`` bounds what the chain makes of an error after each weight, the last one included.
    """
    gram = _gram(swept.F)
    error = sum((at * fresh for at, fresh in zip(rest, swept.errors, strict=True)), np.zeros(len(gram)))
    return up(_root_norm(gram) + error * UP), _directions(swept.F, gram)


def _directions(F: Array, gram: Array) -> Array:
    """The top directions, for advice; their lengths are the roots of weights that add up to one."""
    wide = F.shape[-1] <= F.shape[-2]
    values, vectors = np.linalg.eigh(gram)
    top = np.swapaxes(vectors[..., -_TOP:], -1, -2)
    values = np.maximum(values[..., -_TOP:, None], TINY)
    directions = top if wide else top @ F / np.sqrt(values)
    weights = (values / values[:, -1:]) ** _SHARPNESS
    return np.asarray(directions * np.sqrt(weights / weights.sum(axis=1, keepdims=True)))


def _gram(F: Array) -> Array:
    """At least the smaller of FᵀF and F Fᵀ."""
    if F.shape[-1] > F.shape[-2]:
        F = np.swapaxes(F, -1, -2)
    size, turned = np.abs(F), np.swapaxes(F, -1, -2)
    gram = turned @ F
    rows = apply(np.abs(turned), size.sum(axis=-1))
    error = gamma(max(F.shape[-2:]) + 4) * rows * UP + TINY
    return raise_diagonal(0.5 * (gram + np.swapaxes(gram, -1, -2)), error)


def _power(weight: Array) -> int:
    """About the exponent of the weight's norm, computed where no square over- or underflows."""
    first = int(np.frexp(np.abs(weight).max(initial=0.0))[1])
    square = _norm_squared(np.ldexp(weight, -first)[None])[0]
    return first + int(np.frexp(np.sqrt(square))[1])


def _flat(stack: Array, right: Array) -> Array:
    """stack·right for a stack of matrices, as one product."""
    flat = np.reshape(stack, (-1, stack.shape[-1])) @ right
    return np.reshape(flat, (*stack.shape[:-1], right.shape[1]))


def _underflow(right: Array) -> float:
    """More than underflow loses in a product with a weight, or in bringing it to scale."""
    return TINY * right.size


def _squared(F: Array) -> tuple[Array, Array]:
    """A factor with no more columns than its layer has neurons: Fᵀ = Q R + E, so that Rᵀ‖Q‖ and an error E replace F.

    ‖Q‖² ≤ 1 + ‖QᵀQ - I‖; both residuals are computed and bounded, wherever Q and R come from.
    """
    rows, size = F.shape[-2:]
    if rows <= size + _SPARE:
        return F, np.zeros(len(F))
    Q, R = np.linalg.qr(F)
    abs_Q = np.abs(Q)
    skew = np.abs(np.swapaxes(Q, -1, -2) @ Q - np.eye(size)).sum(axis=-1)
    skew = skew + gamma(rows + 4) * (apply(np.swapaxes(abs_Q, -1, -2), abs_Q.sum(axis=-1)) + 1.0)
    longer = stretched(np.sqrt(1.0 + skew.max(axis=-1) * UP), 3)
    lost = frobenius_above(F - Q @ R) + gamma(size + 4) * frobenius_above(Q) * frobenius_above(R) * UP + TINY * F.size
    R = longer[:, None, None] * R
    return R, (lost + gamma(2) * frobenius_above(R)) * UP


def _activate(
    F: Array, alpha: Array, beta: Array, hint: Array, scaled: bool, right: Array
) -> tuple[Array, Step, Array]:
    """(D_m F (I - GGᵀ)^(-1/2))ᵀ, the step, and the error made here.

    With any X near the inverse of a Cholesky factor of I - GGᵀ, let ‖X(I - GGᵀ)Xᵀ - I‖ ≤ δ < 1. Then Xᵀ/sqrt(1 - δ)
    serves as the root of the inverse. δ is computed from the residual and the bounds of its rounding errors.
    """
    m = 0.5 * (alpha + beta)
    r = np.where(alpha < beta, up(np.maximum(beta - m, m - alpha)), 0.0)
    most = int((r > 0).sum(axis=-1).max(initial=0))
    middle = F * m[:, None, :]
    scale = np.maximum(np.einsum("irn,irn->i", F, F), TINY)[:, None]
    rows = F.shape[-2]
    if not most:
        nothing = np.zeros((len(F), 0))
        step = Step(
            F, m, nothing.astype(int), nothing, nothing, nothing, np.zeros((len(F), rows, 0)), np.eye(rows), scale
        )
        return middle, step, gamma(2) * frobenius_above(middle) + TINY * F.size
    active = np.argsort(r <= 0, axis=-1, kind="stable")[:, :most]  # (count, most); padding has r = 0
    r = np.take_along_axis(r, active, -1)
    part = np.take_along_axis(F, active[:, None, :], -1)
    hint = np.take_along_axis(hint, active, -1)
    hinted = np.isfinite(hint) | (r == 0)
    T = np.exp2(np.where(hinted, hint + np.log2(scale) if scaled else hint, 0.0)) * r

    def safer() -> Array:
        return _closed_form(part, r, middle, right)

    t, h, G, C, X = _inverse_root(part, r, T if hinted.all() else np.where(hinted, T, safer()), safer)
    abs_X, abs_G = np.abs(X), np.abs(G)
    across = abs_X.sum(axis=-2)
    Y = X @ C
    residual = np.abs(Y @ np.swapaxes(X, -1, -2) - np.eye(rows)).sum(axis=-1) + gamma(1)
    within = gamma(rows + 4) * apply(np.abs(C), across)
    within = within + gamma(most + 8) * (apply(abs_G, apply(np.swapaxes(abs_G, -1, -2), across)) + across)
    residual = residual + apply(abs_X, within) + gamma(rows + 4) * apply(np.abs(Y), across)
    delta = residual.max(axis=-1) * UP + TINY * square_above(1.0 + across.sum(axis=-1))
    if not (delta < 0.5).all():
        raise ProofFailed("the step of a layer could not be proved for all pieces")
    longer = stretched(1.0 / np.sqrt(1.0 - delta), 4)
    top = longer[:, None, None] * (X @ middle)
    lost = gamma(rows + 6) * frobenius_above(longer[:, None, None] * X) * frobenius_above(middle)
    lost = lost * UP + TINY * F.size * (1.0 + across.sum(axis=-1))
    return top, Step(F, m, active, r, t, h, G, X, scale), lost


def _closed_form(part: Array, r: Array, middle: Array, right: Array) -> Array:
    """Multipliers t = s + sqrt(s σ/e), the same for all neurons of a piece, (count, 1).

    s = ‖D_r S D_r‖, σ = ‖A D_m S D_m Aᵀ‖ and e = ‖A Aᵀ‖ for the next weight A: the best t for an upper bound of
    ‖A P Aᵀ‖, as in :class:`lipcert.ClosedForm`.
    """
    s, sigma, e = (_norm_squared(matrix) for matrix in (part * r[:, None, :], _flat(middle, right), right[None]))
    return (1.05 * s + np.sqrt(s * sigma / np.maximum(e, TINY)))[:, None]


def _norm_squared(stack: Array) -> Array:
    """About the largest eigenvalue of A Aᵀ, for each matrix."""
    n = stack.shape[-1]
    x = np.tile(1.0 + 0.5 * np.cos(np.arange(1.0, n + 1.0)), (len(stack), 1))  # rows often add up to zero: no ones
    value = np.zeros((len(stack), 1))
    for _ in range(_POWERS):
        x = apply(np.swapaxes(stack, -1, -2), apply(stack, x))
        value = np.sqrt((x * x).sum(axis=-1, keepdims=True))
        x = x / np.maximum(value, TINY)
    return value[:, 0]


def _inverse_root(
    part: Array, r: Array, T: Array, safer: Callable[[], Array]
) -> tuple[Array, Array, Array, Array, Array]:
    """t, h, G, C and X of the step; where C is not positive definite, multipliers (count, active) are enlarged.

    What happens to a piece must not depend on the others of its stack.
    """
    eye = np.eye(part.shape[-2])
    for attempt in range(8):
        t = np.where(r > 0, np.sqrt(np.clip(T, LEAST, MOST)), 0.0)
        h = np.where(r > 0, up(r / np.where(r > 0, t, 1.0)), 0.0)
        G = part * h[:, None, :]
        C = eye - G @ np.swapaxes(G, -1, -2)
        try:
            return t, h, G, C, _inverses(np.linalg.cholesky(C))
        except np.linalg.LinAlgError:
            # T times c divides I - C by c
            least = np.linalg.eigvalsh(C)[:, :1]
            enough = (1.05 + attempt) * np.maximum(1.0 - least, 1.0) * (t * t)
            T = np.where(least < 1e-9, np.maximum(enough, safer()), T)
    raise ProofFailed("no multipliers make the step of a layer valid")


def _inverses(lower: Array) -> Array:
    """Of a stack of lower triangular matrices, about: LAPACK's own routine takes a quarter of the time of ``inv``."""
    return np.stack([linalg.lapack.dtrtri(one, lower=1)[0] for one in lower])


def advice(chain: Chain, swept: Swept, directions: Array, norm: Array) -> tuple[list[Array], list[Array]]:
    """Hints of multipliers nearer to the stationary ones, and the share T_j a_j²/norm² of each neuron, per step.

    With a the top direction at the end carried back to a step, x = D_m a and K = F(I - GGᵀ)⁻¹Fᵀ, the derivative of the
    squared norm by log T_j is proportional to T_j a_j² - r_j² (K x)_j²/T_j; it vanishes at T_j = r_j |(K x)_j|/|a_j|.
    Over several directions the squares add up. A step there in the logarithm is a suggestion only: any multipliers
    that pass the step give a valid bound.
    """
    hints: list[Array] = []
    shares: list[Array] = []
    back = directions
    for step, right in zip(swept.steps[::-1], chain.right[:0:-1], strict=True):
        a = _flat(back, right.T)
        back = step.m[:, None, :] * a
        better, blame = np.zeros(step.active.shape), np.zeros(step.active.shape)
        if step.active.size:
            y = back @ np.swapaxes(step.F, -1, -2) @ np.swapaxes(step.X, -1, -2) @ step.X
            pushed = y @ step.G
            pull = np.zeros(a.shape)
            np.put_along_axis(pull, step.active[:, None, :], step.h[:, None, :] * pushed, -1)
            back = back + pull
            arrived = (np.take_along_axis(a, step.active[:, None, :], -1) ** 2).sum(axis=1)
            pushed = (pushed**2).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # they are hints only
                wish = 0.5 * np.log2(pushed / arrived) - np.log2(step.h * step.scale)
                change = np.clip(_PACE * (wish - step.hint), -_STRIDE, _STRIDE)
                blame = np.nan_to_num((step.t / norm[:, None]) ** 2 * arrived, posinf=0.0) + TINY
                matters = np.isfinite(change) & (blame + pushed / norm[:, None] ** 2 > _MATTERS)
                better = step.hint + np.where(matters, change, 0.0)
        hints.append(step.placed(better, -np.inf))
        shares.append(step.placed(blame, 0.0))
    return hints[::-1], shares[::-1]
