"""Regions: support functions against brute force, projection, sampling, stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.suggest.supports import support


def highest(row: Array, radius: float, below: Array, above: Array) -> float:
    """Max row·y over ‖y‖ ≤ radius, below ≤ y ≤ above: a root of ‖clip(row·t)‖ = radius, to full accuracy."""

    def point(t: float) -> Array:
        return np.asarray(np.clip(row * t, below, above))

    far = 1e12
    if np.linalg.norm(point(far)) <= radius:
        return float(row @ np.where(row > 0, above, np.where(row < 0, below, 0.0)))
    root = optimize.brentq(lambda t: np.linalg.norm(point(t)) - radius, 0.0, far, xtol=1e-300, rtol=1e-15, maxiter=500)
    return float(row @ point(root))


def regions(seed: int, d: int) -> list[Region]:
    rng = np.random.default_rng(seed)
    center = rng.normal(0, 1, d)
    low, high = center - rng.random(d), center + rng.random(d)
    radius = float(0.2 + rng.random() * np.sqrt(d))
    return [
        lc.Ball(center, radius),
        lc.Box(low, high),
        lc.Ball(center, radius, clip=(low, high)),
        lc.Ball(center, 0.05, clip=(low, high)),
        lc.Ball(center, 100.0, clip=(low, high)),
        lc.Ball(center, 0.0, clip=(low, high)),
        lc.Ball(center, 0.0),
    ]


@pytest.mark.parametrize("d", [1, 2, 5, 40])
@pytest.mark.parametrize("seed", range(6))
def test_support_is_the_maximum(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed + 100)
    rows = rng.normal(0, 1, (12, d)) * 10.0 ** rng.uniform(-3, 3, (12, 1))
    rows[0] = 0.0
    rows[1, 1:] = 0.0
    for region in regions(seed, d):
        found = support(region, rows)
        if isinstance(region, lc.Box):
            exact = [
                row @ np.where(row > 0, region.upper - region.center, region.lower - region.center) for row in rows
            ]
        elif isinstance(region, lc.Ball) and region.clip is not None:
            sides = region.clip.lower - region.center, region.clip.upper - region.center
            exact = [highest(row, float(region.radius), *sides) if row.any() else 0.0 for row in rows]
        else:
            exact = [float(region.radius) * np.linalg.norm(row) for row in rows]
        scale = np.linalg.norm(rows, axis=-1) * float(region.radius)
        # never below, save for the rounding of either number; tight to 1e-9
        assert (found >= exact - 4e-15 * scale).all()
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("d", [1, 3, 12])
def test_support_is_above_every_sampled_point(d: int) -> None:
    rng = np.random.default_rng(d)
    rows = rng.normal(0, 1, (20, d))
    for region in regions(d, d):
        reached = (region.sample(500, rng) - region.center) @ rows.T
        assert (reached.max(axis=0) <= support(region, rows) + 1e-15).all()


def test_support_of_a_clipped_ball_is_never_above_either_set() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (200, 6))
    both = lc.Ball(np.zeros(6), 0.7, clip=(-0.3, 0.5))
    box = lc.Box(np.full(6, -0.3), np.full(6, 0.5))
    by_box = support(box, rows) + rows @ (box.center - both.center)
    assert (support(both, rows) <= support(lc.Ball(np.zeros(6), 0.7), rows)).all()
    assert (support(both, rows) <= by_box + 1e-15).all()


def test_everywhere_has_infinite_support_but_for_zero_rows() -> None:
    everywhere = lc.Everywhere()
    assert support(everywhere, np.array([[0.0, 0.0], [1.0, 0.0]])).tolist() == [0.0, np.inf]
    assert not everywhere.bounded
    assert everywhere.dimension is None
    assert everywhere.contains(np.array([[1.0, 1e300], [np.nan, 0.0]])).tolist() == [True, False]
    with pytest.raises(InvalidInput, match="cannot be sampled"):
        everywhere.sample(3, np.random.default_rng(0))


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_samples_lie_inside_and_reach_the_boundary(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    for region in regions(seed, d):
        points = region.sample(300, rng)
        assert points.shape == (300, d)
        assert region.contains(points).all()
        distance = np.linalg.norm(points - region.center, axis=-1)
        assert distance.max() <= region.radius
        if isinstance(region, lc.Ball) and region.clip is None:
            assert distance.max() >= float(region.radius) * (1 - 1e-14)
        if isinstance(region, lc.Box):
            assert distance.max() == pytest.approx(float(region.radius))


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_projection_lands_inside_and_leaves_insiders_alone(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    for region in regions(seed, d):
        points = region.center + rng.normal(0, 3, (200, d))
        moved = region.project(points)
        assert region.contains(moved).all()
        np.testing.assert_array_equal(region.project(moved), moved)
        np.testing.assert_array_equal(region.project(region.center), region.center)
        if isinstance(region, lc.Box) or region.clip is None:  # type: ignore[attr-defined]
            # the nearest point: no sampled point of the region is nearer
            inside = region.sample(100, rng)
            nearest = np.linalg.norm(points[:, None] - inside, axis=-1).min(axis=1)
            assert (np.linalg.norm(points - moved, axis=-1) <= nearest + 1e-12).all()


@given(
    st.integers(1, 6).flatmap(
        lambda d: st.tuples(*(st.lists(st.floats(-1e9, 1e9), min_size=d, max_size=d) for _ in range(2)))
    ),
    st.floats(0, 1e6),
    st.booleans(),
)
def test_projection_never_leaves_the_region(ends: tuple[list[float], list[float]], radius: float, clip: bool) -> None:
    """Also where the radius is smaller than the rounding of the centre."""
    center, point = (np.array(end) for end in ends)
    box = (center - 0.25 * radius, center + radius) if clip else None
    ball = lc.Ball(center, radius, clip=box)
    assert ball.contains(ball.project(point))
    assert ball.contains(ball.sample(5, np.random.default_rng(0))).all()


@pytest.mark.parametrize("kind", ["ball", "clipped", "box"])
def test_a_stack_is_its_members(kind: str) -> None:
    rng = np.random.default_rng(3)
    centers, radii = rng.normal(0, 1, (2, 3, 4)), rng.random((2, 3)) + 0.1
    low, high = centers - rng.random(centers.shape), centers + rng.random(centers.shape)

    def build(place: Any) -> Region:
        if kind == "box":
            return lc.Box(low[place], high[place])
        return lc.Ball(centers[place], radii[place], clip=(low[place], high[place]) if kind == "clipped" else None)

    stack = build(...)
    rows = rng.normal(0, 1, (2, 3, 5, 4))
    points = rng.normal(0, 2, (2, 3, 4))
    most, moved, inside = support(stack, rows), stack.project(points), stack.contains(points)
    assert stack.dimension == 4
    assert stack.radius.shape == (2, 3)
    sampled = stack.sample(7, rng)
    assert sampled.shape == (7, 2, 3, 4)
    assert stack.contains(sampled).all()
    for place in np.ndindex(2, 3):
        one = build(place)
        np.testing.assert_allclose(most[place], support(one, rows[place]), rtol=1e-14)
        np.testing.assert_allclose(moved[place], one.project(points[place]), rtol=1e-14)
        assert inside[place] == one.contains(points[place])
        np.testing.assert_allclose(stack.radius[place], one.radius)
        np.testing.assert_array_equal(stack.center[place], one.center)


def test_one_radius_for_a_stack_of_centers() -> None:
    stack = lc.Ball(np.zeros((3, 2)), 0.5)
    assert support(stack, np.ones((3, 1, 2))).shape == (3, 1)
    np.testing.assert_allclose(support(stack, np.ones((3, 1, 2))), np.sqrt(0.5))


def test_box_has_its_middle_and_circumscribed_radius() -> None:
    box = lc.Box([0, -1, 5], [2, 1, 5])
    np.testing.assert_allclose(box.center, [1, 0, 5])
    assert float(box.radius) == pytest.approx(np.sqrt(2))
    assert box.contains(box.center)


def test_regions_are_frozen_and_keep_copies() -> None:
    center = np.array([1.0, 2.0])
    ball = lc.Ball(center, 1.0, clip=(0, 3))
    center[0] = 99.0
    assert ball.center[0] == 1.0
    for array in (ball.center, ball.radius, lc.Box([0.0], [1.0]).lower, lc.Box([0.0], [1.0]).upper):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    with pytest.raises(AttributeError):
        ball.radius = np.array(2.0)  # type: ignore[misc]
