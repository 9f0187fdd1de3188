"""Value functions: never below what is attained, near the semidefinite relaxation, and mistakes are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer
from lipcert.proof import margins as proof
from lipcert.proof.classes import CertifiedRadius, recheck_radius
from lipcert.proof.margins import MarginHints, Margins, stays_negative
from lipcert.proof.outputs import OutputBounds
from lipcert.questions.prove_outputs import prove_outputs
from lipcert.search.dual import DualSearch
from networks import NAMED_ROWS, ROWS, random_network, spread

ROW = np.array([1.0, -1.0])


def points_in(ball: lc.Ball, count: int, seed: int) -> Array:
    """Random points of a ball, half of them on its surface."""
    rng = np.random.default_rng(seed)
    way = rng.standard_normal((count, ball.center.size))
    length = np.where(np.arange(count) % 2, 1.0, rng.random(count) ** (1.0 / ball.center.size))
    return ball.project(
        ball.center + float(ball.radius) * (way / np.linalg.norm(way, axis=1)[:, None]) * length[:, None]
    )


def case(seed: int, activation: Any = "relu", radius: float = 0.6) -> tuple[lc.Network, lc.Ball, OutputBounds]:
    network = random_network(seed, (3, 6, 5, 2), activation, gain=2.5)
    ball = lc.Ball(np.random.default_rng(seed).standard_normal(3), radius)
    return network, ball, prove_outputs(network, ball, lc.ClosedForm())


def best(facts: OutputBounds, row: Array = ROW) -> tuple[float, MarginHints]:
    """The bound that the end of a search proves."""
    margins = facts.margins()
    found = DualSearch().find(margins, row, best=True)
    assert found is not None
    return margins.above(row, found.multipliers, found.ball), MarginHints(row, (), found.multipliers, found.ball)


def attained(network: lc.Network, ball: lc.Ball, row: Array = ROW, seed: int = 0) -> float:
    return float((network(points_in(ball, 4000, seed)) @ row).max())


@pytest.mark.parametrize("row", spread(2, NAMED_ROWS))
def test_every_activation(row: Activation) -> None:
    network, ball, facts = case(1, row, 0.4)
    bound, _ = best(facts)
    assert attained(network, ball) <= bound
    linear = float(facts.above(ROW[None])[0])
    assert bound < linear + 0.01 * (1.0 + abs(linear))


def check_many(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sizes = (int(rng.integers(1, 5)), *rng.integers(1, 8, size=rng.integers(1, 4)).tolist(), 2)
        network = random_network(seed, sizes, ROWS[seed % len(ROWS)] if seed % 2 else "relu", gain=3.0)
        ball = lc.Ball(rng.standard_normal(sizes[0]), float(10.0 ** rng.uniform(-2.0, 0.5)))
        facts = prove_outputs(network, ball, lc.ClosedForm())
        margins = facts.margins()
        found = DualSearch().find(margins, ROW)
        truth = attained(network, ball, seed=seed)
        if found is not None:
            assert truth <= margins.above(ROW, found.multipliers, found.ball), seed
        # and whatever else comes as multipliers
        wild = rng.standard_normal(margins.free.size) * 10.0 ** rng.uniform(-3.0, 3.0)
        try:
            assert truth <= margins.above(ROW, wild + margins.weights, float(rng.uniform(-1.0, 5.0))), seed
        except ProofFailed:
            continue


def test_random_networks() -> None:
    check_many(range(40))


@pytest.mark.slow
def test_a_thousand_random_networks() -> None:
    check_many(range(40, 1040))


def test_the_semidefinite_relaxation_is_reached() -> None:
    cp = pytest.importorskip("cvxpy")
    _, _, facts = case(5)
    margins = facts.margins()
    c, _ = margins.objective(ROW)
    Y = cp.Variable((margins.size, margins.size), PSD=True)
    rules = [Y[0, 0] == 1, cp.trace(Y[1 : 1 + margins.inputs, 1 : 1 + margins.inputs]) <= 1]
    for one, two, zero in zip(margins.left, margins.right, margins.free, strict=True):
        product = cp.sum(cp.multiply(np.outer(one, two), Y))
        rules.append(product == 0 if zero else product >= 0)
    problem = cp.Problem(cp.Maximize(Y[0] @ c), rules)
    relaxation = float(problem.solve(solver=cp.CLARABEL))
    bound, _ = best(facts)
    assert relaxation - 1e-5 <= bound <= relaxation + 0.01


def exact_form(network: lc.Network, ball: lc.Ball, facts: OutputBounds, told: MarginHints) -> list[list[Fraction]]:
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


def semidefinite(M: list[list[Fraction]]) -> bool:
    """By elimination, the pivots of the last rows first: the value functions themselves."""
    M = [list(row) for row in M]
    for k in range(len(M) - 1, -1, -1):
        if M[k][k] <= 0:
            return False
        for i in range(k):
            factor = M[i][k] / M[k][k]
            for j in range(k):
                M[i][j] -= factor * M[k][j]
    return True


@pytest.mark.parametrize("seed", range(4))
def test_elimination_in_fractions(seed: int) -> None:
    network, ball, facts = case(seed)
    bound, told = best(facts)
    M = exact_form(network, ball, facts, told)
    just = [list(row) for row in M]
    just[0][0] += Fraction(bound + 1e-7 * (1.0 + abs(bound)))
    assert semidefinite(just)
    less = [list(row) for row in M]
    less[0][0] += Fraction(bound - 1e-6 * (1.0 + abs(bound)))
    assert not semidefinite(less)


def settled() -> tuple[lc.Network, CertifiedRadius]:
    """A radius that takes value functions."""
    network = random_network(0, (4, 8, 7, 3), gain=2.5)
    x = np.random.default_rng(0).standard_normal(4)
    first = lc.certified_radius(network, x, curvature=False)
    found = lc.certified_radius(network, x, radii=[1.3 * first.radius], curvature=False, values=True)
    assert found.basis == "value functions"
    assert found.radius == 1.3 * first.radius
    return network, found


def test_saved_and_verified(tmp_path: Path) -> None:
    network, found = settled()
    found.save(tmp_path / "radius.json")
    claim = CertifiedRadius.load(tmp_path / "radius.json")
    assert claim == found
    assert lc.verify(network, claim) == found.radius
    assert lc.verify(network, claim, exact=True) == found.radius


def altered(found: CertifiedRadius, **changes: Any) -> CertifiedRadius:
    assert found.proof is not None
    return replace(found, proof=replace(found.proof, **changes))


def test_mistakes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network, found = settled()
    proof_ = found.proof
    assert proof_ is not None
    recheck_radius(network, found)
    changes: tuple[Callable[[MarginHints], MarginHints], ...] = (
        lambda one: replace(one, multipliers=-one.multipliers),
        lambda one: replace(one, multipliers=0.5 * one.multipliers),
        lambda one: replace(one, multipliers=one.multipliers[:-1]),
        lambda one: replace(one, ball=-one.ball),
        lambda one: replace(one, ball=np.nan),
        lambda one: replace(one, row=-one.row),
        lambda one: replace(one, cuts=((0, 0, 1),)),
        lambda one: replace(one, cuts=((7, 0, 1),)),
    )
    for change in changes:
        with pytest.raises(ProofFailed):
            recheck_radius(network, altered(found, margins=tuple(change(one) for one in proof_.margins)))
    with pytest.raises(ProofFailed):
        recheck_radius(network, altered(found, margins=proof_.margins[:-1]))
    larger = 1.5 * found.radius
    with pytest.raises(ProofFailed):
        recheck_radius(
            network, replace(altered(found, ball=lc.Ball(proof_.ball.center, larger)), radius=larger, ball=larger)
        )
    with pytest.raises(ProofFailed):  # the radius understated where it was proved
        recheck_radius(network, altered(found, ball=lc.Ball(proof_.ball.center, 0.9 * found.radius)))


@pytest.mark.parametrize("mistake", ["chord", "radius", "missing"])
def test_planted_mistakes_are_seen(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """A chord moved inwards or a radius understated inside the proof gives bounds below what is attained."""
    if mistake == "chord":
        right = proof._kink
        monkeypatch.setattr(proof, "_kink", lambda k, at, n, v, z, s: right(k, at, n, v, z, [s[0], 0.5 * s[1], *s[2:]]))
    elif mistake == "radius":
        right_input = Margins._input
        monkeypatch.setattr(Margins, "_input", lambda m, b: right_input(m, lc.Ball(b.center, 0.8 * float(b.radius))))
    else:  # an open neuron taken for a closed one
        monkeypatch.setattr(proof, "slope_bounds", lambda n, low, high: (n.slope(0.5 * low + 0.5 * high),) * 2)
    seen = 0
    for seed in range(12):
        try:
            network, ball, facts = case(seed)
            bound, _ = best(facts)
        except (ProofFailed, AssertionError):
            continue
        seen += bound < attained(network, ball)
    assert seen > 0


def test_cuts_cover() -> None:
    """Both sides of a neuron are needed, and each is at most the whole."""
    for seed in range(6):
        network, ball, facts = case(seed)
        whole, told = best(facts)
        layer, neuron = int(facts.margins().layer[0]), int(facts.margins().neuron[0])
        truth = points_in(ball, 4000, seed)
        v, values = network.preactivations(truth)[layer][:, neuron], network(truth) @ ROW
        leaves = []
        for side in (-1, 1):
            margins = facts.margins([(layer, neuron, side)])
            found = DualSearch().find(margins, ROW)
            assert found is not None
            bound = margins.above(ROW, found.multipliers, found.ball)
            leaves.append(MarginHints(ROW, ((layer, neuron, side),), found.multipliers, found.ball))
            if (v * side >= 0).any():
                assert values[v * side >= 0].max() <= bound
        assert stays_negative(facts.margins, ROW, leaves) == (
            max(facts.margins(one.cuts).above(ROW, one.multipliers, one.ball) for one in leaves) < 0.0
        )
        assert not stays_negative(facts.margins, ROW, leaves[:1])
        assert stays_negative(facts.margins, ROW, [told]) == (whole < 0.0)


def test_splitting_settles_what_the_whole_does_not() -> None:
    more = 0
    for seed in range(4):
        network, ball, facts = case(seed, radius=1.5)
        whole, truth = best(facts)[0], attained(network, ball)
        weights = [dense(layer.weight) for layer in network.layers]
        biases = [np.array(layer.bias) for layer in network.layers]
        biases[-1] = biases[-1] - np.array([0.6 * truth + 0.4 * whole, 0.0])  # true, but not by the whole
        facts = prove_outputs(lc.Network.from_weights(weights, biases, "relu"), ball, lc.ClosedForm())
        alone, pieces = DualSearch(1).leaves(facts, ROW), DualSearch(100).leaves(facts, ROW)
        assert not stays_negative(facts.margins, ROW, alone)
        more += stays_negative(facts.margins, ROW, pieces)
    assert more > 1


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30, 1e60])
def test_scales(scale: float) -> None:
    network, ball, _ = case(3)
    weights = [dense(layer.weight) for layer in network.layers]
    biases = [np.array(layer.bias) for layer in network.layers]
    weights[0], weights[-1] = weights[0] * scale, weights[-1] * (1.0 / scale)
    biases[0], biases[1] = biases[0] * scale, biases[1] * scale
    weights[-1] = weights[-1]
    same = lc.Network.from_weights(weights, biases, "relu")
    try:
        facts = prove_outputs(same, ball, lc.ClosedForm())
        bound, _ = best(facts)
    except (ProofFailed, AssertionError):
        return
    assert attained(same, ball) <= bound


def test_what_is_refused() -> None:
    network, ball, facts = case(2)
    with pytest.raises(ProofFailed):
        Margins(network, lc.Ball(ball.center, 0.0), facts.intervals)
    nothing = [(np.full(len(low), -np.inf), high) for low, high in facts.intervals]
    with pytest.raises(ProofFailed):
        Margins(network, ball, nothing)
    margins = facts.margins()
    for bad in (np.full(margins.free.size, np.nan), np.full(margins.free.size, 1e308), np.zeros(3)):
        with pytest.raises(ProofFailed):
            margins.above(ROW, bad, 1.0)
    for norm in ("linf", "l1"):
        other = prove_outputs(network, lc.Ball(ball.center, 0.1, norm=norm), lc.ClosedForm())
        with pytest.raises(ProofFailed, match="ℓ2"):
            other.margins()
        assert DualSearch().leaves(other, ROW) == []
    with pytest.raises(ProofFailed):
        prove_outputs(network, lc.Box(ball.center - 0.1, ball.center + 0.1), lc.ClosedForm()).margins()
