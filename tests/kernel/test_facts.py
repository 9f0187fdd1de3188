"""Facts, the rules they rest on, and answers that are no more than what facts show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.kernel.facts import CORE, OPTIONAL
from lipcert.questions.verify import proved
from networks import random_network

TANH, RELU = (random_network(3, (2, 6, 5, 2), name, gain=2.0) for name in ("tanh", "relu"))
BALL = lc.Ball([0.2, -0.3], 0.4)
SPLIT = lc.Split(lc.ClosedForm(), seconds=np.inf, pieces=8)
ASKED: dict[str, tuple[Any, set[str]]] = {
    "a step": (lambda: lc.certify(RELU, None, lc.ClosedForm()), {"step"}),
    "a ball": (lambda: lc.certify(RELU, BALL, lc.ClosedForm()), {"step", "back-substitution"}),
    "norms": (lambda: lc.certify(RELU, None, lc.ClosedForm(), input_norm="linf"), {"step", "norms"}),
    "product": (lambda: lc.certify(RELU, None, lc.published.Trivial()), {"product of norms"}),
    "pieces": (lambda: lc.certify(RELU, BALL, SPLIT), {"step", "back-substitution", "branch and bound"}),
    "taylor": (lambda: lc.certify(TANH, BALL, SPLIT), {"step", "back-substitution", "branch and bound", "taylor"}),
    "outputs": (lambda: lc.reach(RELU, BALL, lc.ClosedForm()), {"step", "back-substitution"}),
    "outputs over pieces": (
        lambda: lc.reach(TANH, BALL, SPLIT),
        {"step", "back-substitution", "branch and bound", "taylor"},
    ),
    "pairs": (lambda: lc.sensitivity(RELU, BALL, lc.ClosedForm()), {"step", "back-substitution"}),
}


@pytest.mark.parametrize("name", ASKED)
def test_answers_say_what_they_rest_on(name: str, tmp_path: Path) -> None:
    """Made, saved, and proved again; and refused where one of the rules is not accepted."""
    ask, rules = ASKED[name]
    found = ask()
    network = next(one for one in (RELU, TANH) if one.digest == found.network)
    assert set(found.rules) == rules <= CORE | OPTIONAL
    found.save(tmp_path / "answer.json")
    claim = lc.load_answer(tmp_path / "answer.json")
    assert not isinstance(claim, tuple)
    assert claim.rules == ()
    assert proved(network, claim)[1] == found.rules
    assert proved(network, claim, rules=found.rules)[1] == found.rules
    with pytest.raises(lc.ProofFailed, match="rules that are not accepted here"):
        lc.verify(network, claim, rules=sorted((CORE | OPTIONAL) - {found.rules[-1]}))
    if rules <= CORE:
        lc.verify(network, claim, rules="core")
    else:
        with pytest.raises(lc.ProofFailed, match=", ".join(sorted(rules - CORE))):
            lc.verify(network, claim, rules="core")


@pytest.mark.parametrize("norm", ["l1", "linf", lc.L2(scale=2.0), "l2"], ids=str)
def test_radii_in_other_norms_than_l2_say_so(norm: Any) -> None:
    found = lc.certified_radius(RELU, BALL.center, norm=norm)
    assert found.radius > 0.0
    assert ("norms" in found.rules) == (norm != "l2")
    assert proved(RELU, found)[1] == found.rules


@pytest.mark.parametrize("rules", ["magic", [], ["step", "magic"]])
def test_rules_that_are_unknown(rules: Any) -> None:
    with pytest.raises(lc.InvalidInput, match="rules must be 'core' or names among"):
        lc.verify(RELU, lc.certify(RELU, None, lc.ClosedForm()), rules=rules)


def test_a_certificate_is_verified_only_as_far_as_its_fact_goes() -> None:
    found, other = (lc.certify(RELU, lc.Ball([0.2, -0.3], size), lc.ClosedForm()) for size in (0.4, 0.1))
    assert found.verified
    assert replace(found, bound=2.0 * found.bound).verified
    lies: list[dict[str, Any]] = [
        {"bound": 0.999 * found.bound},
        {"region": lc.Ball([0.2, -0.3], 0.5)},
        {"network": TANH.digest},
        {"part": replace(found.part, layers=(0, 2))},
        {"facts": ()},
        {"facts": other.facts},
    ]
    assert not any(replace(found, **lie).verified for lie in lies)


def test_the_command_line_names_the_rules(lipcert: Command) -> None:
    TANH.save("model.npz")
    lc.certify(TANH, BALL, SPLIT).save("pieces.json")
    shown = lipcert("verify", "pieces.json", "model.npz")
    assert "Rules of the proof: back-substitution, branch and bound, step, taylor." in shown.out
    assert lipcert("verify", "pieces.json", "model.npz", "--rules", "core").code == 1
    assert lipcert("verify", "pieces.json", "model.npz", "--rules", ", ".join(CORE | OPTIONAL)).code == 0
    assert lipcert("verify", "pieces.json", "model.npz", "--rules", "magic").code == 2


def test_a_proof_runs_no_code_that_reads_what_users_hand_in() -> None:
    """Not even to make the regions and parts that it needs on its way."""
    units: dict[str, Any] = {"input_norm": lc.LInf([1.0, 2.0]), "output_norm": lc.L1()}
    odd = lc.Ball(BALL.center, 0.3, clip=(-1, 1), norm=lc.L1([1.0, 0.5]))
    claims: list[tuple[lc.Network, Any]] = [
        *((net, lc.certify(net, region, SPLIT)) for net in (TANH, RELU) for region in (BALL, odd)),
        (RELU, lc.certify(RELU, lc.Everywhere(), SPLIT)),
        *(
            (RELU, lc.certify(RELU, region, lc.ClosedForm(), **units))
            for region in (odd, lc.Box(BALL.center - 1, BALL.center + 1))
        ),
        (RELU, lc.certify(RELU, BALL, lc.ClosedForm(), inputs=[1], outputs=[0])),
        *((net, ask(net, BALL)) for net in (TANH, RELU) for ask in (lc.reach, lc.sensitivity)),
        *((net, lc.certified_radius(net, BALL.center)) for net in (TANH, RELU)),
    ]
    entered = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/lipcert/arguments/" in frame.f_code.co_filename.replace("\\", "/"):
            entered.add(frame.f_code.co_name)

    for network, claim in claims:
        sys.setprofile(watch)
        try:
            lc.verify(network, claim)
        finally:
            sys.setprofile(None)
    assert not entered
