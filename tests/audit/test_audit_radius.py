"""Certified radii in ball arithmetic: it agrees with what was proved, and refuses what is false."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import arb

import lipcert as lc
from lipcert.answers.radius import CertifiedRadius, RadiusProof
from lipcert.audit import engine, second_order
from lipcert.audit.answers import Whole
from lipcert.audit.engine import centre_values
from lipcert.audit.second_order import secants
from lipcert.definitions.functions import precision
from lipcert.definitions.rows import function
from lipcert.kernel.quadratic_form import QuadraticHints
from lipcert.methods.second_order import _Objective
from lipcert.model.activations import Activation
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.prove_outputs import prove_outputs
from networks import NAMED_ROWS, named, random_network, spread
from second_opinion import refused

POINT = np.array([0.3, -0.2, 0.9])
SPLIT = lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=8)
WAYS: dict[str, dict[str, Any]] = {
    "first order": {"curvature": False},
    "second order": {},
    "clip": {"clip": (-1.0, 1.0)},
    "pieces": {"method": SPLIT, "radii": [3.0], "curvature": False},
}


def network_of(activation: Any, inputs: int = 3) -> Network:
    return random_network(5, (inputs, 9, 8, 7, 3), activation, gain=1.5)


CASES = {
    f"{activation} {inputs}": (activation, inputs)
    for activation, inputs in [("relu", 3), ("relu", 20), ("tanh", 3), ("gelu", 3), ("elu", 20), ("sin", 3)]
}


@pytest.mark.parametrize(("case", "way"), spread(10, CASES, named(*WAYS)))
def test_it_agrees(case: tuple[str, int], way: str) -> None:
    activation, inputs = case
    network = network_of(activation, inputs)
    found = lc.certified_radius(network, np.resize(POINT, inputs), **WAYS[way])
    assert lc.verify(network, found, exact=True) == found.radius


def test_a_radius_of_zero_says_nothing() -> None:
    network = network_of("tanh")
    label = int(np.argmin(network(POINT)))
    found = lc.certified_radius(network, POINT, label)
    assert lc.verify(network, found, exact=True) == 0.0


def quadratic(proof: RadiusProof) -> list[QuadraticHints]:
    return [one for one in proof.rows if isinstance(one, QuadraticHints)]


def proof_of(found: CertifiedRadius) -> RadiusProof:
    assert found.proof is not None
    return found.proof


def widened(found: CertifiedRadius, radius: float) -> CertifiedRadius:
    """The same claim with the same hints over another ball."""
    proof = proof_of(found)
    ball = Ball(proof.ball.center, radius, proof.ball.clip)
    return replace(found, radius=radius, ball=radius, proof=replace(proof, ball=ball))


def nearest(network: Network, found: CertifiedRadius) -> float:
    """How far an input of another class is, in the whole space."""
    center = proof_of(found).ball.center
    attacks = lc.attack(network, center[None], found.label, np.array([50.0 * found.radius]), restarts=9)
    assert attacks.found[0]
    return float(attacks.distances[0])


@pytest.mark.parametrize(
    ("activation", "way"),
    spread(2, named("relu", "elu"), named("pieces", "first order", "second order")),
)
def test_false_claims_are_refused_by_the_second_opinion_alone(activation: str, way: str) -> None:
    network = network_of(activation)
    found = lc.certified_radius(network, POINT, **WAYS[way])
    lc.verify(network, found, exact=True)
    slope = np.linalg.norm(network.jacobian(POINT)[found.label] - network.jacobian(POINT)[found.rival])
    value = network(POINT)
    false = {
        "radius": widened(found, 1.001 * nearest(network, found)),
        "beyond the ball": replace(found, radius=1.001 * found.ball),
        "margin": replace(found, margin=1.001 * float(value[found.label] - value[found.rival])),
        "bound": replace(found, bound=0.5 * float(slope)),
        "label": replace(found, label=found.rival, rival=found.label),
        "rival": replace(found, rival=found.label),
        "classes": replace(found, rival=17),
        "nan": replace(found, radius=np.nan),
    }
    assert {name for name, claim in false.items() if not refused(network, claim)} == set()


@cache
def curved() -> tuple[Network, CertifiedRadius]:
    """A radius that several classes need second order for."""
    network = network_of("gelu")
    found = lc.certified_radius(network, POINT)
    assert found.basis == "second order"
    return network, found


def test_second_order_is_needed() -> None:
    network, found = curved()
    proof = proof_of(found)
    assert lc.verify(network, found, exact=True) == found.radius
    for rows in ((), proof.rows[1:], tuple(replace(one, mu=0.5 * one.mu) for one in quadratic(proof))):
        assert refused(network, replace(found, proof=replace(proof, rows=rows)))


def test_no_hints_to_second_order_prove_what_is_false() -> None:
    """Multipliers, μ and what is hoped for are hints: none of them proves a ball with an input of another class."""
    network, found = curved()
    far = widened(found, 1.0001 * nearest(network, found))
    proof, rng = proof_of(far), np.random.default_rng(0)
    for _ in range(6):
        pairs = []
        for one in quadratic(proof):
            told = tuple(T * rng.choice([0.0, 1e-3, 1.0, 30.0, -1.0, np.nan]) for T in one.multipliers or ())
            bends = tuple(np.asarray(b) * rng.choice([0.0, 0.5, 1.0, -1.0]) for b in one.bends)
            pairs.append(replace(one, multipliers=told, bends=bends, mu=one.mu * float(rng.choice([0.3, 1.0, 9.0]))))
        assert refused(network, replace(far, proof=replace(proof, rows=tuple(pairs))))
    short = tuple(replace(one, multipliers=()) for one in quadratic(proof))
    assert refused(network, replace(found, proof=replace(proof_of(found), rows=short)))


def test_a_leaf_that_is_lost_is_missed() -> None:
    network = network_of("relu")
    found = lc.certified_radius(network, POINT, **WAYS["pieces"])
    proof = proof_of(found)
    assert proof.tree is not None
    assert lc.verify(network, found, exact=True) == found.radius
    columns = ("layer", "index", "value", "child")
    shorter = replace(proof.tree, **{name: getattr(proof.tree, name)[:-1] for name in columns})
    for tree in (shorter, None):
        assert refused(network, replace(found, proof=replace(proof, tree=tree)))


@pytest.mark.parametrize("row", spread(2, NAMED_ROWS))
def test_secants_hold(row: Activation) -> None:
    """Secants of every activation are within their range, at points that are sampled."""
    rng = np.random.default_rng(1)
    with precision(128):
        f = function(row.name, tuple(float(np.ravel(p)[0]) for p in row.parameters))
        for trial in range(12):
            ends = np.sort(rng.normal(0.0, 2.0, 2))
            center = float(rng.uniform(*ends)) if trial % 4 else float(ends[0])
            error = float(rng.choice([0.0, 1e-14, 1e-3]))
            alpha, beta = secants(f, arb(ends[0]), arb(ends[1]), arb(center), arb(error))
            for _ in range(12):
                c, v = arb(center + error * float(rng.uniform(-1, 1))), arb(float(rng.uniform(*ends)))
                if abs(v - c) > 1e-9:
                    assert alpha - arb(2) ** -60 < (f.value(v) - f.value(c)) / (v - c) < beta + arb(2) ** -60
            if error == 0.0 and row.name == "tanh" and trial % 4:
                assert beta - alpha < 0.8 * (f.on(arb(ends[0]), arb(ends[1])).slopes()[1] + 0.1)


@pytest.mark.parametrize("clip", [None, (-0.4, 0.95)])
def test_what_parabolas_say_is_above_what_is_sampled(clip: Any) -> None:
    """A row within the ball, with any multipliers."""
    network, rng = network_of("tanh"), np.random.default_rng(0)
    ball = lc.Ball(POINT, 0.2, clip)
    found = lc.certify(network, ball, lc.ClosedForm())
    row = np.array([1.0, -1.0, 0.0])
    most = float((network(ball.sample(4000, rng)) @ row).max())
    relaxation = prove_outputs(network, ball, lc.ClosedForm()).quadratic_relaxation
    objective = _Objective(relaxation, row)
    drawn = objective.hints(objective.start())
    with precision(128):
        layers, inputs = engine.read(network), engine.inputs_of(ball, 3)
        assert inputs is not None
        whole = Whole(layers, inputs, found.sweeps)
        place = second_order.Place(layers, inputs, centre_values(layers, inputs.center), whole.known)
        for trial in range(4):
            multipliers = tuple(rng.uniform(0.1, 2.0, n) for n in network.sizes[1:-2])
            hints = replace(drawn, row=row, multipliers=multipliers, mu=50.0 * (trial + 1))
            above = float(second_order.by_parabolas(place, whole.last.spreads, hints))
            assert most <= above < 30.0
            assert above <= relaxation.above(hints) + 1e-6
