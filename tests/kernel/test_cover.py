"""The ledger of pieces: its bound is true whatever the search suggests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel.branch_and_bound import AXIS, Cover, PieceBounds
from lipcert.kernel.checker import lipschitz_fact
from lipcert.model.regions import Norms
from lipcert.suggest.hints import LEAF
from networks import random_network

NETWORK = random_network(5, (3, 10, 10, 2), "relu", gain=2.5)
BALL = lc.Ball(np.zeros(3), 1.0)
LOWER = lc.lower_bound(NETWORK, BALL).value


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
    for passed in ([], [3, 4]):  # leaves were not cut at all
        assert lc.verify(NETWORK, replace(claim, tree=replace(found.tree(), passed=np.array(passed)))) <= found.bound
    assert found.tree().leaves == 4
