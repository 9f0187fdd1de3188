"""Lower bounds in a given time; what they find is tested with the laws and in tests/proof."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from networks import random_network


@pytest.mark.parametrize("seconds", [0.0, 3.0, 30.0])
def test_time_limits_the_search(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Jacobian takes a second here: no more are formed than there is time for, and what is found is proved."""
    network, ball = random_network(0, (4, 600, 3), "tanh"), lc.Ball(np.zeros(4), 1.0)
    spent = [0.0]
    jacobian = lc.Network.jacobian

    def slow(network: lc.Network, x: Array, side: int = 1) -> Array:
        spent[0] += 0.5
        return jacobian(network, x, side)

    class Time:
        @staticmethod
        def perf_counter() -> float:
            return spent[0]

    monkeypatch.setattr("lipcert.runtime.clock.time", Time)
    monkeypatch.setattr(lc.Network, "jacobian", slow)
    found = lc.lower_bound(network, ball, seconds=seconds)
    overrun = 14.0  # one batch of points, one step of the ascent and the proof
    assert spent[0] <= seconds + overrun
    unlimited = lc.lower_bound(network, ball, seconds=None)
    assert 0.0 < found.value <= unlimited.value * (1.0 + 1e-12)
    assert spent[0] > 3.0 * overrun
