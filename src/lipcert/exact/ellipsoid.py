"""Differences carried through the network: Δz Δzᵀ ≼ ‖Δz_0‖² P, and P from layer to layer."""

from __future__ import annotations

from collections.abc import Sequence

from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.functions import most
from lipcert.exact.linear import (
    at_least,
    column,
    image,
    largest_eigenvalue,
    norm,
    plus_diagonal,
    positive_definite,
    scaled,
)
from lipcert.exact.model import Model

Slopes = tuple[list[arb], list[arb]]
_TRIES = 24


def advance(S: arb_mat, slopes: Slopes, hint: Sequence[arb] | None = None, signed: bool = False) -> arb_mat:
    """P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T for multipliers T near the hint, or safer ones.

    It is at least D Δv Δvᵀ D for every D with entries in the slope ranges and every Δv Δvᵀ ≼ S, because
    T - D_r S D_r is proved positive definite. A neuron with S_ll = 0 does not move.

    A ``signed`` S need not be positive semidefinite. Then (Dx)ᵀ S (Dx) ≤ xᵀPx for every x and every such D: Dx is
    D_m x + D_r y with |y_l| ≤ |x_l|, and the form is at most its maximum less yᵀTy over all y, plus xᵀTx.
    """
    n = S.nrows()
    m, r = halved(slopes)
    active = [k for k in range(n) if r[k] > 0 and (signed or S[k, k] > 0)]
    P = scaled(S, m, m)
    if not active:
        return at_least(P)
    rows = S.tolist()
    radii = [r[k] for k in active]
    inner = scaled(arb_mat([[rows[i][j] for j in active] for i in active]), radii, radii)
    safe = _dominant(S, inner, radii) if signed else _safe(S, m, r, active)
    T = feasible(inner, safe, [hint[k] for k in active] if hint else None)
    side = scaled(arb_mat([rows[k] for k in active]), radii, m)
    P = P + side.transpose() * solve(inner, T, side)
    raised = dict(zip(active, T, strict=True))
    return at_least(plus_diagonal(P, [raised.get(k, arb(0)) for k in range(n)]))


def halved(slopes: Slopes) -> tuple[list[arb], list[arb]]:
    """The middle of each range of slopes, and at least how far its ends are."""
    m = [((a + b) / 2).mid() for a, b in zip(*slopes, strict=True)]
    r = [most([(b - c).upper(), (c - a).upper()]) for a, b, c in zip(*slopes, m, strict=True)]
    if not all(x.is_finite() for x in r):
        raise ProofFailed("a slope has no bound")
    return m, r


def _safe(S: arb_mat, m: list[arb], r: list[arb], active: list[int]) -> list[arb]:
    """Multipliers that serve whatever S is: |S_ij| ≤ a_i a_j, a = sqrt(diag S), so T_j > r_j a_j Σ r_i a_i suffices."""
    axes = [S[k, k].sqrt() for k in range(S.nrows())]
    total = 2 * sum((r[k] * axes[k] for k in active), arb(0))
    room = norm([abs(x) * a for x, a in zip(m, axes, strict=True)])
    return [(r[k] * axes[k] * (total + room)).mid() for k in active]


def _dominant(S: arb_mat, inner: arb_mat, radii: Sequence[arb]) -> list[arb]:
    """Multipliers that exceed the sums of the sizes in each row."""
    floor = most([abs(x).upper() for x in S.entries()]) * arb(2) ** -30 + arb(2) ** -300
    sums = [sum((abs(x) for x in row), arb(0)) for row in inner.tolist()]
    return [(2 * x + r * r * floor).mid() for x, r in zip(sums, radii, strict=True)]


def feasible(inner: arb_mat, safe: list[arb], hint: list[arb] | None) -> list[arb]:
    """Multipliers T with T - inner positive definite: the hint, a little more, a lot more, or the safe ones."""
    if hint is not None:
        start = [t if t > 0 else other for t, other in zip(hint, safe, strict=True)]
        for attempt in range(_TRIES):
            T = start if not attempt else [t * (1 + arb(2) ** (2 * attempt - 44)) for t in start]
            if positive_definite(plus_diagonal(-inner, T)):
                return T
    if positive_definite(plus_diagonal(-inner, safe)):
        return safe
    raise ProofFailed("no multipliers make the step of a layer valid")


def solve(inner: arb_mat, T: list[arb], right: arb_mat) -> arb_mat:
    """(T - inner)⁻¹ right."""
    try:
        return plus_diagonal(-inner, T).solve(right)
    except ZeroDivisionError:
        raise ProofFailed("the step of a layer needs more bits") from None


def rest_norms(model: Model, slopes: Sequence[Slopes]) -> list[arb]:
    """At least ‖W_N D_{N-1} … W_{k+1} D_k‖ for k = 1 … N (1 for the last), all slopes and weights in their ranges."""
    found, P = [arb(1)], None
    for layer, ranges in zip(model[:0:-1], slopes[::-1], strict=True):
        P = advance(image(layer.weight.transpose(), P), ranges)
        found.append(largest_eigenvalue(P).sqrt().upper())
    return found[::-1]


def product_norm(
    model: Model, slopes: Sequence[Slopes], hints: Sequence[Sequence[arb] | None], rest: Sequence[arb]
) -> arb:
    """At least ‖W_N D_{N-1} … D_1 W_1‖ for all slopes in the ranges, and all weights in the balls.

    The stored weights V are carried first. For others W the product changes by Σ R_k (W_k - V_k) D_{k-1} V_{k-1} … V_1,
    R_k = W_N D_{N-1} … D_k, whose norm is at most ``rest``; neuron j before layer k moves by at most sqrt(P_jj), so the
    size of what follows R_k is at most that of |W_k - V_k| sqrt(diag P). This keeps an error of 2⁻⁵² what it is, where
    balls in P would make its root of it.
    """
    P: arb_mat | None = None
    lost, axes = arb(0), [arb(1)] * model[0].weight.ncols()
    for number, layer in enumerate(model):
        stored = layer.weight.mid()
        spread = (layer.weight - stored) * column(axes)
        lost += rest[number] * norm([x.abs_upper() for x in spread.entries()])
        S = image(stored, P)
        if number < len(slopes):
            P = advance(S, slopes[number], hints[number])
            axes = [P[k, k].sqrt().upper() for k in range(layer.size)]
    return (largest_eigenvalue(S).sqrt() + lost).upper()
