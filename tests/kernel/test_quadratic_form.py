"""A row of outputs over a ball, by value functions and by parabolas: never below what is attained, mistakes refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_rules import bowl

import lipcert as lc
from exact import exact_outputs, matrix, positive_semidefinite, rational
from lipcert.answers.radius import CertifiedRadius, RadiusProof, recheck_radius
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.neuron_bounds import value_error
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.quadratic_form import DualBound, KnownLayer, QuadraticRelaxation, first_factor
from lipcert.methods.dual import DualSearch
from lipcert.methods.second_order import _Objective, suits
from lipcert.model.activations import Activation
from lipcert.model.arrays import dense
from lipcert.model.network import Layer, Neurons
from lipcert.questions.prove_outputs import prove_outputs
from lipcert.suggest.hints import DualHints, QuadraticHints
from networks import ROW_LABELS, ROWS, random_network

ROW = np.array([1.0, -1.0])
every_way = pytest.mark.parametrize("way", ["values", "parabolas"])
every_way = pytest.mark.parametrize("way", ["values", "parabolas"])


def case(seed: int, activation: str = "relu") -> tuple[lc.Network, lc.Ball, OutputBounds]:
    network = random_network(seed, (3, 6, 5, 2), activation, gain=2.5)
    ball = lc.Ball(np.random.default_rng(seed).standard_normal(3), 0.6)
    return network, ball, prove_outputs(network, ball, lc.ClosedForm())


def exact_form(network: lc.Network, ball: lc.Ball, facts: OutputBounds, told: DualHints) -> list[list[Fraction]]:
    """M of a ReLU network in fractions, from its weights and the intervals alone; z is not scaled."""
    opens = [np.flatnonzero((low < 0) & (high > 0)) for low, high in facts.intervals]
    count = network.inputs
    size = 1 + count + sum(map(len, opens))
    unit = [[Fraction(int(j == k)) for j in range(size)] for k in range(size)]
    radius = Fraction(float(ball.radius))
    z = [[Fraction(float(x)), *(radius * e for e in unit[1 + k][1:])] for k, x in enumerate(ball.center)]
    M = [[Fraction(0)] * size for _ in range(size)]
    weights = iter(told.multipliers.tolist())
    at = 1 + count

    def add(scale: Fraction, one: list[Fraction], two: list[Fraction]) -> None:
        for i in range(size):
            for j in range(size):
                M[i][j] -= scale * (one[i] * two[j] + one[j] * two[i]) / 2

    def through(layer: Layer) -> list[list[Fraction]]:
        rows = []
        for weight, bias in zip(dense(layer.weight).tolist(), layer.bias.tolist(), strict=True):
            form = [sum((Fraction(w) * f[j] for w, f in zip(weight, z, strict=True)), Fraction(0)) for j in range(size)]
            form[0] += Fraction(bias)
            rows.append(form)
        return rows

    for layer, (low, high), some in zip(network.layers[:-1], facts.intervals, opens, strict=True):
        v = through(layer)
        z = [v[k] if low[k] >= 0 else [Fraction(0)] * size for k in range(len(v))]
        for k in some:
            z[k] = unit[at]
            at += 1
        lambdas = [[max(Fraction(next(weights)), Fraction(0)) for _ in some] for _ in range(2)]
        free = [Fraction(next(weights)) for _ in some]
        for place, k in enumerate(some):
            p, m = z[k], [a - b for a, b in zip(v[k], z[k], strict=True)]
            top, bottom = Fraction(float(max(high[k], -1e-3 * low[k]))), Fraction(float(min(low[k], -1e-3 * high[k])))
            add(lambdas[0][place], p, [top * e - a for e, a in zip(unit[0], p, strict=True)])
            add(lambdas[1][place], m, [bottom * e - a for e, a in zip(unit[0], m, strict=True)])
            add(free[place], p, m)
    outputs = through(network.layers[-1])
    c = [
        sum((Fraction(r) * f[j] for r, f in zip(told.row.tolist(), outputs, strict=True)), Fraction(0))
        for j in range(size)
    ]
    add(Fraction(1), c, unit[0])
    outer = Fraction(told.ball)
    M[0][0] -= outer
    for diagonal in range(1, 1 + count):
        M[diagonal][diagonal] += outer
    return M


@pytest.mark.parametrize("seed", range(4))
def test_elimination_in_fractions(seed: int) -> None:
    network, ball, facts = case(seed)
    found = DualSearch().find(facts, ROW, best=True)
    assert found is not None
    bound, M = facts.dual_bound.above(found[0]), exact_form(network, ball, facts, found[0])
    for off, enough in ((1e-7, True), (-1e-6, False)):
        moved = [list(row) for row in M]
        moved[0][0] += Fraction(bound + off * (1.0 + abs(bound)))
        assert positive_semidefinite(matrix(moved)) == enough


@cache
def settled(way: str) -> tuple[lc.Network, CertifiedRadius, RadiusProof]:
    """A radius that takes value functions, or parabolas."""
    sizes, gain, share = {"values": ((4, 8, 7, 3), 2.5, 1.3), "parabolas": ((20, 40, 30, 3), 1.5, 1.1)}[way]
    network = random_network(0, sizes, gain=gain)
    x = np.random.default_rng(0).standard_normal(sizes[0])
    first = lc.certified_radius(network, x, curvature=False)
    radius = lc.certified_radius(network, x, radii=[share * first.radius], curvature=False, values=True)
    assert radius.basis == {"values": "value functions", "parabolas": "parabolas"}[way]
    assert radius.radius == share * first.radius
    assert radius.proof is not None
    return network, radius, radius.proof


@every_way
def test_saved_and_verified(way: str, tmp_path: Path) -> None:
    network, radius, _ = settled(way)
    radius.save(tmp_path / "radius.json")
    claim = CertifiedRadius.load(tmp_path / "radius.json")
    assert claim == radius
    assert lc.verify(network, claim) == radius.radius
    assert lc.verify(network, claim, exact=True) == radius.radius


CHANGES: dict[str, list[Callable[[Any], Any]]] = {
    "values": [
        lambda one: replace(one, multipliers=-one.multipliers),
        lambda one: replace(one, multipliers=0.5 * one.multipliers),
        lambda one: replace(one, multipliers=one.multipliers[:-1]),
        lambda one: replace(one, ball=-one.ball),
        lambda one: replace(one, ball=np.nan),
        lambda one: replace(one, row=-one.row),
    ],
    "parabolas": [
        lambda one: replace(one, slopes=tuple(-x for x in one.slopes)),
        lambda one: replace(one, slopes=tuple(0.5 * x for x in one.slopes)),
        lambda one: replace(one, slopes=one.slopes[:-1]),
        lambda one: replace(one, slopes=tuple(x[:-1] for x in one.slopes)),
        lambda one: replace(one, bends=tuple(0.1 * x for x in one.bends)),
        lambda one: replace(one, bends=tuple(np.full_like(x, np.nan) for x in one.bends)),
        lambda one: replace(one, mu=0.5 * one.mu),
        lambda one: replace(one, mu=np.nan),
        lambda one: replace(one, row=-one.row),
    ],
}


@every_way
def test_mistakes_are_refused(way: str) -> None:
    network, radius, told = settled(way)
    recheck_radius(network, radius)
    hints = told.rows
    wrong: list[dict[str, Any]] = [{"rows": tuple(change(one) for one in hints)} for change in CHANGES[way]]
    wrong += [{"rows": hints[:-1]}, {"ball": lc.Ball(told.ball.center, 0.9 * radius.radius)}]  # the radius understated
    larger = 1.5 * radius.radius
    wide = replace(told, ball=lc.Ball(told.ball.center, larger))
    claims = [replace(radius, proof=replace(told, **change)) for change in wrong]
    for claim in (*claims, replace(radius, radius=larger, ball=larger, proof=wide)):
        with pytest.raises(ProofFailed):
            recheck_radius(network, claim)
    if way == "parabolas":  # these save time, no more
        unknown: Callable[[Any], Any] = lambda one: replace(one, tops=tuple(np.nan for _ in one.tops))  # noqa: E731
        guesses = tuple(map(unknown, told.rows))
        recheck_radius(network, replace(radius, proof=replace(told, rows=guesses)))


def test_what_is_refused() -> None:
    network, ball, facts = case(2)
    with pytest.raises(ProofFailed):
        DualBound(network, lc.Ball(ball.center, 0.0), facts.intervals)
    nothing = [(np.full(len(low), -np.inf), high) for low, high in facts.intervals]
    with pytest.raises(ProofFailed):
        DualBound(network, ball, nothing)
    smooth = case(2, "tanh")[2]
    with pytest.raises(ProofFailed, match="straight"):
        smooth.dual_bound  # noqa: B018
    assert DualSearch().suggest(smooth, ROW) is None
    margins = facts.dual_bound
    for bad in (np.full(margins.free.size, np.nan), np.full(margins.free.size, 1e308), np.zeros(3)):
        with pytest.raises(ProofFailed):
            margins.above(DualHints(ROW, bad, 1.0))
    for norm in ("linf", "l1"):
        other = prove_outputs(network, lc.Ball(ball.center, 0.1, norm=norm), lc.ClosedForm())
        with pytest.raises(ProofFailed, match="ℓ2"):
            other.dual_bound  # noqa: B018
        assert DualSearch().suggest(other, ROW) is None
    with pytest.raises(ProofFailed):
        prove_outputs(network, lc.Box(ball.center - 0.1, ball.center + 0.1), lc.ClosedForm()).dual_bound  # noqa: B018
    bowls = facts.quadratic_relaxation
    spreads = [stage.spread for stage in bowls.stages]
    centers = [stage.center for stage in bowls.stages]
    for where, intervals in ((lc.Ball(ball.center, 0.0), facts.intervals), (ball, nothing)):
        with pytest.raises(ProofFailed):
            QuadraticRelaxation(network, where, centers, intervals, spreads)


# Parabolas.


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


def hinted(found: QuadraticRelaxation) -> QuadraticHints:
    """Where a search begins."""
    objective = _Objective(found, ROW)
    return objective.hints(objective.start())


@pytest.mark.parametrize("seed", range(10))
def test_quadratic_networks_exactly(seed: int) -> None:
    """In rational arithmetic, in balls of all sizes: no value above the bound."""
    network = random_network(seed, (3, 6, 5, 2), "hardswish", gain=3.0)
    rng = np.random.default_rng(seed)
    center, radius = rng.standard_normal(3), float(10.0 ** rng.uniform(-12.0, 0.0))
    found = prove_outputs(network, lc.Ball(center, radius), lc.ClosedForm()).quadratic_relaxation
    above = found.above(hinted(found))
    here = [Fraction(float(c)) for c in center]
    gradient = ROW @ network.jacobian(center)
    for step in (gradient, *rng.standard_normal((5, 3))):
        away = [Fraction(float(a)) for a in step * radius / np.linalg.norm(step)]
        while sum(a * a for a in away) > Fraction(radius) ** 2:
            away = [a * Fraction(2**52 - 1, 2**52) for a in away]
        one, two = exact_outputs(network, [c + a for c, a in zip(here, away, strict=True)])
        assert one - two <= Fraction(above)
    if radius < 1e-6:
        one, two = exact_outputs(network, here)
        rise = Fraction(above) - (one - two)
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


def test_a_bowl_is_as_wide_as_it_is() -> None:
    found = lc.certified_radius(bowl(), [0.0, 0.0])
    assert np.sqrt(3.0) * 0.97 < found.radius <= np.sqrt(3.0)
    bare = lc.certified_radius(bowl(), [0.0, 0.0], curvature=False).radius
    assert bare < 0.75 * found.radius
    only = lc.certified_radius(bowl(), [0.0, 0.0], radii=[0.5, 1.6, 2.0])
    assert (only.radius, only.ball, only.rival) == (1.6, 1.6, 1)


def test_what_is_left_alone() -> None:
    assert not suits(random_network(0, (3, 2)))
    assert not suits(random_network(0, (3, 700, 2)))
    assert suits(random_network(0, (784, 128, 128, 128, 10)))
    network = random_network(0, (3, 4, 5, 2), "tanh")
    found = prove_outputs(network, lc.Ball([0.0] * 3, 0.1), lc.ClosedForm()).quadratic_relaxation
    good = hinted(found)
    for wrong in ((), (np.ones(3),), (np.ones(4), np.ones(5))):
        with pytest.raises(ProofFailed, match="other layers"):
            found.above(replace(good, multipliers=wrong))
