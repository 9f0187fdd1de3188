"""Passes that methods ask for: remembered for the certificate, and only for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel.hints import BOTH, Linear, Part
from lipcert.kernel.sweep import ask, intervals, recall
from lipcert.methods.method import MethodGuide
from lipcert.suggest.reports import layer_reports
from networks import random_network

NETWORK = random_network(5, (3, 6, 5, 4, 2), "elu", gain=2.0)
BALL = lc.Ball([0.3, -0.2, 0.9], 0.7)
GUIDE = MethodGuide(lc.ClosedForm().choose_all, BOTH)
AGAIN = MethodGuide(lc.ClosedForm().choose_all, (Linear(tilt=0.25),))


def test_what_is_remembered_is_what_a_pass_proves() -> None:
    _, first = ask(NETWORK, BALL, GUIDE)
    sweep, second = ask(NETWORK, BALL, AGAIN, (first,))
    fact = recall(NETWORK, BALL, second, (first,))
    assert fact is not None
    assert fact.bound == sweep.bounds[0]
    for one, two in zip(fact.intervals, intervals(NETWORK, BALL, (first, second)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert recall(lc.Network(NETWORK.layers), lc.Ball(BALL.center, 0.7), second, (first,)) is fact


def test_other_questions_find_nothing() -> None:
    _, first = ask(NETWORK, BALL, GUIDE)
    _, second = ask(NETWORK, BALL, AGAIN, (first,))
    _, inner = ask(NETWORK, BALL, GUIDE, (first,), Part((1, 4)))
    assert recall(NETWORK, lc.Ball(BALL.center, 0.8), first, ()) is None
    assert recall(random_network(6, (3, 6, 5, 4, 2), "elu"), BALL, first, ()) is None
    assert recall(NETWORK, BALL, replace(first), ()) is None
    assert recall(NETWORK, BALL, second, ()) is None
    assert recall(NETWORK, BALL, second, (replace(first),)) is None
    assert recall(NETWORK, BALL, inner, (first,)) is None
    assert recall(NETWORK, BALL, inner, (first,), Part((1, 3))) is None


def test_what_is_remembered_cannot_be_written_to() -> None:
    sweep, hints = ask(NETWORK, BALL, GUIDE)
    report = layer_reports(sweep)[0]
    for array in (report.lower, report.upper, hints.multipliers[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
