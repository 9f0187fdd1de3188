"""Units: a controller whose inputs are radians and revolutions per minute.

Adding radians and revolutions per minute makes no sense. Say what one unit of each input and output is. The bound then
says by how many units an output can change if every input changes by at most one unit (ℓ∞ norms at both ends).

Run: python examples/units.py
"""

from __future__ import annotations

import numpy as np

import lipcert as lc
from lipcert.show.wording import upward

SENSORS = lc.LInf(scale=[0.1, 100.0, 2.0])  # one unit: 0.1 rad, 100 revolutions per minute, 2 °C
ACTUATORS = lc.LInf(scale=[0.5, 4.0])  # 0.5 N·m of torque, 4 % of throttle


def controller() -> lc.Network:
    """Three inputs in raw units, 24 tanh neurons twice, two outputs in raw units."""
    rng = np.random.default_rng(3)
    first = rng.standard_normal((24, 3)) / [1.5, 1500.0, 60.0]
    inner, last = rng.standard_normal((24, 24)) / 5.0, rng.standard_normal((2, 24)) / 4.0
    return lc.Network.from_weights([first, inner, last * [[1.0], [8.0]]], activation="tanh")


def main() -> None:
    network, point = controller(), [0.2, 1500.0, 80.0]
    region = lc.Ball(point, 2.0, norm=SENSORS)  # up to two units away in every input
    found = lc.certify(network, region, lc.Split(seconds=10.0, pieces=4000), input_norm=SENSORS, output_norm=ACTUATORS)
    lower = lc.lower_bound(network, region, input_norm=SENSORS, output_norm=ACTUATORS)
    print(f"around {point}, up to two units in every input")
    print(f"proved: one unit of every input moves an output by at most {upward(found.bound, 4)} units")
    print(f"seen: {lower.value:.4f} units at {lower.point.round(2).tolist()}")
    raw = lc.certify(network, region, lc.ClosedForm())
    print(f"in raw numbers the bound would be {upward(raw.bound, 4)}, which has no meaning")


if __name__ == "__main__":
    main()
