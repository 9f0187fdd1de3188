"""The way back from an input of another class."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from lipcert.methods.counterexample import bisected


def test_the_way_back_ends_where_classes_meet() -> None:
    network = lc.Network.from_weights([np.eye(2), np.eye(2)])
    center, points = np.array([2.0, 1.0]), np.array([[1.0, 2.0], [0.0, 4.0]])
    found = bisected(network, center, 0, points)
    np.testing.assert_allclose(found[:, 0], [[1.5, 1.5], [1.6, 1.6]], atol=1e-8)
    np.testing.assert_allclose(found[:, -1], points, atol=1e-8)
    assert (network(found.reshape(-1, 2)).argmax(axis=-1) == 1).all()
