"""The ledger of pieces: its bound is true whatever the search suggests."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel import cover as ledger
from lipcert.kernel.checker import lipschitz_fact
from lipcert.kernel.cover import LEAF, Cover, Leaf
from lipcert.kernel.piece_bounds import AXIS, PieceBounds
from lipcert.methods.method import Candidate
from lipcert.model.norms import Norms
from networks import random_network

SEARCH = importlib.import_module("lipcert.methods.split")
NETWORK = random_network(5, (3, 10, 10, 2), "relu", gain=2.5)
BALL = lc.Ball(np.zeros(3), 1.0)
SPLIT = lc.Split(method=lc.ClosedForm(), seconds=np.inf, tolerance=1e-3, pieces=400)
LOWER = lc.lower_bound(NETWORK, BALL).value


def halved_bound(patch: pytest.MonkeyPatch) -> None:
    honest = lc.Split.refined

    def refined(split: lc.Split, *arguments: Any) -> Iterator[Candidate]:
        for proof in honest(split, *arguments):
            yield replace(proof, bound=0.5 * proof.bound)

    patch.setattr(lc.Split, "refined", refined)


def lost_leaves(patch: pytest.MonkeyPatch) -> None:
    """The search forgets half of the pieces."""
    honest = SEARCH._Search.add
    patch.setattr(SEARCH._Search, "add", lambda search, leaves: honest(search, leaves[::2]))


def garbage_cuts(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def cuts(search: Any, leaves: list[Any], starts: Any) -> tuple[Any, ...]:
        count = len(leaves)
        return rng.integers(AXIS, 2, count), rng.integers(0, 3, count), rng.standard_normal(count)

    patch.setattr(SEARCH._Search, "cuts", cuts)


def garbage_weights(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    patch.setattr(SEARCH, "witness", lambda stack, piece: (None, rng.standard_normal(20)))


def garbage_witness(patch: pytest.MonkeyPatch) -> None:
    """Norms that nothing has: the search stops at once, or believes that it is done."""
    patch.setattr(SEARCH, "jacobian_norms", lambda network, points, *rest: np.full(len(points), 1e9))


@pytest.mark.parametrize("mistake", [halved_bound, lost_leaves, garbage_cuts, garbage_weights, garbage_witness])
def test_a_wrong_search_gets_a_true_bound(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    certificate = lc.certify(NETWORK, BALL, SPLIT)
    assert certificate.verified
    assert certificate.bound >= LOWER
    assert lc.verify(NETWORK, certificate) <= certificate.bound
    assert lc.reach(NETWORK, BALL, SPLIT).bound >= LOWER


def made(**arguments: Any) -> Cover:
    sweeps = lc.certify(NETWORK, BALL, lc.ClosedForm()).sweeps
    return Cover(PieceBounds(NETWORK, BALL, sweeps, **arguments))


def test_a_cover_belongs_to_its_network_and_region() -> None:
    found = made()
    assert found.check(NETWORK, BALL, PieceBounds).bound == found.bound >= LOWER
    other = random_network(6, (3, 10, 10, 2), "relu", gain=0.1)
    for network, region in ((other, BALL), (NETWORK, lc.Ball(np.zeros(3), 2.0))):
        with pytest.raises(ProofFailed, match="another network or region"):
            found.check(network, region, PieceBounds)


def test_pieces_of_the_whole_network_tell_nothing_of_a_part() -> None:
    part = lc.certify(NETWORK, BALL, lc.ClosedForm(), layers=(1, 3))
    with pytest.raises(ProofFailed, match="about the whole network"):
        lipschitz_fact(NETWORK, BALL, part.part, part.sweeps, part.part_sweeps, made())


def test_pieces_are_not_bounded_in_units() -> None:
    with pytest.raises(ProofFailed, match="norms without units"):
        made(norms=Norms(lc.L2(scale=100.0), lc.L2()))


@pytest.mark.parametrize(
    ("layer", "index", "value", "message"),
    [
        (LEAF, 0, 0.0, "does not have"),
        (2, 0, 0.0, "does not have"),
        (0, 10, 0.0, "does not have"),
        (AXIS, 3, 0.0, "does not have"),
        (AXIS, 0, np.nan, "does not have"),
        (AXIS, 0, 5.0, "outside its sides"),
    ],
)
def test_cuts_that_are_none(layer: int, index: int, value: float, message: str) -> None:
    found = made()
    before = found.bound
    with pytest.raises(ProofFailed, match=message):
        found.cut([0], np.array([layer]), np.array([index]), np.array([value]))
    assert found.bound == before
    assert found.tree().leaves == 1


def test_bounds_fall_and_trees_prove_them_again() -> None:
    found = made()
    whole = found.bound
    leaves = found.cut([0], np.array([AXIS]), np.array([0]), np.array([0.0]))
    with pytest.raises(ProofFailed, match="cut twice"):
        found.cut([1, 1], np.array([AXIS] * 2), np.zeros(2, dtype=int), np.zeros(2))
    for leaf in leaves:
        found.cut([leaf.node], np.array([AXIS]), np.array([1]), np.array([0.0]))
    assert LOWER <= found.bound <= whole
    assert not found.drop(3, np.full(20, np.nan))
    claim = replace(lc.certify(NETWORK, BALL, lc.ClosedForm()), tree=found.tree(), bound=found.bound)
    for passed in ([], [1, 2]):  # older files name nodes that were not bounded
        assert lc.verify(NETWORK, replace(claim, tree=replace(found.tree(), passed=np.array(passed)))) <= found.bound
    assert found.tree().leaves == 4


def test_an_interrupted_cut_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the interrupt is not taken for a part of the next cut."""
    found, axis = made(), np.array([AXIS])
    found.cut([0], axis, np.array([0]), np.array([0.0]))
    made_leaves = itertools.count()

    def stopping(*arguments: Any) -> Leaf:
        if next(made_leaves) == 1:
            raise KeyboardInterrupt
        return Leaf(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "Leaf", stopping)
        with pytest.raises(KeyboardInterrupt):
            found.cut([1], axis, np.array([1]), np.array([0.0]))
    assert found.tree().leaves == 2
    assert {leaf.node for leaf in found.cut([2], axis, np.array([2]), np.array([0.0]))} == {3, 4}
    tree = found.tree()
    assert (tree.layer.tolist(), tree.child.tolist()) == ([AXIS, LEAF, AXIS, LEAF, LEAF], [1, 0, 3, 0, 0])
    claim = replace(lc.certify(NETWORK, BALL, lc.ClosedForm()), tree=tree, bound=found.bound)
    assert lc.verify(NETWORK, claim) <= found.bound


def test_hints_for_parts_are_rounded() -> None:
    """A part that is bounded in another batch then begins with the same numbers."""
    bounding = PieceBounds(NETWORK, BALL)
    hints = bounding.bound(bounding.root).hints
    told = 64.0 * hints[np.isfinite(hints)]
    assert told.size
    np.testing.assert_array_equal(told, np.round(told))
