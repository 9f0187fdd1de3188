"""Radii of networks too wide for a proof in the time given: the product of norms certifies one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.norms import Norm
from lipcert.proof.broken import subject_of
from lipcert.proof.classes import RadiusProof
from lipcert.questions import hunt
from lipcert.questions.verdict import Judge, Rules
from networks import random_network

POINT = np.array([0.3, -0.2, 0.5])


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> lc.Network:
    """A network that counts as wide, and whose intervals take too long."""
    monkeypatch.setattr(hunt, "_WIDE", 5)
    monkeypatch.setattr(hunt, "enclosing_seconds", lambda network: 1e6)
    return random_network(4, (3, 8, 6, 4), "relu")


@pytest.mark.parametrize("norm", [None, lc.LInf(), lc.L1(scale=2.0)])
@pytest.mark.parametrize("pairwise", [True, False])
def test_the_product_of_norms_certifies_a_radius(
    wide: lc.Network, norm: Norm | None, pairwise: bool, tmp_path: Path
) -> None:
    said: list[str] = []
    found = lc.certified_radius(wide, POINT, norm=norm, pairwise=pairwise, seconds=1e3, progress=said.append)
    assert not any("radius" in line for line in said)  # no ball was looked at
    value = wide(POINT)
    assert found.radius > 0.0
    assert found.margin == pytest.approx(value[found.label] - value[found.rival], rel=1e-9)
    assert found.radius < lc.certified_radius(wide, POINT, norm=norm, pairwise=pairwise).radius
    found.save(tmp_path / "radius.json")
    assert lc.verify(wide, lc.CertifiedRadius.load(tmp_path / "radius.json")) is not None
    if not pairwise:  # then the rule of pairs proves more
        return
    larger = replace(found, radius=found.radius * 1.01, ball=found.radius * 1.01)
    assert isinstance(found.proof, RadiusProof)
    ball = replace(found.proof.ball, radius=np.asarray(larger.ball))
    forged = replace(larger, proof=replace(found.proof, ball=ball), subject=subject_of(wide, ball))
    with pytest.raises(lc.ProofFailed):
        lc.verify(wide, forged)


def test_nothing_certified_has_the_true_margin_and_rival() -> None:
    network = random_network(4, (3, 8, 6, 4), "relu")
    value = network(POINT)
    order = np.argsort(-value)
    found = Judge(network, POINT, order[0], order[0], lc.ClosedForm(), Rules())
    assert found.nothing.rival == order[1]
    assert found.nothing.margin == pytest.approx(value[order[0]] - value[order[1]], rel=1e-9)
