"""An answer is never worse than its parts: methods, regions and questions in order, on the models people bring."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lipcert as lc
import modules
from lipcert.questions.certify import _frank
from lipcert.search.candidate import Candidate
from modules import KINDS

ROUNDING = 1.0 + 2e-7
CLOSE = 1.0 + 1e-3
"""What methods that stop at a tolerance may miss of each other."""


def around(network: lc.Network, radius: float) -> lc.Ball:
    return lc.Ball(np.random.default_rng(0).random(network.input_shape or (network.inputs,)), radius, clip=(0, 1))


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("kind", KINDS)
def test_methods_are_in_order(kind: str, local: bool) -> None:
    """Auto ≤ Joint ≤ Scalar ≤ product of norms, and ClosedForm is below that product too."""
    network = modules.network(kind)
    region = around(network, 0.3) if local else lc.Everywhere()
    methods = lc.Auto(seconds=np.inf, pieces=20), lc.Joint(iterations=4), lc.Scalar(), lc.ClosedForm()
    auto, joint, scalar, closed = (lc.certify(network, region, method).bound for method in methods)
    product = lc.certify(network, method=lc.published.Trivial()).bound
    assert auto <= joint * CLOSE
    assert joint <= scalar * ROUNDING
    assert max(scalar, closed) <= product * ROUNDING


@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar(), lc.Joint(iterations=4)], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_a_ball_never_gets_more_than_all_of_space(kind: str, method: lc.ClosedForm) -> None:
    network = modules.network(kind)
    everywhere = lc.certify(network, method=method).bound
    for radius in (0.1, 1.0, 10.0):
        ball = lc.Ball(np.full(network.inputs, 0.5), radius)
        assert lc.certify(network, ball, method).bound <= everywhere * CLOSE


def test_the_proof_keeps_what_the_search_found() -> None:
    """Neurons that reach no output had multipliers of 1e15, and the proof lost the bound to rounding."""
    network = lc.load(modules.residual(), input_shape=(1, 8, 8))
    said: list[str] = []
    certificate = lc.certify(network, around(network, 0.3), lc.Joint(seconds=5.0), progress=said.append)
    found = [float(text[1]) for line in said if (text := re.match(r"bound (\S+) \(joint\)", line))]
    assert certificate.bound <= 1.02 * found[-1]
    assert certificate.note == ""


def test_what_could_not_be_proved_is_told() -> None:
    network = modules.network("saturated")
    proved = lc.certify(network, around(network, 0.1), lc.Scalar())
    found = Candidate(0.98 * proved.bound, proved.layers, found_by="Joint")
    assert "could not be proved" in _frank(proved, found).note
    assert _frank(proved, replace(found, bound=0.995 * proved.bound)) is proved


@pytest.mark.parametrize("kind", KINDS)
def test_no_entry_of_a_sensitivity_is_above_the_whole(kind: str) -> None:
    network = modules.network(kind)
    region, method = around(network, 0.3), lc.Auto(seconds=np.inf, pieces=20)
    whole = lc.certify(network, region, method).bound
    assert lc.sensitivity(network, region, method).matrix.max() <= whole * CLOSE
