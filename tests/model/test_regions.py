"""Regions: projection, sampling, stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.model.regions import Region


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


def test_everywhere() -> None:
    everywhere = lc.Everywhere()
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
    points = rng.normal(0, 2, (2, 3, 4))
    moved, inside = stack.project(points), stack.contains(points)
    assert stack.dimension == 4
    assert stack.radius.shape == (2, 3)
    sampled = stack.sample(7, rng)
    assert sampled.shape == (7, 2, 3, 4)
    assert stack.contains(sampled).all()
    for place in np.ndindex(2, 3):
        one = build(place)
        np.testing.assert_allclose(moved[place], one.project(points[place]), rtol=1e-14)
        assert inside[place] == one.contains(points[place])
        np.testing.assert_allclose(stack.radius[place], one.radius)
        np.testing.assert_array_equal(stack.center[place], one.center)


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
