"""Pieces of deep networks to second order: never below the truth, and near it when small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.proof.piece_bounds import PieceBounds
from lipcert.proof.taylor import Second, SecondOrder, deep
from lipcert.reproduce.cells import paper_center, paper_network
from networks import named, random_network, spread

SIZES = [(1, 1, 1), (1, 2, 1, 1), (2, 4, 4, 2), (3, *[8] * 9, 2), (5, *[12] * 16, 2), (2, *[3] * 30, 1)]


def bounded(network: lc.Network, point: Array, lower: Array, upper: Array, limit: float = np.inf) -> Second:
    ends = [np.full((len(lower), n), limit) for n in network.sizes[1:-1]]
    return SecondOrder(network, point).bound(lower, upper, [-end for end in ends], ends)


def largest(network: lc.Network, lower: Array, upper: Array, rng: np.random.Generator, many: int = 200) -> Array:
    """The largest Jacobian norm that is met in each box, its corners among the points."""
    shares = rng.uniform(size=(many, 1, lower.shape[-1]))
    shares[: many // 2] = np.round(shares[: many // 2])
    points = np.clip(lower + shares * (upper - lower), lower, upper)
    norms = np.linalg.norm(network.jacobian(points.reshape(-1, lower.shape[-1])), 2, axis=(-2, -1))
    return norms.reshape(many, -1).max(axis=0)


@pytest.mark.parametrize(
    ("row", "half"),
    spread(
        3,
        named("tanh", "softplus", "silu", "elu", "sin"),
        {str(half): half for half in (1e-12, 1e-4, 0.03, 0.2, 1.0)},
    ),
)
def test_never_below_the_truth(row: str, half: float) -> None:
    rng = np.random.default_rng(len(row))
    for seed, sizes in enumerate(SIZES):
        network = random_network(seed, sizes, row, gain=1.5)
        center = rng.uniform(-1.0, 1.0, (6, sizes[0]))
        sides = half * rng.uniform(0.2, 1.0, center.shape)
        lower, upper = center - sides, center + sides
        point = center[0] if seed % 2 else np.full(sizes[0], 100.0)  # whatever it is
        found = bounded(network, point, lower, upper)
        assert (found.bounds * (1.0 + 1e-12) >= largest(network, lower, upper, rng)).all()
        assert not found.empty.any()
        for points in (lower, upper, center, lower + rng.uniform(size=center.shape) * (upper - lower)):
            values, outputs = np.concatenate(network.preactivations(points)[:-1], axis=-1), network(points)
            room = 1e-12 * (1.0 + np.abs(outputs))
            assert (np.concatenate([outputs - room, -outputs - room], axis=-1) <= found.outputs).all()
            assert (np.abs(network.jacobian(points)) <= found.entries * (1.0 + 1e-12)).all()
            assert ((found.low - 1e-12 <= values) & (values <= found.high + 1e-12)).all()


def test_pieces_of_a_paper_network_are_known_well() -> None:
    rng, network, center = np.random.default_rng(3), paper_network(60, 30, "elu"), paper_center()
    assert deep(network)
    middle = center + rng.uniform(-0.3, 0.3, (4, 5))
    found = bounded(network, center, middle - 0.25, middle + 0.25).bounds
    truth = largest(network, middle - 0.25, middle + 0.25, rng, 40)
    assert (found >= truth).all()
    assert (found <= 1.02 * truth).all()


def test_which_networks_are_deep() -> None:
    assert deep(random_network(1, (3, *[5] * 9, 2), "tanh"))
    assert not deep(random_network(1, (3, 5, 5, 2), "tanh"))
    assert not deep(random_network(1, (3, *[5] * 9, 2), "relu"))
    assert not deep(random_network(1, (30, *[5] * 9, 2), "tanh"))


def test_split_cuts_a_deep_network_and_its_tree_is_derived_again(tmp_path: Path) -> None:
    network, ball = random_network(4, (3, *[8] * 10, 2), "elu", gain=1.5), lc.Ball([0.1, -0.2, 0.3], 0.8)
    method = lc.Split(lc.ClosedForm(), seconds=np.inf, tolerance=0.05, pieces=2000)
    found = lc.certify(network, ball, method)
    lower = lc.lower_bound(network, ball, points=found.witness).value
    assert found.bound <= 1.06 * lower
    assert found.tree is not None
    assert len(found.tree.second) == len(found.tree.layer) - 1
    found.save(tmp_path / "bound.json")
    again = lc.Certificate.load(tmp_path / "bound.json")
    assert lc.verify(network, again)
    with pytest.raises(ProofFailed, match="no better than"):
        lc.verify(network, replace(again, bound=0.99 * lower))


def test_intervals_of_the_whole_region_are_those_of_its_pieces() -> None:
    """A piece keeps what is known of the root alone; then leaves share its memory."""
    network = random_network(4, (3, *[8] * 10, 2), "elu", gain=1.5)
    bounding = PieceBounds(network, lc.Ball([0.1, -0.2, 0.3], 0.8))
    first = bounding.bound(bounding.root)
    second = bounding.bound(replace(bounding.root, second=np.ones(1, dtype=bool)))
    np.testing.assert_array_equal(second.low, bounding.root.low)
    assert first.open.shape == second.open.shape == (1, 64)
