"""A classifier of handwritten digits: how far can each image be changed before its class can change?

For some test images: the certified radius, the radius by the rule of the literature, and the nearest counterexample
that an attack finds. The true distance lies between the first and the last.

Run: python examples/classifier.py        (needs scikit-learn)
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import lipcert as lc
from lipcert.model.arrays import Array

IMAGES = 12


def trained() -> tuple[lc.Network, Array, Array]:
    """A network of two hidden layers, and the images and labels that it has not seen; pixels from 0 to 1."""
    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1200], order[1200:]
    model = MLPClassifier(hidden_layer_sizes=(32, 32), alpha=1.0, max_iter=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training stops before it has converged
        model.fit(x[train], y[train])
    network = lc.Network.from_weights([weight.T for weight in model.coefs_], model.intercepts_, "relu")
    return network, x[test], y[test]


def by_the_rule(network: lc.Network, x: Array, margin: float) -> float:
    """The largest min(ε, margin/(√2·L(ε))) on a grid of ε, where L(ε) bounds the whole network over the ball."""
    balls = [lc.Ball(x, radius, clip=(0, 1)) for radius in np.geomspace(0.01, 4.0, 40)]
    bounds = [one.bound for one in lc.certify_many(network, balls)]
    return max(min(float(ball.radius), margin / (2.0**0.5 * L)) for ball, L in zip(balls, bounds, strict=True))


def main() -> None:
    network, x, y = trained()
    right = network(x).argmax(axis=1) == y
    print(f"{right.mean():.1%} of {len(x)} test images are classified correctly\n")
    print(f"{'image':>5} {'digit':>5} {'proved ≥':>9} {'by the rule':>12} {'attack at':>10} {'becomes':>8}")
    proved, plain = [], []
    for image in np.flatnonzero(right)[:IMAGES]:
        safe = lc.certified_radius(network, x[image], y[image], clip=(0, 1))
        rule = by_the_rule(network, x[image], safe.margin)
        attack = lc.attack(network, x[image], y[image], radius=4.0, clip=(0, 1))
        found = f"{attack.distances:10.3f} {int(network(attack.points).argmax()):8d}" if attack.found else f"{'—':>10}"
        print(f"{image:5d} {y[image]:5d} {safe.radius:9.3f} {rule:12.3f} {found}")
        proved.append(safe.radius)
        plain.append(rule)
    print(f"\nmean radius proved {np.mean(proved):.3f}, by the rule alone {np.mean(plain):.3f}")


if __name__ == "__main__":
    main()
