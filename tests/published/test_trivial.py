"""The product of norms: its value by hand, and above everything it should be above."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.published import Trivial, trivial
from lipcert.search.problem import Problem
from networks import random_network

SIZES = (3, 6, 4, 2)


def norms(network: lc.Network) -> list[float]:
    return [float(np.linalg.svd(layer.weight, compute_uv=False)[0]) for layer in network.layers]


@pytest.mark.parametrize(
    ("activation", "slope"),
    [
        ("relu", 1.0),
        ("sigmoid", 0.25),
        ("leaky_relu", 1.0),
        (lc.activation("leaky_relu", negative_slope=-3.0), 3.0),
        ("selu", 1.0507009873554805 * 1.6732632423543772),
        ("hardswish", 1.5),
        (lc.activation("elu", alpha=2.5), 2.5),
    ],
)
def test_norms_times_largest_slopes(activation: object, slope: float) -> None:
    network = random_network(11, SIZES, activation)
    assert lc.certify(network, method=Trivial()).bound == pytest.approx(np.prod(norms(network)) * slope**2, rel=1e-14)


def test_the_steepest_neuron_counts() -> None:
    network = random_network(11, SIZES, [["relu"] * 5 + ["hardswish"], ["sigmoid"] * 4])
    assert lc.certify(network, method=Trivial()).bound == pytest.approx(np.prod(norms(network)) * 1.5 / 4, rel=1e-14)


def test_the_region_does_not_matter_and_the_part_does() -> None:
    network = random_network(11, SIZES, "tanh")
    whole = lc.certify(network, method=Trivial()).bound
    assert lc.certify(network, lc.Ball(np.zeros(3), 0.1), Trivial()).bound == whole
    part = lc.certify(network, method=Trivial(), layers=(1, 2), inputs=[0, 2], outputs=[3])
    assert part.bound == pytest.approx(np.linalg.norm(network.layers[1].weight[3, [0, 2]]), rel=1e-14)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "sin"])
@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar(), lc.Diagonal()])
def test_no_method_is_looser(activation: str, method: lc.Scalar) -> None:
    network = random_network(11, SIZES, activation)
    assert lc.certify(network, method=method).bound <= lc.certify(network, method=Trivial()).bound * (1 + 1e-5)


def test_sparse_weights() -> None:
    network = random_network(11, SIZES, "relu")
    thin = lc.Network.from_weights([sparse.csr_array(layer.weight) for layer in network.layers])
    assert Trivial().solve(Problem(thin, lc.Everywhere(), ())).bound == lc.certify(network, method=Trivial()).bound


@pytest.mark.parametrize("kernels", [True, False])
def test_norms_of_wide_layers_come_from_products(kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    network = lc.conv_stack(
        [rng.standard_normal((3, 2, 3, 3)), rng.standard_normal((2, 3, 3, 3))], (6, 5), stride=[1, 2]
    )
    if not kernels:
        network = lc.Network.from_weights([layer.weight for layer in network.layers])
    plain = lc.published.Trivial().value(network)
    monkeypatch.setattr(trivial, "_WIDE", 1)
    assert lc.published.Trivial().value(network) == pytest.approx(plain, rel=1e-9)
