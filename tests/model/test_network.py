"""Networks: evaluation, Jacobians, parts, storage, digests."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.errors import InvalidInput
from lipcert.model.arrays import Array
from lipcert.model.convolution import Convolution
from lipcert.model.network import Network
from networks import ROWS, random_network

MIXED: list[Any] = ["tanh", ["relu", "sin", lc.activation("elu", alpha=2.0), "relu"], "silu"]
SIZES = (3, 5, 4, 6, 2)


@pytest.fixture
def network() -> lc.Network:
    return random_network(0, SIZES, MIXED)


def test_batches_agree_with_single_points(network: lc.Network) -> None:
    x = np.random.default_rng(1).normal(0, 1, (2, 4, 3))
    values, jacobians, stages = network(x), network.jacobian(x), network.preactivations(x)
    assert values.shape == (2, 4, 2)
    assert jacobians.shape == (2, 4, 2, 3)
    assert [v.shape for v in stages] == [(2, 4, n) for n in SIZES[1:]]
    for place in np.ndindex(2, 4):
        np.testing.assert_allclose(values[place], network(x[place]), rtol=1e-12)
        np.testing.assert_allclose(jacobians[place], network.jacobian(x[place]), rtol=1e-12)


@pytest.mark.parametrize("sizes", [(3, 5, 2), (2, 5, 4, 7), (4, 4), (1, 1, 1), (6, 3, 3, 1)])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_jacobian_is_the_derivative(row: lc.Activation, sizes: tuple[int, ...]) -> None:
    net = random_network(3, sizes, row)
    x = np.random.default_rng(4).normal(0, 1, sizes[0])
    step = 1e-6
    moves = step * np.eye(sizes[0])
    slopes = np.stack([(net(x + m) - net(x - m)) / (2 * step) for m in moves], axis=1)
    np.testing.assert_allclose(net.jacobian(x), slopes, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(net.jacobian(x), net.jacobian(x, side=-1))


def test_jacobian_at_a_kink_takes_the_side_it_is_told() -> None:
    net = lc.Network.from_weights([[[1.0]], [[3.0]]], activation="relu")
    assert net.jacobian([0.0]).item() == 3.0
    assert net.jacobian([0.0], side=-1).item() == 0.0


def test_slices_compose(network: lc.Network) -> None:
    x = np.array([0.3, -1.2, 0.8])
    for cut in range(1, network.depth):
        head, tail = network.slice(0, cut), network.slice(cut, network.depth)
        between = network.layers[cut - 1].neurons
        assert between is not None
        np.testing.assert_allclose(tail(between.value(head(x))), network(x), rtol=1e-12)
        assert head.layers[-1].neurons is None
    assert network.slice(0, network.depth).digest == network.digest


def test_select_holds_the_other_inputs(network: lc.Network) -> None:
    x = np.array([0.3, -1.2, 0.8])
    part = network.select(inputs=[2, 0], outputs=[1], at=x)
    assert part.sizes == (2, 5, 4, 6, 1)
    moved = x.copy()
    moved[[2, 0]] = [0.5, -0.7]
    np.testing.assert_allclose(part(np.array([0.5, -0.7])), network(moved)[[1]], rtol=1e-12)
    np.testing.assert_allclose(part.jacobian(x[[2, 0]]), network.jacobian(x)[np.ix_([1], [2, 0])], rtol=1e-12)
    np.testing.assert_allclose(network.select()(x), network(x), rtol=1e-13)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_is_dense(form: Any) -> None:
    rng = np.random.default_rng(6)
    weights = [rng.normal(0, 1, (n, m)) * (rng.random((n, m)) < 0.4) for m, n in itertools.pairwise(SIZES)]
    biases = [rng.normal(0, 1, len(w)) for w in weights]
    one = lc.Network.from_weights(weights, biases, MIXED)
    two = lc.Network.from_weights([form(w) for w in weights], biases, MIXED)
    x = rng.normal(0, 1, (5, 3))
    np.testing.assert_allclose(one(x), two(x), rtol=1e-13)
    np.testing.assert_allclose(one.jacobian(x), two.jacobian(x), rtol=1e-13)
    np.testing.assert_allclose(one.select([1], [0]).jacobian([0.1]), two.select([1], [0]).jacobian([0.1]))
    assert one.digest == two.digest
    assert one.slice(1, 3).digest == two.slice(1, 3).digest


def test_sparse_with_duplicates_and_zeros_is_the_same_network() -> None:
    doubled = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    unsorted = sparse.csr_array((np.array([5.0, 4.0]), np.array([1, 0]), np.array([0, 2, 2])), shape=(2, 2))
    assert lc.Network.from_weights([doubled]).digest == lc.Network.from_weights([[[0.0, 3.0], [0.0, 0.0]]]).digest
    assert lc.Network.from_weights([unsorted]).digest == lc.Network.from_weights([[[4.0, 5.0], [0.0, 0.0]]]).digest


def rebuilt(weights: list[Array], biases: list[Array], spec: Any) -> str:
    return lc.Network.from_weights(weights, biases, spec).digest


def test_digest_changes_with_every_entry() -> None:
    rng = np.random.default_rng(8)
    weights = [rng.normal(0, 1, (2, 3)), rng.normal(0, 1, (2, 2))]
    weights[0][0, 0] = 0.0
    biases = [rng.normal(0, 1, 2), rng.normal(0, 1, 2)]
    spec = [["relu", "tanh"]]
    seen = {rebuilt(weights, biases, spec)}
    for group in (weights, biases):
        for array in group:
            for place in np.ndindex(array.shape):
                kept = array[place]
                array[place] = np.nextafter(kept, np.inf) if kept else 1e-300
                seen.add(rebuilt(weights, biases, spec))
                array[place] = kept
    specs: list[Any] = [
        [["tanh", "relu"]],
        [["relu", "relu"]],
        [["relu", lc.activation("leaky_relu", negative_slope=0.0)]],
        [["relu", lc.activation("elu", alpha=1.0)]],
        [["relu", lc.activation("elu", alpha=np.nextafter(1.0, 2.0))]],
        [["relu", "tanh"], "relu"],
    ]
    seen |= {rebuilt(weights, biases, other) for other in specs}
    assert len(seen) == 1 + 6 + 4 + 2 + 2 + len(specs)
    assert rebuilt(weights, biases, spec) in seen


def test_digest_ignores_how_things_are_written() -> None:
    weights = [np.array([[1.0, -0.0], [2.0, 3.0]]), np.array([[1.0, 1.0]])]
    plain = rebuilt(weights, [np.zeros(2), np.zeros(1)], "relu")
    assert plain == lc.Network.from_weights([[[1, 0], [2, 3]], [[1, 1]]]).digest
    assert plain == lc.Network.from_weights(weights, [None, None], ["ReLU"]).digest
    assert plain == lc.Network.from_weights(weights, None, [["relu", "relu"]]).digest
    assert plain == rebuilt(weights, [np.array([-0.0, 0.0]), np.array([0.0])], "relu")
    slopes = lc.activation("prelu", negative_slope=[0.1, 0.1])
    assert rebuilt(weights, [np.zeros(2), np.zeros(1)], slopes) == rebuilt(
        weights, [np.zeros(2), np.zeros(1)], lc.activation("leaky_relu", negative_slope=0.1)
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_networks_are_frozen_and_keep_copies(form: Any) -> None:
    weight, bias = np.array([[1.0, 2.0]]), np.array([3.0])
    given_weight = form(weight)
    net = lc.Network.from_weights([given_weight], [bias])
    before = net([1.0, 1.0]).item()
    weight[0, 0] = bias[0] = 99.0
    if sparse.issparse(given_weight):
        given_weight.data[:] = 99.0
    assert net([1.0, 1.0]).item() == before
    stored = net.layers[0].weight
    for array in [net.layers[0].bias, *([stored] if isinstance(stored, np.ndarray) else [stored.data, stored.indices])]:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        net.layers = ()  # type: ignore[misc]


def test_an_activation_on_the_output() -> None:
    net = lc.Network.from_weights([[[2.0]], [[-1.0]]], activation=["relu", "tanh"])
    assert net.depth == 3
    assert net([1.5]).item() == pytest.approx(np.tanh(-3.0))


@pytest.mark.parametrize("name", ["square", "cube"])
def test_slopes_without_end_need_a_bounded_region(name: str) -> None:
    far = lc.activation(name).slope_range(np.array([1e301]), np.array([1e305]))
    assert far[1] >= 2e305  # never below the truth, though nothing is proved so far out
    network = lc.Network.from_weights([np.eye(2), np.ones((1, 2))], activation=name)
    for ask in (lc.certify, lc.sensitivity):
        with pytest.raises(InvalidInput, match=f"activation '{name}' of layer 1 has slopes without end.*give a Ball"):
            ask(network)
    found = lc.certify(network, lc.Box([-1.0, 0.0], [2.0, 1.0]), lc.Joint())
    assert lc.lower_bound(network, lc.Box([-1.0, 0.0], [2.0, 1.0])).value <= found.bound
    assert lc.verify(network, found, exact=True) <= found.bound


# products with sparse weights


# convolutions as linear maps: products, matrix and digest say the same


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((3, 2, 3, 3), (5, 6), {}),
    "valid": ((3, 2, 3, 3), (5, 6), {"padding": 0}),
    "stride": ((4, 2, 3, 3), (7, 6), {"stride": 2, "padding": 1}),
    "uneven": ((2, 2, 2, 4), (6, 9), {"stride": (1, 3), "padding": ((0, 1), (2, 1))}),
    "dilation": ((2, 3, 3, 2), (8, 7), {"dilation": (2, 3), "padding": 2}),
    "groups": ((6, 2, 3, 3), (4, 4), {"groups": 3}),
    "depthwise": ((4, 1, 3, 3), (6, 5), {"groups": 4, "stride": 2, "padding": 1}),
    "circular": ((3, 2, 3, 3), (5, 4), {"circular": True}),
    "circular stride": ((3, 2, 3, 5), (6, 8), {"circular": True, "stride": 2}),
    "one axis": ((3, 2, 4), (9,), {"stride": 2, "padding": 1}),
    "window": ((5, 2, 4, 4), (4, 4), {"padding": 0}),
}


@pytest.fixture(params=CASES)
def convolution(request: pytest.FixtureRequest) -> Convolution:
    shape, image, options = CASES[request.param]
    return Convolution.of(np.random.default_rng(len(request.param)).standard_normal(shape), image, **options)


def test_products_are_those_of_the_matrix(convolution: Convolution) -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((3, convolution.shape[1]))
    matrix = convolution.sparse()
    assert matrix.has_canonical_format
    np.testing.assert_allclose(convolution.forward(rows), rows @ matrix.T, atol=1e-12)
    assert (abs(matrix) != replace(convolution, kernel=np.abs(convolution.kernel)).sparse()).nnz == 0
    assert np.diff(matrix.indptr).max() <= convolution.fan_in


def test_the_digest_is_that_of_the_matrix(convolution: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    as_kernel, as_matrix = Network.from_weights([convolution]), Network.from_weights([convolution.sparse()])
    assert as_kernel.digest == as_matrix.digest
    assert as_kernel.layers[0].convolution is convolution
    assert as_matrix.layers[0].convolution is None
    monkeypatch.setattr("lipcert.model.network.MOST_ENTRIES", 1)
    other = Convolution.of(convolution.kernel + 1e-9, **{name: getattr(convolution, name) for name in OPTIONS})
    again = [Network.from_weights([one]).digest for one in (convolution, convolution, other)]
    assert again[0] == again[1] != again[2]
    assert as_kernel.digest not in again


OPTIONS = ("image", "stride", "padding", "dilation", "groups", "circular")


def test_a_matrix_that_is_too_large_is_not_made() -> None:
    huge = Network.from_weights([Convolution.of(np.ones((64, 64, 3, 3)), (224, 224))])
    assert huge.sizes == (64 * 224 * 224, 64 * 224 * 224)
    assert len(huge.digest) == 64
    with pytest.raises(InvalidInput, match="global bound"):
        _ = huge.layers[0].weight


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 2), {}, "kernel"),
        ((3, 2, 3, 3), {"groups": 2}, "groups"),
        ((2, 2, 3, 3), {"stride": 0}, "stride"),
        ((2, 2, 3, 3), {"dilation": 1.5}, "dilation"),
        ((2, 2, 3, 3), {"padding": -1}, "padding"),
        ((2, 2, 7, 7), {"padding": 0}, "fit"),
        ((2, 2, 7, 7), {"circular": True}, "window"),
        ((2, 2, 3, 3), {"circular": True, "padding": 6}, "circular padding"),
    ],
)
def test_arguments_that_make_no_sense_are_named(shape: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Convolution.of(np.ones(shape), (5, 5), **options)
