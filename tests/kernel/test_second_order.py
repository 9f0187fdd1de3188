"""Second-order bounds: parabolas and secants of every activation, what a row rises by, and the radii that follow."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel import second_order as proof
from lipcert.kernel.classes import stay_positive
from lipcert.kernel.neuron_bounds import value_error
from lipcert.kernel.remainder import Parabolas, parabolas
from lipcert.kernel.second_order import SecondOrder
from lipcert.methods.second_order import PairSearch, _Objective, suits
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.questions.prove_outputs import prove_outputs
from networks import NAMED_ROWS, ROW_LABELS, ROWS, random_network, spread

GUIDE = PairSearch()


def intervals(seed: int, count: int) -> tuple[Array, Array, Array]:
    """Intervals of all sizes and a point in each, sometimes an end of it."""
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(count) * 10.0 ** rng.uniform(-3.0, 1.0, count)
    ways = 10.0 ** rng.uniform(-6.0, 1.3, (2, count)) * rng.integers(0, 4, (2, count)).clip(max=1)
    return center - ways[0], center + ways[1], center


def seen(row: Activation, seed: int, error: float = 0.0) -> tuple[Parabolas, Array, Array, Array, Neurons]:
    lower, upper, center = intervals(seed, 60)
    row = lc.activation(row.name, **dict(zip(row.row.parameters, row.parameters, strict=True)))
    neurons = Neurons.of(row, 60)
    return parabolas(neurons, lower, upper, center, np.full(60, error)), lower, upper, center, neurons


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_parabolas_and_secants_hold(row: Activation, error: float) -> None:
    for seed in range(4):
        found, lower, upper, center, neurons = seen(row, seed, error)
        rng = np.random.default_rng(seed)
        shares = np.concatenate([np.linspace(0.0, 1.0, 301), 10.0 ** rng.uniform(-8.0, 0.0, 100)])[:, None]
        for end in (lower, upper):
            v = np.clip(center + shares * (end - center), lower, upper)
            c = center + error * rng.uniform(-1.0, 1.0, v.shape)
            rise, away = neurons.value(v) - neurons.value(c), v - c
            noise = value_error(neurons, neurons.value(v)) + value_error(neurons, neurons.value(c))
            noise += 1e-15 * (np.abs(rise) + np.abs(found.slope * away))
            rest = rise - found.slope * away
            assert (rest <= found.above * away**2 / 2 + found.slack + noise).all()
            assert (rest >= found.below * away**2 / 2 - found.slack - noise).all()
            assert (rise * away <= found.beta * away**2 + noise * np.abs(away)).all()
            assert (rise * away >= found.alpha * away**2 - noise * np.abs(away)).all()
            assert (np.abs(away) <= found.reach).all()
            assert (np.abs(rise) <= found.moved + noise).all()


def curved(network: lc.Network, ball: lc.Ball) -> SecondOrder:
    return prove_outputs(network, ball, lc.ClosedForm()).second_order(GUIDE.ellipsoids)


def hints(found: SecondOrder, rise: proof.Rise) -> tuple[list[Array], float]:
    objective = _Objective(found, rise, 1.0)
    return objective.hints(objective.start())


SIZES = [(3, 6, 2), (3, 7, 6, 2), (2, 5, 6, 4, 3), (20, 5, 6, 2)]


@pytest.mark.parametrize(
    ("row", "seed", "clipped"),
    spread(16, NAMED_ROWS, {str(SIZES[seed]): seed for seed in range(4)}, {"ball": False, "clip": True}),
)
def test_no_point_rises_more(row: Activation, seed: int, clipped: bool) -> None:
    sizes = SIZES[seed]
    network = random_network(seed, sizes, row, gain=2.0)
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(sizes[0])
    for radius in (1e-3, 0.2, 1.0):
        ball = lc.Ball(center, radius, (center - 0.3, center + 0.1) if clipped else None)
        found = curved(network, ball)
        rows = rng.standard_normal((2, sizes[-1]))
        x = center + radius * lc.Ball(np.zeros(sizes[0]), 1.0).sample(400, rng)
        steps = rows @ network.jacobian(center)
        steps = radius * steps / np.maximum(np.linalg.norm(steps, axis=1), 1e-300)[:, None]
        x = ball.project(np.concatenate([x, center + steps]))
        rises = (network(x) - network(center)) @ rows.T
        for k, rise in enumerate(found.rises(rows)):
            start, mu = hints(found, rise)
            most = rises[:, k].max() - 1e-13 * (1.0 + np.abs(network(x)).max())
            for factor in (1.0, 3.0):  # whatever the hints are
                assert found.above(rise, [factor * T for T in start], factor * mu) >= most
            some = [T * np.exp(rng.standard_normal(T.shape)) for T in start]
            assert found.above(rise, some, 30.0 * mu) >= most


@pytest.mark.parametrize("seed", range(12))
def test_linear_networks_exactly(seed: int) -> None:
    """The rise of a linear function is δ‖g‖, which the last bit may not fall below."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in ((5, 4), (6, 5), (3, 6))]
    network = lc.Network.from_weights(weights, [rng.standard_normal(len(w)) for w in weights], "identity")
    exact: Any = np.array([[Fraction(1)] * 3], dtype=object) * np.array([[1, -1, 0]])
    rows = np.array([[1.0, -1.0, 0.0]])
    for weight in reversed(weights):
        exact = exact.dot(np.vectorize(Fraction, otypes=[object])(weight))
    radius = float(10.0 ** rng.uniform(-8.0, 2.0))
    found = curved(network, lc.Ball(rng.standard_normal(4), radius))
    (rise,) = found.rises(rows)
    steep = float(np.sqrt(float((exact**2).sum())))
    above = found.above(rise, [np.zeros(5)], steep / radius)
    assert Fraction(above) ** 2 >= Fraction(radius) ** 2 * (exact**2).sum()
    assert above <= radius * steep * (1.0 + 1e-7)


def hardswish(v: Fraction) -> Fraction:
    return Fraction(0) if v <= -3 else v if v >= 3 else v * (v + 3) / 6


def exactly(network: lc.Network, x: list[Fraction]) -> list[Fraction]:
    """The outputs of a network of hardswish neurons, in rational arithmetic."""
    for layer in network.layers:
        rows = [[Fraction(float(w)) for w in row] for row in layer.weight]
        biases = [Fraction(float(b)) for b in layer.bias]
        x = [sum((w * z for w, z in zip(row, x, strict=True)), b) for row, b in zip(rows, biases, strict=True)]
        x = [hardswish(v) for v in x] if layer.neurons is not None else x
    return x


@pytest.mark.parametrize("seed", range(10))
def test_quadratic_networks_exactly(seed: int) -> None:
    """In rational arithmetic, in balls of all sizes: no rise beyond the bound, no value below what is said of it."""
    network = random_network(seed, (3, 6, 5, 2), "hardswish", gain=3.0)
    rng = np.random.default_rng(seed)
    center, rows = rng.standard_normal(3), np.array([[1.0, -1.0]])
    radius = float(10.0 ** rng.uniform(-12.0, 0.0))
    found = curved(network, lc.Ball(center, radius))
    (rise,) = found.rises(rows)
    start, _ = hints(found, rise)
    steep = float(np.linalg.norm(rise.gradient))
    above = min(found.above(rise, start, mu) for mu in steep / radius * np.geomspace(0.99, 100.0, 60))
    here = [Fraction(float(c)) for c in center]
    values = exactly(network, here)
    assert Fraction(float(found.least(rows)[0])) <= values[0] - values[1]
    for step in (rise.gradient, *rng.standard_normal((5, 3))):
        away = [Fraction(float(a)) for a in step * radius / np.linalg.norm(step)]
        while sum(a * a for a in away) > Fraction(radius) ** 2:
            away = [a * Fraction(2**52 - 1, 2**52) for a in away]
        there = exactly(network, [c + a for c, a in zip(here, away, strict=True)])
        assert there[0] - there[1] - values[0] + values[1] <= Fraction(above)
    if radius < 1e-6:
        assert above <= steep * radius * (1.0 + 1e-4) + 1e-15


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


@pytest.mark.parametrize("mistake", ["", "bend", "secant", "none"])
def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """Parabolas that are too flat or left out, secants that are wrong: then some point does rise more."""
    network, true = random_network(5, (2, 8, 8, 2), "tanh", gain=6.0, bias=0.2), parabolas

    def wrong(*arguments: Any) -> Parabolas:
        found = true(*arguments)
        if mistake == "secant":
            middle = 0.5 * found.alpha + 0.5 * found.beta
            return replace(found, alpha=0.5 * middle, beta=0.5 * middle)
        share = 0.5 if mistake == "bend" else 0.0
        return replace(found, below=share * found.below, above=share * found.above)

    def fails() -> bool:
        rng = np.random.default_rng(0)
        for center in rng.uniform(-1.0, 1.0, (30, 2)):
            ball = lc.Ball(center, 0.3)
            found = curved(network, ball)
            rows = np.array([[1.0, -1.0], [-1.0, 1.0]])
            rises = (network(ball.sample(3000, rng)) - network(center)) @ rows.T
            for k, rise in enumerate(found.rises(rows)):
                start, mu = hints(found, rise)
                bound = min(found.above(rise, start, mu * factor) for factor in (1.0, 1.5, 2.5))
                if bound < rises[:, k].max():
                    return True
        return False

    if mistake:
        monkeypatch.setattr(proof, "parabolas", wrong)
    assert fails() == bool(mistake)


def test_a_flat_bowl_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true = parabolas

    def flat(*arguments: Any) -> Parabolas:
        found = true(*arguments)
        return replace(found, below=0.9 * found.below, above=0.9 * found.above)

    monkeypatch.setattr(proof, "parabolas", flat)
    found = lc.certified_radius(bowl(), [0.0, 0.0])
    assert lc.attack(bowl(), [0.0, 0.0], 0, found.radius, restarts=3).found


@pytest.mark.parametrize("seed", range(6))
def test_caps_hold_what_rises(seed: int) -> None:
    """Points that rise by a limit lie in the cap, and what is said of the cap holds for its points."""
    rng = np.random.default_rng(seed)
    network = random_network(seed, (3, 8, 7, 2), ("elu", "tanh", "relu")[seed % 3], gain=3.0)
    ball = lc.Ball(rng.standard_normal(3), 0.5)
    facts, rows = prove_outputs(network, ball, lc.ClosedForm()), np.array([[1.0, -1.0]])
    found = facts.second_order(GUIDE.ellipsoids)
    (rise,) = found.rises(rows)
    steepest = ball.center + 0.5 * rise.gradient / np.linalg.norm(rise.gradient)
    x = np.concatenate([ball.sample(4000, rng), steepest[None]])
    x = ball.project(x)
    away, rises = x - ball.center, ((network(x) - network(ball.center)) @ rows.T)[:, 0]
    for share in (0.6, 0.9, 1.0):
        limit = share * float(rises.max())
        cap = found.where(rise, hints(found, rise)[0], limit)
        assert (away @ cap.gradient >= cap.level - 1e-12)[rises >= limit].all()
        inside = away @ cap.gradient >= cap.level
        some = rng.standard_normal((20, 3))
        assert (cap.above(some, 0.5) >= (away[inside] @ some.T).max(axis=0) - 1e-12).all()
        part = facts.second_order(GUIDE.ellipsoids, cap)
        (again,) = part.rises(rows)
        start, mu = hints(part, again)
        assert part.above(again, start, mu) >= rises[inside].max()
        here, there = network.preactivations(ball.center), network.preactivations(x[inside])
        for v, c, seen in zip(there, here, part.parabolas, strict=False):
            assert (np.abs(v - c) <= seen.reach).all()


def test_the_gradient_of_the_bound() -> None:
    network = random_network(0, (5, 9, 8, 7, 2), "elu", gain=2.0)
    found = curved(network, lc.Ball(np.full(5, 0.1), 0.5))
    (rise,) = found.rises(np.array([[1.0, -0.5]]))
    objective = _Objective(found, rise, 1.0)
    x = objective.start() + 0.2
    here = objective(x)
    assert here is not None
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = 1e-6 * rng.standard_normal(x.size)
        ends = objective(x + step), objective(x - step)
        assert ends[0] is not None
        assert ends[1] is not None
        assert (ends[0].f - ends[1].f) == pytest.approx(2.0 * step @ here.gradient, rel=1e-4, abs=1e-12)


def test_what_is_left_alone() -> None:
    assert not suits(random_network(0, (3, 2)))
    assert not suits(random_network(0, (3, 700, 2)))
    assert suits(random_network(0, (784, 128, 128, 128, 10)))
    box = prove_outputs(random_network(0, (3, 4, 2)), lc.Box([0.0] * 3, [1.0] * 3), lc.ClosedForm())
    assert not stay_positive(box, np.array([[1.0, -1.0]]), GUIDE)
    point = prove_outputs(random_network(0, (3, 4, 2)), lc.Ball([0.0] * 3, 0.0), lc.ClosedForm())
    assert not stay_positive(point, np.array([[1.0, -1.0], [-1.0, 1.0]]), GUIDE)
