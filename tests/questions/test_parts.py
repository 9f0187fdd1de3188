"""Bounds of parts of networks: chosen inputs, outputs and layers, against sampled differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.regions import Norms
from networks import random_network


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
