"""Reach sets, sensitivities, radii and sweeps on disk: what is written comes back and is proved again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from fuzz_bytes import mangled
from fuzz_documents import rewritten, signed
from lipcert.answers.radius import CertifiedRadius
from lipcert.answers.reach import Reach
from lipcert.errors import InvalidInput, ProofFailed, UnreadableCertificate
from lipcert.files import documents
from lipcert.questions.verify import Answer
from networks import random_network

NETWORK = random_network(5, (3, 5, 4, 3), ["elu", "relu"], gain=1.5)
SMOOTH = random_network(6, (3, 6, 5, 3), "tanh", gain=2.0)
CENTER = np.array([0.3, -0.2, 0.9])
BALL = lc.Ball(CENTER, 0.4)


SMALL = lc.Ball(CENTER, 0.2, clip=(-1, 1))
PIECES = lc.Split(lc.ClosedForm(), np.inf, pieces=20)
ANSWERS: dict[str, tuple[lc.Network, Callable[[], Answer]]] = {
    "clipped": (NETWORK, lambda: lc.certify(NETWORK, SMALL, lc.ClosedForm())),
    "box": (NETWORK, lambda: lc.certify(NETWORK, lc.Box(CENTER - 0.1, CENTER + 0.2), lc.Joint(iterations=10))),
    "part": (NETWORK, lambda: lc.certify(NETWORK, BALL, lc.Scalar(), layers=(1, 3), inputs=[0, 2], outputs=[1])),
    "everywhere": (NETWORK, lambda: lc.certify(NETWORK, lc.Everywhere(), lc.Diagonal())),
    "norms": (NETWORK, lambda: lc.certify(NETWORK, SMALL, lc.ClosedForm(), input_norm=lc.L1([0.1, 2.0, 3.0]))),
    "tree": (NETWORK, lambda: lc.certify(NETWORK, BALL, PIECES)),
    "reach": (NETWORK, lambda: lc.reach(NETWORK, SMALL, lc.ClosedForm())),
    "pieces": (NETWORK, lambda: lc.reach(NETWORK, BALL, PIECES)),
    "sensitivity": (NETWORK, lambda: lc.sensitivity(NETWORK, SMALL, lc.ClosedForm())),
    "entries": (NETWORK, lambda: lc.sensitivity(NETWORK, BALL, PIECES, outputs=[2])),
    "radius": (NETWORK, lambda: lc.certified_radius(NETWORK, CENTER)),
    "smooth": (SMOOTH, lambda: lc.certified_radius(SMOOTH, CENTER)),
    "sweep": (NETWORK, lambda: lc.sweep(NETWORK, CENTER, [0.3, 0.1], lc.ClosedForm())),
}


@cache
def answer_to(case: str) -> Answer:
    return ANSWERS[case][1]()


@pytest.mark.parametrize("case", ANSWERS)
def test_what_is_saved_comes_back_and_is_proved_again(case: str, tmp_path: Path) -> None:
    network, before = ANSWERS[case][0], answer_to(case)
    lc.save_answer(before, tmp_path / "a.json")
    after = lc.load_answer(tmp_path / "a.json")
    assert type(after) is type(before)
    lc.verify(network, after)
    lc.save_answer(after, tmp_path / "again.json")
    one, two = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("a.json", "again.json"))
    assert (one["format"], one["version"], one["content"]) == ("lipcert certificate", 5, two["content"])
    with pytest.raises(ProofFailed):
        lc.verify(random_network(9, (3, 5, 4, 3), ["elu", "relu"]), after)


def test_a_row_of_a_sweep_cannot_claim_more_than_its_certificate() -> None:
    rows = answer_to("sweep")
    assert isinstance(rows, tuple)
    with pytest.raises(ProofFailed, match="claims less than its certificate"):
        lc.verify(NETWORK, [replace(rows[0], bound=0.9 * rows[0].bound)])
    part = lc.certify(NETWORK, BALL, lc.ClosedForm(), outputs=[0])
    with pytest.raises(ProofFailed, match="about a part of the network"):
        lc.verify(NETWORK, [replace(rows[0], bound=part.bound, certificate=part)])


def test_what_cannot_be_saved_or_verified(tmp_path: Path) -> None:
    reach, radius = answer_to("reach"), answer_to("radius")
    assert isinstance(reach, Reach)
    assert isinstance(radius, CertifiedRadius)
    with pytest.raises(InvalidInput, match="must have what proves it"):
        replace(reach, proofs=()).save(tmp_path / "a.json")
    with pytest.raises(InvalidInput, match="must be positive and have a proof"):
        replace(radius, proof=None).save(tmp_path / "a.json")
    for wrong in ((), reach.lower, None):
        with pytest.raises(InvalidInput, match="answer must be what a question returned"):
            lc.save_answer(wrong, tmp_path / "a.json")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    radius.save(tmp_path / "a.json")
    forged = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    forged["content"] |= {"radius": 0.0, "bound": 1e-9}
    forged["sha256"] = documents.checksum(forged["content"])
    (tmp_path / "a.json").write_text(json.dumps(forged), encoding="utf-8")
    with pytest.raises(UnreadableCertificate, match="must be positive"):
        CertifiedRadius.load(tmp_path / "a.json")
    reach.save(tmp_path / "a.json")
    readers: list[Callable[[Path], object]] = [lc.Certificate.load, CertifiedRadius.load, lc.Sensitivity.load]
    for reader in readers:
        with pytest.raises(UnreadableCertificate, match="holds a 'reach', not a"):
            reader(tmp_path / "a.json")


def holds(network: lc.Network, claim: Answer) -> None:
    """Nothing that was verified is contradicted at points of its region."""
    rng = np.random.default_rng(0)
    if isinstance(claim, Reach):
        values = network(claim.region.sample(50, rng))
        slack = 1e-9 * (1.0 + np.abs(values))
        assert ((claim.lower <= values + slack) & (values - slack <= claim.upper)).all()
    elif isinstance(claim, lc.Sensitivity):
        where = claim.region if claim.region.bounded else BALL
        jacobians = np.abs(network.jacobian(where.sample(50, rng)))
        for (i, rows), (k, columns) in product(enumerate(claim.outputs), enumerate(claim.inputs)):
            assert jacobians[:, rows][:, :, columns].max() <= claim.matrix[i, k] * (1.0 + 1e-9)
    elif isinstance(claim, lc.Certificate):
        where = claim.region if claim.region.bounded else BALL
        z = np.concatenate([where.center[None], where.sample(50, rng)])
        start, stop = claim.part.layers
        for layer in network.layers[:start]:
            assert layer.neurons is not None
            z = layer.neurons.value(layer.affine(z))
        piece = network.slice(start, stop)
        chosen: Any = claim.part.outputs, claim.part.inputs
        outputs, inputs = (slice(None) if some is None else list(some) for some in chosen)
        right, left = piece.jacobian(z), piece.jacobian(z, side=-1)
        clear = (right == left).all(axis=(1, 2))
        sizes = np.linalg.norm(right[clear][:, outputs][:, :, inputs], ord=2, axis=(1, 2))
        assert (sizes <= claim.bound * (1.0 + 1e-12)).all()
    elif isinstance(claim, CertifiedRadius) and claim.radius > 0.0:
        assert claim.proof is not None
        ball = claim.proof.ball
        points = lc.Ball(ball.center, min(claim.radius, 1e100), ball.clip).sample(50, rng)
        assert (network(points).argmax(axis=1) == claim.label).all()


@pytest.mark.parametrize("share", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [case for case in ANSWERS if case != "norms"])
def test_fuzz(case: str, share: int, tmp_path: Path) -> None:
    """Whatever is done to a file, the outcome is an error of ours or an answer that holds."""
    network, answer = ANSWERS[case][0], answer_to(case)
    file, rng = tmp_path / "a.json", random.Random(len(case))
    lc.save_answer(answer, file)
    text, stored = file.read_bytes(), json.loads(file.read_text(encoding="utf-8"))
    outcomes = {"unreadable": 0, "refused": 0, "proved": 0}
    for _ in range(50 * share):
        if rng.random() < 0.3:
            file.write_bytes(mangled(rng, text))
        else:
            file.write_text(json.dumps(signed(rewritten(rng, stored["content"]), stored["kind"])), encoding="utf-8")
        try:
            found = lc.load_answer(file)
            lc.verify(network, found)
        except UnreadableCertificate:
            outcomes["unreadable"] += 1
        except ProofFailed:
            outcomes["refused"] += 1
        else:
            outcomes["proved"] += 1
            holds(network, found)
    assert outcomes["unreadable"] > 6 * share
    assert outcomes["refused"] + outcomes["proved"] > share


def malformed() -> list[tuple[str, Any]]:
    """What does not have the form of an answer, and a word of the refusal."""
    certificate, reach, rows = lc.certify(NETWORK, BALL, lc.ClosedForm()), answer_to("reach"), answer_to("sweep")
    assert isinstance(reach, Reach)
    assert isinstance(rows, tuple)
    sweep = certificate.sweeps[0]
    found: list[tuple[str, Any]] = [
        ("claims less", [replace(rows[0], bound=float("nan"))]),
        ("hull", replace(reach, hull=(*reach.hull, reach.hull[0]))),  # type: ignore[arg-type]
    ]
    for count in (1, 3):
        lines: Any = tuple((pair * 2)[:count] for pair in sweep.lines)
        found.append(("bounding lines", replace(certificate, sweeps=(replace(sweep, lines=lines),))))
    for name in ("outputs", "inputs"):
        one: dict[str, Any] = {name: [[0]]}
        twice: dict[str, Any] = {name: ((0, 0),)}  # ‖(y_0, y_0)‖ is √2·|y_0|, which no bound of the whole bounds
        matrix = lc.sensitivity(NETWORK, SMALL, lc.ClosedForm(), **one)
        found.append(("twice", replace(matrix, **twice, matrix=np.full(matrix.matrix.shape, matrix.bound))))
        part = lc.certify(NETWORK, SMALL, lc.ClosedForm(), **{name: [0]})  # type: ignore[arg-type]
        pair: dict[str, Any] = {name: (0, 0)}
        found.append(("repeat an index", replace(part, part=replace(part.part, **pair), bound=1e9)))
    return found


def test_what_is_malformed_is_refused() -> None:
    for message, claim in malformed():
        with pytest.raises(ProofFailed, match=message):
            lc.verify(NETWORK, claim)
        if message == "twice":
            with pytest.raises(ProofFailed, match=message):
                lc.verify(NETWORK, claim, exact=True)
