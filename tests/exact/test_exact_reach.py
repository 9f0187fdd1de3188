"""Reach sets in ball arithmetic: it agrees with what was proved, and refuses what is a little less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.proof.reach import Reach
from lipcert.proof.together import derived
from lipcert.questions import verify as questions
from networks import random_network

exact = pytest.importorskip("lipcert.exact")

CENTER = np.array([0.3, -0.2, 0.9])
REGIONS = {
    "ball": lc.Ball(CENTER, 0.3),
    "tiny": lc.Ball(CENTER, 1e-7),
    "point": lc.Ball(CENTER, 0.0),
    "clip": lc.Ball(CENTER, 0.3, clip=(CENTER - 0.1, CENTER + 0.25)),
    "box": lc.Box(CENTER - 0.2, CENTER + 0.3),
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "elu", "sin"])
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


@pytest.mark.parametrize("which", ["lower", "upper", "hull", "center", "shape", "asymmetric", "bound"])
def test_less_is_refused_by_the_second_opinion_alone(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "recheck_reach", lambda network, claim: claim)
    network = random_network(5, (3, 7, 6, 3), "tanh", gain=1.5)
    found = lc.reach(network, REGIONS["ball"], lc.ClosedForm())
    assert lc.verify(network, found, exact=True) is found
    with pytest.raises(ProofFailed):
        lc.verify(network, sides(found, 1e-7)[which], exact=True)


def test_no_lines_prove_what_is_false() -> None:
    """Boxes that miss an output are refused whatever slopes are suggested, and so are lines of the wrong sizes."""
    rng = np.random.default_rng(1)
    network, region = random_network(5, (3, 7, 6, 3), "tanh", gain=1.5), REGIONS["ball"]
    found = lc.reach(network, region, lc.ClosedForm())
    values = network(region.sample(20_000, rng))
    lower, upper = values.min(axis=0), values.max(axis=0)
    sweeps = [one.sweeps for one in found.proofs]

    def attempt(box: tuple[Array, Array], lines: Any) -> None:
        sets = exact.Claimed(3, *box, found.center, found.shape, found.bound)
        exact.verify_outputs(network, region, sets, sweeps, lines)

    def drawn() -> list[tuple[Array, Array]]:
        return [(rng.normal(size=n), rng.normal(size=n)) for n in (7, 6)]

    for number in range(20):
        false = lower.copy(), upper.copy()
        false[number % 2][number % 3] += 1e-3 if number % 2 == 0 else -1e-3
        with pytest.raises(ProofFailed, match="the box of the outputs is smaller"):
            attempt(false, [drawn() for _ in sweeps])
    loose = found.lower - 100.0, found.upper + 100.0
    attempt(loose, [drawn() for _ in sweeps])
    with pytest.raises(ProofFailed, match="not those of the network's neurons"):
        attempt(loose, [drawn()[::-1]])


def test_the_lines_are_needed() -> None:
    """What several proofs tell together is proved by their lines; without them less is."""
    network = random_network(5, (3, 7, 6, 3), "relu", gain=1.5)
    found = lc.reach(network, REGIONS["box"], lc.Joint(iterations=4))
    together, _ = derived(network, found.region, found.proofs)
    lines = [together.lines(count + 1) for count in range(len(found.proofs))]
    sets = exact.Claimed(3, found.lower, found.upper, found.center, found.shape, found.bound)
    hints = [one.sweeps for one in found.proofs]
    exact.verify_outputs(network, found.region, sets, hints, lines)
    with pytest.raises(ProofFailed, match="the box of the outputs is smaller"):
        exact.verify_outputs(network, found.region, sets, hints[:1], lines[:0])


def test_pieces_and_other_networks_are_refused() -> None:
    network = random_network(5, (3, 7, 6, 3), "relu", gain=1.5)
    cut = lc.reach(network, REGIONS["ball"], lc.Split(lc.ClosedForm(), np.inf, pieces=4))
    with pytest.raises(InvalidInput, match="only if its region was not cut into pieces"):
        lc.verify(network, cut, exact=True)
    whole = lc.reach(network, REGIONS["ball"], lc.ClosedForm())
    with pytest.raises(ProofFailed, match="another network"):
        lc.verify(random_network(6, (3, 7, 6, 3), "relu"), whole, exact=True)
