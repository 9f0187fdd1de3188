"""Numbers with their errors: every operation against exact fractions, with cancellation, underflow and overflow."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lipcert.kernel import arithmetic as near
from lipcert.kernel.arithmetic import ULPS, Approx, Near, Size, rounded_off, sum_above
from lipcert.model.arrays import Array, dense

Maker = Callable[[np.random.Generator, tuple[int, ...]], Array]


def plain(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice([-1.0, 1.0], shape) * (1.0 + 2.0**-50 * rng.integers(0, 9, shape))


def ill_scaled(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-150, 150, shape)


def subnormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), 5e-324 * rng.integers(-99, 99, shape))


def faint(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers whose products underflow, some of them to numbers that are not zero."""
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-200, -140, shape)


MAKERS: list[Maker] = [plain, cancelling, ill_scaled, subnormal, faint]


def exactly(values: Array) -> Array:
    """The same numbers as fractions."""
    return np.array([Fraction(float(x)) for x in np.ravel(values)], dtype=object).reshape(np.shape(values))


def somewhere(rng: np.random.Generator, number: Near) -> Array:
    """Real numbers that a Near stands for, often at its ends."""
    share = rng.choice(np.array([-1, 0, 1, Fraction(1, 3)], dtype=object), number.shape)
    return exactly(number.value) + exactly(np.broadcast_to(number.error, number.shape)) * share


def made(rng: np.random.Generator, maker: Maker, shape: tuple[int, ...]) -> Near:
    """Numbers of a kind, exact or with errors of their own size or far smaller."""
    value = maker(rng, shape)
    size = rng.choice([0.0, 2.0**-53, 1e-3])
    return Near(value, np.abs(maker(rng, shape)) * size) if rng.random() < 0.5 else Near.of(value)


def misses(found: Near, truth: Array) -> bool:
    """Whether a true number is out of reach; where the error is not finite nothing was said."""
    value, error = (np.ravel(np.broadcast_to(part, found.shape)) for part in (found.value, found.error))
    told = np.isfinite(value) & np.isfinite(error)
    pairs = zip(exactly(value[told]), exactly(error[told]), np.ravel(truth)[told], strict=True)
    return any(abs(t - v) > e for v, e, t in pairs)


def wrong(operation: str, rng: np.random.Generator, maker: Maker) -> bool:
    """Whether one operation on random numbers loses more than it says."""
    a, b = made(rng, maker, (3, 4)), made(rng, maker, (4, 2) if operation == "@" else (3, 4))
    x, y = somewhere(rng, a), somewhere(rng, b)
    if operation == "/":
        some = np.array([abs(t) > 0 for t in np.ravel(y)]).reshape(y.shape)
        return misses((a / b).replace(~some, np.inf), np.where(some, x, 0) / np.where(some, y, 1))
    if operation == "sum":
        return misses(a.sum(-2), x.sum(axis=-2))
    if operation == "root":
        positive = Near(np.abs(a.value), a.error)
        t = np.maximum(somewhere(rng, positive), 0)
        root = positive.root()
        ends = zip(np.ravel(root.value), np.ravel(root.error), np.ravel(t), strict=True)
        return any(
            not max(Fraction(v) - Fraction(e), Fraction(0)) ** 2 <= t <= (Fraction(v) + Fraction(e)) ** 2
            for v, e, t in ends
            if np.isfinite(v) and np.isfinite(e)
        )
    if operation == "shifted":
        power = int(rng.integers(-1000, 1000))
        return misses(a.shifted(power), x * Fraction(2) ** power)
    if operation == "through":
        weight = maker(rng, (5, 4))
        true = exactly(weight) * (1 + exactly(rng.choice([-1.0, 1.0], weight.shape)) * Fraction(ULPS, 2**53))
        found = a.through(sparse.csr_array(weight) if rng.random() < 0.5 else weight)
        return misses(found, x @ true.T)
    results = {"+": lambda: (a + b, x + y), "-": lambda: (a - b, x - y), "*": lambda: (a * b, x * y)}
    return misses(*results.get(operation, lambda: (a @ b, x @ y))())


def approx(rng: np.random.Generator, maker: Maker, shape: tuple[int, int]) -> tuple[Approx, Array]:
    """A matrix of some formula, and its exact value."""
    one, two = maker(rng, (shape[0], 3)), maker(rng, (3, shape[1]))
    kind = rng.integers(3)
    if kind == 0:
        return Approx(maker(rng, shape) + 0.0), np.zeros(0)
    if kind == 1:
        weight = maker(rng, shape)
        signs = exactly(rng.choice([-1.0, 1.0], shape)) * Fraction(ULPS, 2**53)
        stored = sparse.csr_array(weight) if rng.random() < 0.5 else weight
        return Approx.weight(stored), exactly(weight) * (1 + signs)
    return Approx(one) @ Approx(two), exactly(one) @ exactly(two)


def formula(rng: np.random.Generator, maker: Maker, which: str) -> tuple[Approx, Array]:
    """A matrix by one of the operations on matrices that have errors themselves, and its exact value."""
    if which == "entrywise":
        one, two = maker(rng, (4, 5)), maker(rng, (4, 5))
        return Approx.entrywise(one, two), exactly(one) * exactly(two)
    left, right = approx(rng, maker, (4, 5)), approx(rng, maker, (5, 4) if which == "@" else (4, 5))
    (A, a), (B, b) = ((one, exactly(dense(one.value)) if not truth.size else truth) for one, truth in (left, right))
    if which == "@":
        return A @ B, a @ b
    if which == "scaled":
        rows, columns = maker(rng, (4,)), maker(rng, (5,))
        return A.scaled(rows, columns), exactly(rows)[:, None] * a * exactly(columns)
    C, D = (Approx(dense(one.value), one._units, one._inner, one._inner_turned) for one in (A, B))
    if which == "times":
        factor = float(maker(rng, (1,))[0])
        return C.times(factor), a * Fraction(factor)
    return (C + D, a + b) if which == "+" else (C - D, a - b)


def strays(which: str, rng: np.random.Generator, maker: Maker) -> bool:
    """Whether a formula's error on some vector is larger than it says, in either direction."""
    found, truth = formula(rng, maker, which)
    if not np.isfinite(dense(found.value)).all():
        return False
    off = np.abs(truth - exactly(dense(found.value)))
    for one, errors in ((found, off), (found.T, off.T)):
        x = np.abs(maker(rng, (errors.shape[1],))) if rng.random() < 0.7 else np.ones(errors.shape[1])
        said = np.broadcast_to(one.err(None if (x == 1.0).all() else x), errors.shape[:1])
        told = np.isfinite(said)
        if any(t > s for t, s in zip((errors @ exactly(x))[told], exactly(said[told]), strict=True)):
            return True
    return False


def outside(_: str, rng: np.random.Generator, maker: Maker) -> bool:
    """Whether the sum of a vector of an ellipsoid and one of a box is seen outside the ellipsoid of all such sums."""
    M, delta = maker(rng, (4, 3)), np.abs(maker(rng, (4,))) * rng.choice([1.0, 1e-3])
    total = exactly(M[:, rng.integers(3)]) + exactly(delta) * exactly(rng.choice([-1.0, 1.0], 4))
    found = (Approx(M) @ Approx(M.T)).sum_above(delta)
    if not np.isfinite(found).all():
        return False
    worst = np.linalg.lstsq(found, total.astype(float))[0]
    S, rows = exactly(found), [*exactly(np.eye(4)), total, exactly(np.nan_to_num(worst))]
    return any((p @ total) ** 2 > p @ S @ p for p in rows)


def too_small(operation: str, rng: np.random.Generator, maker: Maker) -> bool:
    """Whether an upper bound, made by one operation on bounds of random numbers, is below its number."""
    shapes = (3, 4), (4, 2) if operation == "@" else (3, 4)
    values = [np.abs(maker(rng, shape)) for shape in shapes]
    units = [int(n) for n in rng.integers(0, 99, 2)]
    a, b = (Size(*pair) for pair in zip(values, units, strict=True))
    x, y = (exactly(value) * (1 + Fraction(n, 2**53)) for value, n in zip(values, units, strict=True))
    if operation == "lost":  # of a product of matrices of any signs, and another factor
        one, two, three = maker(rng, (3, 4)), maker(rng, (4, 2)), maker(rng, (3, 2))
        said, computed = (np.abs(one) @ Size.of(two) * three).lost(4 + 1).above, one @ two * three
        said = np.where(np.isfinite(computed), said, np.inf)
        computed = np.where(np.isfinite(computed), computed, 0.0)
        away = np.abs(exactly(one) @ exactly(two) * exactly(three) - exactly(computed))
    elif operation == "norm":
        said, away = a.length(-1).above, (x * x).sum(axis=-1)
        return any(t > Fraction(s) ** 2 for s, t in zip(said, away, strict=True) if np.isfinite(s))
    elif operation == "/":
        some = values[1] > 0.0
        said, away = (a / np.where(some, values[1], 1.0)).above, x / np.where(some, exactly(values[1]), 1)
    else:
        results = {
            "+": lambda: (a + b, x + y),
            "*": lambda: (a * b, x * y),
            "@": lambda: (a @ b, x @ y),
            "sum": lambda: (a.sum(0), x.sum(axis=0)),
            "max": lambda: (a.max(0), x.max(axis=0)),
            "least": lambda: (a.least(b), np.minimum(x, y)),
        }
        found, away = results[operation]()
        said = found.above
    return any(t > Fraction(s) for s, t in zip(np.ravel(said), np.ravel(away), strict=True) if np.isfinite(s))


CHECKS: dict[Callable[[str, np.random.Generator, Maker], bool], str] = {
    wrong: "+ - * / @ sum root through shifted",
    strays: "@ + - scaled entrywise times",
    outside: "sum",
    too_small: "+ * / @ sum max least norm lost",
}
"""What may go wrong, and the operations for which it is tried."""


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("check", "operation"), [(check, one) for check in CHECKS for one in CHECKS[check].split()])
def test_no_operation_loses_more_than_it_says(check: Any, operation: str, maker: Maker) -> None:
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        assert not any(check(operation, rng, maker) for _ in range(60))


NOTHING, SAME = (lambda n: 0.0), (lambda x: x)
LEFT_OUT: list[tuple[Any, str, Any, Maker, str]] = [
    (wrong, "U", 0.0, plain, "+ * / root"),
    (wrong, "gamma", NOTHING, plain, "@ sum through"),
    (wrong, "ETA", 0.0, faint, "* @"),
    (wrong, "ETA", 0.0, subnormal, "/"),
    (wrong, "up", SAME, ill_scaled, "shifted"),
    (strays, "gamma", NOTHING, plain, "@ entrywise times"),
    (outside, "raised", lambda S, amount: S, plain, "sum"),
    (outside, "up", lambda x: 0.9 * x, plain, "sum"),
    (too_small, "gamma", NOTHING, plain, "+ @ norm lost"),
    (too_small, "TINY", 0.0, faint, "* @ norm lost"),
]


@pytest.mark.parametrize(
    ("check", "name", "value", "maker", "operation"),
    [(*charge, operation) for *charge, operations in LEFT_OUT for operation in operations.split()],
)
def test_a_loss_that_is_left_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, check: Any, name: str, value: Any, maker: Maker, operation: str
) -> None:
    monkeypatch.setattr(near, name, value)
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        assert any(check(operation, rng, maker) for _ in range(400))


def test_a_tolerance_of_weights_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = plain(np.random.default_rng(2), (4, 4))
    off = (exactly(np.abs(weight)) * Fraction(ULPS, 2**53)).sum(axis=1)
    for units, enough in ((ULPS, True), (0, False)):
        monkeypatch.setattr(near, "ULPS", units)
        said = np.broadcast_to(Approx.weight(weight).err(), (4,))
        assert all(t <= Fraction(float(s)) for t, s in zip(off, said, strict=True)) == enough


def test_a_size_of_too_many_roundings_says_nothing() -> None:
    assert np.isinf(Size(np.ones(1), 2**24).above).all()


def test_a_sum_of_symmetric_matrices_is_below_its_bound() -> None:
    rng = np.random.default_rng(4)
    stack = rng.standard_normal((50, 1, 3, 3)) * 10.0 ** rng.uniform(-9, 9, (50, 1, 1, 1))
    stack = stack + np.swapaxes(stack, -1, -2)
    gap = exactly(sum_above(stack))[0] - exactly(stack).sum(axis=0)[0]
    beside = np.abs(gap).sum(axis=1) - np.abs(np.diagonal(gap))
    assert all(d >= rest for d, rest in zip(np.diagonal(gap), beside, strict=True))


def worst_sum(rng: np.random.Generator) -> bool:
    """Whether a sum of sixteen numbers and their squares is further off than thirty roundings may be."""
    x = rng.standard_normal(16)
    found, truth = 0.0, Fraction(0)
    for one in x:
        found, truth = found + one * one, truth + Fraction(one) ** 2
    return abs(Fraction(found) - truth) > Fraction(float(rounded_off(np.asarray(found), 32)))


def test_what_roundings_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    assert not any(worst_sum(rng) for _ in range(100))
    monkeypatch.setattr(near, "gamma", lambda n: 0.0)
    assert any(worst_sum(rng) for _ in range(100))


def test_a_sum_that_overflows_on_its_way_is_unknown() -> None:
    weight, large = np.array([[1.0, 1.0, -1.0, -1.0]]), np.full(4, 1e308)
    with np.errstate(all="ignore"):
        for found in (Near.of(large).through(weight), Near.of(weight) @ large):
            assert not (found.below > 0.0).any()
            assert not (found.above < 0.0).any()


def test_what_underflows_in_a_scaled_vector_is_charged() -> None:
    """1e-300 · 1e-50 is zero in floats; times an error of 1e185 and a factor of 1e100 it is not."""
    said = Approx.weight(np.array([[1e200]])).scaled(np.array([1e100]), np.array([1e-300])).err(np.array([1e-50]))
    true = Fraction(ULPS, 2**53) * Fraction(1e200) * Fraction(1e100) * Fraction(1e-300) * Fraction(1e-50)
    assert Fraction(float(said[0])) >= true


def test_a_shift_that_overflows_says_nothing() -> None:
    with np.errstate(all="ignore"):
        assert np.isinf(Near(np.array(1e308), np.array(5e307)).shifted(1).error)
