"""Bounds that are known in closed form, at every scale, and largest eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

import lipcert as lc
from lipcert.methods.eigenvalues import largest, top
from lipcert.methods.method import Method
from networks import random_network

GREEDY = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal()]
every_greedy = pytest.mark.parametrize("method", GREEDY, ids=str)


@pytest.mark.parametrize("n", [1, 2, 40, 350])
def test_largest_eigenvalue(n: int) -> None:
    rng = np.random.default_rng(n)
    root = rng.normal(0, 1, (n, n))
    matrix = root @ root.T
    value, vector = top(matrix)
    assert value == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-9)
    np.testing.assert_allclose(matrix @ vector, value * vector, rtol=1e-4, atol=1e-4 * value)
    assert float(largest(matrix)) == pytest.approx(value)


# bounds that are known


@every_greedy
def test_one_layer_is_the_spectral_norm(method: Method) -> None:
    W = np.random.default_rng(0).normal(0, 1, (4, 6))
    net = lc.Network.from_weights([W])
    for region in (None, lc.Ball(np.zeros(6), 0.3), lc.Box(np.zeros(6), np.ones(6))):
        assert lc.certify(net, region, method).bound == pytest.approx(np.linalg.norm(W, 2), rel=1e-8)


@every_greedy
def test_linear_networks_are_the_norm_of_their_product(method: Method) -> None:
    net = random_network(0, (4, 6, 3, 7, 5), "identity")
    product = net.jacobian(np.zeros(4))
    assert lc.certify(net, None, method).bound == pytest.approx(np.linalg.norm(product, 2), rel=1e-8)


@every_greedy
@pytest.mark.parametrize("spec", ["relu", lc.activation("leaky_relu", negative_slope=-0.3), "sigmoid", "silu"], ids=str)
def test_scalar_chains_multiply_their_steepest_slopes(method: Method, spec: str) -> None:
    """One neuron a layer: T cancels out of the formula at its best value, and |W| and max|φ'| multiply."""
    weights = [2.0, -0.7, 1.3, 3.0]
    net = lc.Network.from_weights([[[w]] for w in weights], activation=spec)
    low, high = lc.activation(spec).slope_range(np.array([-np.inf]), np.array([np.inf]))
    steepest = max(abs(float(low[0])), abs(float(high[0])))
    expected = float(np.prod(np.abs(weights))) * steepest ** (len(weights) - 1)
    assert lc.certify(net, None, method).bound == pytest.approx(expected, rel=1e-5)


@every_greedy
def test_tiny_relu_network_in_a_region_where_it_is_linear(method: Method) -> None:
    net = lc.Network.from_weights([[[1.0, 1.0], [1.0, -1.0]], [[2.0, 5.0]]], activation="relu")
    # at (1, -1) ± 0.1: v = (0, 2), the first neuron switches, the second is on
    both = lc.certify(net, lc.Ball([1.0, -1.0], 0.1), method).bound
    exact = np.linalg.norm(np.array([7.0, -3.0]))
    assert exact * (1 - 1e-12) <= both <= 1.2 * exact
    # at (3, -1) ± 0.1 both are on; at (-3, 1) the first is off, the second too
    assert lc.certify(net, lc.Ball([3.0, -1.0], 0.1), method).bound == pytest.approx(exact, rel=1e-8)
    assert lc.certify(net, lc.Ball([-3.0, 1.0], 0.1), method).bound == pytest.approx(0.0, abs=1e-100)


@every_greedy
def test_absolute_value_is_one_lipschitz(method: Method) -> None:
    """|x| as relu(x) + relu(-x): the bound is √2·√1 at worst, 1 at best; as γ = -1 it is exactly 1."""
    split = lc.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], activation="relu")
    assert 1.0 <= lc.certify(split, None, method).bound <= np.sqrt(2) * 1.0001
    whole = lc.Network.from_weights([[[1.0]], [[1.0]]], activation=lc.activation("leaky_relu", negative_slope=-1.0))
    assert lc.certify(whole, None, method).bound == pytest.approx(1.0, rel=1e-5)


# scales


@every_greedy
@pytest.mark.parametrize("scale", [1e-80, 1e80])
def test_extreme_weights_scale_the_bound_and_nothing_else(method: Method, scale: float) -> None:
    plain = random_network(1, (3, 6, 6, 2), "relu", bias=0.0)
    one, two, three = (layer.weight for layer in plain.layers)
    scaled = lc.Network.from_weights([scale * one, two / scale, scale * three], activation="relu")
    expected = scale * lc.certify(plain, None, method).bound
    assert lc.certify(scaled, None, method).bound == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gain", [0.7, *(pytest.param(gain, marks=pytest.mark.slow) for gain in (1e-3, 1.0))])
def test_two_thousand_layers(gain: float) -> None:
    """Bounds far below the smallest float are reported as small, never as wrong."""
    chain = lc.Network.from_weights([[[gain]]] * 2000, activation="relu")
    bound = lc.certify(chain, None, lc.Scalar()).bound
    assert bound == pytest.approx(gain**2000, rel=1e-4, abs=1e-300)


def test_many_layers_with_an_overflowing_middle() -> None:
    """The ellipsoid may pass through 1e+600 on its way back to a number."""
    weights = [[[2.0**10]]] * 100 + [[[0.5**10]]] * 100
    chain = lc.Network.from_weights(weights, activation="leaky_relu")
    assert lc.certify(chain, None, lc.Scalar()).bound == pytest.approx(1.0, rel=1e-4)


def test_a_bound_too_large_for_a_float_is_an_error() -> None:
    chain = lc.Network.from_weights([[[1e80]]] * 10, activation="relu")
    with pytest.raises(lc.ProofFailed, match="no finite bound"):
        lc.certify(chain, None, lc.ClosedForm())


def test_the_top_of_a_matrix_that_lapack_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for one eigenvalue only, LAPACK sometimes returns none."""
    monkeypatch.setattr(linalg, "eigh", lambda matrix, **_: (np.zeros(0), np.zeros((len(matrix), 0))))
    value, vector = top(np.diag([1.0, 3.0, 2.0]))
    assert value == 3.0
    np.testing.assert_allclose(np.abs(vector), [0.0, 1.0, 0.0])
