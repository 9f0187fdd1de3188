"""Proofs that carry only some neurons: each enclosure in exact rational arithmetic, and the same bound as with all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy import sparse

import lipcert as lc
from exact import diagonal, matrix, positive_semidefinite, rational
from lipcert.model.arrays import Array, Weight, dense
from lipcert.proof import folding as module
from lipcert.proof import point as path
from lipcert.proof.folding import Near, folded
from lipcert.proof.hints import BOTH
from lipcert.proof.image import Image
from lipcert.proof.point import stretch_below, trajectory
from lipcert.proof.rounding import diagonal_above
from lipcert.search.problem import Problem
from networks import random_network, spread


def _stored(array: Array, as_sparse: bool) -> Weight:
    return sparse.csr_array(array) if as_sparse else array


def _holds(near: Near, exact: fmpq_mat) -> bool:
    """Whether the real matrix is where the float one and its radius say."""
    middle = dense(near.middle)
    radius = np.zeros(middle.shape) if near.radius is None else dense(near.radius)
    places = np.ndindex(*middle.shape)
    return all(abs(exact[i, j] - rational(middle.item(i, j))) <= rational(radius.item(i, j)) for i, j in places)


def _covariance(rng: np.random.Generator, n: int) -> Array:
    root = rng.standard_normal((n, n))
    return 0.5 * (root @ root.T + (root @ root.T).T)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_two_layers_in_exact_arithmetic(seed: int, as_sparse: bool) -> None:
    """The next weight, its ellipsoid and its diagonal, after one and after two layers of which little is kept."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((20, 3)) * 10.0 ** rng.uniform(-3, 3, (20, 1))
    first[4] = 0.0
    second, third = rng.standard_normal((20, 20)), rng.standard_normal((2, 20))
    second[rng.random((20, 20)) < 0.4] = 0.0
    near, real = Near(_stored(first, as_sparse)), matrix(first)
    for ahead, open_count in ((second, 3), (third, 2)):
        n = near.middle.shape[0]
        alpha = rng.choice([0.0, 0.01, 1.0, 0.3], n)
        beta = np.where(np.arange(n) < open_count, alpha + 0.5, alpha)
        still = diagonal_above(None, near.full, near.radius) == 0.0
        kept = folded(near, alpha, beta, still, _stored(ahead, as_sparse))
        assert kept is not None
        settled = diagonal(np.where(beta > alpha, 0.0, alpha))
        product = matrix(ahead) * settled * real
        before = near.middle.shape[1]
        columns = [[rational(ahead[i, j]) for j in kept.neurons] for i in range(len(ahead))]
        exact = fmpq_mat([[*columns[i], *(product[i, j] for j in range(before))] for i in range(len(ahead))])
        assert _holds(kept.ahead, exact)
        rows = [[real[int(i), j] for j in range(before)] for i in kept.neurons]
        eye = [[fmpq(i == j) for j in range(before)] for i in range(before)]
        assert _holds(kept.rows, fmpq_mat([*rows, *eye]))
        near, real = kept.ahead, exact
        for P in (None, _covariance(rng, real.ncols())):
            inner = diagonal(np.ones(real.ncols())) if P is None else matrix(P)
            S = real * inner * real.transpose()
            image = Image(None if P is None else P[None], np.zeros(1, dtype=int), near)
            (whole,), (exponent,) = image.block()
            assert positive_semidefinite(matrix(whole) * fmpq(4) ** int(exponent) - S)
            squares = diagonal_above(P, near.full, near.radius)
            (axes,) = image.axes()
            assert all(S[i, i] <= rational(axes[i]) ** 2 for i in range(len(axes)))
            assert all(S[i, i] <= rational(squares[i]) for i in range(len(squares)))
            assert all(rational(squares[i]) <= S[i, i] * fmpq(1000001, 1000000) for i in range(len(squares)))


def test_wild_weights_are_left_whole() -> None:
    weight = np.full((10, 2), 1e-200)
    assert folded(Near(weight), np.ones(10), np.ones(10), np.zeros(10, dtype=bool), np.ones((2, 10))) is None


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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar()], ids=str)
def test_proofs_by_either_way_agree(seed: int, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network, ball = _wide(seed), lc.Ball(np.linspace(-1, 1, 4), 0.15)
    monkeypatch.setattr(module, "_WIDE", 1)
    few = lc.certify(network, ball, method)
    assert few.verified
    assert lc.verify(network, few) <= few.bound
    monkeypatch.setattr(module, "_WORTH", 0.0)
    monkeypatch.setattr(path, "_BROAD", 10**9)
    assert lc.certify(network, ball, method).bound == pytest.approx(few.bound, rel=1e-8)


@pytest.mark.parametrize(("broad", "wide"), [(1, 1000), (40, 1000), (65, 1000), (1000, 1)])
def test_errors_kept_entry_by_entry(broad: int, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pre-activations at a point against exact rational arithmetic, where some or all layers count as long."""
    monkeypatch.setattr(path, "_BROAD", broad)
    monkeypatch.setattr(path, "_WIDE", wide)
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
    with_care = trajectory(network, x[None])[-1][1].max()
    assert with_care < 1e-10
    assert trajectory(network, x[None], quickly=True)[-1][1].max() > 1.0
    monkeypatch.setattr(path, "_WIDE", 1)
    assert trajectory(network, x[None])[-1][1].max() == with_care
    label = int(network(x).argmin())
    assert lc.attack(network, x, label, 1.0, restarts=1).found


def test_what_is_said_of_a_point_does_not_hang_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(2, (4, 9, 9, 9, 9, 9, 9, 2), "tanh")
    points = np.random.default_rng(0).standard_normal((6, 4)) * np.array([1e-3, 1.0, 1e-2, 3.0, 1.0, 0.1])[:, None]
    quick = trajectory(network, points, quickly=True)
    ratios = np.max([size.max(axis=1) / np.abs(v).max(axis=1) for v, size in quick], axis=0)
    monkeypatch.setattr(path, "_WIDE", 1)
    monkeypatch.setattr(path, "_SMALL", float(np.median(ratios)))
    together = trajectory(network, points)
    for k, point in enumerate(points):
        for (v, size), (value, error) in zip(together, trajectory(network, point[None]), strict=True):
            np.testing.assert_allclose(v[k], value[0], rtol=1e-12)
            np.testing.assert_allclose(size[k], error[0], rtol=1e-9)
    same = (together[-1][1] == quick[-1][1]).all(axis=1)
    assert same.any()
    assert not same.all()


def test_rows_are_traced_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network, ball = _wide(2), lc.Ball(np.zeros(4), 0.5)
    whole = lc.certify(network, ball, lc.Scalar())
    monkeypatch.setattr("lipcert.proof.backsubstitution._ENTRIES", 200)
    assert lc.certify(network, ball, lc.Scalar()).bound == pytest.approx(whole.bound, rel=1e-9)


# keeping only the neurons with open slopes changes the cost of a bound, not the bound


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


@pytest.mark.parametrize(
    ("method", "sparse_weights"),
    spread(
        2,
        {str(one): one for one in (lc.ClosedForm(), lc.Scalar(), lc.Diagonal(), lc.Joint(iterations=60))},
        {"dense": False, "sparse": True},
    ),
)
def test_the_bound_is_the_same(method: Any, sparse_weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network = _wide_first(1, sparse_weights)
    ball = lc.Ball(np.linspace(-1, 1, 5), 0.2)
    long = lc.certify(network, ball, method)
    monkeypatch.setattr(module, "_WIDE", 1)
    short = lc.certify(network, ball, method)
    assert method.solve(Problem(network, ball, BOTH)).kept[0].alpha.size < 60
    assert short.bound == pytest.approx(long.bound, rel=1e-2 if isinstance(method, lc.Joint) else 1e-6)
    assert lc.lower_bound(network, ball, samples=300).value <= min(short.bound, long.bound)
    for one, two in zip(short.layers, long.layers, strict=True):
        np.testing.assert_allclose(one.lower, two.lower, rtol=1e-4, atol=1e-6)
        assert ((one.multiplier > 0) == (two.multiplier > 0)).all()


def test_neurons_that_do_not_move_get_no_multiplier() -> None:
    found = lc.certify(_wide_first(1, False), lc.Ball(np.zeros(5), 0.2), lc.Scalar()).layers[1]
    assert (found.multiplier[:6] == 0).all()
    most = 1e-100  # a proof charges for what underflow may lose
    assert (-most <= found.lower[:6]).all()
    assert (found.lower[:6] <= 0).all()
    assert (found.upper[:6] >= 0).all()
    assert (found.upper[:6] <= most).all()


def test_wide_sparse_layers_are_cheap() -> None:
    """20 000 neurons behind 30 inputs: a matrix of all of them would take 3.2 GB."""
    rng = np.random.default_rng(0)
    first = sparse.random_array((20_000, 30), density=0.1, rng=rng, format="csr")
    second = sparse.random_array((15_000, 20_000), density=1e-4, rng=rng, format="csr")
    biases = [rng.standard_normal(20_000), rng.standard_normal(15_000), None]
    network = lc.Network.from_weights([first, second, rng.standard_normal((2, 15_000))], biases, "relu")
    ball = lc.Ball(rng.standard_normal(30), 1e-3)
    found = lc.certify(network, ball, lc.Scalar())
    below = float(np.linalg.norm(network.jacobian(ball.center), 2))
    assert below <= found.bound <= 1.2 * below
