"""An answer is never worse than its parts: methods, regions and questions in order, on random and on common models."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import lipcert as lc
import modules
from lipcert.methods.method import Candidate
from lipcert.model.regions import Region
from lipcert.questions.certify import _frank
from networks import named, random_network, spread

ROUNDING = 1.0 + 2e-7
CLOSE = 1.0 + 1e-3
"""What methods that stop at a tolerance may miss of each other."""
RANDOM = {
    "relu": random_network(0, (4, 12, 12, 3), "relu", gain=2.0),
    "tanh": random_network(1, (4, 12, 12, 2), "tanh", gain=2.0),
    "softplus": random_network(2, (3, 10, 10, 10, 2), "softplus", gain=1.5),
    "leaky": random_network(3, (5, 8, 8, 8, 1), "leaky_relu", gain=2.0),
    "wide": random_network(4, (30, 16, 10), "silu", gain=1.5),
}
NETWORKS = named(*RANDOM, *modules.KINDS)
JOINT, AUTO = lc.Joint(iterations=8), lc.Auto(seconds=np.inf, pieces=20)
SPLIT = lc.Split(method=JOINT, seconds=np.inf, pieces=20)


@cache
def network_of(name: str) -> lc.Network:
    return RANDOM[name] if name in RANDOM else modules.network(name)


def region_of(network: lc.Network, kind: str) -> Region:
    center = np.random.default_rng(0).random(network.inputs)
    regions: dict[str, Region] = {
        "ball": lc.Ball(center, 0.5),
        "box": lc.Box(center - 0.2, center + 0.1),
        "clipped": lc.Ball(center, 0.3, clip=(0, 1)),
        "everywhere": lc.Everywhere(),
    }
    return regions[kind]


@pytest.mark.parametrize(("name", "kind"), spread(8, NETWORKS, named("ball", "box", "clipped", "everywhere")))
def test_methods_are_in_order(name: str, kind: str) -> None:
    """Auto and Split ≤ Joint ≤ Scalar, ClosedForm ≤ product of norms."""
    network = network_of(name)
    region = region_of(network, kind)
    joint, scalar, closed = (lc.certify(network, region, one).bound for one in (JOINT, lc.Scalar(), lc.ClosedForm()))
    assert joint <= min(scalar, closed) * ROUNDING
    assert max(scalar, closed) <= lc.certify(network, method=lc.published.Trivial()).bound * ROUNDING
    assert lc.certify(network, region, AUTO).bound <= joint * CLOSE
    if region.bounded and name in RANDOM:
        assert lc.certify(network, region, SPLIT).bound <= joint * CLOSE


def test_the_proof_keeps_what_the_search_found() -> None:
    """Neurons that reach no output had multipliers of 1e15, and the proof lost the bound to rounding."""
    network = lc.load(modules.residual(), input_shape=(1, 8, 8))
    said: list[str] = []
    certificate = lc.certify(network, region_of(network, "clipped"), lc.Joint(seconds=8.0), progress=said.append)
    found = [float(text[1]) for line in said if (text := re.match(r"bound (\S+) \(joint\)", line))]
    assert certificate.bound <= 1.02 * found[-1]
    assert certificate.note == ""


def test_what_could_not_be_proved_is_told() -> None:
    network = network_of("saturated")
    proved = lc.certify(network, region_of(network, "clipped"), lc.Scalar())
    found = Candidate(0.98 * proved.bound, proved.layers, found_by="Joint")
    assert "could not be proved" in _frank(proved, found).note
    assert _frank(proved, replace(found, bound=0.995 * proved.bound)) is proved


@pytest.mark.parametrize("name", ["relu", "tanh", "convolutional", "loop"])
def test_no_entry_of_a_sensitivity_is_above_the_whole(name: str) -> None:
    network, method = network_of(name), lc.Auto(seconds=np.inf, pieces=6)
    region = region_of(network, "clipped")
    whole = lc.certify(network, region, method).bound
    assert lc.sensitivity(network, region, method, inputs=[0, 1], outputs=[0]).matrix.max() <= whole * CLOSE


def test_every_answer_says_who_found_it() -> None:
    network, ball = network_of("relu"), lc.Ball(np.random.default_rng(0).normal(0.0, 0.5, 4), 0.7)
    assert lc.certify(network, ball, lc.ClosedForm()).found_by in ("", "ClosedForm")
    assert lc.certify(network, ball, lc.Scalar()).found_by == "Scalar"
    assert lc.certify(network, ball, lc.Joint()).found_by == "Joint"
    assert lc.certify(network, ball, lc.Split(lc.Joint(), seconds=np.inf, pieces=40)).found_by == "Split"
    assert lc.certify(network, ball, lc.Auto(seconds=0.0)).found_by == "ClosedForm"
