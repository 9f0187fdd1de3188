"""Keeping only the neurons with open slopes changes the cost of a bound, not the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.search import merged_maps as module
from lipcert.search.merged_maps import condensed
from networks import random_network, spread


def _wide(seed: int, sparse_weights: bool) -> lc.Network:
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


@pytest.mark.parametrize(
    ("method", "sparse_weights"),
    spread(
        2,
        {str(one): one for one in (lc.ClosedForm(), lc.Scalar(), lc.Diagonal(), lc.Joint(iterations=60))},
        {"dense": False, "sparse": True},
    ),
)
def test_the_bound_is_the_same(method: Any, sparse_weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network = _wide(1, sparse_weights)
    ball = lc.Ball(np.linspace(-1, 1, 5), 0.2)
    short = lc.certify(network, ball, method)
    widths = [part.weight.shape[0] for part in condensed(network.layers, [(p.alpha, p.beta) for p in short.layers])]
    assert widths[0] < 60
    monkeypatch.setattr(module, "_WORTH", 0.0)
    long = lc.certify(network, ball, method)
    assert short.bound == pytest.approx(long.bound, rel=1e-2 if isinstance(method, lc.Joint) else 1e-6)
    assert lc.lower_bound(network, ball, samples=300).value <= min(short.bound, long.bound)
    for one, two in zip(short.layers, long.layers, strict=True):
        np.testing.assert_allclose(one.lower, two.lower, rtol=1e-4, atol=1e-6)
        assert ((one.multiplier > 0) == (two.multiplier > 0)).all()


@pytest.mark.parametrize("verify", [False, True])
def test_neurons_that_do_not_move_get_no_multiplier(verify: bool) -> None:
    found = lc.certify(_wide(1, False), lc.Ball(np.zeros(5), 0.2), lc.Scalar(), verify=verify).layers[1]
    assert (found.multiplier[:6] == 0).all()
    most = 1e-100 if verify else 0.0  # a proof charges for what underflow may lose
    assert (-most <= found.lower[:6]).all()
    assert (found.lower[:6] <= 0).all()
    assert (found.upper[:6] >= 0).all()
    assert (found.upper[:6] <= most).all()


def test_nothing_changes_where_all_slopes_are_open() -> None:
    network = random_network(0, (3, 9, 9, 2), "tanh")
    kept = condensed(network.layers, [(np.zeros(9), np.ones(9))] * 2)
    assert [part.weight is layer.weight for part, layer in zip(kept, network.layers, strict=False)] == [True, True]
    assert kept[-1].ahead is network.layers[-1].weight


def test_wide_sparse_layers_are_cheap() -> None:
    """20 000 neurons behind 30 inputs: a matrix of all of them would take 3.2 GB."""
    rng = np.random.default_rng(0)
    first = sparse.random_array((20_000, 30), density=0.1, rng=rng, format="csr")
    second = sparse.random_array((15_000, 20_000), density=1e-4, rng=rng, format="csr")
    biases = [rng.standard_normal(20_000), rng.standard_normal(15_000), None]
    network = lc.Network.from_weights([first, second, rng.standard_normal((2, 15_000))], biases, "relu")
    ball = lc.Ball(rng.standard_normal(30), 1e-3)
    found = lc.certify(network, ball, lc.Scalar(), verify=False)
    below = float(np.linalg.norm(network.jacobian(ball.center), 2))
    assert below <= found.bound <= 1.2 * below
