"""Passes that methods ask for: a certificate takes over what they proved, if it is about the same."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel.facts import Part
from lipcert.kernel.sweep import ask, intervals, passed
from lipcert.methods.method import MethodGuide
from lipcert.suggest.hints import BOTH, Linear, layer_reports
from networks import random_network

NETWORK = random_network(5, (3, 6, 5, 4, 2), "elu", gain=2.0)
BALL = lc.Ball([0.3, -0.2, 0.9], 0.7)
GUIDE = MethodGuide(lc.ClosedForm().choose_all, BOTH)
AGAIN = MethodGuide(lc.ClosedForm().choose_all, (Linear(tilt=0.25),))


def test_a_pass_holds_what_its_hints_prove() -> None:
    _, first = ask(NETWORK, BALL, GUIDE)
    sweep, second = ask(NETWORK, BALL, AGAIN, (first,))
    assert second.bound == sweep.bounds[0]
    for one, two in zip(second.intervals, intervals(NETWORK, BALL, (first.bare, second.bare)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert passed(NETWORK, BALL, second, (first,)) is second
    assert passed(lc.Network(NETWORK.layers), lc.Ball(BALL.center, 0.7), second, (first,)) is second
    assert passed(NETWORK, BALL, second.bare, (first,)) is None


def test_of_other_questions_a_pass_is_hints_only() -> None:
    _, first = ask(NETWORK, BALL, GUIDE)
    _, second = ask(NETWORK, BALL, AGAIN, (first,))
    _, inner = ask(NETWORK, BALL, GUIDE, (first,), Part((1, 4)))
    assert passed(NETWORK, lc.Ball(BALL.center, 0.8), first, ()) is None
    assert passed(random_network(6, (3, 6, 5, 4, 2), "elu"), BALL, first, ()) is None
    assert passed(NETWORK, BALL, first.bare, ()) is None
    assert passed(NETWORK, BALL, second, ()) is None
    assert passed(NETWORK, BALL, second, (first.bare,)) is None
    assert passed(NETWORK, BALL, inner, (first,)) is None
    assert passed(NETWORK, BALL, inner, (first,), Part((1, 3))) is None


def test_what_a_pass_holds_cannot_be_written_to() -> None:
    sweep, hints = ask(NETWORK, BALL, GUIDE)
    report = layer_reports(sweep)[0]
    for array in (report.lower, report.upper, hints.multipliers[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
