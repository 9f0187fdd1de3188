"""Bounds of parts of networks: chosen inputs, outputs and layers, against sampled differences."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.model.norms import Norms
from lipcert.model.regions import Region
from lipcert.search.method import Method
from networks import random_network, sampled_quotients

METHODS: list[Method] = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal(), lc.Joint(iterations=4)]
ACTIVATIONS = ("relu", "tanh", "elu", "silu", "leaky_relu", "sin")


def held_pairs(region: Region, inputs: list[int], count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Pairs of inputs of a region that differ in the given coordinates only; half of them close together."""
    one, two = region.sample(count, rng), region.sample(count, rng)
    mixed = one.copy()
    mixed[:, inputs] = two[:, inputs]
    near = np.arange(count) % 2 == 0
    mixed[near] = one[near] + 1e-3 * (mixed[near] - one[near])
    inside = region.contains(mixed)
    return one[inside], mixed[inside]


@pytest.mark.parametrize("seed", range(12))
def test_chosen_inputs_and_outputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed, (4, 7, 6, 3), ACTIVATIONS[seed % len(ACTIVATIONS)], gain=2.0)
    region: Region = lc.Ball(rng.standard_normal(4), 0.7) if seed % 2 else lc.Box([-1.0] * 4, [0.8] * 4)
    inputs = sorted(rng.choice(4, size=rng.integers(1, 4), replace=False).tolist())
    outputs = sorted(rng.choice(3, size=rng.integers(1, 3), replace=False).tolist())
    stop = int(rng.integers(1, 4))
    chosen = [k for k in outputs if k < network.sizes[stop]]
    one, two = held_pairs(region, inputs, 600, rng)
    quotient, slack = sampled_quotients(network.slice(0, stop).select(outputs=chosen), one, two)
    assert quotient.max() > 0
    for method in METHODS:
        bound = lc.certify(network, region, method, inputs=inputs, outputs=chosen, layers=(0, stop)).bound
        assert (quotient <= bound + slack).all(), method


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 8))])
def test_every_choice_of_layers(seed: int) -> None:
    """From z_p to v_i, at points that the region leads to: the Jacobian in between, its rows and columns chosen."""
    rng = np.random.default_rng(seed)
    network = random_network(seed, (3, 5, 6, 5, 2), ACTIVATIONS[seed % len(ACTIVATIONS)], gain=2.0)
    region = None if seed % 4 == 3 else lc.Ball(rng.standard_normal(3), 0.5)
    points = rng.standard_normal((200, 3)) * 3.0 if region is None else region.sample(200, rng)
    states = [points]
    for layer, v in zip(network.layers[:-1], network.preactivations(points), strict=False):
        assert layer.neurons is not None
        states.append(layer.neurons.value(v))
    for start, stop in itertools.combinations(range(network.depth + 1), 2):
        part = network.slice(start, stop)
        into = sorted(rng.choice(part.inputs, size=rng.integers(1, part.inputs + 1), replace=False).tolist())
        out = sorted(rng.choice(part.outputs, size=rng.integers(1, part.outputs + 1), replace=False).tolist())
        method = METHODS[(start + stop) % 2]
        bound = lc.certify(network, region, method, inputs=into, outputs=out, layers=(start, stop)).bound
        right, left = part.jacobian(states[start]), part.jacobian(states[start], side=-1)
        clear = (right == left).all(axis=(1, 2))
        norms = np.linalg.norm(right[clear][:, out][:, :, into], ord=2, axis=(1, 2))
        assert (norms <= bound * (1.0 + 1e-13)).all(), (start, stop)
        # two values of z_p that the region leads to
        one, two = states[start][:100], states[start][100:]
        apart = np.linalg.norm(one - two, axis=1)
        moved = np.linalg.norm(part(one) - part(two), axis=1)
        whole = lc.certify(network, region, method, layers=(start, stop)).bound
        assert (moved <= whole * apart * (1.0 + 1e-12) + 1e-13).all()


def test_a_part_never_moves_more_than_the_whole() -> None:
    network, ball = random_network(5, (4, 8, 8, 3), "tanh"), lc.Ball(np.zeros(4), 0.5)
    whole = lc.certify(network, ball, lc.ClosedForm()).bound
    for k, j in itertools.product(range(4), range(3)):
        # the greedy choice of multipliers is made anew for a part: not worse by more than a little
        assert lc.certify(network, ball, lc.ClosedForm(), inputs=[k], outputs=[j]).bound <= 1.2 * whole


def test_a_bound_of_the_whole_network_stands_in_where_it_is_smaller() -> None:
    network = random_network(5, (3, 6, 3), "relu", gain=2.0)
    region = lc.Box(np.full(3, -0.5), np.full(3, 0.8))
    ends: dict[str, Any] = {"inputs": [0, 1], "outputs": [0, 2]}
    auto = lc.Auto(seconds=np.inf, pieces=8)
    found = lc.certify(network, region, auto, **ends)
    alone, whole = lc.certify(network, region, lc.Joint(), **ends), lc.certify(network, region, auto, outputs=[0, 2])
    assert found.tree is not None
    assert not found.part_sweeps
    assert found.bound == whole.bound < 0.95 * alone.bound
    assert lc.verify(network, found) <= found.bound
    assert lc.verify(network, found, exact=True) <= found.bound
    few = lc.certify(network, region, auto, inputs=[2], outputs=[0, 2])  # points show that the whole moves more
    assert few.tree is None
    assert few.bound < 0.8 * whole.bound
    with pytest.raises(lc.ProofFailed):  # a bound of some outputs is none of the others
        lc.verify(network, replace(found, part=replace(found.part, outputs=None)))


def test_second_order_of_the_whole_network_bounds_some_inputs() -> None:
    network = random_network(1, (30, 12, 12, 2), "tanh", gain=1.0)
    found = lc.certify(network, lc.Ball(np.zeros(30), 0.1), lc.Auto(seconds=np.inf), inputs=range(28))
    assert found.curved is not None
    assert found.part.inputs == tuple(range(28))
    assert lc.verify(network, found) <= found.bound
    other = replace(found.part, norms=Norms(lc.LInf(), lc.L2()))
    with pytest.raises(lc.ProofFailed, match="second order"):
        lc.verify(network, replace(found, part=other))
