"""Parabolas whose squares are bounded together: secants, exact cases, planted mistakes, and the radii that follow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from exact import exact_outputs, matrix, positive_semidefinite, rational
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.neuron_bounds import value_error
from lipcert.kernel.quadratic_form import KnownLayer, QuadraticHints, QuadraticRelaxation, first_factor
from lipcert.methods.second_order import _Objective, suits
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Layer, Neurons
from lipcert.questions.prove_outputs import prove_outputs
from networks import NAMED_ROWS, ROW_LABELS, ROWS, random_network, spread

ROW = np.array([1.0, -1.0])
SIZES = [(3, 6, 2), (3, 7, 6, 2), (2, 5, 6, 4, 2), (20, 5, 6, 2)]


def relaxed(network: lc.Network, ball: lc.Ball) -> QuadraticRelaxation:
    return prove_outputs(network, ball, lc.ClosedForm()).quadratic_relaxation


def hinted(found: QuadraticRelaxation, row: Array = ROW, wild: Any = None) -> QuadraticHints:
    """Where a search begins; or anything, by a random number generator."""
    objective = _Objective(found, row)
    hints = objective.hints(objective.start())
    if wild is None:
        return hints
    parts = (hints.slopes, hints.bends, hints.multipliers or ())
    slopes, bends, T = (tuple(part * wild.uniform(-0.5, 3.0, part.shape) for part in some) for some in parts)
    return QuadraticHints(row, slopes, bends, 30.0 * hints.mu, multipliers=T)


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_secants_hold(row: Activation, error: float) -> None:
    """On intervals of all sizes, seen from a point in each, sometimes an end of it."""
    row = lc.activation(row.name, **dict(zip(row.row.parameters, row.parameters, strict=True)))
    for seed in range(4):
        rng, n = np.random.default_rng(seed), 60
        center = rng.standard_normal(n) * 10.0 ** rng.uniform(-3.0, 1.0, n)
        ways = 10.0 ** rng.uniform(-6.0, 1.3, (2, n)) * rng.integers(0, 4, (2, n)).clip(max=1)
        lower, upper = center - ways[0], center + ways[1]
        layer = Layer(np.eye(n), np.zeros(n), Neurons.of(row, n))
        alpha, beta = KnownLayer.of(layer, (lower, upper), Near(center, np.full(n, error))).secants
        assert layer.neurons is not None
        shares = np.concatenate([np.linspace(0.0, 1.0, 301), 10.0 ** rng.uniform(-8.0, 0.0, 100)])[:, None]
        for end in (lower, upper):
            v = np.clip(center + shares * (end - center), lower, upper)
            c = center + error * rng.uniform(-1.0, 1.0, v.shape)
            value, here = layer.neurons.value(v), layer.neurons.value(c)
            rise, away = value - here, v - c
            noise = value_error(layer.neurons, value) + value_error(layer.neurons, here) + 1e-15 * np.abs(rise)
            assert (rise * away <= beta * away**2 + noise * np.abs(away)).all()
            assert (rise * away >= alpha * away**2 - noise * np.abs(away)).all()


@pytest.mark.parametrize(
    ("row", "seed", "clipped"),
    spread(16, NAMED_ROWS, {str(SIZES[seed]): seed for seed in range(4)}, {"ball": False, "clip": True}),
)
def test_no_point_is_above(row: Activation, seed: int, clipped: bool) -> None:
    network = random_network(seed, SIZES[seed], row, gain=2.0)
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(network.inputs)
    for radius in (1e-3, 0.2, 1.0):
        ball = lc.Ball(center, radius, (center - 0.3, center + 0.1) if clipped else None)
        found = relaxed(network, ball)
        for way in rng.standard_normal((2, 2)):
            steepest = way @ network.jacobian(center)
            steepest = radius * steepest / max(float(np.linalg.norm(steepest)), 1e-300)
            x = ball.project(np.concatenate([ball.sample(400, rng), center[None] + steepest]))
            most = (network(x) @ way).max() - 1e-13 * (1.0 + np.abs(network(x)).max())
            assert found.above(hinted(found, way)) >= most
            for _ in range(2):
                with suppress(ProofFailed):
                    assert found.above(hinted(found, way, rng)) >= most


def exactly(network: lc.Network, x: list[Fraction]) -> Fraction:
    """f_0 - f_1 in rational arithmetic."""
    one, two = exact_outputs(network, x)
    return one - two


@pytest.mark.parametrize("seed", range(10))
def test_quadratic_networks_exactly(seed: int) -> None:
    """In rational arithmetic, in balls of all sizes: no value above the bound."""
    network = random_network(seed, (3, 6, 5, 2), "hardswish", gain=3.0)
    rng = np.random.default_rng(seed)
    center, radius = rng.standard_normal(3), float(10.0 ** rng.uniform(-12.0, 0.0))
    above = relaxed(network, lc.Ball(center, radius)).above(hinted(relaxed(network, lc.Ball(center, radius))))
    here = [Fraction(float(c)) for c in center]
    gradient = ROW @ network.jacobian(center)
    for step in (gradient, *rng.standard_normal((5, 3))):
        away = [Fraction(float(a)) for a in step * radius / np.linalg.norm(step)]
        while sum(a * a for a in away) > Fraction(radius) ** 2:
            away = [a * Fraction(2**52 - 1, 2**52) for a in away]
        assert exactly(network, [c + a for c, a in zip(here, away, strict=True)]) <= Fraction(above)
    if radius < 1e-6:
        rise = Fraction(above) - exactly(network, here)
        assert rise <= float(np.linalg.norm(gradient)) * radius * 1.02 + 1e-14


@pytest.mark.parametrize("seed", range(4))
def test_the_factor_of_a_wide_weight(seed: int) -> None:
    """R Rᵀ - W Wᵀ is positive semidefinite, in fractions, and small; also where rows are alike, or zero."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((4, 11)) * 10.0 ** rng.uniform(-3.0, 3.0, (4, 1))
    W[seed] = W[0] if seed else 0.0
    R = first_factor(W)
    assert R.shape == (4, 4)
    gap = matrix(R) * matrix(R).transpose() - matrix(W) * matrix(W).transpose()
    assert max(abs(x) for x in gap.entries()) <= rational(1e-12 * float((W * W).sum(axis=1).max()))
    assert positive_semidefinite(gap)
    assert first_factor(W.T) is not R
    np.testing.assert_array_equal(first_factor(W.T), W.T)


def bowl() -> lc.Network:
    """f_0 - f_1 = 1 - ‖x‖²/3 near 0: hardswish(v) + hardswish(-v) = v²/3 for |v| ≤ 3."""
    signs = np.concatenate([np.eye(2), -np.eye(2)])
    return lc.Network.from_weights([signs, [[0.0] * 4, [1.0] * 4]], [np.zeros(4), [1.0, 0.0]], "hardswish")


def test_a_bowl_is_as_wide_as_it_is() -> None:
    found = lc.certified_radius(bowl(), [0.0, 0.0])
    assert np.sqrt(3.0) * 0.97 < found.radius <= np.sqrt(3.0)
    bare = lc.certified_radius(bowl(), [0.0, 0.0], curvature=False).radius
    assert bare < 0.75 * found.radius
    only = lc.certified_radius(bowl(), [0.0, 0.0], radii=[0.5, 1.6, 2.0])
    assert (only.radius, only.ball, only.rival) == (1.6, 1.6, 1)


@pytest.mark.parametrize("mistake", ["", "secants", "squares"])
def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """Secants that are too flat, squares that count too little: then some point is above."""
    tanh, exact = random_network(5, (2, 8, 8, 2), "tanh", gain=6.0, bias=0.2), mistake == "squares"
    secants = KnownLayer.secants.func  # type: ignore[attr-defined]

    def flat(stage: KnownLayer) -> tuple[Array, Array]:
        alpha, beta = secants(stage)
        return (0.25 * (alpha + beta),) * 2

    if mistake == "secants":
        monkeypatch.setattr(KnownLayer, "secants", property(flat))
    if mistake == "squares":
        together = QuadraticRelaxation._together
        monkeypatch.setattr(
            QuadraticRelaxation, "_together", lambda *given: tuple(0.3 * part for part in together(*given))
        )
    rng, caught = np.random.default_rng(0), False
    for center in rng.uniform(-1.0, 1.0, (30, 2)):
        network, ball = (bowl(), lc.Ball(0.3 * center, 1.5)) if exact else (tanh, lc.Ball(center, 0.3))
        values, found = network(ball.sample(3000, rng)), relaxed(network, ball)
        for row in (ROW, -ROW):
            hints = hinted(found, row)
            mus = (factor * hints.mu for factor in (1.0, 1.5, 2.5))
            bounds = [found.above(replace(hints, mu=mu)) for mu in mus]
            caught |= bool(min(bounds) < (values @ row).max())
    assert caught == bool(mistake)


def test_what_is_left_alone() -> None:
    assert not suits(random_network(0, (3, 2)))
    assert not suits(random_network(0, (3, 700, 2)))
    assert suits(random_network(0, (784, 128, 128, 128, 10)))
    network, hints = random_network(0, (3, 4, 5, 2), "tanh"), lc.Ball([0.0] * 3, 0.1)
    found = relaxed(network, hints)
    good = hinted(found)
    for wrong in ((), (np.ones(3),), (np.ones(4), np.ones(5))):
        with pytest.raises(ProofFailed, match="other layers"):
            found.above(replace(good, multipliers=wrong))
