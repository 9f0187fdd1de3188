"""The product of norms, proved: above every Jacobian, and as tight with pools and skips as without them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.kernel import norm_product as module
from lipcert.kernel.norm_product import norm_product
from lipcert.model.arrays import Array


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def spectral(matrix: Array) -> float:
    return float(np.linalg.norm(matrix, 2))


def pooled(rng: np.random.Generator, pairs: int = 6, outputs: int = 3) -> tuple[lc.Network, Array, Array]:
    """W₂·max(a, b) over pairs of the entries of W₁x, as relu and carried values; and the two weights."""
    first, last = rng.standard_normal((2 * pairs, 4)), rng.standard_normal((outputs, pairs))
    gap = np.kron(np.eye(pairs), [[1.0, -1.0]])
    base = np.kron(np.eye(pairs), [[0.0, 1.0]])
    kinds = ["relu"] * pairs + ["identity"] * pairs
    weights = [first, np.vstack([gap, base]), np.hstack([last, last])]
    return lc.Network.from_weights(weights, activation=["identity", kinds]), first, last


def residual(rng: np.random.Generator, size: int = 5) -> tuple[lc.Network, Array, Array]:
    """x + C relu(B x), and B, C."""
    B, C = rng.standard_normal((2, size, size))
    kinds = ["relu"] * size + ["identity"] * size
    return lc.Network.from_weights([np.vstack([B, np.eye(size)]), np.hstack([C, np.eye(size)])], None, [kinds]), B, C


def test_a_maximum_does_not_count(rng: np.random.Generator) -> None:
    network, first, last = pooled(rng)
    assert norm_product(network) == pytest.approx(spectral(first) * spectral(last), rel=1e-7)


def test_a_skip_counts_one(rng: np.random.Generator) -> None:
    network, B, C = residual(rng)
    assert norm_product(network) <= (1.0 + spectral(B) * spectral(C)) * (1 + 1e-11)


STEEP = lc.activation("leaky_relu", negative_slope=-2.0)


@pytest.mark.parametrize("kinds", [["identity", STEEP], [STEEP, "identity", "relu"], ["relu", "relu", "identity"]])
@pytest.mark.parametrize("seed", range(3))
def test_neurons_with_the_same_column_have_any_slopes(kinds: list[Any], seed: int) -> None:
    """The first two are seen as one sum; of a pair the bound is the norm of its row at the worst slope."""
    first = np.random.default_rng(seed).standard_normal((len(kinds), 4)) * [[0.1], [1.0], [0.1]][: len(kinds)]
    network = lc.Network.from_weights([first, [[1.0, 1.0, 0.0][: len(kinds)]]], activation=[kinds])
    ends = [(1.0,) if kind == "identity" else (0.0, 1.0) if kind == "relu" else (-2.0, 1.0) for kind in kinds[:2]]
    truth = max(np.linalg.norm(slopes @ first[:2]) for slopes in itertools.product(*ends))
    assert truth <= norm_product(network)
    if "identity" in kinds[:2]:
        assert norm_product(network) <= truth * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("build", [pooled, residual])
def test_it_is_above_every_jacobian(seed: int, build: Any) -> None:
    rng = np.random.default_rng(seed)
    network = build(rng)[0]
    jacobians = network.jacobian(rng.standard_normal((200, network.inputs)))
    assert np.linalg.norm(jacobians, 2, axis=(-2, -1)).max() <= norm_product(network)


def test_every_part_of_a_skip_counts() -> None:
    """Two values, one changed and one carried, meet again."""
    network = lc.Network.from_weights([np.eye(2), [[1.0, 3.0]]], activation=[["relu", "identity"]])
    assert norm_product(network) >= np.sqrt(10.0)


def test_weights_are_known_to_some_units_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", 0)
    network = lc.Network.from_weights([sparse.csr_array([[1.0]])] * 200, activation="identity")
    assert (1.0 + 2.0**-50) ** 200 <= norm_product(network) <= 1.0 + 1e-12


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("stride", "groups", "dilation"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 4, 1), (1, 1, 2)])
@pytest.mark.parametrize("small", [0, 1024])
def test_norms_of_convolutions_are_above(
    rng: np.random.Generator, circular: bool, stride: int, groups: int, dilation: int, small: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "_SMALL", small)
    kernel = rng.standard_normal((8, 4 // groups, 3, 3))
    one = lc.Convolution.of(kernel, (8, 6), stride, None, dilation, groups, circular)
    exact = spectral(one.sparse().toarray())
    assert exact <= module._norm(one).above <= 1.5 * exact


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("window", "stride", "dilation"), [(1, 1, 1), (2, 2, 1), (2, 1, 1), (2, 3, 2), (3, 2, 1)])
def test_norms_of_convolutions_by_one_matrix_are_above(
    rng: np.random.Generator, circular: bool, window: int, stride: int, dilation: int, monkeypatch: Any
) -> None:
    """Windows that do not overlap have the norm of one matrix; the others at most that of windows that see an entry."""
    monkeypatch.setattr(module, "_HARD", 0)
    monkeypatch.setattr(module, "_SMALL", 20)
    kernel = np.zeros((6, 4, 3, 3))  # zeros around it, and channels of zeros
    kernel[:5, 1:, :window, :window] = rng.standard_normal((5, 3, window, window))
    one = lc.Convolution.of(kernel, (12, 12), stride, None, dilation, circular=circular)
    exact, alone = spectral(one.sparse().toarray()), dilation * (window - 1) < stride and not circular
    assert exact <= module._norm(one).above <= exact * (1 + 1e-9 if alone else 3.1)
    if alone:
        assert module._essential(one)[1] == 1


def test_slopes_without_end_have_no_product() -> None:
    network = lc.Network.from_weights([[[1.0]], [[1.0]]], activation="softplus")
    assert norm_product(network) >= 1.0
    with pytest.raises(lc.LipcertError, match="slopes may grow"):
        norm_product(lc.Network.from_weights([[[1.0]], [[1.0]]], activation="square"))


def test_a_circular_image_that_is_seen_several_times() -> None:
    """Padding beyond the image: each output repeats, and the norm is √3."""
    over = lc.Convolution.of(np.ones((1, 1, 1)), (3,), padding=3, circular=True)
    assert module._schur(over).above >= spectral(over.sparse().toarray())
    assert lc.certify(lc.Network.from_weights([over])).bound >= np.sqrt(3.0)


def test_columns_of_a_large_convolution_do_not_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identities in half of each channel; the norm is that of the other half."""
    monkeypatch.setattr(module, "_MOST", 10)
    size = 16
    kernel = np.zeros((9, 2, 3))
    kernel[:, 0], kernel[0, 1, 1] = 1e-6, 1.0
    kernel[:, 1] += 1e-6
    weight = np.full((2 * size, 1), 1e-9)
    weight[size + size // 2 + 5] = 1.0
    carried = np.zeros((2, size), dtype=bool)
    carried[:, : size // 2] = True
    kinds = ["identity" if one else "relu" for one in carried.ravel()]
    network = lc.Network.from_weights([weight, lc.Convolution.of(kernel, (size,))], activation=[kinds])
    change = np.linalg.norm(network(np.array([2.0])) - network(np.array([1.0])))
    assert change <= norm_product(network)


def test_a_product_that_overflows_is_refused() -> None:
    weight = sparse.csr_array(sparse.eye_array(1100) * 1.2e308 + sparse.eye_array(1100, k=1) * 1.2e308)
    with pytest.raises(lc.ProofFailed):
        norm_product(lc.Network.from_weights([weight]))


def test_inputs_of_a_sparse_layer_in_any_order() -> None:
    network = lc.Network.from_weights([sparse.csr_array(np.ones((2, 3))), np.ones((1, 2))])
    for method in (lc.published.Trivial(), lc.ClosedForm(), lc.Auto()):
        assert lc.certify(network, inputs=[2, 0], method=method).bound >= 2.0 * np.sqrt(2.0)
