"""Wide layers: errors at points entry by entry, rows that are traced in pieces, neurons that do not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy import sparse

import lipcert as lc
from exact import matrix, rational
from lipcert.kernel import arithmetic
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


def _pooled() -> tuple[lc.Network, lc.Network]:
    """Convolutions with a pool of sums between, weights sparse and dense."""
    rng = np.random.default_rng(5)
    kernels = [rng.standard_normal(shape) for shape in ((3, 1, 3, 3), (2, 3, 2, 2), (2, 2, 3, 3))]
    stack = lc.conv_stack(kernels, (8, 8), stride=[1, 2, 1], padding=[1, 0, 1], head=[rng.standard_normal((3, 32))])
    matrices = [sparse.csr_array(layer.weight) for layer in stack.layers[:-1]]
    last, biases = stack.layers[-1].weight, [0.3 * rng.standard_normal(layer.size) for layer in stack.layers]
    sizes = [[*matrices, last], [*map(dense, matrices), last]]
    one, two = (lc.Network.from_weights(weights, biases, "relu") for weights in sizes)
    return one, two


@pytest.mark.parametrize("what", ["as it is", "blocks", "a block is lost"])
def test_blocks_and_columns_that_rows_see(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds and intervals with sparse weights, in small blocks, are those with dense ones; what is lost is noticed."""
    thin, full = _pooled()
    ball = lc.Ball(np.random.default_rng(6).standard_normal(64), 0.2)
    with np.errstate(all="ignore"):
        wanted = lc.certify(full, ball, lc.ClosedForm())
        if what != "as it is":
            monkeypatch.setattr(arithmetic, "_LARGE", 1)
            monkeypatch.setattr(arithmetic, "_BLOCK", 700)
        slices = arithmetic._slices
        if what == "a block is lost":
            monkeypatch.setattr(arithmetic, "_slices", lambda matrix: slices(matrix)[:1])
            with pytest.raises((ValueError, lc.ProofFailed)):
                lc.certify(thin, ball, lc.ClosedForm())
            return
        found = lc.certify(thin, ball, lc.ClosedForm())
    same = [np.allclose(one.lower, two.lower, rtol=1e-9) for one, two in zip(found.layers, wanted.layers, strict=True)]
    assert all(same)
    assert abs(found.bound / wanted.bound - 1.0) < 1e-9
