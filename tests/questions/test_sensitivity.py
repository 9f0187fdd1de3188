"""Bounds for every pair of an output and an input: sound, close to a bound for the pair alone, and proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel import jacobian as module
from lipcert.kernel.jacobian import columns, entries
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.norms import ellipsoid_above
from lipcert.kernel.step import Image, activate
from lipcert.model.arrays import Array, Weight
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


def entries_of(network: lc.Network, region: Region) -> Array:
    """What is proved of the entries of the Jacobian."""
    facts = prove_outputs(network, region, lc.ClosedForm())
    hidden = [layer.neurons for layer in network.layers if layer.neurons is not None]
    return entries(network, [slope_bounds(one, *ends) for one, ends in zip(hidden, facts.intervals, strict=True)])


@pytest.mark.parametrize("sizes", [(4, 10, 10, 3), (2, 10, 10, 5)])
def test_entries_are_those_of_every_choice_of_slopes(sizes: tuple[int, ...]) -> None:
    """From both ends, also the columns' norms, for slopes at the ends of their ranges."""
    rng = np.random.default_rng(len(sizes))
    network, ranges = random_network(1, sizes, "relu", gain=2.0), []
    for size in sizes[1:-1]:
        low = rng.uniform(0.0, 0.5, size)
        ranges.append((low, low + np.where(rng.random(size) < 0.3, 0.0, rng.uniform(0.0, 0.5, size))))
    found, weights = entries(network, ranges), [layer.weight for layer in network.layers]

    def norm(image: Image) -> Array:
        S, exponent = image.block()
        return np.ldexp(ellipsoid_above(S, lc.L2()), exponent)

    norms = columns(weights, ranges, norm, [0.25, 1.0])[:, 0]
    for _ in range(300):
        slopes = [np.where(rng.random(low.shape) < 0.5, low, high) for low, high in ranges]
        matrix = network.jacobian_of(slopes)
        assert (np.abs(matrix) <= found * (1.0 + 1e-14)).all()
        assert (np.linalg.norm(matrix, axis=0) <= norms * (1.0 + 1e-14)).all()


class Halved(Image):
    """An image whose first weight is half of the network's."""

    def __init__(self, P: Array | None, exponent: Array, weight: Weight) -> None:
        super().__init__(P, exponent, 0.5 * weight if P is None else weight)


@pytest.mark.parametrize("bug", ["step", "weight"])
def test_planted_bugs_are_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The multipliers left out of a step, or half of a column, must show."""
    network = random_network(3, (4, 9, 9, 3), "relu", gain=2.5)
    ball = lc.Ball(np.zeros(4), 0.02 if bug == "weight" else 1.0)
    worst = largest_entries(network, ball, np.random.default_rng(0))
    assert (worst <= entries_of(network, ball) * (1.0 + 1e-14)).all()

    def broken(S: Array, alpha: Array, beta: Array, T: Array) -> Any:
        step = activate(S, alpha, beta, T)
        return replace(step, P=step.m[:, :, None] * S * step.m[:, None, :])

    if bug == "step":
        monkeypatch.setattr(module, "activate", broken)
    else:
        monkeypatch.setattr(module, "Image", Halved)
    assert not (worst <= entries_of(network, ball)).all()


def test_a_group_asked_twice_gets_one_column() -> None:
    network, ball = random_network(0, (4, 12, 12, 3)), lc.Ball(np.zeros(4), 1.0)
    found = lc.sensitivity(network, ball, lc.Scalar(), inputs=[(0, 1), 2, (0, 1)], outputs=[(0, 2), 1, (0, 2)])
    assert np.array_equal(found.matrix[:, 0], found.matrix[:, 2])
    assert np.array_equal(found.matrix[0], found.matrix[2])
    assert lc.verify(network, found)
