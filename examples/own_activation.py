"""An activation of your own, x/√(1 + x²), with the facts that a bound needs; most of them are checked."""

import numpy as np

import lipcert as lc

# φ' = (1 + x²)^(-3/2) rises up to 0, then falls; at both ends it tends to 0.
mine = lc.define_activation(
    "isru",
    lambda x: x / np.sqrt(1 + x**2),
    lambda x: 1 / ((1 + x**2) * np.sqrt(1 + x**2)),
    turning_points=[0.0],
    limits=(0.0, 0.0),
)
print("what is declared:", mine.row.declared)

rng = np.random.default_rng(0)
network = lc.Network.from_weights([rng.normal(size=(8, 3)), rng.normal(size=(1, 8))], activation=mine)
ball = lc.Ball([0.1, 0.2, 0.3], 0.2)
bound, lower = lc.certify(network, ball, lc.Joint()), lc.lower_bound(network, ball).value
print(f"bound: {bound.bound:.6g} {'(declared)' if bound.declared else ''}, at least {lower:.6g}")

try:  # the turning points are at ±√½
    lc.define_activation("gauss", lambda x: np.exp(-(x**2)), lambda x: -2 * x * np.exp(-(x**2)), [0.0], (0.0, 0.0))
except lc.InvalidInput as error:
    print("refused:", error)
