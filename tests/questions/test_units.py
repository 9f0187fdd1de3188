"""Reach sets and sensitivities do not depend on where the inputs are brought to units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.activations import Activation
from networks import random_network

SCALE = np.array([1.0, 0.1, 3000.0])
BOX = lc.Box(-SCALE, SCALE)
SPLIT = lc.Split(lc.ClosedForm(), tolerance=0.02, seconds=np.inf, pieces=300)


def network() -> lc.Network:
    return random_network(0, (3, 16, 16, 1), gain=2.0)


def ahead(activation: Any) -> lc.Network:
    """The division in a layer of its own, in front."""
    inner = network().layers
    weights, biases = [np.diag(1.0 / SCALE)], [np.zeros(3)]
    weights += [np.asarray(layer.weight) for layer in inner]
    biases += [layer.bias for layer in inner]
    return lc.Network.from_weights(weights, biases, [activation, "relu", "relu"])


def inside() -> lc.Network:
    inner = network().layers
    weights = [np.asarray(layer.weight) for layer in inner]
    weights[0] = weights[0] / SCALE
    return lc.Network.from_weights(weights, [layer.bias for layer in inner], "relu")


@pytest.mark.parametrize("activation", ["identity", Activation("hardtanh", (-2.0, 2.0))])
def test_answers_are_as_large(activation: Any) -> None:
    one, other = (lc.reach(net, BOX, SPLIT) for net in (ahead(activation), inside()))
    assert one.upper - one.lower == pytest.approx(other.upper - other.lower, rel=0.01)
    first, second = (lc.sensitivity(net, BOX, SPLIT).matrix for net in (ahead(activation), inside()))
    assert first == pytest.approx(second, rel=0.02)
