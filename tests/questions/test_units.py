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


def divided(ahead: Any = None) -> lc.Network:
    """A network that divides its inputs by their units: in a layer of its own in front, or inside the first one."""
    inner = random_network(0, (3, 16, 16, 1), gain=2.0).layers
    weights, biases = [np.asarray(layer.weight) for layer in inner], [layer.bias for layer in inner]
    if ahead is None:
        return lc.Network.from_weights([weights[0] / SCALE, *weights[1:]], biases, "relu")
    return lc.Network.from_weights([np.diag(1.0 / SCALE), *weights], [np.zeros(3), *biases], [ahead, "relu", "relu"])


@pytest.mark.parametrize("activation", ["identity", Activation("hardtanh", (-2.0, 2.0))])
def test_answers_are_as_large(activation: Any) -> None:
    networks = divided(activation), divided()
    one, other = (lc.reach(network, BOX, SPLIT) for network in networks)
    assert one.upper - one.lower == pytest.approx(other.upper - other.lower, rel=0.01)
    first, second = (lc.sensitivity(network, BOX, SPLIT).matrix for network in networks)
    assert first == pytest.approx(second, rel=0.02)
