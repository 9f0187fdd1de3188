"""Bounds to second order over a ball: true whatever the hints are, sharp where signs agree, stored and repeated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel import second_order_jacobian as curved
from lipcert.kernel.arithmetic import inverse_above
from lipcert.kernel.checker import lipschitz_fact
from lipcert.kernel.facts import Part
from lipcert.kernel.neuron_bounds import fit_error
from lipcert.kernel.second_order_jacobian import prove_second_order_jacobian
from lipcert.kernel.sweep import proving
from lipcert.model.activations import Activation
from lipcert.model.network import Neurons
from lipcert.suggest.hints import Curved
from networks import ROW_LABELS, ROWS, random_network

CHAIN = lc.Network.from_weights([[[1.0]], [[1.5]], [[1.0]]], [[0.5], [0.3], None], "hardswish")
CHAIN_BALL = lc.Ball([0.0], 0.4)
"""Two neurons on the parabola of hardswish: slopes are linear and all signs agree; so the bound is near the truth."""
SMOOTH = random_network(3, (20, 16, 16, 3), "tanh", gain=2.5)
SMOOTH_BALL = lc.Ball(np.full(20, 0.1), 0.05)


def proved(network: lc.Network, ball: lc.Ball, hints: Curved) -> float:
    with proving():
        return prove_second_order_jacobian(network, ball, hints)


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
def test_a_parabola_is_no_further_from_a_slope_than_proved(row: Activation) -> None:
    rng = np.random.default_rng(1)
    neurons = Neurons.of(row, 40)
    center, error = 2.0 * rng.standard_normal(40), np.where(np.arange(40) % 2, 1e-3, 0.0)
    reach = np.abs(rng.standard_normal(40)) * 10.0 ** rng.uniform(-6, 0.3, 40)
    slopes = rng.standard_normal((3, 40))
    proved_error = fit_error(neurons, center, error, reach, slopes)
    for true in (center - error, center, center + error):
        for delta in np.linspace(-1.0, 1.0, 301)[:, None] * reach:
            fit = slopes[0] + slopes[1] * delta + 0.5 * slopes[2] * delta * delta
            for side in (-1, 1):
                assert (np.abs(neurons.slope(true + delta, side) - fit) <= proved_error * (1.0 + 1e-12)).all()


def test_an_inverse_is_at_least_the_inverse() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 5, 30):
        half = rng.standard_normal((size, size))
        matrix = half @ half.T + 1e-6 * np.eye(size)
        matrix = 0.5 * (matrix + matrix.T)
        least = np.linalg.eigvalsh(inverse_above(matrix) - np.linalg.inv(matrix))[0]
        assert least >= 0.0
    with pytest.raises(ProofFailed, match="not positive definite"):
        inverse_above(np.diag([1.0, -1e-9]))


def test_a_fit_error_that_is_halved_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With constant slopes the error of the fit is all there is."""
    network, ball = lc.Network.from_weights([[[1.0]], [[1.0]]], activation="tanh"), lc.Ball([0.5], 0.5)
    least = 1.0 - np.tanh(1.0) ** 2
    hints = Curved(
        np.array([[0.5 * (1.0 + least)], [0.0], [0.0]]),
        np.full(1, 1e-7),
        np.zeros((1, 1)),
        np.array([1e-6] * 4 + [1.0, 0.29]),
    )
    assert 1.0 <= proved(network, ball, hints) < 1.01
    monkeypatch.setattr(curved, "fit_error", lambda *given: 0.5 * fit_error(*given))
    assert proved(network, ball, hints) < 1.0


# Certificates.


@cache
def certificate() -> lc.Certificate:
    return lc.certify(SMOOTH, SMOOTH_BALL, lc.Auto(seconds=np.inf, pieces=1))


def test_a_certificate_is_stored_and_repeated(tmp_path: Path) -> None:
    first = certificate()
    assert first.curved is not None
    assert first.found_by == "SecondOrder"
    assert first.bound < lc.certify(SMOOTH, SMOOTH_BALL, lc.Joint()).bound
    first.save(tmp_path / "bound.json")
    again = lc.Certificate.load(tmp_path / "bound.json")
    assert lc.verify(SMOOTH, again) <= first.bound
    with pytest.raises(ProofFailed, match="prove no better"):
        lc.verify(SMOOTH, replace(again, bound=0.999 * again.bound))
    with pytest.raises(ProofFailed, match="prove no better"):
        lc.verify(SMOOTH, replace(again, curved=None))
    with pytest.raises(ProofFailed, match="prove no better"):
        lc.verify(SMOOTH, replace(again, region=lc.Ball(SMOOTH_BALL.center, 0.1)))


def test_hints_for_something_else_are_refused() -> None:
    first = certificate()
    assert first.curved is not None
    with pytest.raises(ProofFailed, match="not for this network"):
        prove_second_order_jacobian(CHAIN, CHAIN_BALL, first.curved)
    with pytest.raises(ProofFailed, match="about ℓ2 balls"):
        prove_second_order_jacobian(SMOOTH, lc.Box(np.zeros(20), np.ones(20)), first.curved)
    with pytest.raises(ProofFailed, match="not finite"):
        prove_second_order_jacobian(SMOOTH, SMOOTH_BALL, replace(first.curved, balance=np.nan * first.curved.balance))
    with pytest.raises(ProofFailed, match="do not leave anything"):
        prove_second_order_jacobian(SMOOTH, SMOOTH_BALL, replace(first.curved, weights=np.ones(6)))
    part = Part((1, SMOOTH.depth))
    rest = lc.certify(SMOOTH, SMOOTH_BALL, lc.ClosedForm(), layers=part.layers).part_sweeps
    with pytest.raises(ProofFailed, match="about a whole network"):
        lipschitz_fact(SMOOTH, SMOOTH_BALL, part, first.sweeps, rest, curved=first.curved)
