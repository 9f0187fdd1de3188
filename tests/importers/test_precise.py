"""Numbers beyond double precision: the true value is never farther from the parts than the error says."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lipcert.importers.precise import Precise, PreciseMatrix, distilled
from rational import ALLOWED, number_at, times

anything = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(min_value=2.0**-200, max_value=2.0**200)


def _assert_holds(numbers: Precise, truth: Fraction) -> None:
    """|parts - truth| ≤ error, for a single number; infinities claim nothing."""
    parts, error = numbers.parts.reshape(-1), float(numbers.error.reshape(()))
    if np.isfinite(parts).all() and np.isfinite(error):
        assert abs(sum((Fraction(float(p)) for p in parts), Fraction(0)) - truth) <= Fraction(error)
    value, good = numbers.rounded()
    if good.all():
        assert abs(Fraction(float(value.reshape(()))) - truth) <= ALLOWED * abs(Fraction(float(value.reshape(()))))


@given(st.lists(anything, min_size=1, max_size=12))
def test_sums_hold(terms: list[float]) -> None:
    total = distilled((np.array([t]) for t in terms), np.zeros(1))
    _assert_holds(total, sum((Fraction(t) for t in terms), Fraction(0)))


@given(anything, anything, anything, anything)
def test_sums_and_products_hold(a: float, b: float, c: float, d: float) -> None:
    product = (Precise.of(a) + b) * (Precise.of(c) - d)
    _assert_holds(product, (Fraction(a) + Fraction(b)) * (Fraction(c) - Fraction(d)))


@given(moderate, st.floats(min_value=-0.4, max_value=0.4), st.booleans())
def test_reciprocals_and_roots_hold(size: float, rest: float, negative: bool) -> None:
    number = Precise.of(-size if negative else size) + rest * size
    truth = Fraction(-size if negative else size) + Fraction(rest * size)
    inverse = number.reciprocal()
    assert inverse.rounded()[1].all()
    assert float(inverse.error) <= 2.0**-130 * abs(float(inverse.nearest))
    _assert_holds(inverse, 1 / truth)
    if negative:
        return
    root = number.inverse_root()
    assert root.rounded()[1].all()
    assert float(root.error) <= 2.0**-130 * abs(float(root.nearest))
    low, high = (sum(Fraction(float(p)) for p in root.parts) + s * Fraction(float(root.error)) for s in (-1, 1))
    assert low * low * truth <= 1 <= high * high * truth


def test_reciprocals_and_roots_out_of_range_are_refused() -> None:
    for number in (5e-324, 0.0, np.inf, np.nan):
        assert not Precise.of(number).reciprocal().rounded()[1].any()
    for number in (0.0, -1.0, np.inf, np.nan):
        assert not Precise.of(number).inverse_root().rounded()[1].any()


def test_arrays_on_the_left_are_understood() -> None:
    numbers = Precise.of(np.array([0.1, 0.2]))
    for result in (np.array([3.0, 4.0]) * numbers, np.float64(3.0) * numbers, np.array([3.0, 4.0]) - numbers):
        assert isinstance(result, Precise)


def test_powers_of_two_stayfractions() -> None:
    powers = 2.0 ** np.arange(-60, 60)
    assert not Precise.of(powers).reciprocal().error.any()
    assert not Precise.of(powers**2).inverse_root().error.any()


@given(seed=st.integers(0, 10**6))
def test_matrix_products_hold_at_any_scale(seed: int) -> None:
    """Entries from subnormal to huge, errors, several parts: the exact product lies within the stated error."""
    rng = np.random.default_rng(seed)
    reach = float(rng.choice([1.0, 30.0, 160.0, 300.0]))

    def random(rows: int, columns: int) -> PreciseMatrix:
        parts = rng.standard_normal((2, rows, columns)) * 10.0 ** rng.uniform(-reach, reach, (2, rows, columns))
        parts[:, rng.random((rows, columns)) < 0.3] = 0.0
        values = distilled(parts.reshape(2, -1), rng.choice([0.0, 1e-40], rows * columns))
        row, column = np.indices((rows, columns)).reshape(2, -1)
        return PreciseMatrix.of_entries((rows, columns), row, column, values)

    def ends(matrix: PreciseMatrix, sign: int) -> list[list[Fraction]]:
        full = [[Fraction(0)] * matrix.shape[1] for _ in range(matrix.shape[0])]
        for e, (i, j) in enumerate(zip(matrix.rows, matrix.indices, strict=True)):
            full[i][j] = number_at(matrix.values, e) + sign * Fraction(float(matrix.values.error[e]))
        return full

    one, two = random(3, 4), random(4, 2)
    product = one @ two
    if not np.isfinite(product.values.parts).all() or not np.isfinite(product.values.error).all():
        return
    low, high = ends(product, -1), ends(product, 1)
    for s, t in itertools.product((-1, 0, 1), repeat=2):
        truth = times(ends(one, s), ends(two, t))
        for i, j in np.ndindex(3, 2):
            assert low[i][j] <= truth[i][j] <= high[i][j]
