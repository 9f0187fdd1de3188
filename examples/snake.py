"""An activation of your own: Snake, x + sin²x, with the facts that a bound needs; most of them are checked."""

import numpy as np

import lipcert as lc

# φ' = 1 + sin 2x turns where cos 2x = 0. φ - x stays between 0 and 1, and φ' has the period π.
snake = lc.define_activation(
    "my_snake",
    lambda x: x + np.sin(x) ** 2,
    lambda x: 1.0 + np.sin(2.0 * x),
    turning_points=[np.pi / 4, 3 * np.pi / 4],
    period=np.pi,
    drift=1.0,
    extent=(0.0, 1.0),
)
print("what is declared:", snake.row.declared)

rng = np.random.default_rng(0)
weights = [rng.normal(size=(8, 3)), rng.normal(size=(8, 8)) / 3, rng.normal(size=(1, 8))]
ball = lc.Ball([0.1, 0.2, 0.3], 0.2)
mine = lc.Network.from_weights(weights, activation=snake)
bound = lc.certify(mine, ball, lc.Joint())
print(f"with my own: {bound.bound:.17g} {'(declared)' if bound.declared else ''}")
table = lc.certify(lc.Network.from_weights(weights, activation="snake"), ball, lc.Joint())
print(f"of the table: {table.bound:.17g}")
assert np.isclose(bound.bound, table.bound, rtol=1e-9)

try:  # a turning point left out
    lc.define_activation("wave", np.sin, np.cos, [0.0, 1.0], period=2 * np.pi)
except lc.InvalidInput as error:
    print("refused:", error)
