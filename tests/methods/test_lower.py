"""Lower bounds in a given time; what they find is tested with the laws and in tests/proof."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel.enclosures import stretch_below
from lipcert.methods.counterexample import bisected
from lipcert.methods.lower import cross_kinks, jacobian_norms, lower_bound_of
from lipcert.model.arrays import Array
from networks import random_network


@pytest.mark.parametrize("seconds", [0.0, 3.0, 30.0])
def test_time_limits_the_search(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Jacobian takes a second here: no more are formed than there is time for, and what is found is proved."""
    network, ball = random_network(0, (4, 600, 3), "tanh"), lc.Ball(np.zeros(4), 1.0)
    spent = [0.0]
    jacobian = lc.Network.jacobian

    def slow(network: lc.Network, x: Array, side: int = 1) -> Array:
        spent[0] += 0.5
        return jacobian(network, x, side)

    class Time:
        @staticmethod
        def perf_counter() -> float:
            return spent[0]

    monkeypatch.setattr("lipcert.runtime.clock.time", Time)
    monkeypatch.setattr(lc.Network, "jacobian", slow)
    found = lc.lower_bound(network, ball, seconds=seconds)
    overrun = 14.0  # one batch of points, one step of the ascent and the proof
    assert spent[0] <= seconds + overrun
    unlimited = lc.lower_bound(network, ball, seconds=None)
    assert 0.0 < found.value <= unlimited.value * (1.0 + 1e-12)
    assert spent[0] > 3.0 * overrun


def wide(seed: int) -> lc.Network:
    """relu 4-64-64-2 of gain 1.5."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((out, into)) * 1.5 / np.sqrt(into) for into, out in ((4, 64), (64, 64), (64, 2))]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(len(weight)) for weight in weights])


@pytest.mark.parametrize(("seed", "constant"), [(0, 3.649), (1, 3.644), (2, 5.051), (3, 4.179)])
def test_kinks_are_crossed(seed: int, constant: float) -> None:
    """The constants are those that Split comes to; climbing alone ends at 0.93 to 0.95 of the first three."""
    assert 0.98 * constant <= lc.lower_bound(wide(seed), lc.Ball(np.zeros(4), 0.3)).value <= 1.002 * constant


@pytest.mark.parametrize("name", ["relu", "tanh", "elu"])
def test_all_of_space_is_searched(name: str) -> None:
    network = random_network(2, (3, 8, 6, 2), name, gain=2.0)
    found = lc.lower_bound(network, lc.Everywhere())
    near = lc.lower_bound(network, lc.Ball(np.zeros(3), 0.1))
    assert near.value <= found.value * (1.0 + 1e-6)
    assert found.value <= lc.certify(network, None, lc.Joint()).bound
    assert found.value == pytest.approx(jacobian_norms(network, found.point[None])[0], rel=1e-9)


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_cells_of_all_of_space_are_crossed(seed: int) -> None:
    """The exact constant is met; without linear programs for cells these end at 0.93 to 0.99 of it."""
    network = random_network(seed, (6, 12, 12, 2), "relu", gain=2.0)
    exact = lc.certify(network, lc.Everywhere(), lc.Split(seconds=np.inf)).bound
    assert (1.0 - 1e-6) * exact <= lc.lower_bound(network, lc.Everywhere(), seconds=None).value <= exact


def test_the_witness_of_a_certificate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds nothing by itself is told where the other one was."""
    network, ball = wide(0), lc.Ball(np.zeros(4), 0.3)
    certificate = lc.certify(network, ball, lc.Split(method=lc.Scalar(), seconds=np.inf, pieces=100))
    assert certificate.witness is not None
    met = float(jacobian_norms(network, certificate.witness[None])[0])
    monkeypatch.setattr("lipcert.methods.lower._scattered", lambda *_: np.zeros((1, 4)))
    monkeypatch.setattr("lipcert.methods.lower._Search.climb", lambda search, z, *_: z)
    monkeypatch.setattr(
        "lipcert.methods.lower.cross_kinks", lambda network, region, z, count, *_: (z[:0], np.zeros(0, dtype=int))
    )
    below = lower_bound_of(network, certificate)
    assert below is not None
    assert below.value >= met * (1.0 - 1e-9)


def test_no_decomposition_sees_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK may never return from them. One output's derivative overflows here, those of the others do not."""
    rng = np.random.default_rng(0)
    first, last = rng.standard_normal((3, 3)) * 1e160, rng.standard_normal((3, 3)) * 1e10
    last[0] *= 1e150
    seen: list[Array] = []
    svd = np.linalg.svd

    def watched(matrix: Array, full_matrices: bool = True) -> object:
        seen.append(matrix)
        assert np.isfinite(matrix).all()
        return svd(matrix, full_matrices=full_matrices)

    monkeypatch.setattr(np.linalg, "svd", watched)
    network = lc.Network.from_weights([first, last], [rng.standard_normal(3), np.zeros(3)], "leaky_relu")
    with np.errstate(all="ignore"):
        lc.lower_bound(network, lc.Ball(np.zeros(3), 1.0), samples=40, steps=4, starts=4)
        cross_kinks(network, lc.Ball(np.zeros(3), 1.0), rng.standard_normal((5, 3)), 4)
    assert seen


def test_a_short_direction_does_not_round_up() -> None:
    """Where J·d is below the range of floats, though ‖J·d‖/‖d‖ is not, nothing is said."""
    weights = 1.3 * np.array([1.0, 1e-100, 1e-91, 1.0])
    network = lc.Network.from_weights([[[weight]] for weight in weights], activation="identity")
    short = [stretch_below(network, np.zeros(1), np.array([size])) for size in np.linspace(1e-130, 9e-130, 20)]
    assert max(short) <= weights.prod() * (1.0 + 1e-15)
    assert stretch_below(network, np.zeros(1), np.ones(1)) > 0.999 * weights.prod()


def test_the_way_back_ends_where_classes_meet() -> None:
    network = lc.Network.from_weights([np.eye(2), np.eye(2)])
    center, points = np.array([2.0, 1.0]), np.array([[1.0, 2.0], [0.0, 4.0]])
    found = bisected(network, center, 0, points)
    np.testing.assert_allclose(found[:, 0], [[1.5, 1.5], [1.6, 1.6]], atol=1e-8)
    np.testing.assert_allclose(found[:, -1], points, atol=1e-8)
    assert (network(found.reshape(-1, 2)).argmax(axis=-1) == 1).all()
