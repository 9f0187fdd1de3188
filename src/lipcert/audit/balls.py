"""Arrays of balls: numpy arrays of python-flint's ``arb``, and the few things that proofs ask of them.

A ball is a midpoint and a radius that holds every rounding error. A *number* is a ball without radius. The other
modules call this one ``ba``, as they call numpy ``np``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from flint import arb, arb_mat

from lipcert.definitions.functions import ball, precision
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.regions import NORMS, Norm, Norms
from lipcert.suggest.multipliers import diagonal_over

Balls: TypeAlias = Array
"""An array whose entries are balls."""
Interval: TypeAlias = tuple[Balls, Balls]
"""Lower and upper ends, two arrays of numbers."""
Proved = TypeVar("Proved")
ONE = arb(1)
BITS = (128, 384)
"""Precisions that are tried, one after the other."""
_SLACK = (2.0**-45, 2.0**-30, 2.0**-10)
_FEW = 10
"""Coordinates of a cube up to which all of its corners are tried."""


class Exhausted(ProofFailed):
    """There is no proof, and more bits would not help."""


def require(holds: Any, what: str) -> None:
    """ProofFailed, in these words, unless something holds."""
    if not holds:
        raise ProofFailed(what)


def with_enough_bits(prove: Callable[[], Proved]) -> Proved:
    """What is proved with some of the precisions."""
    failure = ProofFailed("nothing was tried")
    for bits in BITS:
        with precision(bits):
            try:
                return prove()
            except Exhausted:
                raise
            except ProofFailed as error:
                failure = error
            except (IndexError, TypeError, ValueError) as error:  # of numpy: some hints are missing, or too many
                raise Exhausted("the hints do not fit the network") from error
    raise failure


balls: Callable[[Any], Balls] = np.frompyfunc(ball, 1, 1)
"""Floats, exactly."""


def hinted(numbers: Any, *shape: int) -> Balls:
    """Floats of hints, which must have a shape."""
    require(np.shape(numbers) == shape, f"the hints do not fit the network: {np.shape(numbers)} for {shape}")
    return balls(numbers)


mid, upper, lower, size = (np.frompyfunc(getattr(arb, name), 1, 1) for name in ("mid", "upper", "lower", "abs_upper"))
rad = np.frompyfunc(lambda x: x.rad().upper(), 1, 1)
root = np.frompyfunc(lambda x: x.sqrt(), 1, 1)
hull = np.frompyfunc(lambda x, y: x.union(y), 2, 1)
larger = np.frompyfunc(lambda x, y: x if x > y or x.is_nan() else y, 2, 1)
"""The larger of two numbers; none if one of them is none."""
smaller = np.frompyfunc(lambda x, y: x if x < y or x.is_nan() else y, 2, 1)
known_smaller = np.frompyfunc(lambda x, y: x if x < y or y.is_nan() else y, 2, 1)
"""The smaller of two numbers that bound the same thing: one that is none says nothing."""
is_finite = np.frompyfunc(lambda x: x.is_finite(), 1, 1)


def largest(x: Balls, axis: int | None = None) -> Any:
    """The largest of numbers, and at least 0; none if one of them is none."""
    return larger.reduce(x if axis is not None else np.ravel(x), axis=axis or 0, initial=arb(0))


def floats(x: Balls) -> Array:
    """About the midpoints."""
    return np.asarray(x, dtype=float)


def floats_above(x: Balls) -> Array:
    """Floats above numbers: the next ones after the nearest."""
    return np.nextafter(floats(upper(x)), np.inf)


def zeros(*shape: int) -> Balls:
    return np.full(shape, arb(0), dtype=object)


def unbounded(count: int) -> Interval:
    """All of the line."""
    return np.full(count, arb.neg_inf(), dtype=object), np.full(count, arb.pos_inf(), dtype=object)


def both(one: Interval, other: Interval) -> Interval:
    """What lies in two intervals."""
    return -known_smaller(-one[0], -other[0]), known_smaller(one[1], other[1])


def around(middle: Balls, reach: Balls) -> Interval:
    """What is within reach of a middle."""
    return lower(middle - reach), upper(middle + reach)


def positive(x: Any) -> Any:
    """max(x, 0) of numbers."""
    return larger(x, arb(0))


def dot(A: Balls, B: Balls) -> Balls:
    """A·B for matrices and vectors."""
    if A.ndim == 1:
        return dot(A[None], B)[0]
    if B.ndim == 1:
        return dot(A, B[:, None])[:, 0]
    if not A.shape[1] or not A.size or not B.size:
        return zeros(A.shape[0], B.shape[1])
    return _array(arb_mat(A.tolist()) * arb_mat(B.tolist()))


def _array(matrix: arb_mat) -> Balls:
    return np.array(matrix.tolist(), dtype=object).reshape(matrix.nrows(), matrix.ncols())


def solve(A: Balls, B: Balls) -> Balls:
    """A⁻¹B."""
    try:
        return _array(arb_mat(A.tolist()).solve(arb_mat(B.tolist())))
    except ZeroDivisionError:
        raise ProofFailed("a matrix could not be told from a singular one; more bits are needed") from None


def plus_diagonal(A: Balls, entries: Balls | arb) -> Balls:
    """A matrix with something added to its diagonal."""
    found = A.copy()
    found[np.diag_indices(len(A))] += entries
    return found


def diagonal(entries: Balls) -> Balls:
    return plus_diagonal(zeros(len(entries), len(entries)), entries)


def at_least(A: Balls) -> Balls:
    """A matrix of numbers that is at least every symmetric one in the balls: mid A + diag(row sums of radii)."""
    if not len(A):
        return A
    half = (A + A.T) * ball(0.5)
    found = plus_diagonal(mid(half), upper(rad(half).sum(axis=1)))
    found[np.diag_indices(len(A))] = upper(np.diagonal(found))
    if not np.trace(found).is_finite():  # a row with anything but numbers shows up there
        raise ProofFailed("the ellipsoid of a layer is not finite")
    return found


def image(weight: Balls, P: Balls | None) -> Balls:
    """At least W P Wᵀ for every W in the balls; None is the identity."""
    return at_least(dot(weight if P is None else dot(weight, P), weight.T))


def added(S: Balls | None, sizes: Balls) -> Balls | None:
    """At least (x + y)(x + y)ᵀ for x xᵀ ≼ S and |y_j| ≤ sizes_j, as y yᵀ ≼ n·diag(sizes²); None is zero.

    (x + y)(x + y)ᵀ ≼ (1 + c) x xᵀ + (1 + 1/c) y yᵀ for every c > 0.
    """
    if sizes.sum().is_zero():
        return S
    box = upper(len(sizes) * sizes * sizes)
    if S is None or np.trace(S).is_zero():
        return at_least(diagonal(box) if S is None else plus_diagonal(S, box))
    c = (box.sum() / np.trace(S)).sqrt().mid()
    return at_least(plus_diagonal(S * (1 + c), (1 + 1 / c) * box))


def positive_definite(A: Balls) -> bool:
    """Whether a symmetric matrix is proved positive definite: Y A Yᵀ has a dominant diagonal for Y about chol(A)⁻¹.

    Any triangular Y with a positive diagonal will do, so it is made of floats, for A with ones on its diagonal.
    """
    if not all(x > 0 for x in np.diagonal(A)):
        return False
    scale = 1 / root(mid(np.diagonal(A)))
    A = scale[:, None] * A * scale
    try:
        Y = np.tril(np.linalg.inv(np.linalg.cholesky(floats(A))))
    except np.linalg.LinAlgError:
        return False
    if not (np.isfinite(Y).all() and (np.diagonal(Y) > 0).all()):
        return False
    M = dot(dot(balls(Y), A), balls(Y.T))
    return all(2 * x > row for x, row in zip(np.diagonal(M), size(M).sum(axis=1), strict=True))


def scaled_floats(A: Balls) -> tuple[Array, int]:
    """About a matrix, as floats near one times 2**exponent."""
    top = largest(size(A))
    exponent = 0
    if not top.is_zero() and top.is_finite():
        mantissa, power = top.man_exp()
        exponent = int(power) + int(mantissa).bit_length()
    return floats(A * arb(2) ** -exponent), exponent


def largest_eigenvalue(A: Balls) -> arb:
    """At least λmax of a symmetric matrix of numbers, and at least 0."""
    worst = largest(upper(np.abs(A).sum(axis=1)))
    if worst.is_zero() or not worst.is_finite() or (len(A) == 1 and A[0, 0] > 0):
        return worst
    about, exponent = scaled_floats(A)
    try:
        values = np.linalg.eigvalsh(about)
    except np.linalg.LinAlgError:
        return worst
    top, most = max(float(values[-1]), 0.0), float(np.abs(values).max())
    for slack in _SLACK:
        candidate = ((arb(top) + arb(slack) * arb(most)) * arb(2) ** exponent).upper()
        if candidate < worst and positive_definite(plus_diagonal(-A, candidate)):
            return candidate
    return worst


def spectral(A: Balls) -> arb:
    """At least the largest singular value, for every matrix in the balls."""
    return largest_eigenvalue(image(A if len(A) <= A.shape[1] else A.T, None)).sqrt().upper()


def norm(vectors: Balls) -> Any:
    """At least the Euclidean norm along the last axis."""
    return upper(root(upper((vectors * vectors).sum(axis=-1))))


def upward(x: arb) -> float:
    """The smallest float (or nearly) that is not below x."""
    found = float(x.upper())
    while not arb(found) >= x:
        found = float(np.nextafter(found, np.inf))
    return found


def vector_norms(sizes: Balls, name: str) -> Balls:
    """At least the norm of each vector (k, n) of numbers that are not negative."""
    if name == "l2":
        return norm(sizes)
    return upper(sizes.sum(axis=-1)) if name == "l1" else largest(sizes, axis=1)


def corners(n: int) -> Array:
    """The corners of a cube, one of each and its negative, (corners, n)."""
    return np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=n - 1)]).reshape(-1, n)


def ellipsoid_norm(S: Balls, output: Norm) -> arb:
    """At least the largest ‖y‖ with y yᵀ ≼ S: the root of the largest zᵀSz over the ball of the dual norm."""
    if output.name == "l2":
        return largest_eigenvalue(S).sqrt().upper()
    if output.name == "linf":
        return largest(upper(np.diagonal(S))).sqrt().upper()
    if len(S) <= _FEW:
        signs = balls(corners(len(S)))
        return largest(upper((dot(signs, S) * signs).sum(axis=1))).sqrt().upper()
    return over_signs(S).sqrt().upper()


def over_signs(S: Balls) -> arb:
    """At least the largest σᵀSσ over sign vectors σ: Σd + σᵀ(S - D)σ for any d."""
    about, exponent = scaled_floats(S)
    d = balls(np.nan_to_num(diagonal_over(about))) * arb(2) ** exponent if np.isfinite(about).all() else zeros(len(S))
    return smaller(upper(np.abs(S).sum()), (d.sum() + largest_eigenvalue(plus_diagonal(S, -d)) * len(S)).upper())


def sizes_within(interval: Interval) -> Balls:
    """At least the sizes of what lies between two ends; those of a ball around it are 2⁻³⁰ larger."""
    return larger(size(interval[0]), size(interval[1]))


def induced_norm(ends: Interval, norms: Norms) -> arb:
    """At least the norm of every matrix within ends, between the norms at its own two ends (without units)."""
    p, q = norms.pair
    if (p, q) == ("l2", "l1") or ((p, q) == ("linf", "l1") and len(ends[0]) < ends[0].shape[1]):
        turned = ends[0].T, ends[1].T
        return induced_norm(turned, Norms(NORMS[norms.output.dual](), NORMS[norms.input.dual]()))
    A, sizes = hull(*ends), sizes_within(ends)
    if p == "l1":  # the largest column
        return largest(vector_norms(sizes.T, q))
    if q == "linf":  # the largest row, in the dual norm
        return largest(vector_norms(sizes, norms.input.dual))
    if p == "l2":
        found = spectral(A)
        return known_smaller(found, spectral(sizes)) if (rad(A) > 0).any() else found
    every = vector_norms(vector_norms(sizes, "l1")[None], q)[0]
    middle, rest = mid(A), vector_norms(vector_norms(rad(A), "l1")[None], q)[0]
    if A.shape[1] <= _FEW:
        found = largest(vector_norms(size(dot(middle, balls(corners(A.shape[1])).T)).T, q))
    else:
        blocks = np.block([[zeros(len(A), len(A)), middle], [middle.T, zeros(A.shape[1], A.shape[1])]])
        found = over_signs(image(middle.T, None)).sqrt() if q == "l2" else over_signs(blocks) / 2
    return known_smaller(every, (found + rest).upper())
