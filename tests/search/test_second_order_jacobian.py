"""The search for multipliers to second order: its gradient, where it is tried, and what it gains."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.proof.hints import BOTH
from lipcert.search.closed_form import ClosedForm
from lipcert.search.problem import Problem
from lipcert.search.second_order_jacobian import _Search as Search
from lipcert.search.second_order_jacobian import _soft as soft
from lipcert.search.second_order_jacobian import suits
from networks import random_network

BALL = lc.Ball(np.full(20, 0.1), 0.1)


@pytest.mark.parametrize("name", ["tanh", "elu", "gelu"])
def test_the_gradient_is_that_of_the_bound(name: str) -> None:
    search = Search.of(random_network(3, (20, 7, 6, 5, 3), name, gain=2.5), BALL)
    x, _ = next(search.descent(np.inf))
    rng = np.random.default_rng(0)
    for blocks in (slice(0, 6), slice(6, 9), slice(9, None)):
        way = np.zeros(len(x))
        way[blocks] = rng.standard_normal(len(way[blocks]))
        here, ahead, behind = search(x), search(x + 1e-5 * way), search(x - 1e-5 * way)
        assert here is not None
        assert ahead is not None
        assert behind is not None
        assert here.gradient @ way == pytest.approx((ahead.f - behind.f) / 2e-5, rel=1e-5)


def test_the_smooth_eigenvalue() -> None:
    half = np.random.default_rng(1).standard_normal((2, 5, 5))
    matrix, way = half[0] @ half[0].T, half[1] + half[1].T
    value, gradient = soft(matrix)
    assert -1e-12 <= value - np.linalg.eigvalsh(matrix)[-1] <= 0.05 * value
    quotient = (soft(matrix + 1e-6 * way)[0] - soft(matrix - 1e-6 * way)[0]) / 2e-6
    assert (gradient * way).sum() == pytest.approx(quotient, rel=1e-6)


def suited(network: lc.Network, region: lc.Ball | lc.Box) -> bool:
    problem = Problem(network, region, BOTH)
    return suits(problem, problem.sweep(ClosedForm().choose))


def test_it_is_tried_where_slopes_are_smooth() -> None:
    smooth, kinked = (random_network(3, (20, 7, 6, 3), name, gain=2.5) for name in ("tanh", "relu"))
    assert suited(smooth, BALL)
    assert not suited(kinked, BALL)
    assert not suited(smooth, lc.Box(np.zeros(20), np.ones(20)))
    assert not suited(smooth, lc.Ball(np.zeros(20), 0.0))


@pytest.mark.parametrize("name", ["tanh", "elu", "gelu", "softplus", "silu"])
def test_auto_takes_it_up(name: str) -> None:
    network = random_network(3, (20, 24, 24, 3), name, gain=2.5)
    found, joint = lc.certify(network, BALL, lc.Auto(seconds=np.inf, pieces=1)), lc.certify(network, BALL, lc.Joint())
    truth = lc.lower_bound(network, BALL).value
    assert found.found_by == "SecondOrder"
    assert truth <= found.bound < joint.bound - 0.3 * (joint.bound - truth)
    assert lc.verify(network, found) <= found.bound


def test_a_part_of_a_network_is_left_to_the_others() -> None:
    network = random_network(3, (20, 24, 24, 3), "tanh", gain=2.5)
    found = lc.certify(network, BALL, lc.Auto(seconds=np.inf, pieces=1), layers=(1, 3))
    assert found.curved is None
    assert lc.verify(network, found) <= found.bound
