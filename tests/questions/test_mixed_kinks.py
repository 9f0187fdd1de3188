"""Smooth and kinked activations in one network: bounds of pieces approach the truth, from both sides."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from networks import random_network

A = np.array([[1.0, 0.05], [0.49, 0.975]])
BOX = lc.Box([-0.5, -1.5], [0.5, 1.5])


def closed_loop(hidden: Array, out: Array) -> lc.Network:
    """x ↦ Ax + B·clamp(out·tanh(hidden·x), -1, 1)."""
    n, eye, tanh, same = len(hidden), np.eye(2), activation("tanh"), activation("identity")
    first = np.concatenate([hidden, eye])
    second = np.block([[out, np.zeros((1, 2))], [np.zeros((2, n)), eye]])
    third = np.concatenate([np.array([[0.0], [0.25]]), A], axis=1)
    clamp = activation("hardtanh")
    return lc.Network.from_weights([first, second, third], activation=[[tanh] * n + [same] * 2, [clamp, same, same]])


def seen_norm(network: lc.Network, count: int) -> float:
    points = BOX.sample(count, np.random.default_rng(1))
    return float(np.linalg.norm(network.jacobian(points), 2, axis=(1, 2)).max())


def networks() -> dict[str, lc.Network]:
    rng = np.random.default_rng(4)
    return {
        "direct": closed_loop(np.eye(2), np.array([[-4.0, -1.2]])),
        "controller": closed_loop(rng.standard_normal((12, 2)), rng.standard_normal((1, 12))),
        "tanh, then relu": random_network(4, (2, 10, 10, 2), ["tanh", "relu"]),
        "relu, then tanh": random_network(2, (2, 10, 10, 2), ["relu", "tanh"]),
        "selu": random_network(5, (2, 10, 10, 2), "selu"),
    }


@pytest.mark.parametrize("name", list(networks()))
def test_split_comes_close_to_sampling(name: str) -> None:
    network = networks()[name]
    seen = seen_norm(network, 20_000)
    found = lc.certify(network, BOX, lc.Split(tolerance=0.01, seconds=np.inf, pieces=1500))
    assert seen <= found.bound <= 1.015 * seen
    assert lc.verify(network, found) <= found.bound


def test_the_audit_proves_a_tree_across_kinks() -> None:
    pytest.importorskip("flint")
    network = networks()["direct"]
    found = lc.certify(network, BOX, lc.Split(tolerance=0.01, seconds=np.inf, pieces=200))
    assert lc.verify(network, found, exact=True) <= found.bound
