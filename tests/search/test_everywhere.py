"""Split over all of space: equal to the largest norm of any linear piece, proved again, and hard to fool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.model.activations import activation
from lipcert.model.arrays import dense
from lipcert.proof.domain import Domain
from lipcert.proof.rays import along_rays, has_rays, only_at_infinity
from lipcert.search import split as module
from networks import random_network
from patterns import true_constant

ALL = lc.Everywhere()


def quick(tolerance: float = 1e-6) -> lc.Split:
    return lc.Split(method=lc.Scalar(), seconds=np.inf, tolerance=tolerance, pieces=20_000)


CASES = [(0, (2, 6, 6, 2)), (1, (2, 6, 2)), (2, (1, 5, 6, 1)), (4, (3, 5, 4, 2)), (12, (2, 4, 4, 4, 2))]
DISTANT = [
    (3, (2, 4, 4, 4, 2)),
    pytest.param(17, (4, 4, 6, 2), marks=pytest.mark.slow),
    pytest.param(16, (3, 4, 5, 4, 2), marks=pytest.mark.slow),
]
"""Here signs of later layers are ambiguous at infinity, where earlier layers are off: boxes alone do not tell them."""


@pytest.mark.parametrize(("seed", "sizes"), [*CASES, *DISTANT])
def test_the_constant_of_all_of_space_is_reached(seed: int, sizes: tuple[int, ...], tmp_path: Path) -> None:
    network = random_network(seed, sizes, "relu", gain=2.0)
    certificate = lc.certify(network, None, quick())
    corner = np.full(network.inputs, 1e4)
    truth = true_constant(network, lc.Box(-corner, corner))
    assert truth * (1.0 - 1e-12) <= certificate.bound <= truth * (1.0 + 2e-6)
    assert lc.verify(network, certificate) <= certificate.bound
    certificate.save(tmp_path / "bound.json")
    claim = lc.Certificate.load(tmp_path / "bound.json")
    assert isinstance(claim.region, lc.Everywhere)
    assert lc.verify(network, claim) <= certificate.bound


@pytest.mark.parametrize(
    "rows",
    [
        "leaky_relu",
        lc.activation("leaky_relu", negative_slope=-1.0),
        ["relu", "identity", "relu", "leaky_relu", "relu"],
    ],
    ids=["leaky", "abs", "mixed"],
)
def test_other_activations_that_are_straight_from_zero(rows: Any) -> None:
    hidden = [rows, rows] if not isinstance(rows, str) else rows
    network = random_network(6, (2, 5, 5, 2), hidden, gain=2.0)
    certificate = lc.certify(network, None, quick(1e-5))
    points = 10.0 ** np.random.default_rng(0).uniform(-1, 3, (20_000, 1)) * np.random.default_rng(1).normal(
        size=(20_000, 2)
    )
    norms = np.linalg.norm(network.jacobian(points), ord=2, axis=(-2, -1))
    assert norms.max() <= certificate.bound <= 1.0001 * lc.lower_bound(network, ALL, points=certificate.witness).value
    assert certificate.bound < lc.certify(network, None, lc.Joint()).bound
    assert lc.verify(network, certificate) <= certificate.bound


def test_the_network_along_rays_is_the_same_function() -> None:
    network = random_network(3, (3, 5, 4, 2), ["relu", "leaky_relu"], gain=2.0)
    rays, box = along_rays(network)
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(50, 3)), rng.uniform(0.1, 2.0, (50, 1))
    np.testing.assert_allclose(rays(np.hstack([x, t])), t * network(x / t), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rays.jacobian(np.hstack([x, t]))[:, :, :3], network.jacobian(x / t), rtol=1e-12)
    assert (box.lower.tolist(), box.upper.tolist()) == ([-1.0, -1.0, -1.0, 0.0], [1.0] * 4)


@pytest.mark.parametrize("name", ["tanh", "relu6", "hardtanh", "elu", "silu", "hardswish"])
def test_what_bends_elsewhere_has_no_rays(name: str) -> None:
    network = random_network(3, (2, 3, 1), name)
    assert not has_rays(network)
    with pytest.raises(ProofFailed, match="straight from zero"):
        along_rays(network)
    assert lc.certify(network, None, lc.Auto(seconds=5.0)).tree is None


def test_rows_called_straight_from_zero_are() -> None:
    v, rng = np.linspace(-3.0, 3.0, 41), np.random.default_rng(0)
    rows = [
        activation("relu"),
        activation("identity"),
        *(activation("leaky_relu", negative_slope=g) for g in rng.normal(size=4)),
    ]
    for row in rows:
        np.testing.assert_array_equal(row.value(4.0 * v), 4.0 * row.value(v))


def test_only_boxes_away_from_the_faces_are_left_out() -> None:
    near = np.nextafter(1.0, 0.0)
    lower = np.array([[-near, 0.0], [-1.0, 0.0], [0.0, near], [0.5, 0.5], [0.0, 0.0]])
    upper = np.array([[near, near], [0.0, 0.5], [0.1, 1.0], [1.0, 0.6], [0.1, 0.1]])
    domain = Domain(0.5 * (lower + upper), None, lower, upper, rays=True)
    assert domain.outside().tolist() == [True, False, False, False, True]
    assert not replace(domain, rays=False).outside().any()


def at_infinity(second: list[list[float]], bias: list[float]) -> lc.Network:
    """Two inputs, the relu of each, and neurons that see those."""
    return lc.Network.from_weights([np.eye(2), second, np.ones((1, len(second)))], [np.zeros(2), bias, [0.0]])


def test_signs_at_infinity() -> None:
    """v = -z_1 - z_2 - t is never positive; v = -z_1 - z_2 + t is, and v = z_1 - z_2 - t is."""
    sides = [(np.array([-9.0, -9.0, 0.0]), np.array([9.0, 9.0, 1.0])), (np.array([0.0, 0.0]), np.array([9.0, 1.0]))]
    weights = [np.zeros(3), np.array([1.0, 0.0])]
    for second, bias, expected in (
        ([-1, -1], -1.0, True),
        ([-1, -1], 1.0, False),
        ([1, -1], -1.0, False),
        ([-1, 0], -1, True),
    ):
        rays, _ = along_rays(at_infinity([[float(w) for w in second]], [bias]))
        assert only_at_infinity(rays, sides, weights) is expected
        assert only_at_infinity(rays, sides, [weights[0], -weights[1]]) is False  # v ≤ 0 is not asked for
    rays, _ = along_rays(at_infinity([[-1.0, -1.0]], [-1.0]))
    unknown = [sides[0], (np.array([-1.0, 0.0]), np.array([9.0, 1.0]))]
    assert only_at_infinity(rays, unknown, weights) is False
    tiny, _ = along_rays(at_infinity([[-1.0, 2.0**-60]], [-1.0]))  # a positive entry, however small, may count
    assert only_at_infinity(tiny, sides, weights) is False


def test_an_identity_before_has_no_sign_at_infinity() -> None:
    network = lc.Network.from_weights(
        [np.eye(2), [[-1.0, -1.0]], [[1.0]]], [np.zeros(2), [-1.0], [0.0]], ["identity", "relu"]
    )
    rays, _ = along_rays(network)
    sides = [(np.array([-9.0, -9.0, 0.0]), np.array([9.0, 9.0, 1.0])), (np.array([0.0, 0.0]), np.array([9.0, 1.0]))]
    assert only_at_infinity(rays, sides, [np.zeros(3), np.array([1.0, 0.0])]) is False


def test_trees_of_another_network_or_region_prove_nothing() -> None:
    network = random_network(0, (2, 6, 6, 2), "relu", gain=2.0)
    certificate = lc.certify(network, None, quick())
    assert certificate.tree is not None
    small = lc.certify(network, lc.Ball(np.zeros(2), 0.01), quick())
    forged = replace(certificate, bound=small.bound, tree=small.tree)
    with pytest.raises(ProofFailed):
        lc.verify(network, forged)
    tree = certificate.tree
    leaves = np.flatnonzero(tree.layer == -2)
    lies = replace(tree, void=leaves, neuron=np.zeros(len(leaves), dtype=int), weight=np.ones(len(leaves)))
    with pytest.raises(ProofFailed):  # not all leaves are void, whatever the weights
        lc.verify(network, replace(certificate, bound=0.5 * certificate.bound, tree=lies))


def test_a_search_that_leaves_a_face_out_gets_a_true_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut, the leaves cover the faces: a search that forgets some has the bound of what it did not cut."""
    network = random_network(0, (2, 6, 6, 2), "relu", gain=2.0)
    truth = lc.certify(network, None, quick()).bound
    faces = module._Search.faces
    monkeypatch.setattr(module._Search, "faces", lambda self, cover: faces(self, cover)[:2])
    assert lc.certify(network, None, quick()).bound >= truth * (1.0 - 1e-9)


def test_auto_cuts_all_of_space() -> None:
    network = random_network(5, (3, 10, 10, 2), "relu", gain=2.5)
    certificate = lc.certify(network, None, lc.Auto(seconds=np.inf, pieces=3000))
    assert certificate.tree is not None
    assert certificate.found_by == "Split"
    assert certificate.bound < lc.certify(network, None, lc.Joint()).bound


def test_many_inputs_are_not_cut_everywhere() -> None:
    network = random_network(5, (40, 6, 2), "relu")
    assert lc.certify(network, None, lc.Split(seconds=5.0)).tree is None


def test_sparse_weights() -> None:
    from scipy import sparse

    network = random_network(0, (2, 6, 6, 2), "relu", gain=2.0)
    thin = [sparse.csr_array(dense(layer.weight)) for layer in network.layers]
    same = lc.Network.from_weights(thin, [layer.bias for layer in network.layers])
    assert lc.certify(same, None, quick()).bound == pytest.approx(lc.certify(network, None, quick()).bound, rel=1e-6)
