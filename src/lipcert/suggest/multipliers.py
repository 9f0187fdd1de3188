"""Multipliers, ellipsoids, solutions of equations and stored hints: what proofs ask for while they run.

All is plain floating point, and a proof holds whatever is suggested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
from scipy import linalg

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array, Weight, dense, times
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Norms
from lipcert.suggest.hints import Guide
from lipcert.suggest.lines import suggested_lines

_TOP, _SHARPNESS = 5, 4.0
"""So many top directions advise, weighted by a power of their share of the norm, so that close ones count alike."""
_POWERS = 8
"""Steps of the power method where a norm need not be exact."""
_PACE = 0.5
"""The largest change that is advised, in powers of two."""
_STEPS = 64.0
"""Advice is rounded to so many parts of a power of two. Else roundings grow from piece to part, to 1e-7 of a bound in
20 layers, and a tree would not prove the same again. A bound changes by less than 1e-4 of itself, either way."""
_BARRIER = 5e-3
"""Weight of the barrier that keeps multipliers inside the set where they are of use."""
_TINY = 1e-280
"""Keeps quotients finite."""


def closed_form(
    S: Array, m: Array, r: Array, ahead: Weight, neurons: Array | None, share: float | Array = 1.0
) -> Array:
    """Multipliers t = s + sqrt(s σ/e), the same for all neurons of a region, (count, 1).

    s = ‖D_r S D_r‖, σ = ‖A D_m S D_m Aᵀ‖ for the next weight A, and e = ‖A Aᵀ‖ over the open neurons: the best t for an
    upper bound of ‖A P Aᵀ‖, as in :class:`lipcert.ClosedForm`. ``neurons`` tells which of a layer's neurons these are;
    what comes out for a region does not depend on the others of its stack. A ``share`` of the root is better for what
    is small beside ‖A P Aᵀ‖.
    """
    A = dense(ahead)
    rows = np.broadcast_to(np.arange(A.shape[-2]), (len(S), A.shape[-2]))
    here = np.broadcast_to(np.arange(S.shape[-1]), S.shape[:-1]) if neurons is None else neurons
    s = _norm(here, lambda x: r * _apply(S, r * x))
    sigma = _norm(rows, lambda x: _apply(A, m * _apply(S, m * _apply(_turned(A), x))))
    e = _norm(rows, lambda x: _apply(A, (r > 0.0) * _apply(_turned(A), x)))
    return np.asarray(1.05 * s + share * np.sqrt(s * sigma / np.maximum(e, _TINY)))


def dominating(S: Array, r: Array, m: Array | None = None) -> Array:
    """Multipliers that are feasible whatever S is, and small for neurons that hardly move or have almost one slope.

    Since |S_ij| ≤ sqrt(S_ii S_jj), T_j ≥ r_j sqrt(S_jj) Σ r_i sqrt(S_ii) dominates the rows of D_r S D_r. With m given
    they are enlarged to what neurons that have no hint should have, so that they do not cost more than their share.
    """
    axes = np.sqrt(np.maximum(np.diagonal(S, axis1=-2, axis2=-1), 0.0))
    share = r * axes
    more = 0.0 if m is None else np.linalg.norm(m * axes, axis=-1, keepdims=True)
    return np.asarray(share * (2.0 * share.sum(axis=-1, keepdims=True) + more))


_WIDENED, _MARGIN = 2.0**-43, 2.0**37
"""The slopes of a step are wider than those that its hints were made for, by about the first. With D_e what was added,
(D_r + D_e) S (D_r + D_e) is at most (1 + θ) D_r S D_r + (1 + 1/θ) D_e S D_e: hints with a margin θ above the inverse of
the second stay feasible."""


def enlarged(hint: Array, S: Array, r: Array, m: Array) -> Iterator[Array]:
    """Multipliers to try in turn: the hint, ever larger ones, and last safe ones, also with room for rounding.

    T is feasible if t = λmax(T^-½ D_r S D_r T^-½) < 1, so T is enlarged by multiples of t - 1.
    """
    safe = dominating(S, r, m)
    yield (T := np.where((hint > 0) & (hint < np.inf), hint, safe))
    T = T + _MARGIN * dominating(S, np.minimum(r, _WIDENED * (1.0 + np.abs(m) + r)))
    h = np.divide(r, np.sqrt(T), out=np.zeros(T.shape), where=(r > 0.0) & (T > 0.0))
    found, _ = _top(np.nan_to_num(h[..., :, None] * S * h[..., None, :], posinf=0.0, neginf=0.0))
    gap = np.maximum(found - 1.0, 2.0**-52)[..., None]
    for power in range(1, 54, 2):
        yield np.where(gap < 1.0, T * (1.0 + np.minimum(2.0**power * gap, 1.0)), safe)
    yield safe
    yield 1.5 * safe


_LEAST, _MOST = 2.0**-800, 2.0**800
"""A step takes multipliers between these."""


def factored(
    hint: Array, S: Array, r: Array, m: Array, part: Array, active: Array, width: Array
) -> tuple[Array, Array]:
    """Multipliers T of the active neurons, as hinted or enlarged, and about the Cholesky factors of C = I - D_h S D_h.

    h = T^-½·width, of the active neurons, and S is their ``part`` of it. T is the first that gives a C that has a
    factor. What happens to a region does not depend on the others of its stack.
    """
    T, L, left = np.ones(width.shape), np.zeros(part.shape), np.arange(len(width))
    for tried in enlarged(hint, S, r, m):
        T[left] = np.clip(np.take_along_axis(tried, active, -1)[left], _LEAST, _MOST)
        h = width[left] / np.sqrt(T[left])
        core = h[:, :, None] * part[left]
        core *= -h[:, None, :]
        np.einsum("kii->ki", core)[...] += 1.0
        L[left], good = cholesky(core)
        left = left[~good]
        if not left.size:
            return T, L
    raise ProofFailed("no multipliers near the hints make the step of a layer valid")


def cholesky(stack: Array) -> tuple[Array, Array]:
    """Cholesky factors of a stack, and which of the matrices have one."""
    try:
        return np.linalg.cholesky(stack), np.ones(len(stack), dtype=bool)
    except np.linalg.LinAlgError:
        if len(stack) == 1:
            return np.zeros(stack.shape), np.zeros(1, dtype=bool)
    factors, good = zip(*(cholesky(one[None]) for one in stack), strict=True)
    return np.concatenate(factors), np.concatenate(good)


def split_rate(rows: Array, radius: Array, below: Array, above: Array, halvings: int = 24) -> Array:
    """The λ that makes the bound of a clipped ball's support function sharp; 0 where nothing needs splitting.

    The box reaches from ``below`` to ``above`` around the ball's centre. For any λ > 0 put y = clip(a/λ, below, above)
    and split a = λy + (a - λy): the ball bounds the first part by δλ‖y‖, and the box the second by (a - λy)·y, since
    a - λy is nonzero only where y is at the limit that its sign asks for. Bisection on λ brings ‖y‖ to δ, where the sum
    is the maximum itself.
    """
    size = np.linalg.norm(rows, axis=-1)
    live = (size > 0) & (radius > 0)
    high = np.log(np.where(live, size, 1.0) / np.where(radius > 0, radius, 1.0))
    low = high - 40.0
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        y = np.clip(rows * np.exp(-middle)[..., None], below, above)
        length = np.sqrt(np.einsum("...i,...i->...", y, y))
        short = length < radius
        high, low = np.where(short, middle, high), np.where(short, low, middle)
    return np.where(live, np.exp(0.5 * (low + high)), 0.0)


def _apply(matrix: Array, x: Array) -> Array:
    return np.asarray(x @ matrix.T) if matrix.ndim == 2 else matvec(matrix, x)


def _turned(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


def _norm(numbers: Array, image: Callable[[Array], Array]) -> Array:
    """About the largest eigenvalue of a positive semidefinite map, (count, 1)."""
    return powers(image, 1.0 + 0.5 * np.cos(numbers + 1.0), _POWERS)[0]  # rows often add up to zero: no ones


class Hinted(Guide):
    """The choices of a guide: T as hinted for a view, a closed form where that is zero; lines of least area."""

    def __init__(self, hint: Callable[[Any], Array], *enclosures: Any) -> None:
        self.hint, self.enclosures = hint, enclosures

    @classmethod
    def relative(cls, layers: Sequence[Array], *enclosures: Any) -> Self:
        """By log2(T/(r² S_jj)) per layer, (count, neurons), which also serves a part whose S is far smaller."""

        def hint(view: Any) -> Array:
            log = layers[view.index]
            log = view.narrow(np.where(np.isfinite(log), log, -2000.0))  # 2⁻²⁰⁰⁰ is zero
            r = 0.5 * (view.beta - view.alpha)
            return np.asarray(np.exp2(log) * (r * r * view.variance))

        return cls(hint, *enclosures)

    @classmethod
    def absolute(cls, hints: Any, *enclosures: Any) -> Self:
        """By the multipliers of a pass over the whole region, if there was one."""

        def hint(view: Any) -> Array:
            T = np.zeros((1, view.size))
            if hints is not None and view.index < len(hints.multipliers):
                T[0] = np.ldexp(hints.multipliers[view.index], 2 * (hints.exponents[view.index] - view.exponent[0]))
            return np.asarray(view.narrow(T))

        return cls(hint, *enclosures)

    def multipliers(self, view: Any) -> Array:
        r, m, T = 0.5 * (view.beta - view.alpha), 0.5 * (view.alpha + view.beta), self.hint(view)
        missing = (T <= 0.0) & (r > 0.0)
        return np.where(missing, closed_form(view.S, m, r, view.ahead, view.neurons), T) if missing.any() else T

    def lines(
        self, which: int, index: int, neurons: Neurons, numbers: Array, interval: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        return suggested_lines(neurons, interval)


def advised(sweep: Any, advise: bool) -> tuple[Array, Array]:
    """Hints for the parts of each region of a proved sweep, and the shares of the neurons, (count, neurons) each.

    Hints are log2(T/(r² S_jj)), better than those of the sweep with ``advise``; -inf is none. A share estimates
    T_j a_j² over the squared bound, a the directions in which the bound is attained.
    """
    blank = np.zeros((sweep.count, 0))
    hints: list[Array] = []
    shares: list[Array] = []
    back = directions(sweep.S) if advise else np.zeros((sweep.count, 0, sweep.network.outputs))
    exponent = sweep.exponent
    for view, step, (alpha, beta) in zip(sweep.views[::-1], sweep.steps[::-1], sweep.slopes[::-1], strict=True):
        a = np.ldexp(times(back, view.ahead), (view.exponent - exponent)[:, None, None])
        exponent = view.exponent
        r = np.take_along_axis(view.narrow(0.5 * (beta - alpha)), step.active, -1)
        T, base = step.lifted / (step.g * step.g), np.take_along_axis(view.variance, step.active, -1)
        change, rise, back = advice(a, T, step.active, step.m, step.h, step.L, step.X)
        values, blame = np.log2(T / (r * r * base)) + change, np.nan_to_num(rise, posinf=0.0) + _TINY
        for found, column, empty in ((hints, values, -np.inf), (shares, blame, 0.0)):
            full = np.full(step.m.shape, empty)
            np.put_along_axis(full, step.active, np.where((step.h > 0.0) & ~np.isnan(column), column, empty), -1)
            found.append(_wide(view, full, empty))
        back = _wide(view, back, 0.0)
    hint, share = (np.concatenate([blank, *found[::-1]], axis=-1) for found in (hints, shares))
    return np.round(hint * _STEPS) / _STEPS if advise else hint, share


def _wide(view: Any, values: Array, empty: float) -> Array:
    """Values (count, ..., k) of what is kept, as values of the layer's neurons."""
    if view.neurons is None:
        return values
    full = np.full((*values.shape[:-1], view.size), empty)
    where = view.neurons if values.ndim == 2 else np.broadcast_to(view.neurons[:, None, :], values.shape)
    np.put_along_axis(full, where, values, -1)
    return full


def directions(S: Array) -> Array:
    """The directions d in which an ellipsoid S (count, n, n) is largest, (count, few, n), for :func:`advice`.

    Their dᵀSd are weights that add up to one.
    """
    values, vectors = np.linalg.eigh(S)
    top, values = _turned(vectors[..., -_TOP:]), np.maximum(values[..., -_TOP:, None], _TINY)
    weights = (values / values[:, -1:]) ** _SHARPNESS
    return np.asarray(top * np.sqrt(weights / weights.sum(axis=1, keepdims=True) / values))


def advice(a: Array, T: Array, active: Array, m: Array, h: Array, L: Array, X: Array) -> tuple[Array, Array, Array]:
    """How to change the logarithms of the multipliers of one step, for directions a (count, d, n) after it.

    ``a`` is scaled so that the squared bound is one. With x = D_m a, C = I - D_h S D_h and q = C⁻¹ D_h S x, h = r T^-½,
    the derivative of the squared bound by log T_j is T_j a_j² - q_j², squares added up over the directions. A barrier
    -μ log det C keeps away from multipliers that are too small for S: it adds μ(1 - (C⁻¹)_jj). The change is in
    proportion to the derivative over the sum of its parts' sizes.

    Returns
    -------
    The change; T_j Σ a_j² of the active neurons, (count, active); the directions before the step, (count, d, n).
    """
    back = m[:, None, :] * a
    if not active.shape[-1]:
        return np.zeros(active.shape), np.zeros(active.shape), back
    inverse = np.stack([linalg.lapack.dtrtri(one.T, lower=0)[0].T for one in L])
    q = a @ _turned(X) @ inverse  # (count, d, active)
    pull = np.zeros(a.shape)
    np.put_along_axis(pull, np.broadcast_to(active[:, None, :], q.shape), h[:, None, :] * q, -1)
    rise = T * (np.take_along_axis(a, active[:, None, :], -1) ** 2).sum(axis=1)
    fall = (q**2).sum(axis=1)
    near = (inverse**2).sum(axis=1)
    change = _PACE * (fall - rise + _BARRIER * (near - 1.0)) / (fall + rise + _BARRIER * (near + 1.0))
    return np.nan_to_num(change), rise, back + pull


_MIXED = 16
"""Directions at most: with all of 784 axes entries are 1 % less, and the advice takes as long as the pass."""
_FURTHER = 3.0
"""The change of log2 T, in steps of :func:`advice`; of 1, 1.5, 2 and 3 this gives the least entries in a pass."""


def improved(axes: Array, weights: Sequence[Weight], done: Sequence[tuple[Any, Array, Array]]) -> list[Array]:
    """Multipliers T/size, (count, n) a layer, better for ellipsoids that end with ``axes`` (count, outputs).

    Each step is given with its exponent and size, and followed by its weight; only the last of its stack are meant. All
    axes count alike, relative to their lengths: as directions, or as random sums of them where they are many.
    """
    (count, n), found, before = axes.shape, list[Array](), np.zeros(1, dtype=int)
    signs = np.eye(n) if n <= _MIXED else np.random.default_rng(0).choice([-1.0, 1.0], (_MIXED, n)) / np.sqrt(_MIXED)
    back = signs / (np.sqrt(n) * np.maximum(axes, _TINY)[:, None, :])
    for (step, exponent, size), weight in zip(done[::-1], weights[::-1], strict=True):
        exponent, size = exponent[-count:], size[-count:]
        a, before = np.ldexp(times(back, weight), (exponent - before)[:, None, None]), exponent
        parts = step.lifted / (step.g * step.g), step.active, step.m, step.h, step.L, step.X
        T, active, m, h, L, X = (part[-count:] for part in parts)
        change, _, back = advice(a, T, active, m, h, L, X)
        found.append(np.zeros(m.shape))
        np.put_along_axis(found[-1], active, T * np.exp2(_FURTHER * change) / size, -1)
    return found[::-1]


def kinked(network: Network, low: Sequence[Array], high: Sequence[Array]) -> Array:
    """Whether a slope may jump inside each piece: to second order such a jump is never resolved."""
    found = np.zeros(len(low[0]) if low else 0, dtype=bool)
    for layer, below, above in zip(network.layers, low, high, strict=False):
        for row, index in layer.neurons.groups if layer.neurons else ():
            ends = np.nextafter(below[:, index], -np.inf), np.nextafter(above[:, index], np.inf)
            for knot, inside in row.knots_inside(*ends) if row.row.kinks else ():
                found |= (inside & (row.slope(knot, -1) != row.slope(knot, 1))).any(axis=-1)
    return found


_AROUND = 12
"""Of the search for an ellipsoid around a cube."""
_SMALL = 64
"""Sizes up to which all eigenvalues are found."""
_FLOOR = 1e-9
"""Least share of a coordinate of the cube, relative to the mean."""
_ROOM = 0.02
"""Share of the ellipsoid that a start spreads evenly: the Jacobian elsewhere has other small entries."""


def start_near(
    network: Network,
    points: Sequence[Array],
    norms: Norms,
    known: Sequence[tuple[Array, Array]] = (),
) -> Array | None:
    """Axes h of a good ellipsoid P_0 = D_h² for regions around some points; None where the norm needs none.

    It is good for the Jacobians at the points; without points, for that with the middle of the slopes on intervals.
    """
    if norms.input.name != "linf":
        return None
    with np.errstate(all="ignore"):
        if len(points) and all(len(point) == network.inputs for point in points):
            matrix = np.concatenate([network.jacobian(point) for point in points])
        else:
            ranges = []
            for index, layer in enumerate(network.layers[:-1]):
                assert layer.neurons is not None
                ends = known[index] if known else (-np.inf, np.inf)
                ranges.append(layer.neurons.slope_range(*(np.broadcast_to(end, (layer.size,)) for end in ends)))
            matrix = network.jacobian_of([0.5 * (alpha + beta) for alpha, beta in ranges])
        sizes = np.abs(np.nan_to_num(matrix, posinf=0.0, neginf=0.0))
        if not sizes.any():
            return np.ones(matrix.shape[-1])
        q = _row_by_row(sizes) if norms.output.name == "linf" else shares_around(matrix)
        q = q + _ROOM / matrix.shape[-1]
        return np.asarray(1.0 / np.sqrt(q / q.sum()))


def shares_around(matrix: Array) -> Array:
    """Shares q > 0 with Σq = 1 that make the norm of M D_q^-½ small, (..., n), for matrices M (..., m, n).

    With v the right singular vector of M D_q^-½, q = v² at the best q where it is unique. Rounds of q ← sqrt(q v²);
    of a single row the first is exact.
    """
    n = matrix.shape[-1]
    matrix = np.nan_to_num(matrix, posinf=0.0, neginf=0.0)
    matrix = matrix / np.maximum(np.abs(matrix).max(axis=(-2, -1), keepdims=True), 1e-300)
    wide = matrix.shape[-2] < n
    S = matrix if wide else np.swapaxes(matrix, -1, -2) @ matrix
    q = best = np.full((*matrix.shape[:-2], n), 1.0 / n)
    least = np.full(matrix.shape[:-2], np.inf)
    for _ in range(_AROUND):
        h = 1.0 / np.sqrt(q)
        rows = matrix * h[..., None, :]
        value, v = _top(rows @ np.swapaxes(rows, -1, -2) if wide else h[..., :, None] * S * h[..., None, :])
        better = value < least
        best, least = np.where(better[..., None], q, best), np.where(better, value, least)
        v = matvec(np.swapaxes(rows, -1, -2), v) if wide else v
        share = np.sqrt(q) * np.abs(v) + 1e-300
        share = share / share.sum(axis=-1, keepdims=True) + _FLOOR / n
        q = share / share.sum(axis=-1, keepdims=True)
    return best


_NEWTON, _FALL = 12, 0.4
"""Steps, and what they leave of the barrier: the sum is then within 1e-4 of the least for random forms of 12 to 256."""
_SIGNS = 256
"""Rows up to which that takes less than half a second."""


def diagonal_over(S: Array) -> Array:
    """D ≽ S, nearly, of about the least trace for matrices S (..., n, n): the dual of the largest σᵀSσ over signs σ.

    Newton's method for Σ d_i - μ log det(D - S), μ → 0, from a D that is diagonally dominant. For large matrices d is
    in proportion to the lengths of their rows.
    """
    if S.shape[-1] > _SIGNS:
        size = np.linalg.norm(S, axis=-1) + _TINY
        scaled = S / np.sqrt(size[..., None, :] * size[..., :, None])
        return np.asarray(size * largest_eigenvalue(scaled.reshape(-1, *S.shape[-2:])))
    d = 1.01 * np.abs(S).sum(axis=-1) + _TINY
    for one, matrix in zip(d.reshape(-1, d.shape[-1]), S.reshape(-1, *S.shape[-2:]), strict=True):
        with suppress(np.linalg.LinAlgError):
            mu = 0.1 * one.mean()
            for _ in range(_NEWTON):
                inverse = np.linalg.inv(np.diag(one) - matrix)
                step = np.linalg.solve(inverse * inverse, np.diagonal(inverse) - 1.0 / mu)
                while np.linalg.eigvalsh(np.diag(one + step) - matrix)[0] <= 0.0:
                    step *= 0.5
                one += 0.9 * step
                mu *= _FALL
            one += np.linalg.eigvalsh(matrix - np.diag(one))[-1]
    return d


def _row_by_row(sizes: Array) -> Array:
    """Shares q > 0 with Σq = 1 that make the largest Σ_j a_ij²/q_j of a row small, (n,), for sizes a (m, n).

    At the best q, q_j is the root of Σ_i λ_i a_ij² for weights λ of the rows; rows that count too much get more weight.
    """
    scaled = np.maximum(sizes / sizes.max(), _FLOOR)
    weights = np.ones(len(sizes))
    best, least = np.ones(sizes.shape[1]), np.inf
    for _ in range(2 * _AROUND):
        q = np.linalg.norm(np.sqrt(weights)[:, None] * scaled, axis=0)
        q = q / q.sum()
        rows = (scaled * (scaled / q)).sum(axis=1)
        if rows.max() < least:
            best, least = q, float(rows.max())
        weights = weights * rows / rows.max()
    return best


def _top(S: Array) -> tuple[Array, Array]:
    """About the largest eigenvalue of each matrix of a stack, and its vector; of large ones by a few powers."""
    if S.shape[-1] <= _SMALL:
        values, vectors = np.linalg.eigh(S)
        return values[..., -1], vectors[..., -1]
    start = 1.0 + 0.5 * np.cos(np.arange(S.shape[-1]) + 1.0) + np.zeros(S.shape[:-1])
    size, v = powers(lambda x: matvec(S, x), start, _AROUND)
    return size[..., 0], v


_CONJUGATE = 400
"""Steps of conjugate gradients at most."""
_ENOUGH = 1e-13
"""What is left of the right-hand side, relatively, when conjugate gradients stop."""
_EIGENVALUE = 40
"""Steps of Lanczos's method for a guess of an eigenvalue; the power method falls short by 1 % for random kernels."""
_ABOVE = 1e-3
"""How much above what they find an eigenvalue is guessed: a guess below it would prove nothing."""


def solved(weight: Weight, B: Array, row: Array, mu: float) -> Array:
    """Nearly (μ - WᵀBW)⁻¹row, B a matrix or the diagonal of one, by conjugate gradients."""
    back = weight.T
    y, rest, way = np.zeros(len(row)), np.array(row), np.array(row)
    left = float(rest @ rest)
    goal = _ENOUGH * _ENOUGH * left
    for _ in range(_CONJUGATE):
        inner = weight @ way
        image = mu * way - back @ (B * inner if B.ndim == 1 else B @ inner)
        curve = float(way @ image)
        if not (left > goal and curve > 0.0):
            break
        step = left / curve
        y, rest = y + step * way, rest - step * image
        now = float(rest @ rest)
        way, left = rest + (now / left) * way, now
    return np.where(np.isfinite(y), y, 0.0)


def largest_eigenvalue(S: Array) -> float:
    """A little above the largest eigenvalue of all matrices of a stack (count, n, n), by Lanczos's method."""
    x = np.random.default_rng(0).standard_normal((len(S), S.shape[-1]))
    x, before, b = x / np.linalg.norm(x, axis=-1, keepdims=True), 0.0 * x, np.zeros((len(S), 1))
    T = np.zeros((len(S), _EIGENVALUE + 1, _EIGENVALUE + 1))
    for k in range(_EIGENVALUE):
        y = matvec(S, x) - b * before
        a = (x * y).sum(axis=-1, keepdims=True)
        y = y - a * x
        b = np.linalg.norm(y, axis=-1, keepdims=True)
        T[:, k, k], T[:, k + 1, k] = a[:, 0], b[:, 0]
        before, x = x, y / np.maximum(b, _TINY)
    top = np.linalg.eigvalsh(T[:, :-1, :-1])[:, -1] if np.isfinite(T).all() else T[:, 0, 0] + np.nan
    return float(top.max()) * (1.0 + _ABOVE)


def matvec(matrices: Array, vectors: Array) -> Array:
    """Matrices (..., m, n) times vectors (..., n), stack by stack."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def powers(image: Callable[[Array], Array], x: Array, rounds: int) -> tuple[Array, Array]:
    """About the largest eigenvalue of a positive semidefinite map, (..., 1), and its vector, by powers from x."""
    value = np.zeros((*x.shape[:-1], 1))
    for _ in range(rounds):
        x = image(x)
        value = np.linalg.norm(x, axis=-1, keepdims=True)
        x = x / np.maximum(value, _TINY)
    return value, x


def lowest(M: Array) -> float:
    """About the t for which M + t·e_0e_0ᵀ is just semidefinite."""
    try:
        factor = linalg.cholesky(M[1:, 1:], lower=True, check_finite=False)
    except linalg.LinAlgError:
        raise ProofFailed("the multipliers make no definite form") from None
    y = linalg.solve_triangular(factor, M[1:, 0], lower=True, check_finite=False)
    return float(y @ y - M[0, 0])


def triangular_factor(weight: Array) -> tuple[Array, Array, Array] | None:
    """R, Q and R⁻¹, nearly, with weight = R·Q, R triangular and the rows of Q orthonormal; None if R is singular."""
    back, lower = linalg.qr(weight.T, mode="economic", check_finite=False)
    R, rows = np.ascontiguousarray(lower.T), np.ascontiguousarray(back.T)
    try:
        return R, rows, linalg.solve_triangular(R, np.eye(len(R)), lower=True, check_finite=False)
    except linalg.LinAlgError:
        return None
