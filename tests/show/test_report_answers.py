"""Reports about reach sets, sensitivities, certified radii and sweeps: each is proved again, and shown as proved."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.questions.verify import Answer
from lipcert.show.report import write
from networks import random_network
from reports import CENTER, NETWORK, Reader, save_model

pytest.importorskip("matplotlib")

BALL = lc.Ball(CENTER, 0.3)


@cache
def answers() -> tuple[lc.Reach, lc.Sensitivity, lc.CertifiedRadius, tuple[lc.SweepRow, ...]]:
    method = lc.Split(lc.ClosedForm(), np.inf, pieces=10)
    return (
        lc.reach(NETWORK, BALL, method),
        lc.sensitivity(NETWORK, BALL, lc.ClosedForm(), inputs=[[0, 1], [2]]),
        lc.certified_radius(NETWORK, CENTER),
        lc.sweep(NETWORK, CENTER, [0.4, 0.1], lc.ClosedForm()),
    )


def shown(folder: Path, *claims: Answer, model: lc.Network | None = NETWORK) -> tuple[Reader, list[bool]]:
    """The page about some answers, and which of them were proved."""
    paths = [folder / f"answer{number}.json" for number in range(len(claims))]
    for path, claim in zip(paths, claims, strict=True):
        lc.save_answer(claim, path)
    written = write(paths, folder / "page.html", models={} if model is None else {"model.npz": model})
    return Reader(folder / "page.html"), [item.proved for item in written]


def test_a_reach_set(tmp_path: Path) -> None:
    claim = answers()[0]
    read, proved = shown(tmp_path, claim)
    assert proved == [True]
    assert "Reach sets . Proved again for this report: 1 of 1." in read.text
    assert "For every input x in the ball of radius 0.3 around [0.1, -0.2, 0.3], f(x) has" in read.text
    assert f"{len(claim.hull[0])}, each with a box of its own" in read.text
    rows = [[float(cell) for cell in row] for row in read.rows if len(row) == 5 and row[0].isdigit()]
    assert [row[0] for row in rows] == [0, 1, 2]
    for k, (_, lower, center, upper, width) in enumerate(rows):
        assert lower <= claim.lower[k] <= center <= claim.upper[k] <= upper  # rounded outwards
        assert width == pytest.approx(claim.upper[k] - claim.lower[k], rel=1e-3)
        assert upper - lower == pytest.approx(width, rel=1e-3)
    assert read.count("img") == 1


def test_what_is_drawn_needs_the_model(tmp_path: Path) -> None:
    read, proved = shown(tmp_path, answers()[0], model=None)
    assert (proved, read.count("img")) == ([False], 0)
    assert "Not checked: no model was given" in read.text
    assert "Proved again" not in read.text


def test_sensitivities(tmp_path: Path) -> None:
    claim = answers()[1]
    read, proved = shown(tmp_path, claim)
    assert proved == [True]
    rows = [row for row in read.rows if len(row) == 3 and row[0].isdigit()]
    assert {(row[0], row[1]) for row in rows} == {(str(i), k) for i in range(3) for k in ("0 + 1", "2")}
    bounds = [float(row[2]) for row in rows]
    assert bounds == sorted(bounds, reverse=True)
    for output, into, bound in rows:
        entry = claim.matrix[int(output), int(into == "2")]
        assert entry <= float(bound) <= 1.0001 * entry
    assert read.count("img") == 1


def test_certified_radii(tmp_path: Path) -> None:
    claim, other = answers()[2], lc.certified_radius(random_network(5, (3, 6, 2), "relu"), CENTER)
    read, proved = shown(tmp_path, claim, other)
    assert proved == [True, False]
    assert f"is of class {claim.label}, which has the largest output of f" in read.text
    radius, _ = re.findall(r"closer to its centre than ([\d.]+) is", read.text)
    assert 0.9999 * claim.radius <= float(radius) <= claim.radius  # rounded down
    assert f"{claim.basis}, as the file says" in read.text


def test_a_sweep_shows_what_its_certificates_prove_and_lower_bounds_of_its_own(tmp_path: Path) -> None:
    rows = answers()[3]
    forged = replace(rows[0], radius=50.0, lower=1e6)  # nothing proves either
    read, proved = shown(tmp_path, (forged, rows[1], replace(rows[0], radius=0.2)))
    assert proved == [True]
    cells = [row for row in read.rows if len(row) == 6 and row[0][:1].isdigit()]
    assert [cell[0] for cell in cells] == ["0.4", "0.1", "0.2"]
    assert [cell[4].split(" around")[0] for cell in cells] == [f"ball of radius {r}" for r in ("0.4", "0.1", "0.2")]
    for (_, bound, lower, *_), row in zip(cells, (rows[0], rows[1], rows[0])):
        assert 0.5 * row.lower < float(lower) <= row.bound <= float(bound) <= 1.0001 * row.bound
    assert read.count("img") == 1
    assert "Lower bounds found for this report" in read.text
    assert "Lower bounds as the file says" in shown(tmp_path, rows, model=None)[0].text


def test_answers_that_are_not_provable_are_called_so_and_the_command_says_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "model.npz")
    reach, sensitivity, radius, rows = answers()
    certificate = rows[0].certificate
    forged: dict[str, Answer] = {
        "bound": replace(certificate, bound=0.9 * certificate.bound),
        "reach": replace(reach, upper=reach.upper - 1e-3),
        "sensitivity": replace(sensitivity, matrix=0.99 * sensitivity.matrix),
        "radius": replace(radius, radius=1.01 * radius.radius, ball=1.01 * radius.ball),
        "sweep": (replace(rows[0], certificate=replace(certificate, bound=0.9 * certificate.bound)),),
    }
    for name, claim in forged.items():
        lc.save_answer(claim, f"{name}.json")
        outcome = Command(capsys)("report", f"{name}.json", "--model", "model.npz", "-o", "report.html")
        assert outcome.code == 1
        assert f"not proved: {name}.json" in outcome.err
        read = Reader(tmp_path / "report.html")
        assert "Not provable: 1." in read.text
        assert "Not proved:" in read.text
        assert read.count("img") == 0
