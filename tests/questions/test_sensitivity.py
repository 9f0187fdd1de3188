"""Bounds for every pair of an output and an input: sound, close to a bound for the pair alone, and proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel import jacobian as module
from lipcert.kernel.jacobian import Entries, entries
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.questions.prove_outputs import prove_outputs
from networks import random_network


def largest_entries(network: lc.Network, region: Region, rng: np.random.Generator) -> Any:
    points = region.sample(400, rng)
    right, left = network.jacobian(points), network.jacobian(points, side=-1)
    return np.where(right == left, np.abs(right), 0.0).max(axis=0)


@pytest.mark.parametrize("seed", range(4))
def test_differences_with_the_other_inputs_held(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed, (5, 12, 12, 4), ("relu", "tanh", "gelu", "elu")[seed], gain=2.0)
    ball = lc.Ball(rng.standard_normal(5), 0.6)
    groups: dict[str, Any] = {"inputs": [0, (1, 2), (4, 3, 0)], "outputs": [(0, 1), 3, (0, 1, 2, 3)]}
    found = lc.sensitivity(network, ball, lc.Scalar(), **groups)
    assert found.inputs == ((0,), (1, 2), (4, 3, 0))
    one, two = ball.sample(2000, rng), ball.sample(2000, rng)
    for column, into in enumerate(found.inputs):
        mixed = one.copy()
        mixed[:, into] = two[:, into]
        inside = ball.contains(mixed)
        moved = np.abs(network(mixed) - network(one))[inside]
        apart = np.linalg.norm(mixed - one, axis=1)[inside]
        for line, out in enumerate(found.outputs):
            change = np.linalg.norm(moved[:, out], axis=1)
            assert (change <= found.matrix[line, column] * apart + 1e-13).all()


def entries_of(network: lc.Network, region: Region) -> tuple[Entries, list[tuple[Array, Array]]]:
    """What is proved of the entries of the Jacobian, and the slope ranges."""
    facts = prove_outputs(network, region, lc.ClosedForm())
    hidden = [layer.neurons for layer in network.layers if layer.neurons is not None]
    slopes = [slope_bounds(neurons, *ends) for neurons, ends in zip(hidden, facts.intervals, strict=True)]
    return entries(network, slopes, facts.multipliers), slopes


@pytest.mark.parametrize("seed", range(4))
def test_every_choice_of_slopes_is_near_the_nominal_matrix(seed: int) -> None:
    """|pᵀ(J - U)x|² ≤ (pᵀAp)(xᵀEx) up to sign of the nominal part, for slopes at the ends of their ranges."""
    rng = np.random.default_rng(seed)
    network = random_network(seed, (4, 10, 10, 3), "relu", gain=2.0)
    ball = lc.Ball(rng.standard_normal(4), 0.8)
    found, ranges = entries_of(network, ball)
    spread, nominal = np.ldexp(found.spread, 2 * found.exponent), np.ldexp(found.nominal, found.exponent)
    for _ in range(300):
        slopes = [np.where(rng.random(low.shape) < 0.5, low, high) for low, high in ranges]
        jacobian = network.jacobian_of(slopes)
        p, x = rng.standard_normal((20, 3)), rng.standard_normal((20, 4))
        value = np.abs(np.einsum("ki,ij,kj->k", p, jacobian, x))
        center = np.abs(np.einsum("ki,ij,kj->k", p, nominal, x))
        room = np.einsum("ki,ij,kj->k", p, spread, p) * np.einsum("ki,ij,kj->k", x, found.energy, x)
        assert (value <= center + np.sqrt(room) + 1e-12).all()


@pytest.mark.parametrize("bug", ["energy", "nominal", "spread"])
def test_planted_bugs_are_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer left out of E or of A, or half of U, must show."""
    honest = module._activated

    def broken(nominal: Any, spread: Any, energy: Any, *rest: Any) -> Any:
        U, A, E = honest(nominal, spread, energy, *rest)
        return {"energy": (U, A, energy), "nominal": (0.5 * U, A, E), "spread": (U, spread, E)}[bug]

    network = random_network(3, (4, 9, 9, 3), "relu", gain=2.5)
    ball = lc.Ball(np.zeros(4), 0.02 if bug == "nominal" else 1.0)  # in a small ball the nominal matrix is almost all
    worst = largest_entries(network, ball, np.random.default_rng(0))
    assert (worst <= entries_of(network, ball)[0].bounds() * (1.0 + 1e-14)).all()
    monkeypatch.setattr(module, "_activated", broken)
    assert not (worst <= entries_of(network, ball)[0].bounds()).all()


def test_a_group_asked_twice_gets_one_column() -> None:
    network, ball = random_network(0, (4, 12, 12, 3)), lc.Ball(np.zeros(4), 1.0)
    found = lc.sensitivity(network, ball, lc.Scalar(), inputs=[(0, 1), 2, (0, 1)], outputs=[(0, 2), 1, (0, 2)])
    assert np.array_equal(found.matrix[:, 0], found.matrix[:, 2])
    assert np.array_equal(found.matrix[0], found.matrix[2])
    assert lc.verify(network, found)
