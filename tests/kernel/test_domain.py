"""Regions as proofs see them: support functions against exact maxima, for stacks and for pieces of regions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from test_rounding import MAKERS, every_kind

import lipcert as lc
from lipcert.kernel import domain as module
from lipcert.kernel.arithmetic import norm_above
from lipcert.kernel.domain import Domain
from lipcert.model.arrays import Array

Rational = list[Fraction]


def exact(values: Array) -> Rational:
    return [Fraction(float(x)) for x in values]


def dot(one: Rational, two: Rational) -> Fraction:
    return sum((a * b for a, b in zip(one, two, strict=True)), Fraction(0))


def farthest(row: Rational, low: Rational, high: Rational, radius: Fraction) -> tuple[Rational, bool]:
    """About the y with low ≤ y ≤ high, ‖y‖ ≤ radius and the largest row·y, exactly feasible; whether there is one.

    By the conditions of optimality y = clip(row/λ, low, high) for some λ ≥ 0, and its norm falls with λ.
    """

    def at(rate: float) -> Rational:
        aims = [a / Fraction(rate) if rate else (h if a > 0 else low_) for a, low_, h in zip(row, low, high)]
        return [min(max(aim, low_), h) for aim, low_, h in zip(aims, low, high, strict=True)]

    best = at(0.0)
    if dot(best, best) <= radius**2:
        return best, True
    few, many = 0.0, 1e300  # the norm at the second is that of the point nearest to the centre
    best = [min(max(Fraction(0), low_), h) for low_, h in zip(low, high, strict=True)]
    if dot(best, best) > radius**2:
        return best, False
    for _ in range(2100):
        middle = float(np.sqrt(few) * np.sqrt(many)) if few else many * 1e-3
        if not few < middle < many or many < 1e-300:
            break
        y = at(middle)
        if dot(y, y) <= radius**2:
            many, best = middle, y
        else:
            few = middle
    return best, True


def sharp(found: Fraction, true: Fraction, size: Fraction, room: float) -> None:
    """At least the maximum, and not much more."""
    assert found >= true
    assert found <= true + Fraction(room) * size + Fraction(1e-250)


def supports(domain: Domain, where: Array, rows: Array) -> Rational:
    with np.errstate(all="ignore"):
        value, error = domain.support(where, rows)
    return [v + e for v, e in zip(exact(value), exact(error), strict=True)]


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e-300, 1e100])
@pytest.mark.parametrize("count", [1, 4])
def test_supports_of_balls(count: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    center, radius = rng.standard_normal((count, 4)), rng.uniform(0.0, 2.0, count)
    domain = Domain(center, radius)
    where = rng.integers(0, count, 30)
    rows = scale * rng.standard_normal((30, 4))
    rows[3] = 0.0
    for k, row, found in zip(where, map(exact, rows), supports(domain, where, rows), strict=True):
        beyond = found - dot(row, exact(center[k]))
        assert beyond >= 0
        assert beyond**2 >= dot(row, row) * Fraction(radius[k]) ** 2
        size = sum((abs(a) for a in row), Fraction(0)) * 8
        short = beyond - Fraction(1e-14) * size - Fraction(1e-250)
        assert short <= 0 or short**2 <= dot(row, row) * Fraction(radius[k]) ** 2
    assert (domain.extent() == radius).all()
    for k in range(count):
        sizes = exact(domain.sizes()[k])
        assert all(s >= abs(c) + Fraction(radius[k]) for s, c in zip(sizes, exact(center[k]), strict=True))


@every_kind
@pytest.mark.parametrize("count", [1, 4])
def test_supports_of_boxes(count: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    for scale in (1.0, 1e-200, 1e100):
        with np.errstate(over="ignore", under="ignore"):
            drawn = np.clip(scale * MAKERS[kind](rng, (2 * count, 5)), -1e250, 1e250)
        ends = np.sort(drawn.reshape(2, count, 5), axis=0)
        ends[1, :, 2] = ends[0, :, 2]  # flat
        domain = Domain.of([lc.Box(low, high) for low, high in zip(*ends, strict=True)])
        where, rows = rng.integers(0, count, 20), rng.standard_normal((20, 5))
        for k, row, found in zip(where, map(exact, rows), supports(domain, where, rows), strict=True):
            low, high = exact(ends[0, k]), exact(ends[1, k])
            true = sum((max(a * b, a * c) for a, b, c in zip(row, low, high, strict=True)), Fraction(0))
            sharp(found, true, 10 * max(map(abs, (*low, *high))), 1e-14)
        for k, extent in enumerate(domain.extent()):
            away = [max(h - c, c - low_) for c, low_, h in zip(*(exact(x[k]) for x in (domain.center, *ends)))]
            assert Fraction(float(extent)) ** 2 >= dot(away, away)


def pieces(rng: np.random.Generator, count: int, n: int) -> Domain:
    """Balls cut to boxes; most of the boxes do not contain the centre, some just meet the ball, some are flat."""
    center = rng.standard_normal((count, n))
    radius = 10.0 ** rng.uniform(-3, 0.3, count)
    low = center + radius[:, None] * rng.uniform(-1.2, 0.5, (count, n))
    high = low + radius[:, None] * rng.uniform(0.0, 1.2, (count, n))
    flat = rng.random((count, n)) < 0.1
    return Domain(center, radius, low, np.where(flat, low, high))


def check_pieces(count: int, halvings: int, room: float) -> int:
    """How many of the pieces that have inputs do not contain the centre of their ball."""
    rng = np.random.default_rng(count)
    beside = 0
    for n in (1, 2, 5):
        made = pieces(rng, count, n)
        domain = Domain(made.center, made.radius, made.lower, made.upper, halvings)
        assert domain.radius is not None
        assert domain.lower is not None
        assert domain.upper is not None
        where = np.arange(count)
        rows = rng.standard_normal((count, n)) * 10.0 ** rng.uniform(-3, 3, (count, 1))
        empty = domain.outside()
        for k, found in zip(where, supports(domain, where, rows), strict=True):
            center, low, high = (exact(x[k]) for x in (domain.center, domain.lower, domain.upper))
            row, radius = exact(rows[k]), Fraction(float(domain.radius[k]))
            below, above = ([b - c for b, c in zip(side, center, strict=True)] for side in (low, high))
            y, meets = farthest(row, below, above, radius)
            assert not (meets and empty[k])
            if not meets:
                continue
            outside = any(low_ > 0 or h < 0 for low_, h in zip(below, above, strict=True))
            beside += outside
            size = sum((abs(a) for a in row), Fraction(0)) * (radius + max(map(abs, center)))
            # beside the centre the search ends early, where a box just meets the ball
            sharp(found, dot(row, center) + dot(row, y), size, max(room, 0.01) if outside else room)
    return beside


@pytest.mark.parametrize(("halvings", "room"), [(24, 1e-6), (12, 3e-3), (0, 3.0)])
@pytest.mark.parametrize("count", [1, 40])
def test_supports_of_clipped_balls(count: int, halvings: int, room: float) -> None:
    """However sharp they are asked to be, they are above; and sharp as they are asked to be."""
    assert check_pieces(count, halvings, room) > 0.3 * count


def test_emptiness_is_proved_only_where_it_is_true() -> None:
    rng = np.random.default_rng(5)
    proved = 0
    for scale in (1.0, 1e-160, 1e-300, 1e150):
        made = pieces(rng, 60, 3)
        assert made.radius is not None
        assert made.lower is not None
        assert made.upper is not None
        domain = Domain(scale * made.center, scale * made.radius, scale * made.lower, scale * made.upper)
        empty = domain.outside()
        for k in range(60):
            center, low, high = (exact(x[k]) for x in (domain.center, domain.lower, domain.upper))  # type: ignore[index]
            gap = [max(low_ - c, c - h, Fraction(0)) for c, low_, h in zip(center, low, high, strict=True)]
            square = Fraction(float(domain.radius[k])) ** 2  # type: ignore[index]
            assert not empty[k] or dot(gap, gap) > square
            assert empty[k] or scale != 1.0 or dot(gap, gap) <= square * (1 + Fraction(1e-9))
            proved += bool(empty[k])
    assert proved > 10


def short_search(patch: pytest.MonkeyPatch) -> None:
    """The part of a row that the ball bounds, times 1 - 1e-6."""
    patch.setattr(module, "norm_above", lambda rows: norm_above(rows) * (1.0 - 1e-6))


def centre_inside(patch: pytest.MonkeyPatch) -> None:
    """Boxes taken for boxes around the centre."""
    honest = module.clipped_above

    def clipped(radius: Array, below: Array, above: Array, rows: Array, halvings: int) -> Array:
        return honest(radius, np.minimum(below, 0.0), np.minimum(above, 0.0), rows, halvings)

    patch.setattr(module, "clipped_above", clipped)


@pytest.mark.parametrize("mistake", [short_search, centre_inside])
def test_planted_mistakes_are_seen(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        check_pieces(40, 24, 10.0)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_a_box_is_no_larger_than_what_it_has_of_a_ball(scale: float) -> None:
    rng, inside = np.random.default_rng(5), 0
    for d in (1, 2, 5):
        center = rng.normal(size=(200, d)) * scale
        lower = center + rng.uniform(-1.2, 1.0, (200, d)) * scale
        upper = lower + rng.uniform(0.0, 1.5, (200, d)) * scale
        domain = Domain(center, np.full(200, scale), lower, upper)
        low, high = domain.inner_box()
        assert ((lower <= low) & (low <= high) & (high <= upper)).all()
        way = rng.normal(size=(400, 1, d))
        points = center + scale * rng.uniform(size=(400, 1, 1)) ** 0.1 * way / np.linalg.norm(
            way, axis=-1, keepdims=True
        )
        met = ((lower <= points) & (points <= upper)).all(axis=-1)
        assert ((low <= points) & (points <= high))[met].all()
        inside += int(met.sum())
        if d > 1:
            assert (high - low < 0.9 * (upper - lower)).any(axis=-1).mean() > 0.1
    assert inside > 1000
