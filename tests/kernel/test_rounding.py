"""Error-bounded linear algebra: each inequality in exact rational arithmetic, and how tight it is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy import sparse
from test_near import Maker, faint, ill_scaled, plain, subnormal

import lipcert as lc
from exact import diagonal, matrix, positive_semidefinite, rational
from lipcert.errors import ProofFailed
from lipcert.kernel import arithmetic as near
from lipcert.kernel.arithmetic import (
    TINY,
    ULPS,
    UP,
    U,
    congruence,
    diagonal_above,
    gamma,
    inflate,
    largest_eigenvalue_above,
    norm_above,
    product,
)
from lipcert.kernel.domain import Domain, check_region, radius_above
from lipcert.kernel.enclosures import BackSubstitution
from lipcert.model.arrays import Array, Weight, dense


def graded(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows and columns of very different size."""
    m, n = shape
    rows, columns = 10.0 ** rng.uniform(-60, 60, (m, 1)), 10.0 ** rng.uniform(-60, 60, n)
    return rows * rng.standard_normal((m, n)) * columns


def repeated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.repeat(rng.standard_normal((1, shape[1])), shape[0], axis=0)


def rank_one(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows that sum to almost nothing."""
    a = rng.standard_normal(shape) * 1e8
    a[:, -1] = -a[:, :-1].sum(axis=1)
    return a


MAKERS: dict[str, Maker] = {
    "gaussian": plain,
    "whole numbers": lambda rng, shape: rng.integers(-3, 4, shape).astype(float),
    "zeros": lambda _, shape: np.zeros(shape),
    "ill-scaled": ill_scaled,
    "graded": graded,
    "subnormal": subnormal,
    "faint": faint,
    "repeated rows": repeated,
    "rank one": rank_one,
    "cancelling": cancelling,
}
every_kind = pytest.mark.parametrize("kind", MAKERS)


def square(x: Array) -> fmpq:
    return sum((rational(v) * rational(v) for v in np.ravel(x)), fmpq(0))


def test_constants() -> None:
    for n in (1, 2, 3, 17, 1000, 65_537, 10_000_000):
        exact = fmpq(n, 2**53) / (1 - fmpq(n, 2**53))
        assert exact <= rational(gamma(n)) <= exact * (1 + fmpq(1, 10**8))
        assert 1 + exact < rational(UP)
    assert U == np.finfo(float).epsneg / 1.0 == 2.0**-53


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 31, 1000, 99_999])
def test_stretched(n: int) -> None:
    rng = np.random.default_rng(n)
    x = np.concatenate([rng.random(200), 2.0 ** rng.uniform(-1074, 1000, 300), [0.0, 1.0, 1.5, 2.0 - 2**-52, 5e-324]])
    factor = 1 + fmpq(n, 2**53) / (1 - fmpq(n, 2**53))
    for value, result in zip(x, inflate(x, n), strict=True):
        assert rational(result) >= rational(value) * factor
        assert rational(result) <= rational(value) * factor * (1 + fmpq(4, 2**53)) + 2 * rational(TINY)


@every_kind
def test_norms(kind: str) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 300):
        rows = MAKERS[kind](rng, (6, n))
        if n == 300:
            rows = rows[:1]
        for row, norm in zip(rows, norm_above(rows), strict=True):
            assert rational(norm) ** 2 >= square(row)
            room = 1 + fmpq(4 * (n + 16), 2**53)
            assert rational(norm) ** 2 <= square(row) * room + rational(TINY) * (4 * rational(norm) + 1)


def symmetric(a: Array) -> Array:
    return 0.5 * a + 0.5 * a.T


def as_sparse(a: Array) -> Weight:
    return sparse.csr_array(np.where(np.random.default_rng(0).random(a.shape) < 0.5, a, 0.0))


def form(weight: fmpq_mat, P: Array | None) -> fmpq_mat:
    """W P Wᵀ, exactly."""
    return weight * weight.transpose() if P is None else weight * matrix(P) * weight.transpose()


def wild(rng: np.random.Generator, n: int) -> list[Array]:
    """Symmetric matrices: indefinite, semidefinite, of very different scales, tiny, huge, and zero."""
    gaussian = rng.standard_normal((n, n))
    scales = 10.0 ** rng.uniform(-60, 60, n)
    whole = symmetric(gaussian @ gaussian.T)
    found = [symmetric(gaussian), whole, scales[:, None] * whole * scales, 1e-250 * whole, 1e200 * whole, 0.0 * whole]
    return [symmetric(P) for P in found]


@every_kind
@pytest.mark.parametrize("storage", ["dense", "sparse", "stack"])
def test_products_of_stacks(kind: str, storage: str) -> None:
    """H, Ŝ and the diagonal for several matrices at once; the weight is one for all, or one for each."""
    rng = np.random.default_rng(15)
    for m, n in ((1, 1), (4, 3), (3, 6)):
        stack = np.stack(wild(rng, n))
        made = np.stack([MAKERS[kind](rng, (m, n)) for _ in stack])
        made[:, 0] = 0.0 if m > 1 else made[:, 0]
        weight: Weight = {"dense": made[0], "sparse": as_sparse(made[0]), "stack": made}[storage]
        whole = made if storage == "stack" else np.broadcast_to(dense(weight), made.shape)
        with np.errstate(all="ignore"):
            half, S, squares = product(weight, stack), congruence(stack, weight), diagonal_above(stack, weight)
            reused = congruence(stack, weight, half), diagonal_above(stack, weight, half)
        np.testing.assert_array_equal(reused[0], S)
        np.testing.assert_array_equal(reused[1], squares)
        assert half.shape == made.shape
        for k, P in enumerate(stack):
            np.testing.assert_array_equal(S[k], S[k].T)
            exact = form(matrix(whole[k]), P)
            if np.isfinite(S[k]).all():
                assert positive_semidefinite(matrix(S[k]) - exact)
            if np.isfinite(S[k]).all() and storage != "stack":
                size = form(matrix(np.abs(whole[k])), np.abs(P))
                floor = 64 * rational(TINY) * (1 + sum((rational(abs(x)) for x in whole[k].ravel()), fmpq(0)))
                most = fmpq(16 * (n + ULPS) * m, 2**53) * max(sum(row, fmpq(0)) for row in size.table()) + floor
                assert all(abs(entry) <= most for entry in (matrix(S[k]) - exact).entries())  # by some last places
            for i in range(m):
                if not whole[k][i].any():
                    assert squares[k][i] == 0.0
                elif squares[k][i] < np.inf:  # NaN says nothing
                    assert rational(squares[k][i]) >= exact[i, i]
            if kind == "gaussian" and k in (1, 3, 4):  # of moderate entries, relatively
                most = max(float(np.abs(whole[k]).sum() ** 2), 1e-30) * np.abs(P).max()
                assert (np.abs(S[k] - whole[k] @ P @ whole[k].T) <= 1e-12 * most + 1e-270).all()
                assert (np.abs(squares[k] - np.diagonal(whole[k] @ P @ whole[k].T)) <= 1e-12 * most + 1e-270).all()


def test_a_diagonal_without_its_charges_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(17)
    weight = rng.standard_normal((40, 9))
    P = symmetric(np.cov(rng.standard_normal((9, 30))))
    exact = form(matrix(weight), P)
    honest = diagonal_above(P[None], weight)[0]
    assert all(rational(honest[i]) >= exact[i, i] for i in range(40))
    monkeypatch.setattr(near, "gamma", lambda n: 0.0)
    monkeypatch.setattr(near, "up", lambda x: x)
    flawed = diagonal_above(P[None], weight)[0]
    assert any(rational(flawed[i]) < exact[i, i] for i in range(40))


@every_kind
def test_raised_diagonal(kind: str) -> None:
    rng = np.random.default_rng(2)
    a = symmetric(MAKERS[kind](rng, (5, 5)))
    amount = np.abs(MAKERS[kind](rng, (1, 5)))[0]
    raised = near.raised(np.array(a), amount)
    for i in range(5):
        assert rational(raised[i, i]) >= rational(a[i, i]) + rational(amount[i])
        assert rational(raised[i, i]) <= (rational(a[i, i]) + rational(amount[i])) + rational(
            2.0 * np.spacing(abs(raised[i, i]))
        )
    off = ~np.eye(5, dtype=bool)
    assert np.array_equal(raised[off], a[off])


@every_kind
def test_largest_eigenvalue(kind: str) -> None:
    rng = np.random.default_rng(8)
    for n in (1, 2, 5, 7):
        made = MAKERS[kind](rng, (n, n))
        if kind == "ill-scaled":
            made = np.sign(made) * np.abs(made) ** 0.9  # Cholesky needs room above
        a = symmetric(made)
        with np.errstate(under="ignore"):
            top = float(largest_eigenvalue_above(a))
        assert positive_semidefinite(diagonal([top] * n) - matrix(a))
        room = 1e-12 * np.abs(a).sum(axis=1).max() + 16 * TINY
        assert not positive_semidefinite(diagonal([top - room] * n) - matrix(a))


def test_largest_eigenvalue_of_a_stack_and_of_nonsense() -> None:
    rng = np.random.default_rng(4)
    stack = np.stack([symmetric(rng.standard_normal((4, 4))) for _ in range(5)])
    for a, top in zip(stack, largest_eigenvalue_above(stack), strict=True):
        assert positive_semidefinite(diagonal([float(top)] * 4) - matrix(a))
    for bad in (np.nan, np.inf):
        with pytest.raises(ProofFailed, match="too large"):
            largest_eigenvalue_above(np.array([[1.0, bad], [bad, 1.0]]))


def test_planted_bugs_are_seen_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A congruence without its raised diagonal, and a norm rounded to nearest, are caught by the exact comparison."""
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((4, 9))
    monkeypatch.setattr(near, "raised", lambda matrix, amount: matrix)
    exact = matrix(weight) * matrix(weight).transpose()
    assert not positive_semidefinite(matrix(congruence(None, weight)) - exact)
    rows = rng.standard_normal((50, 9))
    low = [rational(float(np.linalg.norm(row))) ** 2 < square(row) for row in rows]
    assert any(low)


@every_kind
def test_size_of_a_box(kind: str) -> None:
    """The distance of a corner from the centre is more than a radius that is rounded to nearest."""
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(40):
        ends = np.sort(MAKERS[kind](rng, (2, 5)), axis=0)
        region = lc.Box(ends[0], ends[1])
        middle = [rational(c) for c in region.center]
        away = [
            max(rational(h) - c, c - rational(low))
            for low, h, c in zip(region.lower, region.upper, middle, strict=True)
        ]
        exact = sum((a * a for a in away), fmpq(0))
        assert rational(float(radius_above(region))) ** 2 >= exact
        domain = Domain.of([region])
        assert rational(domain.extent().item()) ** 2 >= exact
        assert (domain.sizes() == np.abs(ends).max(axis=0)).all()
        missed += rational(float(region.radius)) ** 2 < exact
    assert missed or kind in ("whole numbers", "zeros", "repeated rows")


def test_regions_that_no_rule_covers() -> None:
    check_region(lc.Everywhere(), 3)
    check_region(lc.Ball(np.zeros(3), 1.0, clip=(0, 1)), 3)
    for region, message in (
        (lc.Ball(np.zeros((2, 3)), [1.0, 2.0]), "not about a stack"),
        (lc.Box(np.zeros((2, 3)), np.ones((2, 3))), "not about a stack"),
        (lc.Ball(np.zeros(2), 1.0), "has 2 coordinates, the network has 3"),
    ):
        with pytest.raises(ProofFailed, match=message):
            check_region(region, 3)


def test_rows_that_cancel_pay_for_what_they_lost() -> None:
    """A row through an activation, and a multiple of the pre-activation that takes it back, in fractions."""
    slope, flat, low = 0.1, np.full((1, 1), 0.1), 2.0**-60
    network = lc.Network.from_weights([[[1.0]], [[1.0]]], activation=lc.piecewise_linear([0.0], [0.5, slope]))
    trace = BackSubstitution(network, Domain.of([lc.Box([low], [1.0])]), None)
    trace.settle((np.array([[low]]), np.array([[1.0]])), (flat, flat), (np.zeros(0), np.zeros(0)))
    for row in np.random.default_rng(0).standard_normal(50):
        back = -(row * slope)
        left = Fraction(row) * Fraction(slope) + Fraction(back)
        found = trace.above(1, np.zeros(1, dtype=int), np.array([[row]]), [np.array([[back]])])
        assert Fraction(float(found[0])) >= max(left, Fraction(low) * left)
