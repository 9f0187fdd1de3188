"""Reach sets in ball arithmetic: it agrees with what was proved, and refuses what is a little less."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.proof.pieces import LEAF
from lipcert.proof.reach import Reach
from lipcert.proof.together import Proof, derived
from lipcert.proof.tree import Tree
from lipcert.questions import verify as questions
from networks import named, random_network, spread

exact = pytest.importorskip("lipcert.exact")

CENTER = np.array([0.3, -0.2, 0.9])
REGIONS = {
    "ball": lc.Ball(CENTER, 0.3),
    "tiny": lc.Ball(CENTER, 1e-7),
    "point": lc.Ball(CENTER, 0.0),
    "clip": lc.Ball(CENTER, 0.3, clip=(CENTER - 0.1, CENTER + 0.25)),
    "box": lc.Box(CENTER - 0.2, CENTER + 0.3),
}


@pytest.mark.parametrize(
    ("activation", "region"), spread(5, named("relu", "tanh", "gelu", "elu", "sin"), named(*REGIONS))
)
def test_it_agrees(activation: str, region: str) -> None:
    network = random_network(5, (3, 7, 6, 3), activation, gain=1.5)
    for method, layer in ((lc.ClosedForm(), None), (lc.Joint(iterations=4), None), (lc.Scalar(), 2), (lc.Scalar(), 1)):
        found = lc.reach(network, REGIONS[region], method, layer=layer)
        assert lc.verify(network, found, exact=True) is found


def test_it_agrees_where_a_proof_is_made_on_fewer_inputs() -> None:
    network = random_network(7, (60, 8, 8, 4), "tanh")
    found = lc.reach(network, lc.Ball(np.zeros(60), 0.2), lc.Joint(iterations=4))
    assert lc.verify(network, found, exact=True) is found


def sides(found: Reach, share: float) -> dict[str, Reach]:
    width = share * (found.upper - found.lower)
    return {
        "lower": replace(found, lower=found.lower + width),
        "upper": replace(found, upper=found.upper - width),
        "hull": replace(found, hull=(found.hull[0] + width, found.hull[1])),
        "center": replace(found, center=found.center + 0.1 * found.upper),
        "shape": replace(found, shape=(1.0 - share) * found.shape),
        "asymmetric": replace(found, shape=found.shape + np.triu(found.shape, 1) - np.tril(found.shape, -1)),
        "bound": replace(found, bound=(1.0 - share) * found.bound),
    }


@cache
def honest() -> tuple[Network, Reach]:
    """A reach set that the second opinion agrees with."""
    network = random_network(5, (3, 7, 6, 3), "tanh", gain=1.5)
    found = lc.reach(network, REGIONS["ball"], lc.ClosedForm())
    assert lc.verify(network, found, exact=True) is found
    return network, found


@pytest.mark.parametrize("which", ["lower", "upper", "hull", "center", "shape", "asymmetric", "bound"])
def test_less_is_refused_by_the_second_opinion_alone(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "recheck_reach", lambda network, claim: claim)
    network, found = honest()
    with pytest.raises(ProofFailed):
        lc.verify(network, sides(found, 1e-7)[which], exact=True)


def evidence(found: Reach) -> list[Any]:
    return [exact.Evidence(one.sweeps, one.tree) for one in found.proofs if one.kind == "whole"]


def claimed(found: Reach, box: tuple[Array, Array]) -> Any:
    return exact.Claimed(3, *box, found.center, found.shape, found.bound, (box[0][None], box[1][None]))


def test_no_lines_prove_what_is_false() -> None:
    """Boxes that miss an output are refused whatever slopes are suggested, and so are lines of the wrong sizes."""
    rng = np.random.default_rng(1)
    network, region = random_network(5, (3, 7, 6, 3), "tanh", gain=1.5), REGIONS["ball"]
    found = lc.reach(network, region, lc.ClosedForm())
    values = network(region.sample(20_000, rng))
    lower, upper = values.min(axis=0), values.max(axis=0)
    told = evidence(found)

    def attempt(box: tuple[Array, Array], lines: Any) -> None:
        exact.verify_outputs(network, region, claimed(found, box), told, lines)

    def drawn() -> list[tuple[Array, Array]]:
        return [(rng.normal(size=n), rng.normal(size=n)) for n in (7, 6)]

    for number in range(20):
        false = lower.copy(), upper.copy()
        false[number % 2][number % 3] += 1e-3 if number % 2 == 0 else -1e-3
        with pytest.raises(ProofFailed, match="the box of the outputs is smaller"):
            attempt(false, [drawn() for _ in told])
    loose = found.lower - 100.0, found.upper + 100.0
    attempt(loose, [drawn() for _ in told])
    with pytest.raises(ProofFailed, match="not those of the network's neurons"):
        attempt(loose, [drawn()[::-1]])


def test_the_lines_are_needed() -> None:
    """What several proofs tell together is proved by their lines; without them less is."""
    network = random_network(5, (3, 7, 6, 3), "relu", gain=1.5)
    found = lc.reach(network, REGIONS["box"], lc.Joint(iterations=4))
    together, _ = derived(network, found.region, found.proofs)
    lines = [together.lines(count + 1) for count in range(len(found.proofs))]
    sets, told = claimed(found, (found.lower, found.upper)), evidence(found)
    exact.verify_outputs(network, found.region, sets, told, lines)
    with pytest.raises(ProofFailed, match="the box of the outputs is smaller"):
        exact.verify_outputs(network, found.region, sets, told[:1], lines[:0])


def refused(network: Network, claim: Reach) -> bool:
    try:
        lc.verify(network, claim, exact=True)
    except ProofFailed:
        return True
    return False


@pytest.fixture
def first_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of curved networks as those of the others: ball arithmetic has none to second order."""
    monkeypatch.setattr("lipcert.proof.piece_bounds.curved", lambda network: False)


def by_pieces(activation: str, region: str = "ball") -> tuple[Network, Reach]:
    network = random_network(5, (3, 7, 6, 3), activation, gain=1.5)
    return network, lc.reach(network, REGIONS[region], lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=24))


@pytest.mark.usefixtures("first_order")
@pytest.mark.parametrize(
    ("activation", "region"),
    spread(3, named("relu", "tanh", "gelu", "elu", "sin", "hardswish"), named("ball", "clip", "box")),
)
def test_it_agrees_on_pieces(activation: str, region: str) -> None:
    network, found = by_pieces(activation, region)
    assert len(found.hull[0]) > 1
    assert lc.verify(network, found, exact=True) is found


def test_it_agrees_where_pieces_are_those_of_fewer_inputs() -> None:
    network = random_network(7, (30, 6, 8, 4), "tanh")
    found = lc.reach(network, lc.Ball(np.full(30, 0.1), 0.2), lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=12))
    assert len(found.hull[0]) > 1
    assert lc.verify(network, found, exact=True) is found


def without(found: Reach, rows: slice) -> Reach:
    return replace(found, hull=(found.hull[0][rows], found.hull[1][rows]))


def with_tree(found: Reach, **changes: Any) -> Reach:
    *others, last = found.proofs
    assert last.tree is not None
    return replace(found, proofs=(*others, replace(last, tree=replace(last.tree, **changes))))


def test_pieces_to_second_order_are_not_repeated() -> None:
    network, found = by_pieces("tanh")
    with pytest.raises(ProofFailed, match="exact cannot prove for a leaf"):
        lc.verify(network, found, exact=True)


@pytest.mark.usefixtures("first_order")
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_false_pieces_are_refused_by_the_second_opinion_alone(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "recheck_reach", lambda network, claim: claim)
    network, found = by_pieces(activation)
    values = network(found.region.sample(20_000, np.random.default_rng(0)))
    lower, upper = values.min(axis=0), values.max(axis=0)
    share = 1e-3 * (upper - lower)
    attained = replace(found, upper=upper - share, hull=(found.hull[0], np.minimum(found.hull[1], upper - share)))
    tree = found.proofs[-1].tree
    assert tree is not None
    columns = ("layer", "index", "value", "child")
    false = {
        "box": replace(found, upper=upper - share),
        "hull": attained,
        "boxes lost": without(found, slice(0, 1)),
        "no boxes": without(found, slice(0, 0)),
        "leaf lost": with_tree(found, **{name: getattr(tree, name)[:-1] for name in columns}),
        "stray cuts": with_tree(found, layer=np.where(tree.layer == LEAF, LEAF, 99)),
        "base": replace(found, proofs=(*found.proofs[:-1], replace(found.proofs[-1], base=7))),
    }
    assert lc.verify(network, found, exact=True) is found
    together, _ = derived(network, found.region, found.proofs)
    monkeypatch.setattr(questions, "derived", lambda _, region, proofs: (together, list(proofs[-1:])))
    assert {name for name, claim in false.items() if not refused(network, claim)} == set()


def test_an_output_outside_all_boxes_of_the_hull_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """f(x) = x on [-1, 1], cut in two: each half is needed, though the box holds both."""
    monkeypatch.setattr(questions, "recheck_reach", lambda network, claim: claim)
    network = Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0]]])
    whole = lc.reach(network, lc.Box([-1.0], [1.0]), lc.ClosedForm())
    none = np.zeros(3, dtype=int)
    tree = Tree(np.array([-1, LEAF, LEAF]), none, np.zeros(3), np.array([1, 0, 0]), 1.0)
    halves = np.array([[-1.0], [0.0]]) - 1e-9, np.array([[0.0], [1.0]]) + 1e-9
    cut = replace(whole, hull=halves, proofs=(*whole.proofs, Proof("outputs", tree=tree)))
    assert lc.verify(network, cut, exact=True) is cut
    for kept in (slice(0, 1), slice(1, 2)):
        with pytest.raises(ProofFailed, match="claims a box"):
            lc.verify(network, without(cut, kept), exact=True)
    gap = replace(cut, hull=(halves[0] + np.array([[0.0], [1e-3]]), halves[1]))
    with pytest.raises(ProofFailed, match="claims a box"):
        lc.verify(network, gap, exact=True)


def test_any_lines_prove_only_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes that make no sense, or are none, may cost the proof; they never prove a box that misses an output."""
    network, found = by_pieces("tanh")
    rng = np.random.default_rng(3)
    values = network(found.region.sample(20_000, rng))
    below, above = values.min(axis=0), values.max(axis=0)
    drawn = [lambda n: (np.full(n, np.nan),) * 2, lambda n: (rng.normal(size=n), rng.normal(size=n))]
    monkeypatch.setattr(questions, "recheck_reach", lambda network, claim: claim)
    for draw in drawn:
        monkeypatch.setattr(questions, "_lines", lambda network, index, lower, upper, draw=draw: draw(len(lower)))
        loose = found.lower - 9.0, found.upper + 9.0
        hull = found.hull[0] - 9.0, found.hull[1] + 9.0
        lc.verify(network, replace(found, lower=loose[0], upper=loose[1], hull=hull), exact=True)
        with pytest.raises(ProofFailed):
            lc.verify(network, replace(found, lower=below + 1e-3, upper=above, hull=hull), exact=True)
