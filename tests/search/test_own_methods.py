"""Methods that others write: whatever they choose, what is certified holds, and repairs are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.questions.compare import compare
from networks import random_network

NET = random_network(1, (3, 8, 8, 2), "relu")
BALL = lc.Ball([0.1, -0.2, 0.3], 0.5)


@dataclass(frozen=True)
class Dominant(lc.Greedy):
    factor: float = 2.0

    def choose(self, stage: lc.Stage) -> Array:
        return self.factor * np.abs(stage.r[:, None] * stage.S * stage.r).sum(axis=1)


@dataclass(frozen=True)
class Odd(lc.Greedy):
    what: str

    def choose(self, stage: lc.Stage) -> Any:
        n = len(stage.alpha)
        odd = {"nan": np.full(n, np.nan), "negative": -np.ones(n), "zero": np.zeros(n), "huge": np.full(n, 1e300)}
        return {**odd, "one": 3.0, "short": np.ones(n + 1), "tiny": np.full(n, 1e-300)}[self.what]


def test_a_method_of_ones_own_is_proved() -> None:
    cert = lc.certify(NET, BALL, Dominant())
    assert cert.verified
    assert cert.note == ""
    assert lc.lower_bound(NET, BALL).value <= lc.verify(NET, cert) <= cert.bound


@pytest.mark.parametrize(("what", "word"), [("nan", "replaced"), ("negative", "replaced"), ("zero", "replaced")])
def test_multipliers_that_are_no_numbers_are_replaced(what: str, word: str) -> None:
    cert = lc.certify(NET, BALL, Odd(what))
    assert cert.verified
    assert word in cert.note
    assert lc.lower_bound(NET, BALL).value <= cert.bound < 10.0 * lc.certify(NET, BALL, "closed-form").bound


def test_multipliers_that_are_too_small_are_enlarged() -> None:
    for method in (Dominant(0.05), Odd("tiny")):
        cert = lc.certify(NET, BALL, method)
        assert cert.verified
        assert "enlarged" in cert.note
        assert lc.lower_bound(NET, BALL).value <= cert.bound


def test_the_wrong_number_of_multipliers_is_an_error() -> None:
    with pytest.raises(lc.InvalidInput, match=r"layer 1: a method must choose \d+ multipliers"):
        lc.certify(NET, BALL, Odd("short"))
    assert lc.certify(NET, BALL, Odd("one")).verified


def test_values_beside_names_in_a_comparison() -> None:
    found = compare(NET, BALL, {"mine": Dominant(0.05), "theirs": "trivial"}, timeout=120.0)
    assert [row.status for row in found.rows] == ["certified", "certified"]
    assert found["mine"].verified
    assert "enlarged" in found["mine"].note
    assert found["theirs"].published
    assert not found["mine"].published
    with pytest.raises(lc.InvalidInput, match="different ones"):
        compare(NET, BALL, ["trivial", "trivial"])
    with pytest.raises(lc.InvalidInput, match=r"a value, not a class; write Dominant\(\)"):
        compare(NET, BALL, [Dominant])  # type: ignore[list-item]
