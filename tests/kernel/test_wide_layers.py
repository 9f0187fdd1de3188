"""Wide layers: errors at points entry by entry, rows that are traced in pieces, neurons that do not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy import sparse

import lipcert as lc
from exact import matrix, rational
from lipcert.kernel import enclosures as path
from lipcert.kernel.enclosures import stretch_below, trajectory
from lipcert.model.arrays import dense


def _wide(seed: int) -> lc.Network:
    rng = np.random.default_rng(seed)
    shapes = ((70, 4), (60, 70), (50, 60), (3, 50))
    weights: list[Any] = [rng.standard_normal(s) / np.sqrt(s[1]) for s in shapes]
    weights[1][:10] = 0.0
    weights[1][:10, :10] = np.eye(10)
    biases = [1.5 * rng.standard_normal(len(w)) for w in weights]
    biases[0][:6], biases[1][:10] = -50.0, 0.0  # neurons 0 … 5 of layer 2 are at their kink and stay there
    weights[1] = sparse.csr_array(weights[1])
    return lc.Network.from_weights(weights, biases, "relu")


@pytest.mark.parametrize(("broad", "small"), [(1, 0.0), (40, 0.0), (65, 0.0), (1000, 0.0), (1000, 2.0**-32)])
def test_errors_kept_entry_by_entry(broad: int, small: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pre-activations at a point against exact rational arithmetic, where some or all layers count as long."""
    monkeypatch.setattr(path, "_BROAD", broad)
    monkeypatch.setattr(path, "_SMALL", small)
    network = _wide(1)
    x = np.random.default_rng(3).standard_normal(4)
    z = fmpq_mat([[rational(v)] for v in x])
    for (values, errors), layer in zip(trajectory(network, x[None]), network.layers, strict=False):
        (value,), (error,) = values, errors
        exact = matrix(dense(layer.weight)) * z + fmpq_mat([[rational(b)] for b in layer.bias])
        assert all(abs(exact[i, 0] - rational(value[i])) <= rational(error[i]) for i in range(layer.size))
        assert error.max() < 1e-10
        z = fmpq_mat([[exact[i, 0] if exact[i, 0] > 0 else fmpq(0)] for i in range(layer.size)])
    J = network.jacobian(x)
    norm = float(np.linalg.norm(J, 2))
    direction = np.linalg.svd(J)[2][0]
    assert norm * (1 - 1e-9) <= stretch_below(network, x, direction) <= norm * (1 + 1e-12)


def test_errors_that_grow_entry_by_entry_are_followed_with_care(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orthogonal layers keep lengths, but the sums of their sizes are four times as large from layer to layer."""
    turns = [np.linalg.qr(np.random.default_rng(k).standard_normal((16, 16)))[0] for k in range(40)]
    network, x = lc.Network.from_weights(turns, activation="identity"), np.random.default_rng(1).standard_normal(16)
    assert trajectory(network, x[None])[-1][1].max() < 1e-9
    label = int(network(x).argmin())
    assert lc.attack(network, x, label, 1.0, restarts=1).found
    monkeypatch.setattr(path, "_SMALL", np.inf)
    assert trajectory(network, x[None])[-1][1].max() > 1.0


def test_rows_are_traced_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network, ball = _wide(2), lc.Ball(np.zeros(4), 0.5)
    whole = lc.certify(network, ball, lc.Scalar())
    monkeypatch.setattr("lipcert.kernel.enclosures._TOGETHER", 200)
    assert lc.certify(network, ball, lc.Scalar()).bound == pytest.approx(whole.bound, rel=1e-9)


def _wide_first(seed: int, sparse_weights: bool) -> lc.Network:
    """Layers much wider than the input, some neurons tied, some dead."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(s) / np.sqrt(s[1]) for s in ((60, 5), (50, 60), (40, 50), (3, 40))]
    weights[1][:10] = 0.0
    weights[1][:10, :10] = np.eye(10)
    biases: list[Any] = [1.5 * rng.standard_normal(len(w)) for w in weights]
    biases[0][:6], biases[1][:10] = -50.0, 0.0  # off everywhere: neurons 0 … 5 of layer 2 sit at their kink and stay
    stored: list[Any] = [sparse.csr_array(w) for w in weights] if sparse_weights else weights
    kinds = ["relu", lc.activation("leaky_relu", negative_slope=np.linspace(0, 1, 50)), "hardtanh"]
    return lc.Network.from_weights(stored, biases, kinds)


def test_neurons_that_do_not_move_get_no_multiplier() -> None:
    found = lc.certify(_wide_first(1, False), lc.Ball(np.zeros(5), 0.2), lc.Scalar()).layers[1]
    assert (found.multiplier[:6] == 0).all()
    most = 1e-100  # a proof charges for what underflow may lose
    assert (-most <= found.lower[:6]).all()
    assert (found.lower[:6] <= 0).all()
    assert (found.upper[:6] >= 0).all()
    assert (found.upper[:6] <= most).all()
