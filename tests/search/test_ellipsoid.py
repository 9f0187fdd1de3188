"""One layer of the algorithm: the step, its LMI, scales, and bounds known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, sparse

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.search.ellipsoid import Ellipsoid, activate, largest, top
from lipcert.search.method import Method
from lipcert.search.problem import feasible_step
from networks import random_network

GREEDY = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal()]
every_greedy = pytest.mark.parametrize("method", GREEDY, ids=str)


def stage(seed: int, n: int, affine: float = 0.3) -> tuple[Array, Array, Array, Array]:
    """S, α, β and feasible multipliers; a share of the neurons has a single slope, some slopes change sign."""
    rng = np.random.default_rng(seed)
    root = rng.normal(0, 1, (n, max(1, n - 1)))
    S = root @ root.T / n
    alpha = rng.uniform(-0.5, 1.0, n)
    beta = np.where(rng.random(n) < affine, alpha, alpha + rng.random(n))
    r = 0.5 * (beta - alpha)
    room = float(np.linalg.eigvalsh(r[:, None] * S * r)[-1])
    return S, alpha, beta, np.where(r > 0, room * (1.1 + rng.random(n)), 0.0)


def absolute(P: Ellipsoid) -> Array:
    assert P.matrix is not None
    return np.asarray(P.matrix * 4.0 ** float(P.exponent))


def by_formula(S: Array, alpha: Array, beta: Array, T: Array) -> Array:
    """Design §1, with explicit matrices on the active neurons."""
    m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)
    active = np.flatnonzero(r > 0)
    Dm, Dr = np.diag(m), np.diag(r)[:, active]
    core = np.diag(T[active]) - Dr.T @ S @ Dr
    return np.asarray(Dm @ S @ Dm + Dm @ S @ Dr @ np.linalg.inv(core) @ Dr.T @ S @ Dm + np.diag(T))


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_step_is_the_formula(seed: int, n: int) -> None:
    S, alpha, beta, T = stage(seed, n)
    P = absolute(activate(Ellipsoid(S), alpha, beta, T))
    np.testing.assert_allclose(P, by_formula(S, alpha, beta, T), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(5))
def test_step_satisfies_the_lmi_with_nothing_to_spare(seed: int, n: int) -> None:
    """P is the least matrix with [[P - T - DmSDm, DmSDr], [DrSDm, T - DrSDr]] ≽ 0."""
    S, alpha, beta, T = stage(seed, n, affine=0.0)
    P = absolute(activate(Ellipsoid(S), alpha, beta, T))
    m, r = 0.5 * (alpha + beta), 0.5 * (beta - alpha)

    def block(matrix: Array) -> Array:
        cross = m[:, None] * S * r
        return np.block([[matrix - np.diag(T) - m[:, None] * S * m, cross], [cross.T, np.diag(T) - r[:, None] * S * r]])

    scale = float(np.linalg.norm(P, 2))
    assert np.linalg.eigvalsh(block(P))[0] >= -1e-12 * scale
    assert np.linalg.eigvalsh(block(P - 1e-6 * scale * np.eye(n)))[0] < 0


@pytest.mark.parametrize("seed", range(5))
def test_step_covers_every_slope_in_range(seed: int) -> None:
    """The meaning: Δv Δvᵀ ≼ S and slopes D in [α, β] give (DΔv)(DΔv)ᵀ ≼ P."""
    rng = np.random.default_rng(seed)
    S, alpha, beta, T = stage(seed, 6)
    P = absolute(activate(Ellipsoid(S), alpha, beta, T))
    root = np.linalg.cholesky(S + 1e-13 * np.eye(6))
    for _ in range(300):
        slope = np.where(rng.random(6) < 0.5, rng.choice([0.0, 1.0], 6), rng.random(6)) * (beta - alpha) + alpha
        moved = slope * (root @ (lambda u: u / np.linalg.norm(u))(rng.normal(0, 1, 6)))
        assert moved @ np.linalg.solve(P, moved) <= 1 + 1e-9


def test_affine_neurons_are_exact() -> None:
    S, alpha, _, _ = stage(0, 7)
    P = absolute(activate(Ellipsoid(S), alpha, alpha, np.zeros(7)))
    np.testing.assert_allclose(P, alpha[:, None] * S * alpha, rtol=1e-14)


def test_infeasible_multipliers_are_refused_and_then_repaired() -> None:
    S, alpha, beta, T = stage(1, 5, affine=0.0)
    ellipsoid = Ellipsoid(S)
    with pytest.raises(np.linalg.LinAlgError):
        activate(ellipsoid, alpha, beta, 0.5 * T)
    with pytest.raises(np.linalg.LinAlgError):
        activate(ellipsoid, alpha, beta, np.zeros(5))
    P, enlarged = feasible_step(ellipsoid, alpha, beta, 0.5 * T)
    assert (enlarged > 0.5 * T).all()
    np.testing.assert_allclose(absolute(P), by_formula(S, alpha, beta, enlarged), rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_step_is_monotone_in_the_ellipsoid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, alpha, beta, T = stage(seed, 6)
    more = rng.normal(0, 0.1, (6, 2))
    T = 3 * T
    one = absolute(activate(Ellipsoid(S), alpha, beta, T))
    two = absolute(activate(Ellipsoid(S + more @ more.T), alpha, beta, T))
    assert np.linalg.eigvalsh(two - one)[0] >= -1e-12 * np.linalg.norm(two, 2)


def test_weights_of_any_kind_push_the_ellipsoid_the_same_way() -> None:
    S, *_ = stage(2, 6)
    W = np.random.default_rng(1).normal(0, 1, (4, 6)) * (np.random.default_rng(2).random((4, 6)) < 0.5)
    P = Ellipsoid(S, 1)
    np.testing.assert_allclose(absolute(P.through(W)), 4 * W @ S @ W.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(absolute(P.through(sparse.csr_array(W))), 4 * W @ S @ W.T, rtol=1e-12, atol=1e-13)
    ball = Ellipsoid()
    assert ball.norm() == 1.0
    np.testing.assert_allclose(absolute(ball.through(W)), W @ W.T, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ball.through(W).axes(), np.linalg.norm(W, axis=1), rtol=1e-13)


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
    bound = lc.certify(chain, None, lc.Scalar(), verify=False).bound
    assert bound == pytest.approx(gain**2000, rel=1e-4, abs=1e-300)


def test_many_layers_with_an_overflowing_middle() -> None:
    """The ellipsoid may pass through 1e+600 on its way back to a number."""
    weights = [[[2.0**10]]] * 100 + [[[0.5**10]]] * 100
    chain = lc.Network.from_weights(weights, activation="leaky_relu")
    assert lc.certify(chain, None, lc.Scalar(), verify=False).bound == pytest.approx(1.0, rel=1e-4)


def test_a_bound_too_large_for_a_float_is_an_error() -> None:
    chain = lc.Network.from_weights([[[1e80]]] * 10, activation="relu")
    with pytest.raises(lc.ProofFailed, match="no finite bound"):
        lc.certify(chain, None, lc.ClosedForm(), verify=False)


@given(st.integers(1, 5), st.integers(0, 50), st.floats(-150, 150))
def test_scaling_by_powers_of_two_changes_no_digit(n: int, seed: int, power: float) -> None:
    S, alpha, beta, T = stage(seed, n)
    k = int(power)
    one = activate(Ellipsoid(S), alpha, beta, T)
    two = activate(Ellipsoid(S, k), alpha, beta, T)
    assert one.matrix is not None
    assert two.matrix is not None
    np.testing.assert_array_equal(one.matrix, two.matrix)
    assert two.exponent - one.exponent == k


def test_the_top_of_a_matrix_that_lapack_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """MethodGuide for one eigenvalue only, LAPACK sometimes returns none."""
    monkeypatch.setattr(linalg, "eigh", lambda matrix, **_: (np.zeros(0), np.zeros((len(matrix), 0))))
    value, vector = top(np.diag([1.0, 3.0, 2.0]))
    assert value == 3.0
    np.testing.assert_allclose(np.abs(vector), [0.0, 1.0, 0.0])
