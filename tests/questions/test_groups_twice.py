"""A group that is asked for twice has one answer."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from networks import random_network


def test_a_group_asked_twice_gets_one_column() -> None:
    network, ball = random_network(0, (4, 12, 12, 3)), lc.Ball(np.zeros(4), 1.0)
    found = lc.sensitivity(network, ball, lc.Scalar(), inputs=[(0, 1), 2, (0, 1)], outputs=[(0, 2), 1, (0, 2)])
    assert np.array_equal(found.matrix[:, 0], found.matrix[:, 2])
    assert np.array_equal(found.matrix[0], found.matrix[2])
    assert lc.verify(network, found)
