"""A controller: how much does each sensor affect the torque, and how large can the torque get?

A network of two tanh layers has learned a law that keeps a pendulum upright. The script bounds the effect of sensor
noise, and proves that the network never asks for more torque than the motor has. Both hold over the whole operating
range; branch and bound stops two per cent above what samples show.

Run: python examples/controller.py        (needs scikit-learn)
"""

from __future__ import annotations

import numpy as np
from sklearn.neural_network import MLPRegressor

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.show.wording import upward

RANGE = np.array([0.5, 1.0])  # operating range: rad, rad/s
NOISE = np.array([0.01, 0.05])  # largest errors of the two sensors
TORQUE = 8.0  # largest torque of the motor, N·m
METHOD = lc.Split(tolerance=0.02, seconds=10.0)


def law(states: Array) -> Array:
    """The torque to be imitated: feedback of angle and rate, with gravity compensated."""
    return -(9.0 * np.sin(states[:, 0]) + 2.5 * np.tanh(states[:, 1]))


def controller() -> lc.Network:
    """A network 2 → 32 → 32 → 1 that has learned the law."""
    states = np.random.default_rng(0).uniform(-1.5 * RANGE, 1.5 * RANGE, (1000, 2))
    model = MLPRegressor(
        hidden_layer_sizes=(32, 32), activation="tanh", solver="lbfgs", alpha=1e-2, max_iter=2000, random_state=0
    )
    model.fit(states, law(states))
    return lc.Network.from_weights([weight.T for weight in model.coefs_], model.intercepts_, "tanh")


def main() -> None:
    network, box = controller(), lc.Box(-RANGE, RANGE)
    states = box.sample(20000, np.random.default_rng(1))
    error = np.abs(network(states)[:, 0] - law(states)).max()
    print(f"controller 2 → 32 → 32 → 1, off the law by at most {error:.3f} N·m at {len(states)} states\n")
    jacobians, torque = network.jacobian(states), network(states)[:, 0]
    seen = np.abs(jacobians[:, 0]).max(axis=0)
    steepest = np.linalg.norm(jacobians[:, 0], axis=1).max()
    bound = lc.certify(network, box, METHOD).bound
    steep = lc.sensitivity(network, box, METHOD).matrix[0]
    reached = lc.reach(network, box, METHOD)
    low, high = float(reached.lower[0]), float(reached.upper[0])
    print("steepest slope of the torque, N·m per rad and per rad/s, along the steepest way, and its range in N·m")
    print(f"{'':>7} {'angle':>8} {'rate':>8} {'steepest':>9} {'torque':>18}")
    print(f"{'seen':>7} {seen[0]:8.3f} {seen[1]:8.3f} {steepest:9.3f} {f'{torque.min():.3f} … {torque.max():.3f}':>18}")
    print(f"{'proved':>7} {steep[0]:8.3f} {steep[1]:8.3f} {bound:9.3f} {f'{low:.3f} … {high:.3f}':>18}")
    moved = upward(float(steep @ NOISE), 3)  # never rounded down
    print(f"\nproved: noise of {NOISE[0]} rad and {NOISE[1]} rad/s moves the torque by at most {moved} N·m,")
    verdict = "is enough" if max(-low, high) <= TORQUE else "is not proved to be enough"
    print(f"and a motor of {TORQUE} N·m {verdict}")


if __name__ == "__main__":
    main()
