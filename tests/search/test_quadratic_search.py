"""The search for parabolas: what it does not find, the proof does without; what it solves, it solves."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from lipcert.suggest.algebra import solved


def test_an_equation_is_solved() -> None:
    rng = np.random.default_rng(0)
    weight, bend, row = rng.standard_normal((6, 4)), rng.random(6), rng.standard_normal(4)
    form = weight.T @ (bend[:, None] * weight)
    mu = 1.5 * float(np.linalg.eigvalsh(form)[-1])
    np.testing.assert_allclose(solved(weight, bend, row, mu), np.linalg.solve(mu * np.eye(4) - form, row), rtol=1e-9)


def test_ill_scaled_networks_get_an_answer() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        scales = rng.choice([1e-120, 1e-60, 1.0, 1e60, 1e120], 3)
        sizes = (2, 4, 4, 2)
        weights = [rng.standard_normal((sizes[k + 1], sizes[k])) * scales[k] for k in range(3)]
        network, point = lc.Network.from_weights(weights, activation="relu"), rng.standard_normal(2)
        with np.errstate(all="ignore"):
            values = network(point)
        if not np.isfinite(values).all():
            continue
        label, radius = int(values.argmax()), 0.5 * float(np.linalg.norm(point))
        try:
            found = lc.certified_radius(network, point, label, radii=[radius], values=True)
        except lc.LipcertError:
            continue
        assert 0.0 <= found.radius <= radius
