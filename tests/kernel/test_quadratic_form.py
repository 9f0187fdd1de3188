"""A row of outputs over a ball, by value functions and by parabolas: never below what is attained, mistakes refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from exact import matrix, positive_semidefinite
from lipcert.answers.radius import CertifiedRadius, RadiusProof, recheck_radius
from lipcert.errors import ProofFailed
from lipcert.kernel import quadratic_form as form
from lipcert.kernel.outputs import OutputBounds
from lipcert.kernel.quadratic_form import DualBound, DualHints, QuadraticHints, QuadraticRelaxation
from lipcert.methods import quadratic as search
from lipcert.methods.dual import DualSearch, _natural
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer
from lipcert.questions.prove_outputs import prove_outputs
from networks import ROWS, random_network

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


def best(facts: OutputBounds, row: Array = ROW) -> tuple[float, DualHints]:
    """The bound that the end of a search proves."""
    found = DualSearch().find(facts, row, best=True)
    assert found is not None
    return facts.dual_bound.above(found[0]), found[0]


def attained(network: lc.Network, ball: lc.Ball, row: Array = ROW, seed: int = 0) -> float:
    return float((network(points_in(ball, 4000, seed)) @ row).max())


def found(bowls: QuadraticRelaxation, trials: int = 60) -> QuadraticHints:
    """What a search ends with, whether the bound is negative or not."""
    layers = [layer for stage in bowls.stages if (layer := search._Layer.of(stage, bowls.radius)) is not None]
    assert len(layers) == len(bowls.stages)
    descent = search._Descent(search._Objective(bowls, ROW, layers))
    for _ in range(trials):
        descent.step()
    return descent.hints()


def wild(bowls: QuadraticRelaxation, rng: np.random.Generator) -> QuadraticHints:
    """Hints of any kind."""
    size = 10.0 ** rng.uniform(-3.0, 2.0)
    slopes = tuple(size * rng.standard_normal(stage.low.size) for stage in bowls.stages)
    bends = tuple(10.0 ** rng.uniform(-4.0, 1.0) * rng.standard_normal(stage.low.size) for stage in bowls.stages)
    tops, mu = tuple(rng.standard_normal(len(slopes))), float(10.0 ** rng.uniform(-2.0, 4.0))
    return QuadraticHints(ROW, slopes, bends, mu, tops)


def by_values(facts: OutputBounds) -> float:
    return best(facts)[0]


def by_parabolas(facts: OutputBounds) -> float:
    return facts.quadratic_relaxation.above(found(facts.quadratic_relaxation))


WAYS: dict[str, Callable[[OutputBounds], float]] = {"values": by_values, "parabolas": by_parabolas}


def check_wild(bowls: QuadraticRelaxation, rng: np.random.Generator, truth: float, count: int) -> None:
    """Whatever the hints are, the bound holds or there is none."""
    for _ in range(count):
        with suppress(ProofFailed):
            assert truth <= bowls.above(wild(bowls, rng))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 1040), marks=pytest.mark.slow)], ids=len)
def test_random_networks(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sizes = (int(rng.integers(1, 5)), *rng.integers(1, 8, size=rng.integers(1, 4)).tolist(), 2)
        network = random_network(seed, sizes, ROWS[seed % len(ROWS)] if seed % 2 else "relu", gain=3.0)
        ball = lc.Ball(rng.standard_normal(sizes[0]), float(10.0 ** rng.uniform(-2.0, 0.5)))
        facts = prove_outputs(network, ball, lc.ClosedForm())
        truth = attained(network, ball, seed=seed)
        assert truth <= facts.quadratic_relaxation.above(found(facts.quadratic_relaxation, 12)), seed
        told = DualSearch().find(facts, ROW)
        if told is not None:
            assert truth <= facts.dual_bound.above(told[0]), seed
            # and whatever else comes as multipliers
            some = _natural(facts.dual_bound)
            some = some + rng.standard_normal(some.size) * 10.0 ** rng.uniform(-3.0, 3.0)
            with suppress(ProofFailed):
                assert truth <= facts.dual_bound.above(DualHints(ROW, some, float(rng.uniform(-1.0, 5.0)))), seed
        check_wild(facts.quadratic_relaxation, rng, truth, 3)


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
    bound, told = best(facts)
    M = exact_form(network, ball, facts, told)
    just = [list(row) for row in M]
    just[0][0] += Fraction(bound + 1e-7 * (1.0 + abs(bound)))
    assert positive_semidefinite(matrix(just))
    less = [list(row) for row in M]
    less[0][0] += Fraction(bound - 1e-6 * (1.0 + abs(bound)))
    assert not positive_semidefinite(matrix(less))


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


@pytest.mark.parametrize("way", WAYS)
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


@pytest.mark.parametrize("way", WAYS)
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


def inner_chord(patch: pytest.MonkeyPatch) -> None:
    right = form._kink
    patch.setattr(form, "_kink", lambda one, *rest: right(replace(one, high=0.5 * one.high), *rest))


def small_ball(patch: pytest.MonkeyPatch) -> None:
    right = DualBound._preactivations
    smaller = lambda m, layer, b: right(m, layer, lc.Ball(b.center, 0.8 * float(b.radius)))  # noqa: E731
    patch.setattr(DualBound, "_preactivations", smaller)


def open_taken_for_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(form, "slope_bounds", lambda n, low, high: (n.slope(0.5 * low + 0.5 * high),) * 2)


def low_heights(patch: pytest.MonkeyPatch) -> None:
    heights = form._heights
    patch.setattr(form, "_heights", lambda *given: heights(*given) - 0.05)


def no_squares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(form, "_most", lambda *_: 0.0)


def part_of_the_ball(patch: pytest.MonkeyPatch) -> None:
    over = QuadraticRelaxation._over_ball
    patch.setattr(QuadraticRelaxation, "_over_ball", lambda *given: 0.8 * over(*given))


def no_bends(patch: pytest.MonkeyPatch) -> None:
    replaced = form._replaced
    patch.setattr(form, "_replaced", lambda *given: (p := replaced(*given), (p[0], 0.0 * p[1], *p[2:]))[1])


PLANTED: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    *(("values", mistake) for mistake in (inner_chord, small_ball, open_taken_for_closed)),
    *(("parabolas", mistake) for mistake in (low_heights, no_squares, part_of_the_ball, no_bends)),
]


@pytest.mark.parametrize(("way", "mistake"), PLANTED)
def test_planted_mistakes_are_seen(
    way: str, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something understated inside the proof gives bounds below what is attained."""
    mistake(monkeypatch)
    seen = 0
    for seed in range(12):
        try:
            network, ball, facts = case(seed, radius=0.6 if way == "values" else 1.0)
            seen += WAYS[way](facts) < attained(network, ball)
        except (ProofFailed, AssertionError):
            continue
    assert seen > 0


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
