"""Small closed loops that several tests ask about: a pendulum, linear and not, with networks that control it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import lipcert as lc
from lipcert.model.arrays import Array

DT = 0.05
A, B = np.array([[1.0, DT], [DT * 9.81, 1.0]]), np.array([[0.0], [DT * 5.0]])
GAIN = np.array([-3.8, -1.45])
"""Of a linear controller that a network imitates."""


@cache
def controller(neurons: int = 16, limit: float | None = None) -> lc.Network:
    """About GAIN·x, by random tanh features and least squares; with a limit saturated by hardtanh."""
    rng = np.random.default_rng(3)
    W1, W2 = rng.standard_normal((neurons, 2)) * 0.7, rng.standard_normal((neurons, neurons)) / neurons**0.5
    x = rng.uniform([-1.5, -3.0], [1.5, 3.0], (4000, 2))
    z = np.tanh(np.tanh(x @ W1.T) @ W2.T)
    last = np.linalg.lstsq(np.vstack([z, np.eye(neurons)]), np.append(x @ GAIN, np.zeros(neurons)), rcond=None)[0]
    if limit is None:
        return lc.Network.from_weights([W1, W2, last[None]], activation="tanh")
    return lc.Network.from_weights([W1, W2, last[None] / limit, [[limit]]], activation=["tanh", "tanh", "hardtanh"])


def pendulum() -> lc.Network:
    """The step (θ + dt·ω, ω + dt·(9.81 sin θ + 5u)) of a pendulum that stands on its head, from (θ, ω, u)."""
    first = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    last = [[0.0, 1.0, DT, 0.0], [DT * 9.81, 0.0, 1.0, DT * 5.0]]
    return lc.Network.from_weights([first, last], activation=[["sin", "identity", "identity", "identity"]])


def turning() -> lc.Network:
    """The step (x + 0.1·y·cos x, y + 0.1·u) from (x, y, u): the product is a coupling."""
    coupled = lc.Coupling.of(3, 4, products=[([[3]], [[1]])])  # y·cos x, after x, y and u
    first, second = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], np.eye(4)
    last = [[1, 0, 0, 0.1], [0, 1, 0.1, 0]]
    rows = [["identity", "identity", "identity", "cos"], ("identity", coupled)]
    return lc.Network.from_weights([first, second, last], activation=rows)


LOOPS: dict[str, Any] = {
    "linear": lambda: lc.feedback(A, B, controller()),
    "pendulum": lambda: lc.closed_loop(pendulum(), controller()),
    "turning": lambda: lc.closed_loop(turning(), controller()),
    "saturated": lambda: lc.closed_loop(pendulum(), controller(limit=2.0)),
}


@cache
def loop(name: str) -> lc.Network:
    """One of the loops."""
    found: lc.Network = LOOPS[name]()
    return found


def simulated(step: lc.Network, start: Array, steps: int, forces: Any = None) -> Array:
    """States (steps + 1, count, states) from some initial states, as floating point has them."""
    states = [start]
    for k in range(steps):
        x = states[-1] if forces is None else np.hstack([states[-1], forces[k]])
        states.append(step(x))
    return np.stack(states)


def spread_out(box: lc.Box, count: int) -> Array:
    """Points of a box, its corners among them."""
    corners = np.array(np.meshgrid(*zip(box.lower, box.upper, strict=True))).reshape(len(box.lower), -1).T
    return np.concatenate([box.sample(count, np.random.default_rng(0)), corners])
