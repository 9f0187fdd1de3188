"""Descent inside an open set: it converges, it never leaves, and it never climbs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from lipcert.model.arrays import Array
from lipcert.search.descent import descend, no_moves


@dataclass(frozen=True)
class Point:
    f: float
    gradient: Array


def valley(x: Array) -> Point:
    """Rosenbrock's function, least at (1, …, 1)."""
    step = x[1:] - x[:-1] ** 2
    gradient = np.zeros_like(x)
    gradient[:-1] = -400.0 * x[:-1] * step - 2.0 * (1.0 - x[:-1])
    gradient[1:] += 200.0 * step
    return Point(float((100.0 * step**2 + (1.0 - x[:-1]) ** 2).sum()), gradient)


def inside(domain: Callable[[Array], bool], visited: list[Array]) -> Callable[[Array], Point | None]:
    """The valley where the domain says so, nothing elsewhere; every trial is noted."""

    def function(x: Array) -> Point | None:
        visited.append(x)
        return valley(x) if domain(x) else None

    return function


@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_valley_is_followed_to_its_end(size: int) -> None:
    path = list(descend(valley, np.full(size, 0.3), 1e-16))
    values = [value.f for _, value in path]
    assert all(b < a for a, b in itertools.pairwise(values))
    np.testing.assert_allclose(path[-1][0], 1.0, atol=1e-6)


@pytest.mark.parametrize("width", [0.05, 0.1])
def test_a_trial_outside_the_domain_shortens_the_step(width: float) -> None:
    """The domain is a thin tube around the valley's bottom: steps that would do elsewhere lead out of it."""

    def tube(x: Array) -> bool:
        return bool(abs(x[1] - x[0] ** 2) < width)

    visited: list[Array] = []
    path = list(descend(inside(tube, visited), np.array([-1.0, 1.0 + 0.5 * width]), 1e-16))
    assert any(not tube(x) for x in visited), "the test wants trials outside"
    assert all(tube(x) for x, _ in path)
    np.testing.assert_allclose(path[-1][0], 1.0, atol=1e-5)


def test_a_minimum_on_the_far_side_of_an_edge_is_approached() -> None:
    """Least at x = 0, outside x > 1: the path falls towards the edge and stays inside."""

    def slope(x: Array) -> Point | None:
        return Point(float(x @ x), 2.0 * x) if (x > 1.0).all() else None

    path = list(descend(slope, np.array([3.0, 2.0]), 1e-12))
    assert path[-1][1].f < 0.35 * path[0][1].f
    assert all((x > 1.0).all() for x, _ in path)


def test_no_descent_from_outside_and_none_from_the_bottom() -> None:
    assert list(descend(inside(lambda x: False, []), np.zeros(3), 1e-9)) == []
    path = list(descend(valley, np.ones(3), 1e-9))
    assert len(path) == 1
    np.testing.assert_array_equal(path[0][0], 1.0)


def test_steps_are_limited_coordinate_by_coordinate() -> None:
    """The first step of a very steep function may not throw the coordinates, which are logarithms, far away."""

    def steep(x: Array) -> Point:
        return Point(1e6 * float(x @ x), 2e6 * x)

    path = [x for x, _ in descend(steep, np.array([40.0, -30.0]), 1e-12)]
    assert all(np.abs(b - a).max() <= 1.5 + 1e-12 for a, b in itertools.pairwise(path))
    np.testing.assert_allclose(path[-1], 0.0, atol=1e-6)


def test_what_was_learned_speeds_up_a_similar_descent() -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((30, 30))
    hessian = root @ root.T + 1e-2 * np.eye(30)

    def bowl(scale: float) -> Callable[[Array], Point]:
        return lambda x: Point(0.5 * scale * float(x @ hessian @ x), scale * hessian @ x)

    start, moves = rng.standard_normal(30), no_moves()
    list(descend(bowl(1.0), start, 1e-10, moves))
    assert moves
    again = len(list(descend(bowl(1.1), start, 1e-10, moves)))
    assert again < len(list(descend(bowl(1.1), start, 1e-10)))
