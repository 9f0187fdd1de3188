"""Pieces to second order: flat ones, tiny ones, empty ones, and how near the truth they are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from test_rules import broken, steepest, taylor, taylor_bounds

import lipcert as lc
from lipcert.kernel.arithmetic import spectral_above
from lipcert.kernel.taylor import SecondOrder
from networks import random_network


def test_a_flat_box_and_a_long_one() -> None:
    rng = np.random.default_rng(6)
    network = random_network(2, (3, 9, 9, 2), "tanh", gain=2.0)
    center = rng.uniform(-1.0, 1.0, (8, 3))
    for sides in ([0.0, 0.1, 0.1], [1e-9, 0.3, 1e-3], [0.0, 0.0, 1e-6]):
        box = lc.Box(center - sides, center + np.array(sides))
        assert not broken(taylor(network, box, rng))
        most = steepest(network, box.sample(300, rng)).max(axis=0)
        assert (taylor_bounds(network, box.lower, box.upper).bounds <= 1.6 * most).all()
    assert np.isinf(taylor_bounds(network, center, center).bounds).all()


@pytest.mark.parametrize(("bias", "radius", "gain"), [(5.9e-108, 8e-123, 3.7e78), (4.9e-109, 7.6e-121, 1e20)])
def test_what_underflows_is_charged_with_the_weights_it_meets(bias: float, radius: float, gain: float) -> None:
    network = lc.Network.from_weights([[[1.0]], [[gain]]], [[bias], [0.0]], activation="cube")
    truth = 3 * Fraction(gain) * (Fraction(bias) + Fraction(radius)) ** 2
    assert Fraction(float(taylor_bounds(network, np.array([[-radius]]), np.array([[radius]])).bounds[0])) >= truth
    assert Fraction(lc.certify(network, lc.Ball([0.0], radius), lc.Auto(np.inf, 12)).bound) >= truth


@pytest.mark.parametrize(("row", "name"), [("elu", "alpha"), ("celu", "alpha"), ("softplus", "beta")])
def test_parameters_may_differ_from_neuron_to_neuron(row: str, name: str) -> None:
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal((3, 2)), rng.standard_normal((1, 3))]
    network = lc.Network.from_weights(weights, activation=lc.activation(row, **{name: [0.5, 1.0, 2.0]}))
    box = lc.Box(np.full((1, 2), -0.3), np.full((1, 2), 0.4))
    assert not broken(taylor(network, box, rng))
    assert np.isfinite(taylor_bounds(network, box.lower, box.upper).bounds).all()


def test_intervals_that_contradict_each_other_say_that_there_is_no_input() -> None:
    network = random_network(5, (2, 6, 6, 1), "tanh", gain=1.0)
    ends = [np.full((1, n), 50.0) for n in (6, 6)]
    found = SecondOrder(network).bound(np.zeros((1, 2)), np.ones((1, 2)), ends, [2.0 * end for end in ends])
    assert found.empty.all()


def test_the_largest_of_many_norms() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((6, 40, 3, 5)) * np.exp(rng.standard_normal((6, 40, 1, 1)))
    truth = np.linalg.norm(matrices, ord=2, axis=(-2, -1)).max(axis=1)
    found = spectral_above(matrices, 7).max(axis=-1)
    assert (found >= truth * (1.0 - 1e-14)).all()
    np.testing.assert_allclose(found, truth, rtol=3e-3)
