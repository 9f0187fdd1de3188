"""Parabolas of any slope: never below what is attained, and mistakes are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.exact import ClaimedRadius, Evidence, verify_radius
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array, dense
from lipcert.proof import bowls as proof
from lipcert.proof import guide, sweep
from lipcert.proof.bowls import BowlHints, Bowls
from lipcert.proof.classes import CertifiedRadius, recheck_radius
from lipcert.proof.outputs import OutputBounds
from lipcert.questions.prove_outputs import prove_outputs
from lipcert.search import quadratic as search
from networks import ROW_LABELS, ROWS, random_network

ROW = np.array([1.0, -1.0])


def points_in(ball: lc.Ball, count: int, seed: int) -> Array:
    """Random points of a ball, half of them on its surface."""
    rng = np.random.default_rng(seed)
    way = rng.standard_normal((count, ball.center.size))
    length = np.where(np.arange(count) % 2, 1.0, rng.random(count) ** (1.0 / ball.center.size))
    return ball.center + float(ball.radius) * way / np.linalg.norm(way, axis=1)[:, None] * length[:, None]


def attained(network: lc.Network, ball: lc.Ball, seed: int = 0) -> float:
    return float((network(points_in(ball, 4000, seed)) @ ROW).max())


def case(seed: int, activation: Any = "relu", radius: float = 0.6) -> tuple[lc.Network, lc.Ball, OutputBounds]:
    network = random_network(seed, (3, 6, 5, 2), activation, gain=2.5)
    ball = lc.Ball(np.random.default_rng(seed).standard_normal(3), radius)
    return network, ball, prove_outputs(network, ball, lc.ClosedForm())


def found(bowls: Bowls, trials: int = 60) -> BowlHints:
    """What a search ends with, whether the bound is negative or not."""
    layers = [layer for stage in bowls.stages if (layer := search._Layer.of(stage, bowls.radius)) is not None]
    assert len(layers) == len(bowls.stages)
    descent = search._Descent(search._Objective(bowls, ROW, layers))
    for _ in range(trials):
        descent.step()
    return descent.hints()


def wild(bowls: Bowls, rng: np.random.Generator) -> BowlHints:
    """Hints of any kind."""
    size = 10.0 ** rng.uniform(-3.0, 2.0)
    slopes = tuple(size * rng.standard_normal(stage.low.size) for stage in bowls.stages)
    bends = tuple(10.0 ** rng.uniform(-4.0, 1.0) * rng.standard_normal(stage.low.size) for stage in bowls.stages)
    return BowlHints(ROW, slopes, bends, tuple(rng.standard_normal(len(slopes))), float(10.0 ** rng.uniform(-2.0, 4.0)))


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
def test_every_activation(row: Activation) -> None:
    network, ball, facts = case(1, row, 0.4)
    bowls, truth, rng = facts.bowls(), attained(*case(1, row, 0.4)[:2]), np.random.default_rng(0)
    for _ in range(8):
        try:
            assert truth <= bowls.above(wild(bowls, rng))
        except ProofFailed:
            continue
    assert network is facts.network
    assert ball is facts.region


def check_many(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        sizes = (int(rng.integers(1, 5)), *rng.integers(1, 8, size=rng.integers(1, 4)).tolist(), 2)
        network = random_network(seed, sizes, ("relu", "leaky_relu")[seed % 2], gain=3.0)
        ball = lc.Ball(rng.standard_normal(sizes[0]), float(10.0 ** rng.uniform(-2.0, 0.5)))
        bowls = prove_outputs(network, ball, lc.ClosedForm()).bowls()
        truth = attained(network, ball, seed=seed)
        assert truth <= bowls.above(found(bowls, 12)), seed
        for _ in range(3):
            try:
                assert truth <= bowls.above(wild(bowls, rng)), seed
            except ProofFailed:
                continue


def test_random_networks() -> None:
    check_many(range(40))


@pytest.mark.slow
def test_a_thousand_random_networks() -> None:
    check_many(range(40, 1040))


def test_tighter_than_relaxation_and_lipschitz() -> None:
    """Over balls of many inputs; and no bound is below what value functions, which know more, find possible."""
    for seed in range(4):
        network = random_network(seed, (20, 30, 20, 2), gain=1.5)
        ball = lc.Ball(np.random.default_rng(seed).standard_normal(20), 0.7)
        facts = prove_outputs(network, ball, lc.ClosedForm())
        bound = facts.bowls().above(found(facts.bowls()))
        lipschitz = float(facts.value @ ROW + float(ball.radius) * facts.lipschitz(ROW[None])[0])
        assert attained(network, ball) <= bound
        assert bound < min(lipschitz, float(facts.above(ROW[None])[0]))


def test_clipped_balls() -> None:
    """Only inputs of the clip count, and it helps."""
    less = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        network, center = random_network(seed, (8, 12, 10, 2), gain=2.0), rng.uniform(0.0, 1.0, 8).round()
        whole, part = (lc.Ball(center, 0.7, clip) for clip in (None, (0, 1)))
        bounds = []
        for ball in (whole, part):
            bowls = prove_outputs(network, ball, lc.ClosedForm()).bowls()
            bounds.append(bowls.above(found(bowls, 25)))
            assert float((network(ball.project(points_in(whole, 4000, seed))) @ ROW).max()) <= bounds[-1]
        less += bounds[1] < bounds[0] - 0.05 * (bounds[0] - float(network(center) @ ROW))
    assert less > 3


def test_derivatives() -> None:
    _, _, facts = case(4, radius=1.0)
    bowls = facts.bowls()
    layers = [layer for stage in bowls.stages if (layer := search._Layer.of(stage, bowls.radius)) is not None]
    objective = search._Objective(bowls, ROW, layers)
    x = objective.start()
    gradient, rng = objective(x).gradient, np.random.default_rng(0)
    for _ in range(5):
        way = 1e-6 * rng.standard_normal(x.size)
        change = objective(x + way).bound - objective(x - way).bound
        assert change == pytest.approx(2.0 * gradient @ way, rel=0.2, abs=1e-7)


def settled() -> tuple[lc.Network, CertifiedRadius]:
    """A radius that takes parabolas."""
    network = random_network(0, (20, 40, 30, 3), gain=1.5)
    x = np.random.default_rng(0).standard_normal(20)
    first = lc.certified_radius(network, x, curvature=False)
    found = lc.certified_radius(network, x, radii=[1.1 * first.radius], curvature=False, values=True)
    assert found.basis == "parabolas"
    assert found.radius == 1.1 * first.radius
    return network, found


@pytest.mark.parametrize("folded", [False, True])
def test_large_layers_keep_what_parabolas_need(folded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrices of a large layer are not kept after its step, but for those of its open neurons."""
    network = random_network(0, (20, 40, 30, 2), gain=1.5)
    if folded:
        layers = [replace(one, linear=sparse.csr_array(dense(one.weight))) for one in network.layers]
        network = lc.Network(tuple(layers))
    ball = lc.Ball(np.random.default_rng(0).standard_normal(20), 0.3)
    facts = prove_outputs(network, ball, lc.ClosedForm())
    monkeypatch.setattr(sweep, "_LARGEST", 3)
    large = prove_outputs(network, ball, lc.ClosedForm())
    for one, two in zip(facts.bowls().stages, large.bowls().stages, strict=True):
        assert set(two.open) <= set(two.spread.neurons) < set(range(two.low.size))
        place = np.searchsorted(one.spread.neurons, two.spread.neurons)
        np.testing.assert_allclose(two.spread.S, one.spread.S[np.ix_(place, place)], rtol=1e-12)
    hints = found(facts.bowls(), 20)
    assert large.bowls().above(hints) == pytest.approx(facts.bowls().above(hints), rel=1e-12)
    monkeypatch.setattr(guide, "_MANY", 3)
    bare = prove_outputs(network, ball, lc.ClosedForm()).bowls()  # too many open neurons: no bends, then
    assert not any(stage.spread.neurons.size for stage in bare.stages)
    assert search.suggest(bare, ROW) is None
    with pytest.raises(ProofFailed, match="not known"):
        bare.above(hints)


def test_saved_and_verified(tmp_path: Path) -> None:
    network, found = settled()
    found.save(tmp_path / "radius.json")
    claim = CertifiedRadius.load(tmp_path / "radius.json")
    assert claim == found
    assert lc.verify(network, claim) == found.radius
    assert lc.verify(network, claim, exact=True) == found.radius
    told = claim.proof
    assert told is not None
    halved = tuple(replace(one, bends=tuple(0.1 * part for part in one.bends)) for one in told.parabolas)
    ends = claim.radius, claim.bound, claim.margin, claim.label, claim.rival, True
    for parabolas in (halved, told.parabolas[:-1]):  # and ball arithmetic refuses by itself
        with pytest.raises(ProofFailed):
            verify_radius(network, told.ball, ClaimedRadius(*ends), Evidence(told.sweeps), (), (), parabolas)


def altered(found: CertifiedRadius, **changes: Any) -> CertifiedRadius:
    assert found.proof is not None
    return replace(found, proof=replace(found.proof, **changes))


def test_mistakes_are_refused() -> None:
    network, found = settled()
    told = found.proof
    assert told is not None
    recheck_radius(network, found)
    changes: tuple[Callable[[BowlHints], BowlHints], ...] = (
        lambda one: replace(one, slopes=tuple(-x for x in one.slopes)),
        lambda one: replace(one, slopes=tuple(0.5 * x for x in one.slopes)),
        lambda one: replace(one, slopes=one.slopes[:-1]),
        lambda one: replace(one, slopes=tuple(x[:-1] for x in one.slopes)),
        lambda one: replace(one, bends=tuple(0.1 * x for x in one.bends)),
        lambda one: replace(one, bends=tuple(np.full_like(x, np.nan) for x in one.bends)),
        lambda one: replace(one, mu=0.5 * one.mu),
        lambda one: replace(one, mu=np.nan),
        lambda one: replace(one, row=-one.row),
    )
    for change in changes:
        with pytest.raises(ProofFailed):
            recheck_radius(network, altered(found, parabolas=tuple(change(one) for one in told.parabolas)))
    with pytest.raises(ProofFailed):
        recheck_radius(network, altered(found, parabolas=told.parabolas[:-1]))
    larger = 1.5 * found.radius
    with pytest.raises(ProofFailed):
        recheck_radius(
            network, replace(altered(found, ball=lc.Ball(told.ball.center, larger)), radius=larger, ball=larger)
        )
    guesses = tuple(replace(one, tops=tuple(np.nan for _ in one.tops)) for one in told.parabolas)
    recheck_radius(network, altered(found, parabolas=guesses))  # they save time, no more


@pytest.mark.parametrize("mistake", ["height", "squares", "radius", "bend"])
def test_planted_mistakes_are_seen(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """A height or a form understated inside the proof gives bounds below what is attained."""
    if mistake == "height":
        heights = proof._heights
        monkeypatch.setattr(proof, "_heights", lambda *given: (heights(*given)[0] - 0.05, 0.0))
    elif mistake == "squares":
        monkeypatch.setattr(proof, "_most", lambda *_: 0.0)
    elif mistake == "radius":
        over = Bowls._over_ball
        monkeypatch.setattr(Bowls, "_over_ball", lambda *given: 0.8 * over(*given))
    else:
        replaced = proof._replaced
        monkeypatch.setattr(proof, "_replaced", lambda *given: (p := replaced(*given), (p[0], 0.0 * p[1], *p[2:]))[1])
    seen = 0
    for seed in range(12):
        network, ball, facts = case(seed, radius=1.0)
        bowls = facts.bowls()
        seen += bowls.above(found(bowls)) < attained(network, ball)
    assert seen > 0


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30, 1e60])
def test_scales(scale: float) -> None:
    network, ball, _ = case(3)
    weights = [dense(layer.weight) for layer in network.layers]
    biases = [np.array(layer.bias) for layer in network.layers]
    weights[0], weights[-1] = weights[0] * scale, weights[-1] * (1.0 / scale)
    biases[0], biases[1] = biases[0] * scale, biases[1] * scale
    same = lc.Network.from_weights(weights, biases, "relu")
    bowls = prove_outputs(same, ball, lc.ClosedForm()).bowls()
    assert attained(same, ball) <= bowls.above(found(bowls))


def test_convolutions() -> None:
    """Sparse weights give what dense ones do."""
    rng = np.random.default_rng(3)
    first = sparse.random_array((40, 25), density=0.2, rng=rng, data_sampler=rng.standard_normal)
    second = sparse.random_array((20, 40), density=0.2, rng=rng, data_sampler=rng.standard_normal)
    weights = [first.tocsr(), second.tocsr(), rng.standard_normal((2, 20))]
    biases = [rng.standard_normal(size) for size in (40, 20, 2)]
    ball = lc.Ball(rng.standard_normal(25), 0.3)
    networks = [
        lc.Network.from_weights(some, biases, "relu") for some in (weights, [dense(weight) for weight in weights])
    ]
    bounds = []
    for network in networks:
        bowls = prove_outputs(network, ball, lc.ClosedForm()).bowls()
        bounds.append(bowls.above(found(bowls, 30)))
        assert attained(network, ball) <= bounds[-1]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.05)


def test_what_is_refused() -> None:
    network, ball, facts = case(2)
    bowls = facts.bowls()
    spreads = [stage.spread for stage in bowls.stages]
    centers = [(stage.center, stage.error) for stage in bowls.stages]
    with pytest.raises(ProofFailed):
        Bowls(network, lc.Ball(ball.center, 0.0), centers, facts.intervals, spreads)
    nothing = [(np.full(len(low), -np.inf), high) for low, high in facts.intervals]
    with pytest.raises(ProofFailed):
        Bowls(network, ball, centers, nothing, spreads)
