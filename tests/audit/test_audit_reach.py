"""Reach sets in ball arithmetic: it agrees with what was proved, and refuses what is a little less."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.answers.proofs import Proof
from lipcert.answers.reach import Reach
from lipcert.audit import engine
from lipcert.audit.balls import balls
from lipcert.errors import ProofFailed
from lipcert.kernel.cover import LEAF, Tree
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from networks import named, random_network, spread
from second_opinion import proved, refused

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
    for method in (lc.ClosedForm(), lc.Joint(iterations=4), lc.Scalar()):
        found = lc.reach(network, REGIONS[region], method)
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
def test_less_is_refused_by_the_second_opinion_alone(which: str) -> None:
    network, found = honest()
    assert refused(network, sides(found, 1e-7)[which])


@pytest.mark.parametrize("pieces", [False, True])
def test_no_lines_prove_what_is_false(pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes that miss an output are refused whatever slopes are suggested, and much larger ones are not."""
    rng = np.random.default_rng(1)
    network, found = by_pieces("relu") if pieces else honest()
    values = network(found.region.sample(20_000, rng))
    lower, upper = values.min(axis=0), values.max(axis=0)
    monkeypatch.setattr(
        engine, "suggested_lines", lambda layer, *_, **__: tuple(balls(rng.normal(size=(2, layer.size))))
    )
    for number in range(6):
        false = lower.copy(), upper.copy()
        false[number % 2][number % 3] += 1e-3 if number % 2 == 0 else -1e-3
        assert refused(network, boxed(found, *false))
    assert not refused(network, boxed(found, found.lower - 100.0, found.upper + 100.0))


def boxed(found: Reach, lower: Array, upper: Array) -> Reach:
    return replace(found, lower=lower, upper=upper, hull=(lower[None], upper[None]))


def by_pieces(activation: str, region: str = "ball") -> tuple[Network, Reach]:
    network = random_network(5, (3, 7, 6, 3), activation, gain=1.5)
    return network, lc.reach(network, REGIONS[region], lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=24))


@pytest.mark.parametrize(
    ("activation", "region"),
    spread(3, named("relu", "tanh", "gelu", "elu", "sin", "hardswish"), named("ball", "clip", "box")),
)
def test_it_agrees_on_pieces(activation: str, region: str) -> None:
    network, found = by_pieces(activation, region)
    assert len(found.hull[0]) > 1
    assert lc.verify(network, found, exact=True) is found


def test_it_agrees_where_the_first_layer_is_narrow() -> None:
    network = random_network(7, (60, 8, 8, 4), "tanh")
    found = lc.reach(network, lc.Ball(np.zeros(60), 0.2), lc.Joint(iterations=4))
    assert lc.verify(network, found, exact=True) is found


def without(found: Reach, rows: slice) -> Reach:
    return replace(found, hull=(found.hull[0][rows], found.hull[1][rows]))


def with_tree(found: Reach, **changes: Any) -> Reach:
    *others, last = found.proofs
    assert last.tree is not None
    return replace(found, proofs=(*others, replace(last, tree=replace(last.tree, **changes))))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_false_pieces_are_refused_by_the_second_opinion_alone(activation: str) -> None:
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
    assert {name for name, claim in false.items() if not refused(network, claim)} == set()


def test_an_output_outside_all_boxes_of_the_hull_is_seen() -> None:
    """f(x) = x on [-1, 1], cut in two: each half is needed, though the box holds both."""
    network = Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0]]])
    whole = lc.reach(network, lc.Box([-1.0], [1.0]), lc.ClosedForm())
    none = np.zeros(3, dtype=int)
    tree = Tree(np.array([-1, LEAF, LEAF]), none, np.zeros(3), np.array([1, 0, 0]), 1.0)
    halves = np.array([[-1.0], [0.0]]) - 1e-9, np.array([[0.0], [1.0]]) + 1e-9
    cut = replace(whole, hull=halves, proofs=(*whole.proofs, Proof("outputs", tree=tree)))
    assert not refused(network, cut)
    gap = replace(cut, hull=(halves[0] + np.array([[0.0], [1e-3]]), halves[1]))
    for claim in (without(cut, slice(0, 1)), without(cut, slice(1, 2)), gap):
        with pytest.raises(ProofFailed, match="claims a box"):
            proved(network, claim)
